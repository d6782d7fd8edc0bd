#include "inversion/allocation_step.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "inversion/turning.hpp"
#include "numerics/constants.hpp"
#include "numerics/gauss_legendre.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

// proof: the first node, as `below_first` is of what lies below it.
constexpr double first_node = -10.5;
// speed: the panels' width, the order of the rule on each, and the error, beside 1/T or the mass beyond the
// cut, from which on they are not halved.
constexpr double panel = 1.5;
constexpr int order = 20;
constexpr double panel_error = 1e-19, panel_error_beyond = 1e-15;
// proof: what a normal variable has below the first node, with room for its mean absolute value; where Re s <
// 0 beside the integral of e^{s(W-1)/T}.
constexpr double below_first = 1e-24;
// speed: the farthest cut; ln of what is left out beyond the last node, beside what is beyond the cut.
constexpr double farthest_cut = 37, log_beyond_last = 44;

// proof: |s (W - 1)/T| where moments do.
constexpr double largest_small = 1;
// proof: moments of larger W overflow, and exponentials of more.
constexpr double largest_power = 1e12, largest_exponent = 700;

// At least the modulus.
double size_of(Complex z) { return std::abs(z.real()) + std::abs(z.imag()); }

}  // namespace

CutStep::CutStep(const Allocation& law, double mass, int most_halvings) : CutStep(law, most_halvings) {
    double low = 0, high = farthest_cut + law.mu;
    for (int i = 0; i < 60; ++i) {
        const double middle = 0.5 * (low + high);
        (left_out_of(middle) > mass ? low : high) = middle;
    }
    set(high);
}

CutStep CutStep::at(const Allocation& law, double end, int most_halvings) {
    CutStep out(law, most_halvings);
    out.set(end);
    return out;
}

void CutStep::set(double end) {
    end_ = end;
    beyond_q_ = gaussian_tail(end_);
    beyond_p_ = gaussian_tail(end_ - law_.mu);
}

double CutStep::left_out_of(double end) const {
    return gaussian_tail(end - law_.mu) + (law_.steps - 1) * gaussian_tail(end);
}

double CutStep::largest() const { return std::expm1(law_.mu * (end_ - 0.5 * law_.mu)); }

CutStep::Nodes CutStep::nodes_below(Complex most) const {
    Nodes nodes;
    // A tilt of Re s < 0 moves the normal variable by so much.
    const double pull = std::max(0.0, -most.real() / law_.steps), moved = law_.mu * pull,
                 first = std::max(first_node - moved, -farthest_cut),
                 panels = std::ceil((end_ - first) / panel), width = (end_ - first) / panels;
    for (double j = 0; j < panels; ++j)
        add_panel(nodes, first + width * j, first + width * (j + 1), most / law_.steps, Part::below, 0);
    // Before the first node e^{s(W-1)/T} <= e^{pull min(1, mu^2/2 - mu g)}.
    if (pull > 0)
        nodes.error +=
            1.01 * std::min(std::exp(pull) * gaussian_tail(-first),
                            std::exp(0.5 * moved * (moved + law_.mu)) * gaussian_tail(-first - moved));
    sum_moments(nodes, std::abs(most) / law_.steps);
    return nodes;
}

// Nodes are many where W is about 1, and each exponential is dear.
void CutStep::sum_moments(Nodes& nodes, double reach) {
    const auto is_small = [&](std::size_t i) {
        return std::abs(nodes.excess[i]) <= std::min(largest_small / reach, largest_power);
    };
    for (std::size_t i = 0; i < nodes.excess.size(); ++i) {
        if (!is_small(i)) continue;
        for (auto* values : {&nodes.weight, &nodes.excess, &nodes.slack})
            std::swap((*values)[i], (*values)[nodes.small]);
        ++nodes.small;
    }
    nodes.reach = reach;
    for (std::size_t i = 0; i < nodes.small; ++i) {
        const double x = nodes.excess[i], slack = nodes.slack[i];
        double term = nodes.weight[i] * x;
        for (std::size_t k = 0; k < nodes.moment.size(); ++k) nodes.moment[k] += term *= x;
        nodes.second_slack += slack * nodes.weight[i] * x * x;
    }
    double factorial = 1;
    for (std::size_t k = 0; k < nodes.moment.size(); ++k)
        nodes.moment[k] /= factorial *= static_cast<double>(k + 2);
}

double CutStep::last_node() const { return std::sqrt(end_ * end_ + 2 * log_beyond_last); }

// Beyond the last node |e^{s(W-1)/T}| is at most what it is at the top, or 1 where Re s < 0. It may grow
// faster than the normal law falls, so that all there is up to a top has nodes.
CutStep::Nodes CutStep::nodes_beyond(Complex most, double top) const {
    Nodes nodes;
    const double last = top < infinity ? std::min(top, farthest_cut + law_.mu) : last_node(),
                 panels = std::ceil((last - end_) / panel), width = (last - end_) / panels;
    for (double j = 0; j < panels; ++j)
        add_panel(nodes, end_ + width * j, end_ + width * (j + 1), most / law_.steps, Part::beyond, 0);
    const double rise =
        most.real() > 0 ? most.real() / law_.steps * std::expm1(law_.mu * (top - 0.5 * law_.mu)) : 0;
    if (last < top) nodes.error += 1.01 * gaussian_tail(last) * std::exp(rise);
    return nodes;
}

// An integrand f analytic within the Bernstein ellipse rho of a panel is integrated to 64/15 max |f| rho^{-2
// order}/(1 - rho^{-2}) half-widths (Trefethen 2008). There |N(x + iy)| <= N(x) e^{y^2/2}, W turns by mu y,
// and |psi(v)| <= max(1, e^{Re v}) |v|^2/2. Panels are halved until that is little.
void CutStep::add_panel(Nodes& nodes, double low, double high, Complex theta, Part part, int depth) const {
    static const GaussLegendre<order> rule;
    const double half = 0.5 * (high - low), middle = 0.5 * (high + low);
    double error = infinity;
    for (const double rho : {2.5, 4.0, 6.0, 9.0}) {
        const double wide = 0.5 * (rho + 1 / rho) * half, tall = 0.5 * (rho - 1 / rho) * half;
        const double left = middle - wide, right = middle + wide,
                     nearest = left > 0    ? left
                               : right < 0 ? -right
                                           : 0;
        const double least = std::exp(law_.mu * (left - 0.5 * law_.mu)),
                     most = std::exp(law_.mu * (right - 0.5 * law_.mu));
        const double turned = most * law_.mu * tall, cosine = std::cos(std::min(law_.mu * tall, pi));
        // Re W lies between these.
        const double lowest = cosine > 0 ? least * cosine : -most;
        const double up = theta.real() > 0 ? theta.real() * (most - 1) : theta.real() * (lowest - 1);
        const double rise = up + theta.imag() * turned;
        const double v = std::abs(theta) * (std::max(most - 1, 1 - least) + turned);
        const double log_f = 0.5 * (tall * tall - nearest * nearest) +
                             (part == Part::beyond ? rise : std::max(0.0, rise) + std::log(0.5 * v * v));
        error = std::min(error, std::exp(log_f - 2 * order * std::log(rho)) / (1 - 1 / (rho * rho)));
    }
    error *= 64.0 / 15 * half / std::sqrt(2 * pi);
    const bool below = part == Part::below;
    if (!(error < (below ? panel_error / law_.steps : panel_error_beyond * beyond_q_)) &&
        depth < most_halvings_) {
        add_panel(nodes, low, middle, theta, part, depth + 1);
        add_panel(nodes, middle, high, theta, part, depth + 1);
        return;
    }
    nodes.error += error;
    for (std::size_t i = 0; i < order; ++i) {
        const double x = middle + half * rule.node[i];
        nodes.weight.push_back(half * rule.weight[i] * std::exp(-0.5 * x * x) / std::sqrt(2 * pi));
        nodes.excess.push_back(std::expm1(law_.mu * (x - 0.5 * law_.mu)));
        nodes.slack.push_back(16 + 4 * x * x + 4 * law_.mu * (std::abs(x) + law_.mu));
    }
}

// For |v| <= 1, |psi(v)| <= 0.72 |v|^2, |e^v - 1| <= 1.72 |v|, and terms left out come to 1.2 |v|^2/19!.
CutStep::Sum CutStep::sum_of_small(const Nodes& nodes, Complex theta) {
    if (nodes.small == 0) return {};
    const double additions = static_cast<double>(nodes.weight.size());
    Complex sum = 0;
    for (std::size_t k = nodes.moment.size(); k-- > 0;) sum = sum * theta + nodes.moment[k];
    return {sum * theta * theta,
            std::norm(theta) * (3 * nodes.second_slack + 4 * (additions + 120) * nodes.moment[0])};
}

CutStep::Log CutStep::log_of(const Nodes& nodes, Complex theta, const Sum& found) const {
    // E[1] and E[W - 1] without what is cut.
    const Complex sum = found.value + theta * (beyond_q_ - beyond_p_) - beyond_q_;
    const double error = u * found.error + nodes.error + below_first * (1 + std::abs(theta)) +
                         1e-12 * (beyond_q_ + std::abs(theta) * beyond_p_),
                 whole = std::abs(1.0 + sum);
    if (std::isnan(whole + error)) return {0, infinity};
    // Nothing but its size is known: any two numbers of that size differ by twice as much at most.
    if (!(error < 0.5 * whole)) return {law_.steps * std::log(whole + error), std::log(3.0) + 1e-9};
    const Complex log = law_.steps * log1p(sum);
    return {log, law_.steps * 2 * error / whole + 8 * u * std::abs(log)};
}

CutStep::Log CutStep::log_below(const Nodes& nodes, Complex s) const {
    const Complex theta = s / law_.steps;
    const double additions = static_cast<double>(nodes.weight.size());
    const bool by_moments = std::abs(theta) <= nodes.reach;
    Sum sum = by_moments ? sum_of_small(nodes, theta) : Sum{};
    for (std::size_t i = by_moments ? nodes.small : 0; i < nodes.weight.size(); ++i) {
        const Complex v = theta * nodes.excess[i];
        if (!(v.real() < largest_exponent)) return {0, infinity};
        const Complex p = psi(v);
        sum.value += nodes.weight[i] * p;
        sum.error += nodes.weight[i] * ((nodes.slack[i] + additions) * size_of(p) +
                                        nodes.slack[i] * size_of(v) * size_of(p + v));
    }
    return log_of(nodes, theta, sum);
}

namespace {

// As long as the lanes of what turns; the rest weighs nothing.
std::vector<double> padded(std::span<const double> values, std::size_t size) {
    std::vector<double> out(values.begin(), values.end());
    out.resize(size);
    return out;
}

}  // namespace

// Where |v| is large, e^v - 1 - v has as many digits as e^v has.
std::vector<CutStep::Log> CutStep::log_below(const Nodes& nodes, Complex s, double step,
                                             std::size_t size) const {
    std::vector<Log> out(size);
    const auto s_at = [&](std::size_t j) { return s + Complex(0, step * static_cast<double>(j)); };
    if (size == 1 || !(std::abs(s_at(size - 1) / law_.steps) <= nodes.reach)) {
        for (std::size_t j = 0; j < size; ++j) out[j] = log_below(nodes, s_at(j));
        return out;
    }
    const auto others = [&](const std::vector<double>& all) { return std::span(all).subspan(nodes.small); };
    Turning turning(others(nodes.excess), s / law_.steps, step / law_.steps);
    const std::vector<double> x = padded(others(nodes.excess), turning.size()),
                              weight = padded(others(nodes.weight), turning.size()),
                              slack = padded(others(nodes.slack), turning.size());
    for (const double each : x)
        if (!(s.real() / law_.steps * each < largest_exponent)) return std::vector<Log>(size, {0, infinity});
    const double additions = static_cast<double>(nodes.weight.size());
    for (std::size_t j = 0; j < size; ++j) {
        if (j > 0) turning.turn();
        const Complex theta = s_at(j) / law_.steps;
        const double turned = turning.rounding();
        const auto [real, imaginary, error] = turning.sum<3>([&](std::size_t i) {
            const double right = theta.real() * x[i], up = theta.imag() * x[i],
                         size_of_v = std::abs(right) + std::abs(up), more = turning.real(i) - 1,
                         p = more - right, q = turning.imaginary(i) - up;
            return std::array{
                weight[i] * p, weight[i] * q,
                weight[i] * ((slack[i] + additions) * (std::abs(p) + std::abs(q)) +
                             slack[i] * size_of_v * (std::abs(more) + std::abs(turning.imaginary(i))) +
                             (turned + 4 * size_of_v) * (turning.modulus(i) + 1 + size_of_v))};
        });
        const Sum small = sum_of_small(nodes, theta);
        out[j] = log_of(nodes, theta, {small.value + Complex(real, imaginary), small.error + error});
    }
    return out;
}

std::vector<CutStep::Log> CutStep::beyond(const Nodes& nodes, Complex s, double step,
                                          std::size_t size) const {
    Turning turning(nodes.excess, s / law_.steps, step / law_.steps);
    const std::vector<double> weight = padded(nodes.weight, turning.size());
    const double additions = static_cast<double>(nodes.weight.size());
    double modulus = 0, slack = 0, slack_by_theta = 0;
    for (std::size_t i = 0; i < nodes.weight.size(); ++i) {
        const double each = weight[i] * turning.modulus(i);
        modulus += each;
        slack += each * nodes.slack[i];
        slack_by_theta += each * nodes.slack[i] * std::abs(nodes.excess[i]);
    }
    std::vector<Log> out(size);
    for (std::size_t j = 0; j < size; ++j) {
        if (j > 0) turning.turn();
        const double size_of_theta =
                         (std::abs(s.real()) + std::abs(s.imag()) + step * static_cast<double>(j)) /
                         law_.steps,
                     error =
                         slack + size_of_theta * slack_by_theta + (additions + turning.rounding()) * modulus;
        const auto [real, imaginary] = turning.sum<2>([&](std::size_t i) {
            return std::array{weight[i] * turning.real(i), weight[i] * turning.imaginary(i)};
        });
        out[j] = {{real, imaginary}, u * error + 1.01 * nodes.error};
    }
    return out;
}

// speed: how many layers there are, and how far below the mode the last is; it must reach the W of which
// there are so many among all steps.
constexpr int layers = 48;
constexpr double lowest_layer = 20, deepest_layer = 80, enough_ratios = 30;
// proof: more than what the layers' masses round by.
constexpr double rounding_of_layers = 1e-9;

// The logarithm of the density, as a function of g, is concave as far as W <= 1/(theta mu^2): where it
// exceeds a level is an interval there. Beyond it is convex, and so no larger than at either end.
StepLayers::StepLayers(const Allocation& law, double end, double theta) {
    const double mu = law.mu,
                 last = theta > 0 ? std::min(end, 0.5 * mu - std::log(theta * mu * mu) / mu) : end;
    const auto w_at = [&](double g) { return std::exp(mu * (g - 0.5 * mu)); };
    const auto log_density = [&](double g) {
        return -0.5 * g * g - mu * (g - 0.5 * mu) + theta * std::expm1(mu * (g - 0.5 * mu)) -
               std::log(mu * std::sqrt(2 * pi));
    };
    if (!(last > first_node)) return;
    // Where a decreasing condition ceases to hold: a point where it holds.
    const auto last_where = [](double low, double high, const auto& holds) {
        if (holds(high)) return high;
        for (int i = 0; i < 40; ++i) {
            const double middle = 0.5 * (low + high);
            (holds(middle) ? low : high) = middle;
        }
        return low;
    };
    const auto rises = [&](double g) { return -g - mu + theta * mu * w_at(g) >= 0; };
    const double mode = last_where(first_node, last, rises);
    const double peak = log_density(mode);
    if (rises(first_node))
        log_variation_ = std::max(peak, log_density(end)) + std::log(last < end ? 4.0 : 2.0) + 1e-9;
    const double far = std::sqrt(2 * std::log(std::max(1.0, law.steps / enough_ratios))),
                 depth = std::clamp(peak - log_density(std::min(far, last)), lowest_layer, deepest_layer);
    const auto level = [&](int k) { return peak - depth * std::pow((k + 1.0) / layers, 2); };
    for (int k = 0; k < layers; ++k) {
        const auto inside = [&](double g) { return log_density(g) >= level(k); };
        const double right = w_at(last_where(mode, last, inside)),
                     left = w_at(-last_where(-mode, -first_node, [&](double g) { return inside(-g); })),
                     rise = std::exp(level(k)) - (k + 1 < layers ? std::exp(level(k + 1)) : 0.0);
        mass_.push_back((1 - rounding_of_layers) * rise * (right - left));
        half_width_.push_back((1 - rounding_of_layers) * 0.5 * (right - left));
    }
}

// |sin x/x| falls as far as 2.5, and is nowhere larger from there on.
double StepLayers::lost(double tau) const {
    double sum = 0;
    for (std::size_t k = 0; k < mass_.size(); ++k) {
        const double x = half_width_[k] * tau;
        sum += mass_[k] * (x < 0.5   ? x * x * (1.0 / 6 - x * x / 120)
                           : x < 2.5 ? 1 - std::sin(x) / x
                                     : 1 - std::min(0.24, 1 / x));
    }
    return sum;
}

}  // namespace hockeystick
