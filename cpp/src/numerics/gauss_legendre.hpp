// Nodes and weights of the Gauss-Legendre rule on [-1, 1], good to a few units of round-off.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>

#include "hockeystick/ieee.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {

template <int order>
struct GaussLegendre {
    std::array<double, order> node, weight;

    // Newton's method on the Legendre polynomial.
    GaussLegendre() {
        for (int i = 0; i < order; ++i) {
            double x = std::cos(pi * (i + 0.75) / (order + 0.5)), slope = 0;
            for (int round = 0; round < 8; ++round) {
                double p0 = 1, p1 = x;
                for (int k = 2; k <= order; ++k) {
                    const double p2 = ((2 * k - 1) * x * p1 - (k - 1) * p0) / k;
                    p0 = p1;
                    p1 = p2;
                }
                slope = order * (p0 - x * p1) / (1 - x * x);
                x -= p1 / slope;
            }
            node[static_cast<std::size_t>(i)] = x;
            weight[static_cast<std::size_t>(i)] = 2 / ((1 - x * x) * slope * slope);
        }
    }
};

}  // namespace hockeystick
