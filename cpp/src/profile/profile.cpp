#include "hockeystick/profile.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "hockeystick/arithmetic.hpp"
#include "hockeystick/parallel.hpp"
#include "inversion/inversion.hpp"
#include "lattice/compose.hpp"
#include "lattice/cumulants.hpp"
#include "lattice/discretise.hpp"
#include "lattice/table.hpp"
#include "numerics/fft.hpp"
#include "numerics/special.hpp"
#include "profile/support_end.hpp"

namespace hockeystick {
namespace {

constexpr double u = unit_roundoff;
constexpr double infinity = std::numeric_limits<double>::infinity();

// Bytes that composition needs for each point of the transform, both bounds together.
constexpr std::size_t bytes_per_point = 128;
constexpr std::size_t largest_transform = std::size_t{1} << 22;
constexpr std::size_t small_transform = std::size_t{1} << 15;
// Lines that touch the profile once in every bin gain nothing in wider bins, and hardly find their way.
constexpr double widest_support = 2;

std::size_t most_points(std::size_t memory_limit) {
    return std::clamp(memory_limit / bytes_per_point, std::size_t{1024}, largest_transform);
}

// Rounds to few bits, so that every lattice point index * step is exact.
double round_step(double step) {
    int exponent;
    const double mantissa = std::frexp(step, &exponent);
    return std::ldexp(std::floor(mantissa * 65536) / 65536, exponent);
}

}  // namespace

class Profile::Direction {
public:
    Direction(Composition composition, double accuracy, std::size_t memory_limit, Engine engine)
        : composition_(std::move(composition)),
          size_limit_(most_points(memory_limit)),
          end_(composition_),
          max_loss_(end_.sum()) {
        for (const auto& [pair, count] : composition_) {
            total_ += count;
            log_finite_ += static_cast<double>(count) * std::log1p(-pair->infinity_mass());
        }
        find_single(engine);
        if (engine == Engine::automatic) inversion_ = Inversion::of(composition_, accuracy);
        if (Composition less = lower_composition(); !less.empty())
            lower_ = std::make_unique<Direction>(std::move(less), accuracy, memory_limit, engine);
    }

    // Empty only if `lattice` forbids what the answer needs; so below. Pairs that are more than their
    // mechanism answer for the upper bound alone.
    std::optional<Answer> epsilon_bounds(double delta, double accuracy, bool lattice) const {
        std::optional<Answer> answer = epsilon_of_pairs(delta, accuracy, lattice);
        if (answer && lower_) return with_lower(*answer, lower_->epsilon_bounds(delta, accuracy, lattice));
        return answer;
    }
    std::optional<Answer> delta_bounds(double epsilon, double accuracy, bool lattice) const {
        std::optional<Answer> answer = delta_of_pairs(epsilon, accuracy, lattice);
        if (answer && std::isnan(answer->upper - answer->lower)) {
            // Squares of an epsilon this large overflow. delta falls.
            Answer nothing = exact(0);
            nothing.upper = 1;
            answer = epsilon > 2 ? delta_bounds(std::sqrt(epsilon), accuracy, lattice) : nothing;
            if (answer) answer->lower = 0;
            return answer;
        }
        if (answer) answer->upper = std::max(answer->upper, least_delta(epsilon));
        if (answer && lower_) return with_lower(*answer, lower_->delta_bounds(epsilon, accuracy, lattice));
        return answer;
    }
    std::vector<std::optional<Answer>> delta_curve(std::span<const double> epsilons, double accuracy) const {
        auto curve = curve_of_pairs(epsilons, accuracy);
        for (std::size_t i = 0; i < curve.size(); ++i)
            if (curve[i]) curve[i]->upper = std::max(curve[i]->upper, least_delta(epsilons[i]));
        if (!lower_) return curve;
        const auto less = lower_->delta_curve(epsilons, accuracy);
        for (std::size_t i = 0; i < curve.size(); ++i)
            if (curve[i]) curve[i] = with_lower(*curve[i], less[i]);
        return curve;
    }

private:
    // Below the largest loss delta is positive, however little of it a double holds.
    double least_delta(double epsilon) const { return epsilon < max_loss_ ? 5e-324 : 0.0; }
    static std::optional<Answer> with_lower(Answer answer, const std::optional<Answer>& less) {
        if (!less) return {};
        answer.lower = std::min(answer.upper, less->lower);
        return answer;
    }
    // Empty where every pair is its mechanism.
    Composition lower_composition() const {
        Composition less;
        bool any = false;
        for (const auto& [pair, count] : composition_) {
            const PairPtr part = pair->lower();
            any = any || part;
            less.emplace_back(part ? part : pair, count);
        }
        return any ? less : Composition{};
    }

    std::optional<Answer> epsilon_of_pairs(double delta, double accuracy, bool lattice) const {
        const Answer infinite = infinity_mass();
        if (delta >= 1) return exact(0);
        if (delta < infinite.lower) return exact(infinity);
        if (delta == 0) {
            Answer answer = exact(std::max(0.0, max_loss_));
            answer.lower *= 1 - 1e-12;  // the sum and its terms are rounded up, by less than this
            return answer;
        }
        if (single_lower_) return single_epsilon(delta);
        if (const auto corner = near_largest_loss(delta)) return corner;
        const std::lock_guard lock(mutex_);
        const auto& inverted = inverted_epsilon(delta);
        if (inverted && close(*inverted, accuracy)) return capped(*inverted);
        Answer best;
        best.upper = infinity;
        if (inverted) best = capped(*inverted);
        if (const auto ending = epsilon_near_end(delta)) {
            best = both(best, *ending);
            if (close(best, accuracy)) return best;
        }
        if (!lattice) return {};
        if (inversion_) best.upper = std::min(best.upper, inversion_->chernoff_epsilon(delta));
        const auto [steps, saddle] = saddle_at_delta(delta);
        const double tolerance =
            accuracy *
            (saddle.epsilon > 0 ? saddle.epsilon : std::sqrt(cumulants(*steps, saddle.tilt).second));
        const Answer fft =
            refine(*steps, saddle, tolerance, accuracy, [&](const Tables& tables, Answer& answer) {
                const double found = upper_epsilon([&](double e) { return tables.upper.at(e).value; }, delta,
                                                   tables.upper.end());
                answer.upper =
                    std::min(found * (1 + 8 * u), infinite.upper > 0 ? infinity : std::max(0.0, max_loss_));
                const double start = std::isfinite(answer.upper) ? answer.upper : tables.lower->end();
                answer.lower =
                    std::min(answer.upper,
                             (1 - 8 * u) * lower_epsilon([&](double e) { return tables.lower->at(e).value; },
                                                         delta, start));
                describe(tables, answer.upper, answer);
            });
        return both(best, fft);
    }

    std::optional<Answer> delta_of_pairs(double epsilon, double accuracy, bool lattice) const {
        if (epsilon == infinity || epsilon >= max_loss_) return infinity_mass();
        if (epsilon == -infinity) return exact(1);
        if (single_lower_) return single_delta(epsilon);
        const Answer ending = delta_near_end(epsilon);
        // Losses this small underflow in every transform.
        if (close(ending, accuracy) || max_loss_ - epsilon < 1e-290) return ending;
        if (at_end(epsilon)) return ending;
        const std::lock_guard lock(mutex_);
        const auto& inverted = inverted_delta(epsilon);
        if (inverted && close(*inverted, accuracy)) return both(*inverted, ending);
        Answer best = ending;
        if (inverted) best = both(*inverted, ending);
        if (inversion_) {
            best.upper = std::min(best.upper, inversion_->chernoff_delta(epsilon));
            best.lower = std::min(best.lower, best.upper);
            // Less than any double: nothing more can be known.
            if (best.upper <= 5e-324) {
                best.engine = "inversion";
                return best;
            }
        }
        if (!lattice) return {};
        const auto [steps, saddle] =
            deep_saddle([&](const Steps& sketched) { return saddle_for_epsilon(sketched, epsilon); });
        const Answer fft = refine(*steps, saddle, accuracy / saddle.tilt, accuracy,
                                  [&](const Tables& tables, Answer& answer) {
                                      answer.upper = tables.upper.at(epsilon).value;
                                      answer.lower = std::min(tables.lower->at(epsilon).value, answer.upper);
                                      describe(tables, epsilon, answer);
                                  });
        return both(best, fft);
    }

    // As delta_bounds where the inversion answers closely, or nothing need be computed; empty elsewhere.
    std::vector<std::optional<Answer>> curve_of_pairs(std::span<const double> epsilons,
                                                      double accuracy) const {
        std::vector<std::optional<Answer>> curve(epsilons.size());
        std::vector<double> inside;
        std::vector<std::size_t> place;
        for (std::size_t i = 0; i < epsilons.size(); ++i) {
            if (single_lower_ || !std::isfinite(epsilons[i]) || max_loss_ - epsilons[i] < 1e-290) {
                curve[i] = delta_of_pairs(epsilons[i], accuracy, false);
            } else if (const Answer ending = delta_near_end(epsilons[i]);
                       close(ending, accuracy) || at_end(epsilons[i])) {
                curve[i] = ending;
            } else {
                inside.push_back(epsilons[i]);
                place.push_back(i);
            }
        }
        if (inside.empty() || !inversion_) return curve;
        const std::lock_guard lock(mutex_);
        const auto inverted = inversion_->delta_curve(inside);
        for (std::size_t i = 0; i < inside.size(); ++i)
            if (inverted[i] && close(*inverted[i], accuracy)) curve[place[i]] = inverted[i];
        return curve;
    }

public:
    // Whether a coarse upper bound proves that eps(delta), or delta(eps), is at most `ceiling`.
    std::optional<bool> epsilon_at_most(double delta, double ceiling, bool lattice) const {
        if (delta >= 1 || ceiling == infinity) return true;
        if (!(ceiling > 0) || delta <= infinity_mass().upper || delta == 0 || single_lower_) return false;
        // Finite losses never add up to more.
        if (ceiling >= max_loss_) return true;
        const std::lock_guard lock(mutex_);
        if (inversion_ && inversion_->surely_below(ceiling, delta)) return true;
        if (const auto& inverted = inverted_epsilon(delta)) return inverted->upper <= ceiling;
        if (!lattice) return {};
        const auto [steps, saddle] = saddle_at_delta(delta);
        const double room = 0.4 * (ceiling - std::max(0.0, saddle.epsilon));
        return room > 0 && tables_for(*steps, saddle, room, 1, false)->upper.at(ceiling).value <= delta;
    }
    std::optional<bool> delta_at_most(double epsilon, double ceiling, bool lattice) const {
        if (ceiling >= 1) return true;
        if (!(ceiling > 0) || !std::isfinite(epsilon) || single_lower_) return false;
        if (at_end(epsilon)) return delta_near_end(epsilon).upper <= ceiling;
        // Finite losses never add up to more.
        if (epsilon >= max_loss_ && infinity_mass().upper <= ceiling) return true;
        const std::lock_guard lock(mutex_);
        if (inversion_ && inversion_->surely_below(epsilon, ceiling)) return true;
        if (const auto& inverted = inverted_delta(epsilon)) return inverted->upper <= ceiling;
        if (!lattice) return {};
        const auto [steps, saddle] =
            deep_saddle([&](const Steps& sketched) { return saddle_for_epsilon(sketched, epsilon); });
        const double room = 0.4 * std::min(1.0, std::log(ceiling) - saddle.log_delta) / saddle.tilt;
        return room > 0 && tables_for(*steps, saddle, room, 1, false)->upper.at(epsilon).value <= ceiling;
    }

private:
    using Steps = std::vector<SketchedStep>;

    struct Tables {
        const Steps* steps;
        double tilt, step, log_mass, infinity_mass;  // all that they were built from
        std::size_t size;
        std::size_t most;  // of that and the numbers of points of single steps
        Table upper;
        std::optional<Table> lower;  // left out where only an upper bound was asked for
    };

    // The inversion's answer to one question: it is wanted again when a ceiling is not kept, or a lattice
    // turns out to be needed.
    struct Inverted {
        double question = std::numeric_limits<double>::quiet_NaN();
        std::optional<Answer> answer;
    };
    const std::optional<Answer>& inverted_epsilon(double delta) const {
        if (inversion_ && inverted_epsilon_.question != delta)
            inverted_epsilon_ = {delta, inversion_->epsilon_bounds(delta)};
        return inverted_epsilon_.answer;
    }
    const std::optional<Answer>& inverted_delta(double epsilon) const {
        if (inversion_ && inverted_delta_.question != epsilon)
            inverted_delta_ = {epsilon, inversion_->delta_bounds(epsilon)};
        return inverted_delta_.answer;
    }

    static Answer exact(double value) {
        Answer answer;
        answer.lower = answer.upper = value;
        answer.engine = "closed form";
        return answer;
    }

    static bool close(const Answer& answer, double accuracy) {
        return answer.upper - answer.lower <= accuracy * answer.upper;
    }
    Answer capped(Answer answer) const {
        answer.upper = std::min(answer.upper, std::max(0.0, max_loss_));
        answer.lower = std::min(answer.lower, answer.upper);
        return answer;
    }
    // Both bounds hold, and so does the better one on either side.
    static Answer both(const Answer& a, const Answer& b) {
        const double gap_a = a.upper - a.lower, gap_b = b.upper - b.lower;
        const bool first = !a.engine.empty() && (gap_a < gap_b || !std::isfinite(b.upper));
        Answer answer = first ? a : b;
        answer.lower = std::max(a.lower, b.lower);
        answer.upper = std::min(a.upper, b.upper);
        return answer;
    }

    // Gaussians compose to one Gaussian, mu^2 adds up; a single step is its own composition. The two pairs
    // enclose what rounding of mu may have moved.
    void find_single(Engine engine) {
        if (total_ == 1) single_lower_ = single_upper_ = composition_.front().first;
        if (total_ == 1 || engine != Engine::automatic) return;
        double squares = 0;
        for (const auto& [pair, count] : composition_) {
            const double mu = plain_gaussian_mu(*pair);
            if (!(mu > 1e-140)) return;  // its square may underflow
            squares += static_cast<double>(count) * mu * mu;
        }
        const double mu = std::sqrt(squares);
        if (!(mu > 1e-150 && mu < 1e150)) return;
        const double rounding = (4 + static_cast<double>(composition_.size())) * u;
        single_lower_ = gaussian(mu * (1 - rounding));
        single_upper_ = gaussian(mu * (1 + rounding));
    }

    // P(L = inf) of all steps together; pairs of very many parts state theirs up to a little round-off.
    Answer infinity_mass() const {
        const double mass = 0.0 - std::expm1(log_finite_),
                     slack = 1e-12 + 4 * u * static_cast<double>(composition_.size()),
                     // Masses below the normal doubles are rounded by a unit of theirs in each step.
            unit = mass > 0 && mass < 1e-290 ? 5e-324 * static_cast<double>(total_) : 0.0;
        Answer answer = exact(std::max(0.0, mass * (1 - slack) - unit));
        answer.upper = std::min(1.0, mass * (1 + slack) + unit);
        return answer;
    }

    // eps(delta) where it is the sum of the largest losses to 6 digits. With probability at least p every
    // loss is within a hair of its largest value, and their sum then at least x: delta(eps) >= p (1 - e^{eps
    // - x}).
    std::optional<Answer> near_largest_loss(double delta) const {
        if (!(std::isfinite(max_loss_) && max_loss_ > 0 && infinity_mass().upper <= delta)) return {};
        double log_p = 0, x = 0, rounding = 0;
        for (const auto& [pair, count] : composition_) {
            const double k = static_cast<double>(count), largest = pair->max_loss();
            if (largest == 0) {
                if (pair->infinity_mass() > 0) return {};
                continue;  // E_P[e^{-L}] <= 1, so that every loss is 0
            }
            const double near = largest - 1e-10 * std::abs(largest);
            const Tangent t = pair->above(near);
            const double tail = (t.value + t.slope) * (1 - 2 * t.relative) - t.error;
            if (!(tail > 0)) return {};
            const double log_tail = std::log(tail) + t.exponent;
            log_p += k * log_tail;
            x += k * (near - t.misplaced);
            rounding += k * (std::abs(log_tail) + std::abs(t.exponent) + 1 + std::abs(near));
        }
        rounding *= (32 + 4 * static_cast<double>(composition_.size())) * u;
        const double share = std::exp(std::log(delta) - log_p + rounding);
        if (!(share < 1)) return {};
        Answer answer = exact(x + std::log1p(-share) * (1 + 8 * u) - rounding);
        if (!(answer.lower >= (1 - 1e-6) * max_loss_)) return {};
        answer.upper = max_loss_;
        return answer;
    }

    // Where the rounding of the largest losses shows, neither a tilt nor a lattice is fine enough.
    bool at_end(double epsilon) const {
        return std::isfinite(max_loss_) && max_loss_ - epsilon < 1e-11 * std::abs(max_loss_);
    }
    // What the largest losses alone say: all there is next to their sum.
    Answer delta_near_end(double epsilon) const {
        Answer answer = infinity_mass();
        const auto [lower, upper] = end_.finite_delta(epsilon);
        answer.lower =
            std::max(answer.lower + lower * (1 - 4 * u), std::max(0.0, -std::expm1(epsilon) * (1 - 4 * u)));
        answer.upper = std::max(answer.lower, std::min(1.0, (answer.upper + upper) * (1 + 4 * u)));
        return answer;
    }
    std::optional<Answer> epsilon_near_end(double delta) const {
        if (!std::isfinite(max_loss_) || !(max_loss_ > 0) || !(infinity_mass().upper <= delta)) return {};
        Answer answer = exact(0);
        answer.upper = std::min(
            max_loss_, upper_epsilon([&](double e) { return delta_near_end(e).upper; }, delta, max_loss_));
        answer.lower = std::min(answer.upper, lower_epsilon([&](double e) { return delta_near_end(e).lower; },
                                                            delta, answer.upper));
        return answer;
    }

    // The profile itself, with its stated error.
    Delta single(double epsilon, bool upper) const {
        const Pair& pair = upper ? *single_upper_ : *single_lower_;
        const Tangent t = pair.above(epsilon);
        const double scale = std::exp(t.exponent);
        const double error = (t.error + 4 * u * std::abs(t.value) * (1 + std::abs(t.exponent))) * scale +
                             1e-12 * pair.infinity_mass();
        Delta out;
        out.round_off = error;
        const double value = t.value * scale + pair.infinity_mass();
        out.value = std::clamp(upper ? value + error + 5e-324 : value - error - 5e-324,
                               std::max(0.0, -std::expm1(epsilon) * (1 - 4 * u)), 1.0);
        return out;
    }
    Answer single_delta(double epsilon) const {
        Answer answer = exact(single(epsilon, false).value);
        answer.upper = std::max(answer.lower, single(epsilon, true).value);
        answer.round_off = single(epsilon, true).round_off;
        return answer;
    }
    Answer single_epsilon(double delta) const {
        Answer answer;
        answer.engine = "closed form";
        answer.upper = upper_epsilon([&](double e) { return single(e, true).value; }, delta, 1);
        if (single_upper_->infinity_mass() == 0)
            answer.upper = std::min(answer.upper, std::max(0.0, max_loss_));
        answer.lower =
            std::isfinite(answer.upper)
                ? lower_epsilon([&](double e) { return single(e, false).value; }, delta, answer.upper)
                : 0.0;
        answer.round_off = single(answer.upper, true).round_off;
        return answer;
    }

    // Sketches down to masses of e^-depth. They are kept by depth, so that an answer does not depend
    // on the queries before it.
    const Steps& steps_for(int depth) const {
        const double log_total = std::log(static_cast<double>(total_));
        const auto found = sketches_.find(depth);
        if (found != sketches_.end()) return found->second;
        // Complete or not there: an exception leaves nothing half done.
        Steps steps(composition_.size());
        parallel_for(steps.size(), [&](std::size_t i) {
            steps[i] = {sketch(*composition_[i].first, log_total + 60, depth), composition_[i].second};
        });
        return sketches_.emplace(depth, std::move(steps)).first->second;
    }

    std::pair<const Steps*, Saddle> saddle_at_delta(double delta) const {
        const double log_target = std::log(std::max(delta + std::expm1(log_finite_), delta * 1e-12));
        return deep_saddle([&](const Steps& sketched) {
            Saddle found = saddle_for_delta(sketched, log_target);
            if (!(found.epsilon > 0)) found = saddle_for_epsilon(sketched, 0);
            // Where the estimate is poor, the delta asked for still sets the scale of the errors.
            found.log_delta = std::min(found.log_delta, log_target);
            return found;
        });
    }

    // The saddle, from sketches so deep that what they leave out does not matter at its tilt.
    std::pair<const Steps*, Saddle> deep_saddle(const std::function<Saddle(const Steps&)>& find) const {
        for (int depth = 64;; depth *= 2) {
            const Steps& steps = steps_for(depth);
            const Saddle saddle = find(steps);
            bool deep = true;
            for (const auto& step : steps) {
                if (!step.sketch.truncated || step.sketch.empty()) continue;
                const double last = step.sketch.log_mass.back() + saddle.tilt * step.sketch.loss.back() -
                                    cumulants(step.sketch, saddle.tilt).value;
                deep = deep && last + std::log(static_cast<double>(step.count)) < -50;
            }
            if (deep || depth >= 8192) return {&steps, saddle};
        }
    }

    // Evaluates on finer lattices until upper and lower are as close as wanted, or memory forbids.
    Answer refine(const Steps& steps, const Saddle& saddle, double tolerance, double accuracy,
                  const std::function<void(const Tables&, Answer&)>& evaluate) const {
        double shrink = 1;
        Answer best;
        bool have = false, steep = false;
        std::shared_ptr<const Tables> tables;
        // Small lattices cost little: where the sketch saw too little to choose a step by, there is time to
        // find one.
        // Large ones that get nowhere, though, will not.
        int stalled = 0;
        for (int attempt = 0; attempt < 5 || (attempt < 12 && tables->most < small_transform); ++attempt) {
            tables = tables_for(steps, saddle, tolerance, shrink, true, steep);
            Answer answer;
            answer.engine = "fft";
            evaluate(*tables, answer);
            const bool better = !have || answer.upper - answer.lower < best.upper - best.lower;
            if (better) best = answer;
            stalled = better ? 0 : stalled + 1;
            have = true;
            if (stalled > 1 && tables->most > small_transform) break;
            const double gap = best.upper - best.lower;
            if (!(gap > accuracy * best.upper) || tables->size >= size_limit_ * 3 / 4) break;
            // Where round-off rules, a finer lattice is no help, but the saddle's own tilt is.
            if (!steep && (answer.round_off > answer.discretisation || !std::isfinite(gap))) {
                steep = true;
                continue;
            }
            const double ratio = std::isfinite(gap) ? 0.6 * accuracy * best.upper / gap : 0.0625;
            shrink *= tables->step > widest_support
                          ? std::clamp(ratio, 0.01, 0.8)
                          : std::clamp(std::sqrt(ratio), tables->size < small_transform ? 0.03 : 0.125, 0.8);
        }
        return best;
    }

    void describe(const Tables& tables, double epsilon, Answer& answer) const {
        answer.step = tables.step;
        answer.size = tables.size;
        if (!std::isfinite(epsilon)) return;
        const Delta upper = tables.upper.at(epsilon), lower = tables.lower->at(epsilon);
        answer.truncation = upper.truncation;
        answer.wrap_around = upper.wrap_around + lower.wrap_around;
        answer.round_off = upper.round_off + lower.round_off;
        answer.discretisation = std::max(
            0.0, upper.value - lower.value - answer.truncation - answer.wrap_around - answer.round_off);
    }

    // How much discretisation widens eps, by the step: a loss spread by variance v at tilt s moves eps by
    // (1+s) v/2, and the two bounds differ by at most v = step^2/4 per step, less where the loss lies within
    // a step of a lattice point. Nor does any loss move by more than a step.
    class Widening {
    public:
        Widening(const Steps& steps, double tilt) : steps_(steps), tilt_(tilt) {
            for (const auto& step : steps) {
                const double log_total = cumulants(step.sketch, tilt).value;
                auto& w = weights_.emplace_back();
                for (std::size_t i = 0; i < step.sketch.loss.size(); ++i)
                    w.push_back(static_cast<double>(step.count) *
                                std::exp(step.sketch.log_mass[i] + tilt * step.sketch.loss[i] - log_total));
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
            while (high / low > 1.02) {
                const double middle = std::sqrt(low * high);
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
    double largest_tilt() const {
        double largest = infinity;
        for (const auto& [pair, count] : composition_)
            if (pair->spacing() > 0) largest = std::min(largest, 30 / pair->spacing());
        return largest;
    }

    // A step of which every atom of the composition is a multiple, if there is one; otherwise the
    // wanted step, reduced to divide the first anchor.
    double align_step(double step, double span) const {
        double smallest = infinity, first = 0;
        bool all = true;
        for (const auto& [pair, count] : composition_) {
            const double s = pair->spacing();
            if (first == 0) first = pair->anchor();
            if (s > 0) {
                smallest = std::min(smallest, s);
            } else {
                all = false;
            }
        }
        if (all) {
            for (const auto& [pair, count] : composition_) {
                const double ratio = pair->spacing() / smallest;
                if (std::abs(ratio - std::round(ratio)) > 1e-12 * ratio) all = false;
            }
            if (all && span / smallest < 0.9 * static_cast<double>(size_limit_)) return smallest;
        }
        if (first > 0 && span / first < static_cast<double>(size_limit_) && first / step < 1e9)
            return first / std::max(1.0, std::ceil(first / step));
        return round_step(step);
    }

    // Where the tilted sum has a mass of e^log_mass to either side.
    static std::pair<TailPoint, TailPoint> window(const Steps& steps, double tilt, double log_mass) {
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

    std::shared_ptr<const Tables> tables_for(const Steps& steps, const Saddle& saddle, double tolerance,
                                             double shrink, bool with_lower, bool steep = false) const {
        const double relative = std::clamp(saddle.tilt * tolerance, 1e-12, 1e-2);
        // The saddle's own tilt makes round-off smallest, but fattens the right tail and so the window:
        // take the smallest tilt that round-off allows. A coarse grid of tilts and steps lets
        // neighbouring queries share their work, whatever their order.
        double tilt = std::exp2(std::round(8 * std::log2(std::min(saddle.tilt, largest_tilt()))) / 8);
        const auto log_share_at = [&](double s) {
            // How large delta is beside e^{K - s eps}, the unit of the error terms.
            return std::clamp(saddle.log_delta - (cumulants(steps, s).value - s * saddle.epsilon), -700.0,
                              0.0);
        };
        double log_share = log_share_at(tilt);
        const double log_round_off = std::log(1e-13 * static_cast<double>(total_) / relative);
        for (int i = 0; i < 60 && !steep; ++i) {
            const double smaller = log_share_at(tilt * std::exp2(-0.5));
            if (log_round_off - smaller > std::log(1e-2)) break;
            tilt *= std::exp2(-0.5);
            log_share = smaller;
        }
        const double log_mass = std::log(1e-3 * relative) + log_share - 2;
        const double each = 1 / static_cast<double>(total_);
        const double tail = std::exp(std::max(log_mass, -600.0)) * each;
        // A jump this rare may as well be infinite.
        const double infinity_mass = 1e-3 * relative * std::exp(std::max(saddle.log_delta, -740.0)) * each;
        Steps kept;
        for (const auto& step : steps)
            kept.push_back({trimmed(step.sketch, tilt, tail, infinity_mass), step.count});
        auto ends = window(kept, tilt, log_mass);
        auto &left = ends.first, &right = ends.second;
        double span = std::max(right.loss - left.loss, 1e-290);
        // A single loss may reach further than the window, and takes memory too.
        for (const auto& step : kept)
            if (!step.sketch.empty())
                span = std::max(span, 0.5 * (step.sketch.right.back() - step.sketch.left.front()));
        const Widening widening(kept, saddle.tilt);
        double step = widening.step_for(0.45 * tolerance, std::min(span / 24, 0.5 / saddle.tilt));
        step = std::exp2(std::floor(8 * std::log2(step)) / 8) * shrink;
        step = std::max(step, span / (0.9 * static_cast<double>(size_limit_)));
        step = align_step(step, span);

        for (const auto& cached : cache_)
            if (cached->steps == &steps && cached->tilt == tilt && cached->step == step &&
                cached->log_mass == log_mass && cached->infinity_mass == infinity_mass &&
                (cached->lower || !with_lower))
                return cached;
        // Where memory keeps the step wide, the bounds lie so far from the truth that the error terms grow,
        // or the window must.
        const double apart = widening.at(step);
        if (apart * tilt > 0.1 || apart > 0.01 * span) {
            auto [further_left, further_right] = window(kept, tilt, log_mass - 1.5 * tilt * apart);
            further_left.loss -= apart;
            further_right.loss += apart;
            if (further_right.loss - further_left.loss < 1.5 * static_cast<double>(size_limit_) * step) {
                left = further_left;
                right = further_right;
            }
        }
        std::vector<std::vector<std::int64_t>> points;
        double bottom = std::floor(left.loss / step) - 1, top = std::ceil(right.loss / step) + 1;
        double lowest_point = 0, highest_point = 0;
        for (const auto& kept_step : kept) {
            points.push_back(choose_points(kept_step.sketch, step, tilt));
            lowest_point += static_cast<double>(kept_step.count) * static_cast<double>(points.back().front());
            highest_point += static_cast<double>(kept_step.count) * static_cast<double>(points.back().back());
        }
        // Where all sums end hardly beyond the window, nothing need lie outside.
        const double little = std::max(512.0, 0.1 * (top - bottom));
        if (bottom - lowest_point < little) bottom = lowest_point;
        if (highest_point - top < little) top = highest_point;
        const auto first = static_cast<std::int64_t>(bottom);
        const std::size_t size = good_size(static_cast<std::size_t>(std::max(16.0, top - bottom + 1)));
        std::size_t most = size;
        for (const auto& indices : points) most = std::max(most, indices.size());
        const std::size_t n = composition_.size();
        std::vector<LatticeStep> upper(n), lower(with_lower ? n : 0);
        parallel_for(with_lower ? 2 * n : n, [&](std::size_t job) {
            const bool is_upper = job < n;
            const std::size_t i = is_upper ? job : job - n;
            (is_upper ? upper : lower)[i] = {
                !is_upper && step > widest_support
                    ? round_down(*composition_[i].first, points[i], step, tilt)
                    : discretise(*composition_[i].first, points[i], step, tilt,
                                 is_upper ? Bound::upper : Bound::lower, 2 * infinity_mass),
                composition_[i].second};
        });
        std::optional<Table> tables_of[2];
        parallel_for(with_lower ? 2 : 1, [&](std::size_t job) {
            tables_of[job].emplace(compose(job ? lower : upper, first, size, left.theta, right.theta));
        });
        auto tables =
            std::make_shared<const Tables>(Tables{&steps, tilt, step, log_mass, infinity_mass, size, most,
                                                  std::move(*tables_of[0]), std::move(tables_of[1])});
        cache_.push_back(tables);
        std::size_t held = 0;
        for (const auto& cached : cache_) held += cached->size;
        while (cache_.size() > 1 && (cache_.size() > 16 || held > size_limit_ / 2)) {
            held -= cache_.front()->size;
            cache_.pop_front();
        }
        return tables;
    }

    Composition composition_;
    std::size_t size_limit_;
    SupportEnd end_;
    std::uint64_t total_ = 0;
    double max_loss_, log_finite_ = 0;
    std::unique_ptr<Direction> lower_;     // of the pairs below the mechanisms, where they are others
    PairPtr single_lower_, single_upper_;  // where the composition has a closed form
    mutable std::mutex mutex_;             // guards what follows, which caches
    std::unique_ptr<Inversion> inversion_;
    mutable Inverted inverted_epsilon_, inverted_delta_;
    mutable std::map<int, Steps> sketches_;
    mutable std::deque<std::shared_ptr<const Tables>> cache_;
};

namespace {

// The worst direction. Of the others mostly a coarse upper bound shows that they cannot be it.
template <class Bounds, class AtMost>
std::optional<Answer> worst(std::size_t directions, Bounds&& bounds, AtMost&& at_most) {
    std::optional<Answer> best = bounds(0);
    for (std::size_t i = 1; best && i < directions; ++i) {
        const std::optional<bool> lesser = at_most(i, best->lower);
        if (!lesser) return {};
        if (*lesser) continue;
        std::optional<Answer> other = bounds(i);
        if (!other) return {};
        other->direction = i;
        const double lower = std::max(best->lower, other->lower);
        if (other->upper > best->upper) best = other;
        best->lower = lower;
    }
    return best;
}

}  // namespace

Profile::Profile(std::vector<Composition> directions, double accuracy, std::size_t memory_limit,
                 Engine engine)
    : accuracy_(accuracy) {
    if (directions.empty()) throw std::invalid_argument("Profile: at least one direction is needed");
    if (!(accuracy > 0 && accuracy <= 1)) throw std::invalid_argument("Profile: accuracy must lie in (0, 1]");
    for (auto& composition : directions) {
        if (composition.empty()) throw std::invalid_argument("Profile: a direction without mechanisms");
        for (const auto& [pair, count] : composition) {
            if (pair == nullptr) throw std::invalid_argument("Profile: a pair is missing");
            if (count == 0 || count > (std::uint64_t{1} << 53))
                throw std::invalid_argument("Profile: counts must lie in [1, 2^53]");
        }
        directions_.push_back(
            std::make_unique<Direction>(std::move(composition), accuracy, memory_limit, engine));
    }
}
Profile::~Profile() = default;
Profile::Profile(Profile&&) noexcept = default;
Profile& Profile::operator=(Profile&&) noexcept = default;

std::optional<Answer> Profile::epsilon(double delta, bool lattice) const {
    if (!(delta >= 0 && delta <= 1)) throw std::invalid_argument("epsilon_bounds: delta must lie in [0, 1]");
    return worst(
        directions_.size(),
        [&](std::size_t i) { return directions_[i]->epsilon_bounds(delta, accuracy_, lattice); },
        [&](std::size_t i, double ceiling) {
            return directions_[i]->epsilon_at_most(delta, ceiling, lattice);
        });
}

std::optional<Answer> Profile::delta(double epsilon, bool lattice) const {
    if (std::isnan(epsilon)) throw std::invalid_argument("delta_bounds: epsilon must be a number");
    return worst(
        directions_.size(),
        [&](std::size_t i) { return directions_[i]->delta_bounds(epsilon, accuracy_, lattice); },
        [&](std::size_t i, double ceiling) {
            return directions_[i]->delta_at_most(epsilon, ceiling, lattice);
        });
}

std::vector<Answer> Profile::delta_curve(std::span<const double> epsilons) const {
    const StandardArithmetic standard;
    std::vector<std::vector<std::optional<Answer>>> curves;
    for (const double epsilon : epsilons)
        if (std::isnan(epsilon)) throw std::invalid_argument("delta_curve: epsilon must be a number");
    for (const auto& direction : directions_) curves.push_back(direction->delta_curve(epsilons, accuracy_));
    std::vector<Answer> out;
    for (std::size_t i = 0; i < epsilons.size(); ++i) {
        const auto known = [&](const auto& curve) { return curve[i].has_value(); };
        if (std::all_of(curves.begin(), curves.end(), known)) {
            out.push_back(*worst(
                curves.size(), [&](std::size_t d) { return curves[d][i]; },
                [](std::size_t, double) { return std::optional(false); }));
        } else {
            out.push_back(*delta(epsilons[i], true));
        }
    }
    return out;
}

Answer Profile::epsilon_bounds(double at_delta) const {
    const StandardArithmetic standard;
    return *epsilon(at_delta, true);
}
Answer Profile::delta_bounds(double at_epsilon) const {
    const StandardArithmetic standard;
    return *delta(at_epsilon, true);
}
std::optional<Answer> Profile::epsilon_without_lattice(double at_delta) const {
    return epsilon(at_delta, false);
}
std::optional<Answer> Profile::delta_without_lattice(double at_epsilon) const {
    return delta(at_epsilon, false);
}
std::size_t Profile::most_memory(std::size_t memory_limit) {
    return most_points(memory_limit) * bytes_per_point;
}

}  // namespace hockeystick
