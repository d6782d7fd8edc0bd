// A pair whose loss is counted from another point, so that lattices may lie where they serve it
// (docs/individual/individual.md, "Individual ε of DP-SGD").
#pragma once

#include <cmath>

#include "hockeystick/pairs.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {

// The pair as if its loss were smaller by `offset`: Q' = e^offset Q, so that e^x Q' is e^{x + offset} Q.
class ShiftedPair final : public Pair {
public:
    ShiftedPair(const Pair& pair, double offset) : pair_(pair), offset_(offset) {}
    Tangent above(double x) const override { return moved(pair_.above(x + offset_), x); }
    Tangent below(double x) const override { return moved(pair_.below(x + offset_), x); }
    double max_loss() const override {
        const double loss = pair_.max_loss();
        return loss - offset_ + 4 * u * (std::abs(loss) + std::abs(offset_));
    }
    double infinity_mass() const override { return pair_.infinity_mass(); }
    double q_mass() const override { return std::exp(offset_); }

private:
    // The sum of x and the offset rounds.
    Tangent moved(Tangent t, double x) const {
        t.error += 2 * u * (std::abs(x) + std::abs(offset_)) * t.slope;
        return t;
    }
    const Pair& pair_;
    double offset_;
};

}  // namespace hockeystick
