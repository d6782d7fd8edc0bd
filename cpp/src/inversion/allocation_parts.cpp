#include "inversion/allocation_parts.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "hockeystick/parallel.hpp"
#include "numerics/complex.hpp"
#include "numerics/constants.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

using Complex = std::complex<double>;
constexpr double pi = std::numbers::pi;

// speed: the higher the frequency, the more nodes it takes: so many frequencies share theirs.
constexpr std::size_t block = 32;
// proof: beyond this, exponentials overflow.
constexpr double largest_exponent = 700;
// speed: the P-mass of the outcomes with a large W, beside delta.
constexpr double mass_beside_delta = 1e3, most_mass = 0.1;

}  // namespace

CutStep first_cut(const Allocation& law, double epochs, double delta) {
    return {law, std::min(most_mass, mass_beside_delta * delta) / epochs, most_halvings};
}

std::vector<CutStep::Log> AllocationPart::row(double s, double step, std::size_t size) const {
    std::vector<CutStep::Log> out(size);
    parallel_ranges(size, block, [&](std::size_t begin, std::size_t end) {
        const auto log = up_to({s, step * static_cast<double>(end)});
        for (std::size_t j = begin; j < end; ++j) out[j] = log({s, step * static_cast<double>(j)});
    });
    return out;
}

CutStep::Log Bulk::at(double s) const {
    if (!(s / law_.steps * step_.largest() < largest_exponent)) return {0, infinity};
    return up_to(s)(s);
}

AllocationPart::LogAt Bulk::up_to(Complex most) const {
    return [this, nodes = step_.nodes_below(most)](Complex s) { return step_.log_below(nodes, s); };
}

std::function<double(double)> Bulk::log_decay(double s) const {
    const CutStep::Log log = at(s);
    const double one = std::exp((log.value.real() + log.error) / law_.steps) * (1 + 4 * u);
    return [this, one, layers = StepLayers(law_, step_.end(), s / law_.steps)](double tau) {
        return law_.steps * std::log1p(-std::min(1.0, layers.lost(tau / law_.steps) / one)) * (1 - 1e-12);
    };
}

CutStep::Log Rest::at(double s) const {
    if (s > 0 && !(s / law_.steps * std::exp(law_.mu * (top_ - 0.5 * law_.mu)) < largest_exponent))
        return {0, infinity};
    return up_to(s)(s);
}

AllocationPart::LogAt Rest::up_to(Complex most) const {
    return [this, below = step_.nodes_below(most), beyond = step_.nodes_beyond(most, top_)](Complex s) {
        return join(step_.log_below(below, s), step_.beyond(beyond, s));
    };
}

// |(phi + r)^T - phi^T| <= T |r| (|phi| + |r|)^{T-1}
std::function<double(double)> Rest::log_decay(double s) const {
    const CutStep::Log log = step_.log_below(step_.nodes_below(s), s),
                       beyond = step_.beyond(step_.nodes_beyond(s, top_), s), whole = join(log, beyond);
    const double one = std::exp((log.value.real() + log.error) / law_.steps) * (1 + 4 * u),
                 r = beyond.value.real() + beyond.error,
                 log_front = std::log(law_.steps * r) - whole.value.real() + whole.error + 1e-9;
    // For s < 0 the tilted density f of W falls from the cut on: |r| <= 2 f/|Im s/T| as well.
    const double g = step_.end(), mu = law_.mu, excess = std::expm1(mu * (g - 0.5 * mu)),
                 log_edge = s > 0 ? infinity
                                  : std::log(2 * law_.steps / (mu * std::sqrt(2 * pi)) / r) - 0.5 * g * g -
                                        std::log1p(excess) + s * excess / law_.steps + 1e-9;
    return [this, one, r, log_front, log_edge,
            layers = StepLayers(law_, step_.end(), s / law_.steps)](double tau) {
        const double left = one - layers.lost(tau / law_.steps) + r;
        return log_front + std::min(0.0, log_edge - std::log(tau)) +
               (law_.steps - 1) * std::log(std::max(left, r));
    };
}

CutStep::Log Rest::join(const CutStep::Log& log, const CutStep::Log& beyond) const {
    const double t = law_.steps;
    // Hardly more than its size is known: |(phi + r)^T - phi^T| <= T |r| (|phi| + |r|)^{T-1}.
    const auto size_alone = [&]() -> CutStep::Log {
        const double most = std::abs(beyond.value) + beyond.error;
        const double size = std::exp((log.value.real() + log.error) / t) * (1 + 4 * u) + most;
        return {std::log(t * most) + (t - 1) * std::log(size) * (1 + 8 * u), std::log(3.0) + 1e-9};
    };
    if (!(log.error < 1)) return size_alone();
    const Complex phi = std::exp(log.value / t), r = beyond.value / phi;
    // e^{x} - 1 moves by |dx| e^{|x| + |dx|}, and x by T |dr|/(1 - |r| - |dr|).
    const double dr = beyond.error / std::abs(phi) + std::abs(r) * (std::expm1(log.error / t) + 8 * u);
    if (!(std::abs(r) + dr < 0.5)) return size_alone();
    const Complex x = t * log1p(r), whole = expm1(x);
    const double dx = 2 * t * dr + 8 * u * std::abs(x),
                 error = dx * std::exp(std::max(0.0, x.real()) + dx) + 8 * u * std::abs(whole);
    if (!(error < 0.5 * std::abs(whole))) return size_alone();
    const Complex sum = log.value + std::log(whole);
    return {sum, log.error + 2 * error / std::abs(whole) + 8 * u * std::abs(sum)};
}

// Squares of the cut round, and so does its distance from mu.
Decided::Decided(const Allocation& law, double epochs, double g)
    : p_(-std::expm1(epochs * (std::log1p(-gaussian_tail(g - law.mu)) +
                               (law.steps - 1) * std::log1p(-gaussian_tail(g))))),
      q_(-std::expm1(epochs * law.steps * std::log1p(-gaussian_tail(g)))),
      rounding_(64 + 8 * g * g) {}

Inverted Decided::add_to(Inverted out, double c) const {
    const double log_scale = std::max(out.log_scale, std::log(p_)),
                 scale = std::exp(out.log_scale - log_scale), unit = std::exp(-log_scale);
    const double size = std::abs(out.value) + out.aliasing + out.tail + out.quadrature,
                 others = (p_ + c * q_) * unit;
    out.value = out.value * scale + (p_ - c * q_) * unit;
    out.slope = out.slope * scale + c * q_ * unit;
    out.aliasing *= scale;
    out.tail *= scale;
    out.quadrature *= scale;
    out.round_off = out.round_off * scale +
                    u * (size * scale * (16 + 4 * (std::abs(log_scale) + std::abs(out.log_scale))) +
                         others * (rounding_ + 4 * std::abs(log_scale)));
    out.log_scale = log_scale;
    return out;
}

}  // namespace hockeystick
