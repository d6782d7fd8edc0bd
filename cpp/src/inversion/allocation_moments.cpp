#include "inversion/allocation_moments.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include "hockeystick/parallel.hpp"
#include "inversion/falling_sum.hpp"
#include "inversion/gamma_kernel.hpp"
#include "inversion/step_series.hpp"
#include "numerics/complex.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

using Complex = std::complex<double>;
constexpr double pi = std::numbers::pi;

// speed: more nodes on one ray are given up. How many frequencies' kernels may grow along a ray that suits
// another one.
constexpr double most_nodes = 3e4, growth_on_ray = 1.5;

// ln of bounds on E[V^q] for real q.
class MomentBounds {
public:
    MomentBounds(const Allocation& law, int k) : law_(law), whole_(moments(law, k)) {}

    double at(double q) const {
        // A mean is no less than the geometric one.
        if (q <= 0) return 0.5 * q * (q / law_.steps - 1) * law_.mu * law_.mu;
        if (q <= 1) return 0;
        const double above = std::ceil(q);  // Lyapunov's inequality
        return q / above * whole_[static_cast<std::size_t>(above)];
    }

private:
    // ln E[V^j], j = 0..k, from E[W^i] = e^{i(i-1) mu^2/2}.
    static std::vector<double> moments(const Allocation& law, int k) {
        std::vector<double> log_coefficient, log_moment;
        for (int j = 0; j <= k; ++j)
            log_coefficient.push_back(0.5 * j * (j - 1) * law.mu * law.mu - j * std::log(law.steps) -
                                      std::lgamma(j + 1.0));
        // The power series' T-th power; its terms may be negative for T < k, where W itself is the bound.
        std::vector<double> power = {0.0};
        log_moment.push_back(0.0);
        for (int n = 1; n <= k; ++n) {
            double largest = -infinity, sum = 0;
            for (int round = 0; round < 2; ++round)
                for (int j = 1; j <= n; ++j) {
                    const double factor = (j * (law.steps + 1) - n) / n;
                    const double term =
                        log_coefficient[static_cast<std::size_t>(j)] + power[static_cast<std::size_t>(n - j)];
                    if (round == 0)
                        largest = std::max(largest, term);
                    else
                        sum += factor * std::exp(term - largest);
                }
            power.push_back(largest + std::log(sum));
            const double of_one = 0.5 * n * (n - 1) * law.mu * law.mu,
                         whole = power.back() + std::lgamma(n + 1.0);
            log_moment.push_back(law.steps > k ? std::min(of_one, whole + 1e-9 * (1 + std::abs(whole)))
                                               : of_one);
        }
        return log_moment;
    }

    Allocation law_;
    std::vector<double> whole_;
};

// One ray, and the frequencies first..last that it serves.
struct Ray {
    double angle;
    std::size_t first, last;
};

// ln of |the kernel's| integral along a ray at this angle, beside E[V^{k-kappa}].
class Growth {
public:
    Growth(double kappa, double tau)
        : kappa_(kappa), tau_(tau), base_(log_gamma(kappa).real() - log_gamma({kappa, tau}).real()) {}
    double at(double angle) const { return base_ + beside_gamma(angle); }
    double excess(double angle) const { return beside_gamma(angle) - beside_gamma(std::atan2(tau_, kappa_)); }

private:
    double beside_gamma(double angle) const { return -angle * tau_ - kappa_ * std::log(std::cos(angle)); }
    double kappa_, tau_, base_;
};

std::vector<Ray> rays_for(double kappa, double step, std::size_t size) {
    const auto tau = [step](std::size_t j) { return step * static_cast<double>(j); };
    std::vector<Ray> rays;
    for (std::size_t j = 0; j < size;) {
        const Growth growth(kappa, tau(j));
        double low = std::atan2(tau(j), kappa), high = 0.5 * pi;
        if (size == 1) high = low;
        for (int i = 0; i < 40 && high > low; ++i) {
            const double middle = 0.5 * (low + high);
            (growth.excess(middle) < growth_on_ray ? low : high) = middle;
        }
        const double angle = std::min(low, std::atan2(tau(size - 1), kappa));
        std::size_t last = j;
        while (last + 1 < size && Growth(kappa, tau(last + 1)).excess(angle) < growth_on_ray) ++last;
        rays.push_back({angle, j, last});
        j = last + 1;
    }
    return rays;
}

// The trapezoidal rule along a ray: its step, its ends and what they leave out, all beside e^{log_scale}.
struct Rule {
    double h = 0;
    double first = 0, last = 0;  // nodes
    double omitted = 0;
};

// Half-widths of the strip around the ray, as shares of what there is on the right.
template <class Visit>
void for_strips(double angle, Visit visit) {
    for (int i = 1; i <= 40; ++i)
        visit((0.5 * pi - angle) *
              (i < 20 ? std::exp(-0.35 * (20 - i)) : 1 - 0.9 * std::exp(-0.15 * (i - 19))));
}

double widest_on_strip(const Growth& growth, double angle, double d) {
    return std::max(growth.at(angle + d), growth.at(angle - d));
}

// The widest step with an aliasing of e^{log_wanted}.
double best_step(const Growth& growth, double angle, double log_wanted) {
    double best = 0;
    for_strips(angle, [&](double d) {
        const double turns = std::max(4.0, widest_on_strip(growth, angle, d) + std::log(2.5) - log_wanted);
        best = std::max(best, 2 * pi * d / turns);
    });
    return best;
}

// What the rule adds at most, beside E[V^{k-kappa}].
double aliasing(const Growth& growth, double angle, double h) {
    double best = infinity;
    for_strips(angle, [&](double d) {
        best = std::min(best, 2 * std::exp(widest_on_strip(growth, angle, d)) / std::expm1(2 * pi * d / h));
    });
    return best;
}

class RayRule {
public:
    RayRule(const Allocation& law, int k, double kappa, double log_scale, double tolerance)
        : bounds_(law, k),
          k_(k),
          kappa_(kappa),
          log_tolerance_(std::log(tolerance)),
          log_wanted_(log_scale + log_tolerance_) {}

    std::optional<Rule> along(const Ray& ray, double step) const {
        Rule rule;
        double log_front = -infinity;
        rule.h = infinity;
        for (const std::size_t j : {ray.first, (ray.first + ray.last) / 2, ray.last}) {
            const double tau = step * static_cast<double>(j);
            rule.h = std::min(rule.h, best_step(Growth(kappa_, tau), ray.angle, log_tolerance_));
            log_front = std::max(log_front, -ray.angle * tau - log_gamma({kappa_, tau}).real());
        }
        // The largest terms are where r cos(angle) is about kappa.
        const double peak = std::rint(-std::log(std::cos(ray.angle)) / rule.h);
        const auto end = [&](int direction) -> std::optional<double> {
            const auto good = [&](double nodes) {
                return log_front +
                           log_end(ray.angle, (peak + direction * nodes) * rule.h, direction, rule.h) <=
                       log_wanted_ - 2;
            };
            double low = 0, high = 8;
            while (!good(high)) {
                low = high;
                high *= 2;
                if (high > most_nodes) return {};
            }
            while (high - low > 1)
                (good(std::floor(0.5 * (low + high))) ? high : low) = std::floor(0.5 * (low + high));
            return high;
        };
        const auto left = end(-1), right = end(+1);
        if (!left || !right) return {};
        rule.first = peak - *left;
        rule.last = peak + *right;
        rule.omitted = 2.02 * std::exp(log_wanted_ - 2);  // with what large logarithms of Gamma round
        return rule;
    }

private:
    // ln of a bound on h sum r^kappa E[V^k e^{-r cos V}] over the nodes beyond x: with y^m e^{-y} <= (m/e)^m
    // the terms are at most r^{kappa - m} (m/(e cos))^m E[V^{k-m}], for any m.
    double log_end(double angle, double x, int direction, double h) const {
        const double log_r = std::log(kappa_) + x, log_cos = std::log(std::cos(angle));
        double best = infinity;
        for (int i = -40; i <= 40; ++i) {
            const double excess = kappa_ * std::exp(0.25 * i),
                         m = direction < 0 ? kappa_ - excess : kappa_ + excess;
            if (m < 0) continue;
            const double head = m > 0 ? m * (std::log(m) - 1 - log_cos) : 0;
            best = std::min(best, (kappa_ - m) * log_r + head + bounds_.at(k_ - m) + std::log(h) -
                                      std::log(-std::expm1(-std::abs(kappa_ - m) * h)));
        }
        // m = 0
        if (direction < 0)
            best = std::min(
                best, kappa_ * log_r + bounds_.at(k_) + std::log(h) - std::log(-std::expm1(-kappa_ * h)));
        return best;
    }

    MomentBounds bounds_;
    int k_;
    double kappa_, log_tolerance_, log_wanted_;
};

// The nodes of a ray: where they are, the kernel's other factor, and sums over them.
class RaySum {
public:
    RaySum(const Rule& rule, double kappa, double angle, std::vector<SeriesValue> nodes)
        : h_(rule.h), first_(rule.first), kappa_(kappa), angle_(angle), nodes_(std::move(nodes)) {}

    // At the frequencies first step, ..., last step, times e^{-shift}.
    struct Values {
        FallingSum::Row row;
        double shift;
    };
    // From one frequency to the next the kernel turns by s^{i step}, and all nodes' kernels change in modulus
    // by as much as that of the largest one.
    Values at(double step, std::size_t first, std::size_t last) const {
        const double start = step * static_cast<double>(first);
        const GammaKernel kernel({kappa_, start}, angle_);
        std::vector<LogKernel> logs;
        double shift = -infinity, largest = 0;
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            logs.push_back(kernel.at(x(i), nodes_[i].bare));
            logs.back().log += nodes_[i].log;
            if (nodes_[i].coefficient == 0.0 && !(nodes_[i].error > 0)) continue;
            if (logs.back().log.real() > shift) shift = logs.back().log.real(), largest = x(i);
        }
        FallingSum sum;
        const double additions = static_cast<double>(nodes_.size());
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            const double modulus = exp_or_0(logs[i].log.real() - shift);
            if (!(modulus > 0)) continue;
            const Complex term = std::polar(modulus, logs[i].log.imag()) * nodes_[i].coefficient;
            sum.re.push_back(term.real());
            sum.im.push_back(term.imag());
            sum.turn.push_back(x(i) - largest);
            sum.fall.push_back(0);
            sum.fixed.push_back(logs[i].slack + 8 * modulus_of(logs[i].log) + additions);
            sum.turning.push_back(4 * (std::abs(x(i)) + std::abs(largest)));
            sum.fixed_error += modulus * nodes_[i].error;
        }
        Values out{sum.row(step, last - first + 1, 0), shift};
        for (std::size_t j = 0; j < out.row.value.size(); ++j) {
            const GammaKernel here({kappa_, step * static_cast<double>(first + j)}, angle_);
            // With e^{-s}, which is the same at all frequencies, or without: what loses less.
            LogKernel more = quotient(here, kernel, largest, false);
            if (const LogKernel bare = quotient(here, kernel, largest, true); bare.slack < more.slack)
                more = bare;
            const double size = h_ * std::exp(more.log.real()), slack = std::expm1(u * more.slack);
            Complex& value = out.row.value[j];
            out.row.error[j] = size * (out.row.error[j] * (1 + slack) + slack * modulus_of(value));
            value *= std::polar(size, more.log.imag());
        }
        return out;
    }

    // Of ln E[V^q] at the real power: its derivatives, up to those of ln Gamma. They are estimates.
    std::pair<double, double> moments() const {
        const GammaKernel kernel(kappa_, angle_);
        double shift = -infinity;
        for (std::size_t i = 0; i < nodes_.size(); ++i)
            shift = std::max(shift, (kernel.at(x(i), nodes_[i].bare).log + nodes_[i].log).real());
        Complex sum = 0, mean = 0, variance = 0;
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            const Complex log = kernel.at(x(i), nodes_[i].bare).log + nodes_[i].log - shift,
                          term = std::polar(exp_or_0(log.real()), log.imag()) * nodes_[i].coefficient,
                          log_s(x(i), angle_);
            sum += term;
            mean += term * log_s;
            variance += term * log_s * log_s;
        }
        mean /= sum;
        return {mean.real(), (variance / sum - mean * mean).real()};
    }

private:
    static LogKernel quotient(const GammaKernel& a, const GammaKernel& b, double x, bool bare) {
        const LogKernel above = a.at(x, bare), below = b.at(x, bare);
        return {above.log - below.log,
                above.slack + below.slack + 8 * (1 + modulus_of(above.log) + modulus_of(below.log))};
    }
    double x(std::size_t i) const { return (first_ + static_cast<double>(i)) * h_; }
    double h_, first_, kappa_, angle_;
    std::vector<SeriesValue> nodes_;
};

}  // namespace

std::optional<Moments> allocation_moments(const Allocation& law, int k, double kappa, double step,
                                          std::size_t size, double log_scale, double tolerance) {
    const RayRule rules(law, k, kappa, log_scale, tolerance);
    const std::vector<Ray> rays = rays_for(kappa, step, size);
    // Those of high frequencies may take too many nodes: all are known before any is summed.
    std::vector<std::optional<Rule>> found;
    for (const Ray& ray : rays)
        if (!found.emplace_back(rules.along(ray, step))) return {};
    Moments out;
    std::vector<double> alias;
    for (std::size_t i = 0; i < rays.size(); ++i) {
        interruption_point();
        const Ray& ray = rays[i];
        const auto& rule = found[i];
        const auto r_at = [&](double node) { return kappa * std::exp(node * rule->h); };
        const StepSeries series(law, k, ray.angle, r_at(rule->first), r_at(rule->last));
        if (series.empty()) return {};
        std::vector<SeriesValue> nodes(static_cast<std::size_t>(rule->last - rule->first + 1));
        parallel_for(nodes.size(), [&](std::size_t n) {
            nodes[n] = series.at(r_at(rule->first + static_cast<double>(n)));
        });
        const RaySum sum(*rule, kappa, ray.angle, std::move(nodes));
        const RaySum::Values found_here = sum.at(step, ray.first, ray.last);
        if (i == 0) {
            out.shift = found_here.shift > 20 ? found_here.shift : 0;
            const auto [mean, variance] = sum.moments();
            const Polygamma of_gamma(kappa);
            out.first = of_gamma.first - std::log(kappa) - mean;
            out.second = variance - of_gamma.second;
        }
        const double scale = std::exp(found_here.shift - out.shift),
                     rounding = 4 * u * (1 + std::abs(found_here.shift) + std::abs(out.shift));
        for (std::size_t j = 0; j < found_here.row.value.size(); ++j) {
            const Complex value = found_here.row.value[j] * scale;
            out.value.push_back(value);
            out.error.push_back(found_here.row.error[j] * scale + rounding * modulus_of(value) +
                                rule->omitted * std::exp(-out.shift));
            alias.push_back(
                aliasing(Growth(kappa, step * static_cast<double>(ray.first + j)), ray.angle, rule->h));
        }
    }
    // E[V^{k-kappa}], rounded up: all aliasing is relative to it.
    const double whole = (std::abs(out.value[0]) + out.error[0]) / (1 - std::min(alias[0], 0.5));
    for (std::size_t j = 0; j < alias.size(); ++j) out.error[j] += 1.01 * alias[j] * whole;
    return out;
}

}  // namespace hockeystick
