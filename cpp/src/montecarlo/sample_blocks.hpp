// How samples are grouped: blocks of some milliseconds of work (docs/montecarlo/estimates.md, "What is
// drawn"). And which component of a mixture a sample comes from.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "hockeystick/likelihood.hpp"

namespace hockeystick {

// Samples per block, where one takes so much work, in iterations: a function of the description alone.
inline std::size_t samples_per_block(double sample_work) {
    constexpr double block_work = 0x1p21;        // speed
    constexpr std::size_t largest_block = 4096;  // speed
    const auto wanted = static_cast<std::size_t>(block_work / sample_work);
    return std::clamp(std::bit_floor(std::max<std::size_t>(wanted, 1)), group_size, largest_block);
}

// Makes weights in [0, 1] that add up to 1, but for rounding (1e-9: proof), do so exactly; false where they
// do not.
template <class Parts>
bool normalise_weights(Parts& parts) {
    double total = 0;
    for (const auto& part : parts) {
        if (!(part.weight >= 0 && part.weight <= 1)) return false;
        total += part.weight;
    }
    if (!(std::abs(total - 1) < 1e-9)) return false;
    for (auto& part : parts) part.weight /= total;
    return true;
}

// Which of the weights, which add up to 1, a uniform number falls on. The last positive one takes what
// rounding leaves.
template <class Parts>
std::size_t chosen(double u, const Parts& parts) {
    std::size_t k = 0;
    for (std::size_t j = 0; j < parts.size(); ++j) {
        if (parts[j].weight == 0) continue;
        k = j;
        if (u <= parts[j].weight) break;
        u -= parts[j].weight;
    }
    return k;
}

}  // namespace hockeystick
