#include "inversion/decay.hpp"

#include <utility>

#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// speed: the width of a cell, in units of the noise; for far apart centres cells grow, and the bound gets
// weaker.
constexpr double cell = 0.15;
constexpr int most_cells = 4096;
// speed: what lies e^-depth below the largest density is left out, or bounded at once by the steep bound.
constexpr double depth = 9, steep_depth = 40;
// proof: rounding here is far below this; it is taken off the bound as a whole.
constexpr double slack = 1e-7;

}  // namespace

double StepDecay::log_bound(double tau) const {
    return std::log1p(-std::min(rectangles_.deficit(tau) * (1 - slack), 1 - slack));
}

Decay::Decay(std::vector<MixturePart> parts, double s, double log_mgf)
    : parts_(std::move(parts)), s_(s), log_mgf_(log_mgf) {
    for (const auto& part : parts_) add_part(part);
}

void Decay::add_part(const MixturePart& part) {
    const Centres centre = centres(part, s_);
    const double reach = std::sqrt(2 * depth), spread = part.q.high() - part.q.low();
    const double first = centre.low - reach, last = centre.high + reach;
    // A tilt against a mixture makes g narrower than the noise.
    const double narrow = cell / std::sqrt(1 + std::max(s_, 0.0) * spread * spread / 4);
    const int cells = static_cast<int>(std::min<double>(most_cells, std::ceil((last - first) / narrow)));
    const double width = (last - first) / cells;

    std::vector<TiltedPoint> grid;
    for (int i = 0; i <= cells; ++i) grid.push_back(tilted_point(part, s_, first + i * width));
    const double constant = std::log(part.weight) - log_mgf_ - 0.5 * std::log(2 * pi);
    add_cells(grid, depth, [&](const TiltedPoint& a, const TiltedPoint& b) {
        // ln g is a difference of numbers that may be much larger.
        const double rounding =
            1e-15 * (1 + std::abs(s_)) * (a.t * a.t + b.t * b.t + std::abs(a.loss) + std::abs(b.loss));
        return std::exp(log_least(a, b, s_) + constant - rounding) / (b.p_mean - a.q_mean);
    });
}

// A part's slices: ln of an upper bound on each one's share of M(s), and lower bounds of the mean shifts.
std::vector<Decay::Slice> Decay::slices(const MixturePart& part) const {
    std::vector<Slice> all;
    const Centres centre = centres(part, s_);
    const double reach = std::sqrt(2 * steep_depth), q_spread = part.q.high() - part.q.low();
    const double first = centre.low - reach, last = centre.high + reach;
    const double narrow = 2 * cell / std::sqrt(1 + std::max(s_, 0.0) * q_spread * q_spread / 4);
    const int cells = static_cast<int>(std::min<double>(most_cells, std::ceil((last - first) / narrow)));
    const double width = (last - first) / cells;
    const double constant = std::log(part.weight) - log_mgf_ - 0.5 * std::log(2 * pi) + slack;
    TiltedPoint left = tilted_point(part, s_, first);
    all.push_back({constant + left.log_g + left.log_kept - std::log(reach), 0, 0});
    for (int i = 1; i <= cells; ++i) {
        const TiltedPoint right = tilted_point(part, s_, first + i * width);
        all.push_back({constant + log_most(left, right, s_) + std::log(width), std::abs(left.p_mean),
                       std::abs(right.q_mean)});
        left = right;
    }
    all.push_back({constant + left.log_g + left.log_kept - std::log(reach), 0, 0});
    // What hardly weighs need not turn.
    double light = 0;
    std::erase_if(all, [&](const Slice& each) {
        if (each.log_mass > -steep_depth) return false;
        light += std::exp(each.log_mass);
        return true;
    });
    all.push_back({std::log(light), 0, 0});
    return all;
}

void Decay::add_steep_lines() const {
    std::vector<std::vector<Slice>> all;
    double extreme = 0, growth = 1;
    for (const auto& part : parts_) {
        all.push_back(slices(part));
        growth = std::max(growth, part.growth());
        extreme = std::max({extreme, part.p.high(), -part.q.low()});
    }
    double a = std::min(0.5 * pi / extreme, 12.0);
    for (int i = 0; i < 5; ++i, a *= 0.5) {
        SteepLine& line = steep_lines_.emplace_back(SteepLine{0.5 * a * a * growth, {}});
        for (std::size_t k = 0; k < parts_.size(); ++k) {
            // sin x >= x sin(x1)/x1 up to x1 <= pi/2, and Re E[e^{i a shift}] <= 1, so the angle is at least
            // the arc tangent of Im = E[sin(a shift)].
            const auto sine = [&](double end) { return end > 0 ? std::sin(a * end) / end : 0.0; };
            const MixtureRatio &p = parts_[k].p, &q = parts_[k].q;
            const double p_sine = sine(p.high()), q_sine = sine(-q.low()), q_spread = q.high() - q.low();
            const double lost = q_spread > 0 && s_ > 0 ? s_ * std::log(std::cos(0.5 * a * q_spread)) : 0;
            for (const Slice& slice : all[k])
                line.slices.push_back({slice.log_mass - lost,
                                       std::atan(slice.p_mean * p_sine) + std::atan(slice.q_mean * q_sine)});
        }
    }
}

double Decay::steep_log_bound(double tau) const {
    if (steep_lines_.empty()) add_steep_lines();
    double best = log_bound(tau);
    for (const SteepLine& line : steep_lines_) {
        double sum = 0;
        for (const auto& slice : line.slices) sum += std::exp(slice.log_mass - tau * slice.angle);
        best = std::min(best, line.log_growth + std::log(sum));
    }
    return best;
}

}  // namespace hockeystick
