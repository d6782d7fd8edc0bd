// Mean-preserving rounding: the mean is kept, every mass lies within h/2 of where it was, and the coupling
// bound holds against closed forms, on coarse lattices, for heavy tails and for atoms on the bins' edges.
#include "lattice/coupling.hpp"

#include <cmath>
#include <numbers>
#include <random>
#include <stdexcept>

#include "check.hpp"
#include "lattice/compose.hpp"
#include "lattice/discretise.hpp"
#include "numerics/fft.hpp"
#include "numerics/special.hpp"

namespace hs = hockeystick;

namespace {

struct Atoms {
    std::vector<double> loss, p, q;
    hs::PairPtr pair() const { return hs::discrete(loss, p, q); }
};

Atoms random_atoms(std::mt19937_64& random, int size, double unit) {
    std::uniform_int_distribution<int> gap(1, 9);
    std::uniform_real_distribution<double> uniform(0.05, 1.0);
    Atoms out;
    double at = -12, p_sum = 0, q_sum = 0;
    for (int i = 0; i < size; ++i) {
        out.loss.push_back((at += gap(random)) * unit);
        out.p.push_back(std::exp(4 * uniform(random)));
        p_sum += out.p.back();
    }
    for (std::size_t i = 0; i < out.p.size(); ++i) {
        out.q.push_back((out.p[i] /= p_sum) * std::exp(-out.loss[i]));
        q_sum += out.q.back();
    }
    if (q_sum > 1) {  // shift the P-mass to the largest loss until Q sums to less
        const double last = std::exp(-out.loss.back()), w = (1 - 1e-6 - last) / (q_sum - last);
        for (std::size_t i = 0; i < out.p.size(); ++i) {
            out.p[i] *= w;
            if (i + 1 == out.p.size()) out.p[i] += 1 - w;
            out.q[i] = out.p[i] * std::exp(-out.loss[i]);
        }
    }
    return out;
}

double mass_at(const hs::Lattice& lattice, std::size_t i) {
    return std::exp(std::log(lattice.mass[i]) + lattice.log_scale -
                    lattice.tilt * static_cast<double>(lattice.index[i]) * lattice.step);
}

double mean(const hs::Lattice& lattice) {
    double sum = 0, first = 0;
    for (std::size_t i = 0; i < lattice.mass.size(); ++i) {
        sum += mass_at(lattice, i);
        first += mass_at(lattice, i) * static_cast<double>(lattice.index[i]) * lattice.step;
    }
    return first / sum;
}

void keeps_the_mean(const hs::Pair& pair, std::int64_t first, std::int64_t last, double step, double truth) {
    for (const double tilt : {0.0, 0.7, 5.0}) {
        const hs::Lattice l =
            hs::discretise(pair, hs::all_points(first, last), step, tilt, hs::Bound::mean_preserving);
        CHECK(std::abs(mean(l) + l.residue.mean - truth) <=
              l.residue.mean_error + 1e-13 * (1 + std::abs(truth)));
        CHECK(l.residue.mean_error <= step * step / 8 + 1e-9);
        CHECK(l.residue.squared_range >= step * step && l.residue.squared_range <= step * step * (1 + 1e-6));
    }
}

// E_P[L] of a Poisson-sampled Gaussian by the trapezoidal rule, which is exact to rounding here.
double sampled_mean(double sigma, double q, bool remove) {
    double sum = 0;
    constexpr double h = 1.0 / 64;
    for (double t = -14; t <= 14 + 1 / sigma; t += h) {
        const double bell = std::exp(-0.5 * t * t) * h / std::sqrt(2 * std::numbers::pi);
        const double ratio = 1 - q + q * std::exp((t - 0.5 / sigma) / sigma);
        sum += bell * (remove ? ratio : -1) * std::log(ratio);
    }
    return sum;
}

void keeps_the_sampled_mean(double sigma, bool remove) {
    const auto pair =
        hs::sampled(hs::gaussian(1 / sigma), 0.05, remove ? hs::Sampling::remove : hs::Sampling::add);
    for (const double step : {0.5, 0.01, 0.002}) {
        const auto points = static_cast<std::int64_t>(std::ceil(20 / step));  // beyond, P has less than 1e-30
        keeps_the_mean(*pair, -points, points, step, sampled_mean(sigma, 0.05, remove));
    }
}

void check_atoms(const Atoms& atoms, double step, double offset) {
    // Cut the window so that some atoms lie outside, too.
    const auto first = static_cast<std::int64_t>(std::floor((atoms.loss.front() + offset) / step)),
               last = static_cast<std::int64_t>(std::ceil(atoms.loss.back() / step));
    const hs::PairPtr pair = atoms.pair();
    const double left = (static_cast<double>(first) - 0.5) * step,
                 right = (static_cast<double>(last) + 0.5) * step;
    double inside = 0, moment = 0, outside = 0;
    for (std::size_t i = 0; i < atoms.loss.size(); ++i) {
        if (atoms.loss[i] > left && atoms.loss[i] <= right) {
            inside += atoms.p[i];
            moment += atoms.p[i] * atoms.loss[i];
        } else {
            outside += atoms.p[i];
        }
    }
    keeps_the_mean(*pair, first, last, step, moment / inside);
    const hs::Lattice l =
        hs::discretise(*pair, hs::all_points(first, last), step, 0, hs::Bound::mean_preserving);
    CHECK(l.residue.outside >= outside * (1 - 1e-12));
    CHECK(l.residue.outside <= outside * (1 + 1e-9) + 1e-13);
    // Each atom is in its own bin (a, b].
    for (std::size_t i = 0; i < l.mass.size(); ++i) {
        const double x = static_cast<double>(l.index[i]);
        double p = 0;
        for (std::size_t j = 0; j < atoms.loss.size(); ++j)
            if (atoms.loss[j] > (x - 0.5) * step && atoms.loss[j] <= (x + 0.5) * step) p += atoms.p[j];
        CHECK(std::abs(mass_at(l, i) - p) <= 1e-13);
    }
}

double gaussian_delta(double mu, double epsilon) {
    const hs::Tangent t = hs::gaussian(mu)->above(epsilon);
    return t.value * std::exp(t.exponent);
}

// Three steps whose window leaves out the outer atoms, by enumeration.
void check_cut_composition(const Atoms& atoms, double step) {
    const auto first = static_cast<std::int64_t>(std::floor(atoms.loss[1] / step)),
               last = static_cast<std::int64_t>(std::ceil(atoms.loss[atoms.loss.size() - 2] / step));
    const hs::Lattice l =
        hs::discretise(*atoms.pair(), hs::all_points(first, last), step, 1.5, hs::Bound::mean_preserving);
    const auto size = hs::good_size(static_cast<std::size_t>(3 * (last - first) + 1));
    for (const double failure : {0.5, 1e-4}) {
        const hs::Coupling c(hs::compose({{l, 2}, {l, 1}}, 3 * first, size, 0, 0), failure);
        for (const double epsilon : {0.0, 0.3, 1.1, 2.5}) {
            double truth = 0;
            for (std::size_t i = 0; i < atoms.p.size(); ++i)
                for (std::size_t j = 0; j < atoms.p.size(); ++j)
                    for (std::size_t k = 0; k < atoms.p.size(); ++k)
                        truth += atoms.p[i] * atoms.p[j] * atoms.p[k] *
                                 std::max(0.0, -std::expm1(epsilon - atoms.loss[i] - atoms.loss[j] -
                                                           atoms.loss[k]));
            const hs::Interval bounds = c.delta_bounds(epsilon);
            CHECK(bounds.lower <= truth * (1 + 1e-12));
            CHECK(bounds.upper >= truth * (1 - 1e-12));
        }
    }
    CHECK_THROWS(
        std::invalid_argument,
        hs::Coupling(
            hs::compose({{hs::discretise(*atoms.pair(), {0, 1}, step, 0, hs::Bound::upper), 1}}, 0, 16, 0, 0),
            0.1));
}

}  // namespace

int main() {
    // N(mu^2/2, mu^2), cut symmetrically about its mean.
    keeps_the_mean(*hs::gaussian(1), -64, 96, 1.0 / 32, 0.5);
    keeps_the_mean(*hs::gaussian(1), -3, 4, 1.0, 0.5);
    keeps_the_mean(*hs::gaussian(0.01), -200, 200, 1e-3, 5e-5);
    const double e = 0.7;  // Laplace: E[L] = e - 1 + e^-e
    keeps_the_mean(*hs::laplace(e), -8, 8, 0.1, e - 1 + std::exp(-e));
    keeps_the_mean(*hs::laplace(e), -20, 20, 0.037, e - 1 + std::exp(-e));

    for (const double sigma : {0.7, 2.0})
        for (const bool remove : {true, false}) keeps_the_sampled_mean(sigma, remove);

    std::mt19937_64 random(7);
    for (int repeat = 0; repeat < 60; ++repeat) {
        const Atoms atoms = random_atoms(random, 8, 0.0625);
        check_atoms(atoms, 0.125, 0);     // atoms on edges: odd multiples of half a step
        check_atoms(atoms, 0.125, 0.25);  // and some beyond the window
        check_atoms(atoms, 0.041, 0);
        check_atoms(atoms, 1.0, 0);
    }

    for (int repeat = 0; repeat < 40; ++repeat) check_cut_composition(random_atoms(random, 6, 0.0625), 0.125);

    // k Gaussians are one: the two-sided bound against its closed form.
    for (const double step : {0.5, 0.05, 0.005})
        for (const int count : {1, 10, 400}) {
            const double mu = 1 / std::sqrt(static_cast<double>(count));
            for (const double failure : {1e-6, 1e-15, 1e-40}) {
                const hs::Coupling c({{hs::gaussian(mu), count}}, step, failure);
                for (const double epsilon : {-1.0, 0.0, 0.3, 1.0, 3.0, 6.0, 11.0}) {
                    const hs::Interval bounds = c.delta_bounds(epsilon);
                    const double truth = gaussian_delta(1, epsilon);
                    CHECK(bounds.lower <= truth * (1 + 1e-12));
                    CHECK(bounds.upper >= truth * (1 - 1e-12));
                    // As tight as the theorem says.
                    const double wide = 2 * c.radius() + 1e-6;
                    if (failure < 1e-3 * truth && failure > 1e-9 * truth) {
                        CHECK(bounds.upper <= 1.02 * (gaussian_delta(1, epsilon - wide) + 3 * failure));
                        CHECK(bounds.lower >= 0.98 * (gaussian_delta(1, epsilon + wide) - 3 * failure));
                    }
                }
                const hs::Interval at = c.epsilon_bounds(1e-5);
                CHECK(at.lower <= at.upper);
                CHECK(gaussian_delta(1, at.lower) >= 1e-5 * (1 - 1e-9) || at.lower == 0);
                CHECK(!(std::isfinite(at.upper)) || gaussian_delta(1, at.upper) <= 1e-5 * (1 + 1e-9));
            }
        }
    {
        // Nothing finite, and nothing at all to round.
        const hs::Coupling c({{hs::discrete({}, {}, {}, 1.0), 3}}, 0.1, 1e-9);
        CHECK(c.delta_bounds(1).upper == 1 && c.delta_bounds(1).lower >= 1 - 1e-6);
    }
    const hs::PairPtr pair = hs::gaussian(1);
    CHECK_THROWS(std::invalid_argument, hs::discretise(*pair, {0, 2}, 0.1, 0, hs::Bound::mean_preserving));
    CHECK_THROWS(std::invalid_argument, hs::Coupling({{pair, 1}}, 1e-9, 1e-9));
    CHECK_THROWS(std::invalid_argument, hs::Coupling({{pair, 1}}, 0.1, 0));
    CHECK_THROWS(std::invalid_argument, hs::Coupling({{pair, 0}}, 0.1, 1e-3));
    CHECK_THROWS(std::invalid_argument, hs::Coupling({}, 0.1, 1e-3));
    return check::summary();
}
