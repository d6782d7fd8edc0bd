// delta of a composed lattice at any eps in constant time, and the eps at which a bound crosses delta
// (docs/accounting/bounds.md, "Composition").
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "lattice/compose.hpp"

namespace hockeystick {

// One bound on delta and what it is made of.
struct Delta {
    double value = 0, truncation = 0, wrap_around = 0, round_off = 0;
};

// A composed lattice with suffix sums.
class TailTable {
public:
    explicit TailTable(Composed composed);

    // Bounds H_{e^eps} of the sum of the lattice losses, in the direction of its lattices or in a given one.
    Delta at(double epsilon) const { return at(epsilon, c_.bound == Bound::upper); }
    Delta at(double loss, bool upper) const;

    // The loss one step past the window. A bound of every |loss| in the window, without the offset.
    double end() const;
    double reach() const;
    std::size_t size() const { return c_.mass.size(); }

private:
    double visible(double epsilon) const;

    Composed c_;
    std::vector<double> benefit_;
    double round_off_weight_ = 0, outside_weight_ = 0;
};

// The smallest eps >= 0 at which the decreasing upper bound is at most delta, rounded up. `start`
// is where the search begins to look for an end.
double upper_epsilon(const std::function<double(double)>& upper, double delta, double start);

// An eps at which the lower bound exceeds delta, the largest that a search downwards from `above`
// finds. Far below the window the bound is void, so it need not be monotone.
double lower_epsilon(const std::function<double(double)>& lower, double delta, double above);

}  // namespace hockeystick
