// Compositions with a closed form: a single step, and Gaussians alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "hockeystick/profile.hpp"
#include "lattice/tail_table.hpp"
#include "numerics/constants.hpp"
#include "profile/answers.hpp"

namespace hockeystick {

class ClosedForm {
public:
    // Gaussians compose to one Gaussian, mu^2 adds up; a single step is its own composition. The two pairs
    // enclose what rounding of mu may have moved. Empty where there is no closed form.
    static std::optional<ClosedForm> of(const Composition& composition, Engine engine) {
        const auto& [first, first_count] = composition.front();
        if (engine == Engine::prv) return {};
        if (composition.size() == 1 && first_count == 1 && !first->stand_in())
            return ClosedForm(first, first);
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
        return ClosedForm(gaussian(mu * (1 - rounding)), gaussian(mu * (1 + rounding)));
    }

    Answer delta(double epsilon) const {
        const Value upper = at(epsilon, true);
        Answer answer = exact(at(epsilon, false).value);
        answer.upper = std::max(answer.lower, upper.value);
        answer.round_off = upper.error;
        return answer;
    }

    // max_loss: no finite loss is larger.
    Answer epsilon(double delta, double max_loss) const {
        Answer answer = exact(0);
        answer.upper = upper_epsilon([&](double e) { return at(e, true).value; }, delta, 1);
        if (upper_->infinity_mass() == 0) answer.upper = std::min(answer.upper, std::max(0.0, max_loss));
        if (std::isfinite(answer.upper))
            answer.lower = lower_epsilon([&](double e) { return at(e, false).value; }, delta, answer.upper);
        answer.round_off = at(answer.upper, true).error;
        return answer;
    }

private:
    ClosedForm(PairPtr lower, PairPtr upper) : lower_(std::move(lower)), upper_(std::move(upper)) {}

    // proof: squares of mu neither lose digits to underflow nor overflow.
    static constexpr double smallest_mu = 1e-140, largest_mu = 1e150;
    // proof: pairs of very many parts state their mass at infinity up to this.
    static constexpr double rounding_of_mass = 1e-12;

    struct Value {
        double value, error;
    };
    // The profile itself, with its stated error.
    Value at(double epsilon, bool upper) const {
        const Pair& pair = upper ? *upper_ : *lower_;
        const Tangent t = pair.above(epsilon);
        const double scale = std::exp(t.exponent);
        const double error = (t.error + 4 * u * std::abs(t.value) * (1 + std::abs(t.exponent))) * scale +
                             rounding_of_mass * pair.infinity_mass();
        const double value = t.value * scale + pair.infinity_mass();
        return {
            std::clamp(upper ? value + error + 5e-324 : value - error - 5e-324, trivial_delta(epsilon), 1.0),
            error};
    }

    PairPtr lower_, upper_;  // the composition is between the two
};

}  // namespace hockeystick
