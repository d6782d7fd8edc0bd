// The outcomes of steps of any kind, those of nearly the same loss put together on a lattice
// (docs/accounting/bounds.md, "All outcomes"). Masses are sums of positive products, each known to a relative
// error, however little delta is beside what a tilt makes of the frequent losses; that takes as many products
// as there are pairs of points.
#pragma once

#include <functional>
#include <optional>

#include "hockeystick/profile.hpp"
#include "profile/closed_form.hpp"
#include "profile/merged_outcomes.hpp"

namespace hockeystick {

// What that may take: products of masses, and points of a lattice.
struct SumsBudget {
    double products;
    std::size_t points;
};
// spacing: of the lattice. negligible: the P-mass that either side may lack. What is taken is taken off the
// budget. Empty where some step has no such law, or that takes more. There may be more from above than from
// below.
std::optional<MergedOutcomes> near_outcomes(const Composition& composition, double spacing, double negligible,
                                            SumsBudget& budget);

// On ever finer lattices, until `ask` finds an answer as close as wanted, or they take too much; with what
// gave it. infinite: P's mass where the loss is. about: what delta is, roughly.
inline constexpr const char* by_sums = "outcomes";  // the engine
struct ByNearOutcomes {
    Answer answer;
    std::optional<ClosedForm> form;  // empty: there is no answer
};
ByNearOutcomes by_near_outcomes(const Composition& composition, const Answer& infinite, double about,
                                double accuracy, SumsBudget budget,
                                const std::function<Answer(const ClosedForm&)>& ask);

}  // namespace hockeystick
