// Numbers of any size, the same for all samples: what the kernels are given.
#pragma once

#include <cstddef>

#include "montecarlo/kernels.hpp"

namespace hockeystick {

kernels::Factor factor(double value);
// e^x, |x| < 2^50.
kernels::Factor exponential_factor(double x);
kernels::Factor operator*(const kernels::Factor& a, const kernels::Factor& b);
kernels::Factor operator+(const kernels::Factor& a, const kernels::Factor& b);
kernels::Factor power(kernels::Factor base, std::size_t exponent);

}  // namespace hockeystick
