// Weights of the components of a mixture that samples are drawn from.
#pragma once

#include <cmath>
#include <cstddef>

namespace hockeystick {

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
