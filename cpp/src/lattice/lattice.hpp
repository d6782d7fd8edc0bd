// A privacy loss on the lattice i*step: P-masses, tilted, with a direction.
#pragma once

#include <cstdint>
#include <vector>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// What a discretised loss promises about the true one; composition refuses to mix directions.
//   upper: its profile lies above the true one at every eps.   lower: below.
//   mean_preserving: neither; its residue says how far the two lie apart (coupling.hpp).
enum class Bound { upper, lower, mean_preserving };

// What rounding takes off the true loss, given that the loss lies in the window. Independent losses add up
// in every field (docs/accounting/bounds.md, "Mean-preserving rounding").
struct Residue {
    double mean = 0, mean_error = 0;  // |E[loss - lattice loss | window] - mean| <= mean_error
    double squared_range = 0;         // of the interval in which loss - lattice loss lies, in the window
    double outside = 0;               // bounds P(a finite loss outside the window)
};

// What adds up over the steps of a composition, but for their masses (see StepSums in compose.hpp).
struct LatticeTerms {
    double offset = 0;         // the losses that are meant lie this much above the points
    double offset_error = 0;   // how far rounding may have moved that
    double log_scale = 0;      // see Lattice
    double infinity_mass = 0;  // P-mass at +inf
    // Where a lower bound is read off, the profile may through rounding exceed the true one, as if P had
    // this much more mass at +inf, or this much more tilted mass at a finite loss: either way of counting
    // is valid (docs/accounting/bounds.md, "One step on a lattice").
    double deficit = 0, tilted_deficit = 0;
    double beyond = 0;  // upper: bounds E[e^{tilt L - log_scale}; L finite, past the last point]
    Residue residue;    // mean_preserving
};

// Mass at lattice point index[i] is mass[i] * exp(log_scale - tilt * index[i] * step); masses sum to 1.
struct Lattice : LatticeTerms {
    Bound bound = Bound::upper;
    double step = 0, tilt = 0;
    std::vector<std::int64_t> index;  // strictly increasing
    std::vector<double> mass;
};

}  // namespace hockeystick
