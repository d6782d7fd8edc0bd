#include "inversion/epoch_line.hpp"

#include <algorithm>
#include <cmath>

#include "inversion/saddle.hpp"
#include "numerics/complex.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// All of these are for speed. Each source of error aims at this share of delta, and where the frequencies
// left out come to more than the second they are not worth computing the others. A part below the third is
// left out.
constexpr double wanted_share = 1e-10, worst_share = 1e-3, nothing = 1e-9;
constexpr double least_log_wanted = -10, least_log_of_bulk = -36, close_tilt = 0.05;
constexpr std::size_t least_frequencies = 16, most_frequencies = 10000;
// speed: beyond so many doublings of the frequency nothing falls.
constexpr int blocks = 60;

// A number e^{shift} M, or M less 1, and its error, not 0 where nothing but its error is known.
struct Factor {
    Complex value, log;
    double error, units;
    Factor(const PartRow& row, std::size_t j) : value(row.value[j]), error(row.error[j]) {
        const Complex given = value;
        if (row.less_one) value += 1.0;
        const double size = std::abs(value);
        const bool known = size > error;
        if (!known) value = error, error *= 3;
        log = row.less_one && known ? log1p(given) : Complex(std::log(std::abs(value)), std::arg(value));
        // The logarithm rounds relatively to M less 1, but where that is about -1.
        const double off = row.less_one && known ? std::abs(given) * (1 + std::abs(given)) / size : 1;
        units =
            8 * std::min(1.0, off) + 4 * (std::abs(log.real()) + std::abs(log.imag()) + std::abs(row.shift));
        if (!row.less_one) units += 4;
    }
};

}  // namespace

EpochLine::EpochLine(std::vector<Kind> kinds, double variance, bool rest)
    : kinds_(std::move(kinds)), variance_(variance), rest_(rest) {
    std::size_t split = 0;
    for (std::size_t k = 0; k < kinds_.size(); ++k)
        if (with_rest(k)) ++split, lone_ = k;
    if (split != 1 || kinds_[lone_].count != 1) lone_ = static_cast<std::size_t>(-1);
}

// prod a^n, or prod (a + b)^n - prod a^n <= prod (a + b)^n sum of n b/(a + b).
template <class LogBulk, class LogRest>
double EpochLine::join(LogBulk log_bulk, LogRest log_rest) const {
    double sum = 0, share = -infinity;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
        const auto& [parts, n] = kinds_[k];
        const double a = with_bulk(k) ? log_bulk(*parts) : -infinity,
                     b = with_rest(k) ? log_rest(*parts) : -infinity, both = log_add(a, b);
        if (std::isnan(both) || both == infinity) return infinity;
        sum += n * both;
        if (b > -infinity) share = log_add(share, std::log(n) + b - both);
    }
    if (!std::isfinite(sum)) return sum;
    const double rounding = 1e-12 + 8 * u * std::abs(sum) * static_cast<double>(kinds_.size());
    return rest_ ? sum + share + 1e-9 + rounding : sum + rounding;
}

double EpochLine::log_upper(double s) const {
    return join([s](const KindParts& parts) { return parts.log_bulk(s); },
                [s](const KindParts& parts) { return parts.log_rest(s); }) +
           gaussian_steps(variance_, s).upper;
}

// At s + i tau', tau <= tau' <= 2 tau.
double EpochLine::log_bound(double tau) const {
    return join([tau](const KindParts& parts) { return parts.log_bulk_at(tau); },
                [tau](const KindParts& parts) { return parts.log_rest_at(tau); }) +
           gaussian_steps(variance_, s_).upper - 0.5 * variance_ * tau * tau * (1 - 8 * u);
}

// sum over j >= first of step/pi |integrand|, 1/|z (z+1)| <= 1/tau^2, beside e^{K(s)}.
double EpochLine::tail(double step, std::size_t first) const {
    const double scale = log_upper(s_);
    double sum = 0, tau = step * static_cast<double>(first);
    for (int block = 0; block < blocks; ++block, tau *= 2)
        sum += std::exp(log_bound(tau) - scale) * (step / (tau * tau) + 0.5 / tau);
    return 1.01 / pi * (sum + 1 / tau);
}

DifferenceOfPowers::Value EpochLine::value(const std::vector<Rows>& rows, std::size_t j,
                                           const Contour& contour) const {
    DifferenceOfPowers power({s_, contour.step * static_cast<double>(j)}, variance_,
                             static_cast<double>(kinds_.size()));
    bool difference = false;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
        const double n = kinds_[k].count;
        const PartRow& row = with_bulk(k) ? rows[k].bulk : rows[k].rest;
        const bool both = with_bulk(k) && with_rest(k);
        const Factor m(row, j);
        const double most = power.add_below(n, std::abs(m.value), m.log, row.shift, m.units, m.error,
                                            both ? 1 / std::max(64.0, 4 * n) : 0);
        if (!both) continue;
        difference = true;
        const PartRow& rest = rows[k].rest;
        const double unit = std::exp(rest.shift - row.shift);
        power.add_between(n, most, m.value, unit * rest.value[j], unit * rest.error[j],
                          std::abs(rest.shift) + std::abs(row.shift));
    }
    return difference ? power.difference(contour.scale) : power.all(contour.scale);
}

// False where too many nodes were needed.
bool EpochLine::fill(Contour& contour, std::size_t size, double log_wanted) const {
    std::vector<Rows> rows(kinds_.size());
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
        const auto& [parts, n] = kinds_[k];
        if (with_rest(k) && (rows[k].rest = parts->rest(contour.step, size, log_wanted)).empty())
            return false;
        if (!with_bulk(k)) continue;
        // Beside the rest it has all its digits.
        const double wanted = rest_ ? std::max(log_wanted, least_log_of_bulk) : log_wanted;
        if ((rows[k].bulk = parts->bulk(contour.step, size, wanted - std::log(n))).empty()) return false;
    }
    for (std::size_t j = 0; j < size; ++j) {
        const auto at = value(rows, j, contour);
        contour.integrand.push_back(at.value * contour.pole(j));
        contour.error.push_back(at.error * std::abs(contour.pole(j)));
        if (!std::isfinite(contour.error.back()) || !std::isfinite(std::abs(at.value))) return false;
    }
    return true;
}

std::optional<Contour> EpochLine::contour(double epsilon, double log_delta, double least, double most) {
    for (const Kind& kind : kinds_) kind.parts->lay(0, false, false);
    const auto bound = [this](double s) { return log_upper(s); };
    s_ = best_tilt(bound, epsilon, least, most, close_tilt);
    if (const double before = log_upper(s_);
        before - s_ * epsilon + log_chernoff(s_) < log_delta + std::log(nothing))
        return Contour::of_nothing(s_, before, 1.01 * std::exp(log_chernoff(s_)));
    for (std::size_t k = 0; k < kinds_.size(); ++k) kinds_[k].parts->lay(s_, with_bulk(k), with_rest(k));
    const double middle = log_upper(s_), log_scale = middle - s_ * epsilon;
    if (!std::isfinite(middle)) return {};
    const double log_wanted = std::min(std::log(wanted_share) + log_delta - log_scale, least_log_wanted);
    auto out = line_at(s_, middle, bound, epsilon, log_delta, log_wanted + log_scale);
    if (!out) return {};
    const CutOff end = cut_off(least_frequencies, most_frequencies, std::exp(log_wanted),
                               [&](std::size_t size) { return tail(out->step, size); });
    out->tail = end.tail;
    if (!(end.tail < std::exp(log_wanted) / wanted_share * worst_share)) return {};
    return fill(*out, end.size, log_wanted) ? out : std::nullopt;
}

}  // namespace hockeystick
