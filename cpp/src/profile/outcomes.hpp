// Compositions of so few outcomes that all of them are added up (docs/accounting/bounds.md, "All outcomes").
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "hockeystick/profile.hpp"

namespace hockeystick {

class Outcomes {
public:
    // Null where some loss is not made of atoms, or there are more outcomes than `most`.
    static std::shared_ptr<const Outcomes> of(const Composition& composition, std::size_t most);

    // These, in increasing order, from below and from above.
    struct Term {
        double loss, mass;
    };
    Outcomes(const std::vector<Term>& lower, const std::vector<Term>& upper)
        : upper_(side(upper)), lower_(side(lower)) {}

    // What finite losses add to delta(eps), from above or from below.
    double delta(double epsilon, bool upper) const;

    // The finite losses of all outcomes and their P-masses, both from above or both from below, in increasing
    // order; empty where `of` is null.
    static std::vector<Term> terms(const Composition& composition, std::size_t most, bool upper);

private:
    // One outcome, with the errors of both in units of round-off, and what ln p may lack beside them.
    struct Outcome {
        double loss = 0, log_p = 0, loss_error = 0, log_p_error = 0, below = 0, above = 0;
    };
    // Losses in increasing order, delta at each, and the mass from there on.
    struct Side {
        std::vector<double> loss, delta, mass;
    };

    static std::vector<Outcome> of_kind(const std::vector<LossAtom>& atoms, std::size_t steps);
    static std::vector<Outcome> all(const Composition& composition, std::size_t most);
    static std::vector<Term> bounded(const std::vector<Outcome>& outcomes, bool upper);
    static Side side(const std::vector<Term>& terms);

    Side upper_, lower_;
};

}  // namespace hockeystick
