// A composition of which one part has atoms alone, given each of that part's outcomes
// (docs/accounting/bounds.md, "All outcomes"):
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
#include "profile/merged_outcomes.hpp"

namespace hockeystick {

class GivenOutcomes {
public:
    // Empty where there are no atoms, or nothing beside them, or they have more outcomes than it pays to ask
    // about. Takes some milliseconds.
    static std::optional<GivenOutcomes> of(const Composition& composition);
    // Of some steps, beside any others; infinite: P's mass where their loss is.
    GivenOutcomes(MergedOutcomes outcomes, const Answer& infinite);
    const Composition& rest() const { return rest_; }
    std::size_t size() const { return outcomes_.upper.size(); }

    // What the rest says: bounds on delta at many eps, which are added up to so much or more, or to what is
    // not known, 0; and from which of these, which increase, on delta is surely less than `negligible`, or
    // nan.
    struct Rest {
        std::function<std::vector<Answer>(std::span<const double> epsilons, double sum)> deltas;
        std::function<double(std::vector<double> epsilons, double negligible)> nothing_from;
    };
    // about: what delta is at each, roughly, next to which little is left out; 0 where that is not known.
    std::vector<Answer> delta_curve(std::span<const double> epsilons, std::span<const double> about,
                                    const Rest& rest) const;
    // About how much each outcome adds to delta.
    std::vector<double> shares(double epsilon, const Rest& rest) const;
    // about: bounds on the eps; of the lower end 0 stands for none.
    Answer epsilon_bounds(double delta, const Answer& about, const Rest& rest) const;

private:
    struct Range {
        std::size_t begin, end;  // of outcomes
    };
    double least(double epsilon, const Rest& rest) const;
    Range worth_asking(double epsilon, double nothing, const Rest& rest) const;
    double argument(std::size_t i, double epsilon) const;
    Answer mean(std::span<const Answer> deltas) const;

    Composition rest_;
    MergedOutcomes outcomes_;
    Answer infinite_;
};

}  // namespace hockeystick
