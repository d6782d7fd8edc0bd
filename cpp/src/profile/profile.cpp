#include "hockeystick/profile.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "hockeystick/arithmetic.hpp"
#include "profile/direction.hpp"

namespace hockeystick {
namespace {

// The worst direction. Of the others mostly a coarse upper bound shows that they cannot be it.
template <class Bounds, class AtMost>
std::optional<Answer> worst(std::size_t directions, Bounds&& bounds, AtMost&& at_most) {
    std::optional<Answer> best = bounds(0);
    for (std::size_t i = 1; best && i < directions; ++i) {
        const std::optional<bool> lesser = at_most(i, best->lower);
        if (!lesser) return {};
        if (*lesser) continue;
        std::optional<Answer> other = bounds(i);
        if (!other) return {};
        other->direction = i;
        const double lower = std::max(best->lower, other->lower);
        if (other->upper > best->upper) best = other;
        best->lower = lower;
    }
    return best;
}

}  // namespace

Profile::Profile(std::vector<Composition> directions, double accuracy, std::size_t memory_limit,
                 Engine engine)
    : accuracy_(accuracy) {
    if (directions.empty()) throw std::invalid_argument("Profile: at least one direction is needed");
    if (!(accuracy > 0 && accuracy <= 1)) throw std::invalid_argument("Profile: accuracy must lie in (0, 1]");
    for (auto& composition : directions) {
        if (composition.empty()) throw std::invalid_argument("Profile: a direction without mechanisms");
        for (const auto& [pair, count] : composition) {
            if (pair == nullptr) throw std::invalid_argument("Profile: a pair is missing");
            if (count == 0 || count > (std::uint64_t{1} << 53))
                throw std::invalid_argument("Profile: counts must lie in [1, 2^53]");
        }
        directions_.push_back(
            std::make_unique<Direction>(std::move(composition), accuracy, memory_limit, engine));
    }
}
Profile::~Profile() = default;
Profile::Profile(Profile&&) noexcept = default;
Profile& Profile::operator=(Profile&&) noexcept = default;

std::optional<Answer> Profile::epsilon(double delta, bool lattice) const {
    if (!(delta >= 0 && delta <= 1)) throw std::invalid_argument("epsilon_bounds: delta must lie in [0, 1]");
    return worst(
        directions_.size(),
        [&](std::size_t i) { return directions_[i]->epsilon_bounds(delta, accuracy_, lattice); },
        [&](std::size_t i, double ceiling) {
            return directions_[i]->epsilon_at_most(delta, ceiling, lattice);
        });
}

std::optional<Answer> Profile::delta(double epsilon, bool lattice) const {
    if (std::isnan(epsilon)) throw std::invalid_argument("delta_bounds: epsilon must be a number");
    return worst(
        directions_.size(),
        [&](std::size_t i) { return directions_[i]->delta_bounds(epsilon, accuracy_, lattice); },
        [&](std::size_t i, double ceiling) {
            return directions_[i]->delta_at_most(epsilon, ceiling, lattice);
        });
}

std::vector<Answer> Profile::delta_curve(std::span<const double> epsilons) const {
    const StandardArithmetic standard;
    std::vector<std::vector<std::optional<Answer>>> curves;
    for (const double epsilon : epsilons)
        if (std::isnan(epsilon)) throw std::invalid_argument("delta_curve: epsilon must be a number");
    for (const auto& direction : directions_) curves.push_back(direction->delta_curve(epsilons, accuracy_));
    std::vector<Answer> out;
    for (std::size_t i = 0; i < epsilons.size(); ++i) {
        const auto known = [&](const auto& curve) { return curve[i].has_value(); };
        if (std::all_of(curves.begin(), curves.end(), known)) {
            out.push_back(*worst(
                curves.size(), [&](std::size_t d) { return curves[d][i]; },
                [](std::size_t, double) { return std::optional(false); }));
        } else {
            out.push_back(*delta(epsilons[i], true));
        }
    }
    return out;
}

std::vector<Answer> Profile::rough_curve(std::span<const double> epsilons) const {
    const StandardArithmetic standard;
    for (const double epsilon : epsilons)
        if (std::isnan(epsilon)) throw std::invalid_argument("rough_curve: epsilon must be a number");
    std::vector<Answer> out;
    for (const auto& direction : directions_) {
        const auto curve = direction->rough_curve(epsilons, accuracy_);
        if (out.empty()) out = curve;
        for (std::size_t i = 0; i < curve.size(); ++i) {
            out[i].lower = std::max(out[i].lower, curve[i].lower);
            out[i].upper = std::max(out[i].upper, curve[i].upper);
        }
    }
    return out;
}

Answer Profile::epsilon_bounds(double at_delta) const {
    const StandardArithmetic standard;
    return *epsilon(at_delta, true);
}
Answer Profile::delta_bounds(double at_epsilon) const {
    const StandardArithmetic standard;
    return *delta(at_epsilon, true);
}
std::optional<Answer> Profile::epsilon_without_lattice(double at_delta) const {
    return epsilon(at_delta, false);
}
std::optional<Answer> Profile::delta_without_lattice(double at_epsilon) const {
    return delta(at_epsilon, false);
}
std::size_t Profile::most_memory(std::size_t memory_limit) {
    return LatticeEngine::most_memory(memory_limit);
}

}  // namespace hockeystick
