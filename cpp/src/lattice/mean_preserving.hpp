// Rounding to the nearest lattice point, with the mean that it takes away (Gopi, Lee & Wutschitz 2021).
#pragma once

#include <cstdint>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "lattice/lattice.hpp"

namespace hockeystick {

// The law of the loss given that it lies within half a step of one of the points, which are consecutive,
// rounded to the nearest one. Nothing is moved: the shift that keeps the mean is Lattice::residue.mean.
// Masses are rounded up, and tilted_deficit says by how much.
Lattice round_to_nearest(const Pair& pair, std::vector<std::int64_t> points, double step, double tilt);

}  // namespace hockeystick
