#include "inversion/allocation_powers.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "hockeystick/parallel.hpp"
#include "inversion/saddle.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// speed: how far from p the line's theta may be; how closely it is looked for; how many nodes there may be;
// the strips around it; the cells in which its decay is bounded, and their ends beside theta. Of large powers
// all of that is narrower: so many standard deviations. Within a run terms change by up to about e to a third
// of them beside each other, and no row has as many frequencies as the longest.
constexpr double farthest_theta = 1e12, close_theta = 0.05, most_nodes = 1e5;
constexpr int strips_tried = 24, cells = 96;
constexpr double worst_log_error = -10;  // of a node, beside the real one
constexpr double first_cell = 0.05, last_cell = 1e5, deviations = 9, share_of_run = 3, longest_run = 1e9;

double log_transform(const AllocationPart& part, double theta) {
    const CutStep::Log log = part.at(theta);
    return log.value.real() + log.error + theta + 4 * u * (std::abs(log.value.real()) + theta);
}

}  // namespace

double log_power_bound(const AllocationPart& part, double power, double theta) {
    const CutStep::Log log = part.at(theta);
    if (!std::isfinite(log.error)) return infinity;
    const double x = std::log(theta / power), head = power * psi(x);
    return log.value.real() + log.error + head +
           8 * u * (std::abs(log.value.real()) + head + power * std::abs(std::expm1(x)) * (1 + std::abs(x)));
}

double best_theta(const AllocationPart& part, double power) {
    // With the bound's weights V is p/theta in the mean.
    const double last = std::log(1.5 * power), first = std::log(power / part.about_largest()),
                 close = std::min(close_theta, 0.5 / std::sqrt(power));
    const auto least_in = [&](double low, double high) {
        return lowest(low, high, close,
                      [&](double log_theta) { return log_power_bound(part, power, std::exp(log_theta)); });
    };
    const double found = least_in(first, last);
    return std::exp(found - first > close ? found
                                          : least_in(std::log(power / farthest_theta), first + close));
}

PowerLine::PowerLine(const AllocationPart& part, double power, bool kernel_alone)
    : part_(part), power_(power), theta_(best_theta(part, power)) {
    log_at_ = log_transform(part, theta_);
    log_upper_ = log_power_bound(part, power, theta_);
    if (empty()) return;
    const auto decay = kernel_alone ? [](double) { return 0.0; } : part_.log_decay(theta_);
    const double first = std::min(first_cell, 1 / std::sqrt(power));
    for (int i = 0; i <= cells; ++i) {
        v_.push_back(theta_ * first * std::pow(last_cell / first, i / double{cells}));
        log_fall_.push_back(std::min(0.0, decay(v_.back())));
    }
}

// ln of |Gamma(p+1) theta^{-p-1}| dv/d angle at theta (1 + i tan angle), p = power + i tau; rounded up.
double PowerLine::log_kernel(double tau, double theta, double angle) const {
    const double front = log_gamma({power_ + 1, tau}).real(), power = power_ * std::log(theta),
                 turned = tau * angle + (power_ - 1) * std::log(std::cos(angle));
    return front - power + turned +
           u * (shifted_error + 16 * (std::abs(front) + std::abs(power) + 2 * tau + power_ + 10));
}

// ln of a bound on the kernel's integral over a whole line: pi times its largest value, over 2 pi.
double PowerLine::log_line(double tau, double theta) const {
    return log_kernel(tau, theta, std::atan2(tau, power_ - 1)) - std::log(2.0) + 1e-9;
}

// The same beyond a cell, on both sides: from its largest value on the kernel falls, per angle.
double PowerLine::log_beyond(double tau, std::size_t cell) const {
    double log = log_line(tau, theta_);
    if (v_[cell] * (power_ - 1) > theta_ * tau) {
        const double beyond = std::atan2(theta_, v_[cell]);
        log = std::min(log, log_kernel(tau, theta_, 0.5 * pi - beyond) + std::log(beyond / (2 * pi)) + 1e-9);
    }
    return log + std::log(2.0) + log_fall_[cell] + log_at_ - log_upper_;
}

// ln of a bound on the integrals along both edges, beside e^{log_upper}.
double PowerLine::log_aliases(const Strip& strip, double tau) const {
    return std::max(log_line(tau, theta_ - strip.width) + strip.left,
                    log_line(tau, theta_ + strip.width) + strip.right) -
           log_upper_;
}

// Up to angles below that of the largest value the kernel rises, and it falls as tau does not: a bound for
// tau there is one for all higher frequencies. Beyond, the largest value for 2 tau bounds it.
double PowerLine::log_bound(double tau) const {
    const double top = theta_ * tau / (power_ + 1);
    double sum = 0, log_fall = 0, angle = -0.5 * pi;
    const double scale = log_at_ - std::log(2 * pi) - log_upper_;
    for (std::size_t i = 0; i < v_.size() && v_[i] <= top; ++i) {
        const double next = std::atan2(v_[i], theta_);
        sum += (next - angle) * std::exp(log_kernel(tau, theta_, next) + log_fall + scale);
        angle = next;
        log_fall = log_fall_[i];
    }
    sum += std::exp(std::min(700.0, log_line(2 * tau, theta_) + log_at_ - log_upper_ + log_fall));
    return log_upper_ + std::min(0.0, std::log(sum) + 1e-9);
}

std::size_t PowerLine::run_from(double tau, double step) const {
    // A single frequency may have a step of 0.
    return static_cast<std::size_t>(std::clamp(
        std::abs(Complex(power_, tau)) / (share_of_run * std::sqrt(power_)) / step, 1.0, longest_run));
}

std::optional<PowerLine::Plan> PowerLine::plan(double step, std::size_t size, double log_wanted) const {
    const double last = step * static_cast<double>(size - 1);
    Plan out{step, size, log_wanted, 0, 0, std::vector<Strip>(2)};
    // The widest step that serves the lowest and the highest frequency, each by a strip of its own. Bounds on
    // the edges are convex in the width, so that steps grow up to the best one.
    std::array<double, 2> widest{};
    bool wider = true;
    for (int i = strips_tried; wider && i-- > 0;) {
        const double width = theta_ * std::min(0.9, 2 * deviations / std::sqrt(power_)) * std::exp(-0.2 * i);
        const Strip strip{width, log_transform(part_, theta_ - width), log_transform(part_, theta_ + width)};
        wider = false;
        for (std::size_t k = 0; k < 2; ++k) {
            const double turns = std::max(4.0, log_aliases(strip, static_cast<double>(k) * last) +
                                                   std::log(4.0) - log_wanted),
                         found = 2 * pi * width / turns;
            if (found > widest[k]) widest[k] = found, out.strips[k] = strip, wider = true;
        }
    }
    const double h = out.h = std::min(widest[0], widest[1]);
    std::size_t& end = out.end;
    // Where the transform or the kernel has fallen nothing is worth a node, at any frequency.
    while (end < v_.size() && std::max(log_beyond(0, end), log_beyond(last, end)) > log_wanted - 3) ++end;
    if (end == v_.size() || !(h > 0) || !(v_[end] < h * most_nodes)) return {};
    return out;
}

PowerLine::Row PowerLine::row(double step, std::size_t size, double log_wanted) const {
    const auto planned = plan(step, size, log_wanted);
    return planned ? row(*planned) : Row{};
}

PowerLine::Row PowerLine::row(const Plan& planned) const {
    const double step = planned.step, log_wanted = planned.log_wanted, h = planned.h;
    const std::size_t size = planned.size, end = planned.end;
    const std::vector<Strip>& best = planned.strips;
    const std::vector<CutStep::Log> logs = part_.row(theta_, h, static_cast<std::size_t>(v_[end] / h) + 2);
    for (const CutStep::Log& log : logs)
        if (!(log.value.real() - logs[0].value.real() + std::log(std::expm1(log.error)) < worst_log_error))
            return {};
    Row out{std::vector<Complex>(size), std::vector<double>(size)};
    const std::vector<Node> nodes = nodes_of(h, logs);
    std::vector<std::size_t> runs;
    for (std::size_t j = 0; j < size; j += run_from(step * static_cast<double>(j), step)) runs.push_back(j);
    runs.push_back(size);
    parallel_for_light(runs.size() - 1, [&](std::size_t i) {
        add_run(nodes, h, step, runs[i], runs[i + 1], log_wanted - 3, out);
        for (std::size_t j = runs[i]; j < runs[i + 1]; ++j) {
            const double tau = step * static_cast<double>(j);
            double alias = infinity;
            for (const Strip& strip : best)
                alias = std::min(
                    alias, 2 * std::exp(log_aliases(strip, tau)) / std::expm1(2 * pi * strip.width / h));
            out.error[j] += alias + std::exp(log_beyond(tau, end));
        }
    });
    return out;
}

// The nodes on either side of the real one.
std::vector<PowerLine::Node> PowerLine::nodes_of(double h, const std::vector<CutStep::Log>& logs) const {
    std::vector<Node> out;
    const double log_theta = std::log(theta_);
    for (std::size_t i = 0; i + 1 < 2 * logs.size(); ++i) {
        const std::size_t n = (i + 1) / 2;
        const double v = (i % 2 ? -h : h) * static_cast<double>(n), q = v / theta_;
        const double more = 0.5 * std::log1p(q * q);
        const CutStep::Log& log = logs[n];
        out.push_back({{theta_, v},
                       {log_theta + more, std::atan(q)},
                       i % 2 ? std::conj(log.value) : log.value,
                       log.error,
                       log.value.real() + log.error - (power_ + 1) * more});
    }
    return out;
}

// From the first frequency on (s/p)^{-i tau} turns; and all that count fall, beside what grows fastest.
void PowerLine::add_run(const std::vector<Node>& nodes, double h, double step, std::size_t first,
                        std::size_t last, double log_nothing, Row& out) const {
    const double start = step * static_cast<double>(first),
                 length = step * static_cast<double>(last - first - 1),
                 count = static_cast<double>(nodes.size()), log_nothing_each = log_nothing - std::log(count),
                 scale = std::log(h / (2 * pi)) - log_upper_;
    const Complex p(power_, start);
    const LineKernel kernel(p);
    // Terms that do not count are only bounded.
    const double front = log_gamma(p + 1.0).real() + theta_ - (power_ + 1) * std::log(theta_) + scale;
    const auto log_size = [&](const Node& node) { return front + node.log_size + start * node.log_s.imag(); };
    double steepest = std::arg(p), kept = 0;
    for (const Node& node : nodes)
        if (log_size(node) >= log_nothing_each) steepest = std::max(steepest, node.log_s.imag()), ++kept;
    FallingSum sum;
    for (const Node& node : nodes) {
        const double about = log_size(node), fall = steepest - node.log_s.imag();
        if (about < log_nothing_each) {
            sum.fixed_error += 1.001 * std::exp(about + std::max(0.0, -fall) * length);
            continue;
        }
        const auto [log_kernel, turn, slack, turning] = kernel.at(node.s, node.log_s);
        const Complex log = log_kernel + node.log + scale;
        const double size = std::exp(log.real());
        sum.re.push_back(size * std::cos(log.imag()));
        sum.im.push_back(size * std::sin(log.imag()));
        sum.turn.push_back(-turn.real());
        sum.fall.push_back(fall);
        // The start rounds, too.
        sum.fixed.push_back(std::expm1(node.error) / u + slack + 0.25 * kept + 16 +
                            2 * start * modulus_of(turn) +
                            4 * (modulus_of(log_kernel) + modulus_of(node.log) + std::abs(scale)));
        sum.turning.push_back(8 + turning);
    }
    const auto row = sum.row(step, last - first, std::exp(log_nothing));
    for (std::size_t j = first; j < last; ++j) {
        out.value[j] = row.value[j - first];
        out.error[j] = row.error[j - first];
        if (j == first) continue;
        const double further = step * static_cast<double>(j - first),
                     grown = further * (steepest - std::arg(p));
        const LogKernel here = kernel.moved_to(p + Complex(0, further));
        const double more = std::exp(here.log.real() + grown);
        out.value[j] *= std::polar(more, here.log.imag());
        out.error[j] = more * out.error[j] + u * (here.slack + 8 * std::abs(grown)) * std::abs(out.value[j]);
    }
}

}  // namespace hockeystick
