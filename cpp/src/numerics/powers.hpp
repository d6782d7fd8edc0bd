// F = prod (A + B)^k - prod A^k at one frequency, with its error. As a polynomial in A and B with
// coefficients that are not negative,
//     |F(A + alpha, B + beta) - F(A, B)| <= F(|A| + |alpha|, |B| + |beta|) - F(|A|, |B|),
// and larger moduli |A|, |B| only make the right side larger (docs/accounting/bounds.md, "Layers of losses").
#pragma once

#include <algorithm>
#include <cmath>

#include "numerics/complex.hpp"
#include "numerics/constants.hpp"
#include "numerics/special.hpp"

namespace hockeystick {

struct DifferenceOfPowers {
    double modulus = 0, angle = 0;  // ln of prod A^k
    double common = 0;              // relative errors of F
    Complex y = 0;                  // sum of k ln(1 + B/A)
    double y_size = 0;
    double log_below = 0, log_ratio = 0;  // sum of k ln a, of k ln(1 + b/a)
    double below_error = 0;               // sum of k ln(1 + alpha/a)
    double between_error = 0;             // sum of k ln(1 + b/a) beta/b
    double sums = 0;                      // how many kinds are added up: each partial sum rounds

    struct Value {
        Complex value;
        double error;
    };

    DifferenceOfPowers() = default;
    // Gaussian steps, K = variance z (z+1)/2, beside so many kinds of others.
    DifferenceOfPowers(Complex z, double variance, double kinds) : sums(kinds) {
        const Complex k = 0.5 * variance * z * (z + 1.0);
        modulus = log_below = k.real();
        angle = k.imag();
        common = (12 + kinds) * unit_roundoff * 0.5 * variance * std::norm(z + 1.0);
    }

    // A^n, A = e^shift |A| e^{i angle}: the logarithm is off by `units` of round-off, |A| by `error`. Returns
    // a, at least |A|, the error and `least`.
    double add_below(double n, double size, Complex log, double shift, double units, double error,
                     double least) {
        modulus += n * (log.real() + shift);
        angle += n * log.imag();
        common += n * unit_roundoff *
                  (units + sums * (std::abs(log.real()) + std::abs(log.imag()) + std::abs(shift)));
        const double a = std::max({size, error, least});
        log_below += n * (std::log(a) + shift);
        below_error += n * std::log1p(error / a);
        return a;
    }
    // (1 + B/A)^n, in the unit of A, for which B's exponent was moved.
    void add_between(double n, double a, Complex m, Complex b, double error, double moved) {
        const Complex r = b / m, log = log1p(r);
        const double size = modulus_of(b),
                     near_zero = modulus_of(1.0 + r) < 0.7 ? 4 * unit_roundoff * (modulus_of(m) + size) : 0.0,
                     beta = error + near_zero + (16 + 2 * std::abs(moved)) * unit_roundoff * size,
                     most = std::max(size, beta);
        y += n * log;
        y_size += n * modulus_of(log);
        const double ratio = n * std::log1p(most / a);
        log_ratio += ratio;
        if (most > 0) between_error += ratio * (beta / most);
    }

    // prod A^k alone, in units of e^scale.
    Value all(double scale) const {
        const double size = std::exp(modulus - scale),
                     exponents = std::abs(modulus) + std::abs(scale) + std::abs(angle);
        return {std::polar(size, angle),
                1.01 * (std::exp(log_below - scale) * std::expm1(below_error) +
                        size * (std::expm1(common) + unit_roundoff * (16 + 4 * exponents)))};
    }

    // F, in units of e^scale. What is not finite in it must end the attempt.
    Value difference(double scale) const {
        const double low = modulus - scale, none = std::exp(low), all = std::exp(low + y.real());
        const bool near = std::abs(y) < 1;
        const Complex value = near ? std::polar(none, angle) * expm1(y)
                                   : std::polar(all, angle + y.imag()) - std::polar(none, angle);
        // The logarithms' sum y is off by a few units, which counts beside (A+B)^T.
        const double rounding =
            16 * u * all * y_size +
            (near ? std::abs(value) : all + none) *
                (std::expm1(common) +
                 u * (16 + 4 * (std::abs(modulus) + std::abs(scale) + std::abs(angle) + std::abs(y))));
        // With a share beta/b more of B, as ln(1 + cx) <= c ln(1 + x) for c >= 1. Nothing to share is no
        // number.
        const double more = std::expm1(between_error) / -std::expm1(-log_ratio);
        const double spread =
            std::exp(log_below + log_expm1(log_ratio) - scale) * std::expm1(below_error + std::log1p(more));
        return {value, 1.01 * (spread + rounding)};
    }
};

}  // namespace hockeystick
