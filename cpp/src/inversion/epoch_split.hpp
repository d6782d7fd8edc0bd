// delta(eps) of epochs of random allocations and any other steps, in three parts: the outcomes without a
// large likelihood ratio, those with some large one but none that decides alone, and the others
// (docs/mechanisms/allocation.md, "Epochs in three parts").
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "hockeystick/answer.hpp"
#include "hockeystick/pairs.hpp"
#include "inversion/allocation_parts.hpp"
#include "inversion/contour.hpp"
#include "inversion/epoch_kind.hpp"

namespace hockeystick {

// And a bound on what else there is of delta at any eps.
struct SplitWithMore : Split {
    std::function<double(double epsilon)> more;

    Inverted at(double epsilon) const;
};

class EpochSplit {
public:
    // Null unless there is an allocation in direction remove, and all others have transforms.
    static std::unique_ptr<EpochSplit> of(const Composition& composition);

    // The standard deviation of the loss, but for its tail.
    double spread() const;
    // The loss by the one ratio that is exceeded in P-mass of delta.
    double jump(double delta) const;
    // A first guess of delta.
    double guess(double epsilon) const;

    // Lines that suit eps, where delta is about that.
    std::optional<SplitWithMore> in_three(double epsilon, double delta) const;

    // E[(e^eps - e^L)_+; some ratio beyond its kind's place] is at most e^{this + (1 + tilt) eps} for any
    // tilt > 0. places: infinite where none is beyond.
    double log_put(const std::vector<double>& places, double tilt) const;

private:
    struct Cuts;
    bool alone() const { return kinds_.size() == 1 && kinds_[0]->count == 1 && variance_ == 0; }
    Cuts cuts(double delta) const;
    std::vector<double> places(Cuts& cuts, double loss) const;
    bool decide(Cuts& cuts, double epsilon, double delta) const;

    std::vector<std::unique_ptr<EpochKind>> kinds_;
    double variance_ = 0;  // of the Gaussian steps: K = variance s (s + 1)/2
};

}  // namespace hockeystick
