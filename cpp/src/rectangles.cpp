#include "hockeystick/rectangles.hpp"

#include <algorithm>
#include <cmath>

namespace hockeystick {
namespace {

// 1 - S(x), rounded down: 1 - x^2/6 + x^4/120 is above sinc and decreases on [0, 2]; 1/x is above it after.
double sinc_deficit(double x) {
    if (x <= 2) return x * x / 6 * (1 - x * x / 20);
    return 1 - std::min(1 - 8.0 / 15, 1 / x);
}

}  // namespace

// Splits a step function into rectangles: each is as wide as it can be.
void Rectangles::add(const std::vector<double>& edges, const std::vector<double>& heights) {
    struct Open {
        double edge, height;
    };
    std::vector<Open> open;
    for (std::size_t i = 0; i <= heights.size(); ++i) {
        const double height = i < heights.size() ? heights[i] : 0;
        double edge = i < edges.size() ? edges[i] : 0;
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
}

double Rectangles::deficit(double tau) const {
    double deficit = 0;
    for (const auto& r : rectangles_) deficit += r.mass * sinc_deficit(0.5 * tau * r.length);
    return deficit;
}

}  // namespace hockeystick
