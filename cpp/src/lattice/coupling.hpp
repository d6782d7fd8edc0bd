// Two-sided bounds from mean-preserving rounding: Hoeffding's inequality couples the sums
// (docs/accounting/bounds.md, "Mean-preserving rounding").
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "lattice/tail_table.hpp"

namespace hockeystick {

struct Interval {
    double lower, upper;
};

// The true sum and the rounded one, shifted by the mean residue, differ by `radius` or more in one
// direction with probability at most `failure`, so that, where no loss leaves its window,
//     delta~(eps + radius) - failure <= delta(eps) <= delta~(eps - radius) + failure.
class Coupling {
public:
    // A composition of mean-preserving lattices, and a failure probability in (0, 1).
    Coupling(Composed composed, double failure);

    // Rounds every loss to multiples of `step`. Windows leave out about `failure` in all; the tilt suits
    // a delta a few orders of magnitude above it.
    Coupling(const std::vector<std::pair<PairPtr, std::uint64_t>>& composition, double step, double failure);

    Interval delta_bounds(double epsilon) const;
    Interval epsilon_bounds(double delta) const;

    double radius() const { return radius_; }

private:
    double upper(double epsilon) const;
    double lower(double epsilon) const;
    double rounded(double epsilon) const;

    Residue residue_;
    double failure_, radius_, infinity_mass_;
    TailTable table_;
};

}  // namespace hockeystick
