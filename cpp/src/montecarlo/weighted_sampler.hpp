// What importance samplers of delta have in common: rows of numbers about each sample, block by block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "hockeystick/likelihood.hpp"
#include "hockeystick/random.hpp"

namespace hockeystick {

// A block depends on the seed and its number only.
class WeightedSampler {
public:
    virtual ~WeightedSampler() = default;

    // Samples per block; a function of the description alone.
    std::size_t block_size() const noexcept { return block_size_; }
    // Numbers in a row of samples().
    std::size_t width() const noexcept { return width_; }

    // One row per sample.
    std::vector<double> samples(std::uint64_t seed, std::uint64_t first, std::size_t blocks) const;

protected:
    // sample_work: in iterations; see samples_per_block. swapped: the direction Q against P.
    void set_size(std::size_t width, double sample_work, bool swapped);

    // The rows of the group of samples that begins with `lane`: number k of sample s is rows[k][s].
    virtual void evaluate(const BlockStream& stream, std::size_t lane, double* rows) const = 0;

    // The blocks that are asked for.
    struct Blocks {
        std::uint64_t seed, first;
        std::size_t count;
    };
    // value(epsilon, rows, s) for each epsilon: [epsilon][sample].
    using Value = std::function<double(double epsilon, const Rows& rows, std::size_t s)>;
    std::vector<double> values_of(const Blocks& blocks, std::span<const double> epsilons,
                                  const Value& value) const;

private:
    // visit(first sample of the group, its rows), for all groups.
    void each_group(const Blocks& blocks, const std::function<void(std::size_t, const Rows&)>& visit) const;

    std::size_t block_size_ = 0, width_ = 0;
    bool swapped_ = false;
};

}  // namespace hockeystick
