// How E[V^{p + i tau}] of a random allocation falls where likelihood ratios of all sizes decide: on a contour
// on which each ratio turns by as much as suits its size (docs/mechanisms/allocation.md, "Moments").
#pragma once

#include <map>

#include "hockeystick/pairs.hpp"

namespace hockeystick {

class TurnedRatios {
public:
    TurnedRatios(const Allocation& law, double power) : law_(law), power_(power) {}  // power >= 0
    // ln of a bound on |E[V^{power + i tau'}]| for every tau' >= tau; infinite where none is known.
    double log_bound(double tau) const;

private:
    Allocation law_;
    double power_;
    mutable std::map<double, double> known_;  // at frequencies of a grid, on first use
};

}  // namespace hockeystick
