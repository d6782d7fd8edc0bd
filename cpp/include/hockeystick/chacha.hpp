// The ChaCha20 block function (RFC 8439, Section 2.3): random numbers by counter that nobody without
// the key can tell from uniform ones, or predict from others.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

using ChaChaKey = std::array<std::uint32_t, 8>;

// The 16 words of one block. As bytes, key, nonce and output are little-endian words.
std::array<std::uint32_t, 16> chacha20(const ChaChaKey& key, std::uint32_t counter,
                                       const std::array<std::uint32_t, 3>& nonce) noexcept;

// The blocks of one (key, step, purpose), word after word.
class KeyedStream {
public:
    KeyedStream(const ChaChaKey& key, std::uint32_t step, std::uint32_t purpose) noexcept
        : key_(key), step_(step), purpose_(purpose) {}

    std::uint32_t word() noexcept {
        if (used_ == filled_) refill();
        return words_[used_++];
    }
    std::uint64_t bits() noexcept {
        const std::uint64_t low = word();
        return low | std::uint64_t{word()} << 32;
    }
    // `count` random bits, count <= 64.
    std::uint64_t bits(unsigned count) noexcept {
        if (count <= 32) return count == 0 ? 0 : word() >> (32 - count);
        return bits() >> (64 - count);
    }
    // Uniform in {0, ..., n - 1}, n >= 1, exactly.
    std::uint64_t below(std::uint64_t n) noexcept {
        if (n <= std::uint64_t{1} << 32) {
            // The upper half of word * n, less the 2^32 mod n products that would make some values more
            // likely than others (Lemire 2019).
            for (;;) {
                const std::uint64_t product = word() * n, low = product & 0xFFFFFFFF;
                if (low >= n || low >= (std::uint64_t{1} << 32) % n) return product >> 32;
            }
        }
        const auto width = static_cast<unsigned>(std::bit_width(n - 1));
        for (;;) {
            const std::uint64_t value = bits(width);
            if (value < n) return value;
        }
    }

private:
    void refill() noexcept;

    ChaChaKey key_;
    std::uint32_t step_, purpose_;
    std::uint64_t block_ = 0;
    std::array<std::uint32_t, 128> words_{};
    std::size_t used_ = 0, filled_ = 0;
};

}  // namespace hockeystick
