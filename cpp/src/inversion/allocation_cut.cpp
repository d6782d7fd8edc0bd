#include "inversion/allocation_cut.hpp"

#include <algorithm>
#include <cmath>

#include "hockeystick/parallel.hpp"
#include "inversion/allocation_gamma_kernel.hpp"
#include "numerics/constants.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

// speed: how many nodes there are on a line, and times those of one step; the share of M that an error may
// have.
constexpr double most_nodes = 2e4, most_work = 2e7, worst_error = 1e-8;
constexpr int fewer_halvings = 6;
constexpr std::size_t block = 32;  // nodes that one turns into the next; errors grow with their number
// proof: terms below e^this are left out, and counted as that much each.
constexpr double log_nothing = -80;

}  // namespace

CutAllocation::CutAllocation(const Allocation& law, double mass)
    : law_(law), step_(law, mass, fewer_halvings), dropped_(step_.left_out() * (1 + 1e-12)) {}

// Where s V weighs most under V^power.
double CutAllocation::tilt_for(const CutStep::Nodes& nodes, double power) const {
    double s = power;
    for (int i = 0; i < 4; ++i) {
        const double h = 0.01 * s,
                     rise = step_.log_below(nodes, s + h).value.real() -
                            step_.log_below(nodes, s - h).value.real(),
                     mean = 1 + rise / (2 * h);
        if (!(mean > 0.9 && mean < 1.3)) return power;
        s = power / mean;
    }
    return s;
}

namespace {

// Gamma(p+1) e^s s^{-p-1} at s.
class LineKernel {
public:
    explicit LineKernel(Complex p) : p_(p), prefix_(0.5 * std::log(2 * pi * p) + stirling_rest(p)) {}
    LogKernel at(double s0, double v) const {
        const Complex w(log_size(s0, v), std::atan2(v, s0) - std::arg(p_)), p = psi(w);
        return {prefix_ - std::log(Complex(s0, v)) + p_ * p,
                60 + std::abs(p_) * (8 * std::abs(p) + 6 * std::abs(p + w))};
    }

private:
    // ln |s/p| without cancellation near 0.
    double log_size(double s0, double v) const {
        const double size = std::norm(p_),
                     more = (s0 - p_.real()) * (s0 + p_.real()) + (v - p_.imag()) * (v + p_.imag());
        return 0.5 * std::log1p(more / size);
    }
    Complex p_, prefix_;
};

// ln of a bound on the integral of |Gamma(p+1) e^x s^{-p-1}| along Re s = x.
double log_line(Complex p, double x) {
    const double power = p.real(), tau = std::abs(p.imag()), angle = std::atan2(tau, power - 1);
    return log_gamma(p + 1.0).real() + x - power * std::log(x) + (power - 1) * std::log(std::cos(angle)) +
           tau * angle + std::log(pi) + 1e-9 + 64 * u * std::abs(p) * (1 + std::log(std::abs(p)));
}

}  // namespace

// A strip around the line, and ln of bounds on E[e^{s (V-1)}] on its edges.
struct CutAllocation::Strip {
    double width = 0, left = 0, right = 0;
};

// Where the line runs, its nodes' distance and the strip around it.
struct CutAllocation::Line {
    double s0, at_s0;  // and ln E[e^{s0 (V-1)}]
    double step = infinity;
    Strip strip;
    CutStep::Nodes nodes;
    std::vector<CutStep::Log> logs;  // at the nodes from the real one on

    // ln of the larger of the integrals' bounds along both edges.
    double log_on(const Strip& edges, Complex p) const {
        return std::max(log_line(p, s0 + edges.width) + edges.right,
                        log_line(p, s0 - edges.width) + edges.left) -
               std::log(2 * pi);
    }
};

CutAllocation::Strip CutAllocation::strip_of(const Line& line, double width) const {
    const auto edge = [&](double s) {
        const CutStep::Log log = step_.log_below(line.nodes, s);
        return log.value.real() + log.error;
    };
    return {width, edge(line.s0 - width), edge(line.s0 + width)};
}

// The step: the widest that serves the lowest and the highest frequency, each by a strip of its own.
void CutAllocation::choose_step(Line& line, double power, std::span<const double> tau,
                                double log_error) const {
    std::vector<Strip> strips;
    for (int i = 0; i < 24; ++i) strips.push_back(strip_of(line, 0.15 * line.s0 * std::exp(-0.3 * i)));
    for (const double t : {tau.front(), tau.back()}) {
        double best = 0;
        Strip best_strip;
        for (const Strip& strip : strips) {
            const double turns = std::max(4.0, line.log_on(strip, {power, t}) + std::log(4.0) - log_error),
                         step = 2 * pi * strip.width / turns;
            if (std::isfinite(turns) && step > best) best = step, best_strip = strip;
        }
        if (best < line.step) line.step = best, line.strip = best_strip;
    }
}

// What lies beyond v, on both sides: with nu = p + 1 - tau s0/v the kernel's modulus falls at least by nu
// v/(s0^2 + v^2), so like e^{-nu v^2/(4 s0^2)} up to s0 and like v^{-nu/2} from there on. The logarithm.
double CutAllocation::log_beyond(const Line& line, Complex p, double v) {
    const LineKernel kernel(p);
    const double s0 = line.s0, far = std::max(v, s0);
    const auto fall = [&](double at) { return p.real() + 1 - p.imag() * s0 / at; };
    const auto front = [&](double at) { return kernel.at(s0, at).log.real() + line.at_s0 - std::log(pi); };
    if (!(fall(v) > 2)) return infinity;
    const double power_tail = front(far) + std::log(far / (0.5 * fall(far) - 1));
    const double normal_part = v < s0 ? front(v) + std::log(2 * s0 * s0 / (fall(v) * v)) : -infinity;
    return std::max(power_tail, normal_part) + std::log(2.0);
}

// False where there would be too many nodes, or one of them overflows.
bool CutAllocation::fill(Line& line, double power, double highest, double log_error) const {
    double more = 6 * std::sqrt(power), last = highest + more;
    while (log_beyond(line, {power, highest}, last) > log_error ||
           log_beyond(line, {power, 0}, last) > log_error) {
        last += more *= 1.1;
        if (last > line.step * most_nodes) return false;
    }
    line.logs.resize(static_cast<std::size_t>(std::ceil(last / line.step)) + 1);
    const CutStep::Nodes nodes =
        step_.nodes_below({line.s0, line.step * static_cast<double>(line.logs.size())});
    if (static_cast<double>(nodes.weight.size() * line.logs.size()) > most_work) return false;
    parallel_ranges(line.logs.size(), block, [&](std::size_t begin, std::size_t end) {
        const auto found =
            step_.log_below(nodes, {line.s0, line.step * static_cast<double>(begin)}, line.step, end - begin);
        std::copy(found.begin(), found.end(), line.logs.begin() + static_cast<std::ptrdiff_t>(begin));
    });
    return std::all_of(line.logs.begin(), line.logs.end(),
                       [](const CutStep::Log& log) { return std::isfinite(log.error); });
}

CutAllocation::Value CutAllocation::sum(const Line& line, Complex p, double shift) const {
    const LineKernel kernel(p);
    Complex sum = 0, mean = 0, variance = 0;  // the last two: of ln s, with the terms as weights
    double error = 0;
    // The node `n` steps above the real line; false once no more of it nor of those beyond counts.
    const auto add = [&](std::ptrdiff_t n) {
        const double v = line.step * static_cast<double>(n);
        const auto [log_kernel, slack] = kernel.at(line.s0, v);
        const Complex front = log_kernel - shift;
        if (front.real() + line.at_s0 < log_nothing) return false;
        const CutStep::Log& other = line.logs[static_cast<std::size_t>(std::abs(n))];
        const Complex log = front + (n < 0 ? std::conj(other.value) : other.value);
        const double modulus = std::exp(log.real());
        const Complex term = std::polar(modulus, log.imag()), log_s = std::log(Complex(line.s0, v));
        sum += term;
        mean += term * log_s;
        variance += term * log_s * log_s;
        error += modulus * (std::expm1(other.error) + u * (slack + 8 * std::abs(log)));
        return true;
    };
    // The kernel's modulus falls to both sides of its peak, where Im s/s0 = Im p/(Re p + 1).
    const auto end = static_cast<std::ptrdiff_t>(line.logs.size()) - 1;
    const std::ptrdiff_t peak =
        std::min(end, static_cast<std::ptrdiff_t>(p.imag() * line.s0 / (p.real() + 1) / line.step));
    for (std::ptrdiff_t n = peak + 1; n <= end && add(n);) ++n;
    for (std::ptrdiff_t n = peak; n >= -end && add(n);) --n;
    const double alias =
        std::exp(line.log_on(line.strip, p) - shift) * 2 / std::expm1(2 * pi * line.strip.width / line.step);
    const double left_out = std::exp(log_beyond(line, p, line.step * static_cast<double>(end)) - shift) +
                            static_cast<double>(2 * end + 2) * line.step * std::exp(log_nothing);
    mean /= sum;
    const Polygamma of_gamma(p.real() + 1);
    return {sum * line.step / (2 * pi), of_gamma.first - mean, of_gamma.second + variance / sum - mean * mean,
            error * line.step / (2 * pi) + alias + left_out};
}

std::optional<Moments> CutAllocation::moments(double power, std::span<const double> tau, double log_scale,
                                              double tolerance) const {
    if (!(power >= least_power)) return {};
    Line line;
    line.nodes = step_.nodes_below(1.3 * power);
    line.s0 = tilt_for(line.nodes, power);
    const CutStep::Log at_s0 = step_.log_below(line.nodes, line.s0);
    if (!(at_s0.error < worst_error)) return {};
    line.at_s0 = at_s0.value.real();
    const double log_error = log_scale + std::log(tolerance);
    choose_step(line, power, tau, log_error);
    if (!(line.step > 0) || !fill(line, power, tau.back(), log_error - 2)) return {};
    Moments out;
    out.value.resize(tau.size());
    out.error.resize(tau.size());
    out.shift = log_scale > 20 ? log_scale : 0;
    parallel_for(tau.size(), [&](std::size_t j) {
        const Value found = sum(line, {power, tau[j]}, out.shift);
        out.value[j] = found.value;
        out.error[j] = found.error;
        if (j == 0) out.first = found.first.real(), out.second = found.second.real();
    });
    return out;
}

Bulk::Edge CutAllocation::edge(double power, double log_moment) const {
    return Bulk(law_, step_).edge(power, tilt_for(step_.nodes_below(1.3 * power), power), log_moment);
}

}  // namespace hockeystick
