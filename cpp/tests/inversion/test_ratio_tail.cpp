// One ratio between two cuts, or beyond one, at high frequencies against the midpoint rule, and the parts
// that are computed with its help against those that are not; how the bulk falls against what it is.
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>

#include "check.hpp"
#include "hockeystick/pairs.hpp"
#include "inversion/allocation_parts.hpp"
#include "inversion/allocation_powers.hpp"
#include "inversion/allocation_ratio_tail.hpp"

namespace hs = hockeystick;

namespace {

using Complex = std::complex<double>;

// E[e^{theta (W-1)}; from < g < to]
Complex sum(double mu, double from, double to, Complex theta, int nodes) {
    const double h = (to - from) / nodes;
    std::complex<long double> total = 0;
    for (int i = 0; i < nodes; ++i) {
        const double g = from + (i + 0.5) * h;
        total += h / std::sqrt(2 * std::numbers::pi) *
                 std::exp(theta * std::expm1(mu * (g - 0.5 * mu)) - 0.5 * g * g);
    }
    return Complex(total);
}

void is_the_integral(double mu, double from, double to, double real, double turns) {
    const hs::Allocation law{mu, 1, false};
    const double low = turns / std::exp(mu * (from - 0.5 * mu));
    CHECK(hs::RatioTail::first_place(law, low) <= from + 1e-9 || turns < 30);
    const hs::RatioTail a(law, from, real, low, 1.7 * low), b(law, to, real, low, 1.7 * low);
    const double step = 0.02 * low;
    const auto a_row = a.row({real, low}, step, 36), b_row = b.row({real, low}, step, 36);
    for (const std::size_t j : {std::size_t{0}, std::size_t{13}, std::size_t{35}}) {
        const Complex theta(real, low + step * static_cast<double>(j));
        const auto first = a_row[j], second = b_row[j];
        const Complex fine = sum(mu, from, to, theta, 400000), coarse = sum(mu, from, to, theta, 200000);
        const double rule = 2 * std::abs(fine - coarse), error = first.error + second.error;
        CHECK(std::abs(first.value - second.value - fine) <= error + rule);
        CHECK(error < 1e-9 * std::abs(first.value) && rule < 1e-3 * std::abs(fine));
    }
}

void bulk_is_the_same(double mu, double steps, double cut, double s, double tau) {
    const hs::Allocation law{mu, steps, false};
    const auto step = hs::CutStep::at(law, cut, 12);
    const auto row = hs::Bulk(law, step).row(s, tau, 64);
    // Blocks of 32 frequencies: the second starts high.
    const auto nodes = step.nodes_below({s, 64 * tau});
    for (std::size_t j = 0; j < row.size(); ++j) {
        const auto direct = step.log_below(nodes, {s, tau * static_cast<double>(j)});
        const Complex difference = row[j].value - direct.value;
        const double turns = std::round(difference.imag() / (2 * std::numbers::pi));
        CHECK(std::abs(difference - Complex(0, 2 * std::numbers::pi * turns)) <= row[j].error + direct.error);
        CHECK(row[j].error < 1e-5);
    }
    CHECK(hs::RatioTail::first_place(law, 32 * tau / steps) < cut - 1);
}

// The same by Romberg's extrapolation, and how closely.
std::pair<Complex, double> extrapolated(double mu, double from, double to, Complex theta) {
    const Complex coarse = sum(mu, from, to, theta, 40000), fine = sum(mu, from, to, theta, 80000),
                  finest = sum(mu, from, to, theta, 160000), first = fine + (fine - coarse) / 3.0,
                  second = finest + (finest - fine) / 3.0, third = second + (second - first) / 15.0;
    return {third, std::abs(third - second) + 1e-16};
}

// By nodes alone in the first block of 32 frequencies, then by both, and by rays alone: `places` of three.
void rest_is_known(double mu, double steps, double cut, double top, double s, double tau, int places) {
    const hs::Allocation law{mu, steps, false};
    const auto step = hs::CutStep::at(law, cut, 12);
    const auto row = hs::Rest(law, step, top).row(s, tau, 512);
    const double end = std::min(top, cut + 12);
    int seen = 0;
    for (const std::size_t j : {1, 20, 33, 63, 100, 200, 300, 511}) {
        const double place = hs::RatioTail::first_place(law, tau * static_cast<double>(j / 32 * 32) / steps);
        seen |= place <= cut ? 4 : place < std::min(top, step.last_node()) - 1 ? 2 : 1;
        const Complex theta = Complex(s, tau * static_cast<double>(j)) / steps;
        const auto [below, below_error] = extrapolated(mu, -12, cut, theta);
        const auto [beyond, beyond_error] = extrapolated(mu, cut, end, theta);
        const Complex truth = std::pow(below + beyond, steps) - std::pow(below, steps);
        const double oracle = steps * std::pow(std::abs(below) + std::abs(beyond), steps - 1) *
                              (2 * below_error + beyond_error);
        const Complex value = std::exp(row[j].value);
        CHECK(std::abs(value - truth) <= std::expm1(row[j].error) * std::abs(value) + oracle);
        CHECK(row[j].error < 1e-5);
    }
    CHECK(seen == places);
}

// Below what is bounded for all higher frequencies, and not by much.
void falls(double mu, double steps, double cut, double s, double tau, double widest) {
    const hs::Allocation law{mu, steps, false};
    const auto step = hs::CutStep::at(law, cut, 9);
    const hs::Bulk bulk(law, step);
    const auto decay = bulk.log_decay(s);
    const auto row = bulk.row(s, tau, 400);
    double worst = 0;
    for (std::size_t j = 0; j < row.size(); ++j) {
        const double size = row[j].value.real() - row[j].error - row[0].value.real() - row[0].error;
        for (std::size_t i = 0; i <= j; i += 7) CHECK(size <= decay(tau * static_cast<double>(i)) + 1e-9);
        if (size > -40) worst = std::max(worst, decay(tau * static_cast<double>(j)) - size);
    }
    CHECK(worst < widest);
}

// |E[V^{power + i tau}]| beside its bound by the mean of all normal variables.
void turns(double mu, double steps, double cut, double power, double tau, double largest_edge) {
    const hs::Allocation law{mu, steps, false};
    const auto step = hs::CutStep::at(law, cut, 9);
    const hs::Bulk bulk(law, step);
    const hs::PowerLine line(bulk, power);
    const auto row = line.row(tau, 100, -36);
    CHECK(!row.empty());
    if (row.empty()) return;
    CHECK(bulk.log_least_moment(power) <= line.log_upper() + std::log(std::abs(row.value[0]) + row.error[0]));
    const auto edge = bulk.edge(power, line.theta(), bulk.log_least_moment(power));
    for (std::size_t j = 0; j < row.value.size(); ++j) {
        const double t = tau * static_cast<double>(j);
        CHECK(std::abs(row.value[j]) - row.error[j] <=
              (std::abs(row.value[0]) + row.error[0]) *
                  (edge.turning * std::exp(-0.5 * bulk.variance() * t * t) + edge.edge));
    }
    CHECK(edge.edge < largest_edge && edge.turning < 1.001);
}

}  // namespace

int main() {
    for (const double mu : {0.4, 1.0, 2.5})
        for (const double real : {-1e-2, 0.0, 3e-3}) is_the_integral(mu, 3, 4.5, real, 30);
    is_the_integral(1.5, 6, 7, 1e-4, 200);
    bulk_is_the_same(1.4, 1e5, 8, 5, 40);
    bulk_is_the_same(3.3, 1e4, 4.5, 1, 40);
    const double unbounded = std::numeric_limits<double>::infinity();
    rest_is_known(1.28, 18, 2.6, unbounded, -8, 0.7, 7);
    rest_is_known(0.6, 7, 2, unbounded, -1, 0.2, 7);
    rest_is_known(0.6, 7, 2, unbounded, -1, 2, 7);
    rest_is_known(2.5, 40, 3, unbounded, -0.5, 0.03, 3);
    rest_is_known(0.3, 18, 2.6, unbounded, -8, 0.5, 1);
    rest_is_known(1.28, 18, 2.6, 5.2, -8, 1, 7);
    rest_is_known(1.28, 18, 2.6, 5.2, 0.05, 1, 7);
    falls(1.4, 1e5, 8, 10, 3, 4);
    falls(1.0, 1e4, 6, 30, 2, 4);
    falls(0.2, 300, 5, 20, 0.5, 12);
    turns(1.4, 1e5, 7.5, 14, 12, 1e-3);
    turns(1.0, 1e4, 6, 6, 8, 1e-1);
    return check::summary();
}
