// A composition of which one part has few outcomes (docs/accounting/bounds.md, "All outcomes"):
//
//     delta(eps) = P(loss of the part = inf) + sum over its outcomes o of p_o delta_rest(eps - loss_o),
//
// so that atoms, which keep a transform from falling, do not meet that of the rest.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "hockeystick/answer.hpp"
#include "profile/outcomes.hpp"

namespace hockeystick {

class FewOutcomes {
public:
    // The part of the composition whose losses are atoms, beside one epoch of random allocation; empty where
    // it is something else, or where that part has more outcomes than it pays to ask about.
    static std::optional<FewOutcomes> of(const Composition& composition);
    const Composition& rest() const { return rest_; }

    // What the rest says: bounds on delta at many eps, and whether a quick bound shows delta(eps) <
    // `ceiling`.
    struct Rest {
        std::function<std::vector<Answer>(std::span<const double> epsilons)> deltas;
        std::function<bool(double epsilon, double ceiling)> surely_below;
    };
    std::vector<Answer> delta_curve(std::span<const double> epsilons, const Rest& rest) const;

    // about: the rest's eps(delta), from which this one differs by some loss of the part.
    Answer epsilon_bounds(double delta, const Answer& about, const Rest& rest) const;

private:
    FewOutcomes(const Composition& part, Composition rest);
    double argument(std::size_t i, double epsilon) const;
    Answer mean(std::span<const Answer> deltas) const;

    Composition rest_;
    std::vector<Outcomes::Term> lower_, upper_;  // as many
    Answer infinite_;
};

}  // namespace hockeystick
