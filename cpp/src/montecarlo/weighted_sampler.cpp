#include "montecarlo/weighted_sampler.hpp"

#include "hockeystick/parallel.hpp"
#include "montecarlo/sample_blocks.hpp"

namespace hockeystick {

void WeightedSampler::set_size(std::size_t width, double sample_work, bool swapped) {
    width_ = width;
    swapped_ = swapped;
    block_size_ = samples_per_block(sample_work);
}

void WeightedSampler::each_group(const Blocks& blocks,
                                 const std::function<void(std::size_t, const Rows&)>& visit) const {
    parallel_for(blocks.count, [&](std::size_t block) {
        Rows rows(width_);
        for (std::size_t lane = 0; lane < block_size_; lane += group_size) {
            evaluate({blocks.seed, blocks.first + block, swapped_}, lane, rows[0]);
            visit(block * block_size_ + lane, rows);
        }
    });
}

std::vector<double> WeightedSampler::samples(std::uint64_t seed, std::uint64_t first,
                                             std::size_t blocks) const {
    std::vector<double> out(blocks * block_size_ * width_);
    each_group({seed, first, blocks}, [&](std::size_t sample, const Rows& rows) {
        rows.by_sample(width_, out.data() + sample * width_, width_);
    });
    return out;
}

std::vector<double> WeightedSampler::values_of(const Blocks& blocks, std::span<const double> epsilons,
                                               const Value& value) const {
    const std::size_t count = blocks.count * block_size_;
    std::vector<double> out(epsilons.size() * count);
    each_group(blocks, [&](std::size_t sample, const Rows& rows) {
        for (std::size_t e = 0; e < epsilons.size(); ++e) {
            for (std::size_t s = 0; s < group_size; ++s) {
                out[e * count + sample + s] = value(epsilons[e], rows, s);
            }
        }
    });
    return out;
}

}  // namespace hockeystick
