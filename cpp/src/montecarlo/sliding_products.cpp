// The sliding products of outputs with the columns of a strategy: as sums, or by Fourier transforms of blocks
// (docs/montecarlo/estimates.md, "The kernel").
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "hockeystick/likelihood.hpp"
#include "montecarlo/kernels.hpp"
#include "numerics/polynomials.hpp"

namespace hockeystick {
namespace {

// e^{-2 pi i k/n}, from the same polynomials on every machine.
std::pair<double, double> unit_root(std::size_t k, std::size_t n) {
    const std::size_t eighths = 8 * k / n;  // k < n
    // The angle's distance from the nearest multiple of a quarter turn, exact: n is a power of two.
    const std::size_t quarters = (eighths + 1) / 2 % 4;
    const double turn =
        static_cast<double>(k) / static_cast<double>(n) - 0.25 * static_cast<double>((eighths + 1) / 2);
    const auto at = [](const auto& coefficients, double x) {
        double sum = 0;
        for (std::size_t j = std::size(coefficients); j-- > 0;) sum = sum * x + coefficients[j];
        return sum;
    };
    const double square = turn * turn;
    const double sine = turn * at(polynomial::sine, square), cosine = at(polynomial::cosine, square);
    switch (quarters) {
        case 0:
            return {cosine, -sine};
        case 1:
            return {-sine, -cosine};
        case 2:
            return {-cosine, sine};
        default:
            return {sine, cosine};
    }
}

constexpr std::size_t shortest_transform = 16, longest_block = 4096;  // speed

// Outputs of a transform of n rows, and its multiplications and additions per sample.
std::size_t transform_outputs(std::size_t n, std::size_t bands) { return (n - bands + 1) / 2 * 2; }

double transform_operations(std::size_t n) {
    const auto size = static_cast<double>(n);
    return (4.25 * std::log2(size) + 3) * size;
}

// The shortest transform with so many outputs, of n, n/4, n/16, ... rows, whose roots of unity are among
// those of n rows.
std::size_t shortened_transform(std::size_t n, std::size_t bands, std::size_t outputs) {
    while (n / 4 >= std::max(shortest_transform, bands) && transform_outputs(n / 4, bands) >= outputs) n /= 4;
    return n;
}

// Operations for all outputs: the last block is as short as it can be.
double total_operations(std::size_t n, std::size_t bands, std::size_t steps) {
    const std::size_t outputs = transform_outputs(n, bands), rest = steps % outputs;
    return static_cast<double>(steps / outputs) * transform_operations(n) +
           (rest == 0 ? 0 : transform_operations(shortened_transform(n, bands, rest)));
}

}  // namespace

SlidingProducts::SlidingProducts(const MatrixMechanism& mechanism, Products method)
    : scaled_((check_noise_multiplier(mechanism.noise_multiplier),
               mechanism.strategy.over(mechanism.noise_multiplier))),
      steps_(mechanism.steps()),
      bands_(scaled_.bands()) {
    // A sum: blocks about as long as the bands, so that little is read twice; few enough for the cache.
    const std::size_t even_bands = bands_ + bands_ % 2;  // >= bands - 1
    outputs_ = std::max<std::size_t>(128, std::min(even_bands, longest_block));
    outputs_ = std::min(outputs_, steps_ + steps_ % 2);
    rows_ = outputs_ + (even_bands - (bands_ % 2 != 0 ? 2 : 0));
    if (bands_ == 1) rows_ = outputs_;
    if (method == Products::transform && scaled_.is_toeplitz()) plan_transforms();
}

// Where a transform is cheaper than the sum: the cheapest length, its roots of unity and the filter's
// spectrum.
void SlidingProducts::plan_transforms() {
    std::size_t best = 0;
    double cheapest = static_cast<double>(2 * bands_ * steps_);
    for (std::size_t n = std::bit_ceil(std::max(shortest_transform, bands_ + 1));; n *= 2) {
        const double cost = transform_outputs(n, bands_) > 0 ? total_operations(n, bands_, steps_) : cheapest;
        if (cost < cheapest) {
            cheapest = cost;
            best = n;
        }
        if (n >= std::max(longest_block / 2, 4 * std::bit_ceil(bands_)) || n >= 2 * (steps_ + bands_)) break;
    }
    if (best == 0) return;
    rows_ = best;
    outputs_ = transform_outputs(best, bands_);
    for (std::size_t size = best; size > 4; size /= 4) {
        for (std::size_t k = 0; k < size / 4; ++k) {
            for (std::size_t j = 1; j < 4; ++j) {
                const auto [cosine, sine] = unit_root(j * k, size);
                twiddles_.insert(twiddles_.end(), {cosine, sine});
            }
        }
    }
    transforms_.push_back(transform(best));
    const std::size_t rest = steps_ % outputs_;
    const std::size_t last = shortened_transform(best, bands_, rest);
    if (rest > 0 && last < best) transforms_.push_back(transform(last));
}

SlidingProducts::Transform SlidingProducts::transform(std::size_t size) const {
    Transform result{size, twiddles_.size(), {}};
    for (std::size_t level = size; level > 4; level /= 4) result.twiddles -= level / 4 * 6;
    Rows work(size);
    for (std::size_t k = 0; k < bands_; ++k) work[k][0] = column(0)[k];
    kernels::table().transform(size, twiddles_.data() + result.twiddles, work[0]);
    // The conjugate correlates instead of convolving; 1/size belongs to the transform back, and is exact.
    for (std::size_t k = 0; k < size; ++k) {
        result.spectrum.push_back(work[k][0] / static_cast<double>(size));
        result.spectrum.push_back(-work[k][group_size / 2] / static_cast<double>(size));
    }
    return result;
}

double SlidingProducts::operations() const noexcept {
    return uses_transform() ? total_operations(rows_, bands_, steps_) / static_cast<double>(steps_)
                            : static_cast<double>(2 * bands_);
}

void SlidingProducts::compute(const Rows& in, std::size_t first, Rows& out) const {
    const std::size_t count = std::min(outputs_, steps_ - first);
    const auto& kernel = kernels::table();
    if (uses_transform()) {
        // The last block may be a shorter one.
        const Transform& plan =
            count <= transform_outputs(transforms_.back().size, bands_) ? transforms_.back() : transforms_[0];
        kernel.convolve(in[0], plan.size, twiddles_.data() + plan.twiddles, plan.spectrum.data(), out[0]);
    } else {
        const std::size_t stride = scaled_.is_toeplitz() ? 0 : bands_;
        kernel.correlate(in[0], column(first).data(), stride, bands_, count, out[0]);
    }
}

}  // namespace hockeystick
