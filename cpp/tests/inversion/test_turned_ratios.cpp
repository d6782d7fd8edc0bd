// The bound on E[V^{p + i tau}] by ratios that turn: against closed forms for one step and an integral for
// two, and against the values themselves for more.
#include <algorithm>
#include <cmath>
#include <complex>
#include <initializer_list>
#include <limits>
#include <numbers>

#include "check.hpp"
#include "inversion/allocation_moments.hpp"
#include "inversion/allocation_turned_ratios.hpp"

namespace hs = hockeystick;
using Complex = std::complex<double>;

namespace {

// ln |E W^P| of one lognormal.
double log_of_one(double mu, Complex power) { return (0.5 * mu * mu * power * (power - 1.0)).real(); }

// V = e^{mu m - mu^2/2} cosh(mu h), m and h independent N(0, 1/2).
double log_of_two(double mu, Complex power) {
    const double step = 1e-3, end = 8 + 0.5 * mu * power.real();
    Complex sum = 0;
    for (double h = -end; h <= end; h += step)
        sum += step * std::exp(-h * h + power * std::log(std::cosh(mu * h)));
    const Complex mean = 0.25 * mu * mu * power * power - 0.5 * mu * mu * power;
    return mean.real() + std::log(std::abs(sum) / std::sqrt(std::numbers::pi));
}

void one_and_two_steps_are_below(double mu, double power) {
    const hs::TurnedRatios one({mu, 1, false}, power), two({mu, 2, false}, power);
    for (const double tau : {8.0, 12.0, 45.0}) {
        CHECK(log_of_one(mu, {power, tau}) <= one.log_bound(tau));
        CHECK(log_of_two(mu, {power, tau}) <= two.log_bound(tau) + 1e-9);
    }
    CHECK(one.log_bound(7.0) == std::numeric_limits<double>::infinity());
}

// No frequency exceeds the bound of any lower one; how far below the value at 0 it is.
double values_are_below(double mu, double steps, double power, double step) {
    constexpr std::size_t size = 50;
    const int k = static_cast<int>(std::ceil(power)) + 5;
    const auto known = hs::allocation_moments({mu, steps, false}, k, k - power, step, size, 0, 1e-14);
    CHECK(known);
    if (!known) return 0;
    const hs::TurnedRatios turned({mu, steps, false}, power);
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t j = 0; j < size; ++j) {
        least = std::min(least, turned.log_bound(step * static_cast<double>(j)));
        CHECK(std::abs(known->value[j]) - known->error[j] <= std::exp(least - known->shift));
    }
    return least - known->shift - std::log(known->value[0].real());
}

}  // namespace

int main() {
    for (const double mu : {0.2, 1.0, 2.0, 5.0})
        for (const double power : {0.0, 1.6, 4.0}) one_and_two_steps_are_below(mu, power);
    for (const double mu : {0.2, 1.0}) one_and_two_steps_are_below(mu, 30);
    // Where powers of small ratios underflow.
    one_and_two_steps_are_below(0.3, 100);
    for (const double tau : {8.0, 20.0})
        CHECK(log_of_one(0.25, {130.5, tau}) <= hs::TurnedRatios({0.25, 1, false}, 130.5).log_bound(tau));
    for (const double power : {0.5, 2.3}) {
        for (const double steps : {9.0, 1e3, 2e4}) {
            values_are_below(0.5, steps, power, 0.05 * std::sqrt(steps) + 0.5);
            values_are_below(1, steps, power, 0.02 * std::sqrt(steps) + 0.5);
        }
        for (const double steps : {1e3, 1e5, 1e6}) {
            values_are_below(2, steps, power, 1.5);
            values_are_below(10.0 / 3, steps, power, 1.5);
        }
    }
    // The mean of all normal variables alone leaves e^-.3 of it.
    CHECK(values_are_below(10.0 / 3, 1e6, 2.5, 5) < -10);
    return check::summary();
}
