// Sums that must not lose digits nor overflow.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// Sum with an error of a few units however many terms (Neumaier 1974).
class CompensatedSum {
public:
    void add(double value) {
        const double total = sum_ + value;
        correction_ += std::abs(sum_) >= std::abs(value) ? (sum_ - total) + value : (value - total) + sum_;
        sum_ = total;
    }
    double value() const { return sum_ + correction_; }

private:
    double sum_ = 0, correction_ = 0;
};

// ln of the sum of e^{exponent(i)}, i < n; the largest term is taken out, as it may overflow and all may
// vanish.
template <class Exponent>
double log_sum_exp(std::size_t n, Exponent&& exponent) {
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, exponent(i));
    for (std::size_t i = 0; i < n; ++i) sum += std::exp(exponent(i) - largest);
    return largest + std::log(sum);
}

}  // namespace hockeystick
