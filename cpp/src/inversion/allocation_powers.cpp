#include "inversion/allocation_powers.hpp"

#include <algorithm>
#include <cmath>

#include "hockeystick/parallel.hpp"
#include "inversion/saddle.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// speed: how far from p the line's theta may be; how closely it is looked for; how many nodes there may be;
// the strips around it; the cells in which its decay is bounded, and their ends beside theta.
constexpr double farthest_theta = 1e12, close_theta = 0.05, most_nodes = 1e5;
constexpr int strips_tried = 24, cells = 96;
constexpr double worst_log_error = -10;  // of a node, beside the real one
constexpr double first_cell = 0.05, last_cell = 1e5;

double log_transform(const AllocationPart& part, double theta) {
    const CutStep::Log log = part.at(theta);
    return log.value.real() + log.error + theta + 4 * u * (std::abs(log.value.real()) + theta);
}

}  // namespace

double log_power_bound(const AllocationPart& part, double power, double theta) {
    const double log = log_transform(part, theta), head = power * (std::log(power / theta) - 1);
    return std::isfinite(log) ? log + head + 8 * u * (std::abs(log) + std::abs(head) + power) : infinity;
}

double best_theta(const AllocationPart& part, double power) {
    const auto least_in = [&](double first, double last) {
        return lowest(first, last, close_theta,
                      [&](double log_theta) { return log_power_bound(part, power, std::exp(log_theta)); });
    };
    // With the bound's weights V is p/theta in the mean.
    const double last = std::log(1.5 * power), first = std::log(power / part.about_largest());
    const double found = least_in(first, last);
    return std::exp(found - first > close_theta
                        ? found
                        : least_in(std::log(power / farthest_theta), first + close_theta));
}

PowerLine::PowerLine(const AllocationPart& part, double power)
    : part_(part), power_(power), theta_(best_theta(part, power)) {
    log_at_ = log_transform(part, theta_);
    log_upper_ = log_power_bound(part, power, theta_);
    if (!empty()) lay_cells();
}

void PowerLine::lay_cells() {
    const auto decay = part_.log_decay(theta_);
    for (int i = 0; i <= cells; ++i) {
        v_.push_back(theta_ * first_cell * std::pow(last_cell / first_cell, i / double{cells}));
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

// ln of a bound on the integrals along both edges, beside e^{log_upper}.
double PowerLine::log_aliases(const Strip& strip, double tau) const {
    return std::max(log_line(tau, theta_ - strip.width) + strip.left,
                    log_line(tau, theta_ + strip.width) + strip.right) -
           log_upper_;
}

std::vector<PowerLine::Strip> PowerLine::strips() const {
    std::vector<Strip> out;
    for (int i = 0; i < strips_tried; ++i) {
        const double width = 0.9 * theta_ * std::exp(-0.2 * i);
        out.push_back({width, log_transform(part_, theta_ - width), log_transform(part_, theta_ + width)});
    }
    return out;
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

// What the nodes' sum is multiplied by at a frequency, and its error in units of round-off.
LogKernel PowerLine::front(double tau, double h) const {
    const Complex gamma = log_gamma({power_ + 1, tau}), turned = Complex(power_, tau) * std::log(theta_);
    return {gamma - turned + 0.5 * pi * tau + std::log(h / theta_ / (2 * pi)) + log_at_ - log_upper_,
            shifted_error + 8 * (std::abs(gamma) + std::abs(turned) + 2 * tau + std::abs(log_at_) +
                                 std::abs(log_upper_))};
}

// The nodes on either side of the real one: theta^{-i tau} e^{-pi tau/2} turns and falls with tau.
std::vector<PowerLine::Term> PowerLine::terms(double h, const std::vector<CutStep::Log>& logs) const {
    std::vector<Term> out;
    for (std::size_t i = 0; i + 1 < 2 * logs.size(); ++i) {
        const std::size_t n = (i + 1) / 2;
        const double v = (i % 2 ? -h : h) * static_cast<double>(n), q = v / theta_;
        const CutStep::Log& log = logs[n];
        const Complex there(0.5 * std::log1p(q * q), std::atan(q)),
            weight = (i % 2 ? std::conj(log.value) : log.value) + theta_ - log_at_ + Complex(0, v) -
                     (power_ + 1) * there;
        const double logarithms =
            std::abs(log.value) + theta_ + std::abs(log_at_) + std::abs(v) + (power_ + 1) * std::abs(there);
        out.push_back({weight, -there.real(), std::atan2(1.0, q),
                       std::expm1(log.error) / u + 16 + 8 * logarithms, 8 + 8 * std::abs(there)});
    }
    return out;
}

// What falls by much within a few frequencies is not worth a turn at each: so short are the runs.
std::size_t PowerLine::run_from(double tau, double step) const {
    return static_cast<std::size_t>(std::max(1.0, tau / (power_ + 10) / step));
}

std::optional<PowerLine::Plan> PowerLine::plan(double step, std::size_t size, double log_wanted) const {
    const double last = step * static_cast<double>(size - 1);
    // The widest step that serves the lowest and the highest frequency, each by a strip of its own.
    Plan out{step, size, log_wanted, infinity, 0, {}};
    double& h = out.h;
    std::size_t& end = out.end;
    std::vector<Strip>& best = out.strips;
    for (const double tau : {0.0, last}) {
        double widest = 0;
        best.emplace_back();
        for (const Strip& strip : strips()) {
            const double turns = std::max(4.0, log_aliases(strip, tau) + std::log(4.0) - log_wanted);
            if (2 * pi * strip.width / turns > widest)
                widest = 2 * pi * strip.width / turns, best.back() = strip;
        }
        h = std::min(h, widest);
    }
    // Where the transform has fallen nothing is worth a node, at any frequency.
    const double size_of_line = log_at_ - log_upper_,
                 worth = log_wanted - 3 - log_line(last, theta_) - size_of_line;
    while (end < v_.size() && log_fall_[end] > worth) ++end;
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
    const double size_of_line = log_at_ - log_upper_;
    const std::vector<CutStep::Log> logs = part_.row(theta_, h, static_cast<std::size_t>(v_[end] / h) + 2);
    for (const CutStep::Log& log : logs)
        if (!(log.value.real() - logs[0].value.real() + std::log(std::expm1(log.error)) < worst_log_error))
            return {};
    Row out{std::vector<Complex>(size), std::vector<double>(size)};
    const std::vector<Term> nodes = terms(h, logs);
    std::vector<std::size_t> runs;
    for (std::size_t j = 0; j < size; j += run_from(step * static_cast<double>(j), step)) runs.push_back(j);
    runs.push_back(size);
    parallel_for(runs.size() - 1, [&](std::size_t i) {
        add_run(nodes, h, step, runs[i], runs[i + 1], log_wanted - 3, out);
        for (std::size_t j = runs[i]; j < runs[i + 1]; ++j) {
            const double tau = step * static_cast<double>(j);
            double alias = infinity;
            for (const Strip& strip : best)
                alias = std::min(
                    alias, 2 * std::exp(log_aliases(strip, tau)) / std::expm1(2 * pi * strip.width / h));
            out.error[j] += alias + 2 * std::exp(log_fall_[end] + log_line(tau, theta_) + size_of_line);
        }
    });
    return out;
}

void PowerLine::add_run(const std::vector<Term>& nodes, double h, double step, std::size_t first,
                        std::size_t last, double log_nothing, Row& out) const {
    FallingSum sum;
    sum.start = step * static_cast<double>(first);
    const LogKernel at_start = front(sum.start, h);
    const double count = static_cast<double>(nodes.size()), log_nothing_each = log_nothing - std::log(count);
    for (const Term& term : nodes) {
        const double log_size = term.weight.real() + at_start.log.real() - sum.start * term.fall;
        if (log_size < log_nothing_each) {
            sum.fixed_error += std::exp(log_size) * (1 + 1e-9);
            continue;
        }
        const double size = std::exp(log_size), angle = term.weight.imag() + sum.start * term.turn;
        sum.re.push_back(size * std::cos(angle));
        sum.im.push_back(size * std::sin(angle));
        sum.turn.push_back(term.turn);
        sum.fall.push_back(term.fall);
        sum.fixed.push_back(term.fixed + 8 * std::abs(at_start.log.real()) + 0.25 * count + 4);
        sum.turning.push_back(term.turning);
    }
    const auto row = sum.row(step, last - first, std::exp(log_nothing));
    for (std::size_t j = first; j < last; ++j) {
        const LogKernel here = front(step * static_cast<double>(j), h);
        const double more = std::exp(here.log.real() - at_start.log.real()),
                     value = std::abs(row.value[j - first]);
        out.value[j] = std::polar(more, here.log.imag()) * row.value[j - first];
        out.error[j] = more * (row.error[j - first] + u * (here.slack + at_start.slack) * value);
    }
}

}  // namespace hockeystick
