#include "inversion/line.hpp"

#include <algorithm>
#include <cmath>

#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// The b for which the angles of P and of 1/Q in the strip 0 <= Im t <= b stay within [0, share pi].
double widest_strip(const MixturePart& part, double share) {
    return share * pi / std::max(part.p.high(), -part.q.low());
}

}  // namespace

ComplexLog log_ratio(const MixtureRatio& ratio, double t, double b) {
    const std::vector<double>&shift = ratio.shifts(), &weight = ratio.weights();
    const double n = static_cast<double>(shift.size());
    const auto exponent = [&](std::size_t i) {
        return Complex(shift[i] * (t - 0.5 * shift[i]), shift[i] * b);
    };
    if (shift.size() == 1) return {exponent(0), 3 * std::abs(exponent(0))};
    double top = 0;
    for (std::size_t i = 0; i < shift.size(); ++i) top = std::max(top, exponent(i).real());
    Complex sum = 0;
    double size = 0;
    if (top < 2) {
        for (std::size_t i = 0; i < shift.size(); ++i) {
            if (shift[i] == 0) continue;
            const Complex x = exponent(i), e = expm1(x);
            sum += weight[i] * e;
            size += weight[i] * ((6 + n) * modulus_of(e) + 4 * modulus_of(x) * (modulus_of(e) + 1));
        }
        // Without a shift of 0 little of 1 may be left.
        if (modulus_of(1.0 + sum) > 0.5) {
            const Complex value = log1p(sum);
            return {value, 8 * modulus_of(value) + (size + 4 * modulus_of(sum)) / modulus_of(1.0 + sum)};
        }
        top = -infinity, sum = 0, size = 0;
        for (std::size_t i = 0; i < shift.size(); ++i) top = std::max(top, exponent(i).real());
    }
    for (std::size_t i = 0; i < shift.size(); ++i) {
        const Complex x = exponent(i);
        const Complex term = std::polar(weight[i] * std::exp(x.real() - top), x.imag());
        sum += term;
        // The largest exponent is off as `top` is.
        size += modulus_of(term) * (n + 4 + (x.real() == top ? 0 : 4 * modulus_of(x) + 4 * std::abs(top)));
    }
    return {top + std::log(sum), 4 * std::abs(top) + 4 + size / modulus_of(sum)};
}

Line best_line(const MixturePart& part, double s, double log_wanted, double most) {
    Line best{0, 0};
    // The best one for a growth like that of a Gaussian, and around it.
    const double spread = part.q.high() - part.q.low();
    const double fitting =
        std::sqrt(0.5 * log_wanted / (part.growth() + 0.25 * std::max(s, 0.0) * spread * spread));
    for (double a = std::min(0.5 * widest_strip(part, 0.95), 1.1 * fitting), n = 0; n < 8; ++n, a *= 0.8) {
        const double growth = integral_growth(part, s, 2 * a);
        if (!(growth < 700) || line_growth(part, s, a) > most) continue;
        const double h = 2 * pi * a / (log_wanted + growth);
        if (h > best.h) best = {a, h};
    }
    return best;
}

LineNodes line_nodes(const MixturePart& part, Line line, double first, std::size_t size) {
    const auto [a, h] = line;
    LineNodes out{a, h, first, {}, {}, {}, {}};
    for (std::size_t i = 0; i < size; ++i) {
        const double t = first + static_cast<double>(i) * h;
        const ComplexLog p = log_ratio(part.p, t, a), q = log_ratio(part.q, t, a);
        out.loss.push_back(p.value - q.value);
        out.log_p.push_back(p.value + Complex(0.5 * (a * a - t * t) - 0.5 * std::log(2 * pi), -a * t));
        out.log_p_slack.push_back(p.slack + 2 * (a * a + t * t) + 4 * a * std::abs(t));
        out.loss_slack.push_back(p.slack + q.slack + modulus_of(out.loss.back()));
    }
    return out;
}

}  // namespace hockeystick
