// A mechanism between two pairs (docs/accounting/bounds.md, "Pairs that are more than their mechanism").

#include <utility>

#include "pairs/tangents.hpp"

namespace hockeystick {
namespace {

class BracketPair final : public Pair {
public:
    BracketPair(PairPtr lower, PairPtr upper) : lower_(std::move(lower)), upper_(std::move(upper)) {}

    Tangent above(double x) const override { return upper_->above(x); }
    Tangent below(double x) const override { return upper_->below(x); }
    double max_loss() const override { return upper_->max_loss(); }
    double infinity_mass() const override { return upper_->infinity_mass(); }
    double q_mass() const override { return upper_->q_mass(); }
    double spacing() const override { return upper_->spacing(); }
    double anchor() const override { return upper_->anchor(); }
    std::vector<GaussianMixtures> gaussian_mixtures() const override { return upper_->gaussian_mixtures(); }
    std::vector<GaussianMixtures> joined_mixtures() const override { return upper_->joined_mixtures(); }
    std::optional<LossLaw> loss_law() const override { return upper_->loss_law(); }
    PairPtr stand_in() const override {
        const PairPtr more = upper_->stand_in(), less = lower_->stand_in();
        return more ? bracket(less ? less->lower() : lower_, more) : nullptr;
    }
    std::optional<Allocation> allocation() const override { return upper_->allocation(); }
    PairPtr lower() const override { return lower_; }
    PairPtr looser() const override { return upper_->looser(); }

private:
    PairPtr lower_, upper_;
};

}  // namespace

PairPtr bracket(PairPtr lower, PairPtr upper) {
    require(lower != nullptr && upper != nullptr, "bracket: both pairs are needed");
    return std::make_shared<BracketPair>(std::move(lower), std::move(upper));
}

}  // namespace hockeystick
