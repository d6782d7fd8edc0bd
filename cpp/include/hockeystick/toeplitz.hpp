// Lower-triangular Toeplitz matrices C as power series C(x): dividing by them, and the banded ones with the
// least error for their sensitivity.
//
// Every sum is added up in one fixed order and every operation rounds once, so the results are the same bits
// on every machine: plans, keys of runs and shards of noise rest on them.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

using ToeplitzPoll = std::function<void()>;

// The first values.size() coefficients of values(x)/C(x), by forward substitution in O(values *
// coefficients). Overflow gives infinities or nan. Throws std::invalid_argument without a positive first
// coefficient.
std::vector<double> divide_by_toeplitz(std::span<const double> coefficients, std::span<const double> values,
                                       const ToeplitzPoll& poll = {});

// The coefficients c >= 0 of kept.size() bands, in unit norm, that minimise
//     (sum_j kept[j] c_j^2) * (mean squared error of prefix sums with c),
// the error being the mean over i < steps of the sum of the first i + 1 squared coefficients of
// 1/((1 - x) C(x)). A local minimum by projected L-BFGS from those of 1/sqrt(1 - x), and never worse than
// these. O(steps * kept) for each of some hundred steps, between which `poll` is called; what it throws gets
// through. Throws std::invalid_argument unless 1 <= kept.size() <= steps and all of kept are positive.
std::vector<double> optimal_toeplitz(std::size_t steps, std::span<const double> kept,
                                     const ToeplitzPoll& poll = {});

}  // namespace hockeystick
