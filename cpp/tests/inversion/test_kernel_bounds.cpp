// Bounds on E[V^k e^{-sV}] in the right half-plane, and the nodes that they leave out: against quadrature of
// one or two steps, and against the moments that all nodes give.
#include <cmath>
#include <complex>
#include <initializer_list>
#include <numbers>
#include <vector>

#include "check.hpp"
#include "inversion/allocation_kernel_bounds.hpp"
#include "inversion/allocation_moments.hpp"
#include "inversion/allocation_ray_rule.hpp"
#include "inversion/allocation_step_series.hpp"

namespace hs = hockeystick;
using Complex = std::complex<double>;

namespace {

// E[W^j e^{-sW}] by the trapezoidal rule, which converges like a Gaussian, along a line on which W turns by
// most of the angle of s.
Complex of_one(double mu, int j, Complex s) {
    const double turn = 0.8 * std::arg(s) / mu, h = 0.5 * 2 * std::numbers::pi / (20 + 20 / mu + 10 * turn);
    Complex sum = 0;
    for (double x = -40; x <= 40 + j * mu; x += h) {
        const Complex g(x, -turn), log_w = mu * g - 0.5 * mu * mu;
        const Complex exponent = static_cast<double>(j) * log_w - s * std::exp(log_w) - 0.5 * g * g;
        if (exponent.real() > -745) sum += std::exp(exponent);
    }
    return sum * h / std::sqrt(2 * std::numbers::pi);
}

double choose(int n, int k) {
    return std::exp(std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0));
}

// E[V^k e^{-sV}] for V = W or (W + W')/2.
Complex of_few(double mu, int steps, int k, Complex s) {
    if (steps == 1) return of_one(mu, k, s);
    Complex sum = 0;
    for (int j = 0; j <= k; ++j) sum += choose(k, j) * of_one(mu, j, 0.5 * s) * of_one(mu, k - j, 0.5 * s);
    return sum / std::pow(2.0, k);
}

void no_value_is_above(double mu, int steps, int k) {
    const hs::KernelBounds bounds({mu, static_cast<double>(steps), false}, k, -8, 6);
    for (const double angle : {0.0, 0.4, 1.1, 1.45})
        for (const double log_modulus : {-6.0, -2.2, 0.0, 1.3, 2.9}) {
            const double size = std::abs(of_few(mu, steps, k, std::polar(std::exp(log_modulus), angle)));
            CHECK(std::log(size) <= bounds.at(angle, log_modulus) + 1e-9);
            // They serve all that lies beyond.
            CHECK(std::log(size) <= bounds.at(angle, log_modulus - 0.3) + 1e-9);
        }
    // A mean on the real axis loses no more than points lie apart.
    if (steps == 1 && k == 1) {
        const double size = std::abs(of_few(mu, 1, k, 1.0));
        CHECK(bounds.at(0, 1e-9) <= std::log(size) + 1e-6);
    }
}

// Many steps: the series itself, less its error. A turn is what bounds it there.
void no_series_is_above(double mu, double steps, int k, double angle) {
    const hs::Allocation law{mu, steps, false};
    const double first = -20, last = 5;
    const hs::KernelBounds bounds(law, k, first, last);
    const hs::StepSeries series(law, k, angle, std::exp(first), std::exp(last));
    CHECK(!series.empty());
    for (double x = first; x < last; x += 0.37) {
        const hs::SeriesValue value = series.at(std::exp(x));
        const double s = value.bare ? 0.0 : std::exp(x) * std::cos(angle),
                     size = std::abs(value.coefficient) - value.error;
        if (size > 0) CHECK(std::log(size) + value.log.real() - s <= bounds.at(angle, x) + 1e-9);
    }
}

// What is left out is counted, and most of the nodes of high frequencies are.
void shorter_rules_count(double mu, double steps, int k, double kappa, double step, std::size_t size) {
    const hs::Allocation law{mu, steps, false};
    const double tolerance = 1e-13;
    const hs::RayRules rules(law, k, kappa, step, size, 0, tolerance);
    const hs::Ray ray = rules.rays().back();
    const auto whole = rules.along(ray);
    CHECK(whole);
    if (!whole) return;
    const double log_kappa = std::log(kappa);
    const hs::KernelBounds bounds(law, k, log_kappa + whole->x(0), log_kappa + whole->x(whole->size() - 1));
    const hs::RayRule rule = rules.shorter(ray, *whole, bounds);
    CHECK(rule.first >= whole->first && rule.last <= whole->last && rule.h == whole->h);
    CHECK(3 * rule.size() < whole->size());
    CHECK(rule.omitted <= tolerance);
    const hs::StepSeries series(law, k, ray.angle, kappa * std::exp(whole->x(0)),
                                kappa * std::exp(whole->x(whole->size() - 1)));
    const double tau = step * static_cast<double>(ray.last);
    // |1/Gamma(kappa + i tau)|, whole kappa: Gamma(1 + i tau) has the modulus (pi tau/sinh(pi tau))^{1/2}.
    double log_front = -0.5 * (std::log(2 * std::numbers::pi * tau) - std::numbers::pi * tau);
    for (double i = 1; i < kappa; ++i) log_front -= 0.5 * std::log(i * i + tau * tau);
    log_front -= ray.angle * tau;
    double left_out = 0;
    for (std::size_t n = 0; n < whole->size(); ++n) {
        const double node = whole->first + static_cast<double>(n), x = whole->x(n);
        if (node >= rule.first && node <= rule.last) continue;
        const hs::SeriesValue value = series.at(kappa * std::exp(x));
        const double s = value.bare ? 0.0 : kappa * std::exp(x) * std::cos(ray.angle);
        left_out += whole->h * std::abs(value.coefficient) *
                    std::exp(log_front + kappa * (log_kappa + x) + value.log.real() - s);
    }
    CHECK(left_out > 0 && left_out <= rule.omitted);
}

}  // namespace

int main() {
    for (const double mu : {0.3, 1.0, 2.5})
        for (const int k : {1, 4, 9})
            for (const int steps : {1, 2}) no_value_is_above(mu, steps, k);
    no_series_is_above(2.5, 1e6, 14, 1.52);
    no_series_is_above(2.5, 1e6, 14, 0.7);
    no_series_is_above(2.0, 1e5, 8, 1.55);
    no_series_is_above(3.3, 1e4, 6, 1.3);
    no_series_is_above(1.0, 12, 20, 1.4);
    shorter_rules_count(2.5, 1e6, 14, 10, 0.13, 3600);
    shorter_rules_count(2.0, 1e5, 18, 12, 0.15, 3600);
    return check::summary();
}
