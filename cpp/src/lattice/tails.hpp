// The tilted tails of a pair in the bins between lattice points, rounded in a bound's direction, and the
// masses that they leave at the points (docs/accounting/bounds.md, "One step on a lattice").
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {

// The first x, of those increasing, with less P-mass above it than e^x Q-mass below, or else the last one.
// Rounding costs u e^x Q(L <= x) seen from below and u P(L > x) seen from above: change sides where the first
// stops being the smaller one.
inline std::size_t split_point(const Pair& pair, const std::vector<double>& x) {
    std::size_t low = 0, high = x.size() - 1;
    while (low < high) {
        const std::size_t middle = (low + high) / 2;
        const Tangent above = pair.above(x[middle]), below = pair.below(x[middle]);
        if ((above.value + above.slope) * std::exp(above.exponent) > below.slope * std::exp(below.exponent))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// max(0, x) that lets nan through: a mass must not vanish because it overflowed.
inline double positive(double x) { return x < 0 ? 0 : x; }

// Bins 1..n-1 lie between the points 0..n-1. Left of the split point everything is seen from below
// (k, C), right of it from above (f, T).
struct Tails {
    // shift: about ln E[e^{tilt L}], so that the tilted masses are of order 1.
    Tails(const Pair& its_pair, const std::vector<std::int64_t>& points, double step, double its_tilt,
          double its_shift)
        : pair(its_pair),
          tilt(its_tilt),
          shift(its_shift),
          x(points.size()),
          tail(points.size() + 1),
          head(points.size() + 1) {
        for (std::size_t i = 0; i < points.size(); ++i) x[i] = static_cast<double>(points[i]) * step;
        split = split_point(pair, x);
    }

    std::size_t size() const { return x.size(); }
    double width(std::size_t bin) const { return x[bin] - x[bin - 1]; }
    // How T_{i+1}, tilted at x_{i+1}, reads at x_i; and C_i, tilted at x_{i-1}, at x_i.
    double down(std::size_t i) const { return std::exp(-tilt * width(i + 1)); }
    double up(std::size_t i) const { return std::exp(tilt * width(i)); }
    // What lies left of the split point, as seen there, and right of it.
    double below() const { return split >= 1 ? head[split] * up(split) : head[0]; }
    double above() const { return split + 1 < size() ? tail[split + 1] * down(split) : 0.0; }

    // e^{exponent + tilt x - shift}, and the relative error that rounding its exponent brings.
    struct Scale {
        double value, rounding;
    };
    Scale scale_at(double at, double exponent) const {
        return {std::exp(exponent + tilt * at - shift),
                u * (8 + 2 * (std::abs(exponent) + std::abs(tilt * at) + std::abs(shift)))};
    }
    // All finite P-mass, in the unit of the point `at`.
    Scale whole_at(double at) const {
        const Scale one = scale_at(at, 0);
        return {one.value * (1 - pair.infinity_mass()), one.rounding};
    }

    // Tilted masses at the points, scaled by e^-shift.
    std::vector<double> masses(bool upper) {
        const std::size_t n = size();
        const double nudge = upper ? 8 * u : -8 * u;
        // At the split point both descriptions meet: its mass is what they leave of 1 - p_inf.
        const auto [one, rounding] = whole_at(x[split]);
        if (!upper) {
            // Rounded heads may leave less than the tails ask for.
            double cap = std::max(0.0, one - below()) * (1 - 16 * u - rounding);
            for (std::size_t i = split + 1; i < n; ++i) {
                cap *= up(i) * (1 - 4 * u);
                if (tail[i] <= cap) break;
                tail[i] = cap;
            }
        }
        std::vector<double> mass(n);
        for (std::size_t i = 0; i < split; ++i) {
            const double inner = i == 0 ? head[0] : head[i] * up(i);
            mass[i] = positive(head[i + 1] - inner + nudge * head[i + 1]);
        }
        mass[split] = positive(one - below() - above() + (nudge + (upper ? rounding : -rounding)) * one);
        for (std::size_t i = split + 1; i < n; ++i) {
            const double outer = i + 1 < n ? tail[i + 1] * down(i) : 0.0;
            mass[i] = positive(tail[i] - outer + nudge * (1 + tilt * width(i)) * tail[i]);
        }
        return mass;
    }

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
