// The profile of a lattice loss is linear in y = e^x between lattice points. If it takes the values
// f_i at the points x_i, the P-mass beyond the bin (x_{i-1}, x_i) is the intercept of that line at y = 0,
//     T_i = (f_{i-1} - e^{-d} f_i) / (1 - e^{-d}),   d = x_i - x_{i-1},
// and the mass at x_i is T_i - T_{i+1}. Seen from the left, with k_i = f_i - (1 - p_inf - e^{x_i}),
//     C_i = 1 - p_inf - T_i = (e^{-d} k_i - k_{i-1}) / (1 - e^{-d}).
// upper: f_i is the true profile, whose chords lie above it.
// lower: in each bin the line is a tangent of the true profile (or a convex combination of two),
// chosen so that neighbouring lines meet on the lattice; T_i is that line's own intercept.
// Since delta(x) = int_x^inf T(s) e^{x-s} ds, rounding every T outwards keeps either promise.
#include "lattice/discretise.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "hockeystick/parallel.hpp"
#include "lattice/mean_preserving.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

constexpr double u = unit_roundoff;

// max(0, x) that lets nan through: a mass must not vanish because it overflowed.
double positive(double x) { return x < 0 ? 0 : x; }

// A number and a bound on its error, both scaled by the tilt at some point.
struct Tilted {
    double value, error;
};

// A line below the profile, as seen at a point: its value there, e^x times its slope, and where it
// touches. `error` is what it may exceed a true support line by at this point, and `steepness` how much of
// its slope is uncertain.
struct Line {
    double value, slope, error, touches, steepness;
};

// How a bin's mass gets to the points: see upper and lower above, and round_down.
enum class Method { chords, supports, down };

// Bins 1..n-1 lie between the points 0..n-1. Left of the split point everything is seen from below
// (k, C), right of it from above (f, T).
class Discretiser {
public:
    // shift: about ln E[e^{tilt L}], so that the tilted masses are of order 1.
    Discretiser(const Pair& pair, const std::vector<std::int64_t>& points, double step, double tilt,
                double shift)
        : pair_(pair), tilt_(tilt), x_(points.size()), tail_(points.size() + 1), head_(points.size() + 1) {
        for (std::size_t i = 0; i < points.size(); ++i) x_[i] = static_cast<double>(points[i]) * step;
        split_ = split_point();
        shift_ = shift;
    }

    // Tilted masses at the points, scaled by e^-shift.
    std::vector<double> masses(Method method) {
        switch (method) {
            case Method::chords:
                chords();
                break;
            case Method::supports:
                supports();
                break;
            case Method::down:
                downwards();
                break;
        }
        return failed_ ? std::vector<double>(x_.size()) : to_masses(method == Method::chords);
    }

    double deficit() const { return deficit_; }
    double excess() const { return excess_; }
    double tilted_deficit() const { return tilted_deficit_; }

private:
    // Rounding costs u e^x Q(L <= x) seen from below and u P(L > x) seen from above: change sides
    // where the first stops being the smaller one.
    std::size_t split_point() const {
        std::size_t low = 0, high = x_.size() - 1;
        while (low < high) {
            const std::size_t middle = (low + high) / 2;
            const Tangent above = pair_.above(x_[middle]), below = pair_.below(x_[middle]);
            if ((above.value + above.slope) * std::exp(above.exponent) >
                below.slope * std::exp(below.exponent))
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }

    double width(std::size_t bin) const { return x_[bin] - x_[bin - 1]; }
    // How T_{i+1}, tilted at x_{i+1}, reads at x_i; and C_i, tilted at x_{i-1}, at x_i.
    double down(std::size_t i) const { return std::exp(-tilt_ * width(i + 1)); }
    double up(std::size_t i) const { return std::exp(tilt_ * width(i)); }

    // e^{exponent + tilt x - shift}, and the relative error that rounding its exponent brings.
    double scale_at(double x, double exponent, double& rounding) const {
        rounding = u * (8 + 2 * (std::abs(exponent) + std::abs(tilt_ * x) + std::abs(shift_)));
        return std::exp(exponent + tilt_ * x - shift_);
    }

    // ---- upper --------------------------------------------------------------------------------

    // The true profile at points first..last, tilted there.
    std::vector<Tilted> profile(std::size_t first, std::size_t last, bool above) const {
        constexpr std::size_t block = 1024;
        std::vector<Tilted> out(last - first + 1);
        parallel_for((out.size() + block - 1) / block, [&](std::size_t b) {
            const std::size_t end = std::min(out.size(), (b + 1) * block);
            for (std::size_t j = b * block; j < end; ++j) {
                const double x = x_[first + j];
                const Tangent t = above ? pair_.above(x) : pair_.below(x);
                double rounding;
                const double scale = scale_at(x, t.exponent, rounding);
                const double value = std::max(0.0, t.value);
                // The point itself may be rounded; that moves the profile by its slope.
                const double moved_by = 2 * u * std::abs(x) * t.slope;
                out[j] = {value * scale, (t.error + moved_by + rounding * value) * scale};
            }
        });
        return out;
    }

    void chords() {
        const std::size_t n = x_.size();
        const std::vector<Tilted> f = profile(split_, n - 1, true), k = profile(0, split_, false);
        for (std::size_t i = n - 1; i > split_; --i) {
            // T_i tilted at x_i, rounded up; a running maximum makes it decrease.
            const double d = width(i), gap = -std::expm1(-d);
            const Tilted &a = f[i - 1 - split_], &b = f[i - split_];
            const double near = std::exp(tilt_ * d), far = std::exp(-d);
            const double t = (a.value * near - b.value * far) / gap;
            const double error = (a.error * near + b.error * far +
                                  u * (8 + 2 * tilt_ * d) * (a.value * near + b.value * far)) /
                                 gap;
            tail_[i] = positive(t + error + 4 * u * std::abs(t));
            if (i + 1 < n) tail_[i] = std::max(tail_[i], tail_[i + 1] * down(i));
        }
        for (std::size_t i = split_; i >= 1; --i) {
            // C_i tilted at x_{i-1}, rounded down.
            const double d = width(i), gap = -std::expm1(-d);
            const Tilted &a = k[i - 1], &b = k[i];
            const double far = std::exp(-d - tilt_ * d);
            const double c = (b.value * far - a.value) / gap;
            const double error =
                (a.error + b.error * far + u * (8 + 2 * tilt_ * d) * (a.value + b.value * far)) / gap;
            head_[i] = std::max(0.0, c - error - 4 * u * std::abs(c));
            if (i < split_) head_[i] = std::min(head_[i], head_[i + 1] / up(i));
        }
    }

    // ---- lower --------------------------------------------------------------------------------

    // The tangent that touches at t, as seen at the point x <= t (or x >= t for the very first).
    Line tangent(double t, double x, bool above) const {
        const Tangent at = above ? pair_.above(t) : pair_.below(t);
        double rounding;
        const double scale = scale_at(x, at.exponent, rounding);
        // Far from where it touches, 1 + reach would lose all of the slope that is left at x.
        const double reach = std::expm1(x - t), far = std::exp(x - t);
        const double change = at.slope * reach;
        const double value = above ? at.value - change : at.value + change;
        const double slack = u * at.slope * (8 * std::abs(reach) + 2 * (std::abs(x) + std::abs(t)) * far);
        return {value * scale, at.slope * far * scale,
                (at.error + slack + rounding * (std::abs(at.value) + std::abs(change))) * scale, t,
                at.relative + at.misplaced + rounding + u * (8 + 2 * (std::abs(x) + std::abs(t)))};
    }

    // The same line seen one point further on.
    Line moved(const Line& line, std::size_t bin, bool above) const {
        const double d = width(bin), growth = std::exp(tilt_ * d), change = line.slope * std::expm1(d);
        Line out = line;
        out.value = (above ? line.value - change : line.value + change) * growth;
        out.slope = line.slope * (std::exp(d) * growth);
        // From above, a line that falls too slowly ends up too high.
        out.error = (line.error + line.steepness * change +
                     u * (8 + 2 * tilt_ * d) * (std::abs(line.value) + change)) *
                    growth;
        out.steepness += u * (8 + 2 * tilt_ * d);
        return out;
    }

    // A support line through the point (x, line's value there), touching further right. Two tangents
    // bracket it; their convex combination through the point is a support line as good as either.
    Line next_line(const Line& line, double x, double bin_width, bool above) const {
        if (line.touches >= x) return line;
        double reach = x - line.touches;
        if (!(reach < 2 * bin_width)) reach = bin_width;
        Line a = tangent(x, x, above), b = tangent(x + reach, x, above);
        if (b.value > line.value) {
            for (int i = 0; i < 40 && b.value > line.value; ++i) {
                a = b;
                reach *= i < 3 ? 1.06 : 1.6;
                b = tangent(x + reach, x, above);
            }
        } else {
            for (int i = 0; i < 12; ++i) {
                const double shorter = reach * (i < 3 ? 0.94 : 0.6);
                const Line c = tangent(x + shorter, x, above);
                if (c.value > line.value) {
                    a = c;
                    break;
                }
                b = c;
                reach = shorter;
            }
        }
        // A wide bracket (an atom, or a long stretch without mass) makes a poor line: narrow it.
        for (int i = 0; i < 60 && b.touches - a.touches > 0.1 * (b.touches - x); ++i) {
            const Line c = tangent(0.5 * (a.touches + b.touches), x, above);
            (c.value > line.value ? a : b) = c;
        }
        const double fall = a.value - b.value;
        const double w = fall > 0 ? std::clamp((line.value - b.value) / fall, 0.0, 1.0) : 0.0;
        const double value = w * a.value + (1 - w) * b.value;
        return {value, w * a.slope + (1 - w) * b.slope,
                w * a.error + (1 - w) * b.error + 8 * u * (a.value + std::abs(b.value)),
                w > 0 ? a.touches : b.touches, std::max(a.steepness, b.steepness) + 8 * u};
    }

    // How far the line of the next bin may really lie above the present one where they should meet.
    // Lowering T by this, divided by 1 - e^{-d}, keeps the chain of lines below the profile.
    static double mismatch(const Line& present, const Line& next) {
        if (next.touches == present.touches) return 0;
        return std::max(0.0, next.value - present.value) + next.error + present.error;
    }

    // From below to above: f = k + 1 - p_inf - e^x.
    Line seen_from_above(const Line& line, std::size_t i) const {
        double rounding;
        const double one = scale_at(x_[i], 0, rounding), y = pair_.q_mass() * std::exp(x_[i]);
        // What is left of the slope may be rounding alone, which grows with e^x: the line serves up to here
        // only.
        return {line.value + one * (1 - pair_.infinity_mass() - y), one * y - line.slope,
                line.error + (rounding + 8 * u) * one * (1 + y), -std::numeric_limits<double>::infinity(), 1};
    }

    // Whether the line is negative at point i, up to rounding. What rounding leaves open is P-mass by
    // which the lattice's profile may exceed the true one.
    bool turns_negative(const Line& line, std::size_t i) {
        if (line.value >= line.error) return false;
        double rounding;
        const double scale = scale_at(x_[i], 0, rounding);
        if (!(line.value >= -16 * line.error) || !(scale > 1e-250)) return true;
        const double excess = 2 * (line.error - line.value);
        deficit_ = std::max(deficit_, excess / scale);
        tilted_deficit_ = std::max(tilted_deficit_, excess);
        return false;
    }

    // For a largest loss that lies on point i: the line that reaches it.
    Line last_line(std::size_t i, bool above) const {
        return tangent(x_[i] - 1e-8 * width(i), x_[i - 1], above);
    }

    void supports() {
        const std::size_t n = x_.size();
        // A tangent half a bin before the first point: what lies below it is dropped.
        const bool from_above = split_ == 0;
        Line line = tangent(x_[0] - 0.5 * width(1), x_[0], from_above);
        double rounding;
        const double all = scale_at(x_[0], 0, rounding) * (1 - pair_.infinity_mass());
        const double dropped = from_above ? all - line.value - line.slope : line.slope - line.value;
        head_[0] =
            std::max(0.0, dropped + line.error +
                              (16 * u + (from_above ? rounding : 0)) * (line.slope + (from_above ? all : 0)));
        head_[0] = std::min(head_[0], all * (1 - rounding));
        for (std::size_t i = 1; i <= split_; ++i) {
            if (i % 256 == 0) interruption_point();
            Line next = next_line(line, x_[i - 1], width(i), false);
            const auto negative = [&](const Line& l) {
                return turns_negative(seen_from_above(moved(l, i, false), i), i);
            };
            const bool ends = negative(next);
            const bool on_point = ends && !negative(last_line(i, false));
            if (on_point) next = last_line(i, false);
            // C_i tilted at x_{i-1}, rounded up.
            const double missed = mismatch(line, next) / -std::expm1(-width(i));
            const double before = i > 1 ? head_[i - 1] * up(i - 1) : head_[0];
            const double c = next.slope - next.value + missed + next.error + 8 * u * next.slope;
            failed_ = failed_ || std::isnan(c);
            head_[i] = std::max({0.0, before, c});
            // Rounded up, but never beyond all of P.
            double unsure;
            const double whole = scale_at(x_[i - 1], 0, unsure) * (1 - pair_.infinity_mass());
            head_[i] = std::min(head_[i], whole * (1 - unsure));
            line = moved(next, i, false);
            if (ends && !on_point) {
                // All of the mass lies to the left of a point where the line is negative.
                for (std::size_t j = i; j <= split_; ++j) {
                    double error;
                    const double scale = scale_at(x_[j - 1], 0, error);
                    head_[j] = scale * (1 - pair_.infinity_mass()) * (1 - error);
                }
                return;
            }
        }
        if (!from_above) line = seen_from_above(line, split_);
        double before = std::numeric_limits<double>::infinity();
        for (std::size_t i = split_ + 1; i < n; ++i) {
            if (i % 256 == 0) interruption_point();
            Line next = next_line(line, x_[i - 1], width(i), true);
            if (turns_negative(moved(next, i, true), i)) {
                // Past a point where the line is negative it cannot go on: no mass beyond.
                next = last_line(i, true);
                if (turns_negative(moved(next, i, true), i)) break;
            }
            const double missed = mismatch(line, next) / -std::expm1(-width(i));
            const double t = next.value + next.slope - missed - next.error - 8 * u * next.slope;
            failed_ = failed_ || std::isnan(t);
            line = moved(next, i, true);
            tail_[i] = std::max(0.0, std::min(before, t) * up(i) * (1 - 4 * u * (1 + tilt_ * width(i))));
            before = tail_[i];
        }
    }

    // ---- down ---------------------------------------------------------------------------------

    // All of a bin at its lower end, an atom at a point at that point: tails are taken a hair to its left.
    // They are those of a loss that lies no more than this hair and the tangent's error to the left of the
    // point.
    void downwards() {
        const std::size_t n = x_.size();
        const auto hair = [&](std::size_t i) { return 16 * u * std::abs(x_[i]) + 1e-300; };
        const auto note = [&](std::size_t i, const Tangent& t) {
            excess_ = std::max(excess_, 2 * hair(i) + t.misplaced);
        };
        for (std::size_t i = 0; i <= split_; ++i) {
            if (i % 256 == 0) interruption_point();
            const Tangent t = pair_.below(x_[i] - hair(i));
            note(i, t);
            // C_i tilted at x_{i-1}, rounded up.
            double rounding, unsure;
            const double at = x_[i > 0 ? i - 1 : 0];
            const double scale = scale_at(at, t.exponent, rounding),
                         whole = scale_at(at, 0, unsure) * (1 - pair_.infinity_mass());
            const double below = (std::max(0.0, t.slope - t.value) + (t.relative + 4 * u) * t.slope) * scale;
            failed_ = failed_ || std::isnan(below);
            head_[i] = std::min(below * (1 + rounding), whole * (1 - unsure));
            // Far to the right of 0, what lies below is known from above alone.
            const Tangent other = pair_.above(x_[i] - hair(i));
            note(i, other);
            const double above = (other.value + other.slope) * std::exp(other.exponent),
                         rest = 1 - pair_.infinity_mass() - above + (other.relative + 8 * u) * above + 8 * u;
            head_[i] = std::min(head_[i], std::max(0.0, rest) * scale_at(at, 0, unsure) * (1 + unsure));
            if (i > 0) head_[i] = std::max(head_[i], i > 1 ? head_[i - 1] * up(i - 1) : head_[0]);
        }
        double before = std::numeric_limits<double>::infinity();
        for (std::size_t i = split_ + 1; i < n; ++i) {
            if (i % 256 == 0) interruption_point();
            const Tangent t = pair_.above(x_[i] - hair(i));
            note(i, t);
            // T_i tilted at x_i, rounded down.
            double rounding;
            const double scale = scale_at(x_[i], t.exponent, rounding);
            const double above = (t.value + t.slope) * (1 - t.relative - 8 * u) * scale * (1 - rounding);
            failed_ = failed_ || std::isnan(above);
            tail_[i] = std::max(0.0, std::min(before, above));
            before = i + 1 < n ? tail_[i] * up(i + 1) : 0;
        }
    }

    // ---- both ---------------------------------------------------------------------------------

    std::vector<double> to_masses(bool upper) {
        const std::size_t n = x_.size();
        const double nudge = upper ? 8 * u : -8 * u;
        // At the split point both descriptions meet: its mass is what they leave of 1 - p_inf.
        double rounding;
        const double one = scale_at(x_[split_], 0, rounding) * (1 - pair_.infinity_mass());
        const double below = split_ >= 1 ? head_[split_] * up(split_) : head_[0];
        if (!upper) {
            // Rounded heads may leave less than the tails ask for.
            double cap = std::max(0.0, one - below) * (1 - 16 * u - rounding);
            for (std::size_t i = split_ + 1; i < n; ++i) {
                cap *= up(i) * (1 - 4 * u);
                if (tail_[i] <= cap) break;
                tail_[i] = cap;
            }
        }
        const double above = split_ + 1 < n ? tail_[split_ + 1] * down(split_) : 0.0;
        std::vector<double> mass(n);
        for (std::size_t i = 0; i < split_; ++i) {
            const double inner = i == 0 ? head_[0] : head_[i] * up(i);
            mass[i] = positive(head_[i + 1] - inner + nudge * head_[i + 1]);
        }
        const double centre = one - below - above;
        mass[split_] = positive(centre + (nudge + (upper ? rounding : -rounding)) * one);
        for (std::size_t i = split_ + 1; i < n; ++i) {
            const double outer = i + 1 < n ? tail_[i + 1] * down(i) : 0.0;
            mass[i] = positive(tail_[i] - outer + nudge * (1 + tilt_ * width(i)) * tail_[i]);
        }
        return mass;
    }

    const Pair& pair_;
    double tilt_;
    std::vector<double> x_;
    // tail_[i] = T_i at x_i for bins right of the split; head_[i] = C_i at x_{i-1} left of it.
    std::vector<double> tail_, head_;
    std::size_t split_ = 0;
    double shift_ = 0, deficit_ = 0, tilted_deficit_ = 0;
    double excess_ = 0;    // how much larger than the true loss the lattice's may be
    bool failed_ = false;  // something overflowed: no lower bound
};

// Bounds E[e^{tilt L - shift}; last < L < inf] and moves what lies beyond reach to +inf.
struct Beyond {
    double tilted, infinity;
};
Beyond beyond_last(const Pair& pair, double last, double tilt, double shift, double infinity_mass) {
    if (last >= pair.max_loss()) return {0, 0};
    const Tangent end = pair.above(last);
    const double mass =
        (end.value + end.error + end.slope * (1 + 1e-12)) * std::exp(end.exponent) * (1 + 1e-12);
    if (mass <= infinity_mass) return {0, std::max(mass, 1e-320)};
    std::vector<double> x;
    double reach = 1e-3 * std::max(std::abs(last), 1e-22);
    for (double at = last; x.size() < 400; at += reach, reach *= 1.1) {
        x.push_back(at);
        if (at > 1e16 || at >= pair.max_loss()) break;
    }
    std::vector<Tangent> tangents;
    for (const double at : x) tangents.push_back(pair.above(at));
    // ln P(x < L < inf), rounded up.
    const auto log_tail = [&](std::size_t i) {
        const Tangent& t = tangents[i];
        const double p = t.value + t.error + t.slope * (1 + 1e-12);
        return p > 0 ? std::log(p) + t.exponent : -std::numeric_limits<double>::infinity();
    };
    // What is rare enough to count as infinite does so: its tilted mass may exceed all the rest.
    const double rare = std::max(-750.0, std::log(infinity_mass));
    Beyond out{0, 0};
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double log_p = log_tail(i);
        if (log_p < rare || i + 1 == x.size()) {
            // What is left goes to +inf. Never less than the smallest number, unless the support ends.
            out.infinity = x[i] >= pair.max_loss() ? 0.0 : std::max(std::exp(log_p), 1e-320);
            break;
        }
        // The mass between two nodes, all at the upper one.
        const double scale = std::min(log_p + tilt * x[i + 1] - shift, 700.0);
        const double fall = -std::expm1(std::min(0.0, log_tail(i + 1) - log_p));
        out.tilted += std::exp(scale) * (fall + 1e-11 + 8 * u * std::abs(log_p));
    }
    return out;
}

}  // namespace

std::vector<std::int64_t> all_points(std::int64_t first, std::int64_t last) {
    std::vector<std::int64_t> points;
    for (std::int64_t i = first; i <= last; ++i) points.push_back(i);
    return points;
}

// How much the sparse points may add to the spread of the dense ones.
constexpr double sparse_share = 0.5;

std::vector<std::int64_t> choose_points(const Sketch& sketch, double step, double tilt) {
    if (sketch.empty()) return {0, 1};
    const double log_total = cumulants(sketch, tilt).value;
    const std::size_t n = sketch.loss.size();
    // Points every s steps in a bin of tilted mass w and width d spread the loss by about w (s step)^2
    // and cost d / s points. The fewest points for a given spread have s^3 in proportion to d / w.
    std::vector<double> weight(n), stride(n);
    for (std::size_t i = 0; i < n; ++i) {
        weight[i] = std::exp(sketch.log_mass[i] + tilt * sketch.loss[i] - log_total);
        stride[i] = std::cbrt((sketch.right[i] - sketch.left[i]) / std::max(weight[i], 1e-30));
    }
    const auto spread = [&](double factor) {
        double sum = 0;
        for (std::size_t i = 0; i < n; ++i) {
            const double s = factor * stride[i];
            if (s > 1) sum += weight[i] * (s * s - 1);
        }
        return sum;
    };
    double low = 0, high = 1 / *std::max_element(stride.begin(), stride.end());
    while (spread(2 * high) < sparse_share) high *= 2;
    for (int i = 0; i < 8; ++i) {
        const double middle = 0.5 * (low + high);
        (spread(middle) < sparse_share ? low : high) = middle;
    }
    std::vector<std::int64_t> points;
    auto at = static_cast<std::int64_t>(std::floor(sketch.left.front() / step));
    for (std::size_t i = 0; i < n; ++i) {
        const auto end = static_cast<std::int64_t>(std::ceil(sketch.right[i] / step));
        const double by_shape = (sketch.right[i] - sketch.left[i]) / (4 * step);
        const double by_tilt = 0.25 / ((1 + tilt) * step);
        const auto every = static_cast<std::int64_t>(
            std::clamp(std::min({low * stride[i], by_shape, by_tilt}), 1.0, 65536.0));
        for (; at < end; at += std::min(every, end - at)) points.push_back(at);
    }
    points.push_back(at);
    if (points.size() == 1) points.push_back(at + 1);
    return points;
}

namespace {

void check(const std::vector<std::int64_t>& points, double step, double tilt) {
    if (points.size() < 2) throw std::invalid_argument("discretise: at least two points are needed");
    if (!(step > 0) || !std::isfinite(step)) throw std::invalid_argument("discretise: step must be positive");
    if (!(tilt >= 0) || !std::isfinite(tilt))
        throw std::invalid_argument("discretise: tilt must not be negative");
}

Lattice make(const Pair& pair, std::vector<std::int64_t> points, double step, double tilt, Method method,
             double infinity_mass) {
    Lattice out;
    out.bound = method == Method::chords ? Bound::upper : Bound::lower;
    out.step = step;
    out.tilt = tilt;
    // The tilted mass is largest where the tilted loss has most of its mass: find ln of it, roughly.
    double shift = -std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < points.size(); i += 1 + points.size() / 256) {
        const double x = static_cast<double>(points[i]) * step;
        const Tangent t = pair.above(x - 0.5 * step);
        const double log_tail = std::log(t.value + t.slope) + t.exponent;
        if (log_tail > shift - tilt * x) shift = log_tail + tilt * x;
    }
    if (!std::isfinite(shift)) shift = 0;
    Discretiser discretiser(pair, points, step, tilt, shift);
    out.mass = discretiser.masses(method);
    out.offset = -discretiser.excess();
    out.index = std::move(points);
    out.infinity_mass = pair.infinity_mass();
    if (out.bound == Bound::upper) {
        const Beyond beyond =
            beyond_last(pair, static_cast<double>(out.index.back()) * step, tilt, shift, infinity_mass);
        out.beyond = beyond.tilted;
        out.infinity_mass = std::min(1.0, out.infinity_mass * (1 + 8 * u) + beyond.infinity);
    } else {
        out.infinity_mass *= 1 - 8 * u;
        out.deficit = discretiser.deficit();
        // The same excess as mass at the loss D above its point, where e^-D = tilt/(1 + tilt).
        out.tilted_deficit = discretiser.tilted_deficit() * (1 + tilt) *
                             (tilt > 0 ? std::exp(tilt * std::log1p(1 / tilt)) : 1.0);
    }
    double total = 0;
    for (double m : out.mass) total += m;
    if (!(total > 0) || !std::isfinite(total)) {
        // Nothing finite is left to be said: all of P at +inf is an upper bound, none of it a lower one.
        out.log_scale = -std::numeric_limits<double>::infinity();
        out.beyond = 0;
        if (out.bound == Bound::upper) out.infinity_mass = 1;
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
    return make(pair, std::move(points), step, tilt,
                bound == Bound::upper ? Method::chords : Method::supports, infinity_mass);
}

Lattice round_down(const Pair& pair, std::vector<std::int64_t> points, double step, double tilt) {
    check(points, step, tilt);
    return make(pair, std::move(points), step, tilt, Method::down, 0);
}

}  // namespace hockeystick
