// delta(eps) of epochs of random allocations in direction remove, and other steps: in three parts, or, for
// one kind of allocation and Gaussian steps, by one large ratio alone (docs/mechanisms/allocation.md, "Epochs
// in three parts" and "One ratio alone").
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "hockeystick/answer.hpp"
#include "hockeystick/pairs.hpp"
#include "inversion/contour.hpp"

namespace hockeystick {

class Bulk;
class CutStep;
class EpochSplit;
class Ladder;
struct SplitWithMore;

// ln of a bound on E[e^{power L}; two or more epochs have a W on the ladder, one has three, and none is
// beyond]; if not `apart`, on that of all with a W on the ladder in two or more epochs. bulk: of the outcomes
// below the ladder.
double log_several(const Allocation& law, double epochs, double variance, const Bulk& bulk,
                   const Ladder& ladder, double power, bool apart);

class Epochs {
public:
    // Null unless the composition is that.
    static std::unique_ptr<Epochs> of(const Composition& composition);
    ~Epochs();

    // Bounds as in Profile; empty where there are none, or, unless nothing else is left to ask (last), where
    // the whole transform may be closer.
    std::optional<Answer> epsilon_bounds(double delta, bool last) const;
    std::optional<Answer> delta_bounds(double epsilon, bool last) const;
    // As delta_bounds where this is the way; the same lines also serve the next points.
    std::vector<std::optional<Answer>> delta_curve(std::span<const double> epsilons, Sharing sharing) const;
    // Whether lines serve one curve after another.
    void keep_lines(bool whether) const;

    // Whether this is the way, rather than the whole transform; a first guess of delta.
    bool suits(double delta) const;
    double guess(double epsilon) const;

private:
    explicit Epochs(std::unique_ptr<EpochSplit> split);
    double place(double ratio) const;
    struct Lone;
    std::optional<Lone> lone(const CutStep& cut, double epsilon, double worst) const;
    double log_low(const Bulk& bulk, const Ladder& ladder, double power) const;
    struct Attempt;
    std::optional<Attempt> series_at(const CutStep& step, const Lone& lone, double epsilon, double delta,
                                     double worst) const;
    std::optional<SplitWithMore> by_series(double epsilon, double delta, double worst) const;
    std::optional<SplitWithMore> parts_at(double epsilon, double delta, bool last) const;
    std::optional<Answer> delta_bounds(double epsilon, bool last, std::optional<SplitWithMore>& parts) const;

    std::unique_ptr<EpochSplit> split_;
    std::unique_ptr<KeptLines<SplitWithMore>> kept_;
    bool alone_ = false;               // there is but one kind, and Gaussian steps
    Allocation law_{};                 // if so
    double count_ = 0, variance_ = 0;  // of epochs, and of the Gaussian steps: K = variance s (s + 1)/2
};

}  // namespace hockeystick
