#include "inversion/large_ratios.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "numerics/constants.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

constexpr double pi = std::numbers::pi;

// speed: how much less than the gap the cut must be, where only a guess is known else; the radii of Cauchy's
// bound that are tried, as shares of what is left up to 1; and the fewest terms.
constexpr double largest_cut = 0.95;
constexpr double radii[] = {0.15, 0.3, 0.5, 0.7, 0.85};
constexpr std::size_t fewest_terms = 4;
// speed: the panels of the first of two large ratios, and what is not divided any more.
constexpr int panels = 96;
constexpr double least_tail = 1e-290;

using Series = LargeRatios::Series;
constexpr std::size_t degree = LargeRatios::degree;

// Of moments, whose first coefficient is 1.
Series operator*(const Series& a, const Series& b) {
    Series out;
    out.value[0] = 1;
    for (std::size_t n = 1; n <= degree; ++n) {
        double size = 0;
        for (std::size_t i = 0; i <= n; ++i) {
            const std::size_t j = n - i;
            out.value[n] += a.value[i] * b.value[j];
            out.error[n] +=
                std::abs(a.value[i]) * b.error[j] + a.error[i] * (std::abs(b.value[j]) + b.error[j]);
            size += std::abs(a.value[i] * b.value[j]);
        }
        out.error[n] = (out.error[n] + u * static_cast<double>(n + 2) * size) * (1 + 64 * u);
    }
    return out;
}

Series power(Series base, double exponent) {
    Series out;
    out.value[0] = 1;
    for (; exponent >= 1; exponent = std::floor(0.5 * exponent)) {
        if (std::fmod(exponent, 2) == 1) out = out * base;
        base = base * base;
    }
    return out;
}

// The normal tail beyond x, beside e^{-x^2/2}.
double scaled_tail(double x) {
    return x >= 0 ? scaled_normal_tail(x) : gaussian_tail(x) * std::exp(0.5 * x * x);
}

}  // namespace

// E[(W/B)^k; W <= B] = e^{-g^2/2} scaled_tail(k mu - g), where W = B at g.
LargeRatios::LargeRatios(const Allocation& law, const CutStep& cut)
    : law_(law),
      g_(cut.end()),
      jump_((1 + cut.largest()) / law.steps),
      p_(cut.beyond_p()),
      q_(cut.beyond_q()) {
    const double mu = law.mu, g = g_, density = std::exp(-0.5 * g * g);
    const double mean = density * scaled_tail(mu - g) / (1 - q_);
    const double rounding = u * (32 + 8 * g * g + 4 * static_cast<double>(degree) * mu);
    Series ratio, shift;  // moments of W/B and powers of -mean, over k!
    ratio.value[0] = shift.value[0] = 1;
    double over = 1, power_of_mean = 1;
    for (std::size_t k = 1; k <= degree; ++k) {
        const double n = static_cast<double>(k);
        over /= n;
        power_of_mean *= -mean / n;
        ratio.value[k] = density * scaled_tail(n * mu - g) / (1 - q_) * over;
        ratio.error[k] = (rounding + 2 * n * u) * ratio.value[k];
        shift.value[k] = power_of_mean;
        shift.error[k] = 2 * n * u * std::abs(power_of_mean);
    }
    Series central = ratio * shift;
    // The first is 0, but for the mean's rounding and that of its multiples.
    central.value[1] = 0;
    central.error[1] = (rounding + 32 * u) * mean;
    mean_ = (law.steps - 1) * mean * jump_;
    others_ = power(central, law.steps - 1);
    slack_ = u * (8 + 4 * mu * (g + mu));
}

// E z^k/k! of z = (V' - mean)/gap.
Series LargeRatios::moments(double gap) const {
    Series out = others_;
    double scale = 1;
    for (std::size_t k = 1; k <= degree; ++k) {
        scale *= jump_ / gap;
        out.value[k] *= scale;
        out.error[k] = out.error[k] * scale + slack_ * static_cast<double>(k) * std::abs(out.value[k]);
    }
    return out;
}

// f(z) = T E[(W/T - gap (1 - z))_+] beside the normal density at g - mu, where W = T gap at g: f'' = e^h/mu,
// h = (g/mu + 1) l - l^2/(2 mu^2), l = -ln(1 - z).
Series LargeRatios::price(double g) const {
    const double mu = law_.mu, front = g / mu + 1, square = 1 / (mu * mu);
    const double root = std::sqrt(2 * pi), tail = root * scaled_normal_tail(g),
                 tilted = root * scaled_normal_tail(g - mu);
    Series out;
    out.value[0] = tilted - tail;
    out.error[0] = 16 * u * (tilted + tail);
    out.value[1] = tail;
    out.error[1] = 16 * u * tail;
    // Coefficients of e^h, and what they would be if no term had another sign. The n-th is a sum of n
    // products of its forerunners, so that roundings add up like n^2/2.
    std::array<double, degree + 1> e{1}, size{1}, harmonic{};
    for (std::size_t n = 1; n + 2 <= degree; ++n) {
        harmonic[n] = harmonic[n - 1] + 1 / static_cast<double>(n);
        for (std::size_t j = 1; j <= n; ++j) {
            const double less = square * harmonic[j - 1];
            e[n] += (front - less) * e[n - j] / static_cast<double>(n);
            size[n] += (front + less) * size[n - j] / static_cast<double>(n);
        }
    }
    for (std::size_t k = 2; k <= degree; ++k) {
        const double n = static_cast<double>(k), unit = 1 / (mu * n * (n - 1));
        out.value[k] = e[k - 2] * unit;
        out.error[k] = u * (16 + 8 * n + n * n) * size[k - 2] * unit;
    }
    return out;
}

// All terms from z^n on, n even: Cauchy's bound where W > B decides whether V' + W/T exceeds c, and elsewhere
// what f and the first terms are.
double LargeRatios::remainder(double g, double gap, const Series& price, const Series& moments,
                              std::size_t n) const {
    const double mu = law_.mu, order = static_cast<double>(n), inside = 1 - jump_ / gap * (1 + 1e-12);
    double cauchy = infinity;
    for (const double share : radii) {
        const double r = inside + share * (1 - inside), front = g / mu + 1, angle = std::asin(r),
                     l = std::min(-std::log1p(-r), front * mu * mu),
                     log = front * l + (angle * angle - l * l) / (2 * mu * mu);
        cauchy = std::min(cauchy, std::exp(log - (order - 2) * std::log(r)) /
                                      (mu * order * (order - 1) * (1 - inside / r)));
    }
    const double unit = std::exp(0.5 * (g - mu) * (g - mu)) * std::sqrt(2 * pi);
    double elsewhere = price.value[0] + price.error[0] + law_.steps * q_ * gap * unit * inside, z = 1;
    for (std::size_t k = 0; k < n; ++k, z *= inside)
        elsewhere += (std::abs(price.value[k]) + price.error[k]) * z;
    elsewhere /= std::pow(inside, order);
    return 1.01 * std::max(cauchy, elsewhere) * (moments.value[n] + moments.error[n]) *
           std::tgamma(order + 1);
}

Inverted LargeRatios::at(double epsilon) const {
    const double mu = law_.mu, c = std::exp(epsilon), gap = c - mean_, log_w = std::log(law_.steps * gap),
                 g = log_w / mu + 0.5 * mu;
    Inverted out{};
    out.value = std::numeric_limits<double>::quiet_NaN();
    if (!(gap > 0) || !(g > mu)) return out;
    const Series f = price(g), z = moments(gap);
    double sum = 0, slope = 0, error = 0, least = infinity, factorial = 1;
    for (std::size_t k = 0; k <= degree; ++k) {
        // As few terms as have the least error.
        if (k == fewest_terms || (k > fewest_terms && k % 2 == 0 && least < infinity)) {
            const double all = jump_ < largest_cut * gap ? error + remainder(g, gap, f, z, k) : infinity;
            if (k == fewest_terms || all < least) {
                least = all;
                out.value = sum;
                out.slope = slope * c / gap;
            }
        }
        if (k > 0) factorial *= static_cast<double>(k);
        const double front = f.value[k] * factorial;
        sum += front * z.value[k];
        error += std::abs(front) * (z.error[k] + 64 * u * std::abs(z.value[k])) +
                 f.error[k] * factorial * (std::abs(z.value[k]) + z.error[k]);
        if (k > 0) slope += front * z.value[k - 1];
    }
    out.quadrature = least;
    out.log_scale = (law_.steps - 1) * std::log1p(-q_) - 0.5 * (g - mu) * (g - mu) - 0.5 * std::log(2 * pi);
    // c, the gap and g are rounded; f falls like a power of the gap.
    out.round_off = u * std::abs(out.value) *
                    (64 + 8 * (g / mu + 2) * (c + mean_) / gap + 8 * (g + 1) * (std::abs(log_w) / mu + mu) +
                     4 * std::abs(out.log_scale) + 1e4 * law_.steps * q_);
    return with_pairs(out, c);
}

// E[(W/T - y)_+; W > B] of one step.
double LargeRatios::one_of(double y) const {
    const double t = law_.steps, g = y > jump_ ? std::log(t * y) / law_.mu + 0.5 * law_.mu : g_;
    return gaussian_tail(g - law_.mu) / t - y * gaussian_tail(g);
}

// Two beyond the cut. Given the first, the second has a price that is convex and increases in the first: on
// each panel it lies between that at the mean and the chord. It is convex in the others' sum, too, and
// increases by no more than that. Three or more have a P-mass of at most the pairs' times their expected
// number.
Inverted LargeRatios::with_pairs(Inverted lone, double c) const {
    const double t = law_.steps, mu = law_.mu, y = c - mean_ * (t - 2) / (t - 1), h = (mu + 8) / panels;
    double low = 0, high = 0, g = g_, w = jump_, price = one_of(y - w);
    for (int i = 0;; ++i) {
        const double next = g + h;
        const bool last = i == panels || gaussian_tail(next) < least_tail;
        const double w_next = std::exp(mu * (next - 0.5 * mu)) / t, price_next = one_of(y - w_next),
                     q = gaussian_tail(g) - (last ? 0 : gaussian_tail(next)),
                     p = (gaussian_tail(g - mu) - (last ? 0 : gaussian_tail(next - mu))) / t,
                     slope = last ? q_ : (price_next - price) / (w_next - w);
        low += q * one_of(y - p / q);
        high += q * price + slope * (p - q * w);
        if (last) break;
        g = next, w = w_next, price = price_next;
    }
    const double expected = p_ + (t - 1) * q_, pairs = (t - 1) * q_ * (p_ + 0.5 * (t - 2) * q_),
                 others = 0.5 * t * (t - 1), unit = std::exp(-lone.log_scale),
                 deviation = jump_ * std::sqrt(2 * (others_.value[2] + others_.error[2]));
    low *= others * std::exp((t - 2) * std::log1p(-q_)) * (1 - 1e-9);
    high = others * (high * (1 + 1e-9) + 0.5 * q_ * q_ * deviation) + pairs * expected;
    lone.value += 0.5 * (low + high) * unit;
    lone.quadrature += 0.5 * (high - low) * 1.01 * unit;
    return lone;
}

}  // namespace hockeystick
