// Monte Carlo samples of a matrix mechanism, and of its privacy loss, block by block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "hockeystick/likelihood.hpp"
#include "hockeystick/random.hpp"

namespace hockeystick {

// The direction of the divergence: H(P||Q), outputs drawn from P, loss ln P/Q; or H(Q||P), outputs drawn
// from Q, loss ln Q/P. P is the output with the example, Q without (zero-out adjacency). replace_one: P
// against the output with its opposite in the example's place, Q(y) = P(-y); both directions are the same.
enum class Direction { remove, add, replace_one };

// Rows of numbers about each sample. One block of samples depends on the seed and its number only: blocks can
// be computed in any order, on any number of threads, and on different machines.
class BlockSampler {
public:
    virtual ~BlockSampler() = default;

    // Samples per block; a function of the description alone.
    std::size_t block_size() const noexcept { return block_size_; }
    // Numbers in a row of samples().
    std::size_t width() const noexcept { return width_; }
    std::size_t steps() const noexcept { return mechanism_.steps(); }

    // Of blocks first, ..., first + blocks - 1: one row per sample. Throws std::length_error for more of them
    // than any memory holds.
    std::vector<double> samples(std::uint64_t seed, std::uint64_t first, std::size_t blocks) const;

    // The same samples, taken apart: steps() values of each, one sample after the other.
    struct Draws {
        std::vector<double> means;          // how often each column of C is in the output's mean
        std::vector<double> outputs;        // in units of the noise multiplier
        std::vector<double> public_counts;  // truncated scheme only
        std::vector<int> components;        // of a mixture of laws: one value per sample
    };
    Draws draws(std::uint64_t seed, std::uint64_t first, std::size_t blocks) const;

protected:
    BlockSampler(MatrixMechanism mechanism, Direction direction);
    // work: of an iteration beside its sliding products; 1 is that of a chain of participations.
    void set_size(std::size_t width, double work);

    // The rows of the group of samples that begins with `lane`: number k of sample s is rows[k][s]; and what
    // they are made of, if `record` is there, with room for one group.
    virtual void sample_group(const BlockStream& stream, std::size_t lane, double* rows,
                              Draws* record) const = 0;

    // The blocks that are asked for.
    struct Blocks {
        std::uint64_t seed, first;
        std::size_t count;
    };
    // visit(first sample of the group, its rows), for all groups.
    void each_group(const Blocks& blocks, const std::function<void(std::size_t, const Rows&)>& visit) const;
    // value(epsilon, rows, s) for each epsilon: [epsilon][sample].
    using Value = std::function<double(double epsilon, const Rows& rows, std::size_t s)>;
    std::vector<double> values_of(const Blocks& blocks, std::span<const double> epsilons,
                                  const Value& value) const;

    MatrixMechanism mechanism_;
    Direction direction_;
    SlidingProducts products_;

private:
    BlockStream stream(std::uint64_t seed, std::uint64_t block) const noexcept;

    std::size_t block_size_ = 0, width_ = 0;
};

// Where the strategy has more bands than the scheme's separation, the losses are upper bounds on the loss, in
// either direction.
class LossSampler final : public BlockSampler {
public:
    // Throws std::invalid_argument for parameters out of range.
    LossSampler(MatrixMechanism mechanism, Direction direction);

    // One value per sample.
    std::vector<double> losses(std::uint64_t seed, std::uint64_t first, std::size_t blocks) const {
        return samples(seed, first, blocks);
    }

    struct Sums {
        std::vector<double> values, squares;  // [epsilon][block]
        std::size_t not_a_number = 0;         // losses that could not be computed, counted as infinite
    };
    // Sums over each block of (1 - e^{epsilon - loss})_+ and of its square.
    Sums delta_sums(std::uint64_t seed, std::span<const double> epsilons, std::uint64_t first,
                    std::size_t blocks) const;

    // The loss of each of `count` given outputs (steps() values each, in the units of C). public_counts: as
    // many values, for the truncated scheme.
    std::vector<double> evaluate(std::span<const double> outputs,
                                 std::span<const double> public_counts) const;

private:
    class Group;
    class Ratio;

    void evaluate_group(std::span<const double> outputs, std::span<const double> public_counts,
                        double* losses) const;
    void sample_group(const BlockStream& stream, std::size_t lane, double* rows,
                      Draws* record) const override;

    SlidingProducts direct_;
    Mixture mixture_;
    std::optional<Mixture> denominator_;  // truncated scheme, or replace_one: Q is a mixture, too
    double candidate_probability_ = 1;    // see PublicCounts
    BinomialTable counts_table_;
};

// (1 - e^{epsilon - loss})_+ of one sample. A loss that is not a number counts as infinite: 1.
double hockey_stick(double epsilon, double loss) noexcept;

// The share of max_batch places that falls to one of `others` + 1 sampled examples; 1 where all have one.
double survival_probability(const TruncatedBMinSep& scheme, double others) noexcept;

}  // namespace hockeystick
