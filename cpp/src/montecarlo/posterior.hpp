// What an output says about one example, and from it about several whose chains are alike.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "hockeystick/schemes.hpp"
#include "hockeystick/strategy.hpp"

namespace hockeystick {

// ln P/Q of one example, and E[x | output], x its participations.
struct Posterior {
    double log_ratio;
    std::vector<double> means;
};
Posterior posterior(const BMinSep& scheme, std::span<const double> products, std::span<const double> norms);

// A user with `examples` examples with independent chains. ||C sum x^a||^2 has, besides the |C x^a|^2, the
// terms 2 <C x^a, C x^b>. Given the output, and without these terms, the x^a are independent: by Jensen's
// inequality
//     P/Q >= (P_1/Q)^k e^{-k (k-1)/2 |C m|^2/sigma^2},     m = E[x | output] of one example.
struct SharedExample {
    Strategy strategy;
    BMinSep scheme;
    double noise_multiplier;
    std::size_t examples;

    // The logarithm of the right-hand side.
    double log_ratio(std::span<const double> products, std::span<const double> norms) const;
};

}  // namespace hockeystick
