// Every number in this file is speed: any value is sound.
#include "profile/lattice_plan.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "numerics/constants.hpp"
#include "numerics/fft.hpp"
#include "numerics/rounding.hpp"
#include "profile/answers.hpp"

namespace hockeystick {
namespace {

// How much discretisation widens eps, by the step: a loss spread by variance v at tilt s moves eps by
// (1+s) v/2, and the two bounds differ by at most v = step^2/4 per step, less where the loss lies within
// a step of a lattice point. Nor does any loss move by more than a step.
class Widening {
public:
    Widening(const Steps& steps, double tilt) : steps_(steps), tilt_(tilt) {
        for (const auto& step : steps) {
            auto& w = weights_.emplace_back(tilted_masses(step.sketch, tilt));
            for (double& weight : w) weight *= static_cast<double>(step.count);
        }
    }
    double at(double step) const {
        double sum = 0;
        for (std::size_t a = 0; a < steps_.size(); ++a)
            for (std::size_t i = 0; i < weights_[a].size(); ++i) {
                const double x = std::abs(steps_[a].sketch.loss[i]);
                const double variance = x < step ? x * (step - x) : 0.25 * step * step;
                sum += weights_[a][i] * std::min(0.5 * (1 + tilt_) * variance, std::min(x, step));
            }
        return sum;
    }
    // The step, at most `high`, for a tolerance.
    double step_for(double tolerance, double high) const {
        double low = high * 1e-9;
        if (at(high) <= tolerance) return high;
        // To 2 %, of steps that may be too small for a product of two.
        for (int halving = 0; halving < 11; ++halving) {
            const double middle = std::sqrt(low) * std::sqrt(high);
            (at(middle) > tolerance ? high : low) = middle;
        }
        return low;
    }

private:
    const Steps& steps_;
    double tilt_;
    std::vector<std::vector<double>> weights_;
};

// On a lattice of coarse atoms a larger tilt would only overflow.
double largest_tilt(const Composition& composition) {
    double largest = infinity;
    for (const auto& [pair, count] : composition)
        if (pair->spacing() > 0) largest = std::min(largest, 30 / pair->spacing());
    return largest;
}

double coarse_tilt(double tilt) { return std::exp2(std::round(8 * std::log2(tilt)) / 8); }

// The saddle's own tilt makes round-off smallest, but fattens the right tail and so the window: take the
// smallest tilt that round-off allows. A coarse grid of tilts and steps lets neighbouring queries share their
// work, whatever their order. With it, as a logarithm, how large delta is beside e^{K - s eps}, the unit of
// the error terms.
std::pair<double, double> choose_tilt(const Steps& steps, const Saddle& saddle, double largest,
                                      double log_round_off, bool steep) {
    const auto log_share_at = [&](double s) {
        return std::clamp(saddle.log_delta - (cumulants(steps, s).value - s * saddle.epsilon), -700.0, 0.0);
    };
    double tilt = coarse_tilt(std::min(saddle.tilt, largest));
    double log_share = log_share_at(tilt);
    for (int i = 0; i < 60 && !steep; ++i) {
        const double smaller = log_share_at(tilt * std::exp2(-0.5));
        if (log_round_off - smaller > std::log(1e-2)) break;
        tilt *= std::exp2(-0.5);
        log_share = smaller;
    }
    return {tilt, log_share};
}

// A step of which every atom of the composition is a multiple, if there is one; otherwise the wanted step,
// reduced to divide the first anchor.
double aligned(double step, const Composition& composition, double span, double size_limit) {
    double smallest = infinity, first = 0;
    for (const auto& [pair, count] : composition) {
        smallest = std::min(smallest, pair->spacing());
        if (first == 0 && pair->anchor() > 0) first = pair->anchor();
    }
    const bool all =
        smallest > 0 && std::all_of(composition.begin(), composition.end(), [&](const auto& kind) {
            const double ratio = kind.first->spacing() / smallest;
            return !(std::abs(ratio - std::round(ratio)) > 1e-12 * ratio);
        });
    if (all && span / smallest < 0.9 * size_limit) return smallest;
    if (first > 0 && span / first < size_limit && first / step < 1e9)
        return first / std::max(1.0, std::ceil(first / step));
    return rounded_down(step);
}

std::pair<TailPoint, TailPoint> ends(const Steps& steps, double tilt, double log_mass) {
    TailPoint left = tail_point(steps, tilt, log_mass, -1), right = tail_point(steps, tilt, log_mass, +1);
    // No sum leaves the range of the lattices, whatever Chernoff's bound says.
    double lowest = 0, highest = 0;
    for (const auto& step : steps) {
        if (step.sketch.empty()) continue;
        lowest += static_cast<double>(step.count) * step.sketch.left.front();
        highest += static_cast<double>(step.count) * step.sketch.right.back();
    }
    if (!(left.loss > lowest && left.loss < highest))
        left = {lowest, std::isfinite(left.theta) ? left.theta : 0};
    if (!(right.loss < highest && right.loss > left.loss))
        right = {highest, std::isfinite(right.theta) ? right.theta : 0};
    return {left, right};
}

// The sum of the largest losses.
double largest_sum(const Composition& composition) {
    double sum = 0;
    for (const auto& [pair, count] : composition) sum += static_cast<double>(count) * pair->max_loss();
    return sum;
}

// `cut`, what trimming leaves of the whole; where that begins below `from`, the whole from there to the cut's
// end instead, with what lies below, and the bin that `from` is in, as one atom there.
Sketch lifted(const Sketch& whole, Sketch cut, double from) {
    if (cut.empty() || !(cut.left.front() < from) || !(from < cut.left.back())) return cut;
    const auto end_of = [&](double at) {
        return std::upper_bound(whole.right.begin(), whole.right.end(), at) - whole.right.begin();
    };
    const auto below = end_of(from), end = end_of(cut.right.back());
    if (below < 1) return cut;
    double mass = 0;
    for (auto i = whole.log_mass.begin(); i <= whole.log_mass.begin() + below; ++i) mass += std::exp(*i);
    Sketch out = whole;
    for (auto* values : {&out.left, &out.right, &out.loss, &out.log_mass}) {
        values->erase(values->begin() + end, values->end());
        values->erase(values->begin(), values->begin() + below - 1);
    }
    out.left[0] = out.right[0] = out.loss[0] = from;
    out.log_mass[0] = std::log(mass);
    out.left[1] = std::max(out.left[1], from);
    out.loss[1] = std::max(out.loss[1], from);
    out.truncated = cut.truncated;
    return out;
}

}  // namespace

LatticePlan plan_lattice(const Composition& composition, const Steps& steps, const Saddle& saddle,
                         double left_out, const Fineness& fineness) {
    const double total = static_cast<double>(total_steps(composition)),
                 size_limit = static_cast<double>(fineness.size_limit);
    const double relative = std::clamp(saddle.tilt * fineness.tolerance, 1e-12, 1e-2);
    const auto [tilt, log_share] = choose_tilt(steps, saddle, largest_tilt(composition),
                                               std::log(1e-13 * total / relative), fineness.steep);
    const double log_mass = std::log(1e-3 * relative) + log_share - 2;
    const double each = 1 / total, tail = std::exp(std::max(log_mass, -600.0)) * each;
    const double infinity_mass =
        std::max(left_out, 1e-3 * relative * std::exp(std::max(saddle.log_delta, -740.0)) * each);
    Steps kept;
    // Losses that no others, at their largest, lift to the least epsilon count for nothing.
    const double most = largest_sum(composition);
    bool lifts = false;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const double largest = composition[i].first->max_loss();
        const double from = fineness.least_epsilon - (most - largest) - 1e-3 * std::abs(largest);
        Sketch sketch = trimmed(steps[i].sketch, tilt, tail, infinity_mass);
        if (std::isfinite(most)) sketch = lifted(steps[i].sketch, std::move(sketch), from);
        lifts = lifts || (!sketch.empty() && sketch.loss.front() == from);
        kept.push_back({std::move(sketch), steps[i].count});
    }
    // Whatever the tilt of the transform, delta is made up of losses that the saddle's tilt finds.
    const double points_tilt = std::max(tilt, coarse_tilt(saddle.tilt));
    const auto [left, right] = ends(kept, tilt, log_mass);
    double span = std::max(right.loss - left.loss, 1e-290), reach = 0;
    // A single loss may reach further than the window; its points take memory, and each of them much time.
    for (const auto& step : kept)
        if (!step.sketch.empty())
            reach = std::max(reach, step.sketch.right.back() - step.sketch.left.front());
    span = std::max(span, 0.5 * reach);
    const Widening widening(kept, saddle.tilt);
    double step = widening.step_for(0.45 * fineness.tolerance, std::min(span / 24, 0.5 / saddle.tilt));
    step = std::exp2(std::floor(8 * std::log2(step)) / 8) * fineness.shrink;
    step = aligned(std::max(step, std::max(span, 2 * reach) / (0.9 * size_limit)), composition, span,
                   size_limit);
    return {{&steps, tilt, step, log_mass, infinity_mass, points_tilt,
             lifts ? fineness.least_epsilon : -infinity, fineness.steep},
            std::move(kept),
            left,
            right};
}

LatticeWindow window_of(const LatticePlan& plan) {
    const double step = plan.key.step;
    const TailPoint &left = plan.left, &right = plan.right;
    std::vector<std::vector<std::int64_t>> points;
    double bottom = std::floor(left.loss / step) - 1, top = std::ceil(right.loss / step) + 1;
    double lowest = 0, highest = 0;
    for (std::size_t i = 0; i < plan.kept.size(); ++i) {
        const auto& [sketch, count] = plan.kept[i];
        points.push_back(choose_points(sketch, step, plan.key.points_tilt));
        lowest += static_cast<double>(count) * static_cast<double>(points.back().front());
        highest += static_cast<double>(count) * static_cast<double>(points.back().back());
    }
    // Where all sums end hardly beyond the window, nothing need lie outside.
    const double little = std::max(512.0, 0.1 * (top - bottom));
    if (bottom - lowest < little) bottom = lowest;
    if (highest - top < little) top = highest;
    return {std::move(points), static_cast<std::int64_t>(bottom),
            good_size(static_cast<std::size_t>(std::max(16.0, top - bottom + 1))), left.theta, right.theta};
}

}  // namespace hockeystick
