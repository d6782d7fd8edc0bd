#include "inversion/allocation_ray_rule.hpp"

#include <algorithm>
#include <cmath>

#include "inversion/allocation_gamma_kernel.hpp"
#include "numerics/constants.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

// speed: more nodes on one ray are given up. How many frequencies' kernels may grow along a ray that suits
// another one.
constexpr double most_nodes = 2e5, growth_on_ray = 1.5;
// speed: how wide the cells are in which nodes at the ends are counted together.
constexpr double cell_width = 0.25;

// ln of E[V^j] at most, j = 0..k, from E[W^i] = e^{i(i-1) mu^2/2}.
std::vector<double> log_moments(const Allocation& law, int k) {
    std::vector<double> log_coefficient, log_moment;
    for (int j = 0; j <= k; ++j)
        log_coefficient.push_back(0.5 * j * (j - 1) * law.mu * law.mu - j * std::log(law.steps) -
                                  log_factorial(j));
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
        const double of_one = 0.5 * n * (n - 1) * law.mu * law.mu, whole = power.back() + log_factorial(n);
        log_moment.push_back(law.steps > k ? std::min(of_one, whole + 1e-9 * (1 + std::abs(whole))) : of_one);
    }
    return log_moment;
}

// ln of a bound on E[V^q] for real q.
double log_moment(const Allocation& law, const std::vector<double>& whole, double q) {
    // A mean is no less than the geometric one.
    if (q <= 0) return 0.5 * q * (q / law.steps - 1) * law.mu * law.mu;
    if (q <= 1) return 0;
    const double above = std::ceil(q);  // Lyapunov's inequality
    return q / above * whole[static_cast<std::size_t>(above)];
}

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

}  // namespace

RayRules::RayRules(const Allocation& law, int k, double kappa, double step, std::size_t size,
                   double log_scale, double tolerance)
    : law_(law),
      k_(k),
      kappa_(kappa),
      step_(step),
      size_(size),
      log_tolerance_(std::log(tolerance)),
      log_wanted_(log_scale + log_tolerance_ - 2),
      log_moments_(log_moments(law, k)) {}

std::vector<Ray> RayRules::rays() const {
    std::vector<Ray> rays;
    for (std::size_t j = 0; j < size_;) {
        const Growth growth(kappa_, tau(j));
        double low = std::atan2(tau(j), kappa_), high = 0.5 * pi;
        if (size_ == 1) high = low;
        for (int i = 0; i < 40 && high > low; ++i) {
            const double middle = 0.5 * (low + high);
            (growth.excess(middle) < growth_on_ray ? low : high) = middle;
        }
        const double angle = std::min(low, std::atan2(tau(size_ - 1), kappa_));
        std::size_t last = j;
        while (last + 1 < size_ && Growth(kappa_, tau(last + 1)).excess(angle) < growth_on_ray) ++last;
        rays.push_back({angle, j, last});
        j = last + 1;
    }
    return rays;
}

double RayRules::aliasing(const Ray& ray, const RayRule& rule, std::size_t frequency) const {
    const Growth growth(kappa_, tau(frequency));
    double best = infinity;
    for_strips(ray.angle, [&](double d) {
        best = std::min(
            best, 2 * std::exp(widest_on_strip(growth, ray.angle, d)) / std::expm1(2 * pi * d / rule.h));
    });
    return best;
}

// It is convex in tau, as Im psi(kappa + i tau) increases.
double RayRules::log_front(const Ray& ray) const {
    const auto at = [&](double tau) { return -ray.angle * tau - log_gamma({kappa_, tau}).real(); };
    return std::max(at(tau(ray.first)), at(tau(ray.last)));
}

std::optional<RayRule> RayRules::along(const Ray& ray) const {
    RayRule rule;
    rule.h = infinity;
    for (const std::size_t j : {ray.first, (ray.first + ray.last) / 2, ray.last})
        rule.h = std::min(rule.h, best_step(Growth(kappa_, tau(j)), ray.angle, log_tolerance_));
    const double front = log_front(ray);
    // The largest terms are where r cos(angle) is about kappa.
    const double peak = std::rint(-std::log(std::cos(ray.angle)) / rule.h);
    const auto end = [&](int direction) -> std::optional<double> {
        const auto good = [&](double nodes) {
            return front + log_end(ray.angle, (peak + direction * nodes) * rule.h, direction, rule.h) <=
                   log_wanted_;
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
    rule.omitted = 2.02 * std::exp(log_wanted_);  // with what large logarithms of Gamma round
    return rule;
}

// ln of a bound on h sum r^kappa E[V^k e^{-r cos V}] over the nodes beyond x: with y^m e^{-y} <= (m/e)^m
// the terms are at most r^{kappa - m} (m/(e cos))^m E[V^{k-m}], for any m.
double RayRules::log_end(double angle, double x, int direction, double h) const {
    const double log_r = std::log(kappa_) + x, log_cos = std::log(std::cos(angle));
    double best = infinity;
    for (int i = -40; i <= 40; ++i) {
        const double excess = kappa_ * std::exp(0.25 * i),
                     m = direction < 0 ? kappa_ - excess : kappa_ + excess;
        if (m < 0) continue;
        const double head = m > 0 ? m * (std::log(m) - 1 - log_cos) : 0;
        best = std::min(best, (kappa_ - m) * log_r + head + log_moment(law_, log_moments_, k_ - m) +
                                  std::log(h) - std::log(-std::expm1(-std::abs(kappa_ - m) * h)));
    }
    // m = 0
    if (direction < 0)
        best = std::min(best, kappa_ * log_r + log_moment(law_, log_moments_, k_) + std::log(h) -
                                  std::log(-std::expm1(-kappa_ * h)));
    return best;
}

// From both ends inwards, a cell of x at a time: r^kappa is largest at its right end, the bound at its left.
RayRule RayRules::shorter(const Ray& ray, RayRule rule, const KernelBounds& kernel) const {
    const double front = log_front(ray), enough = std::exp(log_wanted_), log_kappa = std::log(kappa_);
    const auto cell = [&](double x) {
        return (cell_width + rule.h) * std::exp(front + kappa_ * (log_kappa + x + cell_width) +
                                                kernel.at(ray.angle, log_kappa + x) + 1e-9);
    };
    double left = rule.first * rule.h, right = rule.last * rule.h, before = 0, after = 0;
    for (double next; left < right && before + (next = cell(left)) < enough; left += cell_width)
        before += next;
    for (double next; left < right && after + (next = cell(right - cell_width)) < enough; right -= cell_width)
        after += next;
    rule.first = std::max(rule.first, std::ceil(left / rule.h - 1e-6));
    rule.last = std::max(rule.first, std::min(rule.last, std::floor(right / rule.h + 1e-6)));
    rule.omitted += 1.01 * (before + after);
    return rule;
}

}  // namespace hockeystick
