// Sums of small likelihood ratios: W/T over some of the steps of an epoch of random allocation, given that
// each W is at most B (docs/mechanisms/allocation.md, "One ratio alone").
#pragma once

#include "hockeystick/pairs.hpp"
#include "inversion/allocation_known_series.hpp"
#include "inversion/allocation_step.hpp"

namespace hockeystick {

struct LightSum {
    double mean, unit;  // the latter B/T
    double second;      // of all W/T, E (W/T)^2 added up
    Series central;     // E (sum - mean)^k/(unit^k k!)
};

class LightRatios {
public:
    LightRatios(const Allocation& law, const CutStep& cut);
    // Of so many steps.
    LightSum sum(double count) const;

private:
    double unit_, mean_, second_;  // mean of W/B, and of its square
    Series central_;               // E (W/B - mean)^k/k!
};

// The normal tail beyond x, beside e^{-x^2/2}.
double scaled_tail(double x);

}  // namespace hockeystick
