#include "inversion/allocation_parts.hpp"

#include "hockeystick/parallel.hpp"
#include "inversion/allocation_ratio_tail.hpp"
#include "inversion/saddle.hpp"
#include "numerics/constants.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

// speed: the higher the frequency, the more nodes it takes: so many frequencies share theirs.
constexpr std::size_t block = 32;
// proof: beyond this, exponentials overflow.
constexpr double largest_exponent = 700;
// speed: how far below a cut, in g, another one is worth it; the grid on which the bulk's fall is looked at:
// how much it may differ from there, how far it goes, and a share of s.
constexpr double least_between = 1, slack_of_grid = 0.02, fallen = -60, most_points = 1e3,
                 close_difference = 0.1;
// speed: how much the loss differs within a part, and how many parts there are.
constexpr double widest_part = 1, most_parts = 6;
// speed: nodes for a real s also serve others near it, if their error beside 1/T is that little.
constexpr double room = 1.3, least_share = 0.2, good_nodes = 1e-10;
// speed: slices in which what lies next to a cut is bounded.
constexpr int slices_of_rim = 64;

// r/phi, ln phi^T and r given; its error is infinite where hardly more than sizes are known.
CutStep::Log beside(const CutStep::Log& log, const CutStep::Log& beyond, double t) {
    if (!(log.error < 1)) return {0, infinity};
    const Complex phi = std::exp(log.value / t), r = beyond.value / phi;
    const double error = beyond.error / std::abs(phi) + std::abs(r) * (std::expm1(log.error / t) + 8 * u);
    return {r, std::abs(r) + error < 0.5 ? error : infinity};
}

// phi + r where r is not small beside phi; its error is infinite where hardly more than its size is known.
CutStep::Log added(const CutStep::Log& log, const CutStep::Log& beyond, double t) {
    if (!(log.error < 1)) return {0, infinity};
    const Complex phi = std::exp(log.value / t), sum = phi + beyond.value;
    const double units = 8 + std::abs(log.value) / t,
                 error = beyond.error + std::abs(phi) * (std::expm1(log.error / t) + units * u) +
                         u * std::abs(sum);
    return {sum, error < 0.5 * std::abs(sum) ? error : infinity};
}

// At least |phi| + |r|.
double most_of(const CutStep::Log& log, const CutStep::Log& beyond, double t) {
    return std::exp((log.value.real() + log.error) / t) * (1 + 4 * u) +
           (std::abs(beyond.value) + beyond.error);
}

}  // namespace

std::vector<CutStep::Log> AllocationPart::row(double s, double step, std::size_t size) const {
    std::vector<CutStep::Log> out(size);
    parallel_ranges(size, block, [&](std::size_t begin, std::size_t end) {
        const auto found = run({s, step * static_cast<double>(begin)}, step, end - begin);
        std::copy(found.begin(), found.end(), out.begin() + static_cast<std::ptrdiff_t>(begin));
    });
    return out;
}

CutStep::Log Bulk::at(double s) const {
    if (!(s / law_.steps * step_.largest() < largest_exponent)) return {0, infinity};
    if (!(s > 0)) return run(s, 0, 1)[0];
    if (!(s <= most_ && s >= least_share * most_)) known_ = step_.nodes_below(most_ = room * s);
    // Where those for more are not good enough it has its own.
    return known_.error * law_.steps < good_nodes ? step_.log_below(known_, s) : run(s, 0, 1)[0];
}

std::vector<CutStep::Log> Bulk::run(Complex s, double step, std::size_t size) const {
    const Complex most = s + Complex(0, step * static_cast<double>(size));
    const double low = s.imag() / law_.steps, narrow = RatioTail::first_place(law_, low);
    if (!(low > 0 && narrow > 0 && narrow < step_.end() - least_between))
        return step_.log_below(step_.nodes_below(most), s, step, size);
    // A lesser cut, from which W turns often at all these frequencies, and what lies between both.
    const CutStep cut = CutStep::at(law_, narrow, most_halvings);
    auto out = cut.log_below(cut.nodes_below(most), s, step, size);
    const auto more = BetweenPlaces(law_, narrow, step_.end(), s.imag(), most).row(s, step, size);
    for (std::size_t j = 0; j < size; ++j) out[j] = with_more(out[j], more[j]);
    return out;
}

// ln (phi + r)^T
CutStep::Log Bulk::with_more(const CutStep::Log& log, const CutStep::Log& beyond) const {
    const double t = law_.steps;
    const CutStep::Log r = beside(log, beyond, t);
    if (!std::isfinite(r.error)) {
        if (const CutStep::Log sum = added(log, beyond, t); std::isfinite(sum.error)) {
            const Complex each = std::log(sum.value);
            return {t * each, t * (2 * sum.error / std::abs(sum.value) + 8 * u * (1 + std::abs(each)))};
        }
        // Any two numbers of one size differ by twice as much at most.
        return {t * std::log(most_of(log, beyond, t)) * (1 + 8 * u), std::log(3.0) + 1e-9};
    }
    const Complex x = t * log1p(r.value);
    return {log.value + x, log.error + 2 * t * r.error + 8 * u * (std::abs(log.value) + std::abs(x))};
}

// Far out by layers. Before that on a grid: the second derivative of |phi/phi(theta)|^2 is at most 2
// phi''/phi in size, and 2 (cosh x - 1) >= x^2, so that differences bound it.
std::function<double(double)> Bulk::log_decay(double s) const {
    const double t = law_.steps, h = close_difference * std::abs(s);
    const CutStep::Log log = at(s), above = at(s + h), below = at(s - h);
    const double one = std::exp((log.value.real() + log.error) / t) * (1 + 4 * u),
                 least = log.value.real() - log.error;
    const auto by_layers = [t, one, least, layers = StepLayers(law_, step_.end(), s / t)](double tau) {
        return t * std::min(std::log1p(-std::min(1.0, layers.lost(tau / t) / one)) * (1 - 1e-12),
                            layers.log_bound(tau / t) - least / t);
    };
    const auto beside = [&](const CutStep::Log& other) {
        return std::expm1((other.value.real() + other.error - least) / t);
    };
    const double curvature = t * (beside(above) + beside(below)) / (h * h) + 1e-9,
                 step = std::sqrt(8 * slack_of_grid / curvature);
    double end = step;
    while (by_layers(end) > fallen && end < step * most_points) end *= 1.25;
    if (!(by_layers(end) <= fallen)) return by_layers;
    const std::vector<CutStep::Log> grid = row(s, step, static_cast<std::size_t>(end / step) + 2);
    // From each point on.
    std::vector<double> falls(grid.size() + 1, by_layers(end));
    for (std::size_t k = grid.size(); k-- > 0;) {
        const double square = std::expm1(2 / t * (grid[k].value.real() + grid[k].error - least));
        falls[k] = std::max(falls[k + 1], 0.5 * t * std::log1p(square + 2 * slack_of_grid / t) + 1e-9);
    }
    return [by_layers, falls, step](double tau) {
        const double far = by_layers(tau), k = std::floor(tau / step);
        return k < static_cast<double>(falls.size()) ? std::min(far, falls[static_cast<std::size_t>(k)])
                                                     : far;
    };
}

Bulk::Edge Bulk::edge(double power, double theta, double log_moment) const {
    const double t = law_.steps, far = 9;
    // eta: the mean of all normal variables lies nearer to 0, tilted or not, but for two tails beyond `far`.
    const double eta = far / std::sqrt(t) + power * law_.mu / t, tails = 2 * gaussian_tail(far);
    const CutStep::Log log = at(theta);
    if (!std::isfinite(log.error)) return {1, infinity};
    // Outcomes whose largest normal variable lies between the cut and 2 eta more, slice by slice.
    double log_rim = -infinity;
    const double slice = 2 * eta / slices_of_rim;
    for (int i = 0; i < slices_of_rim; ++i) {
        const double left = step_.end() + slice * i,
                     most = theta / t * std::expm1(law_.mu * (left + slice - 0.5 * law_.mu));
        log_rim = log_add(log_rim, most - 0.5 * left * left);
    }
    log_rim += std::log(slice / std::sqrt(2 * pi)) - (log.value.real() - log.error) / t + 1e-9;
    const double more = t * std::exp(std::min(log_rim, 700.0));
    const double log_whole =
        power * psi(Complex(std::log(theta / power))).real() + log.value.real() + log.error - log_moment;
    const double rim =
        std::exp(std::min(log_whole + (more < 1e-3 ? std::log(1.01 * more) : std::min(more, 1e6)), 700.0));
    const double whole = (1 + rim) / (1 - tails);
    const double kept = 1 - t * step_.beyond_q();
    if (!(kept > 0.5)) return {1, infinity};
    return {whole * 1.0001, rim + tails * whole + 2 * tails / kept};
}

// By Jensen's inequality, from E[V; no W > c] and their Q-mass.
double Bulk::log_least_moment(double power) const {
    const double p = std::log1p(-step_.beyond_p()), q = std::log1p(-step_.beyond_q());
    return law_.steps * q + power * (p - q) + 1e-12 * (law_.steps * q + power * p);
}

CutStep::Log Rest::at(double s) const {
    if (s > 0 && !(s / law_.steps * std::exp(law_.mu * (top_ - 0.5 * law_.mu)) < largest_exponent))
        return {0, infinity};
    return run(s, 0, 1)[0];
}

// By nodes, and from the place on from which W turns often at all these frequencies along rays.
std::vector<CutStep::Log> Rest::run_beyond(Complex s, double step, std::size_t size) const {
    const Complex most = s + Complex(0, step * static_cast<double>(size));
    const double place = std::max(step_.end(), RatioTail::first_place(law_, s.imag() / law_.steps)),
                 last = std::min(top_, step_.last_node());
    if (place > step_.end() && !(place < last - least_between))
        return step_.beyond(step_.nodes_beyond(most, top_), s, step, size);
    auto out = top_ < infinity ? BetweenPlaces(law_, place, top_, s.imag(), most).row(s, step, size)
                               : BeyondPlace(law_, place, s.imag(), most).row(s, step, size);
    if (!(place > step_.end())) return out;
    const auto nearer = step_.beyond(step_.nodes_beyond(most, place), s, step, size);
    for (std::size_t j = 0; j < size; ++j) {
        out[j].value += nearer[j].value;
        out[j].error += nearer[j].error + u * std::abs(out[j].value);
    }
    return out;
}

std::vector<CutStep::Log> Rest::run(Complex s, double step, std::size_t size) const {
    const auto beyond = run_beyond(s, step, size);
    auto out = bulk_.run(s, step, size);
    for (std::size_t j = 0; j < size; ++j) out[j] = join(out[j], beyond[j]);
    return out;
}

// |(phi + r)^T - phi^T| <= T |r| (|phi| + |r|)^{T-1}
std::function<double(double)> Rest::log_decay(double s) const {
    const CutStep::Log log = step_.log_below(step_.nodes_below(s), s),
                       beyond = step_.beyond(step_.nodes_beyond(s, top_), s), whole = join(log, beyond);
    const double t = law_.steps, one = std::exp((log.value.real() + log.error) / t) * (1 + 4 * u),
                 r = beyond.value.real() + beyond.error,
                 log_front = std::log(t * r) - whole.value.real() + whole.error + 1e-9;
    // For s < 0 the tilted density f of W falls from the cut on: |r| <= 2 f/|Im s/T| as well.
    const double g = step_.end(), mu = law_.mu, excess = std::expm1(mu * (g - 0.5 * mu)),
                 log_edge = s > 0 ? infinity
                                  : std::log(2 * t / (mu * std::sqrt(2 * pi)) / r) - 0.5 * g * g -
                                        std::log1p(excess) + s * excess / t + 1e-9;
    return [t, one, r, log_front, log_edge, below = bulk_.log_decay(s)](double tau) {
        return log_front + std::min(0.0, log_edge - std::log(tau)) +
               (t - 1) * std::log(one * std::exp(below(tau) / t) * (1 + 4 * u) + r);
    };
}

CutStep::Log Rest::join(const CutStep::Log& log, const CutStep::Log& beyond) const {
    const double t = law_.steps;
    // Hardly more than its size is known: |(phi + r)^T - phi^T| <= T |r| (|phi| + |r|)^{T-1}.
    const auto size_alone = [&]() -> CutStep::Log {
        const double most = std::abs(beyond.value) + beyond.error;
        return {std::log(t * most) + (t - 1) * std::log(most_of(log, beyond, t)) * (1 + 8 * u),
                std::log(3.0) + 1e-9};
    };
    // scale * value, where that has digits.
    const auto scaled = [&](const CutStep::Log& scale, Complex value, double error) -> CutStep::Log {
        if (!(error < 0.5 * std::abs(value))) return size_alone();
        const Complex sum = scale.value + std::log(value);
        return {sum, scale.error + 2 * error / std::abs(value) + 8 * u * std::abs(sum)};
    };
    if (const CutStep::Log r = beside(log, beyond, t); std::isfinite(r.error)) {
        // e^{x} - 1 moves by |dx| e^{|x| + |dx|}, and x by T |dr|/(1 - |r| - |dr|).
        const Complex x = t * log1p(r.value), whole = expm1(x);
        const double dx = 2 * t * r.error + 8 * u * std::abs(x);
        return scaled(log, whole, dx * std::exp(std::max(0.0, x.real()) + dx) + 8 * u * std::abs(whole));
    }
    const CutStep::Log sum = added(log, beyond, t);
    if (!std::isfinite(sum.error)) return size_alone();
    // Relative to the larger of both powers.
    const Complex each = std::log(sum.value), power = t * each;
    const double error = t * (2 * sum.error / std::abs(sum.value) + 8 * u * (1 + std::abs(each)));
    const bool more = power.real() > log.value.real();
    const Complex less = std::exp(more ? log.value - power : power - log.value);
    return scaled(
        more ? CutStep::Log{power, error} : log, more ? 1.0 - less : less - 1.0,
        std::abs(less) * std::expm1(log.error + error) + 8 * u * (1 + std::abs(log.value) + std::abs(power)));
}

Ladder::Ladder(const Allocation& law, const CutStep& first, double top) : top_(top) {
    if (!(top > first.end())) return;
    const auto loss = [&](double g) { return std::log1p(std::exp(law.mu * (g - 0.5 * law.mu)) / law.steps); };
    const double low = loss(first.end()), width = loss(top) - low,
                 count = std::clamp(std::ceil(width / widest_part), 1.0, most_parts);
    cuts_.push_back(first);
    for (double i = 1; i < count; ++i) {
        const double w = law.steps * std::expm1(low + width * i / count);
        cuts_.push_back(CutStep::at(law, std::log(w) / law.mu + 0.5 * law.mu, most_halvings));
    }
    for (std::size_t i = 0; i < cuts_.size(); ++i) parts_.emplace_back(law, cuts_[i], this->top(i));
}

Decided::Decided(const Allocation& law, double epochs, double g)
    : Decided(-std::expm1(epochs * (std::log1p(-gaussian_tail(g - law.mu)) +
                                    (law.steps - 1) * std::log1p(-gaussian_tail(g)))),
              -std::expm1(epochs * law.steps * std::log1p(-gaussian_tail(g))), g) {}

// Squares of the cut round, and so does its distance from mu.
Decided::Decided(double p, double q, double g) : p_(p), q_(q), rounding_(64 + 8 * g * g) {}

Inverted Decided::add_to(Inverted out, double c) const {
    if (!(p_ > 0)) return out;
    const double log_scale = std::max(out.log_scale, std::log(p_)),
                 scale = std::exp(out.log_scale - log_scale), unit = std::exp(-log_scale);
    const double size = std::abs(out.value) + out.aliasing + out.noise + out.tail + out.quadrature,
                 others = (p_ + c * q_) * unit;
    out.value = out.value * scale + (p_ - c * q_) * unit;
    out.slope = out.slope * scale + c * q_ * unit;
    out.aliasing *= scale;
    out.noise *= scale;
    out.tail *= scale;
    out.quadrature *= scale;
    out.round_off = out.round_off * scale +
                    u * (size * scale * (16 + 4 * (std::abs(log_scale) + std::abs(out.log_scale))) +
                         others * (rounding_ + 4 * std::abs(log_scale)));
    out.log_scale = log_scale;
    return out;
}

Inverted Split::with_others(const Inverted& inverted, double epsilon) const {
    if (const auto* large = std::get_if<LargeRatios>(&others)) return together(inverted, large->at(epsilon));
    return std::get<Decided>(others).add_to(inverted, std::exp(epsilon));
}

Answer Split::describe(const Inverted& at) const {
    std::size_t size = 0;
    for (const Contour& line : lines) size += line.integrand.size();
    return hockeystick::describe(at, lines[0].step, size);
}

}  // namespace hockeystick
