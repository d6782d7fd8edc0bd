#include "hockeystick/cut_search.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "hockeystick/contour.hpp"
#include "hockeystick/special.hpp"

namespace hockeystick {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The least of values at equidistant points, by a parabola.
template <std::size_t n>
double least(const std::array<double, n>& y) {
    const auto i = static_cast<std::size_t>(std::min_element(y.begin(), y.end()) - y.begin());
    if (i == 0 || i + 1 == n) return y[i];
    const double bend = y[i - 1] + y[i + 1] - 2 * y[i], slope = 0.5 * (y[i + 1] - y[i - 1]);
    // Between steep walls there is no telling.
    return bend > 0 && std::isfinite(bend)
               ? y[i] - std::min(0.5 * slope * slope / bend, 1 + 0.05 * std::abs(y[i]))
               : y[i];
}

// Where a decreasing function of epsilon takes a value.
template <class Function>
double falls_to(double value, Function&& function, double start) {
    double low = start, high = start;
    while (high < 1e12 && function(high) > value) high *= 4;
    while (low > 1e-12 && function(low) <= value) low *= 0.25;
    while (high > 1.02 * low) {
        const double middle = std::sqrt(low * high);
        (function(middle) > value ? low : high) = middle;
    }
    return high;
}

// A sum of exponentials that cannot overflow.
template <class Sum>
Sum append(Sum sum, double exponent) {
    const double above = exponent - sum.log_scale;
    if (above < -40) return sum;
    if (above <= 0) return {sum.log_scale, sum.value + std::exp(above)};
    return {exponent, (above < 40 ? sum.value * std::exp(-above) : 0) + 1};
}

}  // namespace

const CutSearch::Sum& CutSearch::below(const Step& step, int j, std::size_t index) const {
    return step.below[static_cast<std::size_t>(j) * (step.loss.size() + 1) + index];
}

const CutSearch::Sum& CutSearch::beyond(const Step& step, int j, std::size_t index) const {
    return step.beyond[static_cast<std::size_t>(j) * (step.loss.size() + 1) + index];
}

void CutSearch::add(const std::vector<CoarseMass>& law, double count) {
    Step step{count, {}, {}, law.size(), {}, {}};
    for (const auto& mass : law) {
        step.loss.push_back(mass.loss);
        step.log_p.push_back(mass.log_p);
    }
    steps_.push_back(std::move(step));
    set_tilts(tilt_[0], tilt_[1] / tilt_[0]);
}

void CutSearch::set_tilts(double lowest, double ratio) {
    for (std::size_t j = 0; j < tilts; ++j) tilt_[j] = lowest * std::pow(ratio, static_cast<double>(j));
    for (Step& step : steps_) {
        const std::size_t n = step.loss.size();
        step.below.resize(tilts * (n + 1));
        for (std::size_t j = 0; j < tilts; ++j) {
            Sum* sums = &step.below[j * (n + 1)];
            sums[0] = {-infinity, 0};
            for (std::size_t i = 0; i < n; ++i)
                sums[i + 1] = append(sums[i], step.log_p[i] + tilt_[j] * step.loss[i]);
        }
    }
}

void CutSearch::leave_out(double log_mass) {
    for (Step& step : steps_) {
        const double each = log_mass - std::log(step.count * static_cast<double>(steps_.size()));
        Sum tail{-infinity, 0};
        step.end = step.loss.size();
        for (; step.end > 2; --step.end) {
            tail = append(tail, step.log_p[step.end - 1]);
            if (tail.log_scale + std::log(tail.value) > each) break;
        }
    }
}

void CutSearch::focus(double epsilon) {
    std::array<double, tilts> bounds = chernoffs(epsilon);
    const auto best =
        static_cast<std::size_t>(std::min_element(bounds.begin(), bounds.end()) - bounds.begin());
    constexpr double ratio = 1.3;
    set_tilts(tilt_[best] * std::pow(ratio, -0.6 * tilts), ratio);
    for (Step& step : steps_) {
        const std::size_t n = step.loss.size();
        step.beyond.resize(tilts * (n + 1));
        for (std::size_t j = 0; j < tilts; ++j) {
            Sum* sums = &step.beyond[j * (n + 1)];
            sums[step.end] = {-infinity, 0};
            for (std::size_t i = step.end; i-- > 0;)
                sums[i] = append(sums[i + 1], step.log_p[i] + tilt_[j] * step.loss[i]);
        }
    }
}

// Of all steps, but for what is left out.
std::array<double, CutSearch::tilts> CutSearch::chernoffs(double epsilon) const {
    std::array<double, tilts> bounds{};
    for (int j = 0; j < tilts; ++j) {
        const double s = tilt_[static_cast<std::size_t>(j)];
        double a = 0.5 * variance_ * s * (s + 1) - s * epsilon + log_chernoff(s);
        for (const Step& step : steps_) {
            const Sum& sum = below(step, j, step.end);
            a += step.count * (sum.log_scale + std::log(sum.value));
        }
        bounds[static_cast<std::size_t>(j)] = std::isnan(a) ? infinity : a;
    }
    return bounds;
}

double CutSearch::leave_out_at(double epsilon, double depth) {
    double log_delta = 0;
    for (const bool fine : {false, true}) {
        if (fine) focus(epsilon);
        log_delta = std::min(log_delta, least(chernoffs(epsilon)));
        for (int round = 0; round < 24; ++round) {
            leave_out(log_delta - depth);
            // What is left out may add as much as there is of it.
            const double found = std::min(log_delta, std::max(least(chernoffs(epsilon)), log_delta - depth));
            const bool close = found > log_delta - 1;
            log_delta = found;
            if (close) break;
        }
    }
    leave_out(log_delta - depth);
    return log_delta;
}

CutSearch::Halves CutSearch::halves(double loss, double epsilon) const {
    std::array<double, tilts> log_below{}, log_beyond{};
    std::vector<std::size_t> index;
    for (const Step& step : steps_)
        index.push_back(std::min(
            step.end, static_cast<std::size_t>(std::lower_bound(step.loss.begin(), step.loss.end(), loss) -
                                               step.loss.begin())));
    for (int j = 0; j < tilts; ++j) {
        const double s = tilt_[static_cast<std::size_t>(j)];
        double a = 0.5 * variance_ * s * (s + 1) - s * epsilon + log_chernoff(s), y = 0;
        for (std::size_t k = 0; k < steps_.size(); ++k) {
            const Step& step = steps_[k];
            const Sum &low = below(step, j, index[k]), &high = beyond(step, j, index[k]);
            const double rest = low.log_scale + std::log(low.value);
            a += step.count * rest;
            if (high.value > 0)
                y += step.count * std::log1p(std::exp(high.log_scale + std::log(high.value) - rest));
        }
        const auto i = static_cast<std::size_t>(j);
        log_below[i] = std::isnan(a) ? infinity : a;
        log_beyond[i] = y > 0 && std::isfinite(a) ? a + log_expm1(y) : infinity;
    }
    return {least(log_below), least(log_beyond)};
}

std::optional<CutSearch::Cut> CutSearch::cut_at(double epsilon, double depth) const {
    if (!(epsilon > 0)) return {};
    const auto fine = [&](double loss) {
        const Halves both = halves(loss, epsilon);
        return both.log_below < both.log_beyond - depth;
    };
    double low = std::log(1e-4 * epsilon), high = std::log(0.97 * epsilon);
    if (!fine(std::exp(low))) return {};
    while (high - low > 0.05) {
        const double middle = 0.5 * (low + high);
        (fine(std::exp(middle)) ? low : high) = middle;
    }
    return Cut{std::exp(low), std::min(0.0, halves(std::exp(low), epsilon).log_beyond)};
}

double CutSearch::epsilon_at(double log_delta) {
    // From Chernoff's bound of all, then from those of both halves at some cut, as that is often far better.
    double epsilon = falls_to(log_delta, [&](double e) { return least(chernoffs(e)); }, 1e-3);
    for (int round = 0; round < 2; ++round) {
        focus(epsilon);
        epsilon = falls_to(
            log_delta,
            [&](double e) {
                const Halves both = halves(e / 4, e);
                return std::min(least(chernoffs(e)), std::max(both.log_below, both.log_beyond));
            },
            epsilon);
    }
    return epsilon;
}

}  // namespace hockeystick
