#include "profile/lattice_engine.hpp"

#include <algorithm>
#include <cmath>

#include "hockeystick/parallel.hpp"
#include "lattice/compose.hpp"
#include "lattice/discretise.hpp"
#include "numerics/constants.hpp"
#include "profile/answers.hpp"

namespace hockeystick {
namespace {

// Bytes that composition needs for each point of the transform, both bounds together.
constexpr std::size_t bytes_per_point = 128;
// speed: the largest transform, whatever memory there is; one that costs little.
constexpr std::size_t largest_transform = std::size_t{1} << 22, small_transform = std::size_t{1} << 15;
// speed: lattices that are kept for further questions; as are all numbers in the functions below.
constexpr std::size_t most_kept = 16;

std::size_t most_points(std::size_t memory_limit) {
    return std::clamp(memory_limit / bytes_per_point, std::size_t{1024}, largest_transform);
}

// By how much the step is to shrink, from the share of the gap that is wanted.
double finer(double step, std::size_t size, double ratio) {
    if (step > widest_support) return std::clamp(ratio, 0.01, 0.8);
    return std::clamp(std::sqrt(ratio), size < small_transform ? 0.03 : 0.125, 0.8);
}

// What the distance between the bounds at eps is made of.
void describe(const TailTable& upper_table, const TailTable& lower_table, double epsilon, Answer& answer) {
    if (!std::isfinite(epsilon)) return;
    const Delta upper = upper_table.at(epsilon), lower = lower_table.at(epsilon);
    answer.truncation = upper.truncation;
    answer.wrap_around = upper.wrap_around + lower.wrap_around;
    answer.round_off = upper.round_off + lower.round_off;
    answer.discretisation =
        std::max(0.0, upper.value - lower.value - answer.truncation - answer.wrap_around - answer.round_off);
}

}  // namespace

LatticeEngine::LatticeEngine(Composition composition, double log_finite, std::size_t memory_limit)
    : composition_(std::move(composition)),
      size_limit_(most_points(memory_limit)),
      log_total_(std::log(static_cast<double>(total_steps(composition_)))),
      log_finite_(log_finite) {}

std::size_t LatticeEngine::most_memory(std::size_t memory_limit) {
    return most_points(memory_limit) * bytes_per_point;
}

Answer LatticeEngine::epsilon(double delta, double accuracy, double most) {
    const Depth at = saddle_at_delta(delta);
    const double scale =
        at.saddle.epsilon > 0 ? at.saddle.epsilon : std::sqrt(cumulants(*at.steps, at.saddle.tilt).second);
    return refine(at, accuracy * scale, accuracy, [&](const Tables& tables, Answer& answer) {
        const auto upper = [&](double e) { return tables.upper.at(e).value; };
        const auto lower = [&](double e) { return tables.lower->at(e).value; };
        answer.upper = std::min(upper_epsilon(upper, delta, tables.upper.end()) * (1 + 8 * u), most);
        const double start = std::isfinite(answer.upper) ? answer.upper : tables.lower->end();
        answer.lower = std::min(answer.upper, (1 - 8 * u) * lower_epsilon(lower, delta, start));
        describe(tables.upper, *tables.lower, answer.upper, answer);
    });
}

Answer LatticeEngine::delta(double epsilon, double accuracy) {
    const Depth at = saddle_at_epsilon(epsilon);
    return refine(at, accuracy / at.saddle.tilt, accuracy, [&](const Tables& tables, Answer& answer) {
        answer.upper = tables.upper.at(epsilon).value;
        answer.lower = std::min(tables.lower->at(epsilon).value, answer.upper);
        describe(tables.upper, *tables.lower, epsilon, answer);
    });
}

bool LatticeEngine::epsilon_at_most(double delta, double ceiling) {
    const Depth at = saddle_at_delta(delta);
    const double room = 0.4 * (ceiling - std::max(0.0, at.saddle.epsilon));
    return room > 0 && tables_for(at, {size_limit_, room}, false)->upper.at(ceiling).value <= delta;
}

bool LatticeEngine::delta_at_most(double epsilon, double ceiling) {
    const Depth at = saddle_at_epsilon(epsilon);
    const double room = 0.4 * std::min(1.0, std::log(ceiling) - at.saddle.log_delta) / at.saddle.tilt;
    return room > 0 && tables_for(at, {size_limit_, room}, false)->upper.at(epsilon).value <= ceiling;
}

// ---- Estimates --------------------------------------------------------------------------------

// Sketches down to masses of e^-depth. They are kept by depth, so that an answer does not depend
// on the queries before it.
const Steps& LatticeEngine::steps_for(int depth) {
    const auto found = sketches_.find(depth);
    if (found != sketches_.end()) return found->second;
    // Complete or not there: an exception leaves nothing half done.
    Steps steps(composition_.size());
    parallel_for(steps.size(), [&](std::size_t i) {
        steps[i] = {sketch(*composition_[i].first, log_total_ + 60, depth), composition_[i].second};
    });
    return sketches_.emplace(depth, std::move(steps)).first->second;
}

// The saddle, from sketches so deep that what they leave out does not matter at its tilt.
LatticeEngine::Depth LatticeEngine::deep_saddle(const std::function<Saddle(const Steps&)>& find) {
    for (int depth = 64;; depth *= 2) {
        const Steps& steps = steps_for(depth);
        const Saddle saddle = find(steps);
        const bool deep = std::all_of(steps.begin(), steps.end(), [&](const SketchedStep& step) {
            if (!step.sketch.truncated || step.sketch.empty()) return true;
            const double last = step.sketch.log_mass.back() + saddle.tilt * step.sketch.loss.back() -
                                cumulants(step.sketch, saddle.tilt).value;
            return last + std::log(static_cast<double>(step.count)) < -50;
        });
        if (deep || depth >= 8192) return {&steps, saddle};
    }
}

LatticeEngine::Depth LatticeEngine::saddle_at_delta(double delta) {
    const double log_target = std::log(std::max(delta + std::expm1(log_finite_), delta * 1e-12));
    return deep_saddle([&](const Steps& sketched) {
        Saddle found = saddle_for_delta(sketched, log_target);
        if (!(found.epsilon > 0)) found = saddle_for_epsilon(sketched, 0);
        // Where the estimate is poor, the delta asked for still sets the scale of the errors.
        found.log_delta = std::min(found.log_delta, log_target);
        return found;
    });
}

LatticeEngine::Depth LatticeEngine::saddle_at_epsilon(double epsilon) {
    return deep_saddle([&](const Steps& sketched) { return saddle_for_epsilon(sketched, epsilon); });
}

// ---- Lattices ---------------------------------------------------------------------------------

// Evaluates on finer lattices until upper and lower are as close as wanted, or memory forbids.
Answer LatticeEngine::refine(const Depth& at, double tolerance, double accuracy,
                             const std::function<void(const Tables&, Answer&)>& evaluate) {
    Fineness fineness{size_limit_, tolerance};
    Answer best;
    TablesPtr tables;
    // Small lattices cost little: where the sketch saw too little to choose a step by, there is time to
    // find one.
    // Large ones that get nowhere, though, will not.
    int stalled = 0;
    for (int attempt = 0; attempt < 5 || (attempt < 12 && tables->most < small_transform); ++attempt) {
        tables = tables_for(at, fineness);
        Answer answer;
        answer.engine = "fft";
        answer.step = tables->key.step;
        answer.size = tables->size;
        evaluate(*tables, answer);
        const bool better = attempt == 0 || answer.upper - answer.lower < best.upper - best.lower;
        if (better) best = answer;
        stalled = better ? 0 : stalled + 1;
        if (stalled > 1 && tables->most > small_transform) break;
        const double gap = best.upper - best.lower;
        if (!(gap > accuracy * best.upper) || tables->size >= size_limit_ * 3 / 4) break;
        // Where round-off rules, a finer lattice is no help, but the saddle's own tilt is.
        if (!fineness.steep && (answer.round_off > answer.discretisation || !std::isfinite(gap)))
            fineness.steep = true;
        else
            fineness.shrink *= finer(tables->key.step, tables->size,
                                     std::isfinite(gap) ? 0.6 * accuracy * best.upper / gap : 0.0625);
    }
    return best;
}

LatticeEngine::TablesPtr LatticeEngine::tables_for(const Depth& at, const Fineness& fineness,
                                                   bool with_lower) {
    const LatticePlan plan = plan_lattice(composition_, *at.steps, at.saddle, fineness);
    for (const auto& cached : cache_)
        if (cached->key == plan.key && (cached->lower || !with_lower)) return cached;
    const auto tables = make_tables(plan, with_lower);
    cache_.push_back(tables);
    std::size_t held = 0;
    for (const auto& cached : cache_) held += cached->size;
    while (cache_.size() > 1 && (cache_.size() > most_kept || held > size_limit_ / 2)) {
        held -= cache_.front()->size;
        cache_.pop_front();
    }
    return tables;
}

LatticeEngine::TablesPtr LatticeEngine::make_tables(const LatticePlan& plan, bool with_lower) const {
    const LatticeWindow window = window_of(plan, size_limit_);
    const LatticeKey& key = plan.key;
    std::size_t most = window.size;
    for (const auto& points : window.points) most = std::max(most, points.size());
    const std::size_t n = composition_.size(), bounds = with_lower ? 2 : 1;
    std::vector<LatticeStep> lattices[2] = {std::vector<LatticeStep>(n), std::vector<LatticeStep>(n)};
    parallel_for(bounds * n, [&](std::size_t job) {
        const bool upper = job < n;
        const std::size_t i = upper ? job : job - n;
        const auto& [pair, count] = composition_[i];
        lattices[upper ? 0 : 1][i] = {
            !upper && key.step > widest_support
                ? round_down(*pair, window.points[i], key.step, key.tilt)
                : discretise(*pair, window.points[i], key.step, key.tilt, upper ? Bound::upper : Bound::lower,
                             2 * key.infinity_mass),
            count};
    });
    std::optional<TailTable> tables[2];
    parallel_for(bounds, [&](std::size_t job) {
        tables[job].emplace(
            compose(lattices[job], window.first, window.size, window.theta_left, window.theta_right));
    });
    return std::make_shared<const Tables>(
        Tables{key, window.size, most, std::move(*tables[0]), std::move(tables[1])});
}

}  // namespace hockeystick
