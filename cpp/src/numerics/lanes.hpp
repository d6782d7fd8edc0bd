// Vectors of doubles as wide as the instruction set this file is compiled for, and the functions the
// Monte Carlo kernels need on them. Every operation acts on each element alone and rounds once, so
// the results are the same for every width.
//
// Included by files that are compiled once per instruction set only: everything here has internal linkage,
// and nothing here may call code that other files share.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "numerics/polynomials.hpp"

// The name of this version, and of its table of functions.
#define HOCKEYSTICK_PASTE_(a, b) a##_##b
#define HOCKEYSTICK_PASTE(a, b) HOCKEYSTICK_PASTE_(a, b)
#define HOCKEYSTICK_STRING_(a) #a
#define HOCKEYSTICK_STRING(a) HOCKEYSTICK_STRING_(a)
#define HOCKEYSTICK_VERSION(table) HOCKEYSTICK_PASTE(table, HOCKEYSTICK_LANES)
#define HOCKEYSTICK_VERSION_NAME HOCKEYSTICK_STRING(HOCKEYSTICK_LANES)

namespace {

namespace polynomial = hockeystick::polynomial;

// Speed: doubles of a vector; no result depends on it.
#if defined(__AVX512F__) && defined(__AVX512DQ__)
constexpr std::size_t width = 8;
#elif defined(__AVX2__)
constexpr std::size_t width = 4;
#else
constexpr std::size_t width = 2;
#endif

typedef double V __attribute__((vector_size(8 * width)));
typedef std::uint64_t U __attribute__((vector_size(8 * width)));
typedef std::int64_t I __attribute__((vector_size(8 * width)));

#define LANES_INLINE [[gnu::always_inline]] inline

// Written this way compilers see a broadcast; x - 0 is x, for every x.
LANES_INLINE V splat(double x) { return x - V{}; }
LANES_INLINE U splat_bits(std::uint64_t x) { return x - U{}; }

LANES_INLINE V load(const double* p) { return *reinterpret_cast<const V*>(p); }
LANES_INLINE void store(double* p, V v) { *reinterpret_cast<V*>(p) = v; }

// a > b ? a : b, which is b where a is nan.
LANES_INLINE V max(V a, V b) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    return reinterpret_cast<V>(_mm512_max_pd(reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b)));
#elif defined(__AVX2__)
    return reinterpret_cast<V>(_mm256_max_pd(reinterpret_cast<__m256d>(a), reinterpret_cast<__m256d>(b)));
#elif defined(__SSE2__)
    return reinterpret_cast<V>(_mm_max_pd(reinterpret_cast<__m128d>(a), reinterpret_cast<__m128d>(b)));
#else
    return a > b ? a : b;
#endif
}
LANES_INLINE V select(I mask, V a, V b) { return mask ? a : b; }

LANES_INLINE bool any(I mask) {  // elements are 0 or -1
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    return _mm512_movepi64_mask(reinterpret_cast<__m512i>(mask)) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_pd(reinterpret_cast<__m256d>(mask)) != 0;
#elif defined(__SSE2__)
    return _mm_movemask_pd(reinterpret_cast<__m128d>(mask)) != 0;
#else
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < width; ++i) sum |= mask[i];
    return sum != 0;
#endif
}

LANES_INLINE V square_root(V x) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    return reinterpret_cast<V>(_mm512_sqrt_pd(reinterpret_cast<__m512d>(x)));
#elif defined(__AVX2__)
    return reinterpret_cast<V>(_mm256_sqrt_pd(reinterpret_cast<__m256d>(x)));
#elif defined(__SSE2__)
    return reinterpret_cast<V>(_mm_sqrt_pd(reinterpret_cast<__m128d>(x)));
#else
    for (std::size_t i = 0; i < width; ++i) x[i] = __builtin_sqrt(x[i]);
    return x;
#endif
}

// The 64-bit product of the lower halves.
LANES_INLINE U multiply_low(U a, U b) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    return reinterpret_cast<U>(_mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
    return reinterpret_cast<U>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__SSE2__)
    return reinterpret_cast<U>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
    return (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF);
#endif
}

// Proof: adding and subtracting it rounds a double of magnitude below 2^51 to the nearest integer.
constexpr double rounder = 0x1.8p52;

LANES_INLINE V round(V x) { return (x + splat(rounder)) - splat(rounder); }

// 2^x for integers x <= 1023; exactly 0 for x <= -1023.
LANES_INLINE V power_of_two(V x) {
    const V biased = max(x, splat(-1023)) + splat(rounder + 1023);
    return reinterpret_cast<V>(reinterpret_cast<U>(biased) << 52);
}

// A polynomial by Estrin's scheme: halves of 1, 2, 4, ... coefficients, so that few operations wait for
// each other. powers[j] = x^(2^j).
template <std::size_t first, std::size_t count, std::size_t size>
LANES_INLINE V terms(const double (&coefficients)[size], const V* powers) {
    if constexpr (count == 1) {
        return splat(coefficients[first]);
    } else {
        constexpr std::size_t level = count > 8 ? 3 : count > 4 ? 2 : count > 2 ? 1 : 0;
        constexpr std::size_t half = std::size_t{1} << level;
        return terms<first, half>(coefficients, powers) +
               terms<first + half, count - half>(coefficients, powers) * powers[level];
    }
}

template <std::size_t size>
LANES_INLINE V polynomial_at(const double (&coefficients)[size], V x) {
    static_assert(size > 4 && size <= 16);
    const V square = x * x, fourth = square * square;
    const V powers[] = {x, square, fourth, fourth * fourth};
    return terms<0, size>(coefficients, powers);
}

// mantissa * 2^exponent; exponents are integers, of any size a double counts exactly. A zero has
// the exponent `nothing`, below every other.
struct Scaled {
    V mantissa, exponent;
};

constexpr double nothing = -0x1p50;  // proof: an exponent below all others

LANES_INLINE Scaled zero() { return {splat(0), splat(nothing)}; }

LANES_INLINE Scaled operator+(const Scaled& a, const Scaled& b) {
    const V exponent = max(a.exponent, b.exponent);
    return {
        a.mantissa * power_of_two(a.exponent - exponent) + b.mantissa * power_of_two(b.exponent - exponent),
        exponent};
}

LANES_INLINE Scaled operator*(const Scaled& a, const Scaled& b) {
    return {a.mantissa * b.mantissa, a.exponent + b.exponent};
}

// The exponent of a positive mantissa, and the mantissa without it, in [1, 2).
LANES_INLINE V exponent_of(V mantissa) {
    // The exponent field becomes the last bits of a number beginning at 2^52.
    const U field = (reinterpret_cast<U>(mantissa) >> 52) | splat_bits(0x4330000000000000);
    return reinterpret_cast<V>(field) - splat(0x1p52 + 1023);
}
LANES_INLINE V without_exponent(V mantissa) {
    const U fraction = reinterpret_cast<U>(mantissa) & splat_bits(0xFFFFFFFFFFFFF);
    return reinterpret_cast<V>(fraction | splat_bits(0x3FF0000000000000));
}

// The same number with a mantissa in [1, 2). A mantissa that is 0 or nan stays what it is.
LANES_INLINE Scaled normalised(const Scaled& a) {
    const I ordinary = a.mantissa > splat(0);
    const V exponent = a.mantissa == splat(0) ? splat(nothing) : a.exponent;
    return {select(ordinary, without_exponent(a.mantissa), a.mantissa),
            select(ordinary, a.exponent + exponent_of(a.mantissa), exponent)};
}

// e^x for |x| < 2^50, with a mantissa in [0.7, 1.42].
LANES_INLINE Scaled exponential(V x) {
    const V k = round(x * splat(polynomial::log2_e));
    const V r = (x - k * splat(polynomial::ln2_high)) - k * splat(polynomial::ln2_low);
    return {polynomial_at(polynomial::exponential, r), k};
}

// 2^x for |x| <= 1000, times the factor that the coefficients of polynomial::power_of_two were multiplied by;
// nan for nan.
template <std::size_t size>
LANES_INLINE V exponential2(const double (&coefficients)[size], V x) {
    const V shifted = x + splat(rounder + 1023);
    const V rest = x - (shifted - splat(rounder + 1023));
    return polynomial_at(coefficients, rest) * reinterpret_cast<V>(reinterpret_cast<U>(shifted) << 52);
}

// ln(mantissa) + exponent ln 2 for a mantissa in [1, 2), or nan; -inf for zero.
LANES_INLINE V logarithm(const Scaled& a) {
    const I large = a.mantissa > splat(0x1.6a09e667f3bcdp0);
    const V fraction = select(large, a.mantissa * splat(0.5), a.mantissa);
    const V k = a.exponent + select(large, splat(1), splat(0));
    const V s = (fraction - splat(1)) / (fraction + splat(1)), z = s * s;
    const V small =
        splat(2) * s * z * polynomial_at(polynomial::logarithm, z) + k * splat(polynomial::ln2_low);
    const V value = k * splat(polynomial::ln2_high) + (splat(2) * s + small);
    return select(a.mantissa == splat(0), splat(-__builtin_inf()), value);
}

// The nearest double of a 64-bit integer.
LANES_INLINE V from_unsigned(U x) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    return reinterpret_cast<V>(_mm512_cvtepu64_pd(reinterpret_cast<__m512i>(x)));
#else
    // Upper half and lower half as parts of numbers beginning at 2^84 and 2^52: only the sum rounds.
    const U high = (x >> 32) | splat_bits(0x4530000000000000);
    const U low = (x & splat_bits(0xFFFFFFFF)) | splat_bits(0x4330000000000000);
    return (reinterpret_cast<V>(high) - splat(0x1p84 + 0x1p52)) + reinterpret_cast<V>(low);
#endif
}
LANES_INLINE V from_signed(U x) {  // in two's complement
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    return reinterpret_cast<V>(_mm512_cvtepi64_pd(reinterpret_cast<__m512i>(x)));
#else
    const U high = (x >> 32) ^ splat_bits(0x4530000080000000);
    const U low = (x & splat_bits(0xFFFFFFFF)) | splat_bits(0x4330000000000000);
    return (reinterpret_cast<V>(high) - splat(0x1p84 + 0x1p63 + 0x1p52)) + reinterpret_cast<V>(low);
#endif
}

// -2 ln((k + 1/2) 2^-64) for a 64-bit integer k, in [0, 90.2].
LANES_INLINE V minus_two_log(U k) {
    // v = fraction 2^(exponent - 1), fraction in [sqrt(1/2), sqrt(2)).
    const V v = from_unsigned(k) + splat(0.5);
    const U offset =
        reinterpret_cast<U>(v) - splat_bits(polynomial::root_half_bits - (std::uint64_t{1} << 52));
    const V fraction =
        reinterpret_cast<V>((offset & splat_bits(0xFFFFFFFFFFFFF)) + splat_bits(polynomial::root_half_bits));
    const V exponent =
        reinterpret_cast<V>((offset >> 52) | splat_bits(0x4330000000000000)) - splat(0x1p52 + 1 + 64);
    // A rounded ln 2 will do: only where the exponent is 0 is the sum small against its terms.
    const V s = (splat(1) - fraction) / (fraction + splat(1)), z = s * s;
    return exponent * splat(-2 * polynomial::ln2) + s * polynomial_at(polynomial::four_atanh, z);
}

// Two independent standard normals from a radius and a direction (Box and Muller 1958): an angle of `turn`
// turns in (-1/8, 1/8), then one of four quarter turns by the last two bits of `quarter`.
LANES_INLINE void on_circle(V radius, V turn, U quarter, V& z0, V& z1) {
    const V square = turn * turn;
    const V sine = turn * polynomial_at(polynomial::sine, square) * radius;
    V cosine = polynomial_at(polynomial::cosine, square) * radius;
    cosine = reinterpret_cast<V>(reinterpret_cast<U>(cosine) ^ (quarter << 63));
    const I swap = reinterpret_cast<I>(quarter & splat_bits(2)) != 0;
    z0 = select(swap, sine, cosine);
    z1 = select(swap, cosine, sine);
}

// Two independent standard normals from 128 random bits. |z| <= 9.5; the law of each is that of exact
// arithmetic on uniforms of 62 to 64 bits, up to a few roundings.
LANES_INLINE void normal_pair(U radius_bits, U angle_bits, V& z0, V& z1) {
    // (k + 1/2) 2^-62 - 1/2 quarter turns for the upper 62 bits k.
    const U middle = (angle_bits & splat_bits(~std::uint64_t{3})) ^ splat_bits(0x8000000000000002);
    on_circle(square_root(minus_two_log(radius_bits)), from_signed(middle) * splat(0x1p-66), angle_bits, z0,
              z1);
}

}  // namespace
