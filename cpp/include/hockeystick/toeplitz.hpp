// Lower-triangular Toeplitz matrices C as power series C(x): dividing by them, and the banded ones with the
// least error for their sensitivity.
//
// Every sum is added up in one fixed order and every operation rounds once, so the results are the same bits
// on every machine: plans, keys of runs and shards of noise rest on them.
#pragma once

#include <span>
#include <vector>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// The first values.size() coefficients of values(x)/C(x), by forward substitution in O(values *
// coefficients). Overflow gives infinities or nan. Throws std::invalid_argument without a positive first
// coefficient.
std::vector<double> divide_by_toeplitz(std::span<const double> coefficients, std::span<const double> values);

// What the error of a quotient r = response(x)/C(x), cut off after response.size() steps, is: r' gram r, gram
// a symmetric matrix row by row, or, if it is empty, the sum over i < steps of the squares of r_0 .. r_i,
// which is steps times the mean squared error of the iterates A g if response is the first column of a
// Toeplitz matrix A. The caller keeps both alive.
struct ToeplitzErrors {
    std::span<const double> response;
    std::span<const double> gram = {};
};

// The coefficients c >= 0 of kept.size() bands, in unit norm, that minimise (sum_j kept[j] c_j^2) * error. A
// local minimum by projected L-BFGS from those of 1/sqrt(1 - x), and never worse than these. O(steps * kept),
// and O(steps^2) with a gram, for each of some hundred steps. Throws std::invalid_argument unless 1 <=
// kept.size() <= steps and all of kept are positive.
std::vector<double> optimal_toeplitz(std::span<const double> kept, const ToeplitzErrors& errors);

}  // namespace hockeystick
