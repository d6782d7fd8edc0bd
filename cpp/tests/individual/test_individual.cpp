// Many compositions on shared lines, against the engine that answers them one by one; on shared lattices,
// against sums of atoms.
#include "hockeystick/individual.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "hockeystick/profile.hpp"
#include "individual/lattice_bank.hpp"

namespace hs = hockeystick;

namespace {

void against_profiles(double q, hs::Sampling mode, const std::vector<double>& mus, std::uint16_t scale,
                      double delta, bool tight = true) {
    std::vector<hs::PairPtr> pairs{nullptr};  // a step that reveals nothing
    for (double mu : mus) pairs.push_back(q < 1 ? hs::sampled(hs::gaussian(mu), q, mode) : hs::gaussian(mu));
    hs::IndividualProfiles profiles(pairs);
    const std::size_t width = pairs.size(), rows = 12;
    std::vector<std::uint16_t> counts(rows * width, 0);
    std::uint32_t state = 1;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        state = state * 1664525 + 1013904223;
        counts[i] = static_cast<std::uint16_t>((state >> 16) % 3 == 0 ? 0 : (state >> 20) % scale);
    }
    for (std::size_t b = 1; b < width; ++b) counts[b] = 0;  // the first example has spent nothing
    const auto found = profiles.epsilon(std::span<const std::uint16_t>(counts), delta);
    CHECK(found.upper[0] == 0 && found.lower[0] == 0 && found.path[0] == hs::Path::nothing);
    for (std::size_t row = 1; row < rows; ++row) {
        hs::Composition composition;
        for (std::size_t b = 1; b < width; ++b)
            if (counts[row * width + b] > 0) composition.emplace_back(pairs[b], counts[row * width + b]);
        if (composition.empty()) continue;
        const hs::Profile profile({composition}, 1e-5);
        const hs::Answer exact = profile.epsilon_bounds(delta);
        CHECK(exact.lower <= found.upper[row]);
        CHECK(found.lower[row] <= exact.upper);
        CHECK(found.upper[row] < std::numeric_limits<double>::infinity());
        if (tight) CHECK(found.upper[row] <= exact.upper * 1.01 + 1e-9);
        for (double epsilon : {0.0, exact.upper, 3 * exact.upper}) {
            const std::vector<std::uint16_t> one(
                counts.begin() + static_cast<std::ptrdiff_t>(row * width),
                counts.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
            const auto at = profiles.delta(std::span<const std::uint16_t>(one), std::vector<double>{epsilon});
            const hs::Answer answer = profile.delta_bounds(epsilon);
            CHECK(answer.lower <= at.upper[0]);
            CHECK(at.lower[0] <= answer.upper);
        }
    }
}

// delta of N(mu, 1) against N(0, 1), mu^2 a sum, in long doubles: aliases and tails are far below its share.
void against_closed_form() {
    const auto tail = [](long double z) { return 0.5L * std::erfc(z / std::sqrt(2.0L)); };
    std::mt19937_64 random(5);
    const auto uniform = [&](double low, double high) {
        return std::uniform_real_distribution<double>(low, high)(random);
    };
    for (int repeat = 0; repeat < 60; ++repeat) {
        const double mu = std::exp(uniform(-5, 1));
        hs::IndividualProfiles profiles({hs::gaussian(mu)});
        std::vector<std::uint32_t> counts;
        std::vector<double> epsilons, truth;
        for (int i = 0; i < 20; ++i) {
            const double wanted = std::exp(uniform(-2, 1.5)) / mu;
            counts.push_back(static_cast<std::uint32_t>(std::max(1.0, wanted * wanted)));
            const double sum = mu * std::sqrt(static_cast<double>(counts.back()));
            epsilons.push_back(std::max(0.0, sum * (0.5 * sum + uniform(-2, 6))));
            const long double m = sum, x = epsilons.back();
            truth.push_back(static_cast<double>(tail(x / m - m / 2) - std::exp(x) * tail(x / m + m / 2)));
        }
        const auto found = profiles.delta(std::span<const std::uint32_t>(counts), epsilons);
        for (std::size_t i = 0; i < truth.size(); ++i)
            CHECK(found.lower[i] <= truth[i] * (1 + 5e-13) && truth[i] <= found.upper[i] * (1 + 5e-13));
    }
}

// Losses lowest + i spacing, and their masses under P.
struct Atoms {
    double lowest, spacing;
    std::vector<double> masses;

    double loss(std::size_t i) const { return lowest + static_cast<double>(i) * spacing; }
    double q_mass() const {
        double sum = 0;
        for (std::size_t i = 0; i < masses.size(); ++i) sum += masses[i] * std::exp(-loss(i));
        return sum;
    }
    hs::PairPtr pair() const {
        std::vector<double> losses, q;
        for (std::size_t i = 0; i < masses.size(); ++i) {
            losses.push_back(loss(i));
            q.push_back(masses[i] * std::exp(-loss(i)));
        }
        return hs::discrete(losses, masses, q, 0.0, 0.0, 1 - q_mass());
    }
    hs::Cumulant cumulant(double s) const {
        double sum = 0, first = 0, second = 0;
        for (std::size_t i = 0; i < masses.size(); ++i) {
            const double tilted = masses[i] * std::exp(s * loss(i));
            sum += tilted;
            first += tilted * loss(i);
            second += tilted * loss(i) * loss(i);
        }
        first /= sum;
        return {std::log(sum), first, second / sum - first * first, std::log(sum)};
    }
    Atoms times(std::size_t count) const {
        Atoms all{static_cast<double>(count) * lowest, spacing, {1.0}};
        for (std::size_t k = 0; k < count; ++k) {
            std::vector<double> next(all.masses.size() + masses.size() - 1, 0.0);
            for (std::size_t i = 0; i < all.masses.size(); ++i)
                for (std::size_t j = 0; j < masses.size(); ++j) next[i + j] += all.masses[i] * masses[j];
            all.masses = next;
        }
        return all;
    }
    double mass_above(double x) const {
        double sum = 0;
        for (std::size_t i = masses.size(); i-- > 0 && loss(i) > x;) sum += masses[i];
        return sum;
    }
    double delta(double epsilon) const {
        double sum = 0;
        for (std::size_t i = masses.size(); i-- > 0 && loss(i) > epsilon;)
            sum -= masses[i] * std::expm1(epsilon - loss(i));
        return std::max(sum, -std::expm1(epsilon));
    }
};

// Few atoms, or a bump of them, whose spectrum vanishes; E[e^-L] < 1.
template <class Uniform>
Atoms some_atoms(const Uniform& uniform, bool bump) {
    Atoms atoms{uniform(-0.5, 0.3), bump ? 0.25 : 0.25 * std::floor(uniform(1, 13)), {}};
    const double size = bump ? 16 : std::floor(uniform(2, 7)), fall = uniform(0, 4);
    double sum = 0;
    for (double i = 0; i < size; ++i) {
        atoms.masses.push_back(bump ? std::exp(-(i - 8) * (i - 8) / 6)
                                    : std::exp(-fall * i) * uniform(0.2, 1));
        sum += atoms.masses.back();
    }
    for (double& mass : atoms.masses) mass /= sum;
    atoms.lowest += std::max(0.0, std::log(atoms.q_mass())) + 1e-3;
    return atoms;
}

// However short a lattice's window is, what lies outside counts; where that is much, it is called too short.
void short_windows() {
    std::mt19937_64 random(3);
    const auto uniform = [&](double low, double high) {
        return std::uniform_real_distribution<double>(low, high)(random);
    };
    double closest[2] = {1, 1};
    int tables = 0;
    for (int repeat = 0; repeat < 4000; ++repeat) {
        const bool from_below = repeat % 2 == 0, upper = repeat % 4 < 2, few = repeat % 8 < 4;
        const Atoms atoms = some_atoms(uniform, repeat % 5 == 0);
        const auto count = static_cast<std::size_t>(uniform(1, 9));
        const Atoms sum = atoms.times(count);
        const double reference = std::exp(uniform(-3, 2)), least = from_below ? 0 : 0.3,
                     tilt = from_below && repeat % 3 == 0 ? 0 : reference * uniform(least, 1),
                     step = std::ldexp(atoms.spacing, -static_cast<int>(uniform(0, 3))),
                     tail_mass = std::exp(uniform(-14, -1));
        const std::size_t size = std::size_t{1} << static_cast<int>(uniform(2, 7));
        hs::LatticeBank bank({upper ? hs::Bound::upper : hs::Bound::lower, tilt, reference, step, size,
                              tail_mass, from_below, few},
                             1);
        bank.make(0, *atoms.pair(), atoms.lowest, atoms.cumulant(tilt));
        bool too_short = false;
        const auto table = bank.compose({{0, count}}, too_short);
        CHECK(table.has_value() != too_short);
        if (!table) continue;
        ++tables;
        // What single steps lose is no part of this, and the mass past the end is little: that of P, or what
        // it counts where it is folded to.
        const double end = table->end() - step, cut = static_cast<double>(count) * std::exp(-4) * tail_mass,
                     folded = from_below ? std::exp(tilt * (end - sum.lowest)) : 1;
        CHECK(folded * (sum.mass_above(end + 0.5 * step) - cut) <= tail_mass * std::exp(2) * (1 + 1e-9));
        const double top = sum.loss(sum.masses.size() - 1);
        for (int i = 0; i <= 60; ++i) {
            const double epsilon = sum.lowest - 1 + (top - sum.lowest + 1.5) * i / 60,
                         truth = sum.delta(epsilon), found = table->at(epsilon).value;
            CHECK(upper ? truth <= found * (1 + 1e-9) : found <= truth * (1 + 1e-9));
            if (truth > 0) closest[upper] = std::min(closest[upper], std::abs(1 - found / truth));
        }
    }
    CHECK(tables > 2000 && closest[0] < 1e-9 && closest[1] < 1e-9);
}

// A rare loss far past the window's end, where it is nearly all of the tilted mass, is folded to small
// losses.
void rare_far_loss() {
    const Atoms atoms{0.01, 10, {0.999, 1e-3}};
    const double tilt = 1, tail_mass = 0.3;
    hs::LatticeBank bank({hs::Bound::lower, tilt, tilt, 10.0 / 81, 4, tail_mass, true, true}, 1);
    bank.make(0, *atoms.pair(), atoms.lowest, atoms.cumulant(tilt));
    bool too_short = false;
    const auto table = bank.compose({{0, 1}}, too_short);
    CHECK(table && !too_short);
    for (const double epsilon : {0.0, 0.1, 0.2, 1.0}) CHECK(table->at(epsilon).value <= atoms.delta(epsilon));
}

}  // namespace

int main() {
    against_profiles(0.01, hs::Sampling::remove, {0.05, 0.1, 0.3, 0.5}, 1000, 1e-6);
    against_profiles(0.01, hs::Sampling::add, {0.05, 0.1, 0.3, 0.5}, 1000, 1e-6);
    against_profiles(0.3, hs::Sampling::remove, {0.01, 0.02}, 2000, 1e-12);
    against_profiles(1.0, hs::Sampling::remove, {0.01, 0.02, 0.05}, 50, 1e-5);
    // Few steps that are rarely hit: bounds, if not tight ones.
    against_profiles(1e-3, hs::Sampling::remove, {0.5, 2.0}, 6, 1e-5, false);
    against_closed_form();
    short_windows();
    rare_far_loss();

    hs::IndividualProfiles profiles({hs::sampled(hs::gaussian(1), 0.1, hs::Sampling::remove)});
    const std::vector<std::uint32_t> counts{0, 5};
    for (double delta : {0.0, 1.0}) {
        const auto limit = profiles.epsilon(std::span<const std::uint32_t>(counts), delta);
        CHECK(limit.upper[0] == 0);
        CHECK(limit.upper[1] == (delta > 0 ? 0.0 : std::numeric_limits<double>::infinity()));
    }
    CHECK(profiles.log_moments(1.0)[0] > 0);
    CHECK_THROWS(std::invalid_argument, hs::IndividualProfiles({hs::laplace(1)}));

    const std::vector<double> infinite(2, std::numeric_limits<double>::infinity());
    CHECK(profiles.delta(std::span<const std::uint32_t>(counts), infinite).upper ==
          std::vector<double>(2, 0));

    // What does not fit, and what is no number.
    const std::vector<double> epsilons{0.1, 0.2, 0.3}, bad{0.1, std::nan("")};
    const std::span<const std::uint32_t> two(counts);
    CHECK_THROWS(std::invalid_argument, profiles.delta(two, std::span(epsilons).first(1)));
    CHECK_THROWS(std::invalid_argument, profiles.delta(two, epsilons));
    CHECK_THROWS(std::invalid_argument, profiles.delta(two, bad));
    CHECK_THROWS(std::invalid_argument, profiles.delta(two, std::vector<double>{0.1, -0.1}));
    for (const double delta : {-0.1, 1.5, std::nan("")})
        CHECK_THROWS(std::invalid_argument, profiles.epsilon(two, delta));
    CHECK_THROWS(std::invalid_argument, profiles.epsilon(two, 0.1, {std::span(epsilons).first(1), true}));
    for (const double s : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
        CHECK_THROWS(std::invalid_argument, profiles.log_moments(s));
    hs::IndividualProfiles of_two({hs::gaussian(1), hs::gaussian(2)});
    CHECK_THROWS(std::invalid_argument, of_two.epsilon(std::span<const std::uint32_t>(counts).first(1), 0.1));
    return check::summary();
}
