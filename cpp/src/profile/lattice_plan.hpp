// On which lattice a composition is answered: tilt, step, window and points. All of it is chosen from
// estimates: a poor choice makes an interval wide, never wrong (docs/accounting/bounds.md, "What is not
// certified").
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hockeystick/answer.hpp"
#include "lattice/sketch.hpp"

namespace hockeystick {

using Steps = std::vector<SketchedStep>;

// speed: lines that touch the profile once in every bin gain nothing in wider bins, and hardly find their
// way.
inline constexpr double widest_support = 2;

// How fine a lattice is to be.
struct Fineness {
    std::size_t size_limit;  // of the transform
    double tolerance;        // of eps
    double least_epsilon;    // that delta is asked at
    double shrink = 1;       // of the step that the estimates say
    bool steep = false;      // the saddle's own tilt and careful powers, where round-off rules
};

// All that lattices are made from.
struct LatticeKey {
    const Steps* steps;
    double tilt, step;
    double log_mass;       // of the tilted sum, what may lie outside the window
    double infinity_mass;  // a jump with at most this P-mass may as well be infinite
    double points_tilt;    // the tilt under which points are dense where the loss has mass
    double least_epsilon;  // that losses may be too small to count for; -inf where none is
    bool careful;          // see compose()
    bool operator==(const LatticeKey&) const = default;
};

struct LatticePlan {
    LatticeKey key;
    Steps kept;             // the sketches without what matters to nothing
    TailPoint left, right;  // where the tilted sum has a mass of e^log_mass to either side
};
// left_out: the P-mass of a step that the sketches are without.
LatticePlan plan_lattice(const Composition& composition, const Steps& steps, const Saddle& saddle,
                         double left_out, const Fineness& fineness);

// Points for each kind of step, and the window of the composition with its further tilts.
struct LatticeWindow {
    std::vector<std::vector<std::int64_t>> points;
    std::int64_t first;
    std::size_t size;
    double theta_left, theta_right;
};
LatticeWindow window_of(const LatticePlan& plan);

}  // namespace hockeystick
