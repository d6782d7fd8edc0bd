// Step functions below a density, as sums of rectangles, whose transforms are known.
#pragma once

#include <vector>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

class Rectangles {
public:
    // A step function, step by step: each begins where the last one ended, or after close(). They go one way,
    // up or down. Each of its rectangles is as wide as it can be.
    void extend(double from, double to, double height);
    void close();
    // sum of a_i (1 - S(tau |I_i|/2)), S(x) >= sup over x' >= x of |sinc x'|: by so much the transform at
    // every frequency from tau on is less than the mass (docs/accounting/bounds.md, "Exact inversion").
    double deficit(double tau) const;
    // The same where edges are whole numbers and each rectangle stands for atoms at as many points of a
    // lattice; for angles up to pi, half a period.
    double lattice_deficit(double angle) const;

private:
    struct Rectangle {
        double length, mass;
    };
    std::vector<Rectangle> rectangles_;
    std::vector<double> edges_, heights_;  // of the step function that is not closed yet
};

}  // namespace hockeystick
