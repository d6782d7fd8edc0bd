// E[(V - c)_+; some W > B], c = e^eps, of one random allocation in direction remove, where one large
// likelihood ratio W decides and all others together hardly move V: a power series in that
// (docs/mechanisms/allocation.md, "One ratio alone").
#pragma once

#include <array>
#include <cstddef>

#include "hockeystick/pairs.hpp"
#include "inversion/allocation_step.hpp"
#include "inversion/contour.hpp"

namespace hockeystick {

class LargeRatios {
public:
    LargeRatios(const Allocation& law, const CutStep& cut);
    // The error is infinite where the series does not serve.
    Inverted at(double epsilon) const;

    // speed: how far the series goes.
    static constexpr std::size_t degree = 32;
    // Coefficients, and their errors.
    struct Series {
        std::array<double, degree + 1> value{}, error{};
    };

private:
    Series moments(double gap) const;
    Series price(double g) const;
    double remainder(double g, double gap, const Series& price, const Series& moments, std::size_t n) const;
    double one_of(double y) const;
    Inverted with_pairs(Inverted lone, double c) const;

    Allocation law_;
    double g_;             // the cut
    double jump_, slack_;  // B/T, and how it and the gap are rounded
    double p_, q_;         // P(W > B) in the step where the record is, Q(W > B) in any other
    double mean_;          // E V', nearly: V' the sum of all other W/T, each at most B/T
    Series others_;        // E (V' - mean)^k/(jump^k k!)
};

}  // namespace hockeystick
