// One epoch of random allocation in two parts: the transforms of one step on both sides of a cut against
// plain sums, the frequencies' bound against their values, and delta against the whole transform and one step
// alone.
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "check.hpp"
#include "hockeystick/pairs.hpp"
#include "inversion/allocation_step.hpp"
#include "inversion/direct_inversion.hpp"
#include "inversion/one_epoch.hpp"

namespace hs = hockeystick;
using Complex = std::complex<double>;

namespace {

// E[e^{s(W-1)/T}] over g from `low` to `high`, by the trapezoidal rule.
Complex plain_sum(double mu, double steps, Complex s, double low, double high, int n = 20000) {
    const double h = (high - low) / n;
    Complex sum = 0;
    for (int i = 0; i <= n; ++i) {
        const double g = low + i * h, weight = (i == 0 || i == n ? 0.5 : 1) * h;
        sum += weight * std::exp(-0.5 * g * g + s / steps * std::expm1(mu * (g - 0.5 * mu)));
    }
    return sum / std::sqrt(2 * std::numbers::pi);
}

void both_sides_are_known(double mu, double steps, double mass, Complex s) {
    const hs::Allocation law{mu, steps, false};
    const hs::CutStep step(law, mass, 9);
    CHECK(step.left_out() <= mass && step.left_out() > 0.999 * mass);
    const auto log = step.log_below(step.nodes_below(s), s);
    const Complex below = plain_sum(mu, steps, s, -11, step.end());
    CHECK(std::abs(std::exp(log.value / steps) - below) <= log.error + 1e-9 * std::abs(below));
    CHECK(log.error < 1e-9);
    const hs::StepLayers layers(law, step.end(), s.real() / steps);
    const double real = plain_sum(mu, steps, s.real(), -11, step.end()).real();
    const double lost = layers.lost(s.imag() / steps);
    CHECK(std::abs(below) <= real - lost + 1e-9 * real);
    if (s.imag() > 0) CHECK(lost > 0);
    if (s.imag() > 0) CHECK(std::abs(below) <= std::exp(layers.log_bound(s.imag() / steps)) + 1e-9 * real);
    if (s.real() > 0) return;
    const auto beyond = step.beyond(step.nodes_beyond(s), s);
    const Complex truth = plain_sum(mu, steps, s, step.end(), std::sqrt(step.end() * step.end() + 88));
    CHECK(std::abs(beyond.value - truth) <= beyond.error + 1e-5 * step.beyond_q());
    CHECK(beyond.error < 1e-10 * step.beyond_q());
}

// At high frequencies what the integrand's total variation leaves is near what it is: where it is cut.
void falls_as_its_edge(double mu, double steps, double end, double real) {
    const hs::Allocation law{mu, steps, false};
    const hs::StepLayers layers(law, end, real / steps);
    for (const double tau : {1e2, 1e3, 1e4}) {
        const double below = std::abs(plain_sum(mu, steps, {real, tau * steps}, -40, end, 4000000)),
                     bound = std::exp(layers.log_bound(tau));
        CHECK(below <= bound);
        CHECK(bound < 30 * below);
    }
}

// A tilt of Re s < 0 may move all that counts far to the left.
void the_left_is_known(double mu, double steps, Complex s) {
    const hs::Allocation law{mu, steps, false};
    const auto step = hs::CutStep::at(law, 4, 9);
    const auto log = step.log_below(step.nodes_below(s), s);
    const Complex truth = plain_sum(mu, steps, s, -60, step.end());
    CHECK(std::abs(std::exp(log.value / steps) / truth - 1.0) <= std::expm1(log.error / steps) + 1e-9);
    CHECK(log.error < 1e-9);
}

// Up to another cut, where e^{s(W-1)/T} grows faster than the normal law falls, all of it is there.
void what_is_between_two_cuts_is_known(double mu, double steps, double mass, double top, Complex s) {
    const hs::CutStep step({mu, steps, false}, mass, 9);
    const auto between = step.beyond(step.nodes_beyond(s, top), s);
    const Complex truth = plain_sum(mu, steps, s, step.end(), top, 100000);
    const double size = plain_sum(mu, steps, s.real(), step.end(), top, 100000).real();
    CHECK(std::abs(between.value - truth) <= between.error + 1e-5 * size);
    CHECK(between.error < 1e-6 * size);
}

// Both intervals hold the truth.
void agrees_with_the_whole(double mu, double steps, double epsilon, double widest) {
    const hs::Composition composition = {{hs::random_allocation(mu, steps, hs::Sampling::remove), 1}};
    const auto whole = hs::DirectInversion(composition).delta_bounds(epsilon, {}),
               parts = hs::OneEpoch::of(composition)->delta_bounds(epsilon, 4000);
    CHECK(whole && parts);
    if (!whole || !parts) return;
    CHECK(parts->lower <= whole->upper && whole->lower <= parts->upper);
    if (!(hs::relative_gap(parts) < widest))
        printf("%g %g %g gap %g\n", mu, steps, epsilon, hs::relative_gap(parts));
    CHECK(hs::relative_gap(parts) < widest);
}

// Against the transform of the whole; where lines are kept a second curve is as close, and afterwards nothing
// is left of them.
void lines_serve_the_next_curve(double mu, double steps) {
    const hs::Composition composition = {{hs::random_allocation(mu, steps, hs::Sampling::remove), 1}};
    const auto epoch = hs::OneEpoch::of(composition), other = hs::OneEpoch::of(composition);
    std::vector<double> few, many;
    for (int i = 1; i <= 12; ++i) few.push_back(0.08 * i);
    for (int i = 0; i < 60; ++i) many.push_back(0.08 + 0.01483 * i);
    const hs::Sharing sharing{1e-9};
    epoch->keep_lines(true);
    epoch->delta_curve(few, 4000, sharing);
    const auto served = epoch->delta_curve(many, 4000, sharing);
    epoch->keep_lines(false);
    const auto again = epoch->delta_curve(many, 4000, sharing),
               fresh = other->delta_curve(many, 4000, sharing);
    const hs::DirectInversion direct(composition);
    for (std::size_t i = 0; i < many.size(); ++i) {
        CHECK(served[i] && again[i] && fresh[i]);
        if (!served[i] || !again[i] || !fresh[i]) continue;
        CHECK(again[i]->lower == fresh[i]->lower && again[i]->upper == fresh[i]->upper);
        CHECK(served[i]->lower <= fresh[i]->upper && fresh[i]->lower <= served[i]->upper);
        CHECK(hs::relative_gap(served[i]) < std::max(1e-8, 10 * hs::relative_gap(fresh[i])));
        if (i % 20 != 0) continue;
        const auto whole = direct.delta_bounds(many[i], {});
        CHECK(whole && served[i]->lower <= whole->upper && whole->lower <= served[i]->upper);
    }
}

void knows_what_it_answers() {
    const auto remove = hs::random_allocation(1, 10, hs::Sampling::remove);
    CHECK(!hs::OneEpoch::of({{remove, 2}}) && !hs::OneEpoch::of({{remove, 1}, {remove, 1}}));
    CHECK(!hs::OneEpoch::of({{hs::random_allocation(1, 10, hs::Sampling::add), 1}}));
    CHECK(!hs::OneEpoch::of({{hs::gaussian(1), 1}}));
}

}  // namespace

int main() {
    // The density's largest value is at the cut, before it, and on either side of its inflection.
    falls_as_its_edge(0.5, 9, 1.5, 40);
    falls_as_its_edge(0.5, 9, 2.5, 9);
    falls_as_its_edge(0.5, 9, 4.5, 30);
    falls_as_its_edge(1.2, 9, 2.0, 9);
    // The mode lies left of all nodes.
    CHECK(std::isinf(hs::StepLayers({0.5, 9, false}, 2, -1e4).log_bound(1e3)));
    for (const Complex s : {Complex(2), Complex(40), Complex(40, 5), Complex(60, 1)}) {
        what_is_between_two_cuts_is_known(1, 1e5, 1e-6, 8, s);
        what_is_between_two_cuts_is_known(1, 1e5, 1e-6, 12.5, s);  // beyond where nodes end without a top
        what_is_between_two_cuts_is_known(2, 1e5, 1e-6, 7.5, s);
        what_is_between_two_cuts_is_known(0.3, 1e3, 1e-4, 20, s);
    }
    for (const double mu : {0.1, 0.5, 1.2})
        for (const Complex s :
             {Complex(-30, 0), Complex(-30, 80), Complex(-10, 300), Complex(4, 0), Complex(4, 300)})
            both_sides_are_known(mu, 1000, 1e-7, s);
    both_sides_are_known(1.0, 1e5, 1e-3, {-300, 4000});
    the_left_is_known(0.01, 8, -8000);
    the_left_is_known(0.01, 8, {-2000, 300});
    the_left_is_known(0.1, 20, -1600);
    the_left_is_known(1, 10, -300);
    agrees_with_the_whole(0.1, 50, 0.06, 1e-6);
    agrees_with_the_whole(0.3, 100, -0.05, 1e-8);
    agrees_with_the_whole(1, 300, 0, 1e-8);
    agrees_with_the_whole(0.8, 20, 1, 1e-8);
    // Some W is large at frequencies at which it turns often, and no smaller than the rest.
    agrees_with_the_whole(1.28, 18, 2, 1e-7);
    agrees_with_the_whole(0.6146, 6, 1.12, 1e-8);
    agrees_with_the_whole(0.6146, 6, 1.7, 1e-7);
    lines_serve_the_next_curve(0.8, 20);
    lines_serve_the_next_curve(0.6, 300);
    knows_what_it_answers();
    return check::summary();
}
