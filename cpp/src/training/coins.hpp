// Which of n independent coins of one small probability show heads, in time proportional to the heads.
//
// Coins come in blocks of 2^k, about four heads each. The number of heads of a block is drawn by inversion
// of its binomial law, which is known to 256 bits and drawn with as many random bits as the comparison needs;
// then their places, all different. No logarithm is rounded on the way, as it is in geometric gaps.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "hockeystick/parallel.hpp"

#include "hockeystick/chacha.hpp"

namespace hockeystick {

class Coins {
public:
    // Coins of this probability, in [0, 1], for up to `most` of them at a time.
    Coins(double probability, std::uint64_t most);
    // Coins of probability w p / (1 + w p), w an integer: to be barred in the stationary state of
    // b-min-sep sampling, w = b - 1.
    static Coins stationary(double probability, std::uint64_t weight, std::uint64_t most);

    // Calls heads(i) for each i in [0, count) whose coin shows heads, in ascending order. The law differs
    // from independent coins by less than 2^-246 in total variation for each block of block_size() coins
    // begun, and such that there are fewer heads (docs/sampling/batches.md, "How exact the law is").
    template <typename Heads>
    void toss(KeyedStream& stream, std::uint64_t count, const Heads& heads) const {
        if (certain_) {
            for (std::uint64_t i = 0; i < count; ++i) {
                if (i % between_polls == 0) interruption_point();
                heads(i);
            }
            return;
        }
        if (thresholds_.empty()) return;
        std::vector<std::uint64_t> places;
        for (std::uint64_t first = 0; first < count; first += block_size()) {
            if (first % between_polls < block_size()) interruption_point();
            places_in_block(stream, places);
            for (const std::uint64_t place : places) {
                if (place >= count - first) return;  // ascending: beyond the end there is nobody
                heads(first + place);
            }
            if (count - first <= block_size()) return;  // first + block_size() may overflow
        }
    }

    std::uint64_t block_size() const noexcept { return std::uint64_t{1} << block_bits_; }
    // Pr[at least j + 1 heads in a block] rounded down to 256 bits, most significant word first.
    using Threshold = std::array<std::uint64_t, 4>;
    std::span<const Threshold> thresholds() const noexcept { return thresholds_; }

private:
    static constexpr std::uint64_t between_polls = 1 << 20;  // speed: coins of some milliseconds

    Coins() = default;
    void places_in_block(KeyedStream& stream, std::vector<std::uint64_t>& places) const;

    bool certain_ = false;
    unsigned block_bits_ = 0;
    std::vector<Threshold> thresholds_;
};

// A uniformly random set of `size` of the numbers below n, ascending; size <= n. Expected time
// O(size log size).
std::vector<std::uint64_t> random_subset(KeyedStream& stream, std::uint64_t n, std::uint64_t size);

}  // namespace hockeystick
