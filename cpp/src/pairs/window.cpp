#include "pairs/window.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// proof: e^{-m^2/8}, beside the nearest point of the lattice, the m-th further one. Those left out are below
// 1e-17.
constexpr int furthest = 18;
const std::array<double, furthest + 1> fall = [] {
    std::array<double, furthest + 1> out{};
    for (int m = 0; m <= furthest; ++m) out[static_cast<std::size_t>(m)] = std::exp(-0.125 * m * m);
    return out;
}();

const double log_pitch = std::log(0.5 / std::sqrt(2 * pi));

// sum over m = from, ..., to of fall[m] r^m.
template <class T>
T powers(T r, int from, int to) {
    if (to < from) return 0;
    T sum = fall[static_cast<std::size_t>(to)];
    for (int m = to - 1; m >= from; --m) sum = sum * r + fall[static_cast<std::size_t>(m)];
    return from == 1 ? sum * r : sum;
}

struct Near {
    double y;  // distance from the nearest point in the window, over the width
    int below, above;
};

Near near(const Window& window, double t) {
    const double nearest = std::clamp(std::round(t / window.pitch()), -9e15, 9e15);
    const std::int64_t j = std::clamp(static_cast<std::int64_t>(nearest), window.first(), window.last() - 1);
    return {
        (t - static_cast<double>(j) * window.pitch()) / window.width(),
        window.from() ? static_cast<int>(std::min<std::int64_t>(furthest, j - window.first())) : furthest,
        window.to() ? static_cast<int>(std::min<std::int64_t>(furthest, window.last() - 1 - j)) : furthest};
}

}  // namespace

double Window::log(double t) const noexcept {
    if (whole()) return 0;
    const Near n = near(*this, t);
    if (n.below == furthest && n.above == furthest) return 0;
    const double r = std::exp(-0.5 * n.y);
    return -0.5 * n.y * n.y + std::log(powers(r, 0, n.below) + powers(1 / r, 1, n.above)) + log_pitch;
}

Window::Complex Window::at(double t, double a) const noexcept {
    if (whole()) return {0, 1};
    const Near n = near(*this, t);
    const double b = a / width_;
    // Proof: points left out, e^{b^2/2} times the real line's, and Poisson's e^{4 pi b - 8 pi^2} are < 2^-54.
    if (n.below == furthest && n.above == furthest && std::abs(b) < 3.2) return {0, 1};
    // -(y + ib)^2/2 = (b^2 - y^2)/2 - iby.
    const std::complex<double> r = std::polar(std::exp(-0.5 * n.y), -0.5 * b);
    const std::complex<double> sum = powers(r, 0, n.below) + powers(1.0 / r, 1, n.above);
    return {0.5 * (b * b - n.y * n.y) + log_pitch, sum * std::polar(1.0, -b * n.y)};
}

double Window::missed(double centre) const noexcept {
    if (whole()) return 0;
    const double variance = 1 + width_ * width_, deviation = std::sqrt(variance);
    double sum = 0;
    // Outwards from an end: at most 60 deviations matter.
    const auto add = [&](std::int64_t from, int direction) {
        const double ahead = (static_cast<double>(from) * pitch() - centre) * direction;
        std::int64_t j = from;
        // From the other side of the centre, start where terms are not negligible.
        if (ahead < -60 * deviation)
            j += direction * static_cast<std::int64_t>((-ahead - 60 * deviation) / pitch());
        for (;; j += direction) {
            const double x = (static_cast<double>(j) * pitch() - centre) / deviation;
            const double term = std::exp(-0.5 * x * x);
            sum += term;
            if (x * direction > 0 && !(term > 1e-19 * sum)) break;
        }
    };
    if (to()) add(last_, 1);
    if (from()) add(first_ - 1, -1);
    return sum * pitch() / std::sqrt(2 * pi * variance);
}

}  // namespace hockeystick
