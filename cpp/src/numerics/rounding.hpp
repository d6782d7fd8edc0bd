// Steps of few bits.
#pragma once

#include <cmath>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// The largest number of 16 bits that is at most h: every multiple k h, |k| <= 2^37, is exact.
inline double rounded_down(double h) {
    int exponent;
    const double mantissa = std::frexp(h, &exponent);
    return std::ldexp(std::floor(mantissa * 65536) / 65536, exponent);
}

}  // namespace hockeystick
