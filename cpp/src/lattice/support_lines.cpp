// The lower bound: in each bin a line that supports the profile from below, chosen such that neighbouring
// lines meet on the lattice (docs/accounting/bounds.md, "One step on a lattice").
#include <algorithm>
#include <cmath>

#include "hockeystick/parallel.hpp"
#include "lattice/tails.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

constexpr std::size_t bins_between_interruptions = 256;  // speed

// A line below the profile, as seen at a point: its value there, e^x times its slope, and where it
// touches. `error` is what it may exceed a true support line by at this point, and `steepness` how much of
// its slope is uncertain.
struct Line {
    double value, slope, error, touches, steepness;
};

// How far the line of the next bin may really lie above the present one where they should meet, divided by
// 1 - e^{-d}. Lowering T by this keeps the chain of lines below the profile.
double mismatch(const Line& present, const Line& next, double width) {
    if (next.touches == present.touches) return 0;
    return (std::max(0.0, next.value - present.value) + next.error + present.error) / -std::expm1(-width);
}

class SupportLines {
public:
    explicit SupportLines(Tails& tails) : t_(tails) {}

    void fill() {
        // A tangent half a bin before the first point: what lies below it is dropped.
        const bool from_above = t_.split == 0;
        Line line = tangent(t_.x[0] - 0.5 * t_.width(1), t_.x[0], from_above);
        const auto [all, rounding] = t_.whole_at(t_.x[0]);
        const double dropped = from_above ? all - line.value - line.slope : line.slope - line.value;
        const double unsure =
            line.error + (16 * u + (from_above ? rounding : 0)) * (line.slope + (from_above ? all : 0));
        t_.head[0] = std::min(std::max(0.0, dropped + unsure), all * (1 - rounding));
        // Left of the first point the profile is that of this line, if it is not negative there.
        if (turns_negative(from_above ? line : seen_from_above(line, 0), 0)) return leave_out_from(0);
        for (std::size_t i = 1; i <= t_.split; ++i)
            if (!extend_heads(line, i)) return;
        if (!from_above) line = seen_from_above(line, t_.split);
        fill_tails(line);
    }

private:
    // All of the mass lies to the left of this point.
    void leave_out_from(std::size_t first) {
        for (std::size_t j = first; j <= t_.split; ++j) {
            const auto [whole, rounding] = t_.whole_at(t_.x[j > 0 ? j - 1 : 0]);
            t_.head[j] = whole * (1 - rounding);
        }
    }

    // C_i from the line up to the point before, which is replaced by that up to i; false if there the profile
    // has ended.
    bool extend_heads(Line& line, std::size_t i) {
        if (i % bins_between_interruptions == 0) interruption_point();
        Line next = next_line(line, t_.x[i - 1], t_.width(i), false);
        const auto negative = [&](const Line& l) {
            return turns_negative(seen_from_above(moved(l, i, false), i), i);
        };
        const bool ends = negative(next);
        const bool on_point = ends && !negative(last_line(i, false));
        if (on_point) next = last_line(i, false);
        // C_i tilted at x_{i-1}, rounded up.
        const double missed = mismatch(line, next, t_.width(i));
        const double c = next.slope - next.value + missed + next.error + 8 * u * next.slope;
        t_.failed = t_.failed || std::isnan(c);
        if (ends && !on_point) {
            leave_out_from(i);
            return false;
        }
        const double before = i > 1 ? t_.head[i - 1] * t_.up(i - 1) : t_.head[0];
        // Rounded up, but never beyond all of P.
        const auto [whole, rounding] = t_.whole_at(t_.x[i - 1]);
        t_.head[i] = std::min(std::max({0.0, before, c}), whole * (1 - rounding));
        line = moved(next, i, false);
        return true;
    }

    void fill_tails(Line line) {
        double before = infinity;
        for (std::size_t i = t_.split + 1; i < t_.size(); ++i) {
            if (i % bins_between_interruptions == 0) interruption_point();
            Line next = next_line(line, t_.x[i - 1], t_.width(i), true);
            if (turns_negative(moved(next, i, true), i)) {
                // Past a point where the line is negative it cannot go on: no mass beyond.
                next = last_line(i, true);
                if (turns_negative(moved(next, i, true), i)) break;
            }
            const double missed = mismatch(line, next, t_.width(i));
            const double t = next.value + next.slope - missed - next.error - 8 * u * next.slope;
            t_.failed = t_.failed || std::isnan(t);
            line = moved(next, i, true);
            t_.tail[i] =
                std::max(0.0, std::min(before, t) * t_.up(i) * (1 - 4 * u * (1 + t_.tilt * t_.width(i))));
            before = t_.tail[i];
        }
    }

    // The tangent that touches at t, as seen at the point x <= t (or x >= t for the very first).
    Line tangent(double t, double x, bool above) const {
        const Tangent at = above ? t_.pair.above(t) : t_.pair.below(t);
        const auto [scale, rounding] = t_.scale_at(x, at.exponent);
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
        const double d = t_.width(bin), growth = std::exp(t_.tilt * d), change = line.slope * std::expm1(d);
        const double rounding = u * (8 + 2 * t_.tilt * d);
        // From above, a line that falls too slowly ends up too high.
        return {(above ? line.value - change : line.value + change) * growth,
                line.slope * (std::exp(d) * growth),
                (line.error + line.steepness * change + rounding * (std::abs(line.value) + change)) * growth,
                line.touches, line.steepness + rounding};
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

    // From below to above: f = k + 1 - p_inf - e^x.
    Line seen_from_above(const Line& line, std::size_t i) const {
        const auto [one, rounding] = t_.scale_at(t_.x[i], 0);
        const double y = t_.pair.q_mass() * std::exp(t_.x[i]);
        // What is left of the slope may be rounding alone, which grows with e^x: the line serves up to here
        // only.
        return {line.value + one * (1 - t_.pair.infinity_mass() - y), one * y - line.slope,
                line.error + (rounding + 8 * u) * one * (1 + y), -infinity, 1};
    }

    // Whether the line is negative at point i, up to rounding. What rounding leaves open is P-mass by
    // which the lattice's profile may exceed the true one; 16 errors and a scale that has not underflowed are
    // speed: beyond them the line ends.
    bool turns_negative(const Line& line, std::size_t i) {
        if (line.value >= line.error) return false;
        const double scale = t_.scale_at(t_.x[i], 0).value;
        if (!(line.value >= -16 * line.error) || !(scale > 1e-250)) return true;
        const double excess = 2 * (line.error - line.value);
        t_.deficit = std::max(t_.deficit, excess / scale);
        t_.tilted_deficit = std::max(t_.tilted_deficit, excess);
        return false;
    }

    // For a largest loss that lies on point i: the line that reaches it.
    Line last_line(std::size_t i, bool above) const {
        return tangent(t_.x[i] - 1e-8 * t_.width(i), t_.x[i - 1], above);
    }

    Tails& t_;
};

}  // namespace

void support_from_below(Tails& tails) { SupportLines(tails).fill(); }

}  // namespace hockeystick
