// E[(e^L - c)_+; one W > B and no other is large], c = e^eps, of epochs of one random allocation in direction
// remove, and Gaussian steps, where one large likelihood ratio W decides and all others together hardly move
// the loss L: a power series in what they do (docs/mechanisms/allocation.md, "One ratio alone").
#pragma once

#include <array>
#include <cstddef>

#include "hockeystick/pairs.hpp"
#include "inversion/allocation_known_series.hpp"
#include "inversion/allocation_step.hpp"
#include "inversion/contour.hpp"

namespace hockeystick {

class LargeRatios {
public:
    // The cut B of the epoch with the large ratio, and that of all others'; variance: of the Gaussian steps'
    // loss.
    LargeRatios(const Allocation& law, const CutStep& own, const CutStep& other, double epochs = 1,
                double variance = 0);
    LargeRatios(const Allocation& law, const CutStep& cut, double epochs = 1, double variance = 0)
        : LargeRatios(law, cut, cut, epochs, variance) {}
    // The error is infinite where the series does not serve. Of one epoch alone, two and more W > B are in
    // it.
    Inverted at(double epsilon) const;

private:
    // At one eps: a = c/E Y, the gap a - mean, T gap = W at g; the price f of a W for a gap less by the share
    // z, its coefficients times k!, beside the normal density at g - mu; E (V' - mean)^k/(gap^k k!);
    // (a/gap)^k/k!.
    struct Strike {
        double a, gap, log_w, g;
        Series price, others;
        std::array<double, series_degree + 1> moved;
    };
    Strike strike(double epsilon) const;
    Series price(double g) const;
    Known term(const Strike& strike, std::size_t n, bool slope) const;
    double remainder(const Strike& strike, std::size_t n) const;
    double one_of(double y) const;
    Inverted with_pairs(Inverted lone, double c) const;
    bool alone() const { return epochs_ == 1 && !(product_[2].value > 0); }

    Allocation law_;
    double epochs_;
    double g_;             // the cut
    double jump_, slack_;  // B/T, and how it and the gap are rounded
    double p_, q_;         // P(W > B) in the step where the record is, Q(W > B) in any other
    double mean_;          // E V', nearly: V' the sum of all other W/T of the epoch, each at most B/T
    Series others_;        // E (V' - mean)^k/(jump^k k!)
    double log_whole_;     // ln E Y, nearly: Y the product of the other epochs' V and e^R
    double log_kept_, rounding_of_kept_;  // ln Q(no other W is large), and about what it is
    Series product_;                      // E (Y/E Y - 1)^k
};

}  // namespace hockeystick
