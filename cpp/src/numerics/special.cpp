#include "numerics/special.hpp"

#include <array>
#include <cstddef>

namespace hockeystick {
namespace {

// (1 + 2x) erfcx(x) as a polynomial in t = (x - 3)/(x + 3): one branch-free formula for all x >= 0.
// Printed by tools/erfcx_coefficients.py.
constexpr std::array<double, 27> erfcx_polynomial = {
    1.25300805826972961e+00,  -1.35621106124581198e-01, -4.75622943534510928e-02, 1.29645158702764746e-01,
    -1.19273663415280229e-01, 6.83080273438451541e-02,  -2.37705149195068521e-02, 2.52939181804746676e-03,
    1.88869037169076275e-03,  -7.79832288482308405e-04, -1.05159901087298487e-04, 1.25099435571281208e-04,
    4.94998866226434691e-06,  -2.01008430948447254e-05, -7.33143259743597018e-07, 3.47302416784153288e-06,
    3.60391092571277087e-07,  -6.17561767899232342e-07, -1.46831754941205841e-07, 1.02779974882710580e-07,
    4.69509466916147337e-08,  -1.39061457917309938e-08, -1.17344641377896570e-08, 1.20197194401357928e-09,
    2.06263229598324553e-09,  -3.45149748766432806e-11, -1.88193663094485791e-10};

constexpr double inverse_sqrt2 = 0.70710678118654752440;  // proof: nearest

}  // namespace

double erfcx(double x) noexcept {
    // Past 1e18 the quotient t rounds to 1, and inf/inf would be nan.
    const double t = x < 1e18 ? (x - 3.0) / (x + 3.0) : 1.0;
    double value = erfcx_polynomial.back();
    for (std::size_t i = erfcx_polynomial.size() - 1; i-- > 0;) value = value * t + erfcx_polynomial[i];
    return value / (1.0 + 2.0 * x);
}

double scaled_normal_tail(double z) noexcept { return 0.5 * erfcx(z * inverse_sqrt2); }

double gaussian_tail(double z) noexcept {
    const double tail = scaled_normal_tail(std::abs(z)) * std::exp(-0.5 * z * z);
    return z >= 0 ? tail : 1 - tail;
}

// std::lgamma writes the sign that it finds to a variable of the process, where threads race.
double log_factorial(double n) noexcept {
#ifdef __linux__
    int sign;
    return ::lgamma_r(n + 1, &sign);
#else
    return std::lgamma(n + 1);
#endif
}

double log_expm1(double x) noexcept {
    return x > 1 ? x + std::log1p(-std::exp(-x)) : std::log(std::expm1(x));
}

double log_blend(double q, double x) noexcept {
    if (q == 1) return x;
    const double excess = q * std::expm1(x);
    // Near -1 it has few digits.
    if (excess < -0.5) return std::log((1 - q) + q * std::exp(x));
    if (std::isfinite(excess)) return std::log1p(excess);
    // e^x q, which neither factor need let overflow.
    const double exponent = x + std::log(q);
    return exponent > 30 ? exponent + std::log1p((1 - q) * std::exp(-exponent))
                         : std::log1p(std::exp(exponent) - q);
}

}  // namespace hockeystick
