// Estimates that steer the engine: cumulants, saddle points, tails of a composition of sketches. Nothing here
// enters a guarantee (docs/accounting/bounds.md, "What is not certified").
#pragma once

#include <cstdint>
#include <vector>

#include "lattice/sketch.hpp"

namespace hockeystick {

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
