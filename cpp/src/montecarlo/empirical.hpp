// The empirical law of values in [0, 1], spread onto a fixed grid of points: all that bounds on their mean
// need of millions of samples, in whole numbers that add up in any order.
//
// The points are 0, then 16 per octave from 2^-40 on, then 1. A value z between neighbouring points a and b
// leaves the mass (b - z)/(b - a) at a and (z - a)/(b - a) at b. That keeps the mean and never lowers the
// mean of a convex function, nor raises that of a concave one (Jensen's inequality), such as the logarithm of
// a bet (docs/montecarlo/means.md, "The empirical law on a grid").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// Proof: of the grid on which values are spread, whose effect on their moments is bounded for it.
constexpr int empirical_octaves = 40, empirical_cells = 16;
constexpr std::size_t empirical_points = empirical_octaves * empirical_cells + 2;

// One value's mass. Masses are whole numbers, rounded to nearest: the mean moves by at most 2^-33 of the
// width of a cell, 2^-37 of the value or 2^-73.
constexpr std::uint64_t empirical_unit = std::uint64_t{1} << 32;

// Point `index` of the grid, exactly; index < empirical_points.
double empirical_point(std::size_t index) noexcept;

// Adds the masses of `values` to `masses` (empirical_points of them, at most 2^32 - 1 values in all between
// two times that the caller zeroes them). Returns how many values were left out, because they are not numbers
// in [0, 1]: anything but 0 means that the bound they were divided by is wrong.
std::size_t spread_values(std::span<const double> values, std::span<std::uint64_t> masses);

}  // namespace hockeystick
