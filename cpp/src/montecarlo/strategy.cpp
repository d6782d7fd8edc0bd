#include "hockeystick/strategy.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "numerics/require.hpp"

namespace hockeystick {

Strategy::Strategy(std::size_t steps, std::size_t bands, std::vector<double> columns)
    : steps_(steps), bands_(bands), columns_(std::move(columns)), toeplitz_(columns_.size() == bands) {
    if (bands < 1 || bands > steps) {
        throw std::invalid_argument("bands must be in [1, steps], got " + std::to_string(bands) + " for " +
                                    std::to_string(steps) + " steps");
    }
    // With one step both layouts are the same.
    if (columns_.size() != bands && (columns_.size() % bands != 0 || columns_.size() / bands != steps)) {
        throw std::invalid_argument("a strategy has bands or steps * bands entries, not " +
                                    std::to_string(columns_.size()));
    }
    require(std::ranges::all_of(columns_, [](double x) { return x >= 0 && std::isfinite(x); }),
            "the entries of a strategy must be finite and >= 0");
    for (std::size_t i = steps - bands + 1; !toeplitz_ && i < steps; ++i) {
        const auto* row = columns_.data() + i * bands;
        require(std::all_of(row + (steps - i), row + bands, [](double x) { return x == 0; }),
                "entries past the last row of a strategy must be 0");
    }
}

Strategy Strategy::over(double divisor) const {
    std::vector<double> scaled = columns_;
    for (double& x : scaled) x /= divisor;
    return {steps_, bands_, std::move(scaled)};  // which refuses what is no number, as 1/0
}

std::span<const double> Strategy::column(std::size_t i) const noexcept {
    return {columns_.data() + (toeplitz_ ? 0 : i * bands_), std::min(bands_, steps_ - i)};
}

std::vector<double> Strategy::squared_norms() const {
    std::vector<double> norms(steps_);
    double sum = 0;
    for (std::size_t i = steps_; i-- > 0;) {
        if (!toeplitz_) {
            norms[i] = inner_product(i, i);
            continue;
        }
        // One column back: one row more, until all bands are there.
        const std::size_t row = steps_ - 1 - i;
        if (row < bands_) sum += columns_[row] * columns_[row];
        norms[i] = sum;
    }
    return norms;
}

double Strategy::inner_product(std::size_t i, std::size_t j) const noexcept {
    if (i > j) std::swap(i, j);
    const auto first = column(i), second = column(j);
    double sum = 0;
    for (std::size_t k = j - i; k < first.size(); ++k) sum += first[k] * second[k - (j - i)];
    return sum;
}

std::vector<double> Strategy::overlap_bounds(std::size_t separation) const {
    std::vector<double> bounds(steps_, 0.0);
    if (separation >= bands_) return bounds;
    // overlap[d] = <c_i, c_{i+d}>. In a Toeplitz matrix each step back adds one product to every one of them.
    std::vector<double> overlap(bands_, 0.0), best(bands_ + separation + 1, 0.0);
    for (std::size_t i = steps_; i-- > 0;) {
        const std::size_t length = column(i).size();  // j - i < length for columns j that overlap
        for (std::size_t d = separation; d < length; ++d) {
            if (toeplitz_) {
                const std::size_t last = steps_ - 1 - i;  // row steps - 1 in column i
                // A column longer than `bands` rows from here has its whole overlap already.
                if (last < bands_) overlap[d] += columns_[last - d] * columns_[last];
            } else {
                overlap[d] = inner_product(i, i + d);
            }
        }
        // The best admissible set among the columns from i + d on.
        std::fill(best.begin(), best.end(), 0.0);
        for (std::size_t d = length; d-- > separation;) {
            best[d] = std::max(best[d + 1], overlap[d] + best[d + separation]);
        }
        bounds[i] = separation < length ? best[separation] : 0.0;
    }
    return bounds;
}

}  // namespace hockeystick
