// A strategy matrix C of a matrix mechanism: lower triangular, non-negative, with few diagonals.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// C is steps x steps; below row i, column i has at most `bands` entries C[i + k, i], k < bands, and it
// ends with the last row: the last bands - 1 columns are shorter.
class Strategy {
public:
    // columns: the `bands` entries of every column (Toeplitz), or steps rows of them, row i for column i,
    // where entries past the last row of C must be 0. Throws std::invalid_argument unless
    // 1 <= bands <= steps and all entries are finite and >= 0.
    Strategy(std::size_t steps, std::size_t bands, std::vector<double> columns);

    std::size_t steps() const noexcept { return steps_; }
    std::size_t bands() const noexcept { return bands_; }
    bool is_toeplitz() const noexcept { return toeplitz_; }
    bool operator==(const Strategy&) const = default;

    // C / divisor.
    Strategy over(double divisor) const;

    // C[i, i], C[i + 1, i], ..., as many as there are.
    std::span<const double> column(std::size_t i) const noexcept;
    // |c_i|^2: the last bands - 1 columns are shorter, the last of all has one entry.
    std::vector<double> squared_norms() const;
    // <c_i, c_j>, over the rows that exist.
    double inner_product(std::size_t i, std::size_t j) const noexcept;

    // For every i the largest sum_j <c_i, c_j> over later participations j >= i + separation that keep
    // this distance from each other: what a norm |C x|^2 / 2 can exceed the sum of |c_i|^2 / 2 by.
    std::vector<double> overlap_bounds(std::size_t separation) const;

private:
    std::size_t steps_, bands_;
    std::vector<double> columns_;
    bool toeplitz_;
};

}  // namespace hockeystick
