// The tilted tails of a pair in the bins between lattice points, rounded in a bound's direction, and the
// masses that they leave at the points (docs/accounting/bounds.md, "One step on a lattice").
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hockeystick/pairs.hpp"

namespace hockeystick {

// The first x, of those increasing, with less P-mass above it than e^x Q-mass below, or else the last one.
// Rounding costs u e^x Q(L <= x) seen from below and u P(L > x) seen from above: change sides where the first
// stops being the smaller one.
std::size_t split_point(const Pair& pair, const std::vector<double>& x);

// max(0, x) that lets nan through: a mass must not vanish because it overflowed.
inline double positive(double x) { return x < 0 ? 0 : x; }

// Bins 1..n-1 lie between the points 0..n-1. Left of the split point everything is seen from below
// (k, C), right of it from above (f, T).
struct Tails {
    // shift: about ln E[e^{tilt L}], so that the tilted masses are of order 1.
    Tails(const Pair& pair, const std::vector<std::int64_t>& points, double step, double tilt, double shift);

    std::size_t size() const { return x.size(); }
    double width(std::size_t bin) const { return x[bin] - x[bin - 1]; }
    // How T_{i+1}, tilted at x_{i+1}, reads at x_i; and C_i, tilted at x_{i-1}, at x_i.
    double down(std::size_t i) const;
    double up(std::size_t i) const;
    // What lies left of the split point, as seen there, and right of it.
    double below() const { return split >= 1 ? head[split] * up(split) : head[0]; }
    double above() const { return split + 1 < size() ? tail[split + 1] * down(split) : 0.0; }

    // e^{exponent + tilt x - shift}, and the relative error that rounding its exponent brings.
    struct Scale {
        double value, rounding;
    };
    Scale scale_at(double at, double exponent) const;
    // All finite P-mass, in the unit of the point `at`.
    Scale whole_at(double at) const;

    // Tilted masses at the points, scaled by e^-shift.
    std::vector<double> masses(bool upper);

    const Pair& pair;
    double tilt, shift;
    std::vector<double> x;
    // tail[i] = T_i at x_i for bins right of the split; head[i] = C_i at x_{i-1} left of it.
    std::vector<double> tail, head;
    std::size_t split;
    double deficit = 0,
           tilted_deficit = 0;  // as in LatticeTerms, the latter as an excess at the point itself
    double excess = 0;          // how much larger than the true loss the lattice's may be
    bool failed = false;        // something overflowed: no lower bound
};

// Fills in the tails by lines that support the profile from below.
void support_from_below(Tails& tails);

}  // namespace hockeystick
