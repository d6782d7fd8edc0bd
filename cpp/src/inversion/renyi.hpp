// The Renyi divergence of a pair, from its Laplace transform at one real point.
#pragma once

#include <utility>

#include "hockeystick/pairs.hpp"

namespace hockeystick {

// Bounds (lower, upper) on D_order(P || Q) = ln E_P[e^{(order - 1) L}] / (order - 1), for order in (1, 2^53]
// or +inf (docs/accounting/rdp.md, "The moment").
std::pair<double, double> renyi_divergence(const Pair& pair, double order);

}  // namespace hockeystick
