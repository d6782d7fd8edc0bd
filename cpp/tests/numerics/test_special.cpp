// erfcx and the normal tail against values computed with 50 digits (mpmath), at the stated error; logarithms
// against long doubles; sums that doubles alone would lose.
#include "numerics/special.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <initializer_list>
#include <random>
#include <vector>

#include "check.hpp"
#include "numerics/extended.hpp"
#include "numerics/powers.hpp"
#include "numerics/sums.hpp"

namespace hs = hockeystick;

namespace {

struct Value {
    double x, erfcx;
};

constexpr Value table[] = {
    {1e-09, 0.999999998871620834}, {0.001, 0.998872620081151409},  {0.05, 0.945990043554961478},
    {0.25, 0.770346547730996744},  {0.5, 0.615690344192925875},    {0.75, 0.506937650293144806},
    {1.0, 0.427583576155807004},   {1.5, 0.321585416454317502},    {2.0, 0.255395676310505744},
    {2.5, 0.210806364061143581},   {3.0, 0.17900115118138995},     {3.5, 0.155293655608894297},
    {4.0, 0.13699945762506139},    {5.0, 0.110704637733068626},    {7.0, 0.0798000543291529335},
    {10.0, 0.0561409927438225859}, {15.0, 0.0375296063885057657},  {26.0, 0.0216835848505629066},
    {50.0, 0.0112815362653237725}, {90.0, 0.00626838626086243056},
};

// Wherever the exponent lies, and wherever q e^x does.
void blends() {
    for (const double q : {1e-320, 1e-310, 1e-200, 1e-100, 1e-20, 1e-9, 0.3, 0.5, 1 - 1e-9, 1.0})
        for (double x = -40; x < 2000; x += x < 800 ? 0.37 : 11) {
            const long double rate = q, excess = rate * std::expm1(static_cast<long double>(x)),
                              part = rate * std::exp(static_cast<long double>(x)), whole = (1 - rate) + part;
            const double exact = static_cast<double>(excess < -0.1L ? std::log(whole) : std::log1p(excess));
            const double slope = static_cast<double>(part / whole);
            CHECK(std::abs(hs::log_blend(q, x) - exact) <=
                  (9 * std::abs(exact) + 2 * std::abs(x) * slope) * hs::unit_roundoff + 5e-324);
        }
}

void logarithms() {
    for (double x = 1e-15; x < 700; x *= 1.01) {
        const double exact = static_cast<double>(std::log(std::expm1(static_cast<long double>(x))));
        CHECK(std::abs(hs::log_expm1(x) - exact) <= 4 * (1 + std::abs(exact)) * hs::unit_roundoff);
    }
    long double factorial = 0;  // its logarithm
    for (int n = 1; n < 1000; ++n) {
        factorial += std::log(static_cast<long double>(n));
        const double exact = static_cast<double>(factorial);
        CHECK(std::abs(hs::log_factorial(n) - exact) <= 4 * (1 + exact) * hs::unit_roundoff);
    }
    for (const double x : {1.0, 1e-300, 0x1p-1022, 0x1p-1030, 0x1.8p-1073, 0x1p-1074}) {
        CHECK(hs::Extended(x).value() == x);
        CHECK(std::abs(hs::Extended(x).log() - std::log(x)) <= 4 * std::abs(std::log(x)) * hs::unit_roundoff);
    }
}

// Small terms between large ones that cancel, whichever comes first; terms none of which is a double.
void sums() {
    for (const auto& terms : {std::vector{1.0, 1e100, 1.0, -1e100}, std::vector{1e100, 1.0, -1e100, 1.0}}) {
        hs::CompensatedSum sum;
        for (const double term : terms) sum.add(term);
        CHECK(sum.value() == 2);
    }
    for (const double largest : {-1e5, 0.0, 1e5}) {
        const double found = hs::log_sum_exp(3, [&](std::size_t i) { return largest - (i == 1 ? 0 : 40); });
        CHECK(found >= largest && found <= largest + 1e-15 * (1 + std::abs(largest)));
    }
}

// prod (A + B)^n - prod A^n is within its error wherever A and B lie in their discs: of any factors, of those
// of which one nearly vanishes, and of those whose logarithms cancel.
void differences_of_powers() {
    using Complex = std::complex<double>;
    using Exact = std::complex<long double>;
    std::mt19937_64 random(9);
    const auto uniform = [&](double low, double high) {
        return std::uniform_real_distribution<double>(low, high)(random);
    };
    const auto turned = [&](double size) { return std::polar(size, uniform(-3.14, 3.14)); };
    for (int repeat = 0; repeat < 20000; ++repeat) {
        const bool known = repeat % 2 == 0, vanishes = repeat % 5 == 0, cancels = repeat % 5 == 1;
        const int kinds = vanishes || cancels ? 2 : 1 + repeat % 3;
        hs::DifferenceOfPowers powers;
        powers.sums = kinds;
        Exact whole = 1, below = 1;
        Complex ratio = turned(uniform(0.1, 0.5));
        for (int k = 0; k < kinds; ++k) {
            double n = std::floor(std::exp(uniform(0, repeat % 8 < 4 ? 7 : 2)));
            Complex a = turned(1 - std::exp(uniform(-8, -0.3)) / n), b = turned(std::exp(uniform(-9, 0)) / n);
            if (vanishes) {
                n = k == 0 ? 1 : 5;
                a = k == 0 ? a : turned(0.01);
                b = k == 0 ? a * (std::exp(uniform(-20, -3)) - 1) : turned(0.9);
            } else if (cancels) {
                n = 300;
                a = turned(1);
                b = a * ratio;
                ratio = 1.0 / (1.0 + ratio) - 1.0 + turned(1e-10);
            }
            const double a_error = known ? 0 : std::exp(uniform(-30, 0)) * std::abs(a) / n,
                         b_error = known ? 0 : std::exp(uniform(-30, 0.5)) * std::abs(b),
                         moved = uniform(0, 300);
            const Complex log(std::log(std::abs(a)), std::arg(a));
            const double units = 12 + 4 * (std::abs(log.real()) + std::abs(log.imag()));
            const double most =
                powers.add_below(n, std::abs(a), log, 0, units, a_error, 1 / std::max(64.0, 4 * n));
            powers.add_between(n, most, a, b, b_error, moved);
            const Exact at = Exact(a) + Exact(turned(a_error)),
                        between = Exact(b) + Exact(turned(b_error + moved * hs::unit_roundoff * std::abs(b)));
            for (double i = 0; i < n; ++i) {
                below *= at;
                whole *= at + between;
            }
        }
        const auto difference = powers.difference(0), all = powers.all(0);
        CHECK(std::abs(Exact(difference.value) - (whole - below)) <= difference.error);
        CHECK(std::abs(Exact(all.value) - below) <= all.error);
    }
}

}  // namespace

int main() {
    blends();
    logarithms();
    sums();
    differences_of_powers();
    for (const auto& [x, expected] : table) {
        // The table itself is rounded by half a unit.
        CHECK(std::abs(hs::erfcx(x) - expected) <= 9 * hs::unit_roundoff * expected);
    }
    // erfc(x) = e^{-x^2} erfcx(x) = 2 Pr[N(0,1) > sqrt(2) x]
    for (double z = 0; z < 8; z += 0.01) {
        const double tail = 0.5 * std::erfc(z / std::sqrt(2.0));
        const double mine = hs::scaled_normal_tail(z) * std::exp(-0.5 * z * z);
        CHECK(std::abs(mine - tail) <= (40 + 4 * z * z) * hs::unit_roundoff * tail);
        CHECK(hs::gaussian_tail(z) == mine && std::abs(hs::gaussian_tail(-z) - (1 - tail)) < 1e-14);
    }
    CHECK(hs::erfcx(0) == 1 || std::abs(hs::erfcx(0) - 1) <= 8 * hs::unit_roundoff);
    CHECK(hs::erfcx(1e300) >= 0 && std::isfinite(hs::erfcx(1e300)));
    return check::summary();
}
