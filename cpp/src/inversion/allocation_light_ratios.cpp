#include "inversion/allocation_light_ratios.hpp"

#include <algorithm>
#include <cmath>

#include "numerics/special.hpp"

namespace hockeystick {

double scaled_tail(double x) {
    return x >= 0 ? scaled_normal_tail(x) : gaussian_tail(x) * std::exp(0.5 * x * x);
}

// With v the variance, m_k' = k (k-1)/2 (m_{k-2} + 2 m_{k-1} + m_k) in v, by Ito's formula, a power series of
// positive terms; m_k/v^{k/2} is summed.
Series lognormal(double variance) {
    Series out = one();
    if (!(variance > 0)) return out;
    using Terms = std::array<double, series_degree + 1>;
    // Each of its terms is at most that over its number times the largest before: later ones fall by half.
    const double root = std::sqrt(variance),
                 growth = 0.5 * series_degree * series_degree * (1 + root) * (1 + root);
    Terms term{1}, sum{1};
    for (double count = 1; count <= 2 * growth + 1; ++count) {
        Terms next{};
        for (std::size_t k = 2; k <= series_degree; ++k) {
            next[k] = 0.5 * static_cast<double>(k * (k - 1)) / count *
                      (term[k - 2] + 2 * root * term[k - 1] + variance * term[k]);
            sum[k] += next[k];
        }
        term = next;
    }
    const double left_out = 2 * *std::max_element(term.begin(), term.end()), rounding = 32 * u * (growth + 1);
    double scale = root;
    for (std::size_t k = 2; k <= series_degree; ++k) {
        scale *= root;
        out[k] = {scale * sum[k], scale * (sum[k] * rounding + left_out)};
    }
    return out;
}

// E[(W/B)^k; W <= B] = e^{-g^2/2} scaled_tail(k mu - g), where W = B at g.
LightRatios::LightRatios(const Allocation& law, const CutStep& cut) : unit_((1 + cut.largest()) / law.steps) {
    const double mu = law.mu, g = cut.end(), density = std::exp(-0.5 * g * g), kept = 1 - cut.beyond_q();
    const double rounding = u * (32 + 8 * g * g + 4 * static_cast<double>(series_degree) * mu);
    mean_ = density * scaled_tail(mu - g) / kept;
    second_ = density * scaled_tail(2 * mu - g) / kept * (1 + 2 * rounding);
    Series ratio = one(), shift = one();  // moments of W/B and powers of -mean, over k!
    double over = 1, power_of_mean = 1;
    for (std::size_t k = 1; k <= series_degree; ++k) {
        const double n = static_cast<double>(k), tail = density * scaled_tail(n * mu - g) / kept;
        over /= n;
        power_of_mean *= -mean_ / n;
        ratio[k] = {tail * over, (rounding + 2 * n * u) * tail * over};
        shift[k] = {power_of_mean, 2 * n * u * std::abs(power_of_mean)};
    }
    central_ = sum_of(ratio, shift);
    // The first is 0, but for the mean's rounding and that of its multiples.
    central_[1] = {0, (rounding + 32 * u) * mean_};
}

LightSum LightRatios::sum(double count) const {
    return {count * mean_ * unit_, unit_, count * second_ * unit_ * unit_, repeated(central_, count, sum_of)};
}

}  // namespace hockeystick
