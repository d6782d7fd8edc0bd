// The inversion against closed forms: M(z) of plain Gaussians, the profile of a single step, direct sums.
#include "inversion/inversion.hpp"

#include <cmath>
#include <complex>
#include <initializer_list>
#include <numbers>

#include "check.hpp"
#include "hockeystick/profile.hpp"
#include "inversion/contour.hpp"
#include "inversion/decay.hpp"
#include "inversion/mgf.hpp"

namespace hs = hockeystick;
using Complex = std::complex<double>;

namespace {

hs::PairPtr sampled(double sigma, double q, hs::Sampling mode) {
    return hs::sampled(hs::gaussian(1 / sigma), q, mode);
}

// N(mu) against N(0): M(z) = e^{mu^2 z (z+1) / 2}.
void row_of_a_gaussian(double mu, double s, double step, std::size_t size) {
    const hs::Mgf mgf(hs::gaussian(mu)->gaussian_mixtures(), 1e-6);
    const double k = 0.5 * mu * mu * s * (s + 1);
    const hs::Cumulant real = mgf.at(s);
    CHECK(k <= real.upper && real.upper <= k + 1e-5 + 1e-9 * k);
    CHECK(std::abs(real.first - mu * mu * (s + 0.5)) <= 1e-5 * mu * mu * (s + 1));
    const hs::Mgf::Row row = mgf.row(s, step, size, 1e-14);
    CHECK(row.value.size() == size);
    for (std::size_t j = 0; j < row.value.size(); ++j) {
        const Complex z(s, step * static_cast<double>(j));
        const Complex w = 0.5 * mu * mu * z * (z + 1.0);
        // e^w e^-shift - 1 without cancellation for small w.
        const Complex exact = std::abs(w) < 1e-3 && row.shift == 0
                                  ? w * (1.0 + 0.5 * w * (1.0 + w / 3.0 * (1.0 + w / 4.0 * (1.0 + 0.2 * w))))
                                  : std::exp(w - row.shift) - 1.0;
        const double rounding = 4e-16 * (1 + std::abs(w)) * std::min(1.0, std::abs(w)) + 1e-17;
        CHECK(std::abs(row.value[j] - exact) <= row.error[j] + rounding);
        CHECK(row.error[j] <= 1e-9 * (1 + std::abs(exact)));
    }
}

// A mixture, against a plain sum on a much finer grid.
void row_of_a_mixture(const hs::PairPtr& pair, double s, double step, std::size_t size) {
    const hs::Mgf mgf(pair->gaussian_mixtures(), 1e-6);
    const hs::Mgf::Row row = mgf.row(s, step, size, 1e-14);
    CHECK(row.value.size() == size);
    const double top = mgf.at(s).upper;
    const hs::Decay decay(mgf.parts(), s, top);
    double least = -1e300;
    for (std::size_t j = row.value.size(); j-- > 0;) {
        const double tau = step * static_cast<double>(j), h = 1e-3;
        const hs::MixtureRatio &p = mgf.parts().front().p, &q_side = mgf.parts().front().q;
        Complex sum = 0;
        for (double t = -12 + q_side.low(); t < 12 + (1 + s) * p.high() - s * q_side.low(); t += h) {
            const double log_p = p.log(t).value, log_q = q_side.log(t).value;
            sum += h * std::exp(Complex(-0.5 * t * t + (1 + s) * log_p - s * log_q, tau * (log_p - log_q)));
        }
        sum *= std::exp(-row.shift) / std::sqrt(2 * std::numbers::pi);
        CHECK(std::abs(1.0 + row.value[j] - sum) <= row.error[j] + 1e-11 * std::exp(top - row.shift));
        // The decay holds for all higher frequencies at once.
        least = std::max(least, std::log(std::abs(sum)) + row.shift - top);
        if (tau > 0) {
            CHECK(least <= decay.log_bound(tau) + 1e-9);
            // Below that the plain sum is noise.
            CHECK(least < -25 || least <= decay.steep_log_bound(tau) + 1e-9);
            CHECK(decay.steep_log_bound(tau) <= decay.log_bound(tau));
        }
    }
}

// One step has its profile in closed form; so the inversion of T = 1, which the engine never does.
void single_step(const hs::PairPtr& pair, double epsilon) {
    const auto inversion = hs::Inversion::of({{pair, 1}});
    CHECK(inversion != nullptr);
    const auto answer = inversion->delta_bounds(epsilon);
    if (!answer) return;
    const hs::Tangent t = pair->above(epsilon);
    const double truth = t.value * std::exp(t.exponent), slack = 1e-13 * truth;
    CHECK(answer->lower <= truth + slack && truth - slack <= answer->upper);
    if (const auto back = inversion->epsilon_bounds(truth)) {
        CHECK(back->lower <= epsilon * (1 + 1e-12) && epsilon * (1 - 1e-12) <= back->upper);
    }
}

// Both engines hold, so their intervals meet.
void engines_agree(double sigma, double q, hs::Sampling mode, std::uint64_t count, double delta) {
    const hs::Composition composition = {{sampled(sigma, q, mode), count}};
    const hs::Answer quick = hs::Profile({composition}).epsilon_bounds(delta);
    const hs::Answer fft =
        hs::Profile({composition}, 1e-3, std::size_t{1} << 28, hs::Engine::fft).epsilon_bounds(delta);
    CHECK(quick.engine == "inversion" && fft.engine == "fft");
    CHECK(quick.lower <= fft.upper && fft.lower <= quick.upper);
    CHECK(quick.upper <= quick.lower * (1 + 1e-8));
}

// Atoms on no common lattice, whose transform never decays, against the sum over all outcomes: at sums of
// losses, right beside them, and elsewhere.
void three_losses(int steps) {
    const double loss[] = {-0.7, std::numbers::sqrt2 - 1, 1}, p[] = {0.2, 0.2, 0.6};
    const double q[] = {p[0] * std::exp(-loss[0]), p[1] * std::exp(-loss[1]), p[2] * std::exp(-loss[2])};
    const double rest = 1 - (q[0] + q[1] + q[2]);  // of Q alone
    CHECK(rest > 0);
    const auto inversion =
        hs::Inversion::of({{hs::discrete({loss[0], loss[1], loss[2]}, {p[0], p[1], p[2]}, {q[0], q[1], q[2]}),
                            static_cast<std::uint64_t>(steps)}});
    CHECK(inversion != nullptr);
    const auto sum_of = [&](int i, int j) { return i * loss[0] + j * loss[1] + (steps - i - j) * loss[2]; };
    const auto delta = [&](double epsilon) {
        double sum = 0;
        for (int i = 0; i <= steps; ++i)
            for (int j = 0; i + j <= steps; ++j) {
                const int k = steps - i - j;
                const double ways = std::lgamma(steps + 1.0) - std::lgamma(i + 1.0) - std::lgamma(j + 1.0) -
                                    std::lgamma(k + 1.0),
                             log_p = ways + i * std::log(p[0]) + j * std::log(p[1]) + k * std::log(p[2]);
                sum += std::exp(log_p) * std::max(0.0, -std::expm1(epsilon - sum_of(i, j)));
            }
        return sum;
    };
    const double sum = sum_of(steps / 5, steps / 4);
    for (const double epsilon : {0.1, 0.3 * steps, sum, sum + 1e-9, sum - 1e-6, sum + 1e-4, 0.52 * steps}) {
        const auto answer = inversion->delta_bounds(epsilon);
        const double truth = delta(epsilon), slack = 1e-11 * truth;
        CHECK(answer && answer->lower <= truth + slack && truth - slack <= answer->upper);
        CHECK(answer && answer->upper - answer->lower <= 1e-3 * truth);
    }
}

// delta of N(mu) against N(0) on coarse or short lines: one term of the error is nearly all of it, so that it
// holds, and hardly less of it would. Aliases make the sum larger.
void each_term_counts(double mu, double s, double step, std::size_t size, double right, double left,
                      bool aliases, double share) {
    const auto k = [mu](Complex z) { return 0.5 * mu * mu * z * (z + 1.0); };
    const double epsilon = mu * mu * (s + 0.5), scale = k(s).real();  // at the saddle nothing turns
    hs::Contour line{};
    line.s = s, line.scale = scale, line.step = step;
    for (std::size_t j = 0; j < size; ++j) {
        line.integrand.push_back(std::exp(k({s, step * static_cast<double>(j)}) - scale) * line.pole(j));
        line.error.push_back(0);
    }
    line.tail = hs::tail_from(step, size, [mu](double tau) { return std::exp(-0.5 * mu * mu * tau * tau); });
    // delta(x) <= s^s/(1 + s)^{1 + s} e^{K(s) - s x}.
    const auto log_chernoff = [&](double t) {
        return t * std::log(t) - (1 + t) * std::log1p(t) + k(t).real() - scale;
    };
    line.right_shift = right, line.log_right = log_chernoff(s + right);
    line.left_shift = left, line.log_left = log_chernoff(s - left);
    const hs::Inverted at = hs::invert(line, epsilon);
    const auto tail = [](double x) { return 0.5 * std::erfc(x * std::numbers::sqrt2 / 2); };
    const double x = epsilon / mu, truth = tail(x - 0.5 * mu) - std::exp(epsilon) * tail(x + 0.5 * mu),
                 off = at.scaled(at.value) - truth, term = at.scaled(aliases ? at.aliasing : at.tail);
    CHECK(at.lower() <= truth && truth <= at.upper());
    CHECK(term > 1e3 * at.scaled((aliases ? at.tail : at.aliasing) + at.round_off));
    CHECK((aliases ? off : std::abs(off)) > share * term);
}

}  // namespace

int main() {
    each_term_counts(1, 2, 0.8, 30, 7.8, 1.99, true, 0.9);  // aliases to the left
    each_term_counts(1, 10, 1.26, 30, 5, 5, true, 0.1);     // to both sides
    each_term_counts(1, 2, 0.4, 12, 12, 1.99, false, 0.05);
    row_of_a_gaussian(1, 3, 0.3, 60);
    row_of_a_gaussian(1e-4, 2000, 100, 80);  // nearly silent
    row_of_a_gaussian(3, 12, 0.2, 40);       // e^{K} = e^{700}
    row_of_a_gaussian(0.1, 1e-3, 2, 100);
    // So high frequencies that the rule is along a line but for the first ones.
    row_of_a_gaussian(1, 3, 0.4, 400);
    row_of_a_gaussian(1.25, 0.5, 0.3, 1000);
    row_of_a_gaussian(0.01, 40, 200, 90);
    for (const auto mode : {hs::Sampling::remove, hs::Sampling::add}) {
        row_of_a_mixture(sampled(1, 0.01, mode), 6.7, 0.22, 60);
        row_of_a_mixture(sampled(0.5, 0.3, mode), 2, 0.5, 40);
        row_of_a_mixture(sampled(2, 1e-4, mode), 36, 0.5, 60);  // two humps: nothing happens, or it does
        row_of_a_mixture(sampled(20, 0.2, mode), 50, 30, 60);
        row_of_a_mixture(sampled(0.8, 0.999, mode), 3, 0.4, 40);
        for (const double q : {1e-4, 0.01, 0.3, 0.9})
            for (const double sigma : {0.4, 1.0, 5.0})
                for (const double share : {0.05, 0.4, 0.8}) {
                    const hs::PairPtr pair = sampled(sigma, q, mode);
                    const double most = mode == hs::Sampling::add ? -std::log1p(-q) : 8 / sigma;
                    single_step(pair, share * most);
                }
    }
    row_of_a_mixture(sampled(0.8, 0.005, hs::Sampling::remove), 4.2, 0.42, 200);
    row_of_a_mixture(
        hs::location_mixture(hs::Noise::gaussian, 1.2, {0, 1, 2}, {0.7, 0.2, 0.1}, {0, -1}, {0.8, 0.2}), 1.5,
        0.7, 100);
    // Exponents of the strip far beyond the range of exp, which once were clamped.
    row_of_a_mixture(sampled(1.0 / 3, 0.5, hs::Sampling::remove), 1, 36, 21);
    // A released choice, and a mixture on either side.
    single_step(hs::mixture({hs::gaussian(0.5), hs::gaussian(2)}, {0.7, 0.3}), 1.5);
    single_step(hs::mixture({hs::gaussian(0.3), sampled(1, 0.2, hs::Sampling::remove)}, {0.4, 0.6}), 0.5);
    single_step(
        hs::location_mixture(hs::Noise::gaussian, 1.2, {0, 1, 2}, {0.7, 0.2, 0.1}, {0, -1}, {0.8, 0.2}), 0.6);
    engines_agree(1, 0.01, hs::Sampling::remove, 1000, 1e-5);
    engines_agree(1, 0.01, hs::Sampling::add, 1000, 1e-5);
    engines_agree(2, 0.01, hs::Sampling::remove, 1000, 1e-30);
    engines_agree(20, 0.001, hs::Sampling::remove, 10000000, 1e-5);
    engines_agree(0.7, 0.2, hs::Sampling::add, 50, 1e-9);

    three_losses(5);
    three_losses(10);
    three_losses(60);
    return check::summary();
}
