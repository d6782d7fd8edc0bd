// The law of two copies of a chain of participations.
#include <algorithm>
#include <cmath>
#include <utility>

#include "hockeystick/parallel.hpp"
#include "montecarlo/law_tables.hpp"

namespace hockeystick {
namespace {

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
        cells_.assign((n + b) * b * most_, Extended(1.0));
        const Extended stay(options_.stay);
        if (options_.is_envelope) alone_ = weights_to_come(options_);
        std::vector<std::vector<Extended>> rows(most_ * most_);
        for (std::size_t e = n + b - 1; e-- > 0;) {
            interruption_point();
            if (e < n) {
                const auto choices = options_.at(e);
                Extended value = stay * stay * cell(e + 1, 0, 0);
                for (std::size_t o = 0; o < choices.size(); ++o) {
                    value = value + Extended(2 * options_.stay * choices[o].weight) * cell(e + b, b - 1, o);
                    for (const Choice& other : choices) {
                        value = value +
                                Extended(choices[o].weight * other.weight) *
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
                total_ = total_ + Extended(weight) * (f == g ? cell(f, 0, 0) : cell(g, g - f, 0));
            }
            // Past the last iteration the other does not show.
            total_ = total_ + Extended(2 * options_.start[f] * options_.outside) * alone(f);
            starts_.push_back(total_);
        }
        total_ = total_ + Extended(options_.outside * options_.outside);
    }

    double log_normaliser() const override { return total_.log(); }

    void draw(Stream& stream, std::vector<Hit>& hits) const override {
        hits.clear();
        for (State state = start(stream); state.next < options_.steps;) {
            if (state.next == state.other) {
                both_available(stream, state, hits);
            } else {
                one_available(stream, state, hits);
            }
        }
    }

private:
    // While drawing: one copy is available in `next`, the other from `other` >= next on, after the choice by
    // which it took part in other - separation; beyond steps + separation it never shows again.
    struct State {
        std::size_t next, other, choice;
    };

    State start(Stream& stream) const {
        const std::size_t b = options_.separation;
        const auto found =
            std::lower_bound(starts_.begin(), starts_.end(), Extended(stream.uniform()) * total_);
        if (found == starts_.end()) return {options_.steps, options_.steps, 0};
        const auto f = static_cast<std::size_t>(found - starts_.begin());
        // With one iteration the other copy is there or never.
        if (!(options_.outside > 0 || (b > 1 && options_.start[1] > 0))) return {f, f, 0};
        const std::size_t later = pick(
            stream.uniform(),
            [&](std::size_t j) {
                if (j == b - f) return Extended(2 * options_.outside) * this->alone(f);
                const Extended weight((j == 0 ? 1 : 2) * options_.start[f + j]);
                return weight * (j == 0 ? cell(f, 0, 0) : cell(f + j, j, 0));
            },
            b - f + 1);
        return {f, later == b - f ? options_.steps + b : f + later, 0};
    }

    Extended& cell(std::size_t e, std::size_t d, std::size_t o) {
        return cells_[(e * options_.separation + d) * most_ + o];
    }
    const Extended& cell(std::size_t e, std::size_t d, std::size_t o) const {
        return cells_[(e * options_.separation + d) * most_ + o];
    }
    // One copy that nobody meets any more: 1, unless the weights are those of an envelope.
    Extended alone(std::size_t i) const { return alone_.empty() ? Extended(1.0) : alone_[i]; }

    double multiplicity(std::size_t e, std::size_t o) const {
        if (e < options_.separation) return 0;  // barred since before the first iteration
        const auto choices = options_.at(e - options_.separation);
        return o < choices.size() ? choices[o].multiplicity : 0;
    }

    void fill_row(std::size_t e, std::vector<std::vector<Extended>>& rows) {
        const std::size_t n = options_.steps, b = options_.separation;
        const Extended stay(options_.stay);
        const std::size_t classes = e < b ? 1 : options_.at(e - b).size();
        const std::size_t reach = std::min(b, strategy_.bands());
        for (std::size_t o = 0; o < classes; ++o) {
            const double own = multiplicity(e, o);
            double loaded[2] = {0, 0};
            std::size_t held = 0;  // rows[0], rows[1]: couplings for these products of multiplicities
            for (std::size_t d = 1; d < b && d <= e; ++d) {
                const std::size_t i = e - d;
                if (i >= n) continue;
                Extended value = stay * cell(e, d - 1, o);
                const auto choices = options_.at(i);
                for (std::size_t k = 0; k < choices.size(); ++k) {
                    Extended term = Extended(choices[k].weight) * cell(i + b, b - d, k);
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

    // Both are available: they stay out for a while, then one or both take part.
    void both_available(Stream& stream, State& state, std::vector<Hit>& hits) const {
        const std::size_t b = options_.separation, i = state.next, most = options_.steps - i;
        const std::size_t idle =
            last_above(most, Extended(stream.uniform()) * cell(i, 0, 0),
                       [&](std::size_t j) { return powers_[2 * j] * cell(i + j, 0, 0); });
        const std::size_t at = state.next = i + idle;
        if (idle == most) return;
        const auto choices = options_.at(at);
        const std::size_t count = choices.size();
        const std::size_t k = pick(
            stream.uniform(),
            [&](std::size_t j) {
                if (j < count) {
                    return Extended(2 * options_.stay * choices[j].weight) * cell(at + b, b - 1, j);
                }
                const Choice &first = choices[(j - count) / count], &second = choices[(j - count) % count];
                return Extended(first.weight * second.weight) *
                       couplings_.between(at, at, first.multiplicity * second.multiplicity) *
                       cell(at + b, 0, 0);
            },
            count + count * count);
        if (k < count) {
            add(hits, at, choices[k].multiplicity);
            state = {at + 1, at + b, k};
        } else {
            const std::size_t pair = k - count;
            add(hits, at, choices[pair / count].multiplicity + choices[pair % count].multiplicity);
            state.next = state.other = at + b;
        }
    }

    // One is available: it stays out until the other is, or takes part before.
    void one_available(Stream& stream, State& state, std::vector<Hit>& hits) const {
        const std::size_t n = options_.steps, b = options_.separation, i = state.next, e = state.other;
        // The other one never shows again: this one is alone.
        const bool single = e >= n + b;
        const std::size_t most = single ? n - i : std::min(e, n) - i;
        const auto value = [&](std::size_t j) {
            return powers_[j] * (single ? alone(i + j) : cell(e, e - i - j, state.choice));
        };
        const std::size_t idle = last_above(most, Extended(stream.uniform()) * value(0), value);
        const std::size_t at = state.next = i + idle;
        if (idle == most) return;
        const auto choices = options_.at(at);
        const double own = single ? 0 : multiplicity(e, state.choice);
        const std::size_t k = pick(
            stream.uniform(),
            [&](std::size_t j) {
                const Extended weight(choices[j].weight);
                if (single) return weight;
                return weight * couplings_.between(e < b ? at : e - b, at, own * choices[j].multiplicity) *
                       cell(at + b, at + b - e, j);
            },
            choices.size());
        add(hits, at, choices[k].multiplicity);
        if (single) {
            state.next = at + b;
        } else {
            state = {e, at + b, k};
        }
    }

    static void add(std::vector<Hit>& hits, std::size_t iteration, double multiplicity) {
        if (multiplicity != 0) hits.push_back({iteration, multiplicity});
    }

    Strategy strategy_;
    ChainOptions options_;
    Couplings couplings_;
    std::size_t most_;  // choices of a round, at most
    std::vector<Extended> powers_, cells_, starts_, alone_;
    Extended total_;
};

}  // namespace

std::unique_ptr<MeanLaw> pair_law(const Strategy& strategy, ChainOptions options, double noise_multiplier) {
    return std::make_unique<PairLaw>(strategy, std::move(options), noise_multiplier);
}

}  // namespace hockeystick
