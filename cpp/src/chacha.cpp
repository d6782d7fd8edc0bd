#include "hockeystick/chacha.hpp"

#include <bit>
#include <cstddef>

namespace hockeystick {
namespace {

using Block = std::array<std::uint32_t, 16>;

void quarter_round(Block& x, std::size_t a, std::size_t b, std::size_t c, std::size_t d) noexcept {
    x[a] += x[b];
    x[d] = std::rotl(x[d] ^ x[a], 16);
    x[c] += x[d];
    x[b] = std::rotl(x[b] ^ x[c], 12);
    x[a] += x[b];
    x[d] = std::rotl(x[d] ^ x[a], 8);
    x[c] += x[d];
    x[b] = std::rotl(x[b] ^ x[c], 7);
}

}  // namespace

Block chacha20(const ChaChaKey& key, std::uint32_t counter,
               const std::array<std::uint32_t, 3>& nonce) noexcept {
    // "expand 32-byte k", key, counter, nonce
    const Block start = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, key[0], key[1],
                         key[2],     key[3],     key[4],     key[5],     key[6], key[7],
                         counter,    nonce[0],   nonce[1],   nonce[2]};
    Block x = start;
    for (int round = 0; round < 10; ++round) {
        quarter_round(x, 0, 4, 8, 12);
        quarter_round(x, 1, 5, 9, 13);
        quarter_round(x, 2, 6, 10, 14);
        quarter_round(x, 3, 7, 11, 15);
        quarter_round(x, 0, 5, 10, 15);
        quarter_round(x, 1, 6, 11, 12);
        quarter_round(x, 2, 7, 8, 13);
        quarter_round(x, 3, 4, 9, 14);
    }
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += start[i];
    return x;
}

void KeyedStream::refill() noexcept {
    words_ = chacha20(key_, static_cast<std::uint32_t>(block_),
                      {static_cast<std::uint32_t>(block_ >> 32), step_, purpose_});
    ++block_;
    used_ = 0;
}

}  // namespace hockeystick
