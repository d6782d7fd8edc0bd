#include "inversion/strip.hpp"
#include "numerics/constants.hpp"

#include <algorithm>
#include <cmath>

namespace hockeystick {
namespace {

// The widest strip in which neither mixture vanishes.
double widest(const MixturePart& part, double s) {
    const double p = part.p.high() - part.p.low(), q = part.q.high() - part.q.low();
    double a = infinity;
    if (p > 0) a = pi / p * (1 - 1e-12);
    if (q > 0) a = std::min(a, pi / q * (s > 0 ? 0.98 : 1 - 1e-12));
    return a;
}

// Without zeros, and with Q one Gaussian, the best width has a^2/2 = ln(4/tolerance).
std::array<double, 6> widths(const MixturePart& part, double s, double tolerance) {
    const double spread = part.q.high() - part.q.low(), log_wanted = std::log(4 / tolerance);
    double best = std::sqrt(2 * log_wanted / (part.growth() + std::max(s, 0.0) * spread * spread / 4));
    // Where the integral grows no faster for Q's sake.
    const double wider = std::min(std::sqrt(2 * log_wanted / part.growth()), 0.49 * pi / spread);
    if (wider > best && integral_growth(part, s, wider) < log_wanted) best = wider;
    std::array<double, 6> out{1.0, 0.94, 0.85, 0.7, 0.5, 0.3};
    for (double& each : out) each *= std::min(best, widest(part, s));
    return out;
}

// A sum of e^{shift (t + ia)} with weights is e^{...} E[e^{i a shift}]; with shifts of one sign and mean m,
//     |Im E| <= a |m|,   Re E >= 1 - a^2 extreme |m| / 2,
// and always the angle is at most a extreme, the modulus at least cosine = cos(a spread / 2). The angle is
// that of a path from a = 0: where no shift is 0 it goes beyond pi.
double least_real(double a, double mean, double extreme) { return 1 - 0.5 * a * a * extreme * mean; }
double angle(double a, double mean, double extreme) {
    const double re = least_real(a, mean, extreme);
    return re > 0 ? std::min(a * extreme, std::atan2(a * mean, re)) : a * extreme;
}
double log_modulus(double a, double mean, double extreme, double cosine) {
    return std::log(std::max({least_real(a, mean, extreme), cosine, 1e-300}));
}

}  // namespace

std::vector<AnalyticityStrip> AnalyticityStrip::simple(const MixturePart& part, double s, double tolerance) {
    std::vector<AnalyticityStrip> out;
    out.reserve(6);
    for (double a : widths(part, s, tolerance)) {
        const double growth = integral_growth(part, s, a);
        const double turn = a * (part.p.high() - part.q.low());
        out.push_back({a, {{{0, growth}, {1, growth + turn}, {2, growth + 2 * turn}}}});
    }
    return out;
}

std::vector<AnalyticityStrip> AnalyticityStrip::detailed(const MixturePart& part, double s, double log_mgf,
                                                         double end, double tolerance) {
    std::vector<AnalyticityStrip> out;
    const double middle = 0.9 * end;
    const auto wide = widths(part, s, tolerance);
    std::vector<double> candidates(wide.begin(), wide.end());
    // Where a mixture turns fast only far out, narrow strips are best.
    for (double share : {0.5, 0.25, 0.12, 0.06}) candidates.push_back(share * wide.back());
    const double p_extreme = part.p.high(), q_extreme = -part.q.low();
    const double q_spread = part.q.high() - part.q.low();
    const Centres centre = centres(part, s);
    const double narrow = 0.25 / std::sqrt(1 + std::max(s, 0.0) * q_spread * q_spread / 4), near = 6;
    const double span = centre.high - centre.low + 2 * near;
    const int cells = static_cast<int>(std::min(2048.0, std::ceil(span / narrow)));
    std::vector<double> grid;
    for (int i = 0; i <= cells; ++i) grid.push_back(centre.low - near + span * i / cells);
    // Then in growing steps out to where the density beats even the largest angle.
    const double reach = std::sqrt(2 * (end * candidates.front() * (p_extreme + q_extreme) + 50));
    for (double distance = near; distance < reach;) {
        distance = std::min(1.1 * distance, reach);
        grid.insert(grid.begin(), centre.low - distance);
        grid.push_back(centre.high + distance);
    }
    std::vector<TiltedPoint> points;
    for (double t : grid) points.push_back(tilted_point(part, s, t));

    // ln of an upper bound on the tilted mass of each cell, and of what lies beyond either end, and of the
    // mean shifts there.
    struct Cell {
        double log_mass, p_mean, q_mean;
    };
    const TiltedPoint &low = points.front(), &high = points.back();
    std::vector<Cell> all{
        {low.log_g + low.log_kept - std::log(centre.low - low.t), std::abs(low.p_mean), q_extreme},
        {high.log_g + high.log_kept - std::log(high.t - centre.high), p_extreme, std::abs(high.q_mean)}};
    for (std::size_t i = 0; i + 1 < points.size(); ++i) {
        const TiltedPoint &l = points[i], &r = points[i + 1];
        all.push_back({log_most(l, r, s) + std::log(r.t - l.t), std::abs(r.p_mean), std::abs(l.q_mean)});
    }

    const double constant = -0.5 * std::log(2 * pi) - log_mgf;
    std::vector<double> angles(all.size()), moduli(all.size()), exponents(all.size());
    for (double a : candidates) {
        const double q_cosine = std::cos(std::min(0.5 * a * q_spread, pi / 2));
        for (std::size_t i = 0; i < all.size(); ++i) {
            const Cell& each = all[i];
            angles[i] = angle(a, each.p_mean, p_extreme) + angle(a, each.q_mean, q_extreme);
            moduli[i] = log_modulus(a, each.q_mean, q_extreme, q_cosine);
        }
        const auto growth = [&](double tau) {
            for (std::size_t i = 0; i < all.size(); ++i)
                exponents[i] = all[i].log_mass + constant + tau * angles[i] - std::max(s, 0.0) * moduli[i];
            // They may be far beyond the range of exp.
            const double top = *std::max_element(exponents.begin(), exponents.end());
            double sum = 0;
            for (double e : exponents) sum += std::exp(e - top);
            // Room for the rounding above, and for that of log_mgf.
            return 0.5 * a * a * part.growth() + top + std::log(sum) + 0.05;
        };
        out.push_back({a, {{{0, growth(0)}, {middle, growth(middle)}, {end, growth(end)}}}});
    }
    return out;
}

double AnalyticityStrip::log_growth(double tau) const {
    // A convex function lies below its chords; beyond the last knot only `simple`'s straight line goes on.
    const std::size_t i = tau > knots_[1].tau ? 1 : 0;
    const Knot &l = knots_[i], &r = knots_[i + 1];
    return l.log_growth + (r.log_growth - l.log_growth) * (tau - l.tau) / (r.tau - l.tau);
}

double AnalyticityStrip::log_aliasing(double h, double tau) const {
    return std::log(4.0) + log_growth(tau) - 2 * pi * a_ / h;
}

double AnalyticityStrip::step(double tau, double tolerance) const {
    return 2 * pi * a_ / (std::log(4 / tolerance) + log_growth(tau));
}

}  // namespace hockeystick
