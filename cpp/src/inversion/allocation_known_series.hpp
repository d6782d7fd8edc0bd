// Moments and coefficients up to one degree, each with a bound on its error, and those of sums and products
// of independent variables (docs/mechanisms/allocation.md, "One ratio alone").
#pragma once

#include <array>
#include <cmath>
#include <cstddef>

#include "numerics/constants.hpp"

namespace hockeystick {

// A number, and what it may be off by.
struct Known {
    double value = 0, error = 0;
};
// speed: how far series go.
inline constexpr std::size_t series_degree = 32;
using Series = std::array<Known, series_degree + 1>;

inline double largest(const Known& a) { return std::abs(a.value) + a.error; }

inline Known operator*(const Known& a, const Known& b) {
    const double value = a.value * b.value;
    return {value,
            (std::abs(a.value) * b.error + a.error * largest(b)) * (1 + 8 * u) + 2 * u * std::abs(value)};
}

inline Known operator*(double exact, const Known& a) {
    return {exact * a.value, std::abs(exact) * (a.error * (1 + 4 * u) + 2 * u * std::abs(a.value))};
}

inline Known& operator+=(Known& a, const Known& b) {
    a.value += b.value;
    a.error = (a.error + b.error + 2 * u * std::abs(a.value)) * (1 + 4 * u);
    return a;
}

// What has no error.
inline Series one() {
    Series out{};
    out[0] = {1, 0};
    return out;
}

// Binomial coefficients, exact.
inline constexpr auto choose = [] {
    std::array<std::array<double, series_degree + 1>, series_degree + 1> out{};
    for (std::size_t n = 0; n <= series_degree; ++n)
        for (std::size_t k = 0; k <= n; ++k)
            out[n][k] = k == 0 || k == n ? 1 : out[n - 1][k - 1] + out[n - 1][k];
    return out;
}();

// Of (1 + v)^m, m an integer.
inline double binomial(int m, std::size_t l) {
    if (m >= 0) return l <= static_cast<std::size_t>(m) ? choose[static_cast<std::size_t>(m)][l] : 0;
    return (l % 2 == 0 ? 1 : -1) * choose[static_cast<std::size_t>(-m) + l - 1][l];
}

// Of a sum: E (a + b)^k/k!.
inline Series sum_of(const Series& a, const Series& b) {
    Series out = one();
    for (std::size_t n = 1; n <= series_degree; ++n)
        for (std::size_t i = 0; i <= n; ++i) out[n] += a[i] * b[n - i];
    return out;
}

// Of a product: E (a + b + a b)^k, where 1 + a and 1 + b are independent.
inline Series product_of(const Series& a, const Series& b) {
    Series out = one();
    for (std::size_t n = 1; n <= series_degree; ++n)
        for (std::size_t j = 0; j <= n; ++j) {
            Known front;
            for (std::size_t i = 0; i <= j; ++i) front += choose[j][i] * a[n - j + i];
            out[n] += choose[n][j] * (front * b[j]);
        }
    return out;
}

inline Series repeated(Series base, double times, Series (*join)(const Series&, const Series&)) {
    Series out = one();
    for (; times >= 1; times = std::floor(0.5 * times)) {
        if (std::fmod(times, 2) == 1) out = join(out, base);
        if (times >= 2) base = join(base, base);
    }
    return out;
}

// E (X - 1)^k of a lognormal X of mean 1 whose logarithm has this variance.
Series lognormal(double variance);

}  // namespace hockeystick
