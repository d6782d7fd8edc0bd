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

// speed: the radii of the polydisc in which the first terms are the price, as shares of that of Cauchy's
// bound; how far the other epochs' may reach; the fewest terms.
constexpr double shares[] = {0.95, 0.9, 0.8, 0.7, 0.5};
constexpr double farthest = 0.9, grid = 1.25;
constexpr std::size_t fewest_terms = 4;
// speed: the panels of the first of two large ratios, and what is not divided any more.
constexpr int panels = 96;
constexpr double least_tail = 1e-290;

using Known = LargeRatios::Known;
using Series = LargeRatios::Series;
constexpr std::size_t degree = LargeRatios::degree;

double largest(const Known& a) { return std::abs(a.value) + a.error; }

Known operator*(const Known& a, const Known& b) {
    const double value = a.value * b.value;
    return {value,
            (std::abs(a.value) * b.error + a.error * largest(b)) * (1 + 8 * u) + 2 * u * std::abs(value)};
}

Known operator*(double exact, const Known& a) {
    return {exact * a.value, std::abs(exact) * (a.error * (1 + 4 * u) + 2 * u * std::abs(a.value))};
}

Known& operator+=(Known& a, const Known& b) {
    a.value += b.value;
    a.error = (a.error + b.error + 2 * u * std::abs(a.value)) * (1 + 4 * u);
    return a;
}

// What has no error.
Series one() {
    Series out{};
    out[0] = {1, 0};
    return out;
}

// Binomial coefficients, exact.
constexpr auto choose = [] {
    std::array<std::array<double, degree + 1>, degree + 1> out{};
    for (std::size_t n = 0; n <= degree; ++n)
        for (std::size_t k = 0; k <= n; ++k)
            out[n][k] = k == 0 || k == n ? 1 : out[n - 1][k - 1] + out[n - 1][k];
    return out;
}();

// Of (1 + v)^m, m an integer.
double binomial(int m, std::size_t l) {
    if (m >= 0) return l <= static_cast<std::size_t>(m) ? choose[static_cast<std::size_t>(m)][l] : 0;
    return (l % 2 == 0 ? 1 : -1) * choose[static_cast<std::size_t>(-m) + l - 1][l];
}

// Of a sum: E (a + b)^k/k!.
Series sum_of(const Series& a, const Series& b) {
    Series out = one();
    for (std::size_t n = 1; n <= degree; ++n)
        for (std::size_t i = 0; i <= n; ++i) out[n] += a[i] * b[n - i];
    return out;
}

// Of a product: E (a + b + a b)^k, where 1 + a and 1 + b are independent.
Series product_of(const Series& a, const Series& b) {
    Series out = one();
    for (std::size_t n = 1; n <= degree; ++n)
        for (std::size_t j = 0; j <= n; ++j) {
            Known front;
            for (std::size_t i = 0; i <= j; ++i) front += choose[j][i] * a[n - j + i];
            out[n] += choose[n][j] * (front * b[j]);
        }
    return out;
}

Series repeated(Series base, double times, Series (*join)(const Series&, const Series&)) {
    Series out = one();
    for (; times >= 1; times = std::floor(0.5 * times)) {
        if (std::fmod(times, 2) == 1) out = join(out, base);
        if (times >= 2) base = join(base, base);
    }
    return out;
}

// E (X - 1)^k of a lognormal X of mean 1 whose logarithm has this variance v: m_k' = k (k-1)/2 (m_{k-2} + 2
// m_{k-1} + m_k) in v, by Ito's formula, a power series of positive terms; m_k/v^{k/2} is summed.
Series lognormal(double variance) {
    Series out = one();
    if (!(variance > 0)) return out;
    using Terms = std::array<double, degree + 1>;
    // Each of its terms is at most that over its number times the largest before: later ones fall by half.
    const double root = std::sqrt(variance), growth = 0.5 * degree * degree * (1 + root) * (1 + root);
    Terms term{1}, sum{1};
    for (double count = 1; count <= 2 * growth + 1; ++count) {
        Terms next{};
        for (std::size_t k = 2; k <= degree; ++k) {
            next[k] = 0.5 * static_cast<double>(k * (k - 1)) / count *
                      (term[k - 2] + 2 * root * term[k - 1] + variance * term[k]);
            sum[k] += next[k];
        }
        term = next;
    }
    const double left_out = 2 * *std::max_element(term.begin(), term.end()), rounding = 32 * u * (growth + 1);
    double scale = root;
    for (std::size_t k = 2; k <= degree; ++k) {
        scale *= root;
        out[k] = {scale * sum[k], scale * (sum[k] * rounding + left_out)};
    }
    return out;
}

// The normal tail beyond x, beside e^{-x^2/2}.
double scaled_tail(double x) {
    return x >= 0 ? scaled_normal_tail(x) : gaussian_tail(x) * std::exp(0.5 * x * x);
}

}  // namespace

// E[(W/B)^k; W <= B] = e^{-g^2/2} scaled_tail(k mu - g), where W = B at g.
LargeRatios::LargeRatios(const Allocation& law, const CutStep& cut, double epochs, double variance)
    : law_(law),
      epochs_(epochs),
      g_(cut.end()),
      jump_((1 + cut.largest()) / law.steps),
      p_(cut.beyond_p()),
      q_(cut.beyond_q()) {
    const double mu = law.mu, g = g_, density = std::exp(-0.5 * g * g);
    const double mean = density * scaled_tail(mu - g) / (1 - q_);
    const double rounding = u * (32 + 8 * g * g + 4 * static_cast<double>(degree) * mu);
    Series ratio = one(), shift = one();  // moments of W/B and powers of -mean, over k!
    double over = 1, power_of_mean = 1;
    for (std::size_t k = 1; k <= degree; ++k) {
        const double n = static_cast<double>(k), tail = density * scaled_tail(n * mu - g) / (1 - q_);
        over /= n;
        power_of_mean *= -mean / n;
        ratio[k] = {tail * over, (rounding + 2 * n * u) * tail * over};
        shift[k] = {power_of_mean, 2 * n * u * std::abs(power_of_mean)};
    }
    Series central = sum_of(ratio, shift);
    // The first is 0, but for the mean's rounding and that of its multiples.
    central[1] = {0, (rounding + 32 * u) * mean};
    mean_ = (law.steps - 1) * mean * jump_;
    others_ = repeated(central, law.steps - 1, sum_of);
    slack_ = u * (8 + 4 * mu * (g + mu));
    // V of an epoch, and all others', beside their means.
    Series epoch = sum_of(others_, central);
    double unit = 1;
    for (std::size_t k = 1; k <= degree; ++k) {
        unit *= static_cast<double>(k) / (law.steps * mean);
        epoch[k] = unit * epoch[k];
    }
    log_whole_ = (epochs - 1) * std::log(law.steps * mean * jump_);
    product_ = product_of(repeated(epoch, epochs - 1, product_of), lognormal(variance));
}

// f(z) = T E[(W/T - gap (1 - z))_+] beside the normal density at g - mu, where W = T gap at g: f'' = e^h/mu,
// h = (g/mu + 1) l - l^2/(2 mu^2), l = -ln(1 - z).
LargeRatios::Series LargeRatios::price(double g) const {
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
LargeRatios::Known LargeRatios::term(const Strike& strike, std::size_t n, bool slope) const {
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
                 reach = std::min(2 * over / (both + std::sqrt(both * both + 4 * own * other * over)),
                                  farthest / std::max(other, 1e-300)) *
                         (1 - 1e-12),
                 radius = reach * own, other_radius = reach * other;
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
    const double t = law_.steps, g = s.g;
    out.log_scale = std::log(epochs_) + log_whole_ + (t * epochs_ - 1) * std::log1p(-q_) -
                    0.5 * (g - mu) * (g - mu) - 0.5 * std::log(2 * pi);
    // c, the gap and g are rounded; f falls like a power of the gap.
    out.round_off =
        u * std::abs(out.value) *
        (64 + 8 * (g / mu + 2) * (epochs_ + std::abs(log_whole_)) * (s.a + mean_) / s.gap +
         8 * (g + 1) * (std::abs(s.log_w) / mu + mu) + 4 * std::abs(out.log_scale) + 1e4 * epochs_ * t * q_);
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
