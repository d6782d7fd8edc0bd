// Rounding to the nearest lattice point, with the mean that it takes away (Gopi, Lee & Wutschitz 2021;
// docs/accounting/bounds.md, "Mean-preserving rounding").
//
// Bin i is (a, b] = x_i + (-h/2, h/2]. Its P-mass m is a difference of tails; its mean lies in a bracket that
// follows from D = E[1 - e^{a-L}; bin] seen from above, and seen from below from
//     V = E[e^{b-L} - 1; bin] = k(b) - k(a) - (e^h - 1) e^a Q(L <= a),
//     V h / (e^h - 1) <= E[b - L; bin] <= m ln(1 + V/m).
// All derivatives by D, V and m, where 0 <= D <= m (1 - e^{-h}) and 0 <= V <= m (e^h - 1), are at most e^h
// and h e^h, which carries rounding over.

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "hockeystick/parallel.hpp"
#include "lattice/discretise.hpp"
#include "lattice/tails.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// proof: more than the rounding of a tail and of a mean; masses that no rounding takes away.
constexpr double slack_of_tail = 1e-12, slack_of_mean = 1e-9, least_outside = 1e-320, least_error = 1e-300;

// P-mass of a bin and its first moment about the bin's middle; every field carries e^exponent.
struct Bin {
    double mass, mass_error, moment, moment_error, exponent;
};

// |moment| is at most h/2 * mass, whatever became of the bracket.
Bin bounded(Bin bin, double h) {
    const double most = h * (bin.mass + bin.mass_error);
    if (!(bin.moment_error < most) || !(bin.mass > 0)) {
        bin.moment = 0;
        bin.moment_error = most;
    }
    return bin;
}

// e^(from - to), and the relative error of a product with it.
struct Ratio {
    double value, error;
    Ratio(double from, double to)
        : value(std::exp(from - to)), error(u * (8 + std::abs(from) + std::abs(to))) {}
};

// `tail`: P(a < L < inf), and its error, at the exponent of a.
Bin seen_from_above(double tail, double tail_error, const Tangent& a, const Tangent& b, double h) {
    const double gap = -std::expm1(-h);
    const Ratio r(b.exponent, a.exponent);
    const double tail_b = (b.value + b.slope) * r.value, drop = b.slope * gap * r.value;
    const double mass = std::max(0.0, tail - tail_b);
    const double mass_error = tail_error + (b.relative + r.error) * tail_b + 4 * u * tail;
    const double d = std::clamp(a.value - b.value * r.value - drop, 0.0, mass * gap);
    const double d_error = a.error + b.error * r.value + (b.relative + r.error) * drop +
                           (4 * u + r.error) * (a.value + std::abs(b.value) * r.value);
    const double low = -mass * std::log1p(-d / mass), high = d * h / gap;
    return bounded(
        {mass, mass_error, 0.5 * (low + high) - 0.5 * h * mass,
         0.5 * (high - low) + std::exp(h) * (d_error + (3 * h + 8 * u) * mass_error) + 16 * u * h * mass,
         a.exponent},
        h);
}

Bin seen_from_below(const Tangent& a, const Tangent& b, double h) {
    const double gap = std::expm1(h);
    const Ratio r(a.exponent, b.exponent);
    const double slope_a = a.slope * r.value;
    const double mass = std::max(0.0, (b.slope - b.value) - (a.slope - a.value) * r.value);
    const double mass_error = (b.relative + 4 * u) * b.slope + (a.relative + r.error) * slope_a;
    const double v = std::clamp(b.value - a.value * r.value - slope_a * gap, 0.0, mass * gap);
    const double v_error = b.error + a.error * r.value + (a.relative + r.error) * slope_a * gap +
                           (4 * u + r.error) * (std::abs(b.value) + std::abs(a.value) * r.value);
    const double low = v * h / gap, high = mass * std::log1p(v / mass);
    return bounded(
        {mass, mass_error, 0.5 * h * mass - 0.5 * (low + high),
         0.5 * (high - low) + std::exp(h) * (v_error + (3 * h + 8 * u) * mass_error) + 16 * u * h * mass,
         b.exponent},
        h);
}

double p_below(const Tangent& t) { return t.slope - t.value + (t.relative + 4 * u) * t.slope; }
double p_above(const Tangent& t) { return (t.value + t.slope) * (1 + t.relative + 4 * u); }

// Bins between the edges, left of the split seen from below and right of it from above.
struct Bins {
    std::vector<Bin> bin;
    double misplaced = 0;  // how far an edge may lie from where it should
};

Bins make_bins(const Pair& pair, const std::vector<double>& edge) {
    const std::size_t n = edge.size() - 1, split = split_point(pair, edge);
    // The slope carries e^x of the true or of the misplaced loss.
    const auto view = [&](double x, bool above) {
        Tangent tangent = above ? pair.above(x) : pair.below(x);
        tangent.relative += tangent.misplaced;
        return tangent;
    };
    std::vector<Tangent> t(n + 1);
    constexpr std::size_t block = 1024;  // speed
    parallel_ranges(n + 1, block, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) t[i] = view(edge[i], i >= split);
    });
    Bins out;
    out.bin.resize(n);
    for (const Tangent& tangent : t) out.misplaced = std::max(out.misplaced, tangent.misplaced);
    for (std::size_t i = 0; i < n; ++i) {
        // Not quite the step: edges are rounded.
        const double width = edge[i + 1] - edge[i];
        if (i + 1 < split) {
            out.bin[i] = seen_from_below(t[i], t[i + 1], width);
        } else if (i + 1 == split) {
            // Here both views meet: this bin has what they leave of all P-mass.
            const Tangent a = view(edge[i], true);
            out.misplaced = std::max(out.misplaced, a.misplaced);
            const double scale = std::exp(-a.exponent), head = std::exp(t[i].exponent);
            const double slack = t[i].relative + u * (8 + std::abs(t[i].exponent));
            out.bin[i] = seen_from_above(
                scale * (1 - pair.infinity_mass() - (t[i].slope - t[i].value) * head),
                scale * (slack * t[i].slope * head + u * (8 + std::abs(a.exponent))), a, t[i + 1], width);
        } else {
            const double tail = t[i].value + t[i].slope;
            out.bin[i] = seen_from_above(tail, (t[i].relative + 4 * u) * tail, t[i], t[i + 1], width);
        }
    }
    return out;
}

}  // namespace

Lattice round_to_nearest(const Pair& pair, std::vector<std::int64_t> points, double step, double tilt) {
    for (std::size_t i = 1; i < points.size(); ++i)
        if (points[i] != points[i - 1] + 1)
            throw std::invalid_argument("discretise: mean_preserving needs consecutive points");
    const std::size_t n = points.size();
    std::vector<double> edge(n + 1);
    for (std::size_t i = 0; i < n; ++i) edge[i] = (static_cast<double>(points[i]) - 0.5) * step;
    edge[n] = (static_cast<double>(points[n - 1]) + 0.5) * step;
    const auto [bins, misplaced] = make_bins(pair, edge);

    Lattice out;
    out.bound = Bound::mean_preserving;
    out.step = step;
    out.tilt = tilt;
    out.infinity_mass = pair.infinity_mass();
    out.deficit = infinity;  // counted as tilted mass alone
    // Points and edges are rounded too.
    const double reach = std::max(std::abs(edge[0]), std::abs(edge[n]));
    const double moved = misplaced + 4 * u * reach;
    const double range = step + 2 * moved;
    out.residue.squared_range = range * range * (1 + 8 * u);
    // An edge may lie a little further inside than it should.
    const Tangent left = pair.below(edge[0] + 2 * moved), right = pair.above(edge[n] - 2 * moved);
    out.residue.outside =
        std::min(1.0, (1 + slack_of_tail) * (p_below(left) * std::exp(left.exponent) +
                                             std::max(0.0, p_above(right)) * std::exp(right.exponent)) +
                          least_outside);

    double shift = -infinity;
    for (std::size_t i = 0; i < n; ++i)
        if (bins[i].mass > 0)
            shift = std::max(shift, std::log(bins[i].mass) + bins[i].exponent +
                                        tilt * static_cast<double>(points[i]) * step);
    if (!std::isfinite(shift)) shift = 0;
    out.mass.resize(n);
    double total = 0, excess = 0, mass = 0, mass_error = least_error, moment = 0, moments = 0,
           moment_error = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const Bin& bin = bins[i];
        const double at = tilt * static_cast<double>(points[i]) * step;
        const double tilted = std::exp(bin.exponent + at - shift), plain = std::exp(bin.exponent);
        const double error =
            bin.mass_error +
            bin.mass * u * (8 + 2 * (std::abs(bin.exponent) + std::abs(at) + std::abs(shift)));
        out.mass[i] = (bin.mass + error) * tilted;
        total += out.mass[i];
        excess += 2 * error * tilted;
        mass += bin.mass * plain;
        mass_error += error * plain;
        moment += bin.moment * plain;
        moments += std::abs(bin.moment) * plain;
        moment_error += bin.moment_error * plain;
    }
    const double least = mass * (1 - 2 * u * static_cast<double>(n)) - mass_error;
    out.residue.mean_error = range;  // the most there is, between -range/2 and range/2
    if (least > 0) {
        const double mean = moment / mass;
        // Mass between an edge and where it should lie is on the wrong side of it.
        const double error = (moment_error + 2 * u * static_cast<double>(n) * moments +
                              std::abs(mean) * (mass_error + 2 * u * static_cast<double>(n) * mass)) /
                                 least +
                             4 * moved * std::exp(step);
        if (error * (1 + slack_of_mean) < range) {
            out.residue.mean = mean;
            out.residue.mean_error = error * (1 + slack_of_mean);
        }
    }
    out.index = std::move(points);
    if (!(total > 0) || !std::isfinite(total)) {
        // No law is left inside the window: everything may lie outside it.
        std::fill(out.mass.begin(), out.mass.end(), 0.0);
        out.log_scale = -infinity;
        out.residue.outside = 1;
        return out;
    }
    out.log_scale = shift + std::log(total);
    out.tilted_deficit = excess / total;
    for (double& m : out.mass) m /= total;
    return out;
}

}  // namespace hockeystick
