// S_a = P^a Q^{1-a} / M_a: `a` copies of the participations, drawn jointly with weights
// prod_k p_{x^k} prod_{j<k} exp(<Cx^j, Cx^k>/sigma^2). Tables of what is to come, and draws forward in time.
// Every number is positive and every table entry a sum of products, so relative errors stay small.
#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "hockeystick/parallel.hpp"
#include "hockeystick/proposal.hpp"
#include "montecarlo/chain_options.hpp"

namespace hockeystick {
namespace {

// e^{m <c_j, c_i>/sigma^2}, j <= i.
class Couplings {
public:
    Couplings(const Strategy& strategy, double noise_multiplier)
        : strategy_(strategy), scale_(1 / noise_multiplier / noise_multiplier) {}

    Wide between(std::size_t j, std::size_t i, double factor) const {
        if (factor == 0 || i - j >= strategy_.bands()) return Wide(1.0);
        return Wide::exponential(factor * strategy_.inner_product(j, i) * scale_);
    }
    // Those of column j with columns j + l, l = 0, ..., count - 1 (as far as there are columns).
    void row(std::size_t j, std::size_t count, double factor, std::vector<Wide>& out) {
        const std::size_t bands = strategy_.bands(), steps = strategy_.steps();
        count = std::min(count, steps - j);
        // Columns of a Toeplitz matrix that end above the last row all look the same.
        const bool inside = strategy_.is_toeplitz() && j + bands <= steps;
        if (inside) {
            for (const auto& [known, values] : known_) {
                if (known == factor && values.size() >= count) {
                    out.assign(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count));
                    return;
                }
            }
        }
        out.resize(count);
        for (std::size_t l = 0; l < count; ++l) out[l] = between(j, j + l, factor);
        if (inside && known_.size() < 64) known_.emplace_back(factor, out);
    }

private:
    const Strategy& strategy_;
    double scale_;
    std::vector<std::pair<double, std::vector<Wide>>> known_;
};

// The place of a uniform number among weights: the first whose cumulative sum reaches it.
template <typename Weights>
std::size_t pick(double u, const Weights& weights, std::size_t count) {
    Wide sum;
    for (std::size_t k = 0; k < count; ++k) sum = sum + weights(k);
    const Wide target = Wide(u) * sum;
    sum = Wide();
    for (std::size_t k = 0; k + 1 < count; ++k) {
        sum = sum + weights(k);
        if (!(sum < target)) return k;
    }
    return count - 1;
}

// The last k in [0, most] with !(value(k) < level): values fall with k, value(0) >= level.
template <typename Value>
std::size_t last_above(std::size_t most, const Wide& level, const Value& value) {
    if (!(value(most) < level)) return most;
    std::size_t low = 0, high = most;
    while (high - low > 1) {
        const std::size_t middle = low + (high - low) / 2;
        (value(middle) < level ? high : low) = middle;
    }
    return low;
}

// Two copies. Iterations from i on, when
//   both are available in i:                                                  free_(i) = cell(i, 0, .);
//   one is, the other took part in iteration e - b by choice o, and is
//   available again in iteration e = i + d, 1 <= d < b:                       cell(e, d, o).
// With q = stay, w, m the weights and multiplicities of the choices, r(j, i) = <c_j, c_i>/sigma^2:
//   cell(i, 0) = q^2 cell(i+1, 0) + 2 q sum_o w_o cell(i+b, b-1, o) + sum_{o,o'} w_o w_o' e^{m_o m_o' r(i,i)}
//                cell(i+b, 0),
//   cell(e, d, o) = q cell(e, d-1, o) + sum_o' w_o' e^{m_o m_o' r(e-b, i)} cell(i+b, b-d, o'),   i = e - d:
// after that, the first copy is the one that waits, until i + b, when the second is available in e. All are 1
// where i >= n. Rows e < b: barred since before the first iteration (warm start), without a column of C.
class PairLaw final : public MeanLaw {
public:
    PairLaw(const Strategy& strategy, ChainOptions options, double noise_multiplier)
        : strategy_(strategy),
          options_(std::move(options)),
          couplings_(strategy_, noise_multiplier),
          most_(options_.most()),
          powers_(powers(options_.stay, 2 * options_.steps)) {
        const std::size_t n = options_.steps, b = options_.separation;
        cells_.assign((n + b) * b * most_, Wide(1.0));
        const Wide stay(options_.stay);
        if (options_.is_envelope) {
            alone_.assign(n + b, Wide(1.0));
            for (std::size_t i = n; i-- > 0;) {
                alone_[i] = stay * alone_[i + 1];
                for (const Choice& choice : options_.at(i)) {
                    alone_[i] = alone_[i] + Wide(choice.weight) * alone_[i + b];
                }
            }
        }
        std::vector<std::vector<Wide>> rows(most_ * most_);
        for (std::size_t e = n + b - 1; e-- > 0;) {
            interruption_point();
            if (e < n) {
                const auto choices = options_.at(e);
                Wide value = stay * stay * cell(e + 1, 0, 0);
                for (std::size_t o = 0; o < choices.size(); ++o) {
                    value = value + Wide(2 * options_.stay * choices[o].weight) * cell(e + b, b - 1, o);
                    for (const Choice& other : choices) {
                        value = value +
                                Wide(choices[o].weight * other.weight) *
                                    couplings_.between(e, e, choices[o].multiplicity * other.multiplicity) *
                                    cell(e + b, 0, 0);
                    }
                }
                for (std::size_t o = 0; o < most_; ++o) cell(e, 0, o) = value;
            }
            fill_row(e, rows);
        }
        // Warm start: one copy is available first in f, the other in g >= f.
        for (std::size_t f = 0; f < b; ++f) {
            for (std::size_t g = f; g < b && options_.start[f] > 0; ++g) {
                const double weight = (f == g ? 1 : 2) * options_.start[f] * options_.start[g];
                total_ = total_ + Wide(weight) * (f == g ? cell(f, 0, 0) : cell(g, g - f, 0));
            }
            // Past the last iteration the other does not show.
            total_ = total_ + Wide(2 * options_.start[f] * options_.outside) * alone(f);
            starts_.push_back(total_);
        }
        total_ = total_ + Wide(options_.outside * options_.outside);
    }

    double log_normaliser() const override { return total_.log(); }

    void draw(Stream& stream, std::vector<Hit>& hits) const override {
        hits.clear();
        const std::size_t n = options_.steps, b = options_.separation;
        const Wide target = Wide(stream.uniform()) * total_;
        const auto found = std::lower_bound(starts_.begin(), starts_.end(), target);
        if (found == starts_.end()) return;
        auto i = static_cast<std::size_t>(found - starts_.begin());
        // What the other copy waits for: available in e >= i after choice o in e - b.
        std::size_t e = i, o = 0;
        // With one iteration the other copy is there or never.
        if (options_.outside > 0 || (b > 1 && options_.start[1] > 0)) {
            const std::size_t f = i, count = b - f + 1;
            const std::size_t k = pick(
                stream.uniform(),
                [&](std::size_t j) {
                    if (j == b - f) return Wide(2 * options_.outside) * this->alone(f);
                    const Wide weight((j == 0 ? 1 : 2) * options_.start[f + j]);
                    return weight * (j == 0 ? cell(f, 0, 0) : cell(f + j, j, 0));
                },
                count);
            e = k == b - f ? n + b : f + k;
        }
        while (i < n) {
            const double u = stream.uniform();
            if (e == i) {
                const std::size_t k = last_above(n - i, Wide(u) * cell(i, 0, 0), [&](std::size_t j) {
                    return powers_[2 * j] * cell(i + j, 0, 0);
                });
                if (i + k == n) return;
                i += k;
                both_available(stream, i, e, o, hits);
                continue;
            }
            // The other one never shows again (it waits beyond the end): this one is alone.
            const bool single = e >= n + b;
            const std::size_t d = single ? n - i : std::min(e, n) - i;
            const auto value = [&](std::size_t j) {
                return single ? powers_[j] * alone(i + j) : powers_[j] * cell(e, e - i - j, o);
            };
            const std::size_t k = last_above(d, Wide(u) * value(0), value);
            if (k == d) {
                i += d;
                if (i == n) return;
                continue;
            }
            one_available(stream, i + k, single, i, e, o, hits);
        }
    }

private:
    Wide& cell(std::size_t e, std::size_t d, std::size_t o) {
        return cells_[(e * options_.separation + d) * most_ + o];
    }
    const Wide& cell(std::size_t e, std::size_t d, std::size_t o) const {
        return cells_[(e * options_.separation + d) * most_ + o];
    }
    // One copy that nobody meets any more: 1, unless the weights are those of an envelope.
    Wide alone(std::size_t i) const { return alone_.empty() ? Wide(1.0) : alone_[i]; }

    double multiplicity(std::size_t e, std::size_t o) const {
        if (e < options_.separation) return 0;  // barred since before the first iteration
        const auto choices = options_.at(e - options_.separation);
        return o < choices.size() ? choices[o].multiplicity : 0;
    }

    void fill_row(std::size_t e, std::vector<std::vector<Wide>>& rows) {
        const std::size_t n = options_.steps, b = options_.separation;
        const Wide stay(options_.stay);
        const std::size_t classes = e < b ? 1 : options_.at(e - b).size();
        const std::size_t reach = std::min(b, strategy_.bands());
        for (std::size_t o = 0; o < classes; ++o) {
            const double own = multiplicity(e, o);
            double loaded[2] = {0, 0};
            std::size_t held = 0;  // rows[0], rows[1]: couplings for these products of multiplicities
            for (std::size_t d = 1; d < b && d <= e; ++d) {
                const std::size_t i = e - d;
                if (i >= n) continue;
                Wide value = stay * cell(e, d - 1, o);
                const auto choices = options_.at(i);
                for (std::size_t k = 0; k < choices.size(); ++k) {
                    Wide term = Wide(choices[k].weight) * cell(i + b, b - d, k);
                    const double factor = own * choices[k].multiplicity;
                    if (factor != 0 && b - d < reach) {
                        std::size_t which = 0;
                        while (which < held && loaded[which] != factor) ++which;
                        if (which == held && held < 2) {
                            couplings_.row(e - b, reach, factor, rows[which]);
                            loaded[held++] = factor;
                        }
                        term =
                            term * (which < held ? rows[which][b - d] : couplings_.between(e - b, i, factor));
                    }
                    value = value + term;
                }
                cell(e, d, o) = value;
            }
        }
    }

    // Both are available in i, and one or both take part.
    void both_available(Stream& stream, std::size_t& i, std::size_t& e, std::size_t& o,
                        std::vector<Hit>& hits) const {
        const std::size_t b = options_.separation, at = i;
        const auto choices = options_.at(at);
        const std::size_t count = choices.size();
        const std::size_t k = pick(
            stream.uniform(),
            [&](std::size_t j) {
                if (j < count) {
                    return Wide(2 * options_.stay * choices[j].weight) * cell(at + b, b - 1, j);
                }
                const Choice &first = choices[(j - count) / count], &second = choices[(j - count) % count];
                return Wide(first.weight * second.weight) *
                       couplings_.between(at, at, first.multiplicity * second.multiplicity) *
                       cell(at + b, 0, 0);
            },
            count + count * count);
        if (k < count) {
            add(hits, at, choices[k].multiplicity);
            i = at + 1;
            e = at + b;
            o = k;
        } else {
            const std::size_t pair = k - count;
            add(hits, at, choices[pair / count].multiplicity + choices[pair % count].multiplicity);
            i = e = at + b;
        }
    }

    // The available one takes part in iteration `at`; the other waits until e.
    void one_available(Stream& stream, std::size_t at, bool single, std::size_t& i, std::size_t& e,
                       std::size_t& o, std::vector<Hit>& hits) const {
        const std::size_t b = options_.separation;
        const auto choices = options_.at(at);
        const double own = single ? 0 : multiplicity(e, o);
        const std::size_t k = pick(
            stream.uniform(),
            [&](std::size_t j) {
                const Wide weight(choices[j].weight);
                if (single) return weight;
                return weight * couplings_.between(e < b ? at : e - b, at, own * choices[j].multiplicity) *
                       cell(at + b, at + b - e, j);
            },
            choices.size());
        add(hits, at, choices[k].multiplicity);
        if (single) {
            i = at + b;
        } else {
            i = std::exchange(e, at + b);
            o = k;
        }
    }

    static void add(std::vector<Hit>& hits, std::size_t iteration, double multiplicity) {
        if (multiplicity != 0) hits.push_back({iteration, multiplicity});
    }

    Strategy strategy_;
    ChainOptions options_;
    Couplings couplings_;
    std::size_t most_;  // choices of a round, at most
    std::vector<Wide> powers_, cells_, starts_, alone_;
    Wide total_;
};

// Three copies, one choice per round. cell(i, d, f), d <= f: iterations from i on, when one copy is available
// in i, the others in i + d and i + f; those that wait took part in i + d - b and i + f - b (rows before the
// first: warm start, no column). With w the probability to take part, q = 1 - w, e(d) = e^{r(i + d - b, i)}:
//   d > 0:          q cell(i+1, d-1, f-1) + w e(d) e(f) cell(i+d, f-d, b-d),
//   d = 0 < f:      q^2 cell(i+1, 0, f-1) + 2 q w e(f) cell(i+1, f-1, b-1)
//                   + w^2 e^{r(i,i)} e(f)^2 cell(i+f, b-f, b-f),
//   d = f = 0:      q^3 cell(i+1, 0, 0) + 3 q^2 w cell(i+1, 0, b-1) + 3 q w^2 e^{r(i,i)} cell(i+1, b-1, b-1)
//                   + w^3 e^{3 r(i,i)} cell(i+b, 0, 0),
// and 1 where i >= n.
class TripleLaw final : public MeanLaw {
public:
    TripleLaw(const Strategy& strategy, const Scheme& scheme, double noise_multiplier)
        : strategy_(strategy),
          options_(scheme, strategy.steps(), {}, 1.0),
          couplings_(strategy_, noise_multiplier),
          powers_(powers(options_.stay, 3 * options_.steps)) {
        const std::size_t n = options_.steps, b = options_.separation;
        const auto choices = options_.at(0);
        take_ = choices.empty() ? 0 : choices[0].weight;
        cells_.assign((n + 1) * b * b, Wide(1.0));
        for (std::size_t i = n; i-- > 0;) {
            interruption_point();
            const Terms terms(*this, i);
            for (std::size_t f = 0; f < b; ++f) {
                for (std::size_t d = 0; d <= f; ++d) {
                    const auto moves = terms.moves(d, f);
                    cells_[(i * b + d) * b + f] = moves[0] + moves[1] + moves[2] + moves[3];
                }
            }
        }
        for (std::size_t x = 0; x < b; ++x) {
            for (std::size_t y = x; y < b && options_.start[x] > 0; ++y) {
                for (std::size_t z = y; z < b && options_.start[y] > 0; ++z) {
                    const double ways = x == y && y == z ? 1 : x == y || y == z ? 3 : 6;
                    total_ = total_ + Wide(ways * options_.start[x] * options_.start[y] * options_.start[z]) *
                                          cell(x, y - x, z - x);
                    starts_.push_back(total_);
                    first_.push_back({x, y - x, z - x});
                }
            }
        }
    }

    double log_normaliser() const override { return total_.log(); }

    void draw(Stream& stream, std::vector<Hit>& hits) const override {
        hits.clear();
        const std::size_t n = options_.steps, b = options_.separation;
        const auto found = std::lower_bound(starts_.begin(), starts_.end(), Wide(stream.uniform()) * total_);
        const auto index = static_cast<std::size_t>(found - starts_.begin());
        std::size_t i, d, f;
        std::tie(i, d, f) = first_[std::min(index, first_.size() - 1)];
        while (i < n) {
            // While nobody takes part, until the next one is available.
            const std::size_t idle = d > 0 ? 1 : f > 0 ? 2 : 3;
            const std::size_t most = std::min(d > 0 ? d : f > 0 ? f : n - i, n - i);
            const auto value = [&](std::size_t k) {
                return powers_[idle * k] * cell(i + k, d > 0 ? d - k : 0, f > 0 ? f - k : 0);
            };
            const std::size_t k = last_above(most, Wide(stream.uniform()) * value(0), value);
            i += k;
            d -= d > 0 ? k : 0;
            f -= f > 0 ? k : 0;
            if (i >= n) return;
            if (k == most) continue;
            const auto moves = Terms(*this, i).moves(d, f);
            const std::size_t took =
                1 + pick(stream.uniform(), [&](std::size_t j) { return moves[j + 1]; }, 3);
            hits.push_back({i, static_cast<double>(took)});
            if (d > 0) {
                std::tie(i, d, f) = std::tuple(i + d, f - d, b - d);
            } else if (f > 0) {
                std::tie(i, d, f) =
                    took == 1 ? std::tuple(i + 1, f - 1, b - 1) : std::tuple(i + f, b - f, b - f);
            } else {
                std::tie(i, d, f) = took == 1   ? std::tuple(i + 1, std::size_t{0}, b - 1)
                                    : took == 2 ? std::tuple(i + 1, b - 1, b - 1)
                                                : std::tuple(i + b, std::size_t{0}, std::size_t{0});
            }
        }
    }

private:
    // 1 past the end, wherever that is.
    const Wide& cell(std::size_t i, std::size_t d, std::size_t f) const {
        const std::size_t b = options_.separation;
        return cells_[(std::min(i, options_.steps) * b + d) * b + f];
    }

    // The terms of the recursion in iteration i, by how many take part.
    class Terms {
    public:
        Terms(const TripleLaw& law, std::size_t i) : law_(law), i_(i) {
            const std::size_t b = law.options_.separation;
            waiting_.assign(b, Wide(1.0));
            for (std::size_t d = 1; d < b; ++d) {
                if (i + d >= b) waiting_[d] = law.couplings_.between(i + d - b, i, 1);
            }
            both_ = law.couplings_.between(i, i, 1);
        }
        std::array<Wide, 4> moves(std::size_t d, std::size_t f) const {
            const std::size_t b = law_.options_.separation, i = i_;
            const Wide q(law_.options_.stay), w(law_.take_);
            const auto at = [&](std::size_t j, std::size_t x, std::size_t y) { return law_.cell(j, x, y); };
            if (d > 0) {
                return {q * at(i + 1, d - 1, f - 1), w * waiting_[d] * waiting_[f] * at(i + d, f - d, b - d),
                        Wide(), Wide()};
            }
            if (f > 0) {
                return {q * q * at(i + 1, 0, f - 1),
                        Wide(2.0) * q * w * waiting_[f] * at(i + 1, f - 1, b - 1),
                        w * w * both_ * waiting_[f] * waiting_[f] * at(i + f, b - f, b - f), Wide()};
            }
            return {q * q * q * at(i + 1, 0, 0), Wide(3.0) * q * q * w * at(i + 1, 0, b - 1),
                    Wide(3.0) * q * w * w * both_ * at(i + 1, b - 1, b - 1),
                    w * w * w * both_ * both_ * both_ * at(i + b, 0, 0)};
        }

    private:
        const TripleLaw& law_;
        std::size_t i_;
        std::vector<Wide> waiting_;
        Wide both_;
    };

    Strategy strategy_;
    ChainOptions options_;
    Couplings couplings_;
    std::vector<Wide> powers_, cells_, starts_;
    std::vector<std::tuple<std::size_t, std::size_t, std::size_t>> first_;
    double take_ = 0;
    Wide total_;
};

// Separation 1: rounds are independent, and any order will do. k of the `order` copies take part in a round
// with weight binomial(order, k) p^k (1-p)^{order-k} e^{k (k-1)/2 |c_i|^2/sigma^2}.
class IndependentLaw final : public MeanLaw {
public:
    IndependentLaw(const Strategy& strategy, double probability, double noise_multiplier, int order)
        : steps_(strategy.steps()), order_(static_cast<std::size_t>(order)) {
        const double p = probability;
        const auto norms = strategy.squared_norms();
        const bool same = std::all_of(norms.begin(), norms.end(), [&](double x) { return x == norms[0]; });
        const auto successes = powers(p, order_), failures = powers(1 - p, order_);
        for (std::size_t i = 0; i < (same ? 1 : steps_); ++i) {
            const double square = norms[i] / noise_multiplier / noise_multiplier;
            Wide sum, ways(1.0);
            std::vector<Wide> terms;
            for (std::size_t k = 0; k <= order_; ++k) {
                if (k > 0) ways = ways * Wide(static_cast<double>(order_ - k + 1) / static_cast<double>(k));
                const auto hits = static_cast<double>(k);
                terms.push_back(ways * successes[k] * failures[order_ - k] *
                                Wide::exponential(0.5 * hits * (hits - 1) * square));
                sum = sum + terms.back();
            }
            Wide some, total = sum;
            for (std::size_t k = 1; k <= order_; ++k) {
                some = some + terms[k];
                counts_.push_back(some);
            }
            // -ln Pr[nobody takes part].
            const double hit = some.over(total);
            hazards_.push_back(hit < 1 ? -portable_log1p(-hit) : infinite);
            log_moments_.push_back(total.log());
        }
        double hazard = 0;
        for (std::size_t i = 0; i < steps_; ++i) {
            log_normaliser_ += log_moments_[same ? 0 : i];
            if (!same) {
                hazard = std::min(hazard + hazards_[i], infinite);
                cumulative_.push_back(hazard);
            }
        }
    }

    double log_normaliser() const override { return log_normaliser_; }

    void draw(Stream& stream, std::vector<Hit>& hits) const override {
        hits.clear();
        std::size_t i = 0;
        while (i < steps_) {
            const double waiting = -portable_log(stream.uniform());
            if (cumulative_.empty()) {
                const double rounds = hazards_[0] > 0 ? std::floor(waiting / hazards_[0]) : infinite;
                if (!(rounds < static_cast<double>(steps_ - i))) return;
                i += static_cast<std::size_t>(rounds);
            } else {
                // Certain rounds have hazards that hide all others: step by step there.
                const double before = i == 0 ? 0 : cumulative_[i - 1];
                if (before >= infinite / 2) {
                    if (waiting > hazards_[i]) {
                        ++i;
                        continue;
                    }
                } else {
                    const auto found = std::lower_bound(cumulative_.begin() + static_cast<std::ptrdiff_t>(i),
                                                        cumulative_.end(), before + waiting);
                    if (found == cumulative_.end()) return;
                    i = static_cast<std::size_t>(found - cumulative_.begin());
                }
            }
            const Wide* counts = counts_.data() + (cumulative_.empty() ? 0 : i * order_);
            const Wide target = Wide(stream.uniform()) * counts[order_ - 1];
            const auto found = std::lower_bound(counts, counts + order_ - 1, target);
            hits.push_back({i, static_cast<double>(found - counts) + 1});
            ++i;
        }
    }

private:
    static constexpr double infinite = 1e6;  // a hazard: e^-1e6 is no probability

    std::size_t steps_, order_;
    std::vector<Wide> counts_;
    std::vector<double> hazards_, log_moments_, cumulative_;
    double log_normaliser_ = 0;
};

// Balls-in-bins: pairs of places (j, k) with weight e^{<Cx^j, Cx^k>/sigma^2} / bins^2. Places whose columns
// never meet have e^0, and only the others are listed.
class BinsLaw final : public MeanLaw {
public:
    BinsLaw(const Strategy& strategy, const BallsInBins& scheme, double noise_multiplier)
        : steps_(strategy.steps()), bins_(scheme.bins), used_(std::min(scheme.bins, steps_)) {
        const std::size_t bands = strategy.bands();
        for (std::size_t j = 0; j < used_; ++j) {
            std::vector<std::pair<std::size_t, double>> products;
            for (std::size_t i = j; i < steps_; i += bins_) {
                const std::size_t end = std::min(steps_, i + bands);
                for (std::size_t k = i + 1 > bands ? i + 1 - bands : 0; k < end; ++k) {
                    products.emplace_back(k % bins_, strategy.inner_product(i, k));
                }
            }
            std::stable_sort(products.begin(), products.end(),
                             [](const auto& a, const auto& b) { return a.first < b.first; });
            Wide sum(static_cast<double>(bins_));
            Row row;
            for (std::size_t a = 0; a < products.size();) {
                const std::size_t place = products[a].first;
                double product = 0;
                for (; a < products.size() && products[a].first == place; ++a) product += products[a].second;
                row.places.push_back(place);
                row.weights.push_back(Wide::exponential(product / noise_multiplier / noise_multiplier));
            }
            sum = Wide(static_cast<double>(bins_ - row.places.size()));
            for (const Wide& weight : row.weights) sum = sum + weight;
            row.total = sum;
            rows_.push_back(std::move(row));
            total_ = total_ + sum;
            sums_.push_back(total_);
        }
        // Places past the last iteration meet nobody.
        const auto all = static_cast<double>(bins_);
        total_ = total_ + Wide(static_cast<double>(bins_ - used_) * all);
    }

    double log_normaliser() const override {
        return total_.log() - 2 * portable_log(static_cast<double>(bins_));
    }

    void draw(Stream& stream, std::vector<Hit>& hits) const override {
        hits.clear();
        const Wide target = Wide(stream.uniform()) * total_;
        const auto found = std::lower_bound(sums_.begin(), sums_.end(), target);
        const auto first = static_cast<std::size_t>(found - sums_.begin());
        std::size_t second = 0;
        if (first == used_) {
            second = static_cast<std::size_t>(stream.below(bins_));
        } else {
            const Row& row = rows_[first];
            const std::size_t listed = row.places.size();
            const std::size_t k = pick(
                stream.uniform(),
                [&](std::size_t j) {
                    return j < listed ? row.weights[j] : Wide(static_cast<double>(bins_ - listed));
                },
                listed + (bins_ > listed ? 1 : 0));
            if (k < listed) {
                second = row.places[k];
            } else {
                // One of the others, in order.
                second = static_cast<std::size_t>(stream.below(bins_ - listed));
                for (const std::size_t place : row.places) second += place <= second ? 1 : 0;
            }
        }
        for (std::size_t start = 0; start < steps_; start += bins_) {
            const std::size_t low = start + std::min(first, second), high = start + std::max(first, second);
            if (low == high && low < steps_) hits.push_back({low, 2});
            if (low != high && low < steps_) hits.push_back({low, 1});
            if (low != high && high < steps_) hits.push_back({high, 1});
        }
    }

private:
    struct Row {
        std::vector<std::size_t> places;
        std::vector<Wide> weights;
        Wide total;
    };
    std::size_t steps_, bins_, used_;
    std::vector<Row> rows_;
    std::vector<Wide> sums_;
    Wide total_;
};

std::size_t separation(const Scheme& scheme) {
    if (const auto* s = std::get_if<BMinSep>(&scheme)) return s->separation;
    if (const auto* t = std::get_if<TruncatedBMinSep>(&scheme)) return t->base.separation;
    if (const auto* m = std::get_if<MultiAttribution>(&scheme)) return m->separation;
    return std::get<BallsInBins>(scheme).bins;
}

double pair_entries(const Strategy& strategy, const Scheme& scheme) {
    const auto n = static_cast<double>(strategy.steps());
    const double apart = std::min(static_cast<double>(separation(scheme)), n);
    if (std::holds_alternative<BallsInBins>(scheme)) {
        return std::min(apart * apart, n * 2 * static_cast<double>(strategy.bands()));
    }
    const auto* multi = std::get_if<MultiAttribution>(&scheme);
    // Truncated: the envelope has three.
    const double choices = multi ? static_cast<double>(multi->examples)
                           : std::holds_alternative<TruncatedBMinSep>(scheme) ? 3
                                                                              : 2;
    return choices * 2 * n * apart;
}

}  // namespace

bool has_moment_law(const Strategy& strategy, const Scheme& scheme, int order, double entries) {
    if (order < 2 || std::holds_alternative<IndependentBMinSep>(scheme)) return false;
    if (const auto* base = std::get_if<BMinSep>(&scheme); base && base->separation == 1) {
        return strategy.bands() == 1 && order <= 1024 &&
               static_cast<double>(strategy.steps()) * order <= entries;
    }
    if (!std::holds_alternative<BallsInBins>(scheme) &&
        (!is_chain(scheme) || strategy.bands() > separation(scheme))) {
        return false;
    }
    if (order == 3) {
        const auto* base = std::get_if<BMinSep>(&scheme);
        if (base == nullptr || base->separation > strategy.steps()) return false;
        const auto n = static_cast<double>(strategy.steps()), b = static_cast<double>(base->separation);
        return n * b * b <= entries / 8 && b <= 256;
    }
    return order == 2 && pair_entries(strategy, scheme) <= entries;
}

std::unique_ptr<MeanLaw> moment_law(const Strategy& strategy, const Scheme& scheme, double noise_multiplier,
                                    int order, std::span<const Cut> cuts) {
    check(scheme, strategy.steps());
    if (!has_moment_law(strategy, scheme, order)) {
        throw std::invalid_argument("no table of this order for this strategy and sampling scheme");
    }
    if (const auto* bins = std::get_if<BallsInBins>(&scheme)) {
        return std::make_unique<BinsLaw>(strategy, *bins, noise_multiplier);
    }
    if (const auto* base = std::get_if<BMinSep>(&scheme); base && base->separation == 1) {
        return std::make_unique<IndependentLaw>(strategy, base->probability, noise_multiplier, order);
    }
    if (order == 3) return std::make_unique<TripleLaw>(strategy, scheme, noise_multiplier);
    return std::make_unique<PairLaw>(strategy, ChainOptions(scheme, strategy.steps(), cuts, 1.0),
                                     noise_multiplier);
}

std::unique_ptr<MeanLaw> envelope_law(const Strategy& strategy, const BMinSep& scheme,
                                      double noise_multiplier, const Envelope& envelope) {
    check(scheme, strategy.steps());
    if (strategy.bands() > scheme.separation) {
        throw std::invalid_argument("truncated sampling needs bands <= separation");
    }
    return std::make_unique<PairLaw>(strategy, ChainOptions(scheme, strategy.steps(), envelope),
                                     noise_multiplier);
}

std::vector<double> log_moments_of_cuts(const Strategy& strategy, const TruncatedBMinSep& scheme,
                                        double noise_multiplier, std::size_t most) {
    check(scheme, strategy.steps());
    if (strategy.bands() > scheme.base.separation) {
        throw std::invalid_argument("truncated sampling needs bands <= separation");
    }
    const ChainOptions options(scheme, strategy.steps(), {}, 1.0);
    Couplings couplings(strategy, noise_multiplier);
    const std::size_t n = options.steps, b = options.separation, layers = most + 1;
    const double p = scheme.base.probability;
    // The survival of a truncated round is at most max_batch / (max_batch + 1).
    const auto places = static_cast<double>(scheme.max_batch);
    const double survival = std::min(1.0, places / (places + 1) * (1 + 1e-15));
    const Wide stay(options.stay), take(p), kept(p * survival), lost(p * (1 - survival));
    // Rows e, ..., e + b of cell(e, d, class, cuts left); class: how the waiting copy took part.
    enum { whole, twice, nothing, classes };
    constexpr double multiplicities[] = {1, 2, 0};
    const std::size_t row_size = b * classes * layers;
    std::vector<Wide> ring((b + 1) * row_size, Wide(1.0));
    const auto cell = [&](std::size_t e, std::size_t d, std::size_t c, std::size_t k) -> Wide& {
        return ring[(e % (b + 1)) * row_size + (d * classes + c) * layers + k];
    };
    const auto larger = [](const Wide& x, const Wide& y) { return x < y ? y : x; };
    std::vector<std::vector<Wide>> start(layers, std::vector<Wide>(b * b));
    std::vector<Wide> coupled[5];  // by the product of multiplicities
    for (std::size_t e = n + b; e-- > 0;) {
        interruption_point();
        for (std::size_t c = 0; c < classes; ++c) {
            for (std::size_t d = 0; d < b; ++d) {
                for (std::size_t k = 0; k < layers; ++k) cell(e, d, c, k) = Wide(1.0);
            }
        }
        if (e < n) {
            const Wide once = couplings.between(e, e, 1), four = couplings.between(e, e, 4);
            const Wide pairs = kept * kept * four + Wide(2.0) * kept * lost + lost * lost;
            for (std::size_t k = 0; k < layers; ++k) {
                Wide value = stay * stay * cell(e + 1, 0, 0, k) +
                             Wide(2.0) * stay * take * cell(e + b, b - 1, whole, k) +
                             take * take * once * cell(e + b, 0, 0, k);
                if (k > 0) {
                    value = larger(value, stay * stay * cell(e + 1, 0, 0, k - 1) +
                                              Wide(2.0) * stay *
                                                  (kept * cell(e + b, b - 1, twice, k - 1) +
                                                   lost * cell(e + b, b - 1, nothing, k - 1)) +
                                              pairs * cell(e + b, 0, 0, k - 1));
                }
                for (std::size_t c = 0; c < classes; ++c) cell(e, 0, c, k) = value;
            }
        }
        // b = 1: nobody ever waits.
        if (e >= b) {
            for (const std::size_t factor : {1, 2, 4}) {
                if (e - b < n) couplings.row(e - b, b, static_cast<double>(factor), coupled[factor]);
            }
        }
        for (std::size_t d = 1; d < b && d <= e; ++d) {
            const std::size_t i = e - d;
            if (i >= n) continue;
            for (std::size_t c = 0; c < classes; ++c) {
                // Barred since before the first iteration: without a column.
                const double own = e < b ? 0 : multiplicities[c];
                const auto coupling = [&](double factor) {
                    return factor == 0 ? Wide(1.0) : coupled[static_cast<std::size_t>(factor)][b - d];
                };
                for (std::size_t k = 0; k < layers; ++k) {
                    Wide value =
                        stay * cell(e, d - 1, c, k) + take * coupling(own) * cell(i + b, b - d, whole, k);
                    if (k > 0) {
                        value =
                            larger(value, stay * cell(e, d - 1, c, k - 1) +
                                              kept * coupling(2 * own) * cell(i + b, b - d, twice, k - 1) +
                                              lost * cell(i + b, b - d, nothing, k - 1));
                    }
                    cell(e, d, c, k) = value;
                }
            }
        }
        if (e < b) {
            for (std::size_t d = 0; d <= e; ++d) {
                for (std::size_t k = 0; k < layers; ++k) start[k][e * b + d] = cell(e, d, whole, k);
            }
        }
    }
    std::vector<double> result;
    for (std::size_t k = 0; k < layers; ++k) {
        Wide total(options.outside * options.outside);
        for (std::size_t f = 0; f < b; ++f) {
            for (std::size_t g = f; g < b; ++g) {
                const double weight = (f == g ? 1 : 2) * options.start[f] * options.start[g];
                if (weight > 0) total = total + Wide(weight) * start[k][g * b + (g - f)];
            }
            // One copy alone has nobody to meet.
            total = total + Wide(2 * options.start[f] * options.outside);
        }
        result.push_back(total.log());
    }
    return result;
}

}  // namespace hockeystick
