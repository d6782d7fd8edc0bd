// Two-sided bounds from mean-preserving rounding: Hoeffding's inequality couples the sums
// (docs/accounting/bounds.md, "Mean-preserving rounding").
#pragma once

#include <cstddef>
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
    static constexpr std::size_t default_most_points = std::size_t{1} << 22;  // speed

    // A composition of mean-preserving lattices, and a failure probability in (0, 1).
    Coupling(Composed composed, double failure);

    // Rounds every loss to multiples of `step`. Windows leave out about `failure` in all; the tilt suits
    // a delta a few orders of magnitude above it. Throws std::invalid_argument where a step this small needs
    // more than `most_points`.
    Coupling(const std::vector<std::pair<PairPtr, std::uint64_t>>& composition, double step, double failure,
             std::size_t most_points = default_most_points);

    Interval delta_bounds(double epsilon) const;
    Interval epsilon_bounds(double delta) const;

    double radius() const { return radius_; }
    // Pr[some finite loss outside its window], rounded up; points of the composed lattice.
    double outside() const { return residue_.outside; }
    std::size_t size() const { return table_.size(); }

private:
    double upper(double epsilon) const;
    double lower(double epsilon) const;
    double rounded(double epsilon) const;

    Residue residue_;
    double failure_, radius_, infinity_mass_;
    TailTable table_;
};

}  // namespace hockeystick
