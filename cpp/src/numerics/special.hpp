// Special functions with stated error bounds.
#pragma once

#include <algorithm>
#include <cmath>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// The unit round-off of double precision. Every error bound in the core is a multiple of it.
inline constexpr double unit_roundoff = 0x1p-53;

// exp(x^2) erfc(x) for x >= 0; relative error at most 8 unit_roundoff.
double erfcx(double x) noexcept;

// Pr[N(0,1) > z] = scaled_normal_tail(z) * exp(-z^2/2) for z >= 0;
// relative error at most 10 unit_roundoff.
double scaled_normal_tail(double z) noexcept;
// The tail itself, at any z; at z < 0 as what the other one leaves of 1.
double gaussian_tail(double z) noexcept;

// e^x, where that may be less than any double: the library takes long to find out.
inline double exp_or_0(double x) { return x < -746 ? 0 : std::exp(x); }

// ln n!
double log_factorial(double n) noexcept;

// ln(e^x - 1), x > 0
double log_expm1(double x) noexcept;

// 1 - e^x where that is positive, rounded down: no delta at eps = x is less.
inline double trivial_delta(double x) noexcept {
    return std::max(0.0, -std::expm1(x) * (1 - 4 * unit_roundoff));
}

// ln(1 - q + q e^x), 0 < q <= 1: within 8 unit_roundoff of itself, and 2 |x| of them times the slope in x.
double log_blend(double q, double x) noexcept;
// That slope, where its value is `blend`.
inline double slope_of_blend(double q, double x, double blend) noexcept {
    return std::min(1.0, q * std::exp(x - blend));
}

}  // namespace hockeystick
