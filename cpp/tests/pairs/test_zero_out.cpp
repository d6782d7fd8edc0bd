// The zero-out pair against a search over all that it is to dominate.
#include "hockeystick/pairs.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numbers>
#include <stdexcept>

#include "check.hpp"
#include "hockeystick/profile.hpp"
#include "lattice/discretise.hpp"

namespace hs = hockeystick;

namespace {

double density(double t, double shift) {
    return std::exp(-0.5 * (t - shift) * (t - shift)) / std::sqrt(2 * std::numbers::pi);
}

// H_a of (1-q) N(0) + q N(w) against (1-q) N(0) + q N(v), by the trapezoidal rule.
double direct(double q, double w, double v, double a) {
    const double h = 2e-3, low = std::min({0.0, v, w}) - 12, high = std::max({0.0, v, w}) + 12;
    double sum = 0;
    for (double t = low; t < high; t += h) {
        const double none = (1 - q) * density(t, 0);
        sum += std::max(0.0, none + q * density(t, w) - a * (none + q * density(t, v)));
    }
    return sum * h;
}

double above(const hs::Pair& pair, double x) {
    const hs::Tangent t = pair.above(x);
    return t.value * std::exp(t.exponent);
}

void dominates_and_is_attained(double mu, double q) {
    const auto remove = hs::zero_out(mu, q, hs::Sampling::remove),
               add = hs::zero_out(mu, q, hs::Sampling::add);
    for (const double x : {-2.0, -0.3, -0.01, 0.0, 0.02, 0.4, 1.5}) {
        double worst = 0, worst_add = 0;
        for (int i = -4; i <= 4; ++i) {
            for (int j = -4; j <= 4; ++j) {
                const double v = mu * i / 4, w = v + mu * j / 4;
                worst = std::max(worst, direct(q, w, v, std::exp(x)));
                worst_add = std::max(worst_add, direct(q, v, w, std::exp(x)));
            }
        }
        const double got = above(*remove, x), got_add = above(*add, x);
        // The trapezoidal rule is off by about h^2 where the integrand has a kink.
        CHECK(worst <= got * (1 + 1e-5) + 1e-9);
        CHECK(got <= worst * (1 + 1e-5) + 1e-9);
        CHECK(worst_add <= got_add * (1 + 1e-5) + 1e-9);
        CHECK(got_add <= worst_add * (1 + 1e-5) + 1e-9);
    }
}

// What is looser is more everywhere, also of a choice and where the pair stands for a mechanism between two.
void looser_dominates(double mu, double q) {
    const hs::PairPtr less = hs::gaussian(0.1 * mu);
    for (const auto mode : {hs::Sampling::remove, hs::Sampling::add, hs::Sampling::replace_one}) {
        const hs::PairPtr pair = mode == hs::Sampling::replace_one ? hs::sampled(hs::gaussian(mu), q, mode)
                                                                   : hs::zero_out(mu, q, mode),
                          choice = hs::mixture({less, pair}, {0.25, 0.75});
        for (const hs::PairPtr& each : {pair, choice, hs::bracket(less, choice)}) {
            const hs::PairPtr more = each->looser();
            CHECK(more != nullptr);
            if (!more) continue;
            CHECK(!more->gaussian_mixtures().empty());
            for (double x = -3; x <= 6; x += 0.0619) {
                const hs::Tangent a = each->above(x), b = more->above(x);
                CHECK((a.value - a.error) * std::exp(a.exponent) <=
                      (b.value + b.error) * std::exp(b.exponent));
            }
        }
    }
    CHECK(!less->looser() && !hs::sampled(less, q, hs::Sampling::remove)->looser());
}

// The views from both sides, the slope and the reversed pair belong to one profile.
void is_consistent(double mu, double q) {
    const auto remove = hs::zero_out(mu, q, hs::Sampling::remove),
               add = hs::zero_out(mu, q, hs::Sampling::add);
    double before = 2, slope_before = 2;
    for (double x = -3; x <= 6; x += 0.037) {
        for (const auto& pair : {remove, add}) {
            const hs::Tangent a = pair->above(x), b = pair->below(x);
            const double f = a.value * std::exp(a.exponent), k = b.value * std::exp(b.exponent);
            const double error = a.error * std::exp(a.exponent) + b.error * std::exp(b.exponent);
            CHECK(std::abs(f - k - (1 - std::exp(x))) <= error + 1e-15 * (1 + std::exp(x)));
            const double total = a.slope * std::exp(a.exponent) + b.slope * std::exp(b.exponent);
            CHECK(std::abs(total - std::exp(x)) <= 1e-14 * (1 + std::exp(x)));
            // A tangent: nowhere above the profile.
            for (const double y : {x - 0.5, x - 0.01, x + 0.01, x + 0.5}) {
                const double line = f - a.slope * std::exp(a.exponent) * std::expm1(y - x);
                CHECK(line <= above(*pair, y) + 1e-15);
            }
        }
        const hs::Tangent t = remove->above(x);
        const double f = t.value * std::exp(t.exponent), slope = t.slope * std::exp(t.exponent - x);
        CHECK(f <= before && slope <= slope_before * (1 + 1e-12));
        before = f;
        slope_before = slope;
        // delta_(Q,P)(x) = 1 - e^x + e^x delta_(P,Q)(-x).
        const double swapped = 1 - std::exp(x) + std::exp(x) * above(*remove, -x);
        CHECK(std::abs(above(*add, x) - swapped) <= 1e-14 * (1 + std::exp(x)));
    }
}

// Where x is never swapped out of a batch it is a Gaussian of shift mu; far tails stay exact.
void has_limits() {
    const auto pair = hs::zero_out(0.8, 1, hs::Sampling::remove);
    const auto gaussian = hs::gaussian(0.8);
    for (const double x : {-3.0, 0.0, 1.0, 40.0}) {
        const hs::Tangent a = pair->above(x), b = gaussian->above(x);
        const double ratio = a.value / b.value * std::exp(a.exponent - b.exponent);
        CHECK(std::abs(ratio - 1) <= 1e-12 * (1 + std::abs(x)));
    }
    // At q -> 0 and fixed a > 1 the loss is that of N(2 mu) against N(0) at (a-1)/q.
    const double q = 1e-9, x = 1;
    const hs::Tangent far = hs::zero_out(0.8, q, hs::Sampling::remove)->above(x);
    const hs::Tangent plain = hs::sampled(hs::gaussian(1.6), q, hs::Sampling::remove)->above(x);
    const double ratio = far.value / plain.value * std::exp(far.exponent - plain.exponent);
    CHECK(ratio > 0.99 && ratio <= 1);
    CHECK_THROWS(std::invalid_argument, hs::zero_out(0, 0.5, hs::Sampling::remove));
    CHECK_THROWS(std::invalid_argument, hs::zero_out(1, 0, hs::Sampling::remove));
    CHECK_THROWS(std::invalid_argument, hs::zero_out(1, 0.5, hs::Sampling::replace_one));
}

// Two steps composed by the engine, against the same mechanisms enumerated on a grid.
void composes(double mu, double q, hs::Sampling mode) {
    const auto pair = hs::zero_out(mu, q, mode);
    const hs::Profile profile({{{pair, 2}}}, 1e-4);
    const double h = 0.02, epsilon = 0.3;
    for (const bool first : {true, false}) {
        // Two mechanisms that the pair must dominate: (w, v) = (2 mu, mu) and (0, mu), both steps alike.
        const double w = first ? 2 * mu : 0, v = mu;
        double sum = 0;
        for (double s = -9; s < 11; s += h) {
            for (double t = -9; t < 11; t += h) {
                const auto law = [&](double shift, double at) {
                    return (1 - q) * density(at, 0) + q * density(at, shift);
                };
                double p = law(w, s) * law(w, t), other = law(v, s) * law(v, t);
                if (mode == hs::Sampling::add) std::swap(p, other);
                sum += std::max(0.0, p - std::exp(epsilon) * other);
            }
        }
        CHECK(sum * h * h <= profile.delta_bounds(epsilon).upper * (1 + 1e-4));
    }
}

}  // namespace

int main() {
    for (const double mu : {0.3, 1.0, 2.5}) {
        for (const double q : {0.01, 0.3, 0.9}) {
            dominates_and_is_attained(mu, q);
            looser_dominates(mu, q);
            is_consistent(mu, q);
        }
    }
    is_consistent(1e-3, 0.2);
    is_consistent(0.5, 1e-7);
    has_limits();
    composes(0.8, 0.3, hs::Sampling::remove);
    composes(0.8, 0.3, hs::Sampling::add);
    return check::summary();
}
