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

    // What finite losses add to delta(eps), from above or from below.
    double delta(double epsilon, bool upper) const;

private:
    // One outcome, with the errors of both in units of round-off.
    struct Outcome {
        double loss, log_p, loss_error, log_p_error;
    };
    // Losses in increasing order, delta at each, and the mass from there on.
    struct Side {
        std::vector<double> loss, delta, mass;
    };

    explicit Outcomes(const std::vector<Outcome>& outcomes)
        : upper_(side(outcomes, true)), lower_(side(outcomes, false)) {}
    static std::vector<Outcome> of_kind(const std::vector<LossAtom>& atoms, std::size_t steps);
    static Side side(const std::vector<Outcome>& outcomes, bool upper);

    Side upper_, lower_;
};

}  // namespace hockeystick
