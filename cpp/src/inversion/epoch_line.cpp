#include "inversion/epoch_line.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "inversion/saddle.hpp"
#include "numerics/complex.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

using Complex = std::complex<double>;
constexpr double pi = std::numbers::pi;

// All of these are for speed. Each source of error aims at this share of delta, and where the frequencies
// left out come to more than the second they are not worth computing the others. A part below the third is
// left out.
constexpr double wanted_share = 1e-12, worst_share = 1e-3, nothing = 1e-11;
constexpr double least_log_wanted = -10, least_log_of_bulk = -36, close_tilt = 0.05;
constexpr std::size_t least_frequencies = 16, most_frequencies = 10000;
// speed: beyond so many doublings of the frequency nothing falls.
constexpr int blocks = 60;

// ln of a bound on E[V^{1+s}; part], from a line for another tilt if there is one.
double log_moment(const AllocationPart& part, const PowerLine* line, double from, double s) {
    const double theta = line ? line->theta() * (1 + s) / (1 + from) : best_theta(part, 1 + s);
    return log_power_bound(part, 1 + s, theta);
}

// A number, and its error, not 0 where nothing but its error is known.
struct Known {
    Complex value;
    double error;
    Known(Complex v, double e) : value(std::abs(v) > e ? v : e), error(std::abs(v) > e ? e : 3 * e) {}
    Complex log() const { return {std::log(std::abs(value)), std::arg(value)}; }
    double units(double shift) const {
        return 12 + 4 * (std::abs(log().real()) + std::abs(log().imag()) + std::abs(shift));
    }
};

}  // namespace

// |(A + B)^n - A^n| <= n |B| (|A| + |B|)^{n-1}
double EpochLine::join(double log_bulk, double log_rest) const {
    if (rest_.empty()) return count_ * log_bulk;
    if (count_ == 1) return log_rest;
    const double most = std::max(log_bulk, log_rest);
    if (!std::isfinite(most)) return most;
    return std::log(count_) + log_rest +
           (count_ - 1) * (most + std::log1p(std::exp(std::min(log_bulk, log_rest) - most))) + 1e-9;
}

double EpochLine::log_upper(double s) const {
    double rest = -infinity;
    for (std::size_t i = 0; i < rest_.size(); ++i)
        rest = log_add(rest, log_moment(rest_[i], rest_lines_.empty() ? nullptr : &rest_lines_[i], s_, s));
    return join(with_bulk() ? log_moment(bulk_, bulk_line_ ? &*bulk_line_ : nullptr, s_, s) : 0.0, rest) +
           gaussian_steps(variance_, s).upper + 1e-12 * static_cast<double>(1 + rest_.size());
}

// At s + i tau', tau <= tau' <= 2 tau.
double EpochLine::log_bound(double tau) const {
    double bulk = 0, rest = -infinity;
    if (bulk_line_) {
        const double falling = std::exp(-0.5 * bulk_.variance() * tau * tau * (1 - 1e-12));
        bulk = std::min(bulk_line_->log_bound(tau),
                        bulk_line_->log_upper() + std::log(edge_.turning * falling + edge_.edge) + 1e-12);
    }
    for (const PowerLine& line : rest_lines_) rest = log_add(rest, line.log_bound(tau));
    return join(bulk, rest) + gaussian_steps(variance_, s_).upper -
           0.5 * variance_ * tau * tau * (1 - 8 * u) + 1e-12;
}

// sum over j >= first of step/pi |integrand|, 1/|z (z+1)| <= 1/tau^2, beside e^{K(s)}.
double EpochLine::tail(double step, std::size_t first) const {
    const double scale = log_upper(s_);
    double sum = 0, tau = step * static_cast<double>(first);
    for (int block = 0; block < blocks; ++block, tau *= 2)
        sum += std::exp(log_bound(tau) - scale) * (step / (tau * tau) + 0.5 / tau);
    return 1.01 / pi * (sum + 1 / tau);
}

// Where e^{K(s) - s eps}/(s (s + 1)) is least.
double EpochLine::best_tilt(double epsilon, double least, double most) const {
    return std::exp(lowest(std::log(least), std::log(most), close_tilt, [&](double log_s) {
        const double s = std::exp(log_s), log = log_upper(s);
        return std::isfinite(log) ? log - s * epsilon - log_s - std::log1p(s) : infinity;
    }));
}

// All parts of the rest, beside e^{log_rest_}; empty where too many nodes were needed.
PowerLine::Row EpochLine::rest_row(double step, std::size_t size, double log_wanted) const {
    PowerLine::Row out{std::vector<Complex>(size), std::vector<double>(size)};
    for (const PowerLine& line : rest_lines_) {
        const double moved = line.log_upper() - log_rest_, unit = std::exp(moved);
        const PowerLine::Row row = line.row(step, size, log_wanted - moved);
        if (row.empty()) return {};
        const double rounding = u * (8 + 2 * (std::abs(line.log_upper()) + std::abs(log_rest_)));
        for (std::size_t j = 0; j < size; ++j) {
            out.value[j] += unit * row.value[j];
            out.error[j] += unit * (row.error[j] * (1 + rounding) + rounding * std::abs(row.value[j]));
        }
    }
    return out;
}

DifferenceOfPowers::Value EpochLine::value(const PowerLine::Row& bulk, const PowerLine::Row& rest,
                                           std::size_t j, const Contour& contour) const {
    DifferenceOfPowers power({s_, contour.step * static_cast<double>(j)}, variance_, 1);
    const PowerLine::Row& row = with_bulk() ? bulk : rest;
    const double shift = with_bulk() ? bulk_line_->log_upper() : log_rest_;
    const Known m(row.value[j], row.error[j]);
    const bool both = with_bulk() && !rest_.empty();
    const double most = power.add_below(count_, std::abs(m.value), m.log(), shift, m.units(shift), m.error,
                                        both ? 1 / std::max(64.0, 4 * count_) : 0);
    if (!both) return power.all(contour.scale);
    const double unit = std::exp(log_rest_ - shift);
    power.add_between(count_, most, m.value, unit * rest.value[j], unit * rest.error[j],
                      std::abs(log_rest_) + std::abs(shift));
    return power.difference(contour.scale);
}

// False where too many nodes were needed.
bool EpochLine::fill(Contour& contour, std::size_t size, double log_wanted) const {
    PowerLine::Row bulk, rest;
    if (!rest_.empty() && (rest = rest_row(contour.step, size, log_wanted)).empty()) return false;
    if (bulk_line_) {
        // Beside the rest it has all its digits.
        const double wanted = rest_.empty() ? log_wanted : std::max(log_wanted, least_log_of_bulk);
        if ((bulk = bulk_line_->row(contour.step, size, wanted - std::log(count_))).empty()) return false;
    }
    for (std::size_t j = 0; j < size; ++j) {
        const auto at = value(bulk, rest, j, contour);
        contour.integrand.push_back(at.value * contour.pole(j));
        contour.error.push_back(at.error * std::abs(contour.pole(j)));
        if (!std::isfinite(contour.error.back()) || !std::isfinite(std::abs(at.value))) return false;
    }
    return true;
}

std::optional<Contour> EpochLine::contour(double epsilon, double log_delta, double least, double most) {
    bulk_line_.reset();
    rest_lines_.clear();
    s_ = best_tilt(epsilon, least, most);
    const double h = 0.02 * s_, middle = log_upper(s_), log_scale = middle - s_ * epsilon;
    if (!std::isfinite(middle)) return {};
    if (log_scale + log_chernoff(s_) < log_delta + std::log(nothing))
        return Contour::of_nothing(s_, middle, 1.01 * std::exp(log_chernoff(s_)));
    if (with_bulk()) {
        bulk_line_.emplace(bulk_, 1 + s_);
        edge_ = bulk_.edge(1 + s_, bulk_line_->theta(), bulk_.log_least_moment(1 + s_));
    }
    log_rest_ = -infinity;
    for (const Rest& rest : rest_) {
        rest_lines_.emplace_back(rest, 1 + s_);
        log_rest_ = log_add(log_rest_, rest_lines_.back().log_upper());
    }
    SaddlePoint saddle{};
    saddle.s = s_;
    saddle.k = {middle, 0, (log_upper(s_ + h) + log_upper(s_ - h) - 2 * middle) / (h * h), middle};
    const double log_wanted = std::min(std::log(wanted_share) + log_delta - log_scale, least_log_wanted);
    auto out = line_through(saddle, epsilon, log_delta, log_wanted + log_scale, 0, [&](double s) {
        const double log = log_upper(s);
        return Cumulant{log, 0, 0, log};
    });
    if (!out) return {};
    const CutOff end = cut_off(least_frequencies, most_frequencies, std::exp(log_wanted),
                               [&](std::size_t size) { return tail(out->step, size); });
    out->tail = end.tail;
    if (!(end.tail < std::exp(log_wanted) / wanted_share * worst_share)) return {};
    return fill(*out, end.size, log_wanted) ? out : std::nullopt;
}

}  // namespace hockeystick
