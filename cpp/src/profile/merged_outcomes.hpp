// The outcomes of steps whose losses are atoms, those of the same loss put together
// (docs/accounting/bounds.md, "All outcomes"): as many as a lattice has points where there are too many
// sequences to tell apart.
#pragma once

#include <optional>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "profile/outcomes.hpp"

namespace hockeystick {

// Whether a loss is made of atoms alone.
bool only_atoms(const Pair& pair);

struct MergedOutcomes {
    // Finite losses in increasing order and their P-masses, both from below or both from above, as many.
    std::vector<Outcomes::Term> lower, upper;
    double lost = 0;  // P-mass that neither has, at most

    // Empty where some loss is no atom, or there is no lattice, or too much of one.
    static std::optional<MergedOutcomes> of(const Composition& composition);
    // None put together, and fewer than `most`.
    static std::optional<MergedOutcomes> apart(const Composition& composition, std::size_t most);
};

}  // namespace hockeystick
