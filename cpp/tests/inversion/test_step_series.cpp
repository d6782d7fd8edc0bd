// E[V^k e^{-sV}] of one step and of many: what the sums round by, against quadrature in long double.
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "check.hpp"
#include "inversion/allocation_step_series.hpp"

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

using LongComplex = std::complex<Long>;

// E[psi(-s(W - 1)/T)] and E[(W/T)^j e^{-s(W - 1)/T}]/j!, j = 1..k, along the real line or, so that sW turns
// less, one beside it.
std::vector<LongComplex> of_step(Long mu, Long steps, int k, LongComplex s) {
    const Long h = 0.01L, turn = -std::min(1.5L, std::arg(s) / mu) * 0.75L;
    std::vector<LongComplex> sum(static_cast<std::size_t>(k) + 1);
    const int most = static_cast<int>((14 + static_cast<Long>(k) * mu) / h);
    for (int i = -2000; i <= most; ++i) {
        const Long x = static_cast<Long>(i) * h;
        const LongComplex g(x, turn),
            w = std::exp(mu * g - 0.5L * mu * mu),
            density = std::exp(-0.5L * g * g) * h / std::sqrt(2 * std::numbers::pi_v<Long>),
            v = s / steps * (w - 1.0L), fall = std::exp(-v);
        LongComplex more = fall - 1.0L + v;
        if (std::abs(v) < 0.1L) {
            LongComplex term = v * v / 2.0L;
            more = 0;
            for (int n = 3; n < 20; ++n) more += term, term *= -v / static_cast<Long>(n);
        }
        sum[0] += density * more;
        LongComplex power = density * fall;
        for (int j = 1; j <= k; ++j) {
            power *= w / steps / static_cast<Long>(j);
            sum[static_cast<std::size_t>(j)] += power;
        }
    }
    return sum;
}

// Most nodes enter through moments, for several sizes of s; what the errors say must hold at each.
void many_steps_round_by_less(double mu, double steps, int k, double angle, double least, double most) {
    const hs::StepSeries series({mu, steps, false}, k, angle, least, most);
    CHECK(!series.empty());
    for (double modulus = least; modulus <= most; modulus *= 2.7) {
        const hs::SeriesValue value = series.at(modulus);
        const LongComplex s = std::polar<Long>(modulus, angle);
        auto c = of_step(mu, steps, k, s);
        // ln of the T-th power of c_0, and the series of quotients by it: n b_n = sum_j (j(T+1) - n) d_j
        // b_{n-j}.
        LongComplex log_front = 0, term = 1;
        const Long t = steps;
        if (std::abs(c[0]) < 0.01L)
            for (int n = 1; n < 15; ++n) term *= -c[0], log_front -= term / static_cast<Long>(n);
        else
            log_front = std::log(1.0L + c[0]);
        std::vector<LongComplex> b = {1.0L};
        for (std::size_t n = 1; n < c.size(); ++n) {
            LongComplex sum = 0;
            for (std::size_t j = 1; j <= n; ++j)
                sum +=
                    (static_cast<Long>(j) * (t + 1) - static_cast<Long>(n)) * c[j] / (1.0L + c[0]) * b[n - j];
            b.push_back(sum / static_cast<Long>(n));
        }
        const LongComplex log = t * log_front + std::lgamma(static_cast<Long>(k) + 1) +
                                (value.bare ? -s : 0.0L),
                          truth = b.back() * std::exp(log - LongComplex(value.log)),
                          off = LongComplex(value.coefficient) - truth;
        CHECK(std::abs(off) <= 0.7L * static_cast<Long>(value.error));
        CHECK(value.error < (mu < 3 ? 1e-10 : 1e-7) * std::abs(value.coefficient));
    }
}

}  // namespace

int main() {
    for (const double mu : {0.1, 1.0, 3.3})
        for (const double steps : {30.0, 1e5})
            for (const int k : {0, 2, 7, 20})
                for (const double angle : {0.0, 1.2, 1.5})
                    if (steps > 4 * k && 0.5 * k * mu * mu < 60)
                        many_steps_round_by_less(mu, steps, k, angle, 1e-3, std::min(300.0, 0.5 * steps));
    for (double mu = 0.2; mu < 3.5; mu *= 1.04)
        for (int k = 1; k <= 60 && 0.5 * k * k * mu * mu < 640; k += 1 + k / 8) powers_round_by_less(mu, k);
    powers_round_by_less(0.753222, 47);
    return check::summary();
}
