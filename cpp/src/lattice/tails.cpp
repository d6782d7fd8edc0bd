#include "lattice/tails.hpp"

#include <algorithm>
#include <cmath>

#include "numerics/constants.hpp"

namespace hockeystick {

std::size_t split_point(const Pair& pair, const std::vector<double>& x) {
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

Tails::Tails(const Pair& its_pair, const std::vector<std::int64_t>& points, double step, double its_tilt,
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

double Tails::down(std::size_t i) const { return std::exp(-tilt * width(i + 1)); }
double Tails::up(std::size_t i) const { return std::exp(tilt * width(i)); }

Tails::Scale Tails::scale_at(double at, double exponent) const {
    return {std::exp(exponent + tilt * at - shift),
            u * (8 + 2 * (std::abs(exponent) + std::abs(tilt * at) + std::abs(shift)))};
}

Tails::Scale Tails::whole_at(double at) const {
    const Scale one = scale_at(at, 0);
    return {one.value * (1 - pair.infinity_mass()), one.rounding};
}

std::vector<double> Tails::masses(bool upper) {
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

}  // namespace hockeystick
