// The two constants that nearly every bound is written with, for private files to include.
#pragma once

#include <limits>

#include "numerics/special.hpp"

namespace hockeystick {

inline constexpr double u = unit_roundoff;
inline constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace hockeystick
