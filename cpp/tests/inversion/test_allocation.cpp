// The transform of a random allocation against what is known of it: one step is a lognormal, whole powers of
// V have moments in closed form, both ways to a moment meet, and no frequency exceeds its bound.
#include <cmath>
#include <complex>
#include <initializer_list>
#include <vector>

#include "check.hpp"
#include "inversion/allocation_transform.hpp"

namespace hs = hockeystick;
using Complex = std::complex<double>;

namespace {

// With T = 1 both directions have M(z) = e^{mu^2 z (z+1)/2}.
void one_step_is_lognormal(double mu, bool add, double s, double step) {
    const hs::AllocationTransform transform({mu, 1, add}, 0);
    const double exact = 0.5 * mu * mu * s * (s + 1);
    const hs::Cumulant k = transform.at(s);
    CHECK(exact <= k.upper && k.upper <= exact + 1e-9);
    CHECK(std::abs(k.value - exact) <= 1e-9 * (1 + exact));
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
    CHECK(std::abs(transform.at(1).value - second) <= 1e-12 * (1 + second));
    CHECK(transform.at(1).upper >= second * (1 - 1e-14));
    CHECK(std::abs(transform.at(2).value - third) <= 1e-12 * (1 + third));
}

// The cut leaves out e^-60 or so: beyond it the same integral by other means.
void both_ways_agree(double mu, double steps, double power, double tau) {
    const std::vector<double> frequencies = {0, 0.5 * tau, tau};
    const hs::CutAllocation cut({mu, steps, false}, 1e-60);
    const auto line = cut.moments(power, frequencies, 0, 1e-14);
    const int k = static_cast<int>(std::ceil(power)) + 8;
    const auto ray = hs::allocation_moments({mu, steps, false}, k, k - power, frequencies, 0, 1e-14);
    CHECK(line && ray);
    if (!line || !ray) return;
    for (std::size_t j = 0; j < frequencies.size(); ++j) {
        const double scale = std::exp(ray->shift - line->shift);
        const double apart = std::abs(line->value[j] - std::conj(ray->value[j]) * scale);
        CHECK(apart <= line->error[j] + scale * ray->error[j] + cut.dropped());
        CHECK(line->error[j] <= 1e-9 * std::abs(line->value[0]));
    }
}

void frequencies_keep_their_bound(double mu, double steps, bool add, double s) {
    const hs::AllocationTransform transform({mu, steps, add}, 1e-30);
    const hs::Cumulant k = transform.at(s);
    const auto decay = transform.decay(s, k.upper);
    const double step = 8 / mu * std::sqrt(steps) / 40;
    const auto row = transform.row(s, step, 41, 1e-14);
    CHECK(row.value.size() == 41);
    for (std::size_t j = 1; j < row.value.size(); ++j) {
        const double bound = std::exp(k.upper - row.shift + decay->log_bound(step * static_cast<double>(j)));
        CHECK(std::abs(row.value[j] + 1.0) <= bound + row.error[j]);
    }
}

}  // namespace

int main() {
    for (const bool add : {false, true})
        for (const double mu : {0.05, 0.5, 1.0, 2.0}) one_step_is_lognormal(mu, add, 0.7, 0.3 / mu);
    one_step_is_lognormal(1.0, true, 6, 0.2);
    for (const double mu : {0.01, 1.0, 2.5})
        for (const double steps : {2.0, 7.0, 1000.0, 1e6}) whole_moments(mu, steps);
    both_ways_agree(0.1, 1000, 30.5, 900);
    both_ways_agree(0.3, 50, 26, 60);
    both_ways_agree(0.1, 4, 25, 50);
    for (const bool add : {false, true}) {
        frequencies_keep_their_bound(0.1, 100, add, 60);
        frequencies_keep_their_bound(1, 100, add, 3);
    }
    return check::summary();
}
