// Complex functions without cancellation near the origin.
#pragma once

#include <cmath>
#include <complex>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

using Complex = std::complex<double>;

// |w| to 2 units of round-off, quicker than std::abs where its square is neither tiny nor huge.
inline double modulus_of(double x) { return std::abs(x); }
inline double modulus_of(Complex w) {
    const double square = w.real() * w.real() + w.imag() * w.imag();
    return square > 1e-280 && square < 1e280 ? std::sqrt(square) : std::abs(w);
}

inline Complex log1p(Complex f) {
    const double x = f.real(), y = f.imag(), size = modulus_of(1.0 + f);
    return {size < 0.7 ? std::log(size) : 0.5 * std::log1p(x * (2 + x) + y * y), std::atan2(y, 1 + x)};
}

inline double expm1(double x) { return std::expm1(x); }
inline Complex expm1(Complex w) {
    const double sine = std::sin(0.5 * w.imag()), e = std::exp(w.real());
    return {std::expm1(w.real()) - 2 * e * sine * sine, e * std::sin(w.imag())};
}

// 1 - e^{-w}
inline Complex one_minus_exp(Complex w) {
    const double sine = std::sin(0.5 * w.imag()), fall = std::exp(-w.real());
    return {-std::expm1(-w.real()) + 2 * fall * sine * sine, fall * std::sin(w.imag())};
}

// Parts' products and sums alone: that of the language asks whether some part is not a number.
inline double times(double a, double b) { return a * b; }
inline Complex times(Complex a, Complex b) {
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

// e^w - 1 - w of a real or complex number, to a few units of round-off of |w|^2.
template <class Number>
Number psi(Number w) {
    using std::exp;
    const double square = std::norm(w);
    if (square > 4) return exp(w) - 1.0 - w;
    if (square > 0.25) return expm1(w) - w;
    // 1/(n + 2)!, n = 0, 1, ...; proof: the first term left out is below 2^-54 of the first.
    constexpr double c[] = {
        0x1p-1,          1.0 / 6,          1.0 / 24,          1.0 / 120,          1.0 / 720,
        1.0 / 5040,      1.0 / 40320,      1.0 / 362880,      1.0 / 3628800,      1.0 / 39916800,
        1.0 / 479001600, 1.0 / 6227020800, 1.0 / 87178291200, 1.0 / 1307674368000};
    int n = square > 1e-2 ? 13 : square > 1e-4 ? 8 : 5;
    Number sum = c[n];
    while (n > 0) sum = c[--n] + times(w, sum);
    return times(times(w, w), sum);
}

}  // namespace hockeystick
