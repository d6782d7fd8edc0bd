// Bounds by the method of Gopi, Lee & Wutschitz (2021), for comparison with the others: losses are rounded to
// the nearest lattice point and their mean is kept (docs/accounting/bounds.md, "Mean-preserving rounding").
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>

#include "hockeystick/answer.hpp"
#include "lattice/coupling.hpp"
#include "lattice/sketch.hpp"
#include "numerics/constants.hpp"
#include "profile/answers.hpp"

namespace hockeystick {

class CouplingEngine {
public:
    // Lattices take at most about so much memory, in bytes.
    CouplingEngine(Composition composition, std::size_t memory_limit)
        : composition_(std::move(composition)),
          most_points_(std::clamp(memory_limit / bytes_per_point, std::size_t{1024}, largest_lattice)),
          total_(static_cast<double>(total_steps(composition_))) {}

    // infinite: an upper bound on the probability that some loss is infinite; most: on eps.
    Answer epsilon(double delta, double accuracy, double infinite, double most) const {
        Answer known;
        known.upper = most;
        const double target = delta - infinite, failure = std::max(least_failure, share * accuracy * target);
        if (!(target > 0)) return known;
        const auto steps =
            sketched(composition_, depth_of_sketch + std::log(total_) - std::log(std::max(target, 1e-300)));
        const Saddle saddle = saddle_for_delta(steps, std::log(target));
        const double scale = saddle.epsilon > 0
                                 ? saddle.epsilon
                                 : std::sqrt(std::max(0.0, cumulants(steps, saddle.tilt).second));
        const double step = share * accuracy * scale / radius_per_step(failure);
        return refine(step, failure, accuracy, known,
                      [&](const Coupling& coupling) { return coupling.epsilon_bounds(delta); });
    }
    Answer delta(double epsilon, double accuracy) const {
        Answer known;
        known.upper = 1;
        known.lower = trivial_delta(epsilon);
        const auto steps = sketched(composition_, depth_of_sketch + std::log(total_));
        const Saddle saddle = saddle_for_epsilon(steps, epsilon);
        const double log_delta = std::isfinite(saddle.log_delta) ? std::min(0.0, saddle.log_delta) : 0;
        const double failure = std::max(least_failure, share * accuracy * std::exp(log_delta));
        const double step = share * accuracy / std::max(saddle.tilt, 1e-3) / radius_per_step(failure);
        return refine(step, failure, accuracy, known,
                      [&](const Coupling& coupling) { return coupling.delta_bounds(epsilon); });
    }

private:
    // speed: bytes of each point, all lattices together; the finest lattices; how much of the gap the failure
    // probability and the radius may take; how deep losses are looked at; how often a step may be doubled.
    static constexpr std::size_t bytes_per_point = 256, largest_lattice = std::size_t{1} << 21;
    static constexpr double share = 0.25, depth_of_sketch = 60, least_failure = 1e-300;
    static constexpr int most_attempts = 4, most_doublings = 200;

    static std::vector<SketchedStep> sketched(const Composition& composition, double depth) {
        std::vector<SketchedStep> steps;
        for (const auto& [pair, count] : composition) steps.push_back({sketch(*pair, depth, depth), count});
        return steps;
    }

    // From the finest lattice at `step` or a little above that fits; then finer ones, until close.
    Answer refine(double step, double failure, double accuracy, const Answer& known,
                  const std::function<Interval(const Coupling&)>& evaluate) const {
        Answer best = known;
        best.engine = "prv";
        if (!(step > 1e-300 && step < 1e300)) step = 1;
        for (int attempt = 0; attempt < most_attempts; ++attempt) {
            std::unique_ptr<Coupling> coupling;
            bool coarser = false;
            for (int i = 0; i < most_doublings && !coupling; ++i) {
                try {
                    coupling = std::make_unique<Coupling>(composition_, step, failure, most_points_);
                } catch (const std::invalid_argument&) {  // too many points
                    step *= 2;
                    coarser = true;
                }
            }
            if (!coupling) break;
            const auto [lower, upper] = evaluate(*coupling);
            const bool better = upper - lower < best.upper - best.lower;
            best.lower = std::max(best.lower, lower);
            best.upper = std::max(best.lower, std::min(best.upper, upper));
            if (better || attempt == 0) {
                best.step = step;
                best.size = coupling->size();
                best.truncation = coupling->outside();
                best.discretisation = failure;
            }
            if (close(best, accuracy) || coarser) break;
            const double gap = best.upper - best.lower;
            step *= std::isfinite(gap) && gap > 0 ? std::clamp(0.5 * accuracy * best.upper / gap, 0.05, 0.5)
                                                  : 0.1;
        }
        return best;
    }
    // What `radius` of the coupling is, per unit of the step.
    double radius_per_step(double failure) const { return std::sqrt(0.5 * total_ * -std::log(failure)); }

    Composition composition_;
    std::size_t most_points_;
    double total_;
};

}  // namespace hockeystick
