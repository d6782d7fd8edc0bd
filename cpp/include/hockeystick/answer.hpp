// What is asked and what is answered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hockeystick/pairs.hpp"

namespace hockeystick {

// Pairs with the number of times that each is used.
using Composition = std::vector<std::pair<PairPtr, std::uint64_t>>;

// An answer with its guarantee lower <= truth <= upper. The terms say, in units of delta at the
// upper bound, where the distance comes from.
struct Answer {
    double lower = 0, upper = 0;
    std::string engine;         // "closed form", "inversion", "fft" or "prv"
    std::size_t direction = 0;  // which direction attains the upper bound
    double discretisation = 0, truncation = 0, wrap_around = 0, round_off = 0;
    double step = 0;       // lattice step; for the inversion that of the frequency
    std::size_t size = 0;  // transform length; for the inversion the number of frequencies
};

}  // namespace hockeystick
