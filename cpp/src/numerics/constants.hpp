// The constants that nearly every bound is written with, for private files to include.
#pragma once

#include <limits>
#include <numbers>

#include "numerics/special.hpp"

namespace hockeystick {

inline constexpr double u = unit_roundoff;
inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double pi = std::numbers::pi;

}  // namespace hockeystick
