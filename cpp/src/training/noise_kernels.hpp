// The inner loops of noise.cpp, compiled once per instruction set. All versions return the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hockeystick/ieee.hpp"

namespace hockeystick::kernels {

// Normals are made 128 at a time: 16 ChaCha20 blocks of 8.
inline constexpr std::size_t noise_tile = 128;

// What one step does with the rows before it: row i is
//   (gain z_i - sum over k of coefficients[k] history[offsets[k] ..]) / divisor.
struct NoiseTaps {
    double gain, divisor;
    const double* coefficients;
    const std::size_t* offsets;
    std::size_t count;
};

struct NoiseTable {
    const char* name;
    // The standard normals of coordinates 128 first_tile, ... in one step; the key has 8 words.
    void (*normals)(const std::uint32_t* key, std::uint32_t step, std::uint64_t first_tile, std::size_t tiles,
                    double* out);
    // One step in place, for `count` coordinates, a multiple of 128: `row` holds z_i, and then row i.
    void (*combine_double)(const NoiseTaps& taps, const double* history, std::size_t count, double* row);
    void (*combine_single)(const NoiseTaps& taps, const float* history, std::size_t count, double* row);
};

const NoiseTable& noise_table();
// nullptr where the machine or the build does not have it: "baseline", "avx2", "avx512".
const NoiseTable* find_noise_table(const char* name);

}  // namespace hockeystick::kernels
