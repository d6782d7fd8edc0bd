// Certified delta(eps) and eps(delta) of a composition: the entry point of the core.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "hockeystick/answer.hpp"

namespace hockeystick {

// automatic: a closed form where there is one, else the inversion; the FFT where that cannot answer as
// accurately as asked. fft: always the FFT, but for a single step. prv: mean-preserving rounding with its
// coupling bound, for comparison.
enum class Engine { automatic, fft, prv };

// The worst over several directions ("remove" and "add") of a heterogeneous composition.
class Profile {
public:
    // accuracy: wanted relative gap upper/lower - 1 of eps (or of delta, when delta is asked for).
    // memory_limit, in bytes: a finer lattice that needs more is not used; the gap stays wider.
    // before_lattices: called before any are made, as they take time and memory, which not all questions do.
    explicit Profile(std::vector<Composition> directions, double accuracy = 1e-3,
                     std::size_t memory_limit = std::size_t{1} << 30, Engine engine = Engine::automatic,
                     const std::function<void()>& before_lattices = {});
    ~Profile();
    Profile(Profile&&) noexcept;
    Profile& operator=(Profile&&) noexcept;

    // Smallest eps >= 0 with H_{e^eps} <= delta, for delta in [0, 1]; +inf where there is none.
    Answer epsilon_bounds(double delta) const;
    // delta at a given eps (any real number or +inf).
    Answer delta_bounds(double epsilon) const;
    // A whole curve: the same bounds for many eps, best in order, as neighbours share work.
    std::vector<Answer> delta_curve(std::span<const double> epsilons) const;
    // The same where time counts: a few lattices serve the whole curve, and a delta that is negligible may be
    // known from above alone. Finer than `accuracy` where that costs nothing, wider where it would cost more
    // lattices.
    std::vector<Answer> rough_curve(std::span<const double> epsilons, double negligible = 1e-15) const;
    // Whether a rough curve takes next to no time, however small the delta that is not negligible.
    bool quick() const;

    // Bytes that the largest lattice takes under this limit.
    static std::size_t most_memory(std::size_t memory_limit);

private:
    class Direction;
    std::vector<std::unique_ptr<Direction>> directions_;
};

}  // namespace hockeystick
