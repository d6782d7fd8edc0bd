#include "pairs/gdp.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "hockeystick/pairs.hpp"
#include "hockeystick/parallel.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

constexpr std::size_t examples_per_task = 256;  // speed

double epsilon_of(double mu, double delta) {
    if (!(mu > 0) || delta >= 1) return 0;
    if (!(delta > 0) || mu == infinity) return infinity;
    const PairPtr pair = gaussian(mu);
    const double target = std::log(delta);
    // ln of an upper bound on delta(eps), and its derivative.
    const auto at = [&](double epsilon) {
        const Tangent t = pair->above(epsilon);
        const double log_delta = std::log(std::max(0.0, t.value) + t.error) + t.exponent;
        return std::pair{log_delta + 8 * u * (2 + std::abs(t.exponent)), t.slope / std::max(t.value, 1e-300)};
    };
    if (at(0).first <= target) return 0;
    // From the far side: there Newton's method for the concave ln delta stays above the root.
    double low = 0, high = infinity, epsilon = 0.5 * mu * mu + mu * std::sqrt(-2 * target);
    for (int i = 0; i < 100; ++i) {
        const auto [log_delta, fall] = at(epsilon);
        (log_delta > target ? low : high) = epsilon;
        if (high - low <= 1e-12 * high) break;
        double next = epsilon + (log_delta - target) / fall;
        const double close = 1e-11 * epsilon;
        if (std::abs(next - epsilon) <= close) next = log_delta > target ? epsilon + close : epsilon - close;
        if (!(next > low && next < high)) next = high < infinity ? 0.5 * (low + high) : 2 * epsilon;
        epsilon = next;
    }
    return high;
}

}  // namespace

void gaussian_epsilons(std::span<const double> mu, double delta, std::span<double> epsilon) {
    parallel_ranges(mu.size(), examples_per_task, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) epsilon[i] = epsilon_of(mu[i], delta);
    });
}

}  // namespace hockeystick
