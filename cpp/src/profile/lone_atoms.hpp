// Losses that are a few atoms and on no lattice: where their lattice had best lie. All of it is chosen from
// estimates.
#pragma once

#include <cstdint>
#include <vector>

#include "lattice/sketch.hpp"

namespace hockeystick {

// The atoms of one kind of step in increasing order, with their tilted masses in all its steps, and the loss
// that its lattice counts from. Kinds of other losses have no atoms.
struct LoneAtoms {
    std::vector<double> loss, mass;
    double offset = 0;
};

// Of the losses that the sketch kept.
LoneAtoms lone_atoms(const Pair& pair, std::uint64_t count, const Sketch& kept, double tilt);

// A step of at most `wanted`, and not below `finest`, with the offsets that suit it: eps is to fall by at
// most `tolerance` through atoms that lie between points, or else by little. 0 where there are no lone atoms.
double place(std::vector<LoneAtoms>& kinds, double tilt, double wanted, double finest, double tolerance);

// The points around each atom, counted from the offset, and some in wide gaps.
std::vector<std::int64_t> points_around(const LoneAtoms& kind, double step, double tilt);

}  // namespace hockeystick
