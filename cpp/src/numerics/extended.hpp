// The extended range: non-negative numbers of any size, mantissa * 2^exponent. Products and sums round like
// doubles, and never overflow.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hockeystick/random.hpp"
#include "numerics/polynomials.hpp"

namespace hockeystick {

struct Extended {
    double mantissa = 0;  // in [1, 2), or 0
    std::int64_t exponent = none;

    static constexpr std::int64_t none = std::int64_t{-1} << 50;  // of 0: below every other

    Extended() = default;
    Extended(double m, std::int64_t e) : mantissa(m), exponent(e) { normalise(); }
    // 0 <= value < inf.
    explicit Extended(double value) : Extended(value, 0) {}

    static Extended exponential(double x) {
        if (x == -std::numeric_limits<double>::infinity()) return {};
        const double k = std::floor(x * polynomial::log2_e + 0.5);
        const double r = (x - k * polynomial::ln2_high) - k * polynomial::ln2_low;
        return {portable_exp(r), static_cast<std::int64_t>(k)};
    }

    bool is_zero() const { return mantissa == 0; }
    double log() const {
        if (is_zero()) return -std::numeric_limits<double>::infinity();
        const auto k = static_cast<double>(exponent);
        return k * polynomial::ln2_high + (k * polynomial::ln2_low + portable_log(mantissa));
    }

    // this / other as a double; 0 where it is below the smallest one.
    double over(const Extended& other) const {
        const std::int64_t shift = exponent - other.exponent;
        if (is_zero() || shift < -1000) return 0;
        return mantissa / other.mantissa * two_to(shift < 1000 ? shift : 1000);
    }

    // The nearest double; 0 where it is far below the smallest one.
    double value() const { return exponent < -1100 ? 0.0 : std::ldexp(mantissa, static_cast<int>(exponent)); }

    friend Extended operator*(const Extended& a, const Extended& b) {
        return a.is_zero() || b.is_zero() ? Extended()
                                          : Extended(a.mantissa * b.mantissa, a.exponent + b.exponent);
    }
    friend Extended operator+(const Extended& a, const Extended& b) {
        const Extended &large = a.exponent < b.exponent ? b : a, &small = a.exponent < b.exponent ? a : b;
        const std::int64_t shift = large.exponent - small.exponent;
        if (shift > 1000) return large;
        return {large.mantissa + small.mantissa * two_to(-shift), large.exponent};
    }
    friend bool operator<(const Extended& a, const Extended& b) {
        return a.exponent != b.exponent ? a.exponent < b.exponent : a.mantissa < b.mantissa;
    }
    friend Extended power(Extended base, std::size_t k) {
        Extended result(1.0);
        for (; k > 0; k /= 2) {
            if (k % 2 != 0) result = result * base;
            base = base * base;
        }
        return result;
    }

private:
    static double two_to(std::int64_t k) {  // 2^k, |k| <= 1000
        return std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
    }
    void normalise() {
        if (!(mantissa > 0)) {
            mantissa = 0;
            exponent = none;
            return;
        }
        if (mantissa < 0x1p-1000) {  // the fields of a subnormal number mean something else
            mantissa *= 0x1p+1000;
            exponent -= 1000;
        }
        const auto bits = std::bit_cast<std::uint64_t>(mantissa);
        exponent += static_cast<std::int64_t>(bits >> 52) - 1023;
        mantissa = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000);
    }
};

}  // namespace hockeystick
