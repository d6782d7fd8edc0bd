// The moments E[V^p; no W > c] of a random allocation in direction remove, at the large tilts that only its
// bulk allows (docs/mechanisms/allocation.md, "Large tilts").
//
// V^p = Gamma(p+1)/(2 pi i) integral e^{sV} s^{-p-1} ds along Re s = s0 > 0, by the trapezoidal rule in Im s,
// and E[e^{sV}; no W > c] is a power of an integral over one normal variable.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "inversion/allocation_moments.hpp"
#include "inversion/allocation_parts.hpp"
#include "inversion/allocation_step.hpp"
#include "numerics/complex.hpp"

namespace hockeystick {

class CutAllocation {
public:
    // Cuts at a W that is exceeded in P-mass of at most `mass`.
    CutAllocation(const Allocation& law, double mass);

    // P-mass of the outcomes left out.
    double dropped() const { return dropped_; }

    // E[V^p] for p = power + i tau, tau increasing from 0, power >= least_power. Empty where the cut tail
    // would swamp the rest. log_scale as in allocation_moments.
    static constexpr double least_power = 24;  // speed
    std::optional<Moments> moments(double power, std::span<const double> tau, double log_scale,
                                   double tolerance) const;

    // Of all higher frequencies; log_moment: a lower bound of ln E[V^power].
    Bulk::Edge edge(double power, double log_moment) const;

private:
    double tilt_for(const CutStep::Nodes& nodes, double power) const;

    struct Strip;
    struct Line;
    Strip strip_of(const Line& line, double width) const;
    void choose_step(Line& line, double power, std::span<const double> tau, double log_error) const;
    static double log_beyond(const Line& line, Complex p, double v);
    bool fill(Line& line, double power, double highest, double log_error) const;
    // The moment, times e^{-shift}, its error, and derivatives of its logarithm in p.
    struct Value {
        Complex value, first, second;
        double error;
    };
    Value sum(const Line& line, Complex p, double shift) const;

    Allocation law_;
    CutStep step_;
    double dropped_;
};

}  // namespace hockeystick
