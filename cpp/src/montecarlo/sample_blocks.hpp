// How samples are grouped: blocks of some milliseconds of work, and batches of blocks between two calls of
// poll.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <vector>

#include "hockeystick/likelihood.hpp"
#include "hockeystick/parallel.hpp"

namespace hockeystick {

// Samples per block, where one takes so much work, in iterations: a function of the description alone.
inline std::size_t samples_per_block(double sample_work) {
    constexpr double block_work = 0x1p21;
    constexpr std::size_t largest_block = 4096;
    const auto wanted = static_cast<std::size_t>(block_work / sample_work);
    return std::clamp(std::bit_floor(std::max<std::size_t>(wanted, 1)), group_size, largest_block);
}

// body(0), ..., body(blocks - 1), in parallel; poll is called every fraction of a second, and seldom enough
// that waiting for the last block of a batch costs little.
inline void in_batches(std::size_t blocks, double block_work, const std::function<void()>& poll,
                       const std::function<void(std::size_t)>& body) {
    const double each = std::clamp(0x1p27 / std::max(block_work, 1.0), 1.0, 64.0);
    const auto batch = static_cast<std::size_t>(each) * static_cast<std::size_t>(max_threads());
    for (std::size_t start = 0; start < blocks; start += batch) {
        if (poll) poll();
        parallel_for(std::min(batch, blocks - start), [&](std::size_t i) { body(start + i); });
    }
    if (poll) poll();
}

// All samples of the blocks, `width` numbers each. evaluate(block, lane, rows) fills the rows of a group of
// samples: number k of sample s is rows[k * group_size + s].
template <class Evaluate>
std::vector<double> all_samples(std::size_t blocks, std::size_t block_size, std::size_t width,
                                double block_work, const std::function<void()>& poll,
                                const Evaluate& evaluate) {
    std::vector<double> out(blocks * block_size * width);
    in_batches(blocks, block_work, poll, [&](std::size_t block) {
        Rows rows(width);
        for (std::size_t lane = 0; lane < block_size; lane += group_size) {
            evaluate(block, lane, rows[0]);
            for (std::size_t s = 0; s < group_size; ++s) {
                for (std::size_t k = 0; k < width; ++k) {
                    out[(block * block_size + lane + s) * width + k] = rows[k][s];
                }
            }
        }
    });
    return out;
}

}  // namespace hockeystick
