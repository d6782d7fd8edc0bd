// E[W^k e^{-sW}] of a single step: what its sums round by, against quadrature in long double.
#include <cmath>
#include <numbers>

#include "check.hpp"
#include "inversion/step_series.hpp"

namespace hs = hockeystick;

namespace {

using Long = long double;

// Beside E W^k = e^{k(k-1)mu^2/2}, by the trapezoidal rule around its saddle g = k mu.
Long of_one(Long mu, int k, Long s) {
    const Long h = 0.05L;
    Long sum = 0;
    for (int i = -280; i <= 280; ++i) {
        const Long x = static_cast<Long>(i) * h;
        sum += std::exp(-0.5L * x * x - s * std::exp(mu * (x + static_cast<Long>(k) * mu) - 0.5L * mu * mu));
    }
    return sum * h / std::sqrt(2 * std::numbers::pi_v<Long>);
}

// High powers of large ratios: each rounding counts k times. Roundings of both signs add up to far less than
// a bound that counts each of them, so that one which leaves some out comes too close.
void powers_round_by_less(double mu, int k) {
    const double where = std::exp(-k * mu * mu);  // W^k lies about there
    const hs::StepSeries series({mu, 1.0, false}, k, 0, 1e-30 * where, 20 * where);
    CHECK(!series.empty());
    for (const double share : {1e-25, 0.3, 3.0}) {
        const double s = share * where;
        const hs::SeriesValue value = series.at(s);
        const Long unit =
            std::exp(static_cast<Long>(value.log.real()) -
                     0.5L * static_cast<Long>(k) * static_cast<Long>(k - 1) * static_cast<Long>(mu) * mu -
                     (value.bare ? 0.0L : static_cast<Long>(s)));
        const Long off = std::abs(static_cast<Long>(value.coefficient.real()) * unit - of_one(mu, k, s));
        CHECK(off <= 0.5L * static_cast<Long>(value.error) * unit);
        CHECK(value.error < 1e-11 * std::abs(value.coefficient));
    }
}

}  // namespace

int main() {
    for (double mu = 0.2; mu < 3.5; mu *= 1.04)
        for (int k = 1; k <= 60 && 0.5 * k * k * mu * mu < 640; k += 1 + k / 8) powers_round_by_less(mu, k);
    powers_round_by_less(0.753222, 47);
    return check::summary();
}
