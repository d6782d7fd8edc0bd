// The contract of pairs: above, below, the ends, the mass at +inf and the loss law of one pair say the same,
// for every class and nesting. tests/accounting/test_pair_contract.py holds finite laws against ball
// arithmetic.
#include "hockeystick/pairs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "hockeystick/profile.hpp"

namespace hs = hockeystick;

namespace {

using Random = std::mt19937_64;
constexpr double infinity = std::numeric_limits<double>::infinity();

// Not std::uniform_real_distribution, whose values are the library's choice.
double uniform(Random& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }
double between(Random& random, double low, double high) { return low + (high - low) * uniform(random); }
double log_between(Random& random, double low, double high) {
    return std::exp(between(random, std::log(low), std::log(high)));
}

hs::PairPtr atoms(Random& random) {
    const double epsilon = log_between(random, 1e-4, 20), r = 1 / (1 + std::exp(epsilon));
    const double hidden = uniform(random) < 0.5 ? 0 : between(random, 0, 1);
    std::vector<double> p{r * (1 - hidden), (1 - r) * (1 - hidden)}, q{p[1], p[0]};
    return hs::discrete({-epsilon, epsilon}, p, q, hidden, epsilon);
}

hs::PairPtr base(Random& random) {
    const double size = log_between(random, 1e-3, 8);
    switch (random() % 7) {
        case 0:
            return hs::gaussian(size);
        case 1:
            return hs::laplace(size);
        case 2:
            return atoms(random);
        case 3:
            return hs::discrete({0}, {0}, {0}, 1);
        case 4: {
            const double w = between(random, 1e-3, 0.999);
            return hs::location_mixture(hs::Noise::laplace, 1 / size, {0, 1}, {1 - w, w}, {0, -1},
                                        {1 - w, w});
        }
        case 5: {
            const double w = between(random, 1e-3, 0.999);
            return hs::location_mixture(hs::Noise::gaussian, 1 / size, {0, 0.5, 1}, {1 - w, w / 2, w / 2},
                                        {0}, {1});
        }
        default:
            return hs::zero_out(std::min(size, 4.0), between(random, 1e-3, 1),
                                uniform(random) < 0.5 ? hs::Sampling::add : hs::Sampling::remove);
    }
}

hs::PairPtr nested(Random& random, int depth) {
    if (depth == 0) return base(random);
    if (uniform(random) < 0.7) {
        constexpr hs::Sampling modes[] = {hs::Sampling::remove, hs::Sampling::add, hs::Sampling::replace_one};
        const double q = uniform(random) < 0.5 ? between(random, 0.01, 0.99) : log_between(random, 1e-12, 1);
        return hs::sampled(nested(random, depth - 1), q, modes[random() % 3]);
    }
    const double w = between(random, 0.01, 0.99);
    const bool lost = uniform(random) < 0.2;
    return hs::mixture({nested(random, depth - 1), nested(random, depth - 1)},
                       {w, lost ? 0.9 * (1 - w) : 1 - w});
}

double p_above(const hs::Tangent& t) { return (t.value + t.slope) * std::exp(t.exponent); }
double p_below(const hs::Tangent& t) { return (t.slope - t.value) * std::exp(t.exponent); }
double p_error(const hs::Tangent& t) {
    return (t.error + t.relative * (std::abs(t.value) + 2 * t.slope)) * std::exp(t.exponent) + 1e-300;
}

// f above and f below differ by the line 1 - p_inf - e^x; profiles fall and lie between their ends.
void tangents_agree(const hs::Pair& pair, double x) {
    const hs::Tangent above = pair.above(x), below = pair.below(x);
    const double line = 1 - pair.infinity_mass() - pair.q_mass() * std::exp(x);
    const double f = above.value * std::exp(above.exponent), k = below.value * std::exp(below.exponent);
    const double slack = above.error * std::exp(above.exponent) + below.error * std::exp(below.exponent) +
                         1e-14 * (1 + std::exp(x));
    CHECK(std::abs(f - k - line) <= slack);
    CHECK(above.slope >= 0 && below.slope >= 0 && above.error >= 0 && below.error >= 0);
    CHECK(f >= -slack && f <= 1 - pair.infinity_mass() + slack);
    CHECK(above.misplaced >= 0 && above.relative >= 0);
}

// A tail is that of a loss within `misplaced` of the one asked for: it lies between those to either side.
void tails_fall(const hs::Pair& pair, double x, double y) {
    const hs::Tangent left = pair.above(x), right = pair.above(y);
    if (y - x <= 2 * (left.misplaced + right.misplaced)) return;
    CHECK(p_above(right) <= p_above(left) + p_error(left) + p_error(right));
    const hs::Tangent low = pair.below(x), high = pair.below(y);
    // Seen from below P is only as exact as e^-x Q.
    CHECK(p_below(low) <= p_below(high) + p_error(low) + p_error(high));
}

// Nothing finite beyond the largest loss, and something next to it.
void ends_agree(const hs::Pair& pair) {
    const double end = pair.max_loss();
    if (!std::isfinite(end)) return;
    for (const double beyond : {end + 1e-9 * (1 + std::abs(end)), end + 1, 2 * std::abs(end) + 10}) {
        const hs::Tangent t = pair.above(beyond);
        CHECK(p_above(t) <= p_error(t));
    }
    if (pair.infinity_mass() >= 1 - 1e-12) return;
    const hs::Tangent t = pair.above(end - 0.5 * std::max(std::abs(end), 1.0));
    CHECK(p_above(t) + p_error(t) > 0);
}

// P-mass of the law's pieces with a loss beyond x, by the midpoint rule; of its atoms, exactly.
double law_tail(const hs::LossLaw& law, double x) {
    double mass = 0;
    for (const auto& atom : law.atoms)
        if (atom.loss > x) mass += std::exp(atom.log_p);
    for (const auto& piece : law.pieces) {
        const double low = std::max(piece.low, -14.0), high = std::min(piece.high, 24.0), n = 20000;
        const double h = (high - low) / n;
        for (int i = 0; i < n; ++i) {
            const double t = low + (i + 0.5) * h;
            double p = 0, q = 0;
            for (const auto& term : piece.p) p += std::exp(term.log_weight + term.rate * t);
            for (const auto& term : piece.q) q += std::exp(term.log_weight + term.rate * t);
            if (p > std::exp(x) * q) mass += h * p * (piece.gaussian ? std::exp(-0.5 * t * t) : 1);
        }
    }
    return mass;
}

void law_agrees(const hs::Pair& pair, const std::vector<double>& points) {
    const auto law = pair.loss_law();
    if (!law) return;
    CHECK(std::abs(law->missing_p - pair.infinity_mass()) <= 1e-12 * pair.infinity_mass() + 1e-300);
    for (const auto& atom : law->atoms)
        CHECK(atom.loss <= pair.max_loss() + 1e-12 * std::abs(pair.max_loss()) + 1e-300);
    CHECK(std::abs(law_tail(*law, -infinity) + law->missing_p - 1) < 1e-3);
    for (const double x : points) {
        // The rule sees a jump at one of its nodes only roughly, and atoms may lie within a rounding of x.
        const double hair = 1e-9 * (1 + std::abs(x)) + pair.above(x).misplaced;
        CHECK(p_above(pair.above(x + hair)) <= law_tail(*law, x) + 2e-3);
        CHECK(law_tail(*law, x) <= p_above(pair.above(x - hair)) + 2e-3);
    }
}

void contract(std::uint64_t seed) {
    Random random(seed);
    const hs::PairPtr pair = nested(random, static_cast<int>(seed % 4));
    CHECK(pair->infinity_mass() >= 0 && pair->infinity_mass() <= 1);
    std::vector<double> points{0, pair->anchor()};
    for (int i = 0; i < 20; ++i) points.push_back(between(random, -3, 3) * log_between(random, 1e-6, 3));
    if (std::isfinite(pair->max_loss()))
        for (const double share : {1e-15, 1e-12, 1e-6, 1e-2, 0.3})
            points.push_back(pair->max_loss() * (1 - share));
    for (const double x : points) tangents_agree(*pair, x);
    std::vector<double> sorted = points;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 1; i < sorted.size(); ++i) tails_fall(*pair, sorted[i - 1], sorted[i]);
    ends_agree(*pair);
    if (seed % 8 == 0) law_agrees(*pair, {0.3, -0.2, 1.5});
}

// What always shows the record has the loss -ln(1-q) where it may be absent from the other data set, too.
void revealed_then_sampled() {
    const hs::PairPtr revealing = hs::discrete({0}, {0}, {0}, 1);
    CHECK(revealing->max_loss() == -infinity && revealing->infinity_mass() == 1);
    for (const double q : {0.5, 1e-9, 1 - 1e-9}) {
        const hs::PairPtr add = hs::sampled(revealing, q, hs::Sampling::add);
        CHECK(add->infinity_mass() == 0);
        CHECK(add->max_loss() >= -std::log1p(-q) && add->max_loss() <= -std::log1p(-q) * (1 + 1e-14));
        const hs::PairPtr remove = hs::sampled(revealing, q, hs::Sampling::remove);
        CHECK(std::abs(remove->infinity_mass() - q) <= 1e-15 * q);
        CHECK(std::abs(remove->max_loss() - std::log1p(-q)) <= 1e-14 * -std::log1p(-q));
        CHECK(hs::sampled(revealing, q, hs::Sampling::replace_one)->max_loss() == 0);
    }
}

// Losses of hundreds: beyond 36 a slope seen from 0 is less than rounding of 1.
// Under sanitizers each question takes five times as long, and what they look for shows at once.
constexpr int thinned = check::sanitized ? 10 : 1;

void supports_of_far_atoms() {
    const double r = 1 / (1 + std::exp(300.0));
    const std::vector<double> p{0.6 * r, 0.6 * (1 - r)}, q{p[1], p[0]};
    const hs::PairPtr pair = hs::sampled(
        hs::sampled(hs::discrete({-300, 300}, p, q, 0.4, 300), 0.32056890156758794, hs::Sampling::remove),
        0.7048827274019044, hs::Sampling::replace_one);
    const hs::Profile slow({{{pair, 3}}}, 1e-3, std::size_t{1} << 24, hs::Engine::fft);
    for (int i = 0; i < 50 / thinned; ++i) {
        const double delta = 0.3 + 0.004 * thinned * i;
        const hs::Answer answer = slow.epsilon_bounds(delta);
        if (!(answer.lower > 0)) continue;
        CHECK(slow.delta_bounds(answer.lower).upper >= delta * (1 - 1e-9));
    }
}

// Upper bounds are those of one pair, lower bounds those of the other, through sampling, mixing, composition.
void brackets() {
    const hs::PairPtr less = hs::laplace(1), more = hs::laplace(1.5), pair = hs::bracket(less, more);
    for (const auto mode : {hs::Sampling::remove, hs::Sampling::add, hs::Sampling::replace_one}) {
        const auto wrap = [&](const hs::PairPtr& inner) {
            return hs::mixture({hs::sampled(inner, 0.3, mode), hs::gaussian(1)}, {0.5, 0.5});
        };
        const hs::Profile both({{{wrap(pair), 3}}}), low({{{wrap(less), 3}}}), high({{{wrap(more), 3}}});
        for (const double epsilon : {0.1, 1.0, 2.0}) {
            CHECK(both.delta_bounds(epsilon).lower == low.delta_bounds(epsilon).lower);
            CHECK(both.delta_bounds(epsilon).upper == high.delta_bounds(epsilon).upper);
        }
        CHECK(both.epsilon_bounds(1e-3).lower == low.epsilon_bounds(1e-3).lower);
        CHECK(both.epsilon_bounds(1e-3).upper == high.epsilon_bounds(1e-3).upper);
    }
    CHECK_THROWS(std::invalid_argument, hs::bracket(less, nullptr));
    // Losses that are not those of the masses.
    CHECK_THROWS(std::invalid_argument, hs::discrete({-1, -0.5}, {0.9, 0.1}, {0.1, 0.9}));
    CHECK_THROWS(std::invalid_argument, hs::discrete({0, 0.3}, {0.5, 0.5}, {0.5, 0.5}, 0, 0.2));
    // Shifts in units of a scale that is next to nothing.
    for (const hs::Noise noise : {hs::Noise::laplace, hs::Noise::gaussian})
        CHECK_THROWS(std::invalid_argument,
                     hs::location_mixture(noise, 5e-309, {0, 1}, {0.5, 0.5}, {0}, {1}));
}

// Far beyond all losses that have a mass in any double, where squares of them are infinite: delta is 0 there,
// and no bound of it is no number. What is no loss has no bounds, and ends.
void far_out() {
    const std::vector<hs::PairPtr> pairs{
        hs::gaussian(0.5),
        hs::sampled(hs::gaussian(1), 0.1, hs::Sampling::replace_one),
        hs::location_mixture(hs::Noise::gaussian, 1, {0, 1, 2}, {0.9, 0.08, 0.02}, {0}, {1}),
        hs::location_mixture(hs::Noise::gaussian, 1, {0, 1}, {0.9, 0.1}, {0, -1}, {0.9, 0.1}),
        hs::zero_out(1, 0.1, hs::Sampling::remove),
        hs::zero_out(1, 0.1, hs::Sampling::add)};
    for (const hs::PairPtr& pair : pairs) {
        const hs::Profile profile({{{pair, 1}}});
        for (const double epsilon : {1e3, 1e15, 1e36, 1e77, 1e154, 1e200, 2.4e307, 1e308}) {
            const hs::Answer far = profile.delta_bounds(epsilon), before = profile.delta_bounds(-epsilon);
            CHECK(far.lower == 0 && far.upper <= 0.11);
            CHECK(before.lower >= 1 - 1e-12 && before.upper <= 1);
        }
        CHECK(std::isnan(pair->above(std::nan("")).value) && std::isnan(pair->below(std::nan("")).value));
    }
    const auto mixture = hs::Profile({{{pairs[2], 1}}});
    for (const double epsilon : {1e3, 1e36, 1e308}) CHECK(mixture.delta_bounds(epsilon).upper <= 5e-324);
    for (const double mu : {101.0, 1e160, std::nan("")})
        CHECK_THROWS(std::invalid_argument, hs::random_allocation(mu, 10, hs::Sampling::remove));
    CHECK_THROWS(std::invalid_argument, hs::discrete({0}, {1}, {1}, 0, 0, std::nan("")));
    // What is missing is counted nowhere.
    CHECK_THROWS(std::invalid_argument, hs::discrete({0}, {1 - 1e-8}, {1 - 1e-8}));
    CHECK_THROWS(std::invalid_argument,
                 hs::location_mixture(hs::Noise::laplace, 1, {1}, {1 - 1e-11}, {0}, {1}));
}

}  // namespace

int main() {
    for (std::uint64_t seed = 0; seed < 4000 / thinned; ++seed) contract(seed);
    revealed_then_sampled();
    supports_of_far_atoms();
    brackets();
    far_out();
    return check::summary();
}
