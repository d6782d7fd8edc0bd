// How samples are grouped: blocks of some milliseconds of work (docs/montecarlo/estimates.md, "What is
// drawn").
#include <algorithm>
#include <bit>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <utility>

#include "hockeystick/arithmetic.hpp"
#include "hockeystick/estimate.hpp"
#include "hockeystick/parallel.hpp"

namespace hockeystick {
namespace {

// How many numbers there are to be room for: a product that wraps would make it too small.
std::size_t product(std::initializer_list<std::size_t> sizes) {
    std::size_t all = 1;
    for (const std::size_t size : sizes) {
        if (size > 0 && all > std::numeric_limits<std::size_t>::max() / sizeof(double) / size)
            throw std::length_error("more samples than any memory holds");
        all *= size;
    }
    return all;
}

}  // namespace

BlockSampler::BlockSampler(MatrixMechanism mechanism, Direction direction)
    : mechanism_((check(mechanism.scheme, mechanism.steps()), std::move(mechanism))),
      direction_(direction),
      products_(mechanism_, Products::transform) {}

void BlockSampler::set_size(std::size_t width, double work) {
    constexpr double block_work = 0x1p21;        // speed
    constexpr std::size_t largest_block = 4096;  // speed
    const double sample_work = static_cast<double>(steps()) * (work + products_.operations() / 64);
    const auto wanted = static_cast<std::size_t>(block_work / sample_work);
    block_size_ = std::clamp(std::bit_floor(std::max<std::size_t>(wanted, 1)), group_size, largest_block);
    width_ = width;
}

BlockStream BlockSampler::stream(std::uint64_t seed, std::uint64_t block) const noexcept {
    return {seed, block, direction_ == Direction::add};
}

void BlockSampler::each_group(const Blocks& blocks,
                              const std::function<void(std::size_t, const Rows&)>& visit) const {
    parallel_for(blocks.count, [&](std::size_t block) {
        Rows rows(width_);
        for (std::size_t lane = 0; lane < block_size_; lane += group_size) {
            sample_group(stream(blocks.seed, blocks.first + block), lane, rows[0], nullptr);
            visit(block * block_size_ + lane, rows);
        }
    });
}

std::vector<double> BlockSampler::samples(std::uint64_t seed, std::uint64_t first, std::size_t blocks) const {
    std::vector<double> out(product({blocks, block_size_, width_}));
    each_group({seed, first, blocks}, [&](std::size_t sample, const Rows& rows) {
        rows.by_sample(width_, out.data() + sample * width_, width_);
    });
    return out;
}

std::vector<double> BlockSampler::values_of(const Blocks& blocks, std::span<const double> epsilons,
                                            const Value& value) const {
    const std::size_t count = product({blocks.count, block_size_});
    std::vector<double> out(product({epsilons.size(), count}));
    each_group(blocks, [&](std::size_t sample, const Rows& rows) {
        for (std::size_t e = 0; e < epsilons.size(); ++e) {
            for (std::size_t s = 0; s < group_size; ++s) {
                out[e * count + sample + s] = value(epsilons[e], rows, s);
            }
        }
    });
    return out;
}

BlockSampler::Draws BlockSampler::draws(std::uint64_t seed, std::uint64_t first, std::size_t blocks) const {
    const StandardArithmetic standard;
    const bool counted = std::holds_alternative<TruncatedBMinSep>(mechanism_.scheme);
    const std::vector<double> nothing(group_size * steps(), 0.0);
    Draws all;
    const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    Rows rows(width_);
    const std::size_t count = product({blocks, block_size_});
    for (std::size_t sample = 0; sample < count; sample += group_size) {
        Draws group{nothing, nothing, counted ? nothing : std::vector<double>(),
                    std::vector<int>(group_size)};
        sample_group(stream(seed, first + sample / block_size_), sample % block_size_, rows[0], &group);
        append(all.means, group.means);
        append(all.outputs, group.outputs);
        append(all.public_counts, group.public_counts);
        append(all.components, group.components);
    }
    return all;
}

}  // namespace hockeystick
