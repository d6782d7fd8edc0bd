// erfcx and the normal tail against values computed with 50 digits (mpmath), at the stated error.
#include "numerics/special.hpp"

#include <cmath>
#include <initializer_list>

#include "check.hpp"

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
    for (const double q : {1e-310, 1e-200, 1e-100, 1e-20, 1e-9, 0.3, 0.5, 1 - 1e-9, 1.0})
        for (double x = -40; x < 2000; x += x < 800 ? 0.37 : 11) {
            const long double rate = q, excess = rate * std::expm1(static_cast<long double>(x)),
                              part = rate * std::exp(static_cast<long double>(x)), whole = (1 - rate) + part;
            const double exact = static_cast<double>(excess < -0.1L ? std::log(whole) : std::log1p(excess));
            const double slope = static_cast<double>(part / whole);
            CHECK(std::abs(hs::log_blend(q, x) - exact) <=
                  (9 * std::abs(exact) + 2 * std::abs(x) * slope) * hs::unit_roundoff + 5e-324);
        }
}

}  // namespace

int main() {
    blends();
    for (const auto& [x, expected] : table) {
        // The table itself is rounded by half a unit.
        CHECK(std::abs(hs::erfcx(x) - expected) <= 9 * hs::unit_roundoff * expected);
    }
    // erfc(x) = e^{-x^2} erfcx(x) = 2 Pr[N(0,1) > sqrt(2) x]
    for (double z = 0; z < 8; z += 0.01) {
        const double tail = 0.5 * std::erfc(z / std::sqrt(2.0));
        const double mine = hs::scaled_normal_tail(z) * std::exp(-0.5 * z * z);
        CHECK(std::abs(mine - tail) <= (40 + 4 * z * z) * hs::unit_roundoff * tail);
    }
    CHECK(hs::erfcx(0) == 1 || std::abs(hs::erfcx(0) - 1) <= 8 * hs::unit_roundoff);
    CHECK(hs::erfcx(1e300) >= 0 && std::isfinite(hs::erfcx(1e300)));
    return check::summary();
}
