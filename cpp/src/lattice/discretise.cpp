// The tails of a lattice loss in the bins between its points, rounded outwards (docs/accounting/bounds.md,
// "One step on a lattice"): T_i = (f_{i-1} - e^{-d} f_i) / (1 - e^{-d}), or seen from the left, with k_i =
// f_i - (1 - p_inf - e^{x_i}), C_i = 1 - p_inf - T_i = (e^{-d} k_i - k_{i-1}) / (1 - e^{-d}).
#include "lattice/discretise.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "hockeystick/parallel.hpp"
#include "lattice/tails.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// A number and a bound on its error, both scaled by the tilt at some point.
struct Tilted {
    double value, error;
};

// The true profile at points first..last, tilted there.
std::vector<Tilted> profile(const Tails& t, std::size_t first, std::size_t last, bool above) {
    constexpr std::size_t block = 1024;  // speed
    std::vector<Tilted> out(last - first + 1);
    parallel_ranges(out.size(), block, [&](std::size_t begin, std::size_t end) {
        for (std::size_t j = begin; j < end; ++j) {
            const double x = t.x[first + j];
            const Tangent at = above ? t.pair.above(x) : t.pair.below(x);
            const auto [scale, rounding] = t.scale_at(x, at.exponent);
            const double value = std::max(0.0, at.value);
            // The point itself may be rounded; that moves the profile by its slope.
            const double moved_by = 2 * u * std::abs(x) * at.slope;
            out[j] = {value * scale, (at.error + moved_by + rounding * value) * scale};
        }
    });
    return out;
}

// upper: chords of the profile.
void connect_the_dots(Tails& t) {
    const std::size_t n = t.size();
    const std::vector<Tilted> f = profile(t, t.split, n - 1, true), k = profile(t, 0, t.split, false);
    for (std::size_t i = n - 1; i > t.split; --i) {
        // T_i tilted at x_i, rounded up; a running maximum makes it decrease.
        const double d = t.width(i), gap = -std::expm1(-d);
        const Tilted &a = f[i - 1 - t.split], &b = f[i - t.split];
        const double near = std::exp(t.tilt * d), far = std::exp(-d);
        const double beyond = (a.value * near - b.value * far) / gap;
        const double error =
            (a.error * near + b.error * far + u * (8 + 2 * t.tilt * d) * (a.value * near + b.value * far)) /
            gap;
        t.tail[i] = positive(beyond + error + 4 * u * std::abs(beyond));
        if (i + 1 < n) t.tail[i] = std::max(t.tail[i], t.tail[i + 1] * t.down(i));
    }
    for (std::size_t i = t.split; i >= 1; --i) {
        // C_i tilted at x_{i-1}, rounded down.
        const double d = t.width(i), gap = -std::expm1(-d);
        const Tilted &a = k[i - 1], &b = k[i];
        const double far = std::exp(-d - t.tilt * d);
        const double c = (b.value * far - a.value) / gap;
        const double error =
            (a.error + b.error * far + u * (8 + 2 * t.tilt * d) * (a.value + b.value * far)) / gap;
        t.head[i] = std::max(0.0, c - error - 4 * u * std::abs(c));
        if (i < t.split) t.head[i] = std::min(t.head[i], t.head[i + 1] / t.up(i));
    }
}

// lower, on wide bins: all of a bin at its lower end, an atom at a point at that point: tails are taken a
// hair to its left. They are those of a loss that lies no more than this hair and the tangent's error to the
// left of the point.
void move_down(Tails& t) {
    constexpr std::size_t points_between_interruptions = 256;  // speed
    const auto hair = [&](std::size_t i) { return 16 * u * std::abs(t.x[i]) + 1e-300; };
    const auto seen = [&](std::size_t i, bool above) {
        if (i % points_between_interruptions == 0) interruption_point();
        const double x = t.x[i] - hair(i);
        const Tangent at = above ? t.pair.above(x) : t.pair.below(x);
        t.excess = std::max(t.excess, 2 * hair(i) + at.misplaced);
        return at;
    };
    for (std::size_t i = 0; i <= t.split; ++i) {
        // C_i tilted at x_{i-1}, rounded up.
        const double at = t.x[i > 0 ? i - 1 : 0];
        const Tangent left = seen(i, false);
        const auto [scale, rounding] = t.scale_at(at, left.exponent);
        const auto [whole, unsure] = t.whole_at(at);
        const double below =
            (std::max(0.0, left.slope - left.value) + (left.relative + 4 * u) * left.slope) * scale;
        t.failed = t.failed || std::isnan(below);
        t.head[i] = std::min(below * (1 + rounding), whole * (1 - unsure));
        // Far to the right of 0, what lies below is known from above alone.
        const Tangent right = seen(i, true);
        const double above = (right.value + right.slope) * std::exp(right.exponent),
                     rest = 1 - t.pair.infinity_mass() - above + (right.relative + 8 * u) * above + 8 * u;
        t.head[i] = std::min(t.head[i], std::max(0.0, rest) * t.scale_at(at, 0).value * (1 + unsure));
        if (i > 0) t.head[i] = std::max(t.head[i], i > 1 ? t.head[i - 1] * t.up(i - 1) : t.head[0]);
    }
    double before = infinity;
    for (std::size_t i = t.split + 1; i < t.size(); ++i) {
        // T_i tilted at x_i, rounded down.
        const Tangent right = seen(i, true);
        const auto [scale, rounding] = t.scale_at(t.x[i], right.exponent);
        const double above =
            (right.value + right.slope) * (1 - right.relative - 8 * u) * scale * (1 - rounding);
        t.failed = t.failed || std::isnan(above);
        t.tail[i] = std::max(0.0, std::min(before, above));
        before = i + 1 < t.size() ? t.tail[i] * t.up(i + 1) : 0;
    }
}

// proof: more than the rounding of a tail, and of a difference of two; a positive mass that no rounding takes
// away.
constexpr double slack = 1e-12, slack_of_difference = 1e-11, least_mass = 1e-320;
// speed: e^this is less than any double; how many nodes there are beyond the last point, and where they end.
constexpr double log_nothing = -750, farthest_node = 1e16;
constexpr std::size_t most_nodes = 400;

// Bounds E[e^{tilt L - shift}; last < L < inf] and moves what lies beyond reach to +inf.
struct UpperTail {
    double tilted, infinite;
};
UpperTail upper_tail_measure(const Pair& pair, double last, double tilt, double shift, double infinity_mass) {
    if (last >= pair.max_loss()) return {0, 0};
    const Tangent end = pair.above(last);
    const double mass =
        (end.value + end.error + end.slope * (1 + slack)) * std::exp(end.exponent) * (1 + slack);
    if (mass <= infinity_mass) return {0, std::max(mass, least_mass)};
    std::vector<double> x;
    double reach = 1e-3 * std::max(std::abs(last), 1e-22);
    for (double at = last; x.size() < most_nodes; at += reach, reach *= 1.1) {
        x.push_back(at);
        if (at > farthest_node || at >= pair.max_loss()) break;
    }
    std::vector<Tangent> tangents;
    for (const double at : x) tangents.push_back(pair.above(at));
    // ln P(x < L < inf), rounded up.
    const auto log_tail = [&](std::size_t i) {
        const Tangent& t = tangents[i];
        const double p = t.value + t.error + t.slope * (1 + slack);
        return p > 0 ? std::log(p) + t.exponent : -infinity;
    };
    // What is little enough to count as infinite does so: its tilted mass may exceed all the rest.
    const double log_little = std::max(log_nothing, std::log(infinity_mass));
    UpperTail out{0, 0};
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double log_p = log_tail(i);
        if (log_p < log_little || i + 1 == x.size()) {
            // What is left goes to +inf. Never less than the smallest number, unless the support ends.
            out.infinite = x[i] >= pair.max_loss() ? 0.0 : std::max(std::exp(log_p), least_mass);
            break;
        }
        // The mass between two nodes, all at the upper one.
        const double scale = std::min(log_p + tilt * x[i + 1] - shift, 700.0);
        const double fall = -std::expm1(std::min(0.0, log_tail(i + 1) - log_p));
        out.tilted += std::exp(scale) * (fall + slack_of_difference + 8 * u * std::abs(log_p));
    }
    return out;
}

void check(const std::vector<std::int64_t>& points, double step, double tilt) {
    if (points.size() < 2) throw std::invalid_argument("discretise: at least two points are needed");
    if (!(step > 0) || !std::isfinite(step)) throw std::invalid_argument("discretise: step must be positive");
    if (!(tilt >= 0) || !std::isfinite(tilt))
        throw std::invalid_argument("discretise: tilt must not be negative");
}

// `fill` rounds the tails in the bound's direction.
Lattice make(const Pair& pair, std::vector<std::int64_t> points, double step, double tilt, Bound bound,
             void (*fill)(Tails&), double infinity_mass) {
    Lattice out;
    out.bound = bound;
    out.step = step;
    out.tilt = tilt;
    // The tilted mass is largest where the tilted loss has most of its mass: find ln of it, roughly.
    double shift = -infinity;
    for (std::size_t i = 0; i < points.size(); i += 1 + points.size() / 256) {
        const double x = static_cast<double>(points[i]) * step;
        const Tangent t = pair.above(x - 0.5 * step);
        const double log_tail = std::log(t.value + t.slope) + t.exponent;
        if (log_tail > shift - tilt * x) shift = log_tail + tilt * x;
    }
    if (!std::isfinite(shift)) shift = 0;
    Tails tails(pair, points, step, tilt, shift);
    fill(tails);
    out.mass = tails.failed ? std::vector<double>(points.size()) : tails.masses(bound == Bound::upper);
    out.offset = -tails.excess;
    out.index = std::move(points);
    out.infinity_mass = pair.infinity_mass();
    if (bound == Bound::upper) {
        const UpperTail measure = upper_tail_measure(pair, static_cast<double>(out.index.back()) * step, tilt,
                                                     shift, infinity_mass);
        out.beyond = measure.tilted;
        out.infinity_mass = std::min(1.0, out.infinity_mass * (1 + 8 * u) + measure.infinite);
    } else {
        out.infinity_mass *= 1 - 8 * u;
        out.deficit = tails.deficit;
        // The same excess as mass at the loss D above its point, where e^-D = tilt/(1 + tilt).
        out.tilted_deficit =
            tails.tilted_deficit * (1 + tilt) * (tilt > 0 ? std::exp(tilt * std::log1p(1 / tilt)) : 1.0);
    }
    double total = 0;
    for (double m : out.mass) total += m;
    if (!(total > 0) || !std::isfinite(total)) {
        // Nothing finite is left to be said: all of P at +inf is an upper bound, none of it a lower one.
        out.log_scale = -infinity;
        out.beyond = 0;
        if (bound == Bound::upper) out.infinity_mass = 1;
        std::fill(out.mass.begin(), out.mass.end(), 0.0);
    } else {
        // Dividing by the rounded scale is exact up to u per mass, which the caller's ledger counts.
        out.log_scale = shift + std::log(total);
        for (double& m : out.mass) m /= total;
        out.beyond /= total;
        out.tilted_deficit /= total;
    }
    return out;
}

}  // namespace

Lattice discretise(const Pair& pair, std::vector<std::int64_t> points, double step, double tilt, Bound bound,
                   double infinity_mass) {
    check(points, step, tilt);
    if (bound == Bound::mean_preserving) return round_to_nearest(pair, std::move(points), step, tilt);
    return make(pair, std::move(points), step, tilt, bound,
                bound == Bound::upper ? connect_the_dots : support_from_below, infinity_mass);
}

Lattice round_down(const Pair& pair, std::vector<std::int64_t> points, double step, double tilt) {
    check(points, step, tilt);
    return make(pair, std::move(points), step, tilt, Bound::lower, move_down, 0);
}

}  // namespace hockeystick
