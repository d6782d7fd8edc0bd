// E[V^{k-a}] of V, the mean of T independent lognormals of mean 1, at complex a: the moments of the
// likelihood ratio of one random allocation (docs/mechanisms/allocation.md, "Moments").
//
// With Re a > 0, along any ray s = e^{x + i angle} in the right half-plane,
//     E[V^{k-a}] = 1/Gamma(a) integral s^a E[V^k e^{-sV}] dx,
// by the trapezoidal rule in x; E[V^k e^{-sV}] is a coefficient of the T-th power of the power series
// E[e^{-sW/T + tW/T}] in t. Every power of V > 0 is smooth, so no tail of the lognormals is cut.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "numerics/complex.hpp"

namespace hockeystick {

struct Moments {
    std::vector<Complex> value;  // times e^{-shift}
    std::vector<double> error;
    double shift = 0;
    // Of ln E[V^q] at the real power q, that of frequency 0: its derivatives in q. They are estimates.
    double first = 0, second = 0;
};

// E[V^{k-a}] for a = kappa + i tau, tau = 0, step, ..., so many of them. log_scale: less than ln
// E[V^{k-kappa}], beside which errors aim at the tolerance. Empty where too many nodes were needed.
std::optional<Moments> allocation_moments(const Allocation& law, int k, double kappa, double step,
                                          std::size_t size, double log_scale, double tolerance);

}  // namespace hockeystick
