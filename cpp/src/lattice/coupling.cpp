#include "lattice/coupling.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "hockeystick/arithmetic.hpp"
#include "lattice/discretise.hpp"
#include "lattice/sketch.hpp"
#include "numerics/constants.hpp"
#include "numerics/fft.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

// proof: more than what few roundings make of a radius, of a loss, of the mass at infinity.
constexpr double slack = 1e-12, slack_of_loss = 1e-14, slack_of_mass = 4e-12;
constexpr double largest_index = 1e15;  // proof: up to here indices are exact

using Steps = std::vector<std::pair<PairPtr, std::uint64_t>>;

double checked_total(const Steps& composition, double step, double failure) {
    if (composition.empty()) throw std::invalid_argument("Coupling: at least one mechanism is needed");
    if (!(step > 0) || !std::isfinite(step)) throw std::invalid_argument("Coupling: step must be positive");
    if (!(failure > 0 && failure < 1)) throw std::invalid_argument("Coupling: failure must lie in (0, 1)");
    double total = 0;
    for (const auto& [pair, count] : composition) {
        if (pair == nullptr) throw std::invalid_argument("Coupling: a pair is missing");
        if (count == 0 || count > (std::uint64_t{1} << 53))
            throw std::invalid_argument("Coupling: counts must lie in [1, 2^53]");
        total += static_cast<double>(count);
    }
    return total;
}

// Round-off is relative to e^{K(tilt) - tilt eps}: the smallest tilt at which it stays below the failure
// serves the widest range of eps. On a coarse lattice a large one would only overflow.
double choose_tilt(const std::vector<SketchedStep>& steps, double step, double total, double log_failure) {
    const Saddle saddle = saddle_for_delta(steps, log_failure);
    double tilt = std::min(saddle.tilt, 30 / step);
    const auto log_round_off = [&](double s) {
        return std::log(1e-13 * total) + cumulants(steps, s).value - s * std::max(0.0, saddle.epsilon);
    };
    for (int i = 0; i < 40 && log_round_off(0.5 * tilt) < log_failure - 5; ++i) tilt *= 0.5;
    return tilt;
}

// Numbers of lattice points, as integers.
struct Range {
    double first = 0, last = 0;
    void check(double most_points, const char* message) const {
        if (!(last - first < most_points) || !(std::max(-first, last) < largest_index))
            throw std::invalid_argument(message);
    }
};

// Where sums lie that a step of e^log_mass may not leave out, within the range of all sums.
struct SumWindow {
    Range range;
    double theta_left, theta_right;
};
SumWindow window(const std::vector<SketchedStep>& steps, double step, double tilt, double log_mass,
                 Range all) {
    const TailPoint left = tail_point(steps, tilt, log_mass, -1),
                    right = tail_point(steps, tilt, log_mass, +1);
    const auto theta = [](const TailPoint& point) { return std::isfinite(point.theta) ? point.theta : 0.0; };
    const Range bulk{std::max(all.first, std::floor(left.loss / step) - 1),
                     std::min(all.last, std::ceil(right.loss / step) + 1)};
    // Where the whole range of sums is hardly longer than the window, nothing need lie outside. (A nan
    // takes it all, too.)
    const bool shorter =
        bulk.last > bulk.first && all.last - all.first > std::max(1024.0, 1.5 * (bulk.last - bulk.first));
    return {shorter ? bulk : all, theta(left), theta(right)};
}

Composed compose_rounded(const Steps& composition, double step, double failure, std::size_t most_points) {
    const double total = checked_total(composition, step, failure);
    const double log_failure = std::log(failure), depth = std::log(total) - log_failure + 30;
    std::vector<SketchedStep> steps;
    for (const auto& [pair, count] : composition)
        steps.push_back({trimmed(sketch(*pair, depth, depth), 0, 0.25 * failure / total, 0), count});
    const double tilt = choose_tilt(steps, step, total, log_failure);
    // What lies outside the window counts with the same unit: at eps = 0, if that asks for no miracle.
    const double log_mass = std::clamp(log_failure - cumulants(steps, tilt).value, -600.0, 0.0) - 10;

    // All lattices together are to be no larger than a few of the composed one.
    const double most = static_cast<double>(most_points),
                 most_of_step = std::max(1024.0, 4 * most / static_cast<double>(3 + steps.size()));
    std::vector<Range> ranges;
    Range sums;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const Sketch& s = steps[i].sketch;
        Range range{0, 1};
        if (!s.empty()) {
            range.first = std::floor(s.left.front() / step);
            range.last = std::max(range.first + 1, std::ceil(s.right.back() / step));
        }
        range.check(most_of_step, "Coupling: step is too small for the range of the losses");
        ranges.push_back(range);
        sums.first += static_cast<double>(steps[i].count) * range.first;
        sums.last += static_cast<double>(steps[i].count) * range.last;
    }
    const SumWindow chosen = window(steps, step, tilt, log_mass, sums);
    chosen.range.check(most, "Coupling: step is too small for the range of the composed loss");
    std::vector<LatticeStep> lattices;
    for (std::size_t i = 0; i < steps.size(); ++i)
        lattices.push_back({discretise(*composition[i].first,
                                       all_points(static_cast<std::int64_t>(ranges[i].first),
                                                  static_cast<std::int64_t>(ranges[i].last)),
                                       step, tilt, Bound::mean_preserving),
                            steps[i].count});
    const double points = chosen.range.last - chosen.range.first + 1;
    return compose(lattices, static_cast<std::int64_t>(chosen.range.first),
                   good_size(static_cast<std::size_t>(std::max(16.0, points))), chosen.theta_left,
                   chosen.theta_right);
}

}  // namespace

Coupling::Coupling(Composed composed, double failure)
    : residue_(composed.residue),
      failure_(failure),
      radius_(0),
      infinity_mass_(composed.infinity_mass),
      table_((composed.bound == Bound::mean_preserving)
                 ? std::move(composed)
                 : throw std::invalid_argument("Coupling: mean_preserving lattices are needed")) {
    if (!(failure > 0 && failure < 1)) throw std::invalid_argument("Coupling: failure must lie in (0, 1)");
    // Hoeffding: a sum of independent residues with mean 0 exceeds t with probability at most
    // e^{-2 t^2 / sum of squared ranges}.
    radius_ =
        (std::sqrt(0.5 * residue_.squared_range * -std::log(failure)) + residue_.mean_error) * (1 + slack);
}

Coupling::Coupling(const std::vector<std::pair<PairPtr, std::uint64_t>>& composition, double step,
                   double failure, std::size_t most_points)
    : Coupling(compose_rounded(composition, step, failure, most_points), failure) {}

// How much eps and the points of the table may move by rounding.
double Coupling::rounded(double epsilon) const {
    return slack_of_loss * (std::abs(epsilon) + std::abs(residue_.mean)) + 8 * u * table_.reach();
}

double Coupling::upper(double epsilon) const {
    const double at = epsilon - residue_.mean - radius_ - rounded(epsilon);
    // The composed mass at infinity is rounded down.
    const double beside = residue_.outside + failure_ + slack_of_mass * infinity_mass_;
    const double value = (table_.at(at, true).value + beside) * (1 + 8 * u);
    return std::isnan(value) ? 1 : std::min(1.0, value);
}

double Coupling::lower(double epsilon) const {
    const double at = epsilon - residue_.mean + radius_ + rounded(epsilon);
    const double value = table_.at(at, false).value * (1 - 8 * u) - failure_;
    return std::max(trivial_delta(epsilon), value);
}

Interval Coupling::delta_bounds(double epsilon) const {
    const StandardArithmetic standard;
    if (std::isnan(epsilon)) throw std::invalid_argument("delta_bounds: epsilon must be a number");
    return {std::min(lower(epsilon), upper(epsilon)), upper(epsilon)};
}

Interval Coupling::epsilon_bounds(double delta) const {
    const StandardArithmetic standard;
    if (!(delta >= 0 && delta <= 1)) throw std::invalid_argument("epsilon_bounds: delta must lie in [0, 1]");
    if (delta == 1) return {0, 0};
    const double high = (1 + 8 * u) * upper_epsilon([&](double e) { return upper(e); }, delta, 1);
    const double start = std::isfinite(high) ? high : std::max(1.0, table_.end() + radius_ + residue_.mean);
    const double low = (1 - 8 * u) * lower_epsilon([&](double e) { return lower(e); }, delta, start);
    return {std::min(low, high), high};
}

}  // namespace hockeystick
