// Outcomes of many steps on a lattice against convolutions in long double, each mass and each loss on its
// side; what is trimmed counts as lost; and what must be refused.
#include "profile/merged_outcomes.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "check.hpp"

namespace hs = hockeystick;

namespace {

using Long = long double;
using Law = std::map<long, Long>;  // P-masses at multiples of a step

// P-masses of atoms at k h whose Q-masses, p e^-{k h}, sum to 1 as well.
Law random_law(std::mt19937_64& random, double h) {
    std::uniform_real_distribution<double> uniform(0, 1);
    std::uniform_int_distribution<long> place(1, 6);
    Law law;
    Long excess = 0, total = 0;
    for (int i = 0; i < 3; ++i) {
        const long k = place(random);
        const Long mass = std::pow(Long(10), Long(-9 * uniform(random)));
        law[k] += mass;
        excess += mass * -std::expm1(-Long(k) * h);
        total += mass;
    }
    const long k = place(random);
    const Long below = excess / std::expm1(Long(k) * h);
    law[-k] += below;
    total += below;
    for (auto& [place_of, mass] : law) mass /= 2 * total;
    law[0] += Long(1) / 2;
    return law;
}

hs::PairPtr pair_of(const Law& law, double h) {
    std::vector<double> losses, p, q;
    for (const auto& [k, mass] : law) {
        losses.push_back(static_cast<double>(k) * h);
        p.push_back(static_cast<double>(mass));
        q.push_back(static_cast<double>(mass * std::exp(-Long(k) * h)));
    }
    return hs::discrete(losses, p, q, 0, h, 0);
}

Law together(const Law& a, const Law& b) {
    Law out;
    for (const auto& [i, mass] : a)
        for (const auto& [j, other] : b) out[i + j] += mass * other;
    return out;
}

// merged: of a sum whose masses these are, at multiples of h.
void encloses(const hs::MergedOutcomes& merged, const Law& law, Long h) {
    CHECK(merged.lower.size() == merged.upper.size());
    Law left = law;
    Long far = 0;
    for (std::size_t i = 0; i < merged.upper.size(); ++i) {
        const long k =
            std::lround((merged.lower[i].loss + merged.upper[i].loss) / 2 / static_cast<double>(h));
        const Long mass = left[k];
        left.erase(k);
        CHECK(merged.lower[i].loss <= Long(k) * h && Long(k) * h <= merged.upper[i].loss);
        CHECK(merged.lower[i].mass <= mass && mass <= merged.upper[i].mass + merged.lost);
        if (mass > 1e-60L) far = std::max(far, (merged.upper[i].mass - merged.lower[i].mass) / mass);
    }
    CHECK(far < 1e-9L);
    Long trimmed = 0;
    for (const auto& [k, mass] : left) trimmed += mass;
    CHECK(trimmed <= merged.lost && merged.lost < 1e-70);
}

}  // namespace

int main() {
    std::mt19937_64 random(7);
    for (const double h : {0.25, 0.1}) {
        for (const unsigned count : {1U, 2U, 7U, 60U}) {
            const Law one = random_law(random, h), other = random_law(random, h);
            Law all = together(one, other);
            for (unsigned i = 1; i < count; ++i) all = together(all, one);
            const hs::Composition steps{{pair_of(one, h), count}, {pair_of(other, h), 1}};
            const auto merged = hs::MergedOutcomes::of(steps);
            CHECK(merged.has_value());
            if (merged) encloses(*merged, all, h);
        }
    }

    // Two losses are on a lattice of their own, whatever they are: a binomial law, of which the rarest are
    // trimmed.
    const double truth = 1 / (1 + std::exp(-3.0));
    const hs::PairPtr response = hs::discrete({-3, 3}, {1 - truth, truth}, {truth, 1 - truth}, 0);
    const auto binomial = hs::MergedOutcomes::of({{response, 300}});
    CHECK(binomial && binomial->upper.size() < 301 && binomial->lost > 0);
    Law law{{-1, 1 - Long(truth)}, {1, truth}}, sum{{0, 1}};
    for (int i = 0; i < 300; ++i) sum = together(sum, law);
    if (binomial) encloses(*binomial, sum, 3);

    // Whose spacings have no common one, and several losses of each: told apart, if these are few.
    const auto three = [](double loss) {
        const Long rare = 0.05L, other = rare * std::exp(Long(loss));
        return pair_of({{-1, rare}, {0, 1 - rare - other}, {1, other}}, loss);
    };
    const hs::PairPtr odd = three(1), root = three(std::sqrt(2.0));
    const auto apart = hs::MergedOutcomes::of({{odd, 2}, {root, 1}});
    CHECK(apart && apart->upper.size() == 18);
    CHECK(!hs::MergedOutcomes::of({{odd, 1000}, {root, 1000}}));
    // No atoms alone, and more outcomes than are worth it.
    CHECK(!hs::MergedOutcomes::of({{hs::laplace(1), 1}}));
    CHECK(!hs::MergedOutcomes::of({{hs::gaussian(1), 1}, {odd, 1}}));
    CHECK(!hs::MergedOutcomes::of({{odd, 1'000'000'000}}));
    return check::summary();
}
