// One record of a fixed-size Gaussian sum replaced by zero: the pair behind truncated batches.
#pragma once

#include "hockeystick/pairs.hpp"

namespace hockeystick {

// The worst case over all |v| <= mu, |w - v| <= mu of
//     P = (1-q) N(0, 1) + q N(w, 1)   against   Q = (1-q) N(0, 1) + q N(v, 1):
// with probability q another record, -v, is swapped for the record w - v, or for nothing.
//     e^eps >= 1:  (1-q) N(0) + q N(2 mu)  against  (1-q) N(0) + q N(mu);
//     e^eps <  1:  N(0)                    against  (1-q) N(0) + q N(mu).
// Their maximum is convex in e^eps, hence a profile (docs/mechanisms/truncated.md). Mode add is the pair (Q,
// P); replace_one is refused. q in (0, 1].
PairPtr zero_out(double mu, double q, Sampling mode);

}  // namespace hockeystick
