// Estimates that steer the engine: where a pair's loss lies and the lattice points that suit it; cumulants,
// saddle points and tails of compositions. Nothing here enters a guarantee (docs/accounting/bounds.md, "What
// is not certified").
#pragma once

#include <cstdint>
#include <vector>

#include "hockeystick/pairs.hpp"

namespace hockeystick {

// The finite loss of one pair as a few hundred atoms, refined where the mass is.
struct Sketch {
    std::vector<double> left, right, loss, log_mass;  // the bin's ends, its atom, ln P-mass
    bool truncated = false;                           // the right tail goes on beyond the last atom
    bool empty() const noexcept { return loss.empty(); }
};

// Keeps atoms of P-mass above e^-depth_right in the right tail and e^-depth_left in the left one.
Sketch sketch(const Pair& pair, double depth_left, double depth_right);

// The masses under the tilted law, which sum to 1.
std::vector<double> tilted_masses(const Sketch& sketch, double tilt);

// Without the ends that hold at most `tail` of the tilted mass, or, on the right, at most
// `infinity_mass` of the P-mass.
Sketch trimmed(const Sketch& sketch, double tilt, double tail, double infinity_mass);

// Lattice points over the range of the sketch: dense where the tilted loss has mass, sparse elsewhere.
std::vector<std::int64_t> choose_points(const Sketch& sketch, double step, double tilt);

// Every point from first to last.
std::vector<std::int64_t> all_points(std::int64_t first, std::int64_t last);

struct Cumulants {
    double value, first, second;  // K, K', K''
};
Cumulants cumulants(const Sketch& sketch, double tilt);

struct SketchedStep {
    Sketch sketch;
    std::uint64_t count;
};
// Cumulants of the whole composition.
Cumulants cumulants(const std::vector<SketchedStep>& steps, double tilt);

struct Saddle {
    double tilt, epsilon, log_delta;
};
// The saddle point of K(s) - s eps - ln s - ln(1+s) at the given eps, or where delta is as given.
Saddle saddle_for_epsilon(const std::vector<SketchedStep>& steps, double epsilon);
Saddle saddle_for_delta(const std::vector<SketchedStep>& steps, double log_delta);

// The loss beyond which the tilted composition has mass about e^log_mass, and the further tilt
// theta that Chernoff's bound uses there. direction +1: right tail; -1: left tail.
struct TailPoint {
    double loss, theta;
};
TailPoint tail_point(const std::vector<SketchedStep>& steps, double tilt, double log_mass, int direction);

}  // namespace hockeystick
