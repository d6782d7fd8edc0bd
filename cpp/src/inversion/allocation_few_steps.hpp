// The transform of one random allocation to few steps with much noise, from E_Q[V^p] at complex p: the mean
// of the normal variables apart, few dimensions are left, and few nodes of a trapezoidal rule but for
// permutations (docs/mechanisms/allocation.md, "A few steps").
#pragma once

#include <memory>

#include "hockeystick/pairs.hpp"
#include "inversion/transform.hpp"

namespace hockeystick {

class FewSteps final : public Transform {
public:
    // speed: little noise takes many nodes, and other ways serve there. proof: eight steps at most.
    static bool serves(const Allocation& law) {
        const double most = law.steps <= 4 ? 8 : law.steps == 5 ? 2 : 1.01;
        return law.steps <= 3 || (law.steps <= 8 && law.mu * law.steps <= most);
    }
    explicit FewSteps(const Allocation& law) : law_(law) {}

    // Without the largest losses it is another transform's, where this has too many nodes.
    bool can_cut() const override { return law_.steps > 4 && !law_.add; }
    Cumulant at(double s) const override;
    Row row(double s, double step, std::size_t size, double tolerance) const override;
    std::unique_ptr<DecayBound> decay(double s, double log_mgf) const override;

private:
    struct Rule;
    Allocation law_;
};

}  // namespace hockeystick
