// One of T steps with Gaussian noise, drawn uniformly (docs/mechanisms/allocation.md). Its profile is known
// by inversion alone.

#include <algorithm>
#include <stdexcept>

#include "pairs/tangents.hpp"

namespace hockeystick {
namespace {

class AllocationPair final : public Pair {
public:
    AllocationPair(const Allocation& law, double told_mu) : law_(law), told_mu_(told_mu) {}

    Tangent above(double) const override { return unknown(); }
    Tangent below(double) const override { return unknown(); }
    // Who knows the step sees the noise alone.
    PairPtr stand_in() const override { return gaussian(told_mu_); }
    std::optional<Allocation> allocation() const override { return law_; }

private:
    [[noreturn]] static Tangent unknown() {
        throw std::invalid_argument("random_allocation: no lattice can be made of it");
    }
    Allocation law_;
    double told_mu_;
};

}  // namespace

PairPtr random_allocation(double mu, double steps, Sampling mode, double told_mu) {
    require(std::isfinite(mu) && mu > 0, "random_allocation: mu must be finite and positive");
    require(steps >= 2 && steps <= 0x1p53 && steps == std::floor(steps),
            "random_allocation: steps must be a whole number from 2 to 2^53");
    require(told_mu > 0, "random_allocation: told_mu must be positive");
    require(mode != Sampling::replace_one, "random_allocation: no pair is known for replace_one");
    return std::make_shared<AllocationPair>(Allocation{mu, steps, mode == Sampling::add},
                                            std::min(mu, told_mu));
}

}  // namespace hockeystick
