// Estimates that steer the engine: where mass lies, cumulants, saddle points, tails.
// Nothing here enters a guarantee. A bad estimate makes an interval wide, never wrong.
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

// Without the ends that hold at most `tail` of the tilted mass, or, on the right, at most
// `infinity_mass` of the P-mass.
Sketch trimmed(const Sketch& sketch, double tilt, double tail, double infinity_mass);

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
