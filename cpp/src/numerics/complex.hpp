// Complex functions without cancellation near the origin.
#pragma once

#include <cmath>
#include <complex>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// |w| to 2 units of round-off, quicker than std::abs where its square is neither tiny nor huge.
inline double modulus_of(double x) { return std::abs(x); }
inline double modulus_of(std::complex<double> w) {
    const double square = w.real() * w.real() + w.imag() * w.imag();
    return square > 1e-280 && square < 1e280 ? std::sqrt(square) : std::abs(w);
}

inline std::complex<double> log1p(std::complex<double> f) {
    const double x = f.real(), y = f.imag(), size = modulus_of(1.0 + f);
    return {size < 0.7 ? std::log(size) : 0.5 * std::log1p(x * (2 + x) + y * y), std::atan2(y, 1 + x)};
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
    using std::exp;
    const double size = modulus_of(w);
    if (size > 2) return exp(w) - 1.0 - w;
    if (size > 0.5) return expm1(w) - w;
    const int terms = size > 0.01 ? 16 : 6;  // proof: the next term is below 2^-54 of the first
    Number sum = 1.0;
    for (int n = terms; n >= 1; --n) sum = 1.0 + sum * w * (1 / (n + 2.0));
    return 0.5 * w * w * sum;
}

}  // namespace hockeystick
