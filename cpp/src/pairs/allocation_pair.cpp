// One of T steps with Gaussian noise, drawn uniformly (docs/mechanisms/allocation.md, "The pair"). Its
// profile is known by inversion alone; simpler pairs lie on both sides of it.

#include <algorithm>
#include <stdexcept>

#include "numerics/special.hpp"
#include "pairs/tangents.hpp"

namespace hockeystick {
namespace {

// speed: nodes and time grow with it, and the answer nears that of who is told the step.
constexpr double most_mu = 100;

// What is seen of an epoch by who keeps the largest of its outputs alone ("A statistic of the outputs").
class LargestOutput final : public Pair {
public:
    explicit LargestOutput(const Allocation& law) : law_(law) {}

    Tangent above(double x) const override { return tangent(x, true); }
    Tangent below(double x) const override { return tangent(x, false); }

private:
    // speed: beyond these outputs, in standard deviations, nothing is looked for, and how closely.
    static constexpr double farthest = 35;
    static constexpr int halvings = 60;

    // ln of the masses of outputs up to m, P's and Q's.
    double log_p(double m) const { return (law_.steps - 1) * log_normal(m) + log_normal(m - law_.mu); }
    double log_q(double m) const { return law_.steps * log_normal(m); }
    static double log_normal(double m) {
        return m > 0 ? std::log1p(-gaussian_tail(m)) : std::log(gaussian_tail(-m));
    }
    // ln dP/dQ, which rises with m.
    double loss(double m) const {
        const double one = law_.mu * (m - 0.5 * law_.mu),
                     others = std::log(law_.steps - 1) + log_normal(m - law_.mu) - log_normal(m);
        return std::max(one, others) + std::log1p(std::exp(-std::abs(one - others))) - std::log(law_.steps);
    }

    // In direction add P and Q change places, and the outputs above a loss are the lesser ones.
    Tangent tangent(double x, bool above) const {
        const double wanted = law_.add ? -x : x;
        double low = -farthest, high = farthest + law_.mu;
        for (int i = 0; i < halvings; ++i) {
            const double middle = 0.5 * (low + high);
            (loss(middle) < wanted ? low : high) = middle;
        }
        const double m = 0.5 * (low + high), first = law_.add ? log_q(m) : log_p(m),
                     second = law_.add ? log_p(m) : log_q(m);
        const bool upper = above != law_.add;
        const auto mass = [upper](double log) { return upper ? -std::expm1(log) : std::exp(log); };
        const double p = mass(first), q = std::exp(x) * mass(second);
        // Tails at m round by its square; T-th powers by their logarithm as well.
        const double far = std::abs(m) + law_.mu,
                     rounding = u * ((64 + 8 * far * far) * (1 + std::abs(first) + std::abs(second)) +
                                     2 * std::abs(x)),
                     misplaced = std::abs(loss(m) - wanted) + 64 * u * (1 + std::abs(x) + far * far);
        return {above ? p - q : q - p, q, 0, rounding * (p + q), rounding, misplaced};
    }

    Allocation law_;
};

class AllocationPair final : public Pair {
public:
    AllocationPair(const Allocation& law, double told_mu) : law_(law), told_mu_(told_mu) {}

    Tangent above(double) const override { return unknown(); }
    Tangent below(double) const override { return unknown(); }
    // Who knows the step sees the noise alone; who keeps one statistic of the outputs sees less than all.
    PairPtr stand_in() const override {
        return bracket(law_.mu < large_mu ? gaussian(law_.mu / std::sqrt(law_.steps) * (1 - 4 * u))
                                          : std::make_shared<LargestOutput>(law_),
                       gaussian(told_mu_));
    }
    std::optional<Allocation> allocation() const override { return law_; }

private:
    // speed: whether large ratios say more than the mean of the outputs.
    static constexpr double large_mu = 1;
    [[noreturn]] static Tangent unknown() {
        throw std::invalid_argument("random_allocation: no lattice can be made of it");
    }
    Allocation law_;
    double told_mu_;
};

}  // namespace

PairPtr random_allocation(double mu, double steps, Sampling mode, double told_mu) {
    require(mu > 0 && mu <= most_mu, "random_allocation: mu must be positive and at most 100");
    require(steps >= 2 && steps <= 0x1p53 && steps == std::floor(steps),
            "random_allocation: steps must be a whole number from 2 to 2^53");
    require(told_mu > 0, "random_allocation: told_mu must be positive");
    require(mode != Sampling::replace_one, "random_allocation: no pair is known for replace_one");
    return std::make_shared<AllocationPair>(Allocation{mu, steps, mode == Sampling::add},
                                            std::min(mu, told_mu));
}

}  // namespace hockeystick
