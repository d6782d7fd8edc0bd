// Outcomes put together on a lattice against all outcomes told apart in long double, Gaussians' closed form
// and a convolution by quadrature: whatever the spacing and what may be left out, both bounds hold; and how
// close they are where a tilted transform would see nothing but other losses.
#include "profile/near_outcomes.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "check.hpp"
#include "profile/support_end.hpp"

namespace hs = hockeystick;

namespace {

using Long = long double;
struct Atom {
    Long loss, p;
};
using Law = std::vector<Atom>;

// Of doubles, so that the pair below is this very law up to rounding of its Q-masses, which it knows of.
Law random_law(std::mt19937_64& random, std::size_t size) {
    std::uniform_real_distribution<double> uniform(0, 1);
    Law law;
    Long p_sum = 0, q_sum = 0;
    std::vector<Long> p, q;
    for (std::size_t i = 0; i < size; ++i) {
        p.push_back(std::pow(10.0L, Long(-8 * uniform(random))));
        q.push_back(p.back() * std::exp(Long(3 * (uniform(random) - 0.5)) * (i % 2 ? 1 : 0.01L)));
        p_sum += p.back();
        q_sum += q.back();
    }
    for (std::size_t i = 0; i < size; ++i)
        law.push_back({std::log(p[i] / p_sum * q_sum / q[i]), p[i] / p_sum});
    std::ranges::sort(law, {}, &Atom::loss);
    return law;
}

hs::PairPtr pair_of(const Law& law) {
    std::vector<double> losses, p, q;
    for (const auto& [loss, mass] : law) {
        losses.push_back(static_cast<double>(loss));
        p.push_back(static_cast<double>(mass));
        q.push_back(static_cast<double>(mass * std::exp(-loss)));
    }
    return hs::discrete(losses, p, q, 0);
}

Law together(const Law& a, const Law& b) {
    Law out;
    for (const Atom& x : a)
        for (const Atom& y : b) out.push_back({x.loss + y.loss, x.p * y.p});
    return out;
}

Long delta_of(const Law& law, Long epsilon) {
    Long sum = 0;
    for (const auto& [loss, p] : law)
        if (loss > epsilon) sum += p * -std::expm1(epsilon - loss);
    return sum;
}

hs::SumsBudget plenty() { return {1e10, 1 << 20}; }

hs::ClosedForm form_of(const hs::Composition& steps, const hs::MergedOutcomes& outcomes) {
    return hs::ClosedForm::of_outcomes(outcomes, hs::SupportEnd(steps).infinity_mass());
}

// Atoms: three kinds of steps, every sequence of losses.
void encloses_atoms(std::mt19937_64& random) {
    std::uniform_real_distribution<double> uniform(0, 1);
    for (int trial = 0; trial < 60; ++trial) {
        const Law one = random_law(random, 5), other = random_law(random, 3);
        const unsigned count = 1 + static_cast<unsigned>(trial % 4);
        Law all = other;
        for (unsigned i = 0; i < count; ++i) all = together(all, one);
        const hs::Composition steps{{pair_of(one), count}, {pair_of(other), 1}};
        const double spacing = std::pow(10, 1 - 5 * uniform(random)),
                     negligible = std::pow(10, -25 * uniform(random));
        hs::SumsBudget budget = plenty();
        const auto outcomes = hs::near_outcomes(steps, spacing, negligible, budget);
        CHECK(outcomes.has_value() && budget.products < plenty().products);
        if (!outcomes) continue;
        CHECK(outcomes->lost <= 4 * negligible);
        const hs::ClosedForm form = form_of(steps, *outcomes);
        const Long most = std::ranges::max_element(all, {}, &Atom::loss)->loss;
        for (int i = -10; i < 20; ++i) {
            const double epsilon = static_cast<double>(most) * i / 20 * (1 + 1e-3 * uniform(random));
            const hs::Answer answer = form.delta(epsilon);
            const Long truth = delta_of(all, epsilon);
            // Q-masses that are doubles sum to 1 up to some units.
            CHECK(answer.lower <= truth + 1e-17L && truth - 1e-17L <= answer.upper);
            // What chords leave open, and merging.
            if (spacing < 1e-4 && i < 10 && truth > 1e6 * negligible && truth > 1e-12L)
                CHECK(answer.upper - answer.lower < 1e-2 * answer.upper);
        }
    }
}

// Gaussians: no atoms, their curve on the lattice's points.
void encloses_gaussians() {
    for (const double mu : {0.02, 0.3, 2.0})
        for (const unsigned count : {1U, 2U, 5U, 16U}) {
            const hs::Composition steps{{hs::gaussian(mu), count}};
            const auto truth = hs::ClosedForm::of(steps, hs::Engine::automatic);
            for (const double per_step : {3.0, 30.0, 100.0}) {
                hs::SumsBudget budget = plenty();
                const auto outcomes = hs::near_outcomes(steps, mu / per_step, 1e-40, budget);
                CHECK(outcomes.has_value());
                if (!outcomes) continue;
                const hs::ClosedForm form = form_of(steps, *outcomes);
                for (const double scale : {-2.0, 0.0, 1.0, 4.0, 8.0}) {
                    const double epsilon = scale * mu * std::sqrt(count);
                    const hs::Answer answer = form.delta(epsilon), known = truth->delta(epsilon);
                    CHECK(answer.lower <= known.upper && known.lower <= answer.upper);
                    if (per_step == 100) CHECK(answer.upper - answer.lower < 1e-2 * answer.upper);
                }
            }
        }
}

// Two steps that are hardly ever hit, by quadrature over the output of the first.
void encloses_rare_hits() {
    const double mu = 2, q = 1e-6, spacing = 1e-3;
    const hs::PairPtr step = hs::sampled(hs::gaussian(mu), q, hs::Sampling::remove);
    hs::SumsBudget budget = plenty();
    const auto outcomes = hs::near_outcomes({{step, 2}}, spacing, 1e-25, budget);
    CHECK(outcomes.has_value());
    if (!outcomes) return;
    const hs::ClosedForm form = form_of({{step, 2}}, *outcomes);
    const auto one = hs::ClosedForm::of({{step, 1}}, hs::Engine::automatic);
    for (const double epsilon : {0.003, 0.03, 0.3, 1.5}) {
        Long truth = 0;
        const Long h = 1e-4L;  // of a kink as sharp as the frequent losses are small
        for (Long x = -12; x < 16; x += h) {
            const Long ratio = std::expm1(Long(mu) * x - Long(mu) * mu / 2), loss = std::log1p(q * ratio);
            truth += h * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0L)) * (1 + q * ratio) *
                     one->delta(static_cast<double>(epsilon - loss)).upper;
        }
        const hs::Answer answer = form.delta(epsilon);
        CHECK(answer.lower <= truth * (1 + 1e-5L) && truth * (1 - 1e-5L) <= answer.upper);
        CHECK(epsilon < 10 * spacing || answer.upper - answer.lower < 1e-2 * answer.upper);
    }
}

// Twelve sampled steps of noise on integers far down: what a tilt makes of frequent losses is 1e12 times
// delta.
void is_close_far_down() {
    std::vector<double> p, q, losses;
    const Long sigma = 0.9948L, rate = 1.138e-4L;
    Long total = 0;
    for (int x = -12; x <= 12; ++x) total += std::exp(-Long(x) * x / (2 * sigma * sigma));
    for (int x = -11; x <= 12; ++x) {
        const Long without = std::exp(-Long(x) * x / (2 * sigma * sigma)) / total,
                   with = std::exp(-Long(x - 1) * (x - 1) / (2 * sigma * sigma)) / total;
        p.push_back(static_cast<double>(rate * with + (1 - rate) * without));
        q.push_back(static_cast<double>(without));
        losses.push_back(static_cast<double>(std::log1p(rate * (with / without - 1))));
    }
    const hs::Composition steps{{hs::discrete(losses, p, q, 0), 12}};
    for (const double delta : {1e-14, 1e-19}) {
        const auto found =
            hs::by_near_outcomes(steps, hs::SupportEnd(steps).infinity_mass(), delta, 1e-4, plenty(),
                                 [&](const hs::ClosedForm& form) { return form.epsilon(delta, 100); });
        CHECK(found.form.has_value());
        CHECK(found.answer.lower > 0 && found.answer.upper - found.answer.lower <= 1e-4 * found.answer.upper);
    }
}

}  // namespace

int main() {
    std::mt19937_64 random(20261201);
    encloses_atoms(random);
    encloses_gaussians();
    encloses_rare_hits();
    is_close_far_down();

    // Allocations have no law of their own, what is infinite no place on a curve; and a budget ends.
    hs::SumsBudget budget = plenty();
    CHECK(!hs::near_outcomes({{hs::random_allocation(1, 10, hs::Sampling::remove), 1}}, 0.01, 1e-9, budget));
    CHECK(!hs::near_outcomes({{hs::gaussian(1), 1}}, 1e-6, 1e-9, budget));
    budget = {10, 1 << 20};
    CHECK(!hs::near_outcomes({{hs::gaussian(1), 40}}, 0.01, 1e-9, budget));
    budget = {1e10, 100};
    CHECK(!hs::near_outcomes({{hs::gaussian(1), 40}}, 0.01, 1e-9, budget));
    return check::summary();
}
