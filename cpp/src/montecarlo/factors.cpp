#include "montecarlo/factors.hpp"

#include <algorithm>
#include <cmath>

#include "hockeystick/random.hpp"
#include "numerics/polynomials.hpp"

namespace hockeystick {

using kernels::Factor;

namespace {

constexpr double zero_exponent = -0x1p50;  // of a zero; see lanes.hpp

}  // namespace

Factor factor(double value) {
    if (value == 0) return {0.0, zero_exponent};
    int exponent = 0;
    const double mantissa = std::frexp(value, &exponent);
    return {2 * mantissa, exponent - 1.0};
}

Factor operator*(const Factor& a, const Factor& b) {
    const Factor product = factor(a.mantissa * b.mantissa);
    if (product.mantissa == 0) return product;
    return {product.mantissa, product.exponent + a.exponent + b.exponent};
}

Factor operator+(const Factor& a, const Factor& b) {
    if (a.mantissa == 0) return b;
    if (b.mantissa == 0) return a;
    const double exponent = std::max(a.exponent, b.exponent);
    const auto shifted = [&](const Factor& f) {
        return std::ldexp(f.mantissa, static_cast<int>(std::max(f.exponent - exponent, -2000.0)));
    };
    Factor sum = factor(shifted(a) + shifted(b));
    sum.exponent += exponent;
    return sum;
}

Factor power(Factor base, std::size_t exponent) {
    Factor result{1.0, 0.0};
    for (; exponent > 0; exponent /= 2) {
        if (exponent % 2 != 0) result = result * base;
        base = base * base;
    }
    return result;
}

Factor exponential_factor(double x) {
    const double k = std::nearbyint(x * polynomial::log2_e);
    Factor result = factor(portable_exp((x - k * polynomial::ln2_high) - k * polynomial::ln2_low));
    result.exponent += k;
    return result;
}

}  // namespace hockeystick
