// Transforms of losses with atoms and smooth pieces, against closed forms, direct sums and dense rules; and
// the inversions that follow, against binomial sums, closed profiles and the FFT.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <numbers>
#include <optional>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "hockeystick/profile.hpp"
#include "inversion/inversion.hpp"
#include "inversion/laplace_steps.hpp"
#include "inversion/loss_transform.hpp"
#include "inversion/mgf.hpp"

namespace hs = hockeystick;
using Complex = std::complex<double>;

namespace {

constexpr double pi = std::numbers::pi;

hs::PairPtr responses(double epsilon, double spacing) {
    const double truth = 1 / (1 + std::exp(-epsilon)), lie = 1 / (1 + std::exp(epsilon));
    return hs::discrete({-epsilon, epsilon}, {lie, truth}, {truth, lie}, 0, spacing);
}

// M(z) by the pair's own profile: M(z) = 1 + z(z+1) integral of e^{zx} (f(x) - (1 - e^x)_+) dx, f the
// profile.
std::function<Complex(Complex)> by_profile(const hs::Pair& pair, double low, double high, double h) {
    std::vector<double> weight;
    for (double x = low + 0.5 * h; x < high; x += h) {
        const hs::Tangent t = x > 0 ? pair.above(x) : pair.below(x);
        weight.push_back(h * t.value * std::exp(t.exponent));
    }
    return [=](Complex z) {
        Complex sum = 0, power = std::exp(z * (low + 0.5 * h));
        const Complex next = std::exp(z * h);
        for (const double w : weight) {
            sum += power * w;
            power *= next;
        }
        return 1.0 + z * (z + 1.0) * sum;
    };
}

// Values and their errors, the decay beyond each frequency, and the real cumulant, against `truth`.
void transform(const hs::Transform& m, double s, double step, std::size_t size, double slack,
               const std::function<Complex(Complex)>& truth) {
    const hs::Transform::Row row = m.row(s, step, size, 1e-14);
    CHECK(row.value.size() == size);
    const hs::Cumulant real = m.at(s);
    const double exact = std::log(truth(s).real());
    CHECK(exact - slack <= real.upper && real.upper <= exact + 1e-5 + slack);
    CHECK(std::abs(real.value - exact) <= 1e-5 + slack);
    const auto decay = m.decay(s, real.upper);
    double largest = 0;
    for (std::size_t j = row.value.size(); j-- > 0;) {
        const double tau = step * static_cast<double>(j);
        const Complex value = truth({s, tau}) * std::exp(-row.shift);
        CHECK(std::abs(1.0 + row.value[j] - value) <=
              row.error[j] + slack * std::exp(real.upper - row.shift));
        CHECK(row.error[j] <= 1e-11 * std::exp(real.upper - row.shift));
        largest = std::max(largest, std::abs(value) * std::exp(row.shift));
        if (tau > 0) CHECK(std::log(largest) <= real.upper + decay->log_bound(tau) + slack);
    }
}

// e^{-a/2} (cosh wa + sinh(wa)/(2w)), w = z + 1/2.
Complex laplace_mgf(double a, Complex z) {
    const Complex w = z + 0.5;
    return std::exp(-0.5 * a) * (std::cosh(w * a) + std::sinh(w * a) / (2.0 * w));
}

void laplace_transform(double a, double s, double step) {
    const hs::LossTransform m(*hs::laplace(a)->loss_law(), 1e-6);
    transform(m, s, step, 80, 1e-13 * (1 + s * a), [&](Complex z) { return laplace_mgf(a, z); });
}

void by_own_profile(const hs::PairPtr& pair, double s, double step, double low, double high) {
    const hs::LossTransform m(*pair->loss_law(), 1e-6);
    transform(m, s, step, 24, 2e-5, by_profile(*pair, low, high, 1e-4));
}

// Rarely sampled Laplace noise, whose losses hardly turn, at frequencies of some turns of theirs: against
// Simpson's rule, which knows nothing of panels. a: the shift; both: replaced, not removed.
void rare_samples(double a, double q, bool both) {
    const auto pair =
        both ? hs::location_mixture(hs::Noise::laplace, 1, {0, a}, {1 - q, q}, {0, -a}, {1 - q, q})
             : hs::sampled(hs::laplace(a), q, hs::Sampling::remove);
    const hs::LossTransform m(*pair->loss_law(), 1e-6);
    const double most = q * std::expm1(a), s = 0.4 / most, step = 0.5 / most;
    // Terms of the sum at s + i step j, and what they are multiplied by from one j to the next.
    std::vector<Complex> terms, turns;
    const auto add_node = [&](double t, double weight) {
        // Densities beside that of the noise about 0, less 1.
        const auto moved = [&](double shift) { return q * std::expm1(std::abs(t) - std::abs(t - shift)); };
        const double p = std::log1p(moved(a)), loss = p - (both ? std::log1p(moved(-a)) : 0);
        terms.emplace_back(0.5 * weight * std::exp(p + s * loss - std::abs(t)));
        turns.push_back(std::polar(1.0, step * loss));
    };
    constexpr int cells = 16000;
    const double h = a / cells;
    // Beyond the shifts the ratio is constant, and the noise has the mass of its density.
    add_node(a, 1);
    add_node(both ? -a : 0, 1);
    for (const double low : {both ? -a : 0.0, 0.0}) {
        for (int i = 0; i <= 2 * cells; ++i)
            add_node(low + 0.5 * h * i, h / 6 * (i == 0 || i == 2 * cells ? 1 : i % 2 == 1 ? 4 : 2));
        if (!both) break;
    }
    const hs::Transform::Row row = m.row(s, step, 120, 1e-12);
    CHECK(row.value.size() == 120);
    for (std::size_t j = 0; j < row.value.size(); ++j) {
        Complex sum = 0;
        for (std::size_t i = 0; i < terms.size(); ++i) {
            sum += terms[i];
            terms[i] *= turns[i];
        }
        CHECK(std::abs(1.0 + row.value[j] - sum * std::exp(-row.shift)) <= row.error[j] + 2e-12);
        CHECK(row.error[j] <= 1e-12 + 1e-13 * static_cast<double>(1 + j) / most);
    }
}

// T randomised responses: binomial masses, in logarithms.
double binomial_delta(double epsilon, std::uint64_t steps, double at) {
    const double t = static_cast<double>(steps), truth = 1 / (1 + std::exp(-epsilon));
    double sum = 0;
    for (std::uint64_t lies = 0; lies <= steps; ++lies) {
        const double j = static_cast<double>(lies), x = epsilon * (t - 2 * j);
        if (x <= at) break;
        sum += std::exp(std::lgamma(t + 1) - std::lgamma(j + 1) - std::lgamma(t - j + 1) +
                        (t - j) * std::log(truth) + j * std::log1p(-truth)) *
               -std::expm1(at - x);
    }
    return sum;
}

void responses_are_binomial(double epsilon, std::uint64_t steps, bool spaced) {
    const auto inversion = hs::Inversion::of({{responses(epsilon, spaced ? epsilon : 0), steps}});
    CHECK(inversion != nullptr);
    const double top = epsilon * static_cast<double>(steps),
                 deviation = epsilon * std::sqrt(static_cast<double>(steps));
    // At lattice points, where delta has a kink, right beside them, and in between.
    for (double x : {0.0, 0.3, 1.0, 2.5, 4.0})
        for (double off : {0.0, 1e-9, -1e-9, 0.37, 1.0}) {
            const double at = std::rint(x * deviation / epsilon) * epsilon + off * epsilon;
            if (!(at < 0.9 * top)) continue;
            const double truth = binomial_delta(epsilon, steps, at), slack = 1e-11 * truth;
            const auto answer = inversion->delta_bounds(at);
            CHECK(answer.has_value());
            if (!answer) continue;
            CHECK(answer->lower <= truth + slack && truth - slack <= answer->upper);
            CHECK(answer->upper - answer->lower <= 1e-8 * truth);
            if (at <= 0) continue;
            const auto back = inversion->epsilon_bounds(truth);
            // The rounding of the sum above moves eps.
            const double moved = 1e-9 * (at + deviation);
            CHECK(back && back->lower <= at + moved && at - moved <= back->upper);
        }
}

// One Laplace step has the profile 1 - e^{(eps - a)/2}, two one that follows from the density of their loss.
void laplace_steps(double a) {
    const hs::LaplaceSteps one(a, 1), two(a, 2);
    for (double share : {0.0, 1e-7, 0.2, 0.5, 0.99}) {
        const double epsilon = share * a, truth = -std::expm1(0.5 * (epsilon - a));
        const double s = 2 / (a - epsilon);
        const auto answer = one.delta_bounds(epsilon, s, -5);
        CHECK(answer && answer->lower <= truth * (1 + 1e-13) && truth * (1 - 1e-13) <= answer->upper);
        CHECK(answer && answer->upper - answer->lower <= 1e-10 * truth);
    }
    // sum over the first loss y: its atoms, and its density e^{(y-a)/2}/4, of the second's profile at eps -
    // y.
    const auto profile = [&](double x) {
        return x >= a ? 0 : x < -a ? -std::expm1(x) : -std::expm1(0.5 * (x - a));
    };
    for (double share : {0.0, 0.1, 0.7, 1.0, 1.3, 1.9}) {
        const double epsilon = share * a;
        double truth = 0.5 * profile(epsilon - a) + 0.5 * std::exp(-a) * profile(epsilon + a);
        // Simpson's rule, exact enough between the kinks.
        const double low = epsilon - a, high = std::min(a, epsilon + a);
        const int cells = 4000;
        for (const auto& [from, to] : {std::pair{-a, std::max(low, -a)}, std::pair{std::max(low, -a), high}})
            for (int i = 0; i <= cells && to > from; ++i) {
                const double y = from + (to - from) * i / cells;
                const double weight = (i == 0 || i == cells ? 1 : i % 2 ? 4 : 2) * (to - from) / cells / 3;
                truth += weight * 0.25 * std::exp(0.5 * (y - a)) * profile(epsilon - y);
            }
        const auto answer = two.delta_bounds(epsilon, 1 / a, -3);
        CHECK(answer && answer->lower <= truth * (1 + 1e-11) && truth * (1 - 1e-11) <= answer->upper);
        CHECK(answer && answer->upper - answer->lower <= 1e-10 * truth);
    }
}

// Any tilt gives the same delta; so do both ways where both are open.
void tilts_agree(double a, double steps, double epsilon) {
    const hs::LaplaceSteps laplace(a, steps);
    std::optional<hs::Answer> first;
    for (double s : {0.5, 1.0, 2.0, 3.0}) {
        const auto answer = laplace.delta_bounds(epsilon, s, -6);
        CHECK(answer.has_value());
        if (!answer) continue;
        if (!first) first = answer;
        CHECK(answer->lower <= first->upper && first->lower <= answer->upper);
    }
}

// Both engines hold, so their intervals meet; and what the inversion says of epsilon fits what it says of
// delta.
void engines_agree(const hs::Composition& composition, std::initializer_list<double> deltas, double gap) {
    const hs::Profile quick({composition}), slow({composition}, 1e-2, std::size_t{1} << 26, hs::Engine::fft);
    for (const double delta : deltas) {
        const hs::Answer a = quick.epsilon_bounds(delta), b = slow.epsilon_bounds(delta);
        // Of few steps the largest losses may say enough; they know nothing of transforms either.
        CHECK(a.engine == "inversion" && b.engine != "inversion");
        CHECK(a.lower <= b.upper && b.lower <= a.upper);
        CHECK(a.upper <= a.lower * (1 + gap));
        CHECK(quick.delta_bounds(a.upper).lower <= delta * (1 + 1e-12));
        CHECK(quick.delta_bounds(a.lower).upper >= delta * (1 - 1e-12));
    }
}

// One step is its own profile, in closed form: on either side of 0, where the atom at 0 counts and where not.
int answered_once(const hs::PairPtr& pair) {
    const auto inversion = hs::Inversion::of({{pair, 1}});
    CHECK(inversion != nullptr);
    int answered = 0;
    for (const double epsilon : {-1.5, -0.05, 0.0, 0.3, 4.0}) {
        const auto answer = inversion->delta_bounds(epsilon);
        if (!answer) continue;
        const hs::Tangent t = pair->above(epsilon);
        const double truth = t.value * std::exp(t.exponent) + pair->infinity_mass(),
                     slack = (t.error + t.misplaced * t.slope) * std::exp(t.exponent);
        CHECK(answer->lower <= truth + slack && truth - slack <= answer->upper);
        answered += answer->upper - answer->lower <= 1e-4 * truth;
    }
    return answered;
}

// The same of few steps against the FFT.
int answered_few(const hs::PairPtr& pair, std::uint64_t steps) {
    const hs::Composition composition{{pair, steps}};
    const auto inversion = hs::Inversion::of(composition);
    const hs::Profile slow({composition}, 1e-2, std::size_t{1} << 26, hs::Engine::fft);
    int answered = 0;
    for (const double epsilon : {-0.4, 0.2, 2.0}) {
        const auto answer = inversion->delta_bounds(epsilon);
        const hs::Answer other = slow.delta_bounds(epsilon);
        if (!answer) continue;
        CHECK(answer->lower <= other.upper && other.lower <= answer->upper);
        answered += answer->upper - answer->lower <= 1e-4 * answer->upper;
    }
    return answered;
}

// P-masses of the law: whole, on either side of 0, and at 0, as the profile has them.
void zero_out_law(double mu, double q, hs::Sampling mode) {
    const hs::PairPtr pair = hs::zero_out(mu, q, mode);
    const hs::LossLaw law = *pair->loss_law();
    double mass = 0;
    for (const auto& atom : law.atoms) {
        CHECK(atom.loss == 0);
        mass += std::exp(atom.log_p);
    }
    double other = mass;
    for (const auto& piece : law.pieces) {
        const double h = 1e-3;
        for (double t = piece.low + 0.5 * h; t < piece.low + 12 + 2 * mu; t += h) {
            const double bell = h * std::exp(-0.5 * t * t);
            for (const auto& term : piece.p) mass += bell * std::exp(term.log_weight + term.rate * t);
            for (const auto& term : piece.q) other += bell * std::exp(term.log_weight + term.rate * t);
        }
    }
    CHECK(std::abs(mass - 1) < 1e-6 && std::abs(other - 1) < 1e-6);
    const hs::LossTransform m(law, 1e-6);
    const hs::Tangent right = pair->above(0), left = pair->below(-1e-300);
    const double atom = 1 - (right.value + right.slope) * std::exp(right.exponent) -
                        (left.slope - left.value) * std::exp(left.exponent);
    CHECK(m.zero_mass() <= atom + 1e-14 && atom - 1e-12 <= m.zero_mass());
}

// The bound holds for all higher frequencies of the half period at once, and falls where the law is wide.
void lattice_decay(const hs::PairPtr& pair, double s, double least) {
    std::vector<hs::LossLaw> laws = {*pair->loss_law()};
    const auto comb = hs::onto_lattice(laws, {pair->spacing()});
    CHECK(comb.has_value());
    const hs::LossTransform m(laws[0], 1e-6, 0, comb->spacing);
    const double top = m.at(s).upper;
    const auto decay = m.decay(s, top);
    double largest = 0;
    for (int i = 400; i > 0; --i) {
        const double tau = pi / comb->spacing * i / 400;
        Complex sum = 0;
        for (const auto& atom : laws[0].atoms) sum += std::exp(atom.log_p + Complex(s, tau) * atom.loss);
        largest = std::max(largest, std::abs(sum));
        CHECK(std::log(largest) <= top + decay->log_bound(tau) + 1e-10);
    }
    CHECK(decay->log_bound(pi / comb->spacing) <= least);
}

// Equal and unequal blocks, P-masses of a triangle, a single heap, one with a gap.
void lattice_decays() {
    const auto pair = [](const std::vector<double>& weights) {
        // Losses i/10 with P-masses as given and Q-masses that follow; what Q lacks lies at -inf.
        double total = 0, q_total = 0;
        std::vector<double> losses, p, q;
        for (double w : weights) total += w;
        for (std::size_t i = 0; i < weights.size(); ++i) {
            if (weights[i] == 0) continue;
            losses.push_back(0.1 * static_cast<double>(i));
            p.push_back(weights[i] / total);
            q.push_back(p.back() * std::exp(-losses.back()));
            q_total += q.back();
        }
        CHECK(q_total < 1);
        return hs::discrete(losses, p, q, 0, 0.1);
    };
    lattice_decay(pair({1, 1}), 0.1, -5);
    lattice_decay(pair({1, 1, 1, 1, 1, 1, 1}), 0.3, -1);
    lattice_decay(pair({1, 2, 3, 4, 5, 4, 3, 2, 1}), 1, -0.5);
    lattice_decay(pair({1, 3, 1, 0, 0, 2, 2, 5}), 2, -0.1);
    lattice_decay(pair(std::vector<double>(200, 1.0)), 0.5, -1);
}

void lattices() {
    const auto law = [](std::initializer_list<double> losses) {
        hs::LossLaw out;
        for (double x : losses) out.atoms.push_back({x, -1});
        return out;
    };
    std::vector<hs::LossLaw> two = {law({-0.3, 0.9}), law({-0.5, 0.1, 1.9})};
    const auto comb = hs::onto_lattice(two, {0, 0});
    CHECK(comb && std::abs(comb->spacing - 0.6) < 1e-15);
    std::vector<hs::LossLaw> exact = {law({-3, -1, 1})};
    const auto odd = hs::onto_lattice(exact, {1});
    CHECK(odd && odd->spacing == 2 && odd->offset.front() == -3);
    std::vector<hs::LossLaw> none = {law({-1, 0, pi})};
    CHECK(!hs::onto_lattice(none, {0}));
    CHECK_THROWS(std::invalid_argument, hs::onto_lattice(two, {0}));
    // A loss off its point is as wrong as it says.
    std::vector<hs::LossLaw> off = {law({-1, 1e-15, 1})};
    CHECK(hs::onto_lattice(off, {0}) && off[0].atoms[1].loss != 1e-15 && off[0].atoms[1].loss_slack > 2);
}

// Parts that are rare enough are missing from P and from Q alike, with all of their weight.
void without_rare_parts(double s) {
    constexpr double rare = 1e-6;
    const hs::GaussianMixtures likely{1 - rare, {0}, {1}, {0, -1}, {0.9, 0.1}},
        other{rare, {0}, {1}, {0, -3}, {0.3, 0.7}}, alone{1, {0}, {1}, {0, -1}, {0.9, 0.1}};
    const hs::Mgf whole({likely, other}, 1e-12, 0.5 * rare), cut({likely, other}, 1e-12, 2 * rare),
        one({alone}, 1e-12);
    CHECK(whole.dropped() == 0 && whole.can_cut() && !one.can_cut());
    CHECK(cut.dropped() >= rare && cut.dropped() <= rare * (1 + 1e-9));
    CHECK(cut.mixtures().empty() && whole.mixtures().size() == 2);
    const auto row = cut.row(s, 0.7, 40, 1e-12), truth = one.row(s, 0.7, 40, 1e-12);
    CHECK(row.value.size() == 40 && truth.value.size() == 40);
    for (std::size_t j = 0; j < 40; ++j) {
        const double unit = std::exp(row.shift), other_unit = std::exp(truth.shift);
        const auto off = unit * (1.0 + row.value[j]) - (1 - rare) * other_unit * (1.0 + truth.value[j]);
        CHECK(std::abs(off) <= unit * row.error[j] + other_unit * truth.error[j]);
        CHECK(unit * row.error[j] < 0.1 * rare);
    }
    CHECK(std::abs(cut.at(s).value - one.at(s).value - std::log1p(-rare)) < 1e-9);
    CHECK(cut.at(s).upper >= one.at(s).value + std::log1p(-rare) - 1e-12);
}

// A plain Gaussian step in two halves, whose constants are rounded while its losses are next to nothing.
void halves_of_a_gaussian(double mu) {
    using Exact = std::complex<long double>;
    const double s = 2, step = 3;
    for (const auto mode : {hs::Sampling::remove, hs::Sampling::add}) {
        const hs::LossTransform m(*hs::zero_out(mu, 1, mode)->loss_law(), 1e-6);
        const hs::Transform::Row row = m.row(s, step, 4, 1e-30);
        CHECK(row.value.size() == 4);
        for (std::size_t j = 0; j < row.value.size(); ++j) {
            const Exact z(s, step * static_cast<double>(j)),
                x = static_cast<long double>(mu) * static_cast<long double>(mu) * z * (z + 1.0L) / 2.0L,
                truth = x * (1.0L + x / 2.0L * (1.0L + x / 3.0L));
            CHECK(std::abs(Exact(row.value[j]) - truth) <= row.error[j]);
        }
    }
}

// Of a choice between a rare law and one that has outcomes which are Q's alone: sampled, those belong to a
// law of the two that is not told.
void rare_laws_keep_what_is_missing() {
    const auto common = hs::discrete({std::log(2)}, {1}, {0.5}, 0, 0, 0.5);
    double truth = 0;
    for (int k = 0; k <= 300; ++k) {
        const double loss = k * std::log(1.3) + (300 - k) * std::log(0.7);
        if (loss > 20)
            truth += std::exp(std::lgamma(301) - std::lgamma(k + 1) - std::lgamma(301 - k) +
                              k * std::log(0.65) + (300 - k) * std::log(0.35)) *
                     -std::expm1(20 - loss);
    }
    std::vector<hs::PairPtr> pairs;
    for (const auto& pair : {hs::mixture({hs::laplace(1), common}, {1e-40, 1}),
                             hs::mixture({common, hs::laplace(1)}, {1, 1e-40})}) {
        const auto some = hs::sampled(pair, 0.3, hs::Sampling::remove);
        // A choice of a choice, too.
        for (const auto& each : {some, hs::mixture({some, hs::laplace(1)}, {1, 1e-45}),
                                 hs::mixture({hs::laplace(1), some}, {1e-45, 1})})
            pairs.push_back(each);
    }
    for (const auto& pair : pairs) {
        const hs::Answer at = hs::Profile({{{pair, 300}}}, 1e-6).delta_bounds(20);
        CHECK(at.lower <= truth * (1 + 1e-9) && truth * (1 - 1e-9) <= at.upper);
        CHECK(at.upper <= at.lower * (1 + 1e-6));
    }
}

// Pieces on which no loss is positive, though it rises, or none negative.
void pieces_on_one_side() {
    const auto both = hs::Sampling::replace_one;
    for (const std::vector<double>& weights : {std::vector<double>{0.7, 0.3}, {0.2, 0.8}})
        for (const double low : {0.0, -1.0}) {
            const auto base =
                hs::location_mixture(hs::Noise::laplace, 1, {0, 1}, weights, {low, -1.0}, weights);
            const auto pair = hs::sampled(base, 0.5, both);
            transform(hs::LossTransform(*pair->loss_law(), 1e-6), 2, 0.7, 12, 1e-6,
                      by_profile(*pair, -2.5, 2.5, 1e-4));
        }
}

}  // namespace

int main() {
    for (const double s : {0.2, 3.0, 40.0}) without_rare_parts(s);
    laplace_transform(1, 3, 0.4);
    laplace_transform(0.05, 4, 3);
    laplace_transform(6, 0.7, 0.2);
    laplace_transform(1e-3, 100, 50);

    const auto remove = hs::Sampling::remove, add = hs::Sampling::add, both = hs::Sampling::replace_one;
    by_own_profile(hs::sampled(hs::laplace(1), 0.1, remove), 2, 1, -1, 1);
    by_own_profile(hs::sampled(hs::laplace(1), 0.1, add), 2, 1, -1, 1);
    by_own_profile(hs::sampled(hs::laplace(2), 0.3, both), 1.5, 0.7, -2, 2);
    for (const double q : {0.3, 1e-6, 1e-2, 1e-4}) {
        if (check::sanitized && q < 0.3 && q > 1e-6) break;  // between ends
        for (const double a : {0.3, 1.0, 3.0})
            for (const bool replaced : {false, true}) rare_samples(a, q, replaced);
    }
    by_own_profile(hs::sampled(hs::gaussian(1.2), 0.2, both), 1.5, 0.5, -8, 8);
    by_own_profile(hs::sampled(hs::gaussian(0.5), 0.02, both), 3, 2, -4, 4);
    by_own_profile(hs::location_mixture(hs::Noise::laplace, 0.8, {0, 1}, {0.8, 0.2}, {0, -1}, {0.8, 0.2}),
                   1.5, 0.7, -3, 3);
    by_own_profile(hs::sampled(hs::mixture({hs::laplace(0.5), hs::laplace(1)}, {0.7, 0.3}), 0.2, both), 1, 1,
                   -1, 1);
    by_own_profile(hs::sampled(responses(1, 1), 0.3, both), 1, 0.5, -1, 1);
    by_own_profile(hs::sampled(hs::discrete({0}, {0.9}, {0.9}, 0.1), 0.5, add), 1, 0.5, -12, 1);

    by_own_profile(hs::zero_out(0.5, 0.2, add), 3, 1.5, -4, 4);
    by_own_profile(hs::zero_out(0.5, 0.1, remove), 3, 1.5, -4, 4);
    const auto poisson =
        hs::location_mixture(hs::Noise::gaussian, 1, {0, 0.5}, {0.9, 0.1}, {0, -0.5}, {0.9, 0.1});
    by_own_profile(hs::mixture({poisson, hs::laplace(1)}, {0.75, 0.25}), 2, 1, -3, 3);
    by_own_profile(hs::mixture({poisson, hs::sampled(hs::gaussian(1), 0.1, both)}, {0.9375, 0.0625}), 2, 1,
                   -6, 6);

    int once = 0, few = 0;
    for (const double mu : {0.02, 0.3, 1.0, 3.3})
        for (const double q : {0.01, 0.6}) {
            if (check::sanitized && mu != 1.0) continue;  // all take the same way
            const auto joined = hs::sampled(hs::gaussian(2 * mu), q, both);
            for (const auto mode : {remove, add}) {
                zero_out_law(mu, q, mode);
                once += answered_once(hs::zero_out(mu, q, mode));
            }
            once += answered_once(joined);
            if (q < 0.1) once += answered_once(hs::zero_out(mu, 1, add));
            if (mu < 0.1 || q < 0.1) continue;
            few += answered_few(hs::zero_out(mu, q, remove), 4) + answered_few(hs::zero_out(mu, q, add), 4) +
                   answered_few(joined, 3);
        }
    CHECK(check::sanitized || (once >= 26 && few >= 10));

    for (const bool spaced : {true, false}) {
        responses_are_binomial(1, 10, spaced);
        responses_are_binomial(0.3, 200, spaced);
        responses_are_binomial(0.01, 3000, spaced);
        responses_are_binomial(3, 40, spaced);
    }
    lattices();
    lattice_decays();

    for (double a : {0.05, 0.4, 1.0, 4.0}) laplace_steps(a);
    tilts_agree(0.05, 500, 5.4);
    tilts_agree(1, 30, 20);
    tilts_agree(0.3, 12, 0);
    tilts_agree(0.3, 12, 0.3 * 6);  // on a kink

    engines_agree({{hs::laplace(0.05), 500}}, {1e-3, 1e-6, 1e-20}, 1e-10);
    engines_agree({{hs::laplace(1), 5}}, {0.3, 1e-2}, 1e-10);
    engines_agree({{hs::laplace(0.2), 3}, {hs::laplace(0.2), 4}}, {0.1, 1e-3}, 1e-10);
    engines_agree({{hs::laplace(0.3), 20}, {hs::gaussian(0.4), 3}}, {1e-2, 1e-9}, 1e-9);
    engines_agree({{hs::sampled(hs::laplace(1), 0.1, add), 400}}, {1e-2, 1e-8}, 1e-8);
    engines_agree({{hs::sampled(hs::laplace(1), 0.1, both), 400}}, {1e-2, 1e-8}, 1e-8);
    engines_agree({{hs::sampled(hs::laplace(1), 1e-4, remove), 100}}, {1e-5, 1e-8}, 1e-8);
    engines_agree({{hs::sampled(hs::laplace(1), 1e-4, both), 100}}, {1e-5, 1e-8}, 1e-8);
    engines_agree({{hs::sampled(hs::gaussian(0.8), 0.1, both), 300}}, {1e-2, 1e-8}, 1e-8);
    engines_agree({{responses(0.5, 0.5), 60}, {responses(0.25, 0), 40}}, {1e-2, 1e-6}, 1e-8);
    const auto cut = [&](double full, const hs::PairPtr& branch, const hs::PairPtr& other) {
        return hs::mixture({other, branch}, {1 - full, full});
    };
    const auto removed =
        cut(0.0625, hs::zero_out(0.8, 0.09, remove), hs::sampled(hs::gaussian(0.8), 0.1, remove));
    const auto added = cut(0.0625, hs::zero_out(0.8, 0.09, add), hs::sampled(hs::gaussian(0.8), 0.1, add));
    const auto swapped = cut(0.0625, hs::sampled(hs::gaussian(2), 0.09, both), poisson);
    for (const auto& pair : {removed, added, swapped}) engines_agree({{pair, 300}}, {1e-2, 1e-8}, 1e-8);
    engines_agree({{removed, 100}, {hs::gaussian(0.3), 5}, {hs::laplace(0.2), 10}}, {1e-2, 1e-8}, 1e-8);
    engines_agree({{hs::mixture({swapped, hs::laplace(0.5)}, {0.5, 0.5}), 200}}, {1e-2, 1e-6}, 1e-8);
    engines_agree({{hs::discrete({-1, 0, 1}, {0.15, 0.34999, 0.5},
                                 {0.15 * std::exp(1), 0.34999, 0.5 * std::exp(-1)}, 1e-5, 1),
                    45}},
                  {1e-2, 6e-4}, 1e-8);

    for (const double mu : {1e-3, 1e-5, 3e-6, 1e-6, 1e-7}) halves_of_a_gaussian(mu);
    rare_laws_keep_what_is_missing();
    pieces_on_one_side();

    // Sums of atoms on no common lattice never decay.
    engines_agree({{responses(1, 1), 400}, {responses(std::numbers::sqrt2, 0), 400}}, {0.1}, 1e-6);
    CHECK(hs::Inversion::of({{responses(1, 1), 5}, {hs::gaussian(1), 5}}) != nullptr);
    return check::summary();
}
