// The ChaCha20 block function (RFC 8439, Section 2.3): random numbers by counter that nobody without
// the key can tell from uniform ones, or predict from others.
#pragma once

#include <array>
#include <cstdint>

namespace hockeystick {

using ChaChaKey = std::array<std::uint32_t, 8>;

// The 16 words of one block. As bytes, key, nonce and output are little-endian words.
std::array<std::uint32_t, 16> chacha20(const ChaChaKey& key, std::uint32_t counter,
                                       const std::array<std::uint32_t, 3>& nonce) noexcept;

}  // namespace hockeystick
