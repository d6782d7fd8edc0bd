// Compositions with a closed form: a single step, Gaussians alone, and few outcomes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "hockeystick/profile.hpp"
#include "lattice/tail_table.hpp"
#include "numerics/constants.hpp"
#include "profile/answers.hpp"
#include "profile/merged_outcomes.hpp"
#include "profile/outcomes.hpp"

namespace hockeystick {

class ClosedForm {
public:
    // Gaussians compose to one Gaussian, mu^2 adds up; a single step is its own composition. The two pairs
    // enclose what rounding of mu may have moved. Empty where there is no closed form.
    static std::optional<ClosedForm> of(const Composition& composition, Engine engine) {
        const auto& [first, first_count] = composition.front();
        if (engine == Engine::prv) return {};
        if (composition.size() == 1 && first_count == 1 && !first->stand_in()) return between(first, first);
        if (engine != Engine::automatic) return {};
        double squares = 0;
        for (const auto& [pair, count] : composition) {
            const double mu = plain_gaussian_mu(*pair);
            if (!(mu > smallest_mu)) return {};
            squares += static_cast<double>(count) * mu * mu;
        }
        const double mu = std::sqrt(squares);
        if (!(mu < largest_mu)) return {};
        const double rounding = (4 + static_cast<double>(composition.size())) * u;
        return between(gaussian(mu * (1 - rounding)), gaussian(mu * (1 + rounding)));
    }

    // The sum over all outcomes, if they are no more than `most`. infinite: their mass at +inf.
    static std::optional<ClosedForm> of_outcomes(const Composition& composition, std::size_t most,
                                                 const Answer& infinite) {
        auto outcomes = Outcomes::of(composition, most);
        return outcomes ? std::optional(sum_over(std::move(outcomes), infinite)) : std::nullopt;
    }
    // The same of outcomes that may have been put together.
    static ClosedForm of_outcomes(const MergedOutcomes& outcomes, Answer infinite) {
        infinite.upper += outcomes.lost;
        return sum_over(std::make_shared<const Outcomes>(outcomes.lower, outcomes.upper), infinite);
    }

    Answer delta(double epsilon) const {
        const Value upper = at_(epsilon, true);
        Answer answer = exact(at_(epsilon, false).value);
        answer.upper = std::max(answer.lower, upper.value);
        answer.round_off = upper.error;
        return answer;
    }

    // max_loss: no finite loss is larger.
    Answer epsilon(double delta, double max_loss) const {
        Answer answer = exact(0);
        answer.upper = upper_epsilon([&](double e) { return at_(e, true).value; }, delta, 1);
        if (!infinite_) answer.upper = std::min(answer.upper, std::max(0.0, max_loss));
        if (std::isfinite(answer.upper))
            answer.lower = lower_epsilon([&](double e) { return at_(e, false).value; }, delta, answer.upper);
        answer.round_off = at_(answer.upper, true).error;
        return answer;
    }

private:
    // proof: squares of mu neither lose digits to underflow nor overflow.
    static constexpr double smallest_mu = 1e-140, largest_mu = 1e150;
    // proof: pairs of very many parts state their mass at infinity up to this.
    static constexpr double rounding_of_mass = 1e-12;

    struct Value {
        double value, error;
    };
    // Bounds of the profile on either side, with their stated error.
    using Bounds = std::function<Value(double epsilon, bool upper)>;
    ClosedForm(Bounds at, bool infinite) : at_(std::move(at)), infinite_(infinite) {}

    static Value rounded(double value, double error, double epsilon, bool upper) {
        const double least = trivial_delta(epsilon),
                     moved = upper ? value + error + 5e-324 : value - error - 5e-324;
        // Proof: what is no number bounds nothing; minima and maxima would take it for either end.
        if (std::isnan(moved)) return {upper ? 1.0 : least, 1.0};
        return {std::clamp(moved, least, 1.0), error};
    }

    static ClosedForm sum_over(std::shared_ptr<const Outcomes> outcomes, const Answer& infinite) {
        return ClosedForm(
            [outcomes = std::move(outcomes), infinite](double epsilon, bool upper) {
                const double lower = outcomes->delta(epsilon, false) + infinite.lower,
                             most_of_it = outcomes->delta(epsilon, true) + infinite.upper;
                return rounded(upper ? most_of_it : lower, 4 * u * most_of_it, epsilon, upper);
            },
            infinite.upper > 0);
    }

    // The composition is between the two (docs/accounting/bounds.md, "Layers of losses", its end).
    static ClosedForm between(PairPtr below, PairPtr above) {
        const bool infinite = above->infinity_mass() > 0;
        return ClosedForm(
            [lower = std::move(below), higher = std::move(above)](double epsilon, bool upper) {
                const Pair& pair = upper ? *higher : *lower;
                const Tangent t = pair.above(epsilon);
                const double scale = std::exp(t.exponent);
                const double error =
                    (t.error + 4 * u * std::abs(t.value) * (1 + std::abs(t.exponent))) * scale +
                    rounding_of_mass * pair.infinity_mass();
                return rounded(t.value * scale + pair.infinity_mass(), error, epsilon, upper);
            },
            infinite);
    }

    Bounds at_;
    bool infinite_;
};

}  // namespace hockeystick
