// A smooth share of the real line: Gaussians about the points of a lattice.
#pragma once

#include <complex>
#include <cstdint>
#include <limits>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// kappa(t) = sum over first <= j < last of the density of N(x_j, width^2) at t, times the pitch, x_j = j
// pitch, pitch = width/2. Windows over disjoint ranges of j add up, over all j to 1 but for 1e-33, by
// Poisson's summation; and each is an entire function of t. Where the range begins or ends, kappa rises or
// falls (docs/accounting/bounds.md, "Layers of losses").
class Window {
public:
    static constexpr std::int64_t unbounded = std::numeric_limits<std::int64_t>::max();

    Window() = default;  // everything
    Window(double width, std::int64_t first, std::int64_t last) : width_(width), first_(first), last_(last) {}

    bool whole() const noexcept { return first_ == -unbounded && last_ == unbounded; }
    bool from() const noexcept { return first_ != -unbounded; }  // whether it has a lower end, an upper end
    bool to() const noexcept { return last_ != unbounded; }
    double width() const noexcept { return width_; }
    double pitch() const noexcept { return 0.5 * width_; }
    std::int64_t first() const noexcept { return first_; }
    std::int64_t last() const noexcept { return last_; }
    // The outermost points.
    double bottom() const noexcept { return static_cast<double>(first_) * pitch(); }
    double top() const noexcept { return static_cast<double>(last_ - 1) * pitch(); }
    // 1/width^2: |kappa(t + ia)| <= e^{a^2 strength/2} kappa(t), and beyond the top (below the bottom) the
    // slope of ln kappa is at most strength (top - t) (at least strength (bottom - t)).
    double strength() const noexcept { return whole() ? 0 : 1 / (width_ * width_); }

    // ln kappa(t), up to 60 + 4 |ln kappa| units of round-off.
    double log(double t) const noexcept;
    // kappa(t + ia) = e^{log_scale} value, likewise relative to e^{log_scale}, which is about e^{a^2
    // strength/2} kappa(t).
    struct Complex {
        double log_scale;
        std::complex<double> value;
    };
    Complex at(double t, double a) const noexcept;
    // The integral of kappa times N(centre, 1) over the other points of the lattice.
    double missed(double centre) const noexcept;

private:
    double width_ = 1;
    std::int64_t first_ = -unbounded, last_ = unbounded;
};

}  // namespace hockeystick
