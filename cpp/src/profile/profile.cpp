#include "hockeystick/profile.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "hockeystick/arithmetic.hpp"
#include "profile/direction.hpp"

namespace hockeystick {
namespace {

void require_directions(std::size_t directions) {
    if (directions == 0) throw std::logic_error("Profile: nothing is left where it was moved from");
}

void keep_worst(Answer& worst, Answer other, std::size_t direction) {
    other.direction = direction;
    const double lower = std::max(worst.lower, other.lower);
    if (other.upper > worst.upper) worst = other;
    worst.lower = lower;
}

// The worst direction. Of the others mostly a coarse upper bound shows that they cannot be it.
template <class Bounds, class AtMost>
Answer worst(std::size_t directions, Bounds&& bounds, AtMost&& at_most) {
    require_directions(directions);
    Answer best = bounds(0);
    for (std::size_t i = 1; i < directions; ++i)
        if (!at_most(i, best.lower)) keep_worst(best, bounds(i), i);
    return best;
}

void require_numbers(std::span<const double> epsilons, const char* name) {
    if (std::any_of(epsilons.begin(), epsilons.end(), [](double epsilon) { return std::isnan(epsilon); }))
        throw std::invalid_argument(std::string(name) + ": epsilon must be a number");
}

}  // namespace

Profile::Profile(std::vector<Composition> directions, double accuracy, std::size_t memory_limit,
                 Engine engine, const std::function<void()>& before_lattices) {
    const StandardArithmetic standard;
    if (directions.empty()) throw std::invalid_argument("Profile: at least one direction is needed");
    if (!(accuracy > 0 && accuracy <= 1)) throw std::invalid_argument("Profile: accuracy must lie in (0, 1]");
    for (auto& composition : directions) {
        if (composition.empty()) throw std::invalid_argument("Profile: a direction without mechanisms");
        for (const auto& [pair, count] : composition) {
            if (pair == nullptr) throw std::invalid_argument("Profile: a pair is missing");
            if (count == 0 || count > (std::uint64_t{1} << 53))
                throw std::invalid_argument("Profile: counts must lie in [1, 2^53]");
        }
        directions_.push_back(std::make_unique<Direction>(std::move(composition), accuracy, memory_limit,
                                                          engine, before_lattices));
    }
}
Profile::~Profile() = default;
Profile::Profile(Profile&&) noexcept = default;
Profile& Profile::operator=(Profile&&) noexcept = default;

Answer Profile::epsilon_bounds(double delta) const {
    if (!(delta >= 0 && delta <= 1)) throw std::invalid_argument("epsilon_bounds: delta must lie in [0, 1]");
    const StandardArithmetic standard;
    return worst(
        directions_.size(), [&](std::size_t i) { return directions_[i]->epsilon_bounds(delta); },
        [&](std::size_t i, double ceiling) { return directions_[i]->epsilon_at_most(delta, ceiling); });
}

Answer Profile::delta_bounds(double epsilon) const {
    require_numbers({&epsilon, 1}, "delta_bounds");
    const StandardArithmetic standard;
    return worst(
        directions_.size(), [&](std::size_t i) { return directions_[i]->delta_bounds(epsilon); },
        [&](std::size_t i, double ceiling) { return directions_[i]->delta_at_most(epsilon, ceiling); });
}

std::vector<Answer> Profile::delta_curve(std::span<const double> epsilons) const {
    const StandardArithmetic standard;
    require_numbers(epsilons, "delta_curve");
    require_directions(directions_.size());
    std::vector<Answer> out = directions_.front()->delta_curve(epsilons);
    for (std::size_t d = 1; d < directions_.size(); ++d) {
        const Direction& direction = *directions_[d];
        // What takes long is asked where it may be the worst.
        const bool all = direction.quick();
        ask_together(
            epsilons,
            [&](std::size_t i) { return all || !direction.delta_at_most(epsilons[i], out[i].lower, false); },
            [&](const auto& open) { return direction.delta_curve(open); },
            [&](std::size_t i, const Answer& found) { keep_worst(out[i], found, d); });
    }
    return out;
}

std::vector<Answer> Profile::rough_curve(std::span<const double> epsilons, double negligible) const {
    const StandardArithmetic standard;
    require_numbers(epsilons, "rough_curve");
    if (!(negligible > 0 && negligible <= 1))
        throw std::invalid_argument("rough_curve: negligible must lie in (0, 1]");
    std::vector<Answer> out;
    for (const auto& direction : directions_) {
        const auto curve = direction->rough_curve(epsilons, negligible);
        if (out.empty()) out = curve;
        for (std::size_t i = 0; i < curve.size(); ++i) {
            out[i].lower = std::max(out[i].lower, curve[i].lower);
            out[i].upper = std::max(out[i].upper, curve[i].upper);
        }
    }
    return out;
}

bool Profile::quick() const {
    return std::all_of(directions_.begin(), directions_.end(),
                       [](const auto& direction) { return direction->quick(); });
}

std::size_t Profile::most_memory(std::size_t memory_limit) {
    return LatticeEngine::most_memory(memory_limit);
}

}  // namespace hockeystick
