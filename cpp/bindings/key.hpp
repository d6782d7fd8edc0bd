// Secret keys: 32 bytes of Python become words of the core.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "hockeystick/chacha.hpp"

namespace hockeystick::bindings {

inline ChaChaKey key_of(const pybind11::bytes& secret) {
    const std::string bytes = secret;
    ChaChaKey key{};
    if (bytes.size() != 4 * key.size()) throw pybind11::value_error("key must have 32 bytes");
    for (std::size_t i = 0; i < bytes.size(); ++i) {  // little-endian words, on any machine
        key[i / 4] |= std::uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * (i % 4));
    }
    return key;
}

}  // namespace hockeystick::bindings
