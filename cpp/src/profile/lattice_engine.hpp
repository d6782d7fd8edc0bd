// Bounds from lattices: discretised from both sides, composed, read off, and refined until they are as close
// as wanted (docs/accounting/bounds.md, "One step on a lattice" and "Composition").
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lattice/tail_table.hpp"
#include "profile/lattice_plan.hpp"

namespace hockeystick {

// What it has sketched and composed serves later questions, so that it must not answer several threads at
// once.
class LatticeEngine {
public:
    // Lattices take at most so much memory, in bytes: finer ones are not used.
    // log_finite: ln of the probability that no loss is infinite.
    LatticeEngine(Composition composition, double log_finite, std::size_t memory_limit);
    static std::size_t most_memory(std::size_t memory_limit);

    // most: the upper bound where no lattice finds one.
    Answer epsilon(double delta, double accuracy, double most);
    Answer delta(double epsilon, double accuracy);
    // Bounds at many eps from a few lattices together: each of them bounds delta everywhere, and closely
    // where its tilt looks.
    std::vector<Answer> curve(std::span<const double> epsilons, double accuracy, double negligible);
    // Whether a coarse upper bound proves that eps(delta), or delta(eps), is at most `ceiling`.
    bool epsilon_at_most(double delta, double ceiling);
    bool delta_at_most(double epsilon, double ceiling);

private:
    struct Tables {
        LatticeKey key;
        std::size_t size;
        std::size_t most;  // of that and the numbers of points of single steps
        TailTable upper;
        std::optional<TailTable> lower;  // left out where only an upper bound was asked for
    };
    using TablesPtr = std::shared_ptr<const Tables>;
    struct Depth {
        const Steps* steps;
        Saddle saddle;
        double infinity_mass;  // of one step, what the sketches leave out
    };

    const Steps& steps_for(int depth);
    const Steps& steps_for(int depth, double log_mass);
    Depth deep_saddle(double log_mass, const std::function<Saddle(const Steps&)>& find);
    Depth saddle_at_delta(double delta);
    Depth saddle_at_epsilon(double epsilon);

    TablesPtr tables_for(const Depth& at, const Fineness& fineness, bool with_lower = true);
    TablesPtr make_tables(const LatticePlan& plan, bool with_lower) const;
    static void sharpen(Fineness& fineness, const Tables& tables, const Answer& answer, double share);
    using Evaluate = std::function<void(const Tables&, Answer&)>;
    // Whether the answer shows that the estimates were poor; then they are better now.
    using Correct = std::function<bool(const Answer&, Depth&)>;
    Answer refine(Depth at, double tolerance, double accuracy, const Evaluate& evaluate,
                  const Correct& correct);

    Composition composition_;
    std::size_t size_limit_;
    double log_total_, log_finite_;
    std::map<int, Steps> sketches_;
    std::map<std::pair<int, double>, Steps> trimmed_;
    std::deque<TablesPtr> cache_;
};

}  // namespace hockeystick
