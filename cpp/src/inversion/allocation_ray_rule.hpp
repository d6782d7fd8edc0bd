// The trapezoidal rule along rays s = kappa e^{x + i angle} for moments of random allocations: which rays,
// what steps, which nodes, and what they leave out (docs/mechanisms/allocation.md, "Moments").
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "inversion/allocation_kernel_bounds.hpp"

namespace hockeystick {

// One ray, and the frequencies first..last that it serves.
struct Ray {
    double angle;
    std::size_t first, last;
};

// Nodes are x = first h, ..., last h; what is left out on both sides.
struct RayRule {
    double h = 0;
    double first = 0, last = 0;
    double omitted = 0;

    std::size_t size() const { return static_cast<std::size_t>(last - first + 1); }
    double x(std::size_t node) const { return (first + static_cast<double>(node)) * h; }
};

// For E[V^{k-a}] at a = kappa + i tau, tau = 0, step, ..., so many of them, with errors of a share
// `tolerance` of e^{log_scale}.
class RayRules {
public:
    RayRules(const Allocation& law, int k, double kappa, double step, std::size_t size, double log_scale,
             double tolerance);

    // Which serve all frequencies, each of them some that follow each other.
    std::vector<Ray> rays() const;
    // Empty where too many nodes were needed.
    std::optional<RayRule> along(const Ray& ray) const;
    // The same with fewer nodes, by what is known of E[V^k e^{-sV}].
    RayRule shorter(const Ray& ray, RayRule rule, const KernelBounds& kernel) const;
    // What the rule's step adds at most at that frequency, beside E[V^{k-kappa}].
    double aliasing(const Ray& ray, const RayRule& rule, std::size_t frequency) const;

private:
    double tau(std::size_t frequency) const { return step_ * static_cast<double>(frequency); }
    // ln of the largest |e^{-angle tau}/Gamma(a)| of a ray's frequencies.
    double log_front(const Ray& ray) const;
    double log_end(double angle, double x, int direction, double h) const;

    Allocation law_;
    int k_;
    double kappa_, step_;
    std::size_t size_;
    double log_tolerance_, log_wanted_;
    std::vector<double> log_moments_;  // ln of E[V^j], j = 0..k
};

}  // namespace hockeystick
