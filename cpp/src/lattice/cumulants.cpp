// Every number in this file is speed: any value is sound.
#include "lattice/cumulants.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "hockeystick/parallel.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

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
    const double log_delta = k.value - tilt * epsilon - std::log(tilt) - std::log1p(tilt) -
                             0.5 * std::log(2 * std::numbers::pi * curvature);
    return {tilt, epsilon, log_delta};
}

// A first guess of the saddle's scale: the inverse standard deviation of the composed loss.
double scale_guess(const std::vector<SketchedStep>& steps) {
    const double variance = cumulants(steps, 0).second;
    return variance > 0 ? std::clamp(1 / std::sqrt(variance), 1e-6, 1e30) : 1.0;
}

}  // namespace

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
