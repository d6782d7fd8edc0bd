// What other directions say of this one: those of what is beside its atoms, given each of their outcomes, and
// that of P and Q in each other's places.
#include <algorithm>
#include <functional>
#include <mutex>
#include <numeric>

#include "profile/direction.hpp"

namespace hockeystick {

GivenOutcomes::Rest Profile::Direction::Given::beside() const {
    return {[this](auto epsilons) {
                return ask_in_order(epsilons, [&](const auto& sorted) { return rest->delta_curve(sorted); });
            },
            [this](auto epsilons, double negligible) {
                const std::lock_guard lock(rest->mutex_);
                return rest->nothing_from(std::move(epsilons), negligible);
            }};
}

std::vector<Answer> Profile::Direction::Given::delta_curve(std::span<const double> epsilons,
                                                           std::span<const double> about) const {
    return outcomes.delta_curve(epsilons, about, beside());
}

Answer Profile::Direction::Given::epsilon_bounds(double delta, const Answer& about) const {
    return outcomes.epsilon_bounds(delta, about, beside());
}

const Profile::Direction::Given* Profile::Direction::given() const {
    auto outcomes = !asked_given_ && inversion_ ? GivenOutcomes::of(composition_) : std::nullopt;
    if (outcomes) {
        auto rest = std::make_unique<Direction>(outcomes->rest(), share_of_rest * accuracy_, memory_limit_,
                                                Engine::automatic, before_lattices_);
        given_ = Given{std::move(*outcomes), std::move(rest)};
    }
    asked_given_ = true;
    return given_ ? &*given_ : nullptr;
}

Answer Profile::Direction::epsilon_given(double delta, Answer best) const {
    if (!(best.lower > 0 && std::isfinite(best.upper)))
        best.upper = std::min(best.upper, inversion_->chernoff_epsilon(delta));
    best = both(given()->epsilon_bounds(delta, best), best);
    if (close(best, accuracy_) || effort() == Inversion::Effort::all) return best;
    const auto inverted = inversion_->epsilon_bounds(delta);
    return inverted ? both(capped(*inverted, delta), best) : best;
}

Answer Profile::Direction::delta_given(double epsilon, Answer best) const {
    best = both(given()->delta_curve({&epsilon, 1}, {&best.lower, 1}).front(), best);
    if (settled(best) || effort() == Inversion::Effort::all) return best;
    const auto inverted = inversion_->delta_bounds(epsilon);
    return inverted ? both(*inverted, best) : best;
}

// delta falls, so that it is no less than what is known of one further on.
void Profile::Direction::keep_given(std::span<const double> epsilons, std::span<const double> known,
                                    double below, std::vector<std::optional<Answer>>& curve) const {
    const auto open = [&](std::size_t i) { return !curve[i] && epsilons[i] < below; };
    std::vector<std::size_t> last_first(epsilons.size());
    std::iota(last_first.begin(), last_first.end(), std::size_t{0});
    std::ranges::sort(last_first, std::greater(), [&](std::size_t i) { return epsilons[i]; });
    std::vector<double> least(epsilons.size()), about;
    double most = 0;
    for (const std::size_t i : last_first) least[i] = most = std::max(most, known[i]);
    for (std::size_t i = 0; i < epsilons.size(); ++i)
        if (open(i)) about.push_back(least[i]);
    ask_together(
        epsilons, open, [&](const auto& asked) { return given()->delta_curve(asked, about); },
        [&](std::size_t i, const Answer& found) {
            if (settled(found)) curve[i] = found;
        });
}

const Profile::Direction* Profile::Direction::mirror() const {
    if (!asked_mirror_ && inversion_)
        if (Composition turned = mirrored(composition_); !turned.empty())
            mirror_ = std::make_unique<Direction>(std::move(turned), accuracy_, memory_limit_,
                                                  Engine::automatic, before_lattices_);
    asked_mirror_ = true;
    return mirror_.get();
}

std::vector<std::optional<Answer>> Profile::Direction::by_mirror(std::span<const double> epsilons) const {
    std::vector<std::optional<Answer>> curve(epsilons.size());
    if (!std::any_of(epsilons.begin(), epsilons.end(), [](double epsilon) { return epsilon < 0; }))
        return curve;
    const std::lock_guard lock(mutex_);
    const Direction* other = mirror();
    if (!other) return curve;
    ask_together(
        epsilons, [&](std::size_t i) { return epsilons[i] < 0; },
        [&](std::vector<double> turned) {
            for (double& epsilon : turned) epsilon = -epsilon;
            return ask_in_order(turned, [&](const auto& sorted) {
                return other->but_for_nothing(sorted, negligible_of_mirror);
            });
        },
        [&](std::size_t i, const Answer& found) { curve[i] = from_mirror(found, epsilons[i]); });
    return curve;
}

std::vector<Answer> Profile::Direction::but_for_nothing(std::span<const double> epsilons,
                                                        double negligible) const {
    double end = not_a_number;
    {
        const std::lock_guard lock(mutex_);
        end = nothing_from({epsilons.begin(), epsilons.end()}, negligible);
    }
    Answer hardly = exact(0);
    hardly.upper = negligible;
    std::vector<Answer> curve(epsilons.size(), hardly);
    ask_together(
        epsilons, [&](std::size_t i) { return !(epsilons[i] >= end); },
        [&](const auto& open) { return delta_curve(open); },
        [&](std::size_t i, const Answer& found) { curve[i] = found; });
    return curve;
}

}  // namespace hockeystick
