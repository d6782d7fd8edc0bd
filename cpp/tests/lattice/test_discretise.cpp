// The promises of the lattice: the upper bound's profile lies above the true one, the lower bound's
// below, at every eps, for smooth losses, atoms on and off the lattice, and any tilt.
#include "lattice/discretise.hpp"

#include <cmath>
#include <random>

#include "check.hpp"
#include "lattice/compose.hpp"
#include "numerics/special.hpp"

namespace hs = hockeystick;

namespace {

// H_{e^x} of a lattice.
double profile(const hs::Lattice& lattice, double x) {
    double sum = lattice.infinity_mass;
    for (std::size_t i = 0; i < lattice.mass.size(); ++i) {
        const double loss = static_cast<double>(lattice.index[i]) * lattice.step;
        if (loss > x && lattice.mass[i] > 0)
            sum += std::exp(std::log(lattice.mass[i]) + lattice.log_scale - lattice.tilt * loss) *
                   -std::expm1(x - loss);
    }
    return sum;
}

double truth(const hs::Pair& pair, double x) {
    const hs::Tangent t = pair.above(x);
    return t.value * std::exp(t.exponent) + pair.infinity_mass();
}

void brackets(const hs::PairPtr& pair, double step, double tilt, double gap) {
    const hs::Sketch sketch = hs::trimmed(hs::sketch(*pair, 100, 200), tilt, 1e-13, 0);
    const auto points = hs::choose_points(sketch, step, tilt);
    const hs::Lattice upper = hs::discretise(*pair, points, step, tilt, hs::Bound::upper);
    const hs::Lattice lower = hs::discretise(*pair, points, step, tilt, hs::Bound::lower);
    const double first = static_cast<double>(points.front()) * step,
                 last = static_cast<double>(points.back()) * step;
    double worst = 0;
    for (int i = 0; i <= 997; ++i) {
        const double x = first + (last - first) * i / 997;
        const double exact = truth(*pair, x), slack = 200 * hs::unit_roundoff;
        // What lies past the last point is accounted for apart.
        const double beyond = upper.beyond * std::exp(upper.log_scale - tilt * x);
        CHECK(profile(upper, x) + beyond >= exact * (1 - slack) - 1e-15);
        CHECK(profile(lower, x) <= exact * (1 + slack) + lower.deficit + 1e-15);
        worst = std::max(worst, profile(upper, x) - profile(lower, x));
    }
    if (!CHECK(worst <= gap)) std::printf("  gap %g, allowed %g, step %g, tilt %g\n", worst, gap, step, tilt);
}

// round_down: below the truth at every eps, yet no loss moves by more than a step.
void rounds_down(const hs::PairPtr& pair, double step, double tilt) {
    const hs::Sketch sketch = hs::trimmed(hs::sketch(*pair, 100, 200), tilt, 1e-13, 0);
    const auto points = hs::choose_points(sketch, step, tilt);
    const hs::Lattice lower = hs::round_down(*pair, points, step, tilt);
    CHECK(lower.offset <= 0 && lower.offset > -1e-9 * step);
    const double first = static_cast<double>(points.front()) * step,
                 last = static_cast<double>(points.back()) * step, slack = 200 * hs::unit_roundoff;
    for (int i = 0; i <= 997; ++i) {
        // On points, just beside them, and anywhere.
        const double at = first + (last - first) * i / 997, near = std::round(at / step) * step;
        for (const double x : {at, near, near * (1 + 1e-15), near * (1 - 1e-15), near - 1e-3 * step}) {
            const double found = profile(lower, x - lower.offset);
            CHECK(found <= truth(*pair, x) * (1 + slack) + 1e-15);
            if (x > first) CHECK(found >= truth(*pair, x + step * (1 + 1e-9)) * (1 - 1e-9) - 1e-9);
        }
    }
}

// An atom that lies beside the lattice keeps the lower bound below the closed form.
void beside_an_atom(double share) {
    const double epsilon = 0.05, step = share * epsilon;
    const auto last = static_cast<std::int64_t>(std::ceil(epsilon / step)) + 1;
    const hs::Lattice lower =
        hs::discretise(*hs::laplace(epsilon), hs::all_points(-last, last), step, 0, hs::Bound::lower);
    for (int i = -100; i <= 100; ++i) {
        const double x = epsilon * i / 100;
        CHECK(profile(lower, x) <= -std::expm1(0.5 * (x - epsilon)) + 1e-14);
    }
}

// The sum of offsets of either sign, which cancel, lies within its stated error of the exact one.
void check_offsets() {
    std::mt19937_64 random(2);
    std::uniform_real_distribution<double> uniform(-1, 1);
    double worst = 0;
    for (int repeat = 0; repeat < 200; ++repeat) {
        hs::StepSums sums;
        long double exact = 0;
        for (int i = 0; i < 40; ++i) {
            hs::LatticeTerms step;
            step.offset = uniform(random) * (i % 2 == 0 ? 1 : 1e-3);
            const auto count = static_cast<std::uint64_t>(1e6 * (1 + uniform(random)));
            sums.add(step, count);
            exact += static_cast<long double>(step.offset) * static_cast<long double>(count);
        }
        const hs::Composed all = sums.composed(hs::Bound::lower, 0.1, 0);
        const double off = std::abs(static_cast<double>(exact - static_cast<long double>(all.offset)));
        CHECK(off <= all.offset_error);
        worst = std::max(worst, off / all.offset_error);
    }
    CHECK(worst > 0.01);  // Nor is the error stated out of all proportion.
}

}  // namespace

int main() {
    check_offsets();
    for (const double share : {0.05, 0.26, 0.37}) beside_an_atom(share);
    for (const double tilt : {0.0, 1e-4, 0.02}) {
        rounds_down(hs::gaussian(30), 3, tilt);
        rounds_down(hs::gaussian(200), 128, tilt);
        rounds_down(hs::laplace(40), 8, tilt);  // atoms on points
        rounds_down(hs::laplace(41), 8, tilt);  // and off them
        rounds_down(hs::mixture({hs::gaussian(20), hs::gaussian(40), hs::gaussian(60)}, {0.5, 0.3, 0.2}), 7,
                    tilt);
        for (const auto mode : {hs::Sampling::remove, hs::Sampling::add, hs::Sampling::replace_one})
            rounds_down(hs::sampled(hs::gaussian(25), 0.3, mode), 5.1875, tilt);
        // Atoms a hair to either side of a point, and on points.
        rounds_down(
            hs::discrete({-4, 0, 4 * (1 - 1e-15), 8, 8 * (1 + 1e-15), 12.5},
                         {1e-6, 0.4, 0.2, 0.2, 0.1, 0.1 - 1e-6},
                         {1e-6 * std::exp(4), 0.4, 0.2 * std::exp(-4 * (1 - 1e-15)), 0.2 * std::exp(-8),
                          0.1 * std::exp(-8 * (1 + 1e-15)), (0.1 - 1e-6) * std::exp(-12.5)}),
            4, tilt);
    }
    for (const double tilt : {0.0, 0.5, 6.0}) {
        brackets(hs::gaussian(1), 0.05, tilt, 5e-4);
        brackets(hs::laplace(0.5), 0.5 / 16, tilt, 5e-3);  // atoms on the lattice
        brackets(hs::laplace(0.5), 0.037, tilt, 5e-2);     // and off it
        for (const auto mode : {hs::Sampling::remove, hs::Sampling::add, hs::Sampling::replace_one}) {
            brackets(hs::sampled(hs::gaussian(1), 0.01, mode), 1e-3, tilt, 1e-3);
            brackets(hs::sampled(hs::laplace(1), 0.3, mode), 0.0113, tilt, 1e-2);
        }
        brackets(hs::location_mixture(hs::Noise::gaussian, 1, {0, 1}, {0.7, 0.3}, {0, -1}, {0.7, 0.3}), 0.03,
                 tilt, 1e-3);
    }
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> uniform(0.05, 1.0);
    for (int repeat = 0; repeat < 50; ++repeat) {
        // Random atoms: Q = P e^-loss, shifted so that Q sums to at most 1.
        std::vector<double> loss, p, q;
        double at = -1.5, p_sum = 0, q_sum = 0;
        for (int i = 0; i < 6; ++i) {
            loss.push_back(at += uniform(random));
            p.push_back(uniform(random));
            p_sum += p.back();
        }
        for (std::size_t i = 0; i < p.size(); ++i) q_sum += (p[i] /= p_sum) * std::exp(-loss[i]);
        const double shift = std::max(0.0, std::log(q_sum)) + 1e-12;
        for (std::size_t i = 0; i < p.size(); ++i) q.push_back(p[i] * std::exp(-(loss[i] += shift)));
        brackets(hs::discrete(loss, p, q), 0.041, 1.0, 0.2);
    }
    // Lattices that only rounding could break: coarse, and far from 0.
    brackets(hs::gaussian(0.01), 1e-5, 100, 1e-4);
    brackets(hs::gaussian(30), 3.0, 0, 0.2);
    return check::summary();
}
