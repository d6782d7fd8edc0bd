#include "inversion/allocation_ratio_tail.hpp"

#include <algorithm>
#include <cmath>

#include "numerics/constants.hpp"
#include "numerics/gauss_legendre.hpp"

namespace hockeystick {
namespace {

// speed: how often W turns around until c at least, and how much noise there may be; where the integrand has
// fallen, panels' widths and the order of the rule on each.
constexpr double least_turns = 30, least_mu = 0.4;
constexpr double fallen = 42, panel = 9;
constexpr int order = 20;

}  // namespace

double RatioTail::first_place(const Allocation& law, double low) {
    return law.mu >= least_mu && low > 0 ? std::log(least_turns / low) / law.mu + 0.5 * law.mu : infinity;
}

RatioTail::RatioTail(const Allocation& law, double g, double real, double low, double high)
    : law_(law), g_(g), c_(std::exp(law.mu * (g - 0.5 * law.mu))) {
    const double turned = pi * pi / (8 * law.mu * law.mu), end = fallen + turned,
                 panels = std::ceil(end / panel), width = end / panels / (low * c_);
    for (double i = 0; i < panels; ++i) add_panel(width * i, width * (i + 1), real, low, high);
    // The integrand's modulus is at most e^{turned - low c x}.
    error_ += std::exp(turned - end) / (low * c_);
}

// The integrand (1 + ix)^{-1 - g/mu} e^{-ln^2(1 + ix)/(2 mu^2) + i theta c x} on the Bernstein ellipses
// around the panel (as in CutStep), each within a box.
void RatioTail::add_panel(double from, double to, double real, double low, double high) {
    static const GaussLegendre<order> rule;
    const double mu = law_.mu, power = 1 + g_ / mu, half = 0.5 * (to - from), middle = 0.5 * (to + from);
    double error = infinity;
    for (const double rho : {2.5, 4.0, 6.0}) {
        const double wide = 0.5 * (rho + 1 / rho) * half, tall = 0.5 * (rho - 1 / rho) * half,
                     left = middle - wide;
        if (!(tall < 1)) continue;
        // ln |1 + ix| at least, as far as the bound falls in it; |arg| at most.
        const double size = std::max(std::log(std::hypot(1 - tall, std::max(left, 0.0))), -power * mu * mu),
                     angle = std::atan2(middle + wide, 1 - tall),
                     log_f = -power * size + (angle * angle - size * size) / (2 * mu * mu) -
                             (left > 0 ? low : high) * c_ * left + std::abs(real) * c_ * tall;
        error = std::min(error, std::exp(log_f - 2 * order * std::log(rho)) / (1 - 1 / (rho * rho)));
    }
    error_ += error * 64.0 / 15 * half * (1 + 1e-9);
    for (std::size_t i = 0; i < order; ++i) {
        const double x = middle + half * rule.node[i];
        const Complex log(0.5 * std::log1p(x * x), std::atan(x));
        x_.push_back(x);
        weight_.push_back(half * rule.weight[i] * std::exp(-log * (power + log / (2 * mu * mu))));
        slack_.push_back(32 + 8 * std::abs(log) * (power + std::abs(log) / (mu * mu)));
    }
}

// Along a line the terms' directions stay; from one frequency to the next each falls by as much as before.
std::vector<CutStep::Log> RatioTail::row(Complex theta, double step, std::size_t size) const {
    const double additions = static_cast<double>(x_.size());
    std::vector<Complex> term;
    std::vector<double> falls;
    for (std::size_t i = 0; i < x_.size(); ++i) {
        term.push_back(weight_[i] *
                       std::polar(std::exp(-theta.imag() * c_ * x_[i]), theta.real() * c_ * x_[i]));
        falls.push_back(std::exp(-step * c_ * x_[i]));
    }
    std::vector<CutStep::Log> out;
    for (std::size_t j = 0; j < size; ++j) {
        const Complex here = theta + Complex(0, step * static_cast<double>(j));
        // Proof: four units of round-off for every fall.
        const double turned = 8 * c_ * (std::abs(here.real()) + here.imag()),
                     rounded = additions + 4 * static_cast<double>(j);
        Complex sum = 0;
        double error = 0;
        for (std::size_t i = 0; i < x_.size(); ++i) {
            if (j > 0) term[i] *= falls[i];
            sum += term[i];
            error += (std::abs(term[i].real()) + std::abs(term[i].imag())) *
                     (slack_[i] + rounded + turned * x_[i]);
        }
        const Complex front =
            Complex(0, 1) * std::exp(here * (c_ - 1) - 0.5 * g_ * g_) / (law_.mu * std::sqrt(2 * pi));
        // c is rounded, too, and with it the angle at which e^{theta c} stands.
        const double rounding = 32 + 4 * g_ * g_ + 8 * std::abs(here) * c_ * (2 + law_.mu * (g_ + law_.mu));
        out.push_back(
            {front * sum, std::abs(front) * (1.01 * (u * error + error_) + u * rounding * std::abs(sum))});
    }
    return out;
}

}  // namespace hockeystick
