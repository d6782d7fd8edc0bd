#include "profile/outcomes_of_curve.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// speed: intervals between the first points, about 0 and on either side of these.
constexpr std::size_t inner = 64, outer = 24;
// proof: points that are farther apart than their rounding.
constexpr double least_ratio = 1 + 1e-6;
// speed: how near to 0 a line is followed.
constexpr double near_end = 1e-6;
// speed: the share of finer points that follow the coarse ones, whatever these say.
constexpr double everywhere = 0.1;
// proof: more than a point on a line rounds by, relatively; and than sums over so many points do, of positive
// terms, with what their exponentials round by.
constexpr double rounding = 16 * u;
double margin(std::size_t points) { return rounding * (static_cast<double>(points) + 1); }

// A point of a curve.
struct Vertex {
    double loss, delta;
};

// 1 - e^{from - to}.
double gap(double from, double to) { return -std::expm1(from - to); }

// The lower convex hull of points, which fall, and of 1 at -inf, over e^loss: a mass at each point, 0 where
// that lies above, so that delta is about `heights`.
std::vector<double> masses_of_hull(std::span<const Vertex> points) {
    std::vector<std::size_t> kept;
    // The slopes, downwards, of the chords that end at each, times e^loss there.
    std::vector<double> arriving;
    const auto steep = [&](std::size_t i) {
        if (kept.empty()) return 1 - points[i].delta;
        const Vertex& last = points[kept.back()];
        return (last.delta - points[i].delta) / gap(last.loss, points[i].loss);
    };
    const auto before = [&](double slope, std::size_t i, std::size_t j) {
        return slope * std::exp(points[i].loss - points[j].loss);
    };
    for (std::size_t i = 0; i < points.size(); ++i) {
        while (!kept.empty() && !(before(steep(i), kept.back(), i) < arriving.back())) {
            kept.pop_back();
            arriving.pop_back();
        }
        arriving.push_back(steep(i));
        kept.push_back(i);
    }
    std::vector<double> masses(points.size());
    for (std::size_t k = 0; k < kept.size(); ++k)
        masses[kept[k]] =
            k + 1 < kept.size() ? arriving[k] - before(arriving[k + 1], kept[k], kept[k + 1]) : arriving[k];
    return masses;
}

// delta of these masses at each of the points.
std::vector<double> heights(std::span<const Vertex> points, std::span<const double> masses) {
    std::vector<double> out(points.size());
    double slope = 0;  // downwards, times e^loss
    for (std::size_t i = points.size() - 1; i > 0; --i) {
        slope += masses[i];
        out[i - 1] = out[i] + slope * gap(points[i - 1].loss, points[i].loss);
        slope *= std::exp(points[i - 1].loss - points[i].loss);
    }
    return out;
}

// The line through two points of a convex function, known from above at the first and from below at the
// second: beyond the second the function is above it.
class Line {
public:
    Line(double first, const Answer& there, double second, const Answer& here)
        : loss_(second),
          delta_(here.lower),
          slope_((there.upper - here.lower) / std::expm1(first - second)),
          size_(there.upper + here.lower) {}

    // Rounded down.
    double at(double loss) const {
        const double step = slope_ * std::expm1(loss - loss_);
        return delta_ + step - rounding * (size_ + std::abs(step));
    }
    // About where they meet, between their points.
    static double meeting(const Line& left, const Line& right) {
        const double width = std::expm1(right.loss_ - left.loss_), turned = right.slope_ / (1 + width),
                     step = (right.delta_ - turned * width - left.delta_) / (left.slope_ - turned);
        const double loss = left.loss_ + std::log1p(step > 0 && step < width ? step : 0.5 * width);
        return std::clamp(loss, left.loss_, right.loss_);
    }
    // Beyond its point: where it is hardly above 0 any more.
    double end() const {
        const double loss = loss_ + std::log1p((1 - near_end) * delta_ / -slope_);
        return slope_ < 0 && at(loss) >= 0 ? loss : loss_;
    }
    // About where it leaves 1 - e^loss, which is positive there, before its point.
    double leaving() const {
        const double loss =
            std::log1p((slope_ - delta_ - slope_ * std::exp(-loss_)) / (1 + slope_ * std::exp(-loss_)));
        return std::min(loss < loss_ ? loss : loss_ - 1, 0.0);
    }

private:
    double loss_, delta_, slope_, size_;  // the slope in e^{loss - loss_}
};

std::vector<Vertex> points_above(std::span<const double> at, std::span<const Answer> deltas) {
    std::vector<Vertex> out;
    double least = 1;
    for (std::size_t i = 0; i < at.size(); ++i)
        out.push_back({at[i], least = std::min(least, deltas[i].upper)});
    return out;
}

// Points whose chords are below the curve: between two of those asked about it is above two lines, and above
// what these are anywhere between, however closely that is where they meet.
std::vector<Vertex> points_below(std::span<const double> at, std::span<const Answer> deltas) {
    std::vector<Vertex> out;
    double least = 1;
    const auto keep = [&](double loss, double delta) {
        out.push_back({loss, least = std::clamp(delta, 0.0, least)});
    };
    const auto line = [&](std::size_t first, std::size_t second) {
        return Line(at[first], deltas[first], at[second], deltas[second]);
    };
    // No curve falls faster than 1 - e^loss does.
    const Line after = line(2, 1);
    const double from = after.leaving();
    keep(from, std::min(after.at(from), -std::expm1(from) - rounding * std::abs(std::expm1(from))));
    for (std::size_t i = 1; i + 2 < at.size(); ++i) {
        const Line left = line(i - 1, i), right = line(i + 2, i + 1);
        const double meeting = Line::meeting(left, right),
                     delta = std::min(left.at(meeting), right.at(meeting));
        // Where one of them is below 0, what follows is not known.
        keep(delta < 0 ? std::min(left.end(), at[i + 1]) : meeting, delta);
    }
    return out;
}

double sum_of(const std::vector<double>& masses) {
    const double sum = std::accumulate(masses.begin(), masses.end(), 0.0);
    return sum > 0 ? sum : 1;
}

// However these masses were found: what rounds is less than what is made sure of here.
std::vector<Outcomes::Term> outcomes_above(std::span<const Vertex> points) {
    const std::vector<double> masses = masses_of_hull(points), known = heights(points, masses);
    const double lost = points.back().delta;
    double scale = (1 - lost) / sum_of(masses);
    for (std::size_t i = 0; i + 1 < points.size(); ++i)
        if (masses[i] > 0) scale = std::max(scale, (points[i].delta - lost) / known[i]);
    std::vector<Outcomes::Term> out;
    for (std::size_t i = 0; i < points.size(); ++i)
        out.push_back({points[i].loss, masses[i] * scale * (1 + margin(points.size()))});
    return out;
}
std::vector<Outcomes::Term> outcomes_below(std::span<const Vertex> points) {
    const std::vector<double> masses = masses_of_hull(points), known = heights(points, masses);
    double scale = 1 / sum_of(masses);
    for (std::size_t i = 0; i < points.size(); ++i)
        if (known[i] > 0) scale = std::min(scale, points[i].delta / known[i]);
    std::vector<Outcomes::Term> out;
    for (std::size_t i = 0; i < points.size(); ++i)
        out.push_back({points[i].loss, masses[i] * scale * (1 - margin(points.size()))});
    return out;
}

}  // namespace

MergedOutcomes outcomes_of_curve(std::span<const double> epsilons, std::span<const Answer> deltas) {
    const std::vector<Vertex> above = points_above(epsilons, deltas);
    MergedOutcomes out{outcomes_below(points_below(epsilons, deltas)), outcomes_above(above),
                       above.back().delta};
    out.lower.resize(out.upper.size(), {out.lower.back().loss, 0});
    return out;
}

std::vector<double> first_points(double low, double high) {
    const double scale = std::min(-low, high), step = 2 * scale / inner;
    std::vector<double> out;
    const auto outwards = [&](double end) {
        const double ratio = std::pow(end / scale, 1.0 / outer);
        for (std::size_t i = 1; ratio > least_ratio && i <= outer; ++i)
            out.push_back(scale * std::pow(ratio, static_cast<double>(i)));
    };
    outwards(-low);
    for (double& point : out) point = -point;
    std::reverse(out.begin(), out.end());
    for (std::size_t i = 0; i <= inner; ++i) out.push_back(-scale + step * static_cast<double>(i));
    outwards(high);
    return out;
}

// As many to a share as its cube root times the square of what it has of the axis asks for: what chords leave
// open is as much as the share times the square of how far apart points are.
std::vector<double> finer_points(std::span<const double> points, std::span<const double> shares,
                                 std::size_t count) {
    const std::size_t intervals = points.size() - 1;
    std::vector<double> until{0};
    double total = 0;
    for (std::size_t i = 0; i < intervals; ++i) {
        const double width = points[i + 1] - points[i];
        total += std::cbrt((shares[i] + shares[i + 1]) * width * width);
        until.push_back(total);
    }
    std::vector<double> out;
    const double even = total * everywhere / static_cast<double>(intervals);
    for (std::size_t i = 0; i < intervals; ++i)
        until[i + 1] = (1 - everywhere) * until[i + 1] + even * static_cast<double>(i + 1);
    for (std::size_t i = 0, k = 0; k + 1 < count; ++k) {
        const double wanted = total * static_cast<double>(k) / static_cast<double>(count - 1);
        while (i + 1 < intervals && until[i + 1] < wanted) ++i;
        const double part = std::clamp((wanted - until[i]) / (until[i + 1] - until[i]), 0.0, 1.0),
                     point = points[i] + part * (points[i + 1] - points[i]);
        if (out.empty() || point > out.back()) out.push_back(point);
    }
    if (points.back() > out.back()) out.push_back(points.back());
    return out;
}

}  // namespace hockeystick
