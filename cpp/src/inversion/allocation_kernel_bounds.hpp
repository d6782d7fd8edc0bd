// How large E[V^k e^{-sV}] is at most along rays in the right half-plane, from values at some real s
// (docs/mechanisms/allocation.md, "Moments": nodes at the ends).
#pragma once

#include <vector>

#include "hockeystick/pairs.hpp"

namespace hockeystick {

class KernelBounds {
public:
    // From values at s = e^{first}, ..., e^{last}, and a bit more on both sides.
    KernelBounds(const Allocation& law, int k, double first, double last);
    // ln of a bound wherever arg s = angle and |s| >= e^{log_modulus}; infinite where none is known.
    double at(double angle, double log_modulus) const;

private:
    double turned_by(double turn, double angle, double log_modulus) const;
    // The last of the points that is not beyond that one, or less than none.
    long before(double log_modulus) const;

    Allocation law_;
    double first_;
    std::vector<std::vector<double>> log_terms_;  // of each point, ln of E[(W/T)^j e^{-sW/T}]/j!, rounded up
};

}  // namespace hockeystick
