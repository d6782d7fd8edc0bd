// How samples are grouped: blocks of some milliseconds of work, and batches of blocks between two calls of
// poll. No result depends on it but through the size of a block (docs/montecarlo/estimates.md, "What is
// drawn").
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "hockeystick/likelihood.hpp"
#include "hockeystick/parallel.hpp"

namespace hockeystick {

// Samples per block, where one takes so much work, in iterations: a function of the description alone.
inline std::size_t samples_per_block(double sample_work) {
    constexpr double block_work = 0x1p21;        // speed
    constexpr std::size_t largest_block = 4096;  // speed
    const auto wanted = static_cast<std::size_t>(block_work / sample_work);
    return std::clamp(std::bit_floor(std::max<std::size_t>(wanted, 1)), group_size, largest_block);
}

// body(0), ..., body(blocks - 1), in parallel; poll is called every fraction of a second, and seldom enough
// that waiting for the last block of a batch costs little.
inline void in_batches(std::size_t blocks, double block_work, const std::function<void()>& poll,
                       const std::function<void(std::size_t)>& body) {
    constexpr double batch_work = 0x1p27;  // speed
    const double each = std::clamp(batch_work / std::max(block_work, 1.0), 1.0, 64.0);
    const auto batch = static_cast<std::size_t>(each) * static_cast<std::size_t>(max_threads());
    for (std::size_t start = 0; start < blocks; start += batch) {
        if (poll) poll();
        parallel_for(std::min(batch, blocks - start), [&](std::size_t i) { body(start + i); });
    }
    if (poll) poll();
}

// The samples of some blocks, each `width` numbers. evaluate(block, lane, rows) fills the rows of a group of
// samples: number k of sample s is rows[k][s].
struct SampleBlocks {
    std::size_t blocks, block_size, width;
    double block_work;
    const std::function<void()>& poll;

    // visit(first sample of the group, its rows), for all groups.
    template <class Evaluate, class Visit>
    void each_group(const Evaluate& evaluate, const Visit& visit) const {
        in_batches(blocks, block_work, poll, [&](std::size_t block) {
            Rows rows(width);
            for (std::size_t lane = 0; lane < block_size; lane += group_size) {
                evaluate(block, lane, rows[0]);
                visit(block * block_size + lane, rows);
            }
        });
    }

    // All numbers, sample by sample.
    template <class Evaluate>
    std::vector<double> samples(const Evaluate& evaluate) const {
        std::vector<double> out(blocks * block_size * width);
        each_group(evaluate, [&](std::size_t first, const Rows& rows) {
            rows.by_sample(width, out.data() + first * width, width);
        });
        return out;
    }

    // value(epsilon, rows, s) for each epsilon: [epsilon][sample].
    template <class Evaluate, class Value>
    std::vector<double> values(std::span<const double> epsilons, const Evaluate& evaluate,
                               const Value& value) const {
        const std::size_t count = blocks * block_size;
        std::vector<double> out(epsilons.size() * count);
        each_group(evaluate, [&](std::size_t first, const Rows& rows) {
            for (std::size_t e = 0; e < epsilons.size(); ++e) {
                for (std::size_t s = 0; s < group_size; ++s) {
                    out[e * count + first + s] = value(epsilons[e], rows, s);
                }
            }
        });
        return out;
    }
};

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
