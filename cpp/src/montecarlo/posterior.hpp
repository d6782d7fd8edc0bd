// What an output says about one example.
#pragma once

#include <span>
#include <vector>

#include "hockeystick/schemes.hpp"

namespace hockeystick {

// ln P/Q of one example, and E[x | output], x its participations.
struct Posterior {
    double log_ratio;
    std::vector<double> means;
};
Posterior posterior(const BMinSep& scheme, std::span<const double> products, std::span<const double> norms);

}  // namespace hockeystick
