// eps(delta) of many Gaussian mechanisms at once.
#pragma once

#include <span>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// For each mu >= 0 an upper bound on the eps at `delta`, in [0, 1], of N(mu, 1) against N(0, 1); within 1e-9
// of it, relatively, unless it is tiny. Rounded up, errors of the closed form included.
void gaussian_epsilons(std::span<const double> mu, double delta, std::span<double> epsilon);

}  // namespace hockeystick
