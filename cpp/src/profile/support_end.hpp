// What the largest losses alone say about delta and eps (docs/accounting/bounds.md, "The end of the
// support"): next to their sum tilts grow without end, and no lattice is fine enough.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "hockeystick/answer.hpp"
#include "lattice/tail_table.hpp"
#include "numerics/constants.hpp"
#include "profile/answers.hpp"

namespace hockeystick {

// With M the sum of the largest losses, only outcomes with every loss within M - eps of its largest value
// count at eps. They are sorted by how many steps are not at their largest loss, up to a hair: none, one, or
// more, of which the first two are exact but for the hair and the rest is bounded.
class SupportEnd {
public:
    explicit SupportEnd(const Composition& composition) {
        double sum = 0, size = 0;
        for (const auto& [pair, count] : composition) {
            const double k = static_cast<double>(count), largest = pair->max_loss();
            kinds_.push_back({pair, k, largest});
            steps_ += k;
            sum += k * largest;
            size += k * std::abs(largest);
            log_finite_ += k * std::log1p(-pair->infinity_mass());
        }
        // Counts, products and partial sums round once each; losses that are a multiple of something are
        // trusted to a few units.
        const double rounding =
            std::isfinite(size) ? (16 + static_cast<double>(kinds_.size())) * u * size : 0;
        lower_sum_ = sum - rounding;
        upper_sum_ = sum + rounding;
    }

    // M, rounded up; +inf where some loss is unbounded, and then nothing more is known.
    double sum() const { return upper_sum_; }
    // Whether the rounding of the largest losses shows, so that neither a tilt nor a lattice is fine enough.
    bool rules(double epsilon) const {
        return std::isfinite(upper_sum_) && upper_sum_ - epsilon < nearest * std::abs(upper_sum_);
    }

    // P(L = inf) of all steps together, and ln of what is left of 1.
    Answer infinity_mass() const {
        const double mass = 0.0 - std::expm1(log_finite_),
                     slack = rounding_of_mass + 4 * u * static_cast<double>(kinds_.size()),
                     // Masses below the normal doubles are rounded by a unit of theirs in each step.
            unit = mass > 0 && mass < fully_precise ? 5e-324 * steps_ : 0.0;
        Answer answer = exact(std::max(0.0, mass * (1 - slack) - unit));
        answer.upper = std::min(1.0, mass * (1 + slack) + unit);
        return answer;
    }
    double log_finite() const { return log_finite_; }

    // All there is next to M; elsewhere valid, but wide.
    Answer delta(double epsilon) const {
        Answer answer = infinity_mass();
        const auto [lower, upper] = finite_delta(epsilon);
        answer.lower = std::max(answer.lower + lower * (1 - 4 * u), trivial_delta(epsilon));
        answer.upper = std::max(answer.lower, std::min(1.0, (answer.upper + upper) * (1 + 4 * u)));
        return answer;
    }
    std::optional<Answer> epsilon(double delta_wanted) const {
        const double most = upper_sum_;
        if (!std::isfinite(most) || !(most > 0) || !(infinity_mass().upper <= delta_wanted)) return {};
        Answer answer = exact(0);
        answer.upper =
            std::min(most, upper_epsilon([&](double e) { return delta(e).upper; }, delta_wanted, most));
        answer.lower = std::min(answer.upper, lower_epsilon([&](double e) { return delta(e).lower; },
                                                            delta_wanted, answer.upper));
        return answer;
    }

private:
    // proof: pairs of very many parts state their mass at infinity up to this; less than this is rounded by
    // whole units of the subnormal numbers.
    static constexpr double rounding_of_mass = 1e-12, fully_precise = 1e-290;
    // proof: less than this would overflow what it divides; what is left out only makes the lower bound
    // lower.
    static constexpr double least_divisor = 1e-280;
    // proof ("The end of the support"): nearer to M, relatively, roundings of the losses, multiplied by the
    // tilt, exceed what a transform counts.
    static constexpr double nearest = 1e-11;

    // proof: tails are those at a loss within `misplaced` of the one asked for: to be sure of a direction,
    // ask this much further.
    static constexpr double misplacements = 4;

    // P(x < L < inf) rounded up (direction +1) or down (-1), as a logarithm.
    static double log_tail(const Pair& pair, double x, int direction) {
        const double hair = misplacements * (pair.above(x).misplaced + u * std::abs(x));
        const double at = x - direction * hair;
        const Tangent t = pair.above(at);
        if (!(t.misplaced <= hair)) return direction > 0 ? 0 : -infinity;
        const double p = t.value + t.slope;
        const double rounded = p + direction * (t.error + t.relative * (2 * std::abs(p) + t.slope) +
                                                8 * u * (std::abs(p) + t.slope));
        if (std::isnan(rounded)) return direction > 0 ? 0 : -infinity;
        if (!(rounded > 0)) return -infinity;
        return std::min(0.0, std::log(rounded) + t.exponent + direction * 4 * u * (1 + std::abs(t.exponent)));
    }

    // H_{e^x} without the P-mass at +inf, rounded up or down.
    static double finite_profile(const Pair& pair, double x, int direction) {
        const Tangent t = pair.above(x);
        const double slack = t.error + u * (8 + 2 * std::abs(t.exponent)) * std::abs(t.value);
        return std::max(0.0, t.value + direction * slack) * std::exp(t.exponent) +
               (direction > 0 ? 1e-320 : 0.0);
    }

    // Without what infinite losses add.
    std::pair<double, double> finite_delta(double epsilon) const {
        if (epsilon >= upper_sum_) return {0, 0};
        if (!std::isfinite(upper_sum_) || !std::isfinite(epsilon)) return {0, 1};
        const double wide = (upper_sum_ - epsilon) * (1 + 2 * u),
                     narrow = std::max(0.0, (lower_sum_ - epsilon) * (1 - 2 * u));
        std::pair<double, double> best{0, 1};
        // Any hair gives bounds. Atoms want next to none, densities a share of the distance to the end.
        for (const auto& [share, floor] :
             {std::pair{0.0, 8.0}, {0.0, 64.0}, {0.0, 1e4}, {1e-6, 1e3}, {0.03, 64.0}, {0.5, 64.0}}) {
            const auto [lower, upper] = with_hair(wide, narrow, share, floor);
            best.first = std::max(best.first, lower);
            best.second = std::min(best.second, upper);
        }
        best.first = std::min(best.first, best.second);
        return best;
    }
    // D = (largest loss) - L >= 0 in every step. `wide` and `narrow` bound M - eps; the hair is a share of
    // it, or a number of units of the loss where that is more.
    std::pair<double, double> with_hair(double wide, double narrow, double share, double floor) const {
        const double loss =
            -std::expm1(-wide) * (1 + 4 * u);  // of outcomes at their largest loss, rounded up
        double log_high = 0, log_low = 0, log_range = 0, rounding = 0, hairs = 0, others = 0, once = 0;
        std::vector<double> edge;
        for (const Kind& kind : kinds_) {
            const double m = kind.largest,
                         hair = std::max(share * wide / steps_, floor * u * (std::abs(m) + 1e-290));
            edge.push_back(m - hair);
            hairs += kind.count * (m - edge.back()) * (1 + 4 * u);
        }
        hairs *= 1 + static_cast<double>(kinds_.size()) * u;
        const double least = narrow - hairs;
        double gained = 0;
        for (std::size_t i = 0; i < kinds_.size(); ++i) {
            const auto& [pair, k, m] = kinds_[i];
            const double hair = (m - edge[i]) * (1 + 4 * u);
            const double bottom = (m - wide) - 4 * u * (std::abs(m) + wide);
            const double high = log_tail(*pair, edge[i], +1), low = log_tail(*pair, edge[i], -1),
                         range = std::max(high, log_tail(*pair, bottom, +1));
            log_high += k * high;
            log_low += k * low;
            log_range += k * range;
            for (const double part : {high, low, range})
                if (std::isfinite(part)) rounding = std::max(rounding, std::abs(part));
            const double p_high = std::exp(high), p_low = std::exp(low);
            // Not at the largest loss, but near enough to count; and what it then counts if no other step is.
            const double other =
                std::max(0.0, std::exp(range) * (1 + 8 * u * (1 + std::abs(range))) - p_low * (1 - 8 * u));
            const double inside = wide > hair ? -std::expm1(hair - wide) * (1 - 8 * u) : 0;
            const double counts = std::clamp(finite_profile(*pair, bottom, +1) - p_low * inside * (1 - 8 * u),
                                             0.0, other * loss);
            others += k * other / p_high;
            once += k * counts / p_high;
            if (least > 0 && p_low > least_divisor) {
                const double top = (m - least) + 4 * u * (std::abs(m) + least);
                const double extra = finite_profile(*pair, top, -1) -
                                     p_high * -std::expm1(-least) * (1 + 8 * u * (1 + std::abs(high)));
                gained += k * std::max(0.0, extra) / p_low * (1 - 8 * u * (1 + std::abs(low)));
            }
        }
        const double slack =
            (16 + 4 * static_cast<double>(kinds_.size())) * u * (1 + steps_ * (1 + rounding));
        double upper = std::exp(log_range + slack) * loss;
        // Two or more steps: e^s - 1 - s <= s^2 e^s / 2, s the sum of the ratios.
        const double first = (loss + once + 0.5 * loss * others * others * std::exp(others)) * (1 + slack);
        if (std::isfinite(first) && std::isfinite(log_high))
            upper = std::min(upper, std::exp(log_high + slack) * first);
        double lower = 0;
        if (least > 0 && std::isfinite(log_low))
            lower = std::exp(log_low - slack) * (-std::expm1(-least) * (1 - 4 * u) + gained) * (1 - slack);
        return {std::max(0.0, lower - 5e-324), std::min(1.0, upper + 5e-324)};
    }

    struct Kind {
        PairPtr pair;
        double count, largest;
    };
    std::vector<Kind> kinds_;
    double lower_sum_ = 0, upper_sum_ = 0, steps_ = 0, log_finite_ = 0;
};

}  // namespace hockeystick
