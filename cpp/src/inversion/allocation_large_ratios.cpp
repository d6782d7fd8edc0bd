#include "inversion/allocation_large_ratios.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "inversion/allocation_light_ratios.hpp"
#include "numerics/constants.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

// speed: the radii of the polydisc in which the first terms are the price, as shares of that of Cauchy's
// bound; how far the other epochs' may reach; the fewest terms.
constexpr double shares[] = {0.95, 0.9, 0.8, 0.7, 0.5};
constexpr double farthest = 0.9, grid = 1.25;
constexpr std::size_t fewest_terms = 4;
// speed: the panels of the first of two large ratios, and what is not divided any more.
constexpr int panels = 96;
constexpr double least_tail = 1e-290;

constexpr std::size_t degree = series_degree;

}  // namespace

LargeRatios::LargeRatios(const Allocation& law, const CutStep& own, const CutStep& other, double epochs,
                         double variance)
    : law_(law), epochs_(epochs), g_(own.end()), p_(own.beyond_p()), q_(own.beyond_q()) {
    const LightSum beside = LightRatios(law, own).sum(law.steps - 1),
                   whole = LightRatios(law, other).sum(law.steps);
    mean_ = beside.mean;
    jump_ = beside.unit;
    others_ = beside.central;
    slack_ = u * (8 + 4 * law.mu * (g_ + law.mu));
    // Another epoch's V beside its mean.
    Series epoch = whole.central;
    double unit = 1;
    for (std::size_t k = 1; k <= degree; ++k) {
        unit *= static_cast<double>(k) * whole.unit / whole.mean;
        epoch[k] = unit * epoch[k];
    }
    log_whole_ = (epochs - 1) * std::log(whole.mean);
    log_kept_ = (law.steps - 1) * std::log1p(-q_) + law.steps * (epochs - 1) * std::log1p(-other.beyond_q());
    rounding_of_kept_ = law.steps * (q_ + epochs * other.beyond_q());
    product_ = product_of(repeated(epoch, epochs - 1, product_of), lognormal(variance));
}

// f(z) = T E[(W/T - gap (1 - z))_+] beside the normal density at g - mu, where W = T gap at g: f'' = e^h/mu,
// h = (g/mu + 1) l - l^2/(2 mu^2), l = -ln(1 - z).
Series LargeRatios::price(double g) const {
    const double mu = law_.mu, front = g / mu + 1, square = 1 / (mu * mu);
    const double root = std::sqrt(2 * pi), tail = root * scaled_normal_tail(g),
                 tilted = root * scaled_normal_tail(g - mu);
    Series out = one(), e = one();  // e: coefficients of e^h
    out[0] = {tilted - tail, 16 * u * (tilted + tail)};
    out[1] = {tail, 16 * u * tail};
    std::array<double, degree + 1> harmonic{};
    double factorial = 1;
    for (std::size_t n = 1; n + 2 <= degree; ++n) {
        harmonic[n] = harmonic[n - 1] + 1 / static_cast<double>(n);
        for (std::size_t j = 1; j <= n; ++j) {
            const double less = square * harmonic[j - 1];
            e[n] += Known{front - less, 64 * u * (front + less)} * e[n - j];
        }
        e[n] = 1 / static_cast<double>(n) * e[n];
    }
    for (std::size_t k = 2; k <= degree; ++k) {
        out[k] = factorial / mu * e[k - 2];
        factorial *= static_cast<double>(k - 1);
    }
    return out;
}

LargeRatios::Strike LargeRatios::strike(double epsilon) const {
    Strike out{};
    out.a = std::exp(epsilon - log_whole_);
    out.gap = out.a - mean_;
    out.log_w = std::log(law_.steps * out.gap);
    out.g = out.log_w / law_.mu + 0.5 * law_.mu;
    if (!(out.gap > 0) || !(out.g > law_.mu)) return out;
    out.price = price(out.g);
    double moved = 1, scale = 1;
    for (std::size_t k = 0; k <= degree; ++k) {
        out.moved[k] = moved;
        out.others[k] = {
            others_[k].value * scale,
            others_[k].error * scale + slack_ * static_cast<double>(k) * std::abs(others_[k].value * scale)};
        moved *= out.a / out.gap / static_cast<double>(k + 1);
        scale *= jump_ / out.gap;
    }
    return out;
}

// Of f E (1 + v) z^k, gap z = V' - mean + a v/(1 + v), what is of degree n in both variables; for its slope
// of f' E z^k.
Known LargeRatios::term(const Strike& strike, std::size_t n, bool slope) const {
    Known sum;
    for (std::size_t k = 0; k + slope <= degree && k <= n; ++k) {
        Known moment;
        for (std::size_t j = 0; j <= k; ++j) {
            const Known& product = product_[j + n - k];
            const double front = binomial((slope ? 0 : 1) - static_cast<int>(j), n - k) * strike.moved[j];
            const Known weight{front, 8 * u * static_cast<double>(j + 1) * std::abs(front)};
            if (front != 0 && largest(product) > 0) moment += weight * (strike.others[k - j] * product);
        }
        sum += strike.price[k + slope] * moment;
    }
    return sum;
}

// All terms from degree n on, n even: Cauchy's bound where W > B decides whether the loss exceeds eps, and
// elsewhere what the price and the first terms are.
double LargeRatios::remainder(const Strike& strike, std::size_t n) const {
    const double mu = law_.mu, a = strike.a, order = static_cast<double>(n), over = a - mean_ - jump_;
    if (!(over > 0)) return infinity;
    const double own = jump_ * std::sqrt(2 * largest(others_[2])), other = std::sqrt(largest(product_[2])),
                 both = own + (mean_ + jump_) * other,
                 reach = 2 * over / (both + std::sqrt(both * both + 4 * own * other * over)),
                 other_radius = std::min(reach * other, farthest) * (1 - 1e-12),
                 strike_left = a / (1 + other_radius) - mean_,
                 radius = std::min(strike_left - jump_, farthest * farthest * strike_left) * (1 - 1e-12);
    // f(y), of all W, beside the density.
    const auto price_at = [&](double y) {
        const double g = std::log(law_.steps * y) / mu + 0.5 * mu;
        return std::exp(0.5 * (strike.g - g) * (strike.g + g - 2 * mu)) * std::sqrt(2 * pi) *
               (scaled_tail(g - mu) - scaled_tail(g));
    };
    // Farther out by s, E (1 + v) f is at most this, which increases; beyond the cut it is of first order in
    // s.
    const double unit = std::exp(0.5 * (strike.g - mu) * (strike.g - mu)) * std::sqrt(2 * pi);
    double elsewhere = 0;
    for (double s = 1;; s *= grid) {
        const double y = a / (1 + other_radius * s * grid) - mean_ - radius * s * grid;
        const bool last = !(y > jump_);
        const double f = last ? unit * (p_ + law_.steps * q_ * (mean_ + radius * s)) : grid * price_at(y);
        elsewhere = std::max(elsewhere, (1 + other_radius * s) * f / std::pow(s, order));
        if (last) break;
    }
    double least = infinity;
    for (const double share : shares) {
        const double r = radius / share, v = other_radius / share;
        if (!(v < 1)) continue;
        const double middle = a / (1 - v * v) - mean_, away = a * v / (1 - v * v) + r;
        if (!(away < middle)) continue;
        const double angle = std::asin(away / middle),
                     size = (1 + v) * std::exp(0.5 * angle * angle / (mu * mu)) * price_at(middle - away) /
                            ((1 - share) * (1 - share));
        least = std::min(least, std::max(size * (order + 1) * std::pow(share, order), size + elsewhere));
    }
    const auto moment = [&](const Known& m, double scale) { return largest(m) / std::pow(scale, order); };
    return 1.01 * least *
           (moment(others_[n], radius / jump_) * std::tgamma(order + 1) +
            (other > 0 ? moment(product_[n], other_radius) : 0));
}

Inverted LargeRatios::at(double epsilon) const {
    const double mu = law_.mu;
    Inverted out{};
    out.value = std::numeric_limits<double>::quiet_NaN();
    const Strike s = strike(epsilon);
    if (!(s.gap > 0) || !(s.g > mu)) return out;
    Known sum;
    double least = infinity, slope = 0;
    for (std::size_t n = 0; n <= degree; ++n) {
        // As few terms as have the least error: later ones may be larger than all before.
        if (n == fewest_terms || (n > fewest_terms && n % 2 == 0 && least < infinity)) {
            const double all = sum.error + remainder(s, n);
            if (n == fewest_terms || all < least) {
                least = all;
                out.value = sum.value;
                out.slope = slope;
            }
        }
        sum += term(s, n, false);
        slope += term(s, n, true).value * s.a / s.gap;
    }
    out.quadrature = least;
    const double g = s.g;
    out.log_scale =
        std::log(epochs_) + log_whole_ + log_kept_ - 0.5 * (g - mu) * (g - mu) - 0.5 * std::log(2 * pi);
    // c, the gap and g are rounded; f falls like a power of the gap.
    out.round_off =
        u * std::abs(out.value) *
        (64 + 8 * (g / mu + 2) * (epochs_ + std::abs(log_whole_)) * (s.a + mean_) / s.gap +
         8 * (g + 1) * (std::abs(s.log_w) / mu + mu) + 4 * std::abs(out.log_scale) + 1e4 * rounding_of_kept_);
    return alone() ? with_pairs(out, std::exp(epsilon)) : out;
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
                 deviation = jump_ * std::sqrt(2 * largest(others_[2]));
    low *= others * std::exp((t - 2) * std::log1p(-q_)) * (1 - 1e-9);
    high = others * (high * (1 + 1e-9) + 0.5 * q_ * q_ * deviation) + pairs * expected;
    lone.value += 0.5 * (low + high) * unit;
    lone.quadrature += 0.5 * (high - low) * 1.01 * unit;
    return lone;
}

}  // namespace hockeystick
