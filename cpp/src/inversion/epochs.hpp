// delta(eps) of epochs of one random allocation in direction remove, and Gaussian steps, in three parts: the
// outcomes without a large likelihood ratio W, those with some large one but none that decides alone, and the
// others (docs/mechanisms/allocation.md, "Epochs in three parts").
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "hockeystick/answer.hpp"
#include "hockeystick/pairs.hpp"
#include "inversion/contour.hpp"

namespace hockeystick {

class Bulk;
class Ladder;

// ln of a bound on E[e^{power L}; two or more W on the ladder, in one epoch or in two, and none beyond].
// bulk: of the outcomes below the ladder.
double log_pairs(const Allocation& law, double epochs, double variance, const Bulk& bulk,
                 const Ladder& ladder, double power);

class Epochs {
public:
    // Null unless the composition is that.
    static std::unique_ptr<Epochs> of(const Composition& composition);

    // Bounds as in Profile; empty where there are none.
    std::optional<Answer> epsilon_bounds(double delta) const;
    std::optional<Answer> delta_bounds(double epsilon) const;

    // Whether this is the way, rather than the whole transform; a first guess of delta.
    bool suits(double delta) const;
    double guess(double epsilon) const;

private:
    struct Parts;
    struct SecondCut {
        double g, log_put, tilt, most;
    };
    Epochs(const Allocation& law, double count, double variance)
        : law_(law), count_(count), variance_(variance) {}
    double spread() const;
    double jump(double delta) const;
    double place(double ratio) const;
    std::optional<SecondCut> second_cut(double first, double epsilon, double log_delta) const;
    std::optional<Parts> in_three(double epsilon, double delta) const;
    std::optional<Parts> by_series(double epsilon, double delta, double worst) const;
    std::optional<Parts> parts_at(double epsilon, double delta) const;

    Allocation law_;
    double count_, variance_;  // of epochs, and of the Gaussian steps: K = variance s (s + 1)/2
};

}  // namespace hockeystick
