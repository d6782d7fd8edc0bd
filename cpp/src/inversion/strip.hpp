// The trapezoidal rule's aliasing for an integral of P^{1+z} Q^{-z}, from the strip in which it is analytic.
#pragma once

#include <array>
#include <vector>

#include "pairs/mixture.hpp"

namespace hockeystick {

// The strip |Im t| <= a. If the integral of |P^{1+z} Q^{-z}| along its edges is at most N(Im z), the rule of
// step h is off by at most the sum over k >= 1 of 2 N e^{-2 pi k a/h} <= 4 N e^{-2 pi a/h}.
class AnalyticityStrip {
public:
    // Strips of several widths around the best one. With D the distance between the outermost shifts and R
    // that of Q's, the exponentials e^{shift (t + ia)} lie in a sector of angle a R, so that
    //     N <= M(s) e^{a^2/2 + |Im z| a D} cos(a R/2)^{-s} (docs/accounting/bounds.md, "Exact inversion").
    static std::vector<AnalyticityStrip> simple(const MixturePart& part, double s, double tolerance);
    // The same by an integral over the angles that the sums really have, for frequencies up to `end`; much
    // better where mixtures are lopsided, and dearer. log_mgf: ln M(s).
    static std::vector<AnalyticityStrip> detailed(const MixturePart& part, double s, double log_mgf,
                                                  double end, double tolerance);

    // ln of the aliasing relative to M(s) at Im z = tau, and the step for which it is `tolerance`.
    double log_aliasing(double h, double tau) const;
    double step(double tau, double tolerance) const;

private:
    struct Knot {
        double tau, log_growth;  // ln(N / M(s)), a convex function of tau
    };
    AnalyticityStrip(double a, const std::array<Knot, 3>& knots) : a_(a), knots_(knots) {}
    double log_growth(double tau) const;

    double a_;
    std::array<Knot, 3> knots_;
};

}  // namespace hockeystick
