// What several pairs share: tangents beyond an end of the support, and checks of what they are made from.
#pragma once

#include <algorithm>
#include <cmath>

#include "hockeystick/pairs.hpp"
#include "numerics/constants.hpp"
#include "numerics/require.hpp"

namespace hockeystick {

// proof: so many deviations out, all Gaussian tails are 0 in every double, and squares are not infinite.
inline constexpr double farthest_out = 1e100;

// Below every finite loss: all of P lies above, and the profile is the line 1 - e^x.
inline Tangent nothing_below(double x) { return {-std::expm1(x), std::exp(x), 0.0, 4 * u, 4 * u, 0.0}; }
// Above every loss: all of Q lies below, and "below" is the line e^x - 1, scaled by e^x.
inline Tangent everything_below(double x) {
    return x > 0 ? Tangent{-std::expm1(-x), 1.0, x, 4 * u, 4 * u, 0.0}
                 : Tangent{std::expm1(x), std::exp(x), 0.0, 4 * u, 4 * u, 0.0};
}

// A product that must not vanish: where infinity has a mass, the profile nowhere reaches 0.
inline double share_of_mass(double weight, double mass) {
    return weight > 0 && mass > 0 ? std::max(weight * mass, 5e-324) : 0.0;
}

}  // namespace hockeystick
