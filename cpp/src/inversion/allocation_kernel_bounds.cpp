#include "inversion/allocation_kernel_bounds.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "hockeystick/parallel.hpp"
#include "inversion/allocation_mean_moments.hpp"
#include "inversion/allocation_step_series.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// speed: how close the points lie, and how far W is turned on its way to the real axis.
constexpr double spacing = 0.25;
constexpr double shares_of_turn[] = {0.0, 0.5, 1.0};
// proof: more than logarithms and angles round by.
constexpr double rounding = 1e-12;

}  // namespace

KernelBounds::KernelBounds(const Allocation& law, int k, double first, double last)
    : law_(law), first_(first - spacing) {
    const StepSeries series(law, k, 0, std::exp(first_), std::exp(last + spacing));
    if (series.empty()) return;
    log_terms_.resize(static_cast<std::size_t>((last - first_) / spacing) + 2);
    parallel_for_light(log_terms_.size(), [&](std::size_t i) {
        log_terms_[i] = series.log_terms(std::exp(first_ + spacing * static_cast<double>(i)));
    });
}

long KernelBounds::before(double log_modulus) const {
    const double index =
        std::floor((log_modulus - first_ - rounding * (1 + std::abs(log_modulus))) / spacing);
    return static_cast<long>(std::clamp(index, -1.0, static_cast<double>(log_terms_.size()) - 1));
}

// |E[W^j e^{-sW/T}]| <= e^{turn^2/2} E[W^j e^{-|s| cos(angle - mu turn) W/T}], and both fall as |s| grows.
double KernelBounds::turned_by(double turn, double angle, double log_modulus) const {
    const long here = before(log_modulus + std::log(std::cos(angle))),
               turned = before(log_modulus + std::log(std::cos(angle - law_.mu * turn)));
    if (turned < 0) return infinity;
    std::vector<double> log_h = log_terms_[static_cast<std::size_t>(turned)];
    for (double& log : log_h) log += 0.5 * turn * turn;
    const double log_zero = here < 0 ? 0 : log_terms_[static_cast<std::size_t>(here)].front();
    return log_mean_moments(law_.steps, log_zero, log_h).back() + rounding;
}

double KernelBounds::at(double angle, double log_modulus) const {
    double least = infinity;
    if (log_terms_.empty()) return least;
    // Of a number and what is none the first one stays.
    for (const double share : shares_of_turn)
        least = std::min(least, turned_by(share * angle / law_.mu, angle, log_modulus));
    return least;
}

}  // namespace hockeystick
