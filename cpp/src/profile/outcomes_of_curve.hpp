// The outcomes of steps of which a curve is known (docs/accounting/bounds.md, "All outcomes", given each
// loss): from above those of its chords, from below those of what its convexity leaves.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "hockeystick/answer.hpp"
#include "profile/merged_outcomes.hpp"

namespace hockeystick {

// deltas: bounds at these eps, four or more that increase, of a convex function of e^eps that falls from 1 at
// -inf. `lost` is what is left of it at the last one.
MergedOutcomes outcomes_of_curve(std::span<const double> epsilons, std::span<const Answer> deltas);

// Where a curve that falls between low < 0 and high > 0 is asked about first.
std::vector<double> first_points(double low, double high);
// `count` points from the first to the last of these, closer where outcomes next to them have more of what is
// looked for; shares, of each.
std::vector<double> finer_points(std::span<const double> points, std::span<const double> shares,
                                 std::size_t count);

}  // namespace hockeystick
