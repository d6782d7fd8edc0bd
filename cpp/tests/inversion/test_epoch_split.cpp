// Epochs of several kinds of random allocation, and other steps, in three parts: kinds that are one kind or a
// Gaussian step in disguise, the parts of a sampled step against plain quadrature, the whole transform, and
// samples that try to exceed what is left to the remainder.
#include <cmath>
#include <complex>
#include <memory>
#include <numbers>
#include <random>
#include <vector>

#include "check.hpp"
#include "hockeystick/pairs.hpp"
#include "inversion/allocation_step.hpp"
#include "inversion/direct_inversion.hpp"
#include "inversion/epoch_kind.hpp"
#include "inversion/epoch_split.hpp"
#include "inversion/epochs.hpp"

namespace hs = hockeystick;
using Complex = std::complex<double>;

namespace {

hs::PairPtr allocation(double sigma, double steps) {
    return hs::random_allocation(1 / sigma, steps, hs::Sampling::remove);
}
hs::PairPtr sampled(double sigma, double q) {
    return hs::sampled(hs::gaussian(1 / sigma), q, hs::Sampling::remove);
}

std::optional<hs::Answer> split_delta(const hs::Composition& composition, double epsilon) {
    const auto epochs = hs::Epochs::of(composition);
    return epochs ? epochs->delta_bounds(epsilon, true) : std::nullopt;
}

void agree(const std::optional<hs::Answer>& a, const std::optional<hs::Answer>& b, double widest) {
    CHECK(a && b);
    if (!a || !b) return;
    CHECK(a->lower <= b->upper && b->lower <= a->upper);
    CHECK(hs::relative_gap(a) < widest && hs::relative_gap(b) < widest);
}

// One kind told as two; Gaussian steps told as a mixture whose choice is public, and as one whose shifts are
// the same, which is cut as sampled steps are.
void disguises_agree() {
    const auto one = allocation(0.9, 3000);
    const auto truth = split_delta({{one, 3}, {hs::gaussian(0.03), 5}}, 0.4);
    agree(truth, split_delta({{one, 1}, {one, 2}, {hs::gaussian(0.03), 5}}, 0.4), 1e-9);
    const auto same = hs::mixture({hs::gaussian(0.03), hs::gaussian(0.03)}, {0.5, 0.5}),
               mixed = hs::location_mixture(hs::Noise::gaussian, 1, {0.03, 0.03}, {0.25, 0.75}, {0}, {1});
    agree(truth, split_delta({{one, 3}, {same, 5}}, 0.4), 1e-9);
    agree(truth, split_delta({{one, 3}, {mixed, 5}}, 0.4), 1e-9);
    agree(truth, split_delta({{one, 2}, {mixed, 2}, {one, 1}, {same, 3}}, 0.4), 1e-9);
}

void agrees_with_the_whole(const hs::Composition& composition, double epsilon) {
    const auto whole = hs::DirectInversion(composition).delta_bounds(epsilon, {}),
               parts = split_delta(composition, epsilon);
    CHECK(whole && parts);
    if (!whole || !parts) return;
    CHECK(parts->lower <= whole->upper && whole->lower <= parts->upper);
    CHECK(hs::relative_gap(parts) < 1e-8 && hs::relative_gap(whole) < 0.1);
}

// E_P[(dP/dQ)^z; low < g <= high] of a sampled Gaussian step by Boole's rule.
Complex by_boole(double mu, double q, double low, double high, Complex z) {
    constexpr int n = 160000;
    const double h = (high - low) / n;
    Complex sum = 0;
    for (int i = 0; i <= n; ++i) {
        const double g = low + h * i, ratio = 1 - q + q * std::exp(mu * g - 0.5 * mu * mu),
                     weight = i == 0 || i == n ? 7 : (i % 2 ? 32 : (i % 4 ? 12 : 14));
        sum += weight * std::exp(-0.5 * g * g) * std::pow(Complex(ratio), 1.0 + z);
    }
    return sum * h * 2.0 / 45.0 / std::sqrt(2 * std::numbers::pi);
}

// A sampled Gaussian of sensitivity mu, and how likely it is what is released.
struct Sampled {
    double weight, mu, q;
    double loss(double g) const { return std::log(1 - q + q * std::exp(mu * g - 0.5 * mu * mu)); }
    double place(double loss) const { return std::log1p(std::expm1(loss) / q) / mu + 0.5 * mu; }
};

// The first one is cut at 4.5 and 7, and all others where their losses are the same.
void parts_of_sampled_steps(const std::vector<Sampled>& choices, double s, double step) {
    const double first = choices[0].loss(4.5), second = choices[0].loss(7);
    constexpr std::size_t size = 60;
    std::vector<hs::PairPtr> pairs;
    std::vector<double> weights;
    for (const auto& [weight, mu, q] : choices)
        pairs.push_back(sampled(1 / mu, q)), weights.push_back(weight);
    const auto kind = hs::EpochKind::of(*hs::mixture(pairs, weights), 10);
    CHECK(kind && kind->can_split());
    const auto sum = [&](double low, double high, Complex z) {
        Complex all = 0;
        for (const Sampled& each : choices)
            all += each.weight * by_boole(each.mu, each.q, low == -hs::infinity ? -12 : each.place(low),
                                          high == hs::infinity ? each.mu + 12 : each.place(high), z);
        return all;
    };
    const auto beyond = kind->beyond(second);
    CHECK(std::abs(beyond.p / sum(second, hs::infinity, 0).real() - 1) < 1e-9);
    CHECK(std::abs(beyond.q / sum(second, hs::infinity, -1).real() - 1) < 1e-9);
    CHECK(beyond.least_loss <= second * (1 + 1e-9) && beyond.least_loss >= second * (1 - 1e-9));
    CHECK(std::abs(kind->place_of_mass(beyond.p) / second - 1) < 1e-9);
    const auto parts = kind->parts(first, second);
    CHECK(parts->split());
    parts->lay(s, true, true);
    const hs::PartRow a = parts->bulk(step, size, -32), b = parts->rest(step, size, -30);
    CHECK(a.value.size() == size && b.value.size() == size && a.less_one && !b.less_one);
    if (a.empty() || b.empty()) return;
    for (std::size_t j = 0; j < size; j += 7) {
        const Complex z(s, step * static_cast<double>(j));
        const double unit = std::exp(-a.shift);
        const Complex below = sum(-hs::infinity, first, z) * unit,
                      between = sum(first, second, z) * std::exp(-b.shift);
        CHECK(std::abs(a.value[j] + 1.0 - below) <= a.error[j] + 1e-11 * std::abs(a.value[0] + 1.0));
        CHECK(std::abs(b.value[j] - between) <= b.error[j] + 1e-11 * std::abs(b.value[0]));
        CHECK(b.error[j] < 1e-9 && a.error[j] < 1e-9);
    }
    CHECK(std::log(std::abs(b.value[0])) + b.shift <= parts->log_rest(s));
    CHECK(parts->log_rest(s) <= std::log(std::abs(b.value[0])) + b.shift + 1e-2);
    // What is left out.
    for (std::size_t first_left = 1; first_left < size; first_left += 5)
        for (std::size_t j = first_left; j < size && j <= 2 * first_left; ++j) {
            const double tau = step * static_cast<double>(first_left);
            CHECK(std::log(std::abs(b.value[j]) - b.error[j]) + b.shift <= parts->log_rest_at(tau));
            CHECK(std::log(std::abs(a.value[j] + 1.0) - a.error[j]) + a.shift <= parts->log_bulk_at(tau));
        }
}

// E_Q[(e^eps - e^L)_+; some W > c] by samples in which one ratio, evenly drawn, is beyond its place: each
// stands for all outcomes over the number of those that are.
void remainder_is_bounded(double epsilon, double margin, double tilt, double least_share) {
    struct Kind {
        double mu, steps, count, place;
    };
    std::vector<Kind> kinds{{0.9, 12, 2, 0}, {0.5, 9, 3, 0}};
    const auto split = hs::EpochSplit::of({{hs::random_allocation(0.9, 12, hs::Sampling::remove), 2},
                                           {hs::random_allocation(0.5, 9, hs::Sampling::remove), 3},
                                           {hs::gaussian(0.2), 2}});
    CHECK(split != nullptr);
    std::vector<double> places;
    double mass = 0;
    for (Kind& kind : kinds) {
        places.push_back((std::log(kind.steps) + epsilon + margin) / kind.mu + 0.5 * kind.mu);
        kind.place = places.back();
        mass += kind.count * kind.steps * 0.5 * std::erfc(kind.place / std::numbers::sqrt2);
    }
    const double bound = std::exp(split->log_put(places, tilt) + (1 + tilt) * epsilon);
    std::mt19937_64 random(5);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform;
    constexpr int samples = 100000;
    double sum = 0, squares = 0;
    for (int i = 0; i < samples; ++i) {
        // Which is the one that surely is beyond.
        double left = uniform(random) * mass;
        std::size_t k = 0;
        for (; k + 1 < kinds.size(); ++k) {
            const double each =
                kinds[k].count * kinds[k].steps * 0.5 * std::erfc(kinds[k].place / std::numbers::sqrt2);
            if (left < each) break;
            left -= each;
        }
        double loss = 0.2 * std::numbers::sqrt2 * normal(random) - 0.5 * 0.08;
        int beyond = 0;
        for (std::size_t kind = 0; kind < kinds.size(); ++kind)
            for (int epoch = 0; epoch < kinds[kind].count; ++epoch) {
                double v = 0;
                for (int t = 0; t < kinds[kind].steps; ++t) {
                    double g = normal(random);
                    if (kind == k && epoch == 0 && t == 0) {
                        // Beyond its place, by rejection from an exponential tail.
                        const double low = kinds[kind].place;
                        do {
                            g = low - std::log(1 - uniform(random)) / low;
                        } while (uniform(random) > std::exp(-0.5 * (g - low) * (g - low)));
                    }
                    beyond += g > kinds[kind].place;
                    v += std::exp(kinds[kind].mu * (g - 0.5 * kinds[kind].mu)) / kinds[kind].steps;
                }
                loss += std::log(v);
            }
        const double put = std::max(0.0, std::exp(epsilon) - std::exp(loss)) / beyond;
        sum += put;
        squares += put * put;
    }
    const double mean = sum / samples, error = std::sqrt((squares / samples - mean * mean) / samples);
    CHECK(mass * (mean - 5 * error) <= bound);
    CHECK(mass * (mean + 5 * error) >= least_share * bound);
}

// Nodes that enter by moments, and the same one by one, as they do where nodes are to serve high frequencies.
void moments_are_nodes(double mu, double steps, double end, double s, double tau) {
    const hs::Allocation law{mu, steps, false};
    const hs::CutStep step = hs::CutStep::at(law, end, 9);
    const auto nodes = step.nodes_below({s, tau}), one_by_one = step.nodes_below({s, 10 * tau});
    CHECK(nodes.small > nodes.weight.size() / 2 && one_by_one.small < one_by_one.weight.size() / 10);
    for (const double share : {0.0, 0.01, 0.3, 1.0}) {
        const Complex at(s, share * tau);
        const auto a = step.log_below(nodes, at), b = step.log_below(one_by_one, at);
        CHECK(std::abs(a.value - b.value) <= a.error + b.error);
        CHECK(a.error < 1e-8 && b.error < 1e-8);
    }
}

// Wherever the two cuts are, no outcome is in no part.
void parts_are_all() {
    const auto kind =
        hs::EpochKind::of(*hs::location_mixture(hs::Noise::gaussian, 1, {0, 2}, {0.9, 0.1}, {0}, {1}), 1);
    for (const double first : {2.0, 72.0, 76.0})  // the largest losses that are told apart are of 75
        for (const double apart : {0.0, 0.005, 0.0099, 0.0101, 1.0}) {
            const double second = first + apart;
            const auto parts = kind->parts(first, second);
            parts->lay(1e-9, true, true);
            const double rest = parts->split() ? std::exp(parts->log_rest(1e-9)) : 0;
            CHECK(std::exp(parts->log_bulk(1e-9)) + rest + kind->beyond(second).p >= 1 - 1e-8);
        }
}

void is_refused() {
    const auto one = allocation(1, 100);
    CHECK(!hs::EpochSplit::of({{hs::random_allocation(1, 100, hs::Sampling::add), 2}}));
    CHECK(!hs::EpochSplit::of({{sampled(1, 0.01), 100}}));
    // Outcomes that P or Q alone have.
    CHECK(!hs::EpochSplit::of(
        {{one, 2}, {hs::discrete({std::log(1.0 / 3), std::log(1.75)}, {0.2, 0.7}, {0.6, 0.4}, 0.1), 1}}));
    CHECK(!hs::EpochSplit::of(
        {{one, 2}, {hs::discrete({std::log(0.5), std::log(3.5)}, {0.3, 0.7}, {0.6, 0.2}, 0.0, 0, 0.2), 1}}));
}

}  // namespace

int main() {
    disguises_agree();
    parts_of_sampled_steps({{1, 1, 1e-3}}, 3, 2);
    parts_of_sampled_steps({{1, 1 / 0.7, 0.02}}, 1.5, 3);
    // Rows beside a large number.
    parts_of_sampled_steps({{1, 1 / 0.7, 0.02}}, 35, 3);
    parts_of_sampled_steps({{1, 1 / 1.5, 0.3}}, 60, 5);
    parts_of_sampled_steps({{0.98, 1, 1e-3}, {0.02, 2, 8e-4}}, 3, 2);
    parts_of_sampled_steps({{0.3, 1.2, 0.01}, {0.5, 0.8, 0.1}, {0.2, 1.5, 1e-4}}, 4, 3);
    agrees_with_the_whole({{allocation(1.2, 800), 2}, {allocation(2, 300), 3}}, 0.15);
    agrees_with_the_whole({{allocation(1.1, 500), 1}, {sampled(1.5, 0.002), 40}}, 0.12);
    agrees_with_the_whole({{allocation(1.3, 900), 2}, {hs::laplace(0.02), 6}}, 0.2);
    for (const double margin : {0.0, 0.4}) remainder_is_bounded(0.3, margin, 2, 0.02);
    remainder_is_bounded(0.3, 0.1, 4, 1e-3);
    moments_are_nodes(1, 1000, 5, 20, 300);
    moments_are_nodes(0.4, 10000, 6, 2000, 3000);
    parts_are_all();
    is_refused();
    return check::summary();
}
