// Importance sampling: normalisers against the sum over all pairs of patterns, every weight below its bound,
// unbiasedness, blocks and threads.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "check.hpp"
#include "hockeystick/parallel.hpp"
#include "montecarlo/tilted.hpp"
#include "montecarlo/weights.hpp"

using namespace hockeystick;

namespace {

using Law = std::vector<std::pair<double, std::vector<double>>>;  // probability, values

// Every pattern of a chain, step by step from the definition of the schemes.
Law patterns(const Scheme& scheme, std::size_t steps) {
    std::map<std::vector<double>, double> found;
    const auto walk = [&](auto&& self, std::vector<double> x, std::size_t barred, double probability,
                          std::size_t separation, const std::vector<double>& weights) -> void {
        if (probability == 0) return;
        if (x.size() == steps) {
            found[x] += probability;
            return;
        }
        for (std::size_t m = 0; m < weights.size(); ++m) {
            if (barred > 0 && m > 0) break;
            std::vector<double> next = x;
            next.push_back(static_cast<double>(m));
            const double weight = barred > 0 ? 1 : weights[m];
            self(self, next, m > 0 ? separation - 1 : (barred > 0 ? barred - 1 : 0), probability * weight,
                 separation, weights);
        }
    };
    if (const auto* s = std::get_if<BMinSep>(&scheme)) {
        const double p = s->probability, available = s->warm_start ? stationary_availability(*s) : 1;
        walk(walk, {}, 0, available, s->separation, {1 - p, p});
        for (std::size_t barred = 1; s->warm_start && barred < s->separation; ++barred) {
            walk(walk, {}, barred, p * available, s->separation, {1 - p, p});
        }
    } else if (const auto* m = std::get_if<MultiAttribution>(&scheme)) {
        std::vector<double> weights;
        for (std::size_t j = 0; j <= m->examples; ++j) {
            weights.push_back(binomial_probability(m->examples, m->probability, j));
        }
        walk(walk, {}, 0, 1, m->separation, weights);
    } else {
        const std::size_t bins = std::get<BallsInBins>(scheme).bins;
        for (std::size_t j = 0; j < bins; ++j) {
            std::vector<double> x(steps, 0.0);
            for (std::size_t i = j; i < steps; i += bins) x[i] = 1;
            found[x] += 1 / static_cast<double>(bins);
        }
    }
    Law law;
    for (const auto& [x, probability] : found) law.emplace_back(probability, x);
    return law;
}

double log_moment(const Law& law, const Strategy& strategy, double sigma, int order = 2) {
    const std::size_t steps = strategy.steps();
    std::vector<std::vector<double>> means;
    for (const auto& [probability, x] : law) {
        std::vector<double> mean(steps, 0.0);
        for (std::size_t i = 0; i < steps; ++i) {
            const auto column = strategy.column(i);
            for (std::size_t k = 0; k < column.size(); ++k) mean[i + k] += x[i] * column[k];
        }
        means.push_back(mean);
    }
    const std::size_t count = law.size();
    std::vector<double> gram(count * count);
    double sum = 0;
    for (std::size_t a = 0; a < count; ++a) {
        for (std::size_t b = 0; b < count; ++b) {
            double product = 0;
            for (std::size_t i = 0; i < steps; ++i) product += means[a][i] * means[b][i];
            gram[a * count + b] = std::exp(product / sigma / sigma);
            if (order == 2) sum += law[a].first * law[b].first * gram[a * count + b];
        }
    }
    for (std::size_t a = 0; order == 3 && a < count; ++a) {
        for (std::size_t b = 0; b < count; ++b) {
            const double pair = law[a].first * law[b].first * gram[a * count + b];
            for (std::size_t c = 0; c < count; ++c) {
                sum += pair * law[c].first * gram[a * count + c] * gram[b * count + c];
            }
        }
    }
    return std::log(sum);
}

Strategy strategy_of(std::size_t steps, std::size_t bands, bool toeplitz) {
    std::vector<double> columns;
    for (std::size_t i = 0; i < (toeplitz ? 1 : steps); ++i) {
        for (std::size_t k = 0; k < bands; ++k) {
            const double entry = 1 / (1 + 0.7 * static_cast<double>(k)) + 0.1 * static_cast<double>(i % 3);
            columns.push_back(toeplitz || i + k < steps ? entry : 0);
        }
    }
    return {steps, bands, columns};
}

std::vector<Scheme> schemes_of(std::size_t separation) {
    return {BMinSep{separation, 0.3, false},
            BMinSep{separation, 0.3, true},
            BMinSep{separation, 1.0, true},
            BMinSep{separation, 0.0, true},
            MultiAttribution{separation, 0.2, 3, false},
            BallsInBins{separation}};
}

void normalisers() {
    for (const std::size_t steps : {1, 4, 7}) {
        for (const std::size_t separation : {1, 2, 3, 6, 9}) {
            for (const std::size_t bands : {1, 2, 3}) {
                if (bands > std::min(separation, steps)) continue;
                for (const bool toeplitz : {true, false}) {
                    for (const Scheme& scheme : schemes_of(separation)) {
                        if (std::holds_alternative<MultiAttribution>(scheme) && steps > 4) continue;
                        const Strategy strategy = strategy_of(steps, bands, toeplitz);
                        const Law law = patterns(scheme, steps);
                        const double expected = log_moment(law, strategy, 0.9);
                        const double got = moment_law({strategy, scheme, 0.9}, 2)->log_normaliser();
                        CHECK(std::abs(got - expected) <= 1e-12 * (1 + std::abs(expected)));
                        if (has_moment_law({strategy, scheme, 0.9}, 3)) {
                            const double third = log_moment(law, strategy, 0.9, 3);
                            const double table = moment_law({strategy, scheme, 0.9}, 3)->log_normaliser();
                            CHECK(std::abs(table - third) <= 1e-12 * (1 + std::abs(third)));
                        }
                        if (std::holds_alternative<BallsInBins>(scheme)) continue;
                        double sum = 0;
                        for (const auto& [p, x] : law) {
                            double hits = 0;
                            for (const double m : x) hits += m;
                            sum += p * std::pow(2.5, hits);
                        }
                        const double tilted = tilted_law(scheme, steps, {2.5, 0.3})->log_normaliser();
                        CHECK(std::abs(tilted - std::log(sum)) < 1e-12);
                    }
                }
            }
        }
    }
    // Overlapping bins, and any order where rounds are independent: M_a against its definition.
    const Strategy wide = strategy_of(7, 5, true);
    CHECK(std::abs(moment_law({wide, BallsInBins{3}, 0.9}, 2)->log_normaliser() -
                   log_moment(patterns(BallsInBins{3}, 7), wide, 0.9)) < 1e-12);
    const Strategy diagonal = strategy_of(4, 1, false);
    for (const int order : {2, 3, 5}) {
        double expected = 0;
        for (const double square : diagonal.squared_norms()) {
            double sum = 0;
            for (int k = 0; k <= order; ++k) {
                sum += std::tgamma(order + 1) / std::tgamma(k + 1) / std::tgamma(order - k + 1) *
                       std::pow(0.3, k) * std::pow(0.7, order - k) * std::exp(0.5 * k * (k - 1) * square);
            }
            expected += std::log(sum);
        }
        CHECK(std::abs(moment_law({diagonal, BMinSep{1, 0.3, true}, 1}, order)->log_normaliser() - expected) <
              1e-12);
    }
    // Weights far beyond doubles.
    const Strategy identity(200, 1, {1.0});
    CHECK(std::isfinite(moment_law({identity, BMinSep{2, 0.5, true}, 0.01}, 2)->log_normaliser()));
}

const std::vector<Component> mixture{
    {0.3, 2, {}}, {0.2, 0, {4.0, 0.5}}, {0.3, 0, {1.0, 1.5}}, {0.1, 0, {}}, {0.1, 0, {2.0, 0.5}}};

// Every weight is below its bound, and the means are what they must be.
void weights() {
    for (const double sigma : {0.4, 1.0}) {
        for (const std::size_t separation : {1, 3}) {
            for (const Scheme& scheme : schemes_of(separation)) {
                const Strategy strategy = strategy_of(20, separation, true);
                const TiltedSampler sampler({strategy, scheme, sigma}, mixture);
                const std::size_t width = 2 + mixture.size(), blocks = 3;
                const auto rows = sampler.samples(7, 0, blocks);
                CHECK(rows.size() == blocks * sampler.block_size() * width);
                for (const double epsilon : {0.0, 1.0, 5.0}) {
                    const double bound = sampler.log_bound(epsilon);
                    double largest = 0;
                    for (std::size_t s = 0; s < rows.size(); s += width) {
                        if (rows[s] <= epsilon) continue;
                        const double y =
                            std::exp(rows[s] - rows[s + 1] - bound) * -std::expm1(epsilon - rows[s]);
                        largest = std::max(largest, y);
                    }
                    CHECK(largest <= 1 + 1e-12);
                }
                // E_R[P/R] = E_R[Q/R] = 1, and 1 for every component.
                const auto n = static_cast<double>(rows.size() / width);
                for (std::size_t k = 0; k <= width; ++k) {
                    if (k == 1) continue;
                    double sum = 0, squares = 0;
                    for (std::size_t s = 0; s < rows.size(); s += width) {
                        const double density = k == width ? 0 : rows[s + k];
                        const double ratio = std::exp(density - rows[s + 1]);
                        sum += ratio;
                        squares += ratio * ratio;
                    }
                    const double deviation = std::sqrt(std::max(0.0, squares / n - sum * sum / n / n) / n);
                    // Densities that R does not bound have no such test.
                    const bool bounded = k == 0 || (k < width && k >= 2);
                    CHECK(!bounded || std::abs(sum / n - 1) < 5 * deviation + 1e-9);
                }
            }
        }
    }
}

// Independent rounds, also behind one in which some copy is certain to take part: each has its own weights.
void certain_rounds() {
    const Strategy strategy(5, 1, {0.9, 12.0, 1.0, 12.0, 0.6});
    const double p = 0.3;
    const auto pair = moment_law({strategy, BMinSep{1, p, true}, 1}, 2);
    constexpr std::size_t draws = 40000;
    std::vector<double> counts(15, 0.0);
    std::vector<Hit> hits;
    for (std::size_t k = 0; k < draws; ++k) {
        Stream stream({6, k}, 0, Purpose::proposal);
        pair->draw(stream, hits);
        for (const Hit& hit : hits)
            counts[3 * hit.iteration + static_cast<std::size_t>(hit.multiplicity)] += 1;
    }
    const auto squares = strategy.squared_norms();
    for (std::size_t i = 0; i < 5; ++i) {
        const double one = 2 * p * (1 - p), two = p * p * std::exp(squares[i]),
                     total = (1 - p) * (1 - p) + one + two;
        for (const auto& [count, weight] :
             {std::pair(counts[3 * i + 1], one), std::pair(counts[3 * i + 2], two)}) {
            const double share = weight / total, n = static_cast<double>(draws);
            CHECK(std::abs(count - n * share) <= 5 * std::sqrt(n * share * (1 - share)));
        }
    }
}

// Three copies: the coefficients of the means are drawn with the weights of triples of patterns.
void triples() {
    const std::size_t steps = 5;
    for (const bool warm : {false, true}) {
        const BMinSep scheme{3, 0.35, warm};
        const Strategy strategy = strategy_of(steps, 3, false);
        const Law law = patterns(scheme, steps);
        std::map<std::vector<double>, double> weights, counts;
        const double total = std::exp(log_moment(law, strategy, 1.1, 3));
        const auto product = [&](const std::vector<double>& a, const std::vector<double>& b) {
            double sum = 0;
            for (std::size_t i = 0; i < steps; ++i) {
                for (std::size_t j = 0; j < steps; ++j) sum += a[i] * b[j] * strategy.inner_product(i, j);
            }
            return sum / 1.1 / 1.1;
        };
        for (const auto& [p, a] : law) {
            for (const auto& [q, b] : law) {
                for (const auto& [r, c] : law) {
                    std::vector<double> mean(steps);
                    for (std::size_t i = 0; i < steps; ++i) mean[i] = a[i] + b[i] + c[i];
                    weights[mean] +=
                        p * q * r * std::exp(product(a, b) + product(a, c) + product(b, c)) / total;
                }
            }
        }
        const auto triple = moment_law({strategy, scheme, 1.1}, 3);
        std::vector<Hit> hits;
        constexpr double draws = 40000;
        for (std::size_t k = 0; k < 40000; ++k) {
            Stream stream({5, k}, 0, Purpose::proposal);
            triple->draw(stream, hits);
            std::vector<double> mean(steps, 0.0);
            for (const Hit& hit : hits) mean[hit.iteration] += hit.multiplicity;
            counts[mean] += 1;
        }
        double statistic = 0, degrees = 0;
        for (const auto& [mean, weight] : weights) {
            if (draws * weight < 5) continue;
            statistic += (counts[mean] - draws * weight) * (counts[mean] - draws * weight) / (draws * weight);
            degrees += 1;
        }
        for (const auto& [mean, count] : counts) CHECK(count == 0 || weights.count(mean) == 1);
        CHECK(degrees > 10 && std::abs(statistic - degrees) < 5 * std::sqrt(2 * degrees));
    }
}

void blocks() {
    for (const Scheme& scheme : schemes_of(4)) {
        const TiltedSampler sampler({strategy_of(300, 3, true), scheme, 0.8}, mixture);
        const double bound = sampler.log_bound(1);
        const std::vector<double> epsilons{1.0, 2.0};
        const auto together = sampler.values(3, epsilons, bound, 0, 3);
        set_threads(1);
        const auto one = sampler.values(3, epsilons, bound, 1, 1);
        set_threads(0);
        const std::size_t size = sampler.block_size();
        for (std::size_t s = 0; s < size; ++s) {
            CHECK(one[s] == together[size + s] && one[size + s] == together[4 * size + s]);
            CHECK(one[size + s] <= one[s] && one[s] <= 1 && one[size + s] >= 0);
        }
        const auto drawn = sampler.draws(3, 1, 1);
        CHECK(drawn.components.size() == sampler.block_size());
        CHECK(drawn.outputs.size() == 300 * sampler.block_size());
    }
}

// Given public counts: the envelope lies above every factor, no value above its bound, E_R[P_r/R] = 1;
// blocks.
void truncated() {
    for (const std::uint64_t most : {3ULL, 20ULL, 2048ULL}) {
        for (const std::uint64_t others : {most, most + 1, 2 * most}) {
            for (const double half_norm : {0.0, 0.01, 0.7, 5.0, 400.0}) {
                const TruncatedBMinSep scheme{{3, 0.1, true}, 3 * most, most};
                const Envelope above = envelope(scheme, others, half_norm, false);
                const Envelope below = envelope(scheme, others, half_norm, true);
                for (double u = -30; u < 40; u += 0.125) {
                    for (const double h : {half_norm, half_norm / 3, 0.0}) {
                        const double one = std::exp(u - h), two = std::exp(2 * u - 4 * h);
                        const double sum = above.never + above.once * one + above.twice * two;
                        const double other = below.never + below.once * one;
                        CHECK(one <= sum * (1 + 1e-14));
                        for (const std::uint64_t r : {most, (most + others) / 2, others}) {
                            const double s = survival_probability(scheme, static_cast<double>(r));
                            CHECK(s * two + 1 - s <= sum * (1 + 1e-14));
                            CHECK(s * one + 1 - s <= other * (1 + 1e-14) && 1 <= other);
                        }
                    }
                }
            }
        }
    }
    for (const bool warm : {false, true}) {
        for (const std::size_t separation : {1, 3, 30}) {
            const TruncatedBMinSep scheme{{separation, 0.1, warm}, 300, separation == 30 ? 8ULL : 25ULL};
            const Strategy strategy = strategy_of(20, std::min<std::size_t>(separation, 3), true);
            for (const Direction direction : {Direction::remove, Direction::add}) {
                const TiltedSampler sampler({strategy, scheme, 0.8}, mixture, 299, direction);
                const std::size_t width = 2 + mixture.size(), blocks = 1;
                const auto rows = sampler.samples(7, 0, blocks);
                const auto n = static_cast<double>(rows.size() / width);
                for (const double epsilon : {0.0, 1.0, 5.0}) {
                    const double bound = sampler.log_bound(epsilon);
                    for (std::size_t s = 0; s < rows.size(); s += width) {
                        if (rows[s] <= epsilon) continue;
                        CHECK(std::exp(rows[s] - rows[s + 1] - bound) * -std::expm1(epsilon - rows[s]) <=
                              1 + 1e-9);
                    }
                }
                for (std::size_t k = 0; k < width; ++k) {
                    if (k == 1) continue;
                    double sum = 0, squares = 0;
                    for (std::size_t s = 0; s < rows.size(); s += width) {
                        const double ratio = std::exp(rows[s + k] - rows[s + 1]);
                        sum += ratio;
                        squares += ratio * ratio;
                    }
                    const double deviation = std::sqrt(std::max(0.0, squares / n - sum * sum / n / n) / n);
                    CHECK(std::abs(sum / n - 1) < 5 * deviation + 1e-9);
                }
                if (separation != 3) continue;
                const double scale = sampler.log_bound(1);
                const auto together = sampler.values(3, std::vector<double>{1.0}, scale, 0, 2);
                set_threads(1);
                const auto one = sampler.values(3, std::vector<double>{1.0}, scale, 1, 1);
                set_threads(0);
                for (std::size_t s = 0; s < one.size(); ++s) {
                    CHECK(one[s] == together[sampler.block_size() + s] && one[s] <= 1 && one[s] >= 0);
                }
            }
        }
    }
    const Strategy strategy = strategy_of(20, 3, true);
    CHECK_THROWS(std::invalid_argument,
                 TiltedSampler({strategy, TruncatedBMinSep{{2, 0.1, true}, 300, 25}, 1}, mixture));
    CHECK_THROWS(std::invalid_argument,
                 TiltedSampler({strategy, BMinSep{3, 0.1, true}, 1}, mixture, 299, Direction::add));
    CHECK_THROWS(std::invalid_argument,
                 TiltedSampler({strategy, TruncatedBMinSep{{3, 0.1, true}, 300, 25}, 1}, {{1, 3, {}}}));
    // What exceeds its bound by more than rounding stays visible.
    CHECK(tilted_value(1, 4, 0, 0) > 1 && tilted_value(1, 40, 40 - 1e-9, 0) == 1);
}

void failures() {
    constexpr double infinity = std::numeric_limits<double>::infinity(),
                     nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(tilted_value(1, nan, 0, 0) == 1 && tilted_value(1, 2, nan, 0) == 1 &&
          tilted_value(1, infinity, 0, 0) == 1 && tilted_value(1, infinity, infinity, 0) == 1);
    CHECK(tilted_value(1, 1, 0, 0) == 0 && tilted_value(1, -infinity, 0, 0) == 0);
    CHECK(std::abs(tilted_value(1, 2, 3, 0) - std::exp(-1.0) * (1 - std::exp(-1.0))) < 1e-15);
    const Strategy strategy = strategy_of(10, 3, true);
    const auto make = [&](const Scheme& scheme, double sigma, std::vector<Component> parts) {
        return TiltedSampler({strategy, scheme, sigma}, std::move(parts)).block_size();
    };
    const BMinSep good{3, 0.1, true};
    CHECK(make(good, 1, mixture) >= group_size);
    for (const double sigma : {0.0, -1.0, infinity, nan}) {
        CHECK_THROWS(std::invalid_argument, make(good, sigma, mixture));
    }
    CHECK_THROWS(std::invalid_argument, make(good, 1, {}));
    CHECK_THROWS(std::invalid_argument, make(good, 1, {{0.5, 2, {}}}));
    CHECK_THROWS(std::invalid_argument, make(good, 1, {{1, 0, {2, 0}}}));  // no bound
    CHECK_THROWS(std::invalid_argument, make(good, 1, {{nan, 2, {}}}));
    CHECK_THROWS(std::invalid_argument, make(good, 1, {{1, 2, {}}, {0, 0, {nan, 0}}}));
    CHECK_THROWS(std::invalid_argument, make(good, 1, {{1, 2, {}}, {0, 0, {1, -1}}}));
    CHECK_THROWS(std::invalid_argument, make(good, 1, {{1, 1, {}}}));
    CHECK_THROWS(std::invalid_argument, make(BMinSep{2, 0.1, true}, 1, mixture));
    CHECK_THROWS(std::invalid_argument, make(MultiAttribution{3, 0.1, 2, true}, 1, mixture));
    // What rounding leaves falls on the last positive weight.
    std::vector<Component> parts(10, {0.1, 2, {}});
    parts.push_back({0, 0, {2, 0}});
    CHECK(chosen(1, parts) == 9);
    CHECK(!has_moment_law({strategy, good, 1}, 1) && has_moment_law({strategy, good, 1}, 2));
    CHECK(!has_moment_law({strategy, good, 1}, 2, 10));
}

}  // namespace

int main() {
    normalisers();
    weights();
    triples();
    certain_rounds();
    blocks();
    truncated();
    failures();
    return check::summary();
}
