// What a profile is made from, as Python passes it.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hockeystick/profile.hpp"

namespace hockeystick::bindings {

inline Engine engine_kind(const std::string& engine) {
    if (engine == "auto") return Engine::automatic;
    if (engine == "fft") return Engine::fft;
    if (engine == "prv") return Engine::prv;
    throw pybind11::value_error("engine must be 'auto', 'fft' or 'prv', not '" + engine + "'");
}

// Directions as Python lists them, in a form that pybind11 can fill; pairs are immutable all the same.
using Directions = std::vector<std::vector<std::pair<std::shared_ptr<Pair>, std::uint64_t>>>;

inline std::vector<Composition> compositions(const Directions& directions) {
    std::vector<Composition> out;
    for (const auto& direction : directions) out.emplace_back(direction.begin(), direction.end());
    return out;
}

}  // namespace hockeystick::bindings
