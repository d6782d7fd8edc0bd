// A mixture pair along lines Im t = a of the complex plane, where e^{i tau L(t)} decays with the frequency
// (docs/accounting/bounds.md, "Layers of losses").
#pragma once

#include <cstddef>
#include <vector>

#include "numerics/complex.hpp"
#include "pairs/mixture.hpp"

namespace hockeystick {

// ln of a ratio at t + ib without cancellation near 1, and its error in units of round-off.
struct ComplexLog {
    Complex value;
    double slack;
};
ComplexLog log_ratio(const MixtureRatio& ratio, double t, double b);

// Where to put the line, and the step at which the trapezoidal rule along it has the wanted error. With F the
// integrand for any frequency tau >= 0, the rule along Im t = a is off by at most 1.01 e^{-2 pi a/h} times
// the sum of the integrals of |F| along Im t = 0 and Im t = 2a: nothing there depends on tau, as |e^{i tau
// L}| <= 1. log_wanted: ln of one over the error, beside what F grows by.
struct Line {
    double a, h;
};
// most: ln of what the terms may grow by, as rounding then does, too.
Line best_line(const MixturePart& part, double s, double log_wanted, double most);

// At first + ih + ia, i = 0, 1, ...: ln of P's density, without the window, the loss, and their errors.
struct LineNodes {
    double a = 0, h = 0, first = 0;
    std::vector<Complex> log_p, loss;
    std::vector<double> log_p_slack, loss_slack;
};
LineNodes line_nodes(const MixturePart& part, Line line, double first, std::size_t size);

}  // namespace hockeystick
