#include "hockeystick/mixture.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hockeystick/special.hpp"

namespace hockeystick {
namespace {
constexpr double infinity = std::numeric_limits<double>::infinity();

double log_normal_tail(double z) {
    if (z > 0) return std::log(scaled_normal_tail(z)) - 0.5 * z * z;
    return std::log1p(-scaled_normal_tail(-z) * std::exp(-0.5 * z * z));
}

}  // namespace

MixtureRatio::MixtureRatio(const std::vector<double>& shifts, const std::vector<double>& weights) {
    // Weights that sum to 1 up to rounding are made to.
    double total = 0;
    for (double weight : weights) total += weight;
    for (std::size_t i = 0; i < shifts.size(); ++i) {
        if (!(weights[i] > 0)) continue;
        shift_.push_back(shifts[i]);
        weight_.push_back(weights[i] / total);
        log_weight_.push_back(std::log(weight_.back()));
    }
    low_ = *std::min_element(shift_.begin(), shift_.end());
    high_ = *std::max_element(shift_.begin(), shift_.end());
}

MixtureRatio::Log MixtureRatio::log(double t) const noexcept {
    if (plain()) {
        const double x = shift_[0] * (t - 0.5 * shift_[0]);
        return {x, 3 * std::abs(x)};
    }
    // As 1 + sum weight (e^x - 1) nothing is lost where the ratio is near 1.
    const double n = static_cast<double>(shift_.size());
    double excess = 0, size = 0, largest = -infinity;
    for (std::size_t i = 0; i < shift_.size(); ++i) {
        if (shift_[i] == 0) continue;
        const double x = shift_[i] * (t - 0.5 * shift_[i]);
        if (x > 600) {
            excess = infinity;
            break;
        }
        const double e = std::expm1(x);
        excess += weight_[i] * e;
        size += weight_[i] * ((4 + n) * std::abs(e) + 3 * std::abs(x) * (e + 1));
    }
    if (excess > -0.5 && excess < infinity) {
        const double value = std::log1p(excess);
        return {value, 2 * std::abs(value) + size / (1 + excess)};
    }
    for (std::size_t i = 0; i < shift_.size(); ++i)
        largest = std::max(largest, log_weight_[i] + shift_[i] * (t - 0.5 * shift_[i]));
    double sum = 0;
    size = 0;
    for (std::size_t i = 0; i < shift_.size(); ++i) {
        const double x = shift_[i] * (t - 0.5 * shift_[i]);
        const double term = std::exp(log_weight_[i] + x - largest);
        sum += term;
        size += term * (4 * std::abs(x) + 4 * std::abs(log_weight_[i]) + 2 * std::abs(largest) + 3);
    }
    const double value = largest + std::log(sum);
    return {value, size / sum + n + 2 * std::abs(value) + 2 * std::abs(largest)};
}

double MixtureRatio::mean(double t, double log_ratio) const noexcept {
    if (plain()) return shift_[0];
    double sum = 0;
    for (std::size_t i = 0; i < shift_.size(); ++i)
        if (shift_[i] != 0)
            sum += shift_[i] * std::exp(log_weight_[i] + shift_[i] * (t - 0.5 * shift_[i]) - log_ratio);
    return sum;
}

double MixtureRatio::tail(double x, double blur) const noexcept {
    const double deviation = std::sqrt(1 + blur * blur);
    double sum = 0;
    for (std::size_t i = 0; i < shift_.size(); ++i) {
        const double z = (x - shift_[i]) / deviation;
        sum += weight_[i] * std::exp(log_normal_tail(z));
    }
    return sum;
}

double MixturePart::log_kept(double t) const noexcept {
    return cut < infinity ? log_normal_tail((t - cut) / cut_width) : 0;
}

double MixturePart::dropped(const MixtureRatio& side) const noexcept {
    return cut < infinity ? side.tail(cut, cut_width) : 0;
}

double MixturePart::growth() const noexcept { return cut < infinity ? 1 + 1 / (cut_width * cut_width) : 1; }

Centres centres(const MixturePart& part, double s) {
    if (part.p.plain() && s > 0 && !part.q.plain()) {
        // ln g is concave with second derivative <= -1: the mode is the one centre.
        double low = (1 + s) * part.p.low() - s * part.q.high(),
               high = (1 + s) * part.p.low() - s * part.q.low();
        for (int i = 0; i < 200 && high - low > 1e-3; ++i) {
            const double t = 0.5 * (low + high);
            const double slope = (1 + s) * part.p.low() - s * part.q.mean(t, part.q.log(t).value) - t;
            (slope > 0 ? low : high) = t;
        }
        return {low, high};
    }
    const double a = -s * part.q.low(), b = -s * part.q.high();
    Centres out{(1 + s) * part.p.low() + std::min(a, b), (1 + s) * part.p.high() + std::max(a, b)};
    if (part.cut < infinity) {
        // ln Phi((cut - t)/w) falls at least like (cut - t)/w^2; far below the cut it hardly falls at all.
        const double strength = 1 / (MixturePart::cut_width * MixturePart::cut_width);
        out.high = std::min(out.high, (out.high + strength * part.cut) / (1 + strength));
        out.low = std::min(out.low, out.high) - 1e-6;
    }
    return out;
}

TiltedPoint tilted_point(const MixturePart& part, double s, double t) {
    const double p = part.p.log(t).value, q = part.q.log(t).value;
    return {
        t, (1 + s) * p - s * q - 0.5 * t * t, part.log_kept(t), p - q, part.p.mean(t, p), part.q.mean(t, q)};
}

double down(const TiltedPoint& left, const TiltedPoint& right, double s) {
    return -right.t + (1 + s) * left.p_mean - s * right.q_mean;
}

double up(const TiltedPoint& left, const TiltedPoint& right, double s) {
    return -left.t + (1 + s) * right.p_mean - s * left.q_mean;
}

double log_least(const TiltedPoint& left, const TiltedPoint& right, double s) {
    const double width = right.t - left.t;
    return std::max(left.log_g + std::min(0.0, down(left, right, s)) * width,
                    right.log_g - std::max(0.0, up(left, right, s)) * width) +
           right.log_kept;
}

double log_most(const TiltedPoint& left, const TiltedPoint& right, double s) {
    const double width = right.t - left.t;
    return std::min(left.log_g + std::max(0.0, up(left, right, s)) * width,
                    right.log_g + std::max(0.0, -down(left, right, s)) * width) +
           left.log_kept;
}

}  // namespace hockeystick
