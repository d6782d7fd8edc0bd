#include "individual/question.hpp"

#include <algorithm>
#include <cmath>

#include "numerics/special.hpp"

namespace hockeystick {
namespace {

constexpr double u = unit_roundoff;
constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

double EpsilonQuestion::score(double k, double s, std::size_t) const {
    const double log_factor = log_chernoff(s), log_delta = std::log(delta_);
    return (k + log_factor - log_delta + 16 * u * (k - log_factor - log_delta)) / s;
}

double EpsilonQuestion::chernoff(double score) const { return std::max(0.0, score); }

double EpsilonQuestion::log_inverse_delta(double) const { return -std::log(delta_); }

Bracket EpsilonQuestion::solve(const Contour& contour, std::size_t, double chernoff) const {
    const InvertedAt inverted = [&](double e) { return invert(contour, e); };
    double epsilon = chernoff;
    const Inverted at = newton(inverted, std::log(delta_), epsilon, 1e-9);
    if (!(at.value > 0)) return {0, infinity};
    if (invert(contour, 0).upper() <= delta_) return {0, 0};
    return bracket(inverted, at, epsilon, delta_);
}

double EpsilonQuestion::read(const TailTable& table, std::size_t, double chernoff, bool upper) const {
    const auto at = [&](double e) { return table.at(e).value; };
    const double start = std::isfinite(chernoff) ? chernoff : 1e3;
    return upper ? upper_epsilon(at, delta_, start) : lower_epsilon(at, delta_, start);
}

double DeltaQuestion::score(double k, double s, std::size_t row) const {
    const double log_factor = log_chernoff(s), exponent = s * epsilons_[row];
    return k + log_factor - exponent + 16 * u * (k - log_factor + exponent);
}

double DeltaQuestion::chernoff(double score) const { return std::min(1.0, std::exp(score) * (1 + 1e-12)); }

double DeltaQuestion::log_inverse_delta(double score) const { return std::max(0.0, -score); }

Bracket DeltaQuestion::solve(const Contour& contour, std::size_t row, double) const {
    const Inverted at = invert(contour, epsilons_[row]);
    return {std::max(0.0, at.lower() - 5e-324), std::min(1.0, at.upper() + 5e-324)};
}

double DeltaQuestion::read(const TailTable& table, std::size_t row, double, bool) const {
    return table.at(epsilons_[row]).value;
}

}  // namespace hockeystick
