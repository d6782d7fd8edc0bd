// Refusals of arguments: std::invalid_argument with a message that says what they must be.
#pragma once

#include <stdexcept>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// Written so that a comparison with nan is refused.
inline void require(bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
}

}  // namespace hockeystick
