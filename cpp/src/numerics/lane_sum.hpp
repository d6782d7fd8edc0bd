// The sum of lanes that were added up apart.
#pragma once

#include <array>
#include <bit>
#include <cstddef>

namespace hockeystick {

// In pairs, so that the bits are the same whatever the processor; of however many lanes there are.
template <std::size_t lanes>
double sum_of(std::array<double, lanes> partial) {
    static_assert(std::has_single_bit(lanes));
    for (std::size_t left = lanes / 2; left > 0; left /= 2)
        for (std::size_t i = 0; i < left; ++i) partial[i] = partial[2 * i] + partial[2 * i + 1];
    return partial[0];
}

}  // namespace hockeystick
