// From a dominating pair to a lattice, with a guarantee (docs/accounting/bounds.md, "One step on a lattice").
#pragma once

#include <cstdint>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "lattice/lattice.hpp"
#include "lattice/sketch.hpp"

namespace hockeystick {

// upper: connect the dots (Doroshenko et al. 2022): each bin keeps its P- and Q-mass on its ends.
// lower: tangents at bin midpoints, lowered to meet on the lattice. Round-off is included:
// every mass is rounded in the bound's direction. What lies past the last point the upper bound puts
// at +inf, if that is P-mass of at most `infinity_mass`; if it is more, it goes into Lattice::beyond.
// The lower bound moves it down.
// mean_preserving: see round_to_nearest.
Lattice discretise(const Pair& pair, std::vector<std::int64_t> points, double step, double tilt, Bound bound,
                   double infinity_mass = 0);

// The law of the loss given that it lies within half a step of one of the points, which are consecutive,
// rounded to the nearest one (docs/accounting/bounds.md, "Mean-preserving rounding"). Nothing is moved: the
// shift that keeps the mean is Lattice::residue.mean. Masses are rounded up, and tilted_deficit says by how
// much.
Lattice round_to_nearest(const Pair& pair, std::vector<std::int64_t> points, double step, double tilt);

// A lower bound for wide bins, where the above gains nothing: all of a bin's mass at its lower end. Mass at a
// point stays there, and the lattice's offset makes good for what rounding leaves open.
Lattice round_down(const Pair& pair, std::vector<std::int64_t> points, double step, double tilt);

}  // namespace hockeystick
