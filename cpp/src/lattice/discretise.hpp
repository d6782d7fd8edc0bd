// From a dominating pair to a lattice, with a guarantee.
#pragma once

#include <cstdint>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "lattice/cumulants.hpp"
#include "lattice/lattice.hpp"

namespace hockeystick {

// Lattice points over the range of the sketch: dense where the tilted loss has mass, sparse elsewhere.
std::vector<std::int64_t> choose_points(const Sketch& sketch, double step, double tilt);

// Every point from first to last.
std::vector<std::int64_t> all_points(std::int64_t first, std::int64_t last);

// upper: connect the dots (Doroshenko et al. 2022): each bin keeps its P- and Q-mass on its ends.
// lower: tangents at bin midpoints, lowered to meet on the lattice. Round-off is included:
// every mass is rounded in the bound's direction. What lies past the last point the upper bound puts
// at +inf, if that is P-mass of at most `infinity_mass`; if it is more, it goes into Lattice::beyond.
// The lower bound moves it down.
// mean_preserving: see mean_preserving.hpp.
Lattice discretise(const Pair& pair, std::vector<std::int64_t> points, double step, double tilt, Bound bound,
                   double infinity_mass = 0);

// A lower bound for wide bins, where the above gains nothing: all of a bin's mass at its lower end. Mass at a
// point stays there, and the lattice's offset makes good for what rounding leaves open.
Lattice round_down(const Pair& pair, std::vector<std::int64_t> points, double step, double tilt);

}  // namespace hockeystick
