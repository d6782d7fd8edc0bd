// Complex functions without cancellation near the origin.
#pragma once

#include <cmath>
#include <complex>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

inline std::complex<double> log1p(std::complex<double> f) {
    const double x = f.real(), y = f.imag();
    const double modulus = std::hypot(1 + x, y);
    return {modulus < 0.7 ? std::log(modulus) : 0.5 * std::log1p(x * (2 + x) + y * y), std::atan2(y, 1 + x)};
}

inline double expm1(double x) { return std::expm1(x); }
inline std::complex<double> expm1(std::complex<double> w) {
    const double sine = std::sin(0.5 * w.imag()), e = std::exp(w.real());
    return {std::expm1(w.real()) - 2 * e * sine * sine, e * std::sin(w.imag())};
}

// 1 - e^{-w}
inline std::complex<double> one_minus_exp(std::complex<double> w) {
    const double sine = std::sin(0.5 * w.imag()), fall = std::exp(-w.real());
    return {-std::expm1(-w.real()) + 2 * fall * sine * sine, fall * std::sin(w.imag())};
}

// e^w - 1 - w of a real or complex number, to a few units of round-off of |w|^2.
template <class Number>
Number psi(Number w) {
    if (std::abs(w) > 0.5) return expm1(w) - w;
    constexpr int terms = 16;  // proof: the next term is below 2^-18/18! times the first
    Number sum = 1.0;
    for (int n = terms; n >= 1; --n) sum = 1.0 + sum * w * (1 / (n + 2.0));
    return 0.5 * w * w * sum;
}

}  // namespace hockeystick
