// The law of two copies of a chain of participations (docs/montecarlo/tilted.md, section 3).
#pragma once

#include <algorithm>
#include <utility>

#include "hockeystick/parallel.hpp"
#include "montecarlo/law_tables.hpp"

namespace hockeystick {

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
    PairLaw(const MatrixMechanism& mechanism, ParticipationChain chain)
        : chain_(std::move(chain)),
          couplings_(mechanism),
          reach_(std::min(chain_.separation, mechanism.strategy.bands())),
          classes_(std::max<std::size_t>(chain_.choices.size(), 1)),
          powers_(powers(chain_.stay, 2 * chain_.steps)) {
        const std::size_t n = chain_.steps, b = chain_.separation;
        const Extended &stay = chain_.stay, two(2.0);
        cells_.assign((n + b) * b * classes_, Extended(1.0));
        if (chain_.is_envelope) alone_ = weights_to_come(chain_);
        std::vector<std::vector<Extended>> rows(classes_ * classes_);
        for (std::size_t e = n + b - 1; e-- > 0;) {
            interruption_point();
            if (e < n) {
                const auto& choices = chain_.choices;
                Extended value = stay * stay * cell(e + 1, 0, 0);
                for (std::size_t o = 0; o < choices.size(); ++o) {
                    value = value + two * stay * choices[o].weight * cell(e + b, b - 1, o);
                    for (const Choice& other : choices) {
                        value = value +
                                choices[o].weight * other.weight *
                                    couplings_.between(e, e, choices[o].multiplicity * other.multiplicity) *
                                    cell(e + b, 0, 0);
                    }
                }
                for (std::size_t o = 0; o < classes_; ++o) cell(e, 0, o) = value;
            }
            fill_row(e, rows);
        }
        // Warm start: one copy is available first in f, the other in g >= f.
        for (std::size_t f = 0; f < b; ++f) {
            for (std::size_t g = f; g < b; ++g) {
                const Extended ways(f == g ? 1.0 : 2.0);
                total_ = total_ + ways * chain_.start[f] * chain_.start[g] * cell(g, g - f, 0);
            }
            // Past the last iteration the other does not show.
            total_ = total_ + two * chain_.start[f] * chain_.outside * alone(f);
            starts_.push_back(total_);
        }
        total_ = total_ + chain_.outside * chain_.outside;
    }

    double log_normaliser() const override { return total_.log(); }

    void draw(Stream& stream, std::vector<Hit>& hits) const override {
        hits.clear();
        for (State state = start(stream); state.next < chain_.steps;) {
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
        const std::size_t b = chain_.separation, n = chain_.steps;
        const auto found =
            std::lower_bound(starts_.begin(), starts_.end(), Extended(stream.uniform()) * total_);
        if (found == starts_.end()) return {n, n, 0};
        const auto f = static_cast<std::size_t>(found - starts_.begin());
        // With one iteration the other copy is there or never.
        if (chain_.outside.is_zero() && (b == 1 || chain_.start[1].is_zero())) return {f, f, 0};
        const std::size_t later = pick(
            stream.uniform(),
            [&](std::size_t j) {
                if (j == b - f) return Extended(2.0) * chain_.outside * this->alone(f);
                return Extended(j == 0 ? 1.0 : 2.0) * chain_.start[f + j] * cell(f + j, j, 0);
            },
            b - f + 1);
        return {f, later == b - f ? n + b : f + later, 0};
    }

    Extended& cell(std::size_t e, std::size_t d, std::size_t o) {
        return cells_[(e * chain_.separation + d) * classes_ + o];
    }
    const Extended& cell(std::size_t e, std::size_t d, std::size_t o) const {
        return cells_[(e * chain_.separation + d) * classes_ + o];
    }
    // One copy that nobody meets any more: 1, unless the weights are those of an envelope.
    Extended alone(std::size_t i) const { return alone_.empty() ? Extended(1.0) : alone_[i]; }

    double multiplicity(std::size_t e, std::size_t o) const {
        if (e < chain_.separation) return 0;  // barred since before the first iteration
        return o < chain_.choices.size() ? chain_.choices[o].multiplicity : 0;
    }

    void fill_row(std::size_t e, std::vector<std::vector<Extended>>& rows) {
        const std::size_t n = chain_.steps, b = chain_.separation;
        const auto& choices = chain_.choices;
        const std::size_t classes = e < b ? 1 : choices.size();
        for (std::size_t o = 0; o < classes; ++o) {
            const double own = multiplicity(e, o);
            double loaded[2] = {0, 0};
            std::size_t held = 0;  // rows[0], rows[1]: couplings for these products of multiplicities
            for (std::size_t d = 1; d < b && d <= e; ++d) {
                const std::size_t i = e - d;
                if (i >= n) continue;
                Extended value = chain_.stay * cell(e, d - 1, o);
                for (std::size_t k = 0; k < choices.size(); ++k) {
                    Extended term = choices[k].weight * cell(i + b, b - d, k);
                    const double factor = own * choices[k].multiplicity;
                    if (factor != 0 && b - d < reach_) {
                        std::size_t which = 0;
                        while (which < held && loaded[which] != factor) ++which;
                        if (which == held && held < 2) {
                            couplings_.row(e - b, reach_, factor, rows[which]);
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
        const std::size_t b = chain_.separation, i = state.next, most = chain_.steps - i;
        const std::size_t idle =
            last_above(most, Extended(stream.uniform()) * cell(i, 0, 0),
                       [&](std::size_t j) { return powers_[2 * j] * cell(i + j, 0, 0); });
        const std::size_t at = state.next = i + idle;
        if (idle == most) return;
        const auto& choices = chain_.choices;
        const std::size_t count = choices.size();
        const std::size_t k = pick(
            stream.uniform(),
            [&](std::size_t j) {
                if (j < count) {
                    return Extended(2.0) * chain_.stay * choices[j].weight * cell(at + b, b - 1, j);
                }
                const Choice &first = choices[(j - count) / count], &second = choices[(j - count) % count];
                return first.weight * second.weight *
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
        const std::size_t n = chain_.steps, b = chain_.separation, i = state.next, e = state.other;
        // The other one never shows again: this one is alone.
        const bool single = e >= n + b;
        const std::size_t most = single ? n - i : std::min(e, n) - i;
        const auto value = [&](std::size_t j) {
            return powers_[j] * (single ? alone(i + j) : cell(e, e - i - j, state.choice));
        };
        const std::size_t idle = last_above(most, Extended(stream.uniform()) * value(0), value);
        const std::size_t at = state.next = i + idle;
        if (idle == most) return;
        const auto& choices = chain_.choices;
        const double own = single ? 0 : multiplicity(e, state.choice);
        const std::size_t k = pick(
            stream.uniform(),
            [&](std::size_t j) {
                if (single) return choices[j].weight;
                return choices[j].weight *
                       couplings_.between(e < b ? at : e - b, at, own * choices[j].multiplicity) *
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

    ParticipationChain chain_;
    Couplings couplings_;
    std::size_t reach_;    // columns further apart do not meet
    std::size_t classes_;  // of how the copy that waits took part
    std::vector<Extended> powers_, cells_, starts_, alone_;
    Extended total_;
};

}  // namespace hockeystick
