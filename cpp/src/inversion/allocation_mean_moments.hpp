// Moments of V, the mean of T independent variables, from those of each.
#pragma once

#include <vector>

namespace hockeystick {

// ln of n! times the coefficients of x^n in h_0^T e^{T sum_j h_j x^j/h_0}, n = 0, 1, ..., rounded up: bounds
// on those of (h_0 + h_1 x + ...)^T, all h_j >= 0. From ln h_0, and ln h_j for j >= 1 (the first is not
// read; docs/mechanisms/allocation.md, "Moments").
std::vector<double> log_mean_moments(double steps, double log_zero, const std::vector<double>& log_h);

}  // namespace hockeystick
