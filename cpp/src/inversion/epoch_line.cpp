#include "inversion/epoch_line.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

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
double log_moment(const AllocationPart& part, const std::optional<PowerLine>& line, double from, double s) {
    if (!line) return PowerLine(part, 1 + s).log_upper();
    return log_power_bound(part, 1 + s, line->theta() * (1 + s) / (1 + from));
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
    if (!rest_) return count_ * log_bulk;
    if (count_ == 1) return log_rest;
    const double most = std::max(log_bulk, log_rest);
    if (!std::isfinite(most)) return most;
    return std::log(count_) + log_rest +
           (count_ - 1) * (most + std::log1p(std::exp(std::min(log_bulk, log_rest) - most))) + 1e-9;
}

double EpochLine::log_upper(double s) const {
    return join(!rest_ || count_ > 1 ? log_moment(bulk_, bulk_line_, s_, s) : 0.0,
                rest_ ? log_moment(*rest_, rest_line_, s_, s) : 0.0) +
           gaussian_steps(variance_, s).upper + 1e-12;
}

// At s + i tau', tau <= tau' <= 2 tau.
double EpochLine::log_bound(double tau) const {
    return join(bulk_line_ ? bulk_line_->log_bound(tau) : 0.0,
                rest_line_ ? rest_line_->log_bound(tau) : 0.0) +
           gaussian_steps(variance_, s_).upper - 0.5 * variance_ * tau * tau * (1 - 8 * u) + 1e-12;
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

DifferenceOfPowers::Value EpochLine::value(const PowerLine::Row& bulk, const PowerLine::Row& rest,
                                           std::size_t j, const Contour& contour) const {
    DifferenceOfPowers power({s_, contour.step * static_cast<double>(j)}, variance_, 1);
    if (!rest_ || count_ == 1) {
        const PowerLine::Row& row = rest_ ? rest : bulk;
        const double shift = (rest_ ? rest_line_ : bulk_line_)->log_upper();
        const Known m(row.value[j], row.error[j]);
        power.add_below(count_, std::abs(m.value), m.log(), shift, m.units(shift), m.error, 0);
        return power.all(contour.scale);
    }
    const double shift = bulk_line_->log_upper(), moved = rest_line_->log_upper(),
                 unit = std::exp(moved - shift);
    const Known m(bulk.value[j], bulk.error[j]);
    const double most = power.add_below(count_, std::abs(m.value), m.log(), shift, m.units(shift), m.error,
                                        1 / std::max(64.0, 4 * count_));
    power.add_between(count_, most, m.value, unit * rest.value[j], unit * rest.error[j],
                      std::abs(moved) + std::abs(shift));
    return power.difference(contour.scale);
}

// False where too many nodes were needed.
bool EpochLine::fill(Contour& contour, std::size_t size, double log_wanted) const {
    PowerLine::Row bulk, rest;
    if (rest_ && (rest = rest_line_->row(contour.step, size, log_wanted)).empty()) return false;
    if (bulk_line_) {
        // Beside the rest it has all its digits.
        const double wanted = rest_ ? std::max(log_wanted, least_log_of_bulk) : log_wanted;
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
    rest_line_.reset();
    s_ = best_tilt(epsilon, least, most);
    if (!rest_ || count_ > 1) bulk_line_.emplace(bulk_, 1 + s_);
    if (rest_) rest_line_.emplace(*rest_, 1 + s_);
    if ((bulk_line_ && bulk_line_->empty()) || (rest_line_ && rest_line_->empty())) return {};
    const double h = 0.02 * s_, middle = log_upper(s_), log_scale = middle - s_ * epsilon;
    if (!std::isfinite(middle)) return {};
    if (log_scale + log_chernoff(s_) < log_delta + std::log(nothing))
        return Contour::of_nothing(s_, middle, 1.01 * std::exp(log_chernoff(s_)));
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
