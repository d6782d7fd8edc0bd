// ChaCha20's rounds (RFC 8439, Section 2.3) for one block, or for several side by side where Word is a
// vector.
//
// Included where files are compiled for one instruction set as well: everything here has internal linkage.
#pragma once

#include <cstdint>

namespace {

// "expand 32-byte k", the first four words of every block.
constexpr std::uint32_t chacha_constants[] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};

template <int bits, typename Word>
[[gnu::always_inline]] inline void add_xor_rotate(Word& a, const Word& b, Word& d) {
    a += b;
    d ^= a;
    d = d << bits | d >> (32 - bits);
}

template <typename Word>
[[gnu::always_inline]] inline void quarter_round(Word& a, Word& b, Word& c, Word& d) {
    add_xor_rotate<16>(a, b, d);
    add_xor_rotate<12>(c, d, b);
    add_xor_rotate<8>(a, b, d);
    add_xor_rotate<7>(c, d, b);
}

template <typename Word>
[[gnu::always_inline]] inline void chacha_rounds(Word* x) {
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
}

}  // namespace
