// Bounds by the method of Gopi, Lee & Wutschitz (2021), for comparison with the others: losses are rounded to
// the nearest lattice point and their mean is kept (docs/accounting/bounds.md, "Mean-preserving rounding").
#pragma once

#include <cstddef>
#include <functional>

#include "hockeystick/answer.hpp"
#include "lattice/coupling.hpp"

namespace hockeystick {

class CouplingEngine {
public:
    // Lattices take at most about so much memory, in bytes.
    CouplingEngine(Composition composition, std::size_t memory_limit);

    // infinite: an upper bound on the probability that some loss is infinite; most: on eps.
    Answer epsilon(double delta, double accuracy, double infinite, double most) const;
    Answer delta(double epsilon, double accuracy) const;

private:
    // From the finest lattice at `step` or a little above that fits; then finer ones, until close.
    Answer refine(double step, double failure, double accuracy, const Answer& known,
                  const std::function<Interval(const Coupling&)>& evaluate) const;
    // What `radius` of the coupling is, per unit of the step.
    double radius_per_step(double failure) const;

    Composition composition_;
    std::size_t most_points_;
    double total_;
};

}  // namespace hockeystick
