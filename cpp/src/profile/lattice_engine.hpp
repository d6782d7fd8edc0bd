// Bounds from lattices: discretised from both sides, composed, read off, and refined until they are as close
// as wanted (docs/accounting/bounds.md, "One step on a lattice" and "Composition").
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hockeystick/parallel.hpp"
#include "lattice/compose.hpp"
#include "lattice/discretise.hpp"
#include "lattice/tail_table.hpp"
#include "numerics/constants.hpp"
#include "profile/answers.hpp"
#include "profile/lattice_plan.hpp"

namespace hockeystick {

// What it has sketched and composed serves later questions, so that it must not answer several threads at
// once.
class LatticeEngine {
public:
    struct Tables;
    using TablesPtr = std::shared_ptr<const Tables>;

    // Lattices take at most so much memory, in bytes: finer ones are not used.
    // log_finite: ln of the probability that no loss is infinite.
    LatticeEngine(Composition composition, double log_finite, std::size_t memory_limit)
        : composition_(std::move(composition)),
          size_limit_(most_points(memory_limit)),
          log_total_(std::log(static_cast<double>(total_steps(composition_)))),
          log_finite_(log_finite) {}
    static std::size_t most_memory(std::size_t memory_limit) {
        return most_points(memory_limit) * bytes_per_point;
    }

    // most: the upper bound where no lattice finds one.
    Answer epsilon(double delta, double accuracy, double most) {
        const Depth at = saddle_at_delta(delta);
        const double scale = at.saddle.epsilon > 0 ? at.saddle.epsilon
                                                   : std::sqrt(cumulants(*at.steps, at.saddle.tilt).second);
        const Evaluate evaluate = [&](const Tables& tables) {
            Answer answer = by(tables);
            const auto upper = [&](double e) { return tables.upper.at(e).value; };
            const auto lower = [&](double e) { return tables.lower->at(e).value; };
            answer.upper = std::min(upper_epsilon(upper, delta, tables.upper.end()) * (1 + 8 * u), most);
            const double start = std::isfinite(answer.upper) ? answer.upper : tables.lower->end();
            answer.lower = std::min(answer.upper, (1 - 8 * u) * lower_epsilon(lower, delta, start));
            describe(tables, answer.upper, answer);
            return answer;
        };
        return refine(at, {size_limit_, accuracy * scale, 0}, accuracy, evaluate);
    }
    Answer delta(double epsilon, double accuracy) {
        const Depth at = saddle_at_epsilon(epsilon);
        return refine(at, {size_limit_, accuracy / at.saddle.tilt, epsilon}, accuracy,
                      [&](const Tables& tables) { return delta_by(tables, epsilon); });
    }
    // What gave the last answer of these two, and what it says of delta anywhere.
    const TablesPtr& last() const noexcept { return last_; }
    static Answer delta_by(const Tables& tables, double epsilon) {
        Answer answer = by(tables);
        answer.upper = tables.upper.at(epsilon).value;
        answer.lower = std::min(tables.lower->at(epsilon).value, answer.upper);
        describe(tables, epsilon, answer);
        return answer;
    }
    // Bounds at many eps from a few lattices together: each of them bounds delta everywhere, and closely
    // where its tilt looks.
    // Which lattices depends on the composition alone, so that no curve depends on another one.
    std::vector<Answer> curve(std::span<const double> epsilons, double accuracy, double negligible) {
        Answer nothing;
        nothing.upper = 1;
        nothing.engine = "fft";
        std::vector<Answer> found(epsilons.size(), nothing);
        for (double delta = first_rung; delta > 10 * negligible;
             delta *= delta > last_close ? rungs_apart : far_apart) {
            const Depth at = saddle_at_delta(delta);
            const TablesPtr tables = tables_for(
                at, {std::min(size_limit_, largest_for_a_curve), accuracy / at.saddle.tilt, -infinity});
            for (std::size_t i = 0; i < epsilons.size(); ++i) {
                Answer& answer = found[i];
                answer.upper = std::min(answer.upper, tables->upper.at(epsilons[i]).value);
                answer.lower =
                    std::min(std::max(answer.lower, tables->lower->at(epsilons[i]).value), answer.upper);
            }
        }
        return found;
    }
    // Whether a coarse upper bound proves that eps(delta), or delta(eps), is at most `ceiling`.
    bool epsilon_at_most(double delta, double ceiling) {
        const Depth at = saddle_at_delta(delta);
        const double room = 0.4 * (ceiling - std::max(0.0, at.saddle.epsilon));
        return room > 0 &&
               tables_for(at, {size_limit_, room, ceiling}, false)->upper.at(ceiling).value <= delta;
    }
    bool delta_at_most(double epsilon, double ceiling) {
        const Depth at = saddle_at_epsilon(epsilon);
        const double room = 0.4 * std::min(1.0, std::log(ceiling) - at.saddle.log_delta) / at.saddle.tilt;
        return room > 0 &&
               tables_for(at, {size_limit_, room, epsilon}, false)->upper.at(epsilon).value <= ceiling;
    }

    struct Tables {
        LatticeKey key;
        std::size_t size;
        std::size_t most;  // of that and the numbers of points of single steps
        TailTable upper;
        std::optional<TailTable> lower;  // left out where only an upper bound was asked for
    };

private:
    // speed: bytes that composition needs for each point of the transform, both bounds together.
    static constexpr std::size_t bytes_per_point = 128;
    // speed: the largest transform, whatever memory there is; one that costs little.
    static constexpr std::size_t largest_transform = std::size_t{1} << 22,
                                 small_transform = std::size_t{1} << 15;
    // speed: lattices that are kept for further questions; as are all numbers in the functions below.
    static constexpr std::size_t most_kept = 16;
    // speed: the share of delta that the largest losses may take which are moved to infinity, as a logarithm;
    // how coarsely it is kept, in nats; and how often delta is guessed anew.
    static inline const double log_left_out = std::log(1e-10);
    static constexpr double coarseness = 4;
    static constexpr int most_rounds = 8;

    // speed: at which delta the lattices of a rough curve look, and how large they may be.
    static constexpr double first_rung = 1e-1, rungs_apart = 1e-2, last_close = 2e-13, far_apart = 1e-5;
    static constexpr std::size_t largest_for_a_curve = std::size_t{1} << 18;

    static std::size_t most_points(std::size_t memory_limit) {
        return std::clamp(memory_limit / bytes_per_point, std::size_t{1024}, largest_transform);
    }

    static double gap_of(const Answer& answer) { return answer.upper - answer.lower; }

    // By how much the step is to shrink, from the share of the gap that is wanted.
    static double finer(double step, std::size_t size, double ratio) {
        if (step > widest_support) return std::clamp(ratio, 0.01, 0.8);
        return std::clamp(std::sqrt(ratio), size < small_transform ? 0.03 : 0.125, 0.8);
    }

    static Answer by(const Tables& tables) {
        Answer answer;
        answer.engine = "fft";
        answer.step = tables.key.step;
        answer.size = tables.size;
        return answer;
    }

    // What the distance between the bounds at eps is made of.
    static void describe(const Tables& tables, double epsilon, Answer& answer) {
        if (!std::isfinite(epsilon)) return;
        const Delta upper = tables.upper.at(epsilon), lower = tables.lower->at(epsilon);
        answer.truncation = upper.truncation;
        answer.wrap_around = upper.wrap_around + lower.wrap_around;
        answer.round_off = upper.round_off + lower.round_off;
        answer.discretisation = std::max(
            0.0, upper.value - lower.value - answer.truncation - answer.wrap_around - answer.round_off);
    }

    struct Depth {
        const Steps* steps;
        Saddle saddle;
        double infinity_mass;  // of one step, what the sketches leave out
    };

    // Sketches down to masses of e^-depth. They are kept by depth, so that an answer does not depend
    // on the queries before it.
    const Steps& steps_for(int depth) {
        const auto found = sketches_.find(depth);
        if (found != sketches_.end()) return found->second;
        // Complete or not there: an exception leaves nothing half done.
        Steps steps(composition_.size());
        parallel_for(steps.size(), [&](std::size_t i) {
            steps[i] = {sketch(*composition_[i].first, log_total_ + 60, depth), composition_[i].second};
        });
        return sketches_.emplace(depth, std::move(steps)).first->second;
    }
    // The same without the largest losses, of which each step has at most this P-mass.
    const Steps& steps_for(int depth, double log_mass) {
        const auto found = trimmed_.find({depth, log_mass});
        if (found != trimmed_.end()) return found->second;
        Steps steps = steps_for(depth);
        for (auto& step : steps) {
            Sketch less = trimmed(step.sketch, 0, 0, std::exp(log_mass));
            // What lies beyond the losses that may be left out need not be known.
            less.truncated = step.sketch.truncated && !less.truncated;
            step.sketch = std::move(less);
        }
        return trimmed_.emplace(std::pair(depth, log_mass), std::move(steps)).first->second;
    }
    // The saddle, from sketches so deep that what they leave out does not matter at its tilt, or has no more
    // than this P-mass: rare groups of records have losses so large that any tilt would see nothing else.
    Depth deep_saddle(double log_mass, const std::function<Saddle(const Steps&)>& find) {
        log_mass = std::max(coarseness * std::floor(log_mass / coarseness), -700.0);
        for (int depth = 64;; depth *= 2) {
            const Steps& steps = steps_for(depth, log_mass);
            const Saddle saddle = find(steps);
            const bool deep = std::all_of(steps.begin(), steps.end(), [&](const SketchedStep& step) {
                if (!step.sketch.truncated || step.sketch.empty()) return true;
                const double last = step.sketch.log_mass.back() + saddle.tilt * step.sketch.loss.back() -
                                    cumulants(step.sketch, saddle.tilt).value;
                return last + std::log(static_cast<double>(step.count)) < -50;
            });
            if (deep || depth >= 8192) return {&steps, saddle, std::exp(log_mass)};
        }
    }
    Depth saddle_at_delta(double delta) {
        const double log_target = std::log(std::max(delta + std::expm1(log_finite_), delta * 1e-12));
        return deep_saddle(log_target + log_left_out - log_total_, [&](const Steps& sketched) {
            Saddle found = saddle_for_delta(sketched, log_target);
            if (!(found.epsilon > 0)) found = saddle_for_epsilon(sketched, 0);
            // Where the estimate is poor, the delta asked for still sets the scale of the errors.
            found.log_delta = std::min(found.log_delta, log_target);
            return found;
        });
    }
    // What may be left out depends on delta, and the estimate of delta on what is left out.
    Depth saddle_at_epsilon(double epsilon) {
        double log_delta = 0;
        for (int round = 0;; ++round) {
            const Depth at = deep_saddle(log_delta + log_left_out - log_total_, [&](const Steps& sketched) {
                return saddle_for_epsilon(sketched, epsilon);
            });
            if (round == most_rounds || !(at.saddle.log_delta < log_delta - 2)) return at;
            log_delta = at.saddle.log_delta;
        }
    }

    TablesPtr tables_for(const Depth& at, const Fineness& fineness, bool with_lower = true) {
        const LatticePlan plan = plan_lattice(composition_, *at.steps, at.saddle, at.infinity_mass, fineness);
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
    TablesPtr make_tables(const LatticePlan& plan, bool with_lower) const {
        const LatticeWindow window = window_of(plan);
        const LatticeKey& key = plan.key;
        std::size_t most = window.size;
        for (const auto& points : window.points) most = std::max(most, points.size());
        const std::size_t n = composition_.size(), bounds = with_lower ? 2 : 1;
        std::vector<LatticeStep> lattices[2] = {std::vector<LatticeStep>(n), std::vector<LatticeStep>(n)};
        parallel_for(bounds * n, [&](std::size_t job) {
            const bool upper = job < n;
            const std::size_t i = upper ? job : job - n;
            const auto& [pair, count] = composition_[i];
            const double rare = 2 * key.infinity_mass;
            Lattice lattice = !upper && key.step > widest_support
                                  ? round_down(*pair, window.points[i], key.step, key.tilt)
                                  : discretise(*pair, window.points[i], key.step, key.tilt,
                                               upper ? Bound::upper : Bound::lower, rare);
            lattices[upper ? 0 : 1][i] = {std::move(lattice), count};
        });
        std::optional<TailTable> tables[2];
        parallel_for(bounds, [&](std::size_t job) {
            tables[job].emplace(compose(lattices[job], window.first, window.size, window.theta_left,
                                        window.theta_right, key.careful));
        });
        return std::make_shared<const Tables>(
            Tables{key, window.size, most, std::move(*tables[0]), std::move(tables[1])});
    }
    // After an answer whose gap is to be this share of what it is, if that is finite. Where round-off rules,
    // a finer lattice is no help, but the saddle's own tilt is.
    static void sharpen(Fineness& fineness, const Tables& tables, const Answer& answer, double share) {
        if (!fineness.steep && (answer.round_off > answer.discretisation || !(share > 0)))
            fineness.steep = true;
        else
            fineness.shrink *= finer(tables.key.step, tables.size, share > 0 ? 0.6 * share : 0.0625);
    }
    using Evaluate = std::function<Answer(const Tables&)>;
    // Evaluates on finer lattices until upper and lower are as close as wanted, or memory forbids.
    Answer refine(const Depth& at, Fineness fineness, double accuracy, const Evaluate& evaluate) {
        Answer best;
        TablesPtr tables;
        // Small lattices cost little: where the sketch saw too little to choose a step by, there is time to
        // find one.
        // Large ones that get nowhere, though, will not.
        int stalled = 0;
        for (int attempt = 0; attempt < 5 || (attempt < 12 && tables->most < small_transform); ++attempt) {
            tables = tables_for(at, fineness);
            const Answer answer = evaluate(*tables);
            const bool better = attempt == 0 || answer.upper - answer.lower < best.upper - best.lower;
            if (better) {
                best = answer;
                last_ = tables;
            }
            stalled = better ? 0 : stalled + 1;
            if (stalled > 1 && tables->most > small_transform) break;
            if (!(gap_of(best) > accuracy * best.upper) || tables->most >= size_limit_ * 3 / 4) break;
            sharpen(fineness, *tables, answer, accuracy * best.upper / gap_of(best));
        }
        return best;
    }

    Composition composition_;
    std::size_t size_limit_;
    double log_total_, log_finite_;
    std::map<int, Steps> sketches_;
    std::map<std::pair<int, double>, Steps> trimmed_;
    std::deque<TablesPtr> cache_;
    TablesPtr last_;
};

}  // namespace hockeystick
