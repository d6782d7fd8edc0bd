#include "pairs/mixture.hpp"

#include <algorithm>
#include <cmath>

#include "numerics/constants.hpp"

namespace hockeystick {

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

double MixturePart::missed(const MixtureRatio& side) const noexcept {
    double sum = 0;
    for (std::size_t i = 0; i < side.shifts().size(); ++i)
        sum += side.weights()[i] * window.missed(side.shifts()[i]);
    return sum;
}

double line_growth(const MixturePart& part, double s, double b) {
    const double spread = part.q.high() - part.q.low();
    double out = 0.5 * b * b * part.growth();
    if (spread > 0 && s > 0) out -= s * std::log(std::cos(0.5 * b * spread));
    return out;
}

// Where P is N(0), and all of it counts, M(s) >= 1; and |Q| is at least its weight at 0 as long as no other
// shift turns by more than a right angle.
double integral_growth(const MixturePart& part, double s, double b) {
    const double growth = line_growth(part, s, b);
    const MixtureRatio& q = part.q;
    if (!(s > 0) || q.plain() || !part.p.plain() || part.p.low() != 0 || !part.window.whole()) return growth;
    if (!(b * std::max(q.high(), -q.low()) < 0.5 * pi)) return growth;
    double at_zero = 0;
    for (std::size_t i = 0; i < q.shifts().size(); ++i)
        if (q.shifts()[i] == 0) at_zero += q.weights()[i];
    return std::min(growth, 0.5 * b * b - s * std::log(at_zero) * (1 + 1e-12));
}

MixtureNodes mixture_nodes(const MixturePart& part, double h, double first, std::size_t size) {
    MixtureNodes nodes;
    nodes.h = h;
    nodes.first = first;
    nodes.last = first + static_cast<double>(size - 1) * h;
    nodes.loss.resize(size);
    nodes.log_p.resize(size);
    nodes.loss_slack.resize(size);
    nodes.log_p_slack.resize(size);
    const double constant = std::log(h) - 0.5 * std::log(2 * pi);
    for (std::size_t i = 0; i < size; ++i) {
        const double t = first + static_cast<double>(i) * h;
        const MixtureRatio::Log p = part.p.log(t), q = part.q.log(t);
        nodes.loss[i] = p.value - q.value;
        nodes.loss_slack[i] = p.slack + q.slack + std::abs(nodes.loss[i]);
        const double kept = part.window.log(t);
        nodes.log_p[i] = p.value - 0.5 * t * t + constant + kept;
        nodes.log_p_slack[i] =
            p.slack + 2 * std::abs(p.value) + 1.5 * t * t + 5 * std::abs(constant) + 16 - 4 * kept;
    }
    return nodes;
}

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
    // Beyond an end the window falls at least like a Gaussian. Proof: this far inside, in widths, it falls by
    // less than 1e-17 of itself, which moves no maximum by the 1e-6 added below.
    const Window& window = part.window;
    const double strength = window.strength();
    constexpr double inside = 9;
    if (window.to()) {
        out.high = std::min(out.high, (out.high + strength * window.top()) / (1 + strength));
        out.low = std::min(out.low, window.top() - inside * window.width());
    }
    if (window.from()) {
        out.low = std::max(out.low, (out.low + strength * window.bottom()) / (1 + strength));
        out.high = std::max(out.high, window.bottom() + inside * window.width());
    }
    out.low = std::min(out.low, out.high) - 1e-6;
    out.high += 1e-6;
    return out;
}

TiltedPoint tilted_point(const MixturePart& part, double s, double t) {
    const double p = part.p.log(t).value, q = part.q.log(t).value;
    return {t,
            (1 + s) * p - s * q - 0.5 * t * t,
            part.window.log(t),
            p - q,
            part.p.mean(t, p),
            part.q.mean(t, q)};
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
