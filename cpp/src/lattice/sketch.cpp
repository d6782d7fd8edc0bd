// Every number in this file is speed: any value is sound.
#include "lattice/sketch.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "hockeystick/parallel.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// The pair seen at x, with ln P(L > x) and ln P(L <= x).
struct Node {
    double x, log_above, log_below;
    Tangent above, below;
};

std::vector<Node> evaluate(const Pair& pair, const std::vector<double>& x) {
    std::vector<Node> nodes;
    nodes.reserve(x.size());
    for (const double at : x) {
        if (nodes.size() % 1024 == 0) interruption_point();
        const Tangent above = pair.above(at), below = pair.below(at);
        const double p = above.value + above.slope, c = below.slope - below.value;
        const double log_p = p > 0 ? std::min(std::log(p) + above.exponent, 0.0) : -infinity;
        // Seen from below P drowns where e^x is large; where little is above, take the rest of it.
        const double log_c = log_p < -0.7 || at > 0 ? std::log1p(-std::exp(log_p))
                             : c > 0                ? std::log(c) + below.exponent
                                                    : -infinity;
        nodes.push_back({at, log_p, log_c, above, below});
    }
    return nodes;
}

bool is_right(const Node& a, const Node& b) { return a.log_above < b.log_below; }

// ln P(a < L <= b), from whichever tail is the smaller one.
double log_bin_mass(const Node& a, const Node& b) {
    const bool right = is_right(a, b);
    const double outer = right ? a.log_above : b.log_below;
    const double inner = right ? b.log_above : a.log_below;
    if (!(outer > inner)) return -infinity;
    return outer + std::log1p(-std::exp(inner - outer));
}

// The loss at which one atom carries the P- and the Q-mass of the bin (a, b]. It leaves K(0) and
// K(-1) exact, so that the error of K does not add up to a drift over 1e9 steps.
double representative(const Node& a, const Node& b, double log_mass) {
    const double width = b.x - a.x, shrink = -std::expm1(-width);
    double excess;  // 1 - e^{a.x - loss}
    if (is_right(a, b) || a.x > 0)
        excess = a.above.value * std::exp(a.above.exponent - log_mass) -
                 (b.above.value + b.above.slope * shrink) * std::exp(b.above.exponent - log_mass);
    else
        excess = a.below.value * std::exp(a.below.exponent - log_mass) +
                 (b.below.slope * shrink - b.below.value) * std::exp(b.below.exponent - log_mass);
    if (!(excess > 0)) return a.x;
    return excess < shrink ? std::min(b.x, a.x - std::log1p(-excess)) : b.x;
}

// Speed: the mean loss in a bin that is wide beside 1, where e^{-L} would find little but its left end:
// Simpson's rule for the distribution function.
constexpr double wide = 1;
double middle_of(const Pair& pair, const Node& a, const Node& b, double log_mass) {
    const Node middle = evaluate(pair, {0.5 * (a.x + b.x)}).front();
    const double share = std::min(1.0, std::exp(log_bin_mass(a, middle) - log_mass));
    return b.x - (b.x - a.x) * (4 * share + 1) / 6;
}

// Losses from 1e-24 to 1e16 on both sides of 0: the scale of a pair is not known beforehand.
std::vector<double> first_grid() {
    std::vector<double> x;
    for (int i = -184; i <= 184; ++i) x.push_back(std::copysign(1e-24 * std::expm1(0.5 * std::abs(i)), i));
    return x;
}

// A bin is fine enough when it holds little mass, or its tail falls by less than half.
bool too_coarse(const Node& a, const Node& b, double log_mass) {
    if (b.x - a.x < 1e-7 * std::max(std::abs(a.x), std::abs(b.x))) return false;
    const double fall = is_right(a, b) ? a.log_above - b.log_above : b.log_below - a.log_below;
    // Nor does e^{-L} say where in a wide bin the loss lies.
    return log_mass > std::log(b.x - a.x > wide ? 0.004 : 0.02) || fall > 0.7;
}

// Halves the bins that are neither fine enough nor negligible, again and again.
template <class Negligible>
std::vector<Node> refined(const Pair& pair, std::vector<Node> nodes, const Negligible& negligible) {
    for (int round = 0; round < 40; ++round) {
        std::vector<double> middles;
        for (std::size_t i = 0; i + 1 < nodes.size(); ++i) {
            const Node &a = nodes[i], &b = nodes[i + 1];
            const double log_mass = log_bin_mass(a, b);
            if (!negligible(a, b, log_mass) && too_coarse(a, b, log_mass))
                middles.push_back(0.5 * (a.x + b.x));
        }
        if (middles.empty()) break;
        const std::vector<Node> fresh = evaluate(pair, middles);
        std::vector<Node> merged(nodes.size() + fresh.size());
        std::merge(nodes.begin(), nodes.end(), fresh.begin(), fresh.end(), merged.begin(),
                   [](const Node& a, const Node& b) { return a.x < b.x; });
        nodes = std::move(merged);
    }
    return nodes;
}

// Speed: how much the sparse points may add to the spread of the dense ones.
constexpr double sparse_share = 0.5;

// Finds s > 0 with increasing(s) = 0 by doubling and bisecting ln s. A coarse root is enough.
double solve_increasing(double start, const std::function<double(double)>& increasing) {
    double low = start, high = start, factor = 4;
    const bool down = increasing(start) > 0;
    double &moving = down ? low : high, &behind = down ? high : low;
    for (int i = 0; i < 40 && (increasing(moving) > 0) == down; ++i) {
        behind = moving;
        moving = down ? moving / factor : moving * factor;
        factor = std::min(factor * 2, 1e3);
    }
    while (high / low > 1.01) {
        const double middle = std::sqrt(low) * std::sqrt(high);
        (increasing(middle) > 0 ? high : low) = middle;
    }
    return std::sqrt(low) * std::sqrt(high);
}

Saddle saddle_at(const std::vector<SketchedStep>& steps, double tilt) {
    const Cumulants k = cumulants(steps, tilt);
    const double epsilon = k.first - 1 / tilt - 1 / (1 + tilt);
    const double curvature = k.second + 1 / (tilt * tilt) + 1 / ((1 + tilt) * (1 + tilt));
    const double log_delta =
        k.value - tilt * epsilon - std::log(tilt) - std::log1p(tilt) - 0.5 * std::log(2 * pi * curvature);
    return {tilt, epsilon, log_delta};
}

// A first guess of the saddle's scale: the inverse standard deviation of the composed loss.
double scale_guess(const std::vector<SketchedStep>& steps) {
    const double variance = cumulants(steps, 0).second;
    return variance > 0 ? std::clamp(1 / std::sqrt(variance), 1e-6, 1e30) : 1.0;
}

}  // namespace

Sketch sketch(const Pair& pair, double depth_left, double depth_right) {
    static const std::vector<double> start = first_grid();
    // Whether a bin holds so little that it is left out.
    const auto negligible = [&](const Node& a, const Node& b, double log_mass) {
        return log_mass < -(is_right(a, b) ? depth_right : depth_left);
    };
    const std::vector<Node> nodes = refined(pair, evaluate(pair, start), negligible);
    Sketch out;
    for (std::size_t i = 0; i + 1 < nodes.size(); ++i) {
        const Node &a = nodes[i], &b = nodes[i + 1];
        const double log_mass = log_bin_mass(a, b);
        if (negligible(a, b, log_mass)) {
            out.truncated |= is_right(a, b) && log_mass > -infinity;
            continue;
        }
        out.loss.push_back(b.x - a.x > wide ? middle_of(pair, a, b, log_mass)
                                            : representative(a, b, log_mass));
        out.left.push_back(a.x);
        out.right.push_back(b.x);
        out.log_mass.push_back(log_mass);
    }
    return out;
}

std::vector<double> tilted_masses(const Sketch& sketch, double tilt) {
    const double log_total = cumulants(sketch, tilt).value;
    std::vector<double> masses;
    for (std::size_t i = 0; i < sketch.loss.size(); ++i)
        masses.push_back(std::exp(sketch.log_mass[i] + tilt * sketch.loss[i] - log_total));
    return masses;
}

Sketch trimmed(const Sketch& sketch, double tilt, double tail, double infinity_mass) {
    if (sketch.empty()) return sketch;
    const double log_total = cumulants(sketch, tilt).value;
    const auto weight = [&](std::size_t i) {
        return std::exp(sketch.log_mass[i] + tilt * sketch.loss[i] - log_total);
    };
    std::size_t first = 0, last = sketch.loss.size() - 1;
    // The upper bound moves what lies left of the first point up to it: weigh it there.
    for (double below = 0; first < last; ++first) {
        below += std::exp(sketch.log_mass[first]);
        if (!(std::log(below) + tilt * sketch.right[first] - log_total <= std::log(tail))) break;
    }
    double sum = weight(last), mass = std::exp(sketch.log_mass[last]);
    while (last > first && (sum <= tail || mass <= infinity_mass)) {
        --last;
        sum += weight(last);
        mass += std::exp(sketch.log_mass[last]);
    }
    const auto cut = [&](const std::vector<double>& values) {
        return std::vector<double>(values.begin() + static_cast<std::ptrdiff_t>(first),
                                   values.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    };
    return {cut(sketch.left), cut(sketch.right), cut(sketch.loss), cut(sketch.log_mass),
            last + 1 < sketch.loss.size()};
}

std::vector<std::int64_t> all_points(std::int64_t first, std::int64_t last) {
    std::vector<std::int64_t> points;
    for (std::int64_t i = first; i <= last; ++i) points.push_back(i);
    return points;
}

std::vector<std::int64_t> choose_points(const Sketch& sketch, double step, double tilt) {
    if (sketch.empty()) return {0, 1};
    const std::size_t n = sketch.loss.size();
    // Points every s steps in a bin of tilted mass w and width d spread the loss by about w (s step)^2
    // and cost d / s points. The fewest points for a given spread have s^3 in proportion to d / w.
    const std::vector<double> weight = tilted_masses(sketch, tilt);
    std::vector<double> stride(n);
    for (std::size_t i = 0; i < n; ++i)
        stride[i] = std::cbrt((sketch.right[i] - sketch.left[i]) / std::max(weight[i], 1e-30));
    const auto spread = [&](double factor) {
        double sum = 0;
        for (std::size_t i = 0; i < n; ++i) {
            const double s = factor * stride[i];
            if (s > 1) sum += weight[i] * (s * s - 1);
        }
        return sum;
    };
    const double widest = *std::max_element(stride.begin(), stride.end());
    double low = 0;
    if (widest > 0) {  // or all bins are atoms, and there is nothing to spread
        double high = 1 / widest;
        while (spread(2 * high) < sparse_share) high *= 2;
        for (int i = 0; i < 8; ++i) {
            const double middle = 0.5 * (low + high);
            (spread(middle) < sparse_share ? low : high) = middle;
        }
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

Cumulants cumulants(const Sketch& sketch, double tilt) {
    if (sketch.empty()) return {0, 0, 0};
    double largest = -infinity;
    for (std::size_t i = 0; i < sketch.loss.size(); ++i)
        largest = std::max(largest, sketch.log_mass[i] + tilt * sketch.loss[i]);
    double mass = 0, first = 0;
    for (std::size_t i = 0; i < sketch.loss.size(); ++i) {
        const double w = std::exp(sketch.log_mass[i] + tilt * sketch.loss[i] - largest);
        mass += w;
        first += w * sketch.loss[i];
    }
    first /= mass;
    double second = 0;
    for (std::size_t i = 0; i < sketch.loss.size(); ++i) {
        const double d = sketch.loss[i] - first;
        second += std::exp(sketch.log_mass[i] + tilt * sketch.loss[i] - largest) * d * d;
    }
    return {largest + std::log(mass), first, second / mass};
}

Cumulants cumulants(const std::vector<SketchedStep>& steps, double tilt) {
    interruption_point();
    Cumulants total{0, 0, 0};
    for (const auto& step : steps) {
        const Cumulants k = cumulants(step.sketch, tilt);
        const double count = static_cast<double>(step.count);
        total.value += count * k.value;
        total.first += count * k.first;
        total.second += count * k.second;
    }
    return total;
}

Saddle saddle_for_epsilon(const std::vector<SketchedStep>& steps, double epsilon) {
    return saddle_at(steps, solve_increasing(scale_guess(steps), [&](double tilt) {
                         return saddle_at(steps, tilt).epsilon - epsilon;
                     }));
}

Saddle saddle_for_delta(const std::vector<SketchedStep>& steps, double log_delta) {
    return saddle_at(steps, solve_increasing(scale_guess(steps), [&](double tilt) {
                         return log_delta - saddle_at(steps, tilt).log_delta;
                     }));
}

TailPoint tail_point(const std::vector<SketchedStep>& steps, double tilt, double log_mass, int direction) {
    const Cumulants at = cumulants(steps, tilt);
    const double scale = at.second > 0 ? 1 / std::sqrt(at.second) : 1.0;
    // Chernoff's exponent at theta, written as its tangent point: it increases with theta.
    const auto exponent = [&](double theta) {
        const Cumulants there = cumulants(steps, tilt + direction * theta);
        return direction * theta * there.first - (there.value - at.value);
    };
    const double theta = solve_increasing(scale, [&](double s) { return exponent(s) + log_mass; });
    const Cumulants there = cumulants(steps, tilt + direction * theta);
    return {(there.value - at.value - log_mass) / (direction * theta), theta};
}

}  // namespace hockeystick
