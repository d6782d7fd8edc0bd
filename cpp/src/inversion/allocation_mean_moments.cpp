#include "inversion/allocation_mean_moments.hpp"

#include <cmath>
#include <cstddef>

#include "inversion/saddle.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// proof: more than what these sums and logarithms round by.
constexpr double rounding = 1e-11;

}  // namespace

// n e_n = T sum_j j (h_j/h_0) e_{n-j}, of positive terms.
std::vector<double> log_mean_moments(double steps, double log_zero, const std::vector<double>& log_h) {
    std::vector<double> out = {0.0};
    double log_factorial = steps * log_zero;
    for (std::size_t n = 1; n < log_h.size(); ++n) {
        double sum = -infinity;
        for (std::size_t j = 1; j <= n; ++j)
            sum = log_add(sum, std::log(static_cast<double>(j)) + log_h[j] + out[n - j]);
        out.push_back(sum + std::log(steps / static_cast<double>(n)) - log_zero);
    }
    for (std::size_t n = 0; n < out.size(); ++n) {
        if (n > 0) log_factorial += std::log(static_cast<double>(n));
        out[n] += log_factorial + rounding * (10 + std::abs(out[n]) + std::abs(log_factorial));
    }
    return out;
}

}  // namespace hockeystick
