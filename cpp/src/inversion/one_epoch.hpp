// delta(eps) of one epoch of random allocation (docs/mechanisms/allocation.md, "One epoch in two parts"). In
// direction remove the outcomes without a large likelihood ratio W are one part, the others another.
//
// E[(V - e^eps)_+] and E[(1 - e^eps V)_+] are linear in V, so each part is an inversion in V itself, along a
// line that suits it alone.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hockeystick/answer.hpp"
#include "hockeystick/pairs.hpp"
#include "inversion/allocation_large_ratios.hpp"
#include "inversion/allocation_step.hpp"
#include "inversion/contour.hpp"

namespace hockeystick {

class OneEpoch {
public:
    // Null unless the composition is one such epoch.
    static std::unique_ptr<OneEpoch> of(const Composition& composition);
    ~OneEpoch();

    // Bounds as in Profile, from at most so many frequencies of each part; empty where that is too few.
    std::optional<Answer> epsilon_bounds(double delta, std::size_t most) const;
    std::optional<Answer> delta_bounds(double epsilon, std::size_t most) const;
    // As delta_bounds; the same lines also serve the next points.
    std::vector<std::optional<Answer>> delta_curve(std::span<const double> epsilons, std::size_t most,
                                                   Sharing sharing) const;
    // Whether lines serve one curve after another.
    void keep_lines(bool whether) const;

private:
    struct Parts;
    // Frequencies of a line at most, and by how many nats more its aliases fall, so that it serves
    // neighbours.
    struct LineBudget {
        std::size_t most;
        double room = 0;
    };
    explicit OneEpoch(const Allocation& law);
    double spread() const;
    double guess(double epsilon) const;  // of delta
    CutStep step_of_put(double x) const;
    std::optional<Parts> in_two(double x, double delta, LineBudget budget) const;
    std::optional<Parts> by_series(double x, double delta, double worst, LineBudget budget) const;
    std::optional<Parts> by_put(double epsilon, double delta, LineBudget budget) const;
    std::optional<Parts> in_parts(double epsilon, double delta, LineBudget budget) const;
    std::optional<Parts> parts_at(double epsilon, double delta, LineBudget budget) const;
    std::optional<std::pair<CutStep, LargeRatios>> alone(double x, double worst) const;
    std::optional<Answer> delta_bounds(double epsilon, LineBudget budget, std::optional<Parts>& parts) const;

    Allocation law_;
    std::unique_ptr<KeptLines<Parts>> kept_;
};

}  // namespace hockeystick
