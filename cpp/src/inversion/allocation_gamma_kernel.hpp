// The weight s^a e^{-s} / Gamma(a) of a moment integral, and Gamma(p+1) e^s s^{-p-1} of one that inverts a
// Laplace transform, without cancellation at large a and p (docs/mechanisms/allocation.md, "Moments" and
// "Powers").
#pragma once

#include <cmath>
#include <complex>

#include "numerics/complex.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {

// What Stirling's series adds to ln Gamma(a), Re a > 0 and |a| >= 16. Proof: the first term left out is less
// than 1e-17 there.
inline Complex stirling_rest(Complex a) {
    const Complex y = 1.0 / a, y2 = y * y;
    // proof: the terms of Stirling's series that are used.
    constexpr double c[] = {1.0 / 12,   -1.0 / 360,      1.0 / 1260, -1.0 / 1680,
                            1.0 / 1188, -691.0 / 360360, 1.0 / 156};
    Complex sum = 0;
    for (int n = 6; n >= 0; --n) sum = sum * y2 + c[n];
    return sum * y;
}

inline constexpr double stirling_from = 16;

// proof: what ln Gamma(a) is off by at most, in units of round-off, where |a| is small and logarithms of up
// to 45 cancel; beyond that it is a few units of |a ln a|.
inline constexpr double shifted_error = 256;

// ln Gamma(a), Re a > 0.
inline Complex log_gamma(Complex a) {
    Complex shifted = 0;
    for (; std::abs(a) < stirling_from; a += 1.0) shifted += std::log(a);
    return (a - 0.5) * std::log(a) - a + 0.5 * std::log(2 * pi) + stirling_rest(a) - shifted;
}

// The first two derivatives of ln Gamma(x), x > 0, by their asymptotic series: to about round-off.
struct Polygamma {
    double first = 0, second = 0;
    explicit Polygamma(double x) {
        for (; x < stirling_from; x += 1) first -= 1 / x, second += 1 / (x * x);
        const double y = 1 / (x * x);
        first += std::log(x) - 0.5 / x - y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y / 240)));
        second += 1 / x + y * (0.5 + (1.0 / 6 - y * (1.0 / 30 - y * (1.0 / 42 - y / 30))) / x);
    }
};

// A kernel's logarithm, and its error in units of round-off.
struct LogKernel {
    Complex log;
    double slack;
};

// s^a e^{-s}/Gamma(a) at s = Re(a) e^{x + i angle}.
class GammaKernel {
public:
    GammaKernel(Complex a, double angle)
        : a_(a),
          large_(std::abs(a) >= stirling_from),
          log_ratio_(0.5 * std::log1p(std::pow(a.imag() / a.real(), 2))),
          angle_(large_ ? angle - std::arg(a) : angle),
          turn_(std::polar(1.0, angle_)),
          prefix_(large_ ? 0.5 * std::log(a / (2 * pi)) - stirling_rest(a)
                         : a * std::log(a.real()) - log_gamma(a)),
          rounding_(2 + log_ratio_ + 2 * std::abs(angle)) {}

    // Without -s if `bare`, and then the other factor has no e^s.
    LogKernel at(double x, bool bare) const {
        const Complex w(large_ ? x - log_ratio_ : x, angle_);
        if (!large_) {
            const Complex s = bare ? 0.0 : a_.real() * std::exp(x) * turn_;
            return {prefix_ + a_ * w - s, shifted_error + 4 * modulus_of(a_ * w) + 12 * modulus_of(s)};
        }
        const double size = std::abs(a_), rounding = rounding_ + std::abs(x);
        if (bare) return {prefix_ + a_ * (1.0 + w), 40 + size * (rounding + 4 * modulus_of(1.0 + w))};
        // The turn by angle_ is the same for all x.
        const bool near = modulus_of(w) < 2;
        const Complex all = near ? 0.0 : std::exp(w.real()) * turn_, p = near ? psi(w) : all - 1.0 - w;
        return {prefix_ - a_ * p,
                40 + size * (modulus_of(p + w) * rounding + 8 * modulus_of(p) + 8 * modulus_of(all))};
    }

private:
    Complex a_;
    bool large_;
    double log_ratio_;  // ln |a|/Re a
    double angle_;      // of s, less that of a where that is large
    Complex turn_, prefix_;
    double rounding_;
};

// Gamma(p+1) e^s s^{-p-1}, Re p > 0, where nothing of the size of p ln p cancels: with s = p (1+d) it is (2
// pi/p)^{1/2} e^{p (d - ln(1+d))}/(1+d), and what Stirling's series adds. Errors are in units of round-off.
class LineKernel {
public:
    explicit LineKernel(Complex p)
        : p_(p),
          inverse_(1.0 / p),
          log_p_(std::log(p)),
          large_(std::abs(p) >= stirling_from),
          front_(0.5 * (std::log(2 * pi) - log_p_) + rest()) {}

    // The kernel's logarithm and ln(s/p), and their errors.
    struct At {
        Complex log, turn;
        double slack, turning;
    };
    At at(Complex s, Complex log_s) const {
        // Proof: d rounds by 7 units, and moves d - ln(1+d) by d/(1+d) times as much. |1+d|^2 - 1 is d's real
        // part times that and 2, and the square of the other; it rounds by 3 units of both. Where s is small
        // beside p, by two logarithms.
        const Complex d = times(s - p_, inverse_);
        const double size = modulus_of(d), whole = modulus_of(1.0 + d);
        const bool near = whole > 0.7;
        const Complex turn = near ? log1p(d) : log_s - log_p_, rest = d - turn;
        const double turning = near ? size * (13 + 3 * size) / whole + 3 * modulus_of(turn)
                                    : 4 * (1 + modulus_of(log_s) + modulus_of(log_p_)),
                     rounding =
                         near ? size * (7 + 10 * size) / whole + 3 * modulus_of(turn) : turning + 7 * size;
        return {front_ - turn + times(p_, rest), turn,
                slack() + turning + modulus_of(p_) * (rounding + 4 * modulus_of(rest)), turning};
    }
    // ln Gamma(q+1)/Gamma(p+1) p^{p-q}
    LogKernel moved_to(Complex q) const {
        const Complex step = q - p_, log = (q + 1.0) * log1p(step * inverse_);
        const LineKernel there(q);
        return {there.front_ - front_ + log - step,
                slack() + there.slack() + 8 * (modulus_of(log) + modulus_of(step))};
    }

private:
    Complex rest() const {
        return large_ ? stirling_rest(p_)
                      : log_gamma(p_ + 1.0) - (p_ + 0.5) * log_p_ + p_ - 0.5 * std::log(2 * pi);
    }
    double slack() const { return large_ ? 16 + 4 * modulus_of(front_) : 2 * shifted_error; }

    Complex p_, inverse_, log_p_;
    bool large_;
    Complex front_;
};

}  // namespace hockeystick
