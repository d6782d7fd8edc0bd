// What the laws of several copies share, each in a file of its name: couplings of columns, draws from tables.
//
// S_a = P^a Q^{1-a} / M_a: `a` copies of the participations, drawn jointly with weights
// prod_k p_{x^k} prod_{j<k} exp(<Cx^j, Cx^k>/sigma^2). Tables of what is to come, and draws forward in time
// (docs/montecarlo/tilted.md, section 3). Every number is positive and every table entry a sum of products,
// so relative errors stay small.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "hockeystick/strategy.hpp"
#include "montecarlo/participation_chain.hpp"
#include "montecarlo/proposal.hpp"

namespace hockeystick {

// e^{m <c_j, c_i>/sigma^2}, j <= i.
class Couplings {
public:
    explicit Couplings(const MatrixMechanism& mechanism)
        : strategy_(mechanism.strategy),
          scale_(1 / mechanism.noise_multiplier / mechanism.noise_multiplier) {}

    Extended between(std::size_t j, std::size_t i, double factor) const {
        if (factor == 0 || i - j >= strategy_.bands()) return Extended(1.0);
        return Extended::exponential(factor * strategy_.inner_product(j, i) * scale_);
    }
    // Those of column j with columns j + l, l = 0, ..., count - 1 (as far as there are columns).
    void row(std::size_t j, std::size_t count, double factor, std::vector<Extended>& out) {
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
    Strategy strategy_;
    double scale_;
    std::vector<std::pair<double, std::vector<Extended>>> known_;
};

// <c_i, c_k> of any two columns, as Strategy::inner_product adds them up. Those of a Toeplitz matrix are
// kept: they depend on the distance, and on how many rows are left.
class InnerProducts {
public:
    explicit InnerProducts(const Strategy& strategy) : strategy_(strategy) {
        if (!strategy.is_toeplitz()) return;
        const auto c = strategy.column(0);
        for (std::size_t d = 0; d < c.size(); ++d) {
            first_.push_back(sums_.size());
            double sum = 0;
            for (std::size_t k = d; k < c.size(); ++k) sums_.push_back(sum += c[k] * c[k - d]);
        }
    }
    // Numbers kept, or terms added up for each product.
    static double cost(const Strategy& strategy) {
        const auto bands = static_cast<double>(strategy.bands());
        return strategy.is_toeplitz() ? 0.5 * bands * bands : bands;
    }
    double operator()(std::size_t i, std::size_t k) const {
        if (!strategy_.is_toeplitz()) return strategy_.inner_product(i, k);
        const std::size_t d = i < k ? k - i : i - k, later = std::max(i, k), bands = first_.size();
        return d < bands ? sums_[first_[d] + std::min(bands - d, strategy_.steps() - later) - 1] : 0;
    }

private:
    Strategy strategy_;
    std::vector<std::size_t> first_;
    std::vector<double> sums_;
};

// The place of a uniform number among weights: the first whose cumulative sum reaches it.
template <typename Weights>
std::size_t pick(double u, const Weights& weights, std::size_t count) {
    Extended sum;
    for (std::size_t k = 0; k < count; ++k) sum = sum + weights(k);
    const Extended target = Extended(u) * sum;
    sum = Extended();
    for (std::size_t k = 0; k + 1 < count; ++k) {
        sum = sum + weights(k);
        if (!(sum < target)) return k;
    }
    return count - 1;
}

// The last k in [0, most] with !(value(k) < level): values fall with k, value(0) >= level.
template <typename Value>
std::size_t last_above(std::size_t most, const Extended& level, const Value& value) {
    if (!(value(most) < level)) return most;
    std::size_t low = 0, high = most;
    while (high - low > 1) {
        const std::size_t middle = low + (high - low) / 2;
        (value(middle) < level ? high : low) = middle;
    }
    return low;
}

}  // namespace hockeystick
