#include "inversion/renyi.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "inversion/allocation_transform.hpp"
#include "inversion/transform.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// proof: up to here order - 1 is exact; more than the rounding of a largest loss; of a few operations.
constexpr double largest_order = 9007199254740992.0, slack_of_loss = 1e-12, slack = 8 * u,
                 slack_of_parts = 1e-12;
// speed: what the quadrature aims at, relative to 1 and then to what it found; which rare laws may be left
// out.
constexpr double tolerance = 1e-13, least_tolerance = 1e-60, most_tolerance = 1e-6, rare_mass = 5e-324;

// Bounds on ln E_P[e^{sL}]; (-inf, inf) where the quadrature would take too many nodes.
std::pair<double, double> log_moment(const Transform& transform, double s, double max_loss) {
    double aim = tolerance;
    for (int attempt = 0;; ++attempt) {
        const Transform::Row row = transform.row(s, 0, 1, aim);
        if (row.value.empty()) {
            if (aim > most_tolerance) return {-infinity, infinity};
            aim *= 1e3;
            attempt = 2;  // not finer again
            continue;
        }
        const double excess = row.value[0].real(), error = row.error[0];
        // Little is known of a moment near 1 unless the error is small beside its distance from 1.
        if (attempt < 2 && row.shift == 0 && error > 1e-10 * excess && aim > least_tolerance) {
            aim = std::max(least_tolerance, aim * std::clamp(0.1 * excess, 1e-24, 1e-2));
            continue;
        }
        const double dropped = transform.dropped() > 0
                                   ? std::exp(std::log(transform.dropped()) + s * max_loss - row.shift)
                                   : 0.0;
        const double high = row.shift + std::log1p(excess + error + dropped);
        const double low = excess - error > -1 ? row.shift + std::log1p(excess - error) : -infinity;
        if (!(high >= low)) return {-infinity, infinity};  // something was nan
        return {low - slack * std::abs(low), high + slack * std::abs(high)};
    }
}

// Bounds on the same without quadrature ("Far orders"): the moment is jointly convex in P and Q, and not less
// than what one part of P has against a Q of one part.
std::pair<double, double> log_moment_of_parts(const std::vector<GaussianMixtures>& mixtures, double s) {
    double low = -infinity, largest = -infinity, total = 0, terms = 0;
    for (const auto& m : mixtures) total += m.weight;
    for (const auto& m : mixtures)
        for (std::size_t i = 0; i < m.p_shift.size(); ++i)
            for (std::size_t j = 0; j < m.q_shift.size(); ++j) {
                const double shift = m.p_shift[i] - m.q_shift[j];
                const double moment = 0.5 * s * (s + 1) * shift * shift, part = std::log(m.weight / total);
                largest =
                    std::max(largest, part + std::log(m.p_weight[i]) + std::log(m.q_weight[j]) + moment);
                ++terms;
                if (m.q_shift.size() == 1)
                    low = std::max(low, part + (s + 1) * std::log(m.p_weight[i]) + moment);
            }
    const double high = largest + std::log(terms);
    return {low - slack_of_parts * std::abs(low), high + slack_of_parts * std::abs(high)};
}

// The same of an allocation: V^{1+s}, V the mean of T ratios W, is at most the mean of theirs and at least
// their sum over T^{1+s}; V^{-s} is at most that of their geometric mean. The outputs' sum, moved by mu /
// sqrt(T), shows no more than all of them.
std::pair<double, double> log_moment_of_ratios(const Allocation& law, double s) {
    const double one = 0.5 * s * (s + 1) * law.mu * law.mu, less = s * std::log(law.steps),
                 ratios = one - less - slack_of_parts * (one + less), sum = one / law.steps;
    const double high = law.add ? 0.5 * s * (s / law.steps + 1) * law.mu * law.mu : one;
    return {(law.add ? sum : std::max(ratios, sum)) * (1 - slack_of_parts), high * (1 + slack_of_parts)};
}

}  // namespace

std::pair<double, double> renyi_divergence(const Pair& pair, double order) {
    if (!(order > 1 && (order <= largest_order || order == infinity)))
        throw std::invalid_argument("renyi_divergence: order must lie in (1, 2^53] or be +inf");
    if (pair.infinity_mass() > 0) return {infinity, infinity};
    const double most = std::max(0.0, pair.max_loss());
    if (order == infinity) return {most * (1 - slack_of_loss), most};
    if (const double mu = plain_gaussian_mu(pair); mu > 0) {
        const double value = 0.5 * mu * mu * order;
        return {value * (1 - slack), value * (1 + slack) + 5e-324};
    }
    // High orders see the rarest losses: the whole range of outputs counts.
    const auto allocation = pair.allocation();
    const std::unique_ptr<const Transform> transform =
        allocation ? std::make_unique<AllocationTransform>(*allocation, AllocationTransform::uncut)
                   : Transform::of(pair, tolerance, pair.gaussian_mixtures().empty() ? rare_mass : 0);
    if (!transform) return {0, most};
    const double s = order - 1;
    auto [low, high] = log_moment(*transform, s, most);
    if (const auto mixtures = pair.gaussian_mixtures(); high == infinity && !mixtures.empty())
        std::tie(low, high) = log_moment_of_parts(mixtures, s);
    if (high == infinity && allocation) std::tie(low, high) = log_moment_of_ratios(*allocation, s);
    // D increases with the order, from at least 0 up to the largest loss.
    const double upper = std::min(most, std::max(0.0, high / s * (1 + slack)));
    return {std::clamp(low / s * (1 - slack), 0.0, upper), upper};
}

}  // namespace hockeystick
