// The transform of a random allocation against what is known of it: one step is a lognormal, whole powers of
// V have moments in closed form, both ways to a moment meet, and no frequency exceeds its bound.
#include <cmath>
#include <complex>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

#include "check.hpp"
#include "inversion/allocation_few_steps.hpp"
#include "inversion/allocation_gamma_kernel.hpp"
#include "inversion/allocation_powers.hpp"
#include "inversion/allocation_transform.hpp"

namespace hs = hockeystick;
using Complex = std::complex<double>;

namespace {

// Against the library's logarithm of Gamma in more digits, where it has them.
void kernels_round_as_they_say(double a) {
    for (const double x : {-3.0, -0.4, -1e-3, 0.0, 0.7, 4.0}) {
        const hs::LogKernel kernel = hs::GammaKernel({a, 0}, 0).at(x, false);
        const long double truth = a * (std::log(static_cast<long double>(a)) + x) -
                                  a * std::exp(static_cast<long double>(x)) -
                                  std::lgamma(static_cast<long double>(a));
        CHECK(std::abs(static_cast<double>(kernel.log.real() - truth)) <= kernel.slack * 0x1p-53);
        CHECK(kernel.slack < 1000 * (1 + a * std::exp(std::abs(x))));
    }
}

// The same of the kernel on a line; from one power to another it moves as it does at any place.
void line_kernels_round_as_they_say(double p) {
    using Wide = std::complex<long double>;
    for (const Complex s : {Complex(p, 0), Complex(1.1 * p, 0.4 * p), Complex(0.9 * p, -0.01 * p),
                            Complex(0.2 * p, 7 * p), Complex(1e-6 * p, 1e-7 * p)}) {
        const hs::LineKernel kernel({p, 0});
        const auto at = kernel.at(s, std::log(s));
        const Wide log_s = std::log(Wide(s)),
                   log = std::lgamma(static_cast<long double>(p) + 1) + Wide(s) - (p + 1.0L) * log_s;
        // p ln p cancels in the longer numbers.
        CHECK(std::abs(Wide(at.log) - log) <= at.slack * 0x1p-53L + 4e-19L * p * std::log(p + 2));
        CHECK(std::abs(Wide(at.turn) - (log_s - std::log(static_cast<long double>(p)))) <=
              at.turning * 0x1p-53L);
        CHECK(at.slack < 1100 + 150 * p * (1 + std::abs(at.turn)));
        const Complex q(p, 0.3 * std::sqrt(p));
        const auto there = hs::LineKernel(q).at(s, std::log(s));
        const auto moved = kernel.moved_to(q);
        const double error = there.slack + at.slack + moved.slack + std::abs(q - p) * at.turning + 16;
        const Complex apart = there.log - at.log - moved.log + (q - p) * at.turn;
        CHECK(std::abs(std::polar(1.0, apart.imag()) - 1.0) + std::abs(apart.real()) <= 2 * error * 0x1p-53);
    }
}

// With T = 1 both directions have M(z) = e^{mu^2 z (z+1)/2}.
void one_step_is_lognormal(double mu, bool add, double s, double step) {
    const hs::AllocationTransform transform({mu, 1, add}, 0);
    const double exact = 0.5 * mu * mu * s * (s + 1);
    const hs::Cumulant k = transform.at(s);
    CHECK(exact <= k.upper && k.upper <= exact + 1e-5);
    CHECK(std::abs(k.value - exact) <= k.upper - k.value + 1e-13 * exact);
    const auto row = transform.row(s, step, 30, 1e-14);
    CHECK(row.value.size() == 30);
    for (std::size_t j = 0; j < row.value.size(); ++j) {
        const Complex z(s, step * static_cast<double>(j));
        const Complex truth = std::exp(0.5 * mu * mu * z * (z + 1.0) - row.shift) - 1.0;
        CHECK(std::abs(row.value[j] - truth) <= row.error[j] + 1e-14 * std::abs(truth + 1.0));
    }
}

// E V^3 = ((T-1)(T-2) + 3(T-1) w + w^3)/T^2 with w = e^{mu^2}; E V^2 = 1 + (w - 1)/T.
void whole_moments(double mu, double steps) {
    const hs::AllocationTransform transform({mu, steps, false}, 0);
    const double w = std::exp(mu * mu);
    const double second = std::log1p((w - 1) / steps);
    const double third = std::log1p(((3 * (steps - 1)) * (w - 1) + (w * w * w - 1)) / (steps * steps));
    for (const auto& [tilt, exact] : {std::pair{1.0, second}, std::pair{2.0, third}}) {
        const auto row = transform.row(tilt, 0, 1, 1e-14);
        CHECK(row.value.size() == 1);
        CHECK(std::abs(row.shift + std::log1p(row.value[0].real()) - exact) <= 1e-12 * (1 + exact));
        // Lines are chosen by a few digits, and a bound.
        const auto near = transform.at(tilt);
        CHECK(exact * (1 - 1e-14) <= near.upper && near.upper - exact < 1e-5);
        CHECK(std::abs(near.value - exact) <= near.upper - near.value + 1e-14);
    }
}

// The cut leaves out e^-60 or so: beyond it the same integral by other means.
void both_ways_agree(double mu, double steps, double power, double tau) {
    const hs::Allocation law{mu, steps, false};
    const hs::CutStep step(law, 1e-60, 6);
    const hs::Bulk bulk(law, step);
    const hs::PowerLine line(bulk, power, true);
    const auto cut = line.row(0.5 * tau, 3, std::log(1e-14));
    const int k = static_cast<int>(std::ceil(power)) + 8;
    const auto ray = hs::allocation_moments(law, k, k - power, 0.5 * tau, 3, 0, 1e-14);
    CHECK(!cut.empty() && ray);
    if (cut.empty() || !ray) return;
    for (std::size_t j = 0; j < cut.value.size(); ++j) {
        const double scale = std::exp(ray->shift - line.log_upper());
        const double apart = std::abs(cut.value[j] - std::conj(ray->value[j]) * scale);
        CHECK(apart <= cut.error[j] + scale * ray->error[j] + step.left_out() * std::exp(-line.log_upper()));
        CHECK(cut.error[j] <= 1e-9 * std::abs(cut.value[0]));
    }
}

// p! times a coefficient of the T-th power of the sum of E[W^j] t^j/(j! T^j); the cut leaves out nothing that
// counts in so light a law.
void lines_know_whole_powers(double mu, int steps, int power) {
    const hs::Allocation law{mu, static_cast<double>(steps), false};
    const hs::CutStep step(law, 1e-60, 6);
    const hs::Bulk bulk(law, step);
    const hs::PowerLine line(bulk, power, true);
    // Alone the real power needs no step.
    const auto row = line.row(0, 1, std::log(1e-13));
    std::vector<long double> c{1}, b{1};
    long double scaled = 1;  // j! T^j
    for (int j = 1; j <= power; ++j) {
        scaled *= static_cast<long double>(j) * steps;
        c.push_back(std::exp(0.5L * mu * mu * j * (j - 1)) / scaled);
        long double sum = 0;
        for (int i = 1; i <= j; ++i)
            sum += (static_cast<long double>(i) * (steps + 1) - j) * c[static_cast<std::size_t>(i)] *
                   b[static_cast<std::size_t>(j - i)];
        b.push_back(sum / j);
    }
    CHECK(!row.empty());
    if (row.empty()) return;
    for (int j = 1; j <= power; ++j) b.back() *= j;
    const double truth = static_cast<double>(b.back()) * std::exp(-line.log_upper());
    CHECK(std::abs(row.value[0] - truth) <= row.error[0] + 1e-15 * truth && row.error[0] < 1e-12 * truth);
}

// Of one step W^q has a closed form; the nodes that weigh most lie far from kappa.
void one_step_is_known(double mu, int k, double kappa, double step) {
    const double shift = (0.5 * mu * mu * (k - kappa) * (k - kappa - 1));
    constexpr std::size_t size = 40;
    const auto found = hs::allocation_moments({mu, 1, false}, k, kappa, step, size, shift - 1e-6, 1e-12);
    CHECK(found);
    if (!found) return;
    for (std::size_t j = 0; j < size; ++j) {
        const Complex q(k - kappa, -step * static_cast<double>(j));
        const Complex truth = std::exp(0.5 * mu * mu * q * (q - 1.0) - found->shift);
        CHECK(std::abs(found->value[j] - truth) <= found->error[j] + 1e-13 * std::abs(truth));
        CHECK(found->error[j] <= 1e-9 * std::exp(shift - found->shift));
    }
}

void frequencies_keep_their_bound(double mu, double steps, bool add, double s) {
    // Where a cut is asked for there are no lines at small tilts.
    const bool cut = 1 + s >= hs::AllocationTransform::least_power;
    CHECK(add || cut || hs::AllocationTransform({mu, steps, add}, 1e-30).row(s, 1, 2, 1e-14).value.empty());
    const hs::AllocationTransform transform({mu, steps, add}, cut ? 1e-30 : 0);
    const hs::Cumulant k = transform.for_line(s, s);
    const auto decay = transform.decay(s, k.upper);
    const double step = 8 / mu * std::sqrt(steps) / 40;
    const auto row = transform.row(s, step, 41, 1e-14);
    CHECK(row.value.size() == 41);
    for (std::size_t j = 1; j < row.value.size(); ++j) {
        const double bound = std::exp(k.upper - row.shift + decay->log_bound(step * static_cast<double>(j)));
        CHECK(std::abs(row.value[j] + 1.0) <= bound + row.error[j]);
        const double steep = decay->steep_log_bound(step * static_cast<double>(j));
        CHECK(std::abs(row.value[j] + 1.0) <= std::exp(k.upper - row.shift + steep) + row.error[j]);
    }
}

// E S^p over T - 1 normal variables by a fine sum over a cube in long double: x_k tells h_{k+1} from the mean
// of h_1, ..., h_k.
struct PlainMoment {
    using Wide = std::complex<long double>;
    long double mu, h, end;
    int steps;
    Wide power;

    Wide sum(int k, long double shared, long double s, long double squares) const {
        if (k == 0) return std::exp(power * std::log((s + std::exp(mu * shared)) / steps) - squares / 2);
        Wide all = 0;
        for (long double x = -end; x <= end; x += h) {
            const long double part = x / std::sqrt(static_cast<long double>(k * (k + 1)));
            if (squares + x * x < end * end)
                all += sum(k - 1, shared + part, s + std::exp(mu * (shared - k * part)), squares + x * x);
        }
        return all;
    }
};

// E V^p; the mean of the T normal variables is apart.
std::complex<long double> plain_moment(double mu, int steps, Complex p) {
    const PlainMoment plain{mu,
                            steps == 2   ? 0.05L
                            : steps == 3 ? 0.3L
                                         : 0.65L,
                            steps < 4 ? 14 + 1.2L * std::abs(p.real()) * mu : 12,
                            steps,
                            {p.real(), p.imag()}};
    const long double m = mu, pi = 3.14159265358979323846L;
    return plain.sum(steps - 1, 0, 0, 0) * std::pow(plain.h / std::sqrt(2 * pi), steps - 1.0L) *
           std::exp(m * m * plain.power * (plain.power / static_cast<long double>(steps) - 1.0L) / 2.0L);
}

void few_steps_have_digits(double mu, int steps, bool add, double s, double step, double widest,
                           double tolerance = 0) {
    const hs::FewSteps transform({mu, 1.0 * steps, add});
    const hs::Cumulant k = transform.at(s);
    const auto row = transform.row(s, step, 24, tolerance);
    const auto decay = transform.decay(s, k.upper);
    CHECK(row.value.size() == 24);
    for (std::size_t j = 0; j < row.value.size(); j += steps == 2 ? 2 : steps < 5 ? 6 : 23) {
        const Complex z(s, step * static_cast<double>(j));
        const auto moment = plain_moment(mu, steps, add ? -z : 1.0 + z);
        const auto excess = moment * std::exp(-static_cast<long double>(row.shift)) - 1.0L;
        const Complex truth(static_cast<double>(excess.real()), static_cast<double>(excess.imag()));
        CHECK(std::abs(row.value[j] - truth) <= row.error[j] + 1e-17);
        CHECK(row.error[j] <= widest);
        if (j == 0) {
            const double log = static_cast<double>(std::log(moment.real()));
            CHECK(log <= k.upper + 1e-17 && k.upper <= log + 2 * widest && std::abs(k.value - log) <= widest);
            continue;
        }
        const double bound = std::exp(k.upper - row.shift + decay->log_bound(z.imag()));
        CHECK(std::abs(row.value[j] + 1.0) <= bound + row.error[j]);
    }
}

// ln E V^n = ln of n!/T^n times the coefficient of x^n in (sum_j e^{mu^2 j (j - 1)/2} x^j/j!)^T.
void few_steps_know_whole_powers(double mu, int steps, int power, double widest = 1e-11) {
    const auto size = static_cast<std::size_t>(power) + 1;
    std::vector<long double> base(size), all(size, 0);
    all[0] = 1;
    for (std::size_t j = 0; j < size; ++j) {
        const auto n = static_cast<long double>(j);
        base[j] = std::exp(0.5L * mu * mu * n * (n - 1) - std::lgamma(n + 1));
    }
    for (int t = 0; t < steps; ++t)
        for (std::size_t n = size; n-- > 0;) {
            long double sum = 0;
            for (std::size_t j = 0; j <= n; ++j) sum += base[j] * all[n - j];
            all[n] = sum;
        }
    const auto truth =
        static_cast<double>(std::log(all[size - 1]) + std::lgamma(static_cast<long double>(power) + 1) -
                            static_cast<long double>(power) * std::log(static_cast<long double>(steps)));
    const hs::Cumulant k = hs::FewSteps({mu, 1.0 * steps, false}).at(power - 1);
    CHECK(truth <= k.upper && k.upper <= truth + widest);
    CHECK(std::abs(k.value - truth) <= k.upper - k.value);
}

// E V^0 = 1, but e^{mu x} is no number at some nodes; nor is the 59th moment of much less noise.
void few_steps_without_numbers_say_so() {
    for (const auto& [law, s] : {std::pair{hs::Allocation{1000, 2, true}, 0.0}, {{5, 2, false}, 58.0}}) {
        CHECK(hs::FewSteps(law).at(s).upper == std::numeric_limits<double>::infinity());
        CHECK(hs::FewSteps(law).row(s, 0.1, 4, 0).value.empty());
    }
}

// The other way to the same transform, along rays.
void few_steps_and_rays_agree(double mu, int steps, bool add, double s, double step) {
    const hs::Allocation law{mu, 1.0 * steps, add};
    const auto few = hs::FewSteps(law).row(s, step, 24, 1e-14),
               rays = hs::AllocationTransform(law, 0).row(s, step, 24, 1e-14);
    CHECK(few.value.size() == 24 && rays.value.size() == 24);
    const double scale = std::exp(rays.shift - few.shift);
    for (std::size_t j = 0; j < few.value.size(); ++j) {
        const double apart = std::abs(1.0 + few.value[j] - scale * (1.0 + rays.value[j]));
        CHECK(apart <= few.error[j] + scale * rays.error[j]);
        CHECK(few.error[j] <= 1e-9 && scale * rays.error[j] <= 1e-9);
    }
}

}  // namespace

int main() {
    for (const double mu : {1.0, 1.4, 1.83}) {
        one_step_is_known(mu, 0, 16.3, 0.3);
        one_step_is_known(mu, 4, 16.39, 0.05);
        one_step_is_known(mu, 1, 3.5, 0.7);
    }
    for (double a = 0.3; a < 60; a *= 1.07) kernels_round_as_they_say(a);
    for (double p = 0.7; p < 1e5; p *= 1.9) line_kernels_round_as_they_say(p);
    for (const bool add : {false, true}) {
        few_steps_have_digits(0.01, 2, add, 0.5, 2, 4e-16);
        few_steps_have_digits(0.033, 2, add, 900, 8, 1e-11);
        few_steps_have_digits(1, 2, add, 3, 0.4, 2e-12);
        few_steps_have_digits(5, 2, add, 2.5, 0.1, 3e-10);
        few_steps_have_digits(0.01, 3, add, 2, 30, 1e-14);
        few_steps_have_digits(0.033, 3, add, 600, 20, 1e-11);
        few_steps_have_digits(0.4, 3, add, 20, 1, 1e-11);
        few_steps_have_digits(0.01, 4, add, 3, 60, 1e-13);
        few_steps_have_digits(0.033, 4, add, 600, 20, 1e-11);
        few_steps_have_digits(0.4, 4, add, 0.5, 1, 1e-11, 1e-12);
        few_steps_have_digits(0.2, 4, add, 40, 0.01, 1e-5, 1e-6);
        few_steps_have_digits(0.4, 4, add, 2, 0.1, 1e-5, 1e-6);
        for (const int steps : {4, 6, 7, 8}) few_steps_and_rays_agree(0.03, steps, add, 60, 12);
    }
    few_steps_have_digits(0.1, 5, false, 150, 8, 1e-11);
    // Where large S carry much of the moment, too.
    for (const int power : {60, 80, 90, 100, 150}) few_steps_know_whole_powers(0.2, 4, power);
    few_steps_know_whole_powers(0.1, 4, 381);
    few_steps_know_whole_powers(0.4, 3, 30);
    few_steps_know_whole_powers(0.14, 5, 160);
    few_steps_know_whole_powers(0.033, 5, 700);
    few_steps_know_whole_powers(0.1, 6, 250);
    few_steps_know_whole_powers(0.1, 7, 2);
    few_steps_know_whole_powers(0.1, 7, 300);
    few_steps_know_whole_powers(0.02, 8, 1000);
    // Where nodes far from all others, next to the axes, carry it.
    for (const int power : {60, 120, 250}) few_steps_know_whole_powers(0.4, 5, power, 1e-10);
    few_steps_know_whole_powers(0.15, 5, 200);
    few_steps_know_whole_powers(0.2, 5, 200);
    few_steps_know_whole_powers(0.125, 6, 400, 1e-7);
    few_steps_know_whole_powers(0.168, 6, 200, 1e-7);
    few_steps_know_whole_powers(0.125, 8, 200);
    few_steps_and_rays_agree(0.3, 5, false, 70, 2);
    few_steps_and_rays_agree(0.4, 5, false, 50, 1);
    few_steps_and_rays_agree(0.168, 6, false, 120, 3);
    few_steps_without_numbers_say_so();
    for (const bool add : {false, true})
        for (const double mu : {0.05, 0.5, 1.0, 2.0}) one_step_is_lognormal(mu, add, 0.7, 0.3 / mu);
    one_step_is_lognormal(1.0, true, 6, 0.2);
    for (const double mu : {0.01, 1.0, 2.5})
        for (const double steps : {2.0, 7.0, 1000.0, 1e6}) whole_moments(mu, steps);
    both_ways_agree(0.1, 1000, 30.5, 900);
    both_ways_agree(0.3, 50, 26, 60);
    both_ways_agree(0.1, 4, 25, 50);
    for (const int power : {30, 100, 190}) lines_know_whole_powers(0.05, 1000, power);
    for (const bool add : {false, true}) {
        frequencies_keep_their_bound(0.1, 100, add, 60);
        frequencies_keep_their_bound(1, 100, add, 3);
    }
    // Large tilts of few steps: what lies next to the cut is hardly anything.
    frequencies_keep_their_bound(0.0926, 9, false, 165);
    frequencies_keep_their_bound(0.1, 12, false, 150);
    frequencies_keep_their_bound(0.08, 18, false, 250);
    return check::summary();
}
