#include "inversion/allocation_ratios_apart.hpp"

#include <algorithm>
#include <cmath>

#include "hockeystick/parallel.hpp"
#include "inversion/saddle.hpp"
#include "numerics/constants.hpp"
#include "numerics/gauss_legendre.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

// All of these are for speed. Panels suit this frequency; how far the sum of small ratios may fall below its
// mean as if it were normal, and as a share of the least x at most.
constexpr int order = 16;
constexpr double fast = 64, turns_of_panel = 4.5, widest_panel = 0.15;
// The same of two, and from where on they are bounded alone.
constexpr double widest_of_two = 0.3, fastest_of_two = 20;
constexpr double rhos[] = {1.5, 2.0, 3.0, 4.0, 6.0, 9.0}, largest_turn = 1.4;
constexpr double farthest_fall = 9, largest_fall = 0.5;
constexpr double least_tilt = 0.1, largest_tilt = 28, close_tilt = 0.02;
// Each source of error aims at this share of delta; more frequencies than that are never worth it.
constexpr double wanted_share = 1e-9;
constexpr std::size_t most_frequencies = 4000, at_once = 32;
// proof: (1 + y)^n is a series where |n y| is less than this, and what is left of it after so many terms is
// less than .1^11/13! of the first one that is used.
constexpr double small_power = 0.1;
constexpr int terms_of_power = 12;
// proof: what numbers of at most this many terms round by, at most, in units of round-off; where that counts.
constexpr double additions = 3e4, rounding_of_bounds = 1e-9;

double log1p(double y) { return std::log1p(y); }
using hockeystick::log1p;

// (1 + y)^n - 1 - n y.
template <class Number>
Number second_order(Number y, double n) {
    if (!(n * modulus_of(y) < small_power)) return expm1(n * log1p(y)) - n * y;
    Number term = n * y, sum = 0.0;
    for (int k = 2; k <= terms_of_power; ++k) sum += term *= (n - k + 1) / k * y;
    return sum;
}

}  // namespace

RatiosApart::RatiosApart(const Allocation& law, const CutStep& cut, double top, double epochs,
                         double variance)
    : mu_(law.mu),
      epochs_(epochs),
      variance_(variance),
      q_(cut.beyond_q()),
      steps_(law.steps),
      first_(cut.end()),
      last_(top) {
    const LightRatios light(law, cut);
    all_ = light.sum(steps_);
    others_ = light.sum(steps_ - 1);
    both_ = light.sum(steps_ - 2);
    rule_ = rule(std::min(widest_panel, turns_of_panel / (fast * mu_)));
    rule_of_two_ = rule(widest_of_two);
    for (const double ratio : rule_.ratio) log_x_.push_back(std::log(ratio + others_.mean));
    for (std::size_t i = 0; i < rule_of_two_.ratio.size(); ++i)
        for (std::size_t j = 0; j <= i; ++j) {
            log_x_of_two_.push_back(std::log(rule_of_two_.ratio[i] + rule_of_two_.ratio[j] + both_.mean));
            log_weight_of_two_.push_back(rule_of_two_.log_weight[i] + rule_of_two_.log_weight[j] -
                                         (i == j ? std::log(2.0) : 0));
        }
}

// W/T at g.
double RatiosApart::ratio_at(double g) const { return std::exp(mu_ * (g - 0.5 * mu_)) / steps_; }

RatiosApart::Rule RatiosApart::rule(double widest) const {
    static const GaussLegendre<order> nodes;
    Rule out;
    const double count = std::ceil((last_ - first_) / (2 * widest));
    out.half = 0.5 * (last_ - first_) / count;
    for (double panel = 0; panel < count; ++panel)
        for (std::size_t i = 0; i < order; ++i) {
            const double g = first_ + out.half * (2 * panel + 1 + nodes.node[i]);
            out.ratio.push_back(ratio_at(g));
            out.log_weight.push_back(std::log(steps_ * out.half * nodes.weight[i]) - 0.5 * g * g -
                                     0.5 * std::log(2 * pi));
        }
    return out;
}

double RatiosApart::Polynomial::most(double x) const {
    double sum = 0, power = 1;
    for (std::size_t k = 0; k < size; ++k, power /= x) sum += std::abs(coefficient[k]) * power;
    return sum;
}

// Taylor's formula ends with binomial(p, n) E |v|^n x^{-n} times the largest power of 1 + v/x on the way, Re
// p <= n, where v >= -t; less is rare: at most e^{-t^2/(2 sum of E (W/T)^2)} (Maurer 2003).
RatiosApart::Polynomial RatiosApart::expanded(const LightSum& sum, Complex p, double x) {
    Polynomial out;
    const double t = std::min(largest_fall * x, farthest_fall * std::sqrt(sum.second)),
                 rare = 1.01 * std::exp(-0.5 * t * t / sum.second), r = p.real(), deep = std::log1p(-t / x);
    Complex binomial = 1;
    double known = 0, plain = 1, power = 1, factorial = 1, least = infinity;
    for (std::size_t k = 0; k < series_degree; ++k) {
        const double n = static_cast<double>(k), scale = power * factorial;
        const Complex front = binomial * factorial * std::pow(sum.unit, n);
        out.coefficient[k] = front * sum.central[k].value;
        if (k % 2 == 0 && k > 0 && n >= r) {
            const double last =
                             std::abs(binomial) * largest(sum.central[k]) * scale * std::exp((r - n) * deep),
                         error = known + 1.01 * last + rare * plain;
            if (error < least) least = error, out.size = k;
        }
        known +=
            std::abs(binomial) * scale * (sum.central[k].error + 64 * u * std::abs(sum.central[k].value));
        plain += std::abs(binomial) * std::pow(sum.mean / x, n);
        binomial *= (p - n) / (n + 1);
        factorial *= n + 1;
        power *= sum.unit / x;
    }
    out.error = least;
    return out;
}

RatiosApart::Log RatiosApart::none(Complex p) const {
    const double x = all_.mean, size = std::abs(p), log_x = std::log(x);
    const Polynomial more = expanded(all_, p, x);
    Complex sum = 0;
    double power = 1;
    for (std::size_t k = 0; k < more.size; ++k, power /= x) sum += more.coefficient[k] * power;
    const double rounding =
        u * (additions + 64 * (size + 1) * (1 + std::abs(log_x) + first_ * first_ + mu_ * first_));
    return {steps_ * std::log1p(-q_) + p * log_x + std::log(sum),
            (more.error + rounding * more.most(x)) / std::abs(sum)};
}

// A rule's panel is in error by what is said at CutStep::add_panel. On its ellipses the normal density grows
// by e^{y^2/2}, W turns by mu y, and x = W/T + mean turns by no more and is at least that mean in modulus.
double RatiosApart::log_panels(Complex p, double shift) const {
    double sum = 0;
    const double r = p.real(), tau = std::abs(p.imag());
    for (double middle = first_ + rule_.half; middle < last_; middle += 2 * rule_.half) {
        double least = infinity;
        for (const double rho : rhos) {
            const double wide = 0.5 * (rho + 1 / rho) * rule_.half, tall = 0.5 * (rho - 1 / rho) * rule_.half;
            if (!(mu_ * tall < largest_turn) || !(middle > wide)) continue;
            const double far = ratio_at(middle + wide) + others_.mean, near = middle - wide;
            least = std::min(least, 0.5 * (tall * tall - near * near) + r * std::log(far) + tau * mu_ * tall -
                                        2 * order * std::log(rho) - std::log1p(-1 / (rho * rho)));
        }
        sum += std::exp(least - shift);
    }
    return std::log(sum * 64.0 / 15 * rule_.half * steps_ / std::sqrt(2 * pi)) + shift;
}

RatiosApart::Log RatiosApart::one(Complex p) const {
    const double r = p.real(), tau = p.imag(), nearest = ratio_at(first_) + others_.mean;
    const Polynomial more = expanded(others_, p, nearest);
    double shift = -infinity;
    for (std::size_t i = 0; i < log_x_.size(); ++i)
        shift = std::max(shift, rule_.log_weight[i] + r * log_x_[i]);
    double re[series_degree] = {}, im[series_degree] = {}, size = 0;
    for (std::size_t i = 0; i < log_x_.size(); ++i) {
        const double weight = std::exp(rule_.log_weight[i] + r * log_x_[i] - shift), turn = tau * log_x_[i],
                     inverse = std::exp(-log_x_[i]);
        size += weight;
        double a = weight * std::cos(turn), b = weight * std::sin(turn);
        for (std::size_t k = 0; k < more.size; ++k, a *= inverse, b *= inverse) re[k] += a, im[k] += b;
    }
    Complex sum = 0;
    for (std::size_t k = 0; k < more.size; ++k) sum += more.coefficient[k] * Complex(re[k], im[k]);
    const double logs = std::abs(std::log(nearest)) + std::abs(std::log(ratio_at(last_) + others_.mean)),
                 rounding =
                     u * (additions + 64 * (std::abs(p) + 1) * (1 + logs + last_ * last_ + mu_ * last_));
    const double panels = std::exp(log_panels(p, shift) - shift) * more.most(others_.mean),
                 error = size * (more.error + rounding * more.most(nearest)) + panels;
    const double whole = std::abs(sum);
    return {shift + (steps_ - 1) * std::log1p(-q_) + std::log(sum), error / whole};
}

// Both rules' errors, each beside the largest of the other variable's panel.
double RatiosApart::log_panels_of_two(Complex p, double shift) const {
    double sum = 0;
    const double half = rule_of_two_.half, r = p.real(), tau = std::abs(p.imag());
    for (double middle = first_ + half; middle < last_; middle += 2 * half) {
        double most[std::size(rhos)], far[std::size(rhos)];
        for (std::size_t i = 0; i < std::size(rhos); ++i) {
            const double rho = rhos[i], wide = 0.5 * (rho + 1 / rho) * half,
                         tall = 0.5 * (rho - 1 / rho) * half, near = middle - wide;
            const bool fits = mu_ * tall < largest_turn && near > 0;
            most[i] = fits ? 0.5 * (tall * tall - near * near) + tau * mu_ * tall -
                                 2 * order * std::log(rho) - std::log1p(-1 / (rho * rho))
                           : infinity;
            far[i] = ratio_at(middle + wide);
        }
        for (double other = first_ + half; other < last_; other += 2 * half) {
            const double beside = ratio_at(other + half) + both_.mean, nearest = other - half;
            double least = infinity;
            for (std::size_t i = 0; i < std::size(rhos); ++i)
                least = std::min(least, most[i] + r * std::log(far[i] + beside));
            sum += std::exp(least - 0.5 * nearest * nearest - shift);
        }
    }
    // Twice, each panel as wide as two halves; both are ordered pairs.
    return std::log(sum * 2 * 64.0 / 15 * half * 2 * half * steps_ * steps_ / (4 * pi)) + shift;
}

// Of unordered pairs. The others' sum stays at its mean: what it adds is in the error.
RatiosApart::Log RatiosApart::two(Complex p) const {
    const double r = p.real(), tau = p.imag(), nearest = 2 * ratio_at(first_) + both_.mean;
    double shift = -infinity, size = 0;
    for (std::size_t i = 0; i < log_x_of_two_.size(); ++i)
        shift = std::max(shift, log_weight_of_two_[i] + r * log_x_of_two_[i]);
    Complex sum = 0;
    for (std::size_t i = 0; i < log_x_of_two_.size(); ++i) {
        const double modulus = exp_or_0(log_weight_of_two_[i] + r * log_x_of_two_[i] - shift);
        size += modulus;
        sum += tau == 0 ? modulus : std::polar(modulus, tau * log_x_of_two_[i]);
    }
    const Polynomial more = expanded(both_, p, nearest);
    const double error = size * (more.most(nearest) - 1 + more.error + rounding_of_bounds) +
                         std::exp(log_panels_of_two(p, shift) - shift) * (more.most(both_.mean) + more.error),
                 front = (steps_ - 2) * std::log1p(-q_) + std::log1p(-1 / steps_);
    return {shift + front + std::log(sum), error / std::abs(sum)};
}

// By parts, twice: (w + v)^p is the derivative of (w + v)^{p+1}/((p + 1) mu w) in g. With f the normal
// density,
// -(f/w)' = (g + mu) f/w and -((g + mu) f/w^2)' = ((g + mu)(g + 2 mu) - 1) f/w^2.
void RatiosApart::set_fall(Moduli& line) const {
    const double power = line.s + 2, nearest = ratio_at(first_) + others_.mean,
                 front = std::log(steps_) + (steps_ - 1) * std::log1p(-q_) + rounding_of_bounds;
    const auto log_ratio = [&](double g) { return mu_ * (g - 0.5 * mu_) - std::log(steps_); };
    // What is left of (w + v)^p at its mean, with the density.
    const auto log_edge = [&](double g, double p) {
        const double log_w = log_ratio(g);
        return p * std::log(std::exp(log_w) + others_.mean) - 0.5 * g * g - 0.5 * std::log(2 * pi) - log_w;
    };
    const auto log_most = [&](double p) {
        const Polynomial more = expanded(others_, p, nearest);
        return std::log(more.most(nearest) + more.error);
    };
    line.log_edges =
        front + log_add(log_edge(first_, power), log_edge(last_, power)) + log_most(power) - std::log(mu_);
    double inside = -infinity;
    for (const double g : {first_, last_})
        inside = log_add(inside, front + log_edge(g, power + 1) - log_ratio(g) + std::log(g + mu_));
    double shift = -infinity, sum = 0;
    std::vector<double> logs(log_x_.size());
    for (std::size_t i = 0; i < logs.size(); ++i) {
        const double log_w = std::log(rule_.ratio[i]), g = (log_w + std::log(steps_)) / mu_ + 0.5 * mu_;
        logs[i] = rule_.log_weight[i] + (power + 1) * log_x_[i] - 2 * log_w +
                  std::log((g + mu_) * (g + 2 * mu_) + 1);
        shift = std::max(shift, logs[i]);
    }
    for (const double log : logs) sum += std::exp(log - shift);
    // Nowhere on an ellipse of the rule is W less than at its left end.
    constexpr double largest = std::end(rhos)[-1];
    const double least = log_ratio(first_ - 0.5 * (largest + 1 / largest) * rule_.half),
                 far = last_ + 2 * mu_ + 2,
                 panels = log_panels(power + 1, shift) + std::log(2 * far * far) - 2 * least;
    inside = log_add(inside, log_add(shift + std::log(sum), panels) + front - std::log(steps_));
    line.log_inside = inside + log_most(power + 1) - 2 * std::log(mu_);
    line.falls = true;
}

RatiosApart::Moduli RatiosApart::moduli(double s) const {
    const Log a = none(1 + s), one_large = one(1 + s), two_large = two(1 + s);
    const bool known = a.error < 0.5 && one_large.error < 0.5;
    return {s, a.value.real() + (known ? std::log1p(a.error) : infinity),
            one_large.value.real() + std::log1p(one_large.error),
            two_large.value.real() + std::log1p(two_large.error)};
}

// A^E ((1 + y)^E - 1 - E y), y = J/A, increases in A and J.
double RatiosApart::log_beyond(const Moduli& line, double tau) const {
    double log_one = line.log_one;
    if (line.falls) {
        const double first = std::log(std::hypot(line.s + 2, tau)),
                     second = std::log(std::hypot(line.s + 3, tau));
        log_one = std::min(log_one, log_add(line.log_edges, line.log_inside - second) - first);
    }
    const double log_some = log_add(log_one, line.log_two);
    if (!std::isfinite(line.log_none + log_some)) return infinity;
    const double more = second_order(std::exp(log_some - line.log_none), epochs_);
    return epochs_ * line.log_none + std::log(more) + gaussian_steps(variance_, line.s).upper -
           0.5 * variance_ * tau * tau + rounding_of_bounds + 8 * u * epochs_ * std::abs(line.log_none);
}

double RatiosApart::log_beyond(double s, double tau) const {
    Moduli line = moduli(s);
    set_fall(line);
    return log_beyond(line, tau);
}

RatiosApart::Value RatiosApart::at(Complex z, double scale, const Moduli& line) const {
    const Log a = none(1.0 + z), one_large = one(1.0 + z);
    if (!(a.error < 0.5) || !std::isfinite(one_large.error)) return {0, infinity};
    Complex y = std::exp(one_large.value - a.value);
    double y_error = std::abs(y) * one_large.error;
    if (z.imag() <= fastest_of_two) {
        const Log two_large = two(1.0 + z);
        const Complex more = std::exp(two_large.value - a.value);
        y += more;
        y_error += std::abs(more) * two_large.error;
    } else {
        y_error += std::exp(line.log_two - a.value.real());
    }
    const double e = epochs_, size = std::abs(y);
    const Complex noise = 0.5 * variance_ * z * (z + 1.0), front = std::exp(e * a.value + noise - scale),
                  more = second_order(y, e);
    // The polynomial's derivatives at moduli that are as large as they can be.
    const double y_most = (size + y_error) / (1 - a.error), most = std::exp(e * std::log1p(a.error)),
                 by_a = e * second_order(y_most, e - 1) * a.error,
                 by_y = e * std::expm1((e - 1) * std::log1p(y_most)) * y_error,
                 rounding = u * (64 + 8 * (e * std::abs(a.value) + std::abs(noise) + std::abs(scale))) *
                                std::abs(more) +
                            32 * u * e * size * (1 + second_order(size, e));
    return {front * more, 1.01 * std::abs(front) * most * (by_a + by_y + rounding)};
}

std::optional<Contour> RatiosApart::contour(double epsilon, double log_delta) const {
    const auto bound = [this](double tilt) { return log_upper(tilt); };
    const double s = best_tilt(bound, epsilon, least_tilt, largest_tilt, close_tilt), middle = log_upper(s),
                 log_scale = middle - s * epsilon, log_goal = std::log(wanted_share) + log_delta;
    if (!std::isfinite(middle)) return {};
    if (log_scale + log_chernoff(s) < log_goal)
        return Contour::of_nothing(s, middle, 1.01 * std::exp(log_chernoff(s)));
    auto out = line_at(s, middle, bound, epsilon, log_delta, log_goal);
    if (!out) return {};
    Moduli line = moduli(s);
    set_fall(line);
    const auto beyond = [&](double tau) { return std::exp(log_beyond(line, tau) - middle); };
    const CutOff end = cut_off(order, most_frequencies, std::exp(log_goal - log_scale),
                               [&](std::size_t size) { return tail_from(out->step, size, beyond); });
    std::vector<Value> values(end.size);
    const auto tau = [&](std::size_t j) { return out->step * static_cast<double>(j); };
    // What is known no better than by how it falls is left out, as is all beyond.
    const auto known = [&](std::size_t j) { return values[j].error < beyond(tau(j)); };
    for (std::size_t first = 0; first < end.size; first += at_once) {
        const std::size_t last = std::min(first + at_once, end.size);
        parallel_ranges(last - first, 1, [&](std::size_t j, std::size_t) {
            values[first + j] = at({s, tau(first + j)}, middle, line);
        });
        std::size_t j = first;
        for (; j < last && known(j); ++j) {
            out->integrand.push_back(values[j].value * out->pole(j));
            out->error.push_back(values[j].error * std::abs(out->pole(j)));
        }
        if (j < last) break;
    }
    if (out->integrand.empty()) return {};
    out->tail = tail_from(out->step, out->integrand.size(), beyond);
    return out;
}

}  // namespace hockeystick
