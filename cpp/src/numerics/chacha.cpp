#include "hockeystick/chacha.hpp"

#include <algorithm>
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

namespace {

// The same for `lanes` blocks side by side, which compilers turn into vector instructions.
constexpr std::size_t lanes = 8;
using Lanes = std::array<std::uint32_t, lanes>;

void add_xor_rotate(Lanes& a, const Lanes& b, Lanes& d, int rotation) noexcept {
    for (std::size_t i = 0; i < lanes; ++i) {
        a[i] += b[i];
        d[i] = std::rotl(d[i] ^ a[i], rotation);
    }
}

void quarter_round(Lanes& a, Lanes& b, Lanes& c, Lanes& d) noexcept {
    add_xor_rotate(a, b, d, 16);
    add_xor_rotate(c, d, b, 12);
    add_xor_rotate(a, b, d, 8);
    add_xor_rotate(c, d, b, 7);
}

}  // namespace

void KeyedStream::refill() noexcept {
    used_ = 0;
    if (block_ == 0) {  // many streams end here
        const Block first = chacha20(key_, 0, {0, step_, purpose_});
        std::copy(first.begin(), first.end(), words_.begin());
        filled_ = first.size();
        block_ = 1;
        return;
    }
    const Block constants = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, key_[0], key_[1],
                             key_[2],    key_[3],    key_[4],    key_[5],    key_[6], key_[7],
                             0,          0,          step_,      purpose_};
    std::array<Lanes, 16> start;
    for (std::size_t w = 0; w < 16; ++w) start[w].fill(constants[w]);
    for (std::size_t i = 0; i < lanes; ++i) {
        start[12][i] = static_cast<std::uint32_t>(block_ + i);
        start[13][i] = static_cast<std::uint32_t>((block_ + i) >> 32);
    }
    std::array<Lanes, 16> x = start;
    for (int round = 0; round < 10; ++round) {
        quarter_round(x[0], x[4], x[8], x[12]);
        quarter_round(x[1], x[5], x[9], x[13]);
        quarter_round(x[2], x[6], x[10], x[14]);
        quarter_round(x[3], x[7], x[11], x[15]);
        quarter_round(x[0], x[5], x[10], x[15]);
        quarter_round(x[1], x[6], x[11], x[12]);
        quarter_round(x[2], x[7], x[8], x[13]);
        quarter_round(x[3], x[4], x[9], x[14]);
    }
    for (std::size_t w = 0; w < 16; ++w) {
        for (std::size_t i = 0; i < lanes; ++i) words_[16 * i + w] = x[w][i] + start[w][i];
    }
    filled_ = words_.size();
    block_ += lanes;
}

}  // namespace hockeystick
