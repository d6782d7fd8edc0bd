// Laplace noise in closed form, and its loss as atoms and a density (docs/accounting/bounds.md, "Exact
// inversion of losses with atoms").

#include "pairs/tangents.hpp"

namespace hockeystick {
namespace {

// Lap(0) against Lap(shift), epsilon = shift/scale, which is rounded: atoms at +-epsilon and a density
// between them.
class LaplacePair final : public Pair {
public:
    explicit LaplacePair(double epsilon) : epsilon_(epsilon) {}

    Tangent above(double at) const override {
        // The loss may have been rounded across an atom.
        if (at >= epsilon_) return {0, 0, 0, at < epsilon_ * (1 + 64 * u) ? 64 * u * epsilon_ : 0.0, 0, 0};
        if (at < -epsilon_) return nothing_below(at);
        const double half = 0.5 * (at - epsilon_);
        const double all = std::exp(half);  // half rounds, which moves the value by as much times this
        return {-std::expm1(half), 0.5 * all, 0, u * (8 + unsure(half) * all), 8 * u, u * unsure(half)};
    }
    Tangent below(double at) const override {
        if (at < -epsilon_) return {0, 0, 0, at > -epsilon_ * (1 + 64 * u) ? 64 * u * epsilon_ : 0.0, 0, 0};
        if (at >= epsilon_) return everything_below(at);
        const double half = -0.5 * (at + epsilon_);
        const double all = std::exp(half);
        return {-std::expm1(half), 1 - 0.5 * all, at, u * (8 + unsure(half) * all), 8 * u, u * unsure(half)};
    }
    double max_loss() const override { return epsilon_ * (1 + 2 * u); }
    double anchor() const override { return epsilon_; }
    // Between the atoms, with the loss itself as t: densities e^{(+-t - epsilon)/2} / 4.
    std::optional<LossLaw> loss_law() const override {
        const double constant = -0.5 * epsilon_ - std::log(4);
        LossLaw law;
        law.atoms = {{-epsilon_, -std::log(2) - epsilon_, 2 * epsilon_, 4 + 4 * epsilon_},
                     {epsilon_, -std::log(2), 2 * epsilon_, 4}};
        law.pieces = {{-epsilon_, epsilon_, false, {{constant, 0.5}}, {{constant, -0.5}}}};
        return law;
    }

    double epsilon() const { return epsilon_; }

private:
    // What half of a loss's distance from an atom rounds by, in units of round-off.
    double unsure(double half) const { return 4 * std::abs(half) + 4 * epsilon_; }

    double epsilon_;
};

}  // namespace

double plain_laplace_epsilon(const Pair& pair) {
    const auto* laplace_pair = dynamic_cast<const LaplacePair*>(&pair);
    return laplace_pair ? laplace_pair->epsilon() : 0;
}

PairPtr laplace(double epsilon) {
    require(std::isfinite(epsilon) && epsilon > 0, "laplace: epsilon must be finite and positive");
    return std::make_shared<LaplacePair>(epsilon);
}

}  // namespace hockeystick
