// Monte Carlo samples of the privacy loss of a matrix mechanism, block by block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hockeystick/likelihood.hpp"
#include "hockeystick/schemes.hpp"
#include "hockeystick/strategy.hpp"

namespace hockeystick {

// The direction of the divergence: H(P||Q), outputs drawn from P, loss ln P/Q; or H(Q||P), outputs drawn
// from Q, loss ln Q/P. P is the output with the example, Q without (zero-out adjacency). replace_one: P
// against the output with its opposite in the example's place, Q(y) = P(-y); both directions are the same.
enum class Direction { remove, add, replace_one };

// One block of samples depends on the seed and its number only: blocks can be computed in any order, on any
// number of threads, and on different machines. Where the strategy has more bands than the scheme's
// separation, the losses are upper bounds on the loss, in either direction.
class LossSampler {
public:
    // Throws std::invalid_argument for parameters out of range.
    LossSampler(Strategy strategy, Scheme scheme, double noise_multiplier, Direction direction);

    // Samples per block; a function of the description alone.
    std::size_t block_size() const noexcept { return block_size_; }
    std::size_t steps() const noexcept { return strategy_.steps(); }

    // Losses of blocks first, ..., first + blocks - 1: blocks * block_size() values.
    std::vector<double> losses(std::uint64_t seed, std::uint64_t first, std::size_t blocks) const;

    struct Sums {
        std::vector<double> values, squares;  // [epsilon][block]
        std::size_t not_a_number = 0;         // losses that could not be computed, counted as infinite
    };
    // Sums over each block of (1 - e^{epsilon - loss})_+ and of its square.
    Sums delta_sums(std::uint64_t seed, std::span<const double> epsilons, std::uint64_t first,
                    std::size_t blocks) const;

    // The same draws, taken apart: each block_size() * steps() values per block, sample by sample.
    struct Draws {
        std::vector<double> participations;  // x (P) or y (Q) of the mixture the output is drawn from
        std::vector<double> outputs;         // in units of the noise multiplier
        std::vector<double> public_counts;   // truncated scheme only
    };
    Draws draws(std::uint64_t seed, std::uint64_t first, std::size_t blocks) const;

    // The loss of each of `count` given outputs (steps() values each, in the units of C). public_counts: as
    // many values, for the truncated scheme.
    std::vector<double> evaluate(std::span<const double> outputs,
                                 std::span<const double> public_counts) const;

private:
    struct Buffers;
    class Group;
    class Ratio;

    void evaluate_group(std::span<const double> outputs, std::span<const double> public_counts,
                        double* losses) const;
    void block_losses(const BlockStream& stream, double* out) const;

    Strategy strategy_;
    Scheme scheme_;
    double noise_multiplier_;
    Direction direction_;
    SlidingProducts sampling_, direct_;
    Mixture mixture_;
    std::optional<Mixture> denominator_;  // truncated scheme, or replace_one: Q is a mixture, too
    double candidate_probability_ = 1;    // see PublicCounts
    BinomialTable counts_table_;
    std::size_t block_size_;
};

// (1 - e^{epsilon - loss})_+ of one sample. A loss that is not a number counts as infinite: 1.
double hockey_stick(double epsilon, double loss) noexcept;

// The share of max_batch places that falls to one of `others` + 1 sampled examples; 1 where all have one.
double survival_probability(const TruncatedBMinSep& scheme, double others) noexcept;

}  // namespace hockeystick
