// The law of three copies of a chain with one choice per round (docs/montecarlo/tilted.md, section 3).
#pragma once

#include <algorithm>
#include <array>

#include "hockeystick/parallel.hpp"
#include "montecarlo/law_tables.hpp"

namespace hockeystick {

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
    explicit TripleLaw(const MatrixMechanism& mechanism)
        : chain_(mechanism.scheme, mechanism.steps()),
          couplings_(mechanism),
          powers_(powers(chain_.stay, 3 * chain_.steps)) {
        const std::size_t n = chain_.steps, b = chain_.separation;
        cells_.assign((n + 1) * b * b, Extended(1.0));
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
            for (std::size_t y = x; y < b && !chain_.start[x].is_zero(); ++y) {
                for (std::size_t z = y; z < b && !chain_.start[y].is_zero(); ++z) {
                    const double ways = x == y && y == z ? 1 : x == y || y == z ? 3 : 6;
                    total_ = total_ + Extended(ways) * chain_.start[x] * chain_.start[y] * chain_.start[z] *
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
        const auto found =
            std::lower_bound(starts_.begin(), starts_.end(), Extended(stream.uniform()) * total_);
        const auto index = static_cast<std::size_t>(found - starts_.begin());
        State state = first_[std::min(index, first_.size() - 1)];
        while (state.i < chain_.steps) {
            // While nobody takes part, until the next one is available.
            const auto [i, d, f] = state;
            const std::size_t rest = chain_.steps - i, idle = d > 0 ? 1 : f > 0 ? 2 : 3;
            const std::size_t most = std::min(d > 0 ? d : f > 0 ? f : rest, rest);
            const auto value = [&](std::size_t k) { return powers_[idle * k] * cell(state.after(k)); };
            const std::size_t k = last_above(most, Extended(stream.uniform()) * value(0), value);
            state = state.after(k);
            if (k < most) take_part(stream, state, hits);
        }
    }

private:
    // One copy is available in i, the others in i + d and i + f.
    struct State {
        std::size_t i, d, f;
        // k iterations without participation later, as long as those that wait still do.
        State after(std::size_t k) const { return {i + k, d > 0 ? d - k : 0, f > 0 ? f - k : 0}; }
    };

    void take_part(Stream& stream, State& state, std::vector<Hit>& hits) const {
        const auto [i, d, f] = state;
        const std::size_t b = chain_.separation;
        const auto moves = Terms(*this, i).moves(d, f);
        const std::size_t took = 1 + pick(stream.uniform(), [&](std::size_t j) { return moves[j + 1]; }, 3);
        hits.push_back({i, static_cast<double>(took)});
        if (d > 0) {
            state = {i + d, f - d, b - d};
        } else if (f > 0) {
            state = took == 1 ? State{i + 1, f - 1, b - 1} : State{i + f, b - f, b - f};
        } else {
            state = took == 1   ? State{i + 1, 0, b - 1}
                    : took == 2 ? State{i + 1, b - 1, b - 1}
                                : State{i + b, 0, 0};
        }
    }

    // 1 past the end, wherever that is.
    const Extended& cell(std::size_t i, std::size_t d, std::size_t f) const {
        const std::size_t b = chain_.separation;
        return cells_[(std::min(i, chain_.steps) * b + d) * b + f];
    }

    const Extended& cell(const State& s) const { return cell(s.i, s.d, s.f); }

    // The terms of the recursion in iteration i, by how many take part.
    class Terms {
    public:
        Terms(const TripleLaw& law, std::size_t i) : law_(law), i_(i) {
            const std::size_t b = law.chain_.separation;
            waiting_.assign(b, Extended(1.0));
            for (std::size_t d = 1; d < b; ++d) {
                if (i + d >= b) waiting_[d] = law.couplings_.between(i + d - b, i, 1);
            }
            both_ = law.couplings_.between(i, i, 1);
        }
        std::array<Extended, 4> moves(std::size_t d, std::size_t f) const {
            const std::size_t b = law_.chain_.separation, i = i_;
            const Extended &q = law_.chain_.stay, &w = law_.chain_.leave;
            const auto at = [&](std::size_t j, std::size_t x, std::size_t y) { return law_.cell(j, x, y); };
            if (d > 0) {
                return {q * at(i + 1, d - 1, f - 1), w * waiting_[d] * waiting_[f] * at(i + d, f - d, b - d),
                        Extended(), Extended()};
            }
            if (f > 0) {
                return {q * q * at(i + 1, 0, f - 1),
                        Extended(2.0) * q * w * waiting_[f] * at(i + 1, f - 1, b - 1),
                        w * w * both_ * waiting_[f] * waiting_[f] * at(i + f, b - f, b - f), Extended()};
            }
            return {q * q * q * at(i + 1, 0, 0), Extended(3.0) * q * q * w * at(i + 1, 0, b - 1),
                    Extended(3.0) * q * w * w * both_ * at(i + 1, b - 1, b - 1),
                    w * w * w * both_ * both_ * both_ * at(i + b, 0, 0)};
        }

    private:
        const TripleLaw& law_;
        std::size_t i_;
        std::vector<Extended> waiting_;
        Extended both_;
    };

    ParticipationChain chain_;
    Couplings couplings_;
    std::vector<Extended> powers_, cells_, starts_;
    std::vector<State> first_;
    Extended total_;
};

}  // namespace hockeystick
