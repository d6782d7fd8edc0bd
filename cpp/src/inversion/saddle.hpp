// The tilt through which the inversion's line goes: the saddle of K(s) - s eps - ln s - ln(1+s)
// (docs/accounting/bounds.md, "Exact inversion").
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>

#include "numerics/constants.hpp"
#include "numerics/special.hpp"

namespace hockeystick {

// K and its derivatives at a real tilt, and an upper bound of K.
struct Cumulant {
    double value, first, second, upper;
    // So many times another one.
    void add(const Cumulant& other, double count) {
        value += count * other.value;
        first += count * other.first;
        second += count * other.second;
        upper += count * other.upper;
    }
};
// Of plain Gaussian steps with this variance of the loss.
inline Cumulant gaussian_steps(double variance, double s) {
    const double value = 0.5 * variance * s * (s + 1);
    return {value, variance * (s + 0.5), variance, value * (1 + 4 * unit_roundoff)};
}
using CumulantOf = std::function<Cumulant(double s)>;

// A tilt, the epsilon whose saddle it is, and the saddle's estimate of ln delta there.
struct SaddlePoint {
    double s, epsilon, log_delta, curvature;
    Cumulant k;

    static SaddlePoint at(double s, const Cumulant& k) {
        const double epsilon = k.first - 1 / s - 1 / (1 + s);
        const double curvature = k.second + 1 / (s * s) + 1 / ((1 + s) * (1 + s));
        const double log_delta =
            k.value - s * epsilon - std::log(s) - std::log1p(s) - 0.5 * std::log(2 * pi * curvature);
        return {s, epsilon, log_delta, curvature, k};
    }
};

inline double log_add(double a, double b) {
    const double top = std::max(a, b);
    return std::isfinite(top) ? top + std::log1p(std::exp(std::min(a, b) - top)) : top;
}

// What a search thinks of a tilt: whether it tells anything (not where sums overflow, as s is too large),
// whether it will do, and by how much it is too large: an excess that increases with s, and its slope in ln
// s.
struct Judgement {
    bool fine, enough;
    double excess, slope;
};

// Newton's method in ln s from `start`, kept in a bracket that halves at worst; true once judge(s) says
// enough. Any s > 0 gives the same delta: all here is for speed.
template <class Judge>
bool search_tilt(double start, double least, Judge judge) {
    double low = -infinity, high = infinity, x = std::log(start);
    for (int i = 0, overflows = 0; i < 100 && overflows < 8; ++i) {
        const Judgement found = judge(std::exp(x));
        if (found.fine && found.enough) return true;
        overflows += !found.fine;
        (found.fine && found.excess < 0 ? low : high) = x;
        double next = found.fine ? x - std::clamp(found.excess / found.slope, -1.5, 1.5) : x - 0.7;
        if (!(next > low && next < high)) {
            if (!std::isfinite(low) || !std::isfinite(high)) return false;
            next = 0.5 * (low + high);
        }
        if (std::abs(next) > 100 || high - low < least) return false;
        x = next;
    }
    return false;
}

// The three lowest points of a function with one hollow so far, and the interval which that is in.
struct Hollow {
    struct Point {
        double x, y;
    };
    double low, high;
    Point best, second, third;

    // Of the parabola through them.
    double bottom() const {
        const double r = (best.x - second.x) * (best.y - third.y),
                     q = (best.x - third.x) * (best.y - second.y);
        return best.x - 0.5 * ((best.x - third.x) * q - (best.x - second.x) * r) / (q - r);
    }
    void keep(Point next) {
        if (next.y <= best.y) {
            (next.x < best.x ? high : low) = best.x;
            third = second, second = best, best = next;
            return;
        }
        (next.x < best.x ? low : high) = next.x;
        if (next.y <= second.y || second.x == best.x)
            third = second, second = next;
        else if (next.y <= third.y || third.x == best.x || third.x == second.x)
            third = next;
    }
};

// About where such a function is least between low and high: at the bottom of the parabola, where that closes
// in, or else a golden section towards the farther end (Brent 1973). Where it is infinite on the right, it is
// less to the left.
template <class Height>
double lowest(double low, double high, double close, Height height) {
    const auto at = [&](double x) { return Hollow::Point{x, height(x)}; };
    const double golden = 0.5 * (3 - std::sqrt(5.0)), least = 0.25 * close;
    Hollow::Point first = at(high - golden * (high - low));
    while (!(first.y < infinity) && high - low > close)
        high = first.x, first = at(high - golden * (high - low));
    Hollow hollow{low, high, first, first, first};
    const auto& best = hollow.best;
    for (double move = 0, before = 0; std::max(best.x - hollow.low, hollow.high - best.x) > 2 * least;) {
        const double bottom = hollow.bottom();
        const bool right = best.x<0.5 * (hollow.low + hollow.high), closes = bottom> hollow.low &&
                           bottom < hollow.high && 2 * std::abs(bottom - best.x) < std::abs(before);
        before = move;
        if (!closes) {
            before = right ? hollow.high - best.x : hollow.low - best.x;
            move = golden * before;
        } else if (std::min(bottom - hollow.low, hollow.high - bottom) < 2 * least) {
            // Nearer than that to an end, the end is what moves.
            move = right ? least : -least;
        } else {
            move = bottom - best.x;
        }
        hollow.keep(at(best.x + (std::abs(move) < least ? std::copysign(least, move) : move)));
    }
    return best.x;
}

}  // namespace hockeystick
