// Coefficients shared by the scalar and the vector versions of exp, log, sin and cos
// (tools/lane_coefficients.py prints them). Results must not depend on the C library.
#pragma once

#include <cstdint>

#include "hockeystick/ieee.hpp"

namespace hockeystick::polynomial {

inline constexpr double log2_e = 0x1.71547652b82fep+0;
// ln 2 in two parts; the first has 32 bits, so that its product with a 21-bit integer is exact.
inline constexpr double ln2_high = 0x1.62e42feep-1;
inline constexpr double ln2_low = 0x1.a39ef35793c76p-33;
inline constexpr double ln2 = 0x1.62e42fefa39efp-1;
// The bits of sqrt(1/2).
inline constexpr std::uint64_t root_half_bits = 0x3FE6A09E667F3BCD;

// exp(x), |x| <= ln(2)/2: relative error 1.67e-17
inline constexpr double exponential[] = {
    0x1.0000000000000p+0,  0x1.0000000000000p+0,  0x1.0000000000011p-1,  0x1.555555555555ap-3,
    0x1.555555554f0cfp-5,  0x1.111111110f225p-7,  0x1.6c16c187fbe02p-10, 0x1.a01a01b14378fp-13,
    0x1.a01991ac87309p-16, 0x1.71ddf5749d126p-19, 0x1.28b4057f44190p-22, 0x1.af631d0059c48p-26,
};

// (atanh(s) - s)/s^3 in s^2, |s| <= (sqrt(2) - 1)/(sqrt(2) + 1): relative error 5.55e-17
inline constexpr double logarithm[] = {
    0x1.5555555555555p-2, 0x1.9999999999998p-3, 0x1.2492492492959p-3,
    0x1.c71c71c64c8ccp-4, 0x1.745d17d35328cp-4, 0x1.3b137b347f3c2p-4,
    0x1.111d273ca8a72p-4, 0x1.debedbffa1d35p-5, 0x1.e6afc55fa9849p-5,
};

// 4 atanh(s)/s in s^2, on the same interval: relative error 5.42e-19
inline constexpr double four_atanh[] = {
    0x1.0000000000000p+2, 0x1.5555555555555p+0, 0x1.999999999998cp-1, 0x1.2492492493c37p-1,
    0x1.c71c71c491254p-2, 0x1.745d18877cbdfp-2, 0x1.3b1350aad03e4p-2, 0x1.1122f5c327025p-2,
    0x1.dde556accb6b8p-3, 0x1.ed493fc12c1c5p-3,
};

// 2^x, |x| <= 1/2: relative error 2.0e-17
inline constexpr double power_of_two[] = {
    0x1.0000000000000p+0,  0x1.62e42fefa39efp-1,  0x1.ebfbdff82c5aep-3,  0x1.c6b08d704a0c6p-5,
    0x1.3b2ab6fb9f1a5p-7,  0x1.5d87fe78a3f9cp-10, 0x1.430913112c61bp-13, 0x1.ffcbfc6da6ed1p-17,
    0x1.62bfc2c86d700p-20, 0x1.b524ebd13a55fp-24, 0x1.e6228acd1c70fp-28, 0x1.e9ec1fcb69aa3p-32,
};

// sin(2 pi r)/r in r^2, |r| <= 1/8: relative error 3.9e-17
inline constexpr double sine[] = {
    0x1.921fb54442d18p+2, -0x1.4abbce625be41p+5, 0x1.466bc677587f8p+6, -0x1.32d2cce2e5b19p+6,
    0x1.50782fda12d96p+5, -0x1.e30071afc3e59p+3, 0x1.e3f38399551bfp+1,
};

// cos(2 pi r) in r^2, |r| <= 1/8: relative error 2.12e-17
inline constexpr double cosine[] = {
    0x1.0000000000000p+0, -0x1.3bd3cc9be45dep+4, 0x1.03c1f081b5aacp+6, -0x1.55d3c7e3c90f8p+6,
    0x1.e1f5068355e15p+5, -0x1.a6d1ec7906c20p+4, 0x1.f9cc41140bb60p+2, -0x1.b264ba152378ap+0,
};

}  // namespace hockeystick::polynomial
