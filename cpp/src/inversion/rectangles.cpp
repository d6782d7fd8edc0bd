#include "inversion/rectangles.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace hockeystick {
namespace {

// 1 - S(x), rounded down: 1 - x^2/6 + x^4/120 is above sinc and decreases on [0, 2]; 1/x is above it after.
double sinc_deficit(double x) {
    if (x <= 2) return x * x / 6 * (1 - x * x / 20);
    return 1 - std::min(1 - 8.0 / 15, 1 / x);
}

// The same for b equal atoms, whose transform is sin(b angle/2) / (b sin(angle/2)): it falls up to
// b angle/2 = pi, and beyond 1/(b sin(angle/2)) is above it, which is less than the value at 2.
double dirichlet_deficit(double b, double angle) {
    const double x = 0.5 * b * angle;
    if (b < 1.5) return 0;
    if (b < 2.5) return 2 * std::pow(std::sin(0.25 * angle), 2);
    if (x <= 2) return 1 - std::sin(x) / (b * std::sin(x / b));
    return 1 - std::min(std::sin(2.0) / (b * std::sin(2 / b)), 1 / (b * std::sin(0.5 * angle)));
}

}  // namespace

void Rectangles::extend(double from, double to, double height) {
    if (edges_.size() > 1 && (edges_[1] > edges_[0]) != (to > from)) close();
    if (edges_.empty()) edges_.push_back(from);
    edges_.push_back(to);
    heights_.push_back(height);
}

void Rectangles::close() {
    if (!edges_.empty() && edges_.front() > edges_.back()) {
        std::reverse(edges_.begin(), edges_.end());
        std::reverse(heights_.begin(), heights_.end());
    }
    struct Open {
        double edge, height;
    };
    std::vector<Open> open;
    for (std::size_t i = 0; i <= heights_.size(); ++i) {
        const double height = i < heights_.size() ? heights_[i] : 0;
        double edge = i < edges_.size() ? edges_[i] : 0;
        const double end = edge;
        while (!open.empty() && open.back().height > height) {
            const double below = std::max(height, open.size() > 1 ? open[open.size() - 2].height : 0.0);
            const double length = end - open.back().edge;
            rectangles_.push_back({length, length * (open.back().height - below)});
            edge = open.back().edge;
            open.pop_back();
            if (below == height) break;
        }
        if (height > 0 && (open.empty() || open.back().height < height)) open.push_back({edge, height});
    }
    edges_.clear();
    heights_.clear();
}

double Rectangles::deficit(double tau) const {
    double deficit = 0;
    for (const auto& r : rectangles_) deficit += r.mass * sinc_deficit(0.5 * tau * r.length);
    return deficit;
}

double Rectangles::lattice_deficit(double angle) const {
    double deficit = 0;
    for (const auto& r : rectangles_) deficit += r.mass * dirichlet_deficit(r.length, angle);
    return deficit;
}

}  // namespace hockeystick
