// A sum of weights times e^{i tau L_j} at complex losses L_j, Im L_j >= 0: its terms fall with the frequency.
#pragma once

#include <cstddef>
#include <vector>

#include "numerics/complex.hpp"

namespace hockeystick {

struct FallingSum {
    std::vector<double> re, im, turn, fall;  // weights; Re and Im of the losses
    // Errors of weight and loss, in units of round-off; the former with what adding the terms up rounds by, a
    // quarter of their number.
    std::vector<double> fixed, turning;
    double shift = 0, fixed_error = 0;  // values are relative to e^shift
    double start = 0;                   // the frequency at which the weights are

    bool empty() const { return re.empty(); }
    // Of the sum at all frequencies from tau on (docs/accounting/bounds.md, "Layers of losses").
    double bound(double tau) const;
    // The values at start + j step, j = 0, ..., size - 1, and their errors. Terms are turned by one step at a
    // time, and at every sqrt(size)-th by as many at once. They are left out once they are below `negligible`
    // together.
    struct Row {
        std::vector<Complex> value;
        std::vector<double> error;
    };
    Row row(double step, std::size_t size, double negligible) const;
};

}  // namespace hockeystick
