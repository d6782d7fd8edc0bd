// Certified delta(eps) and eps(delta) of a composition: the entry point of the core.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hockeystick/compose.hpp"
#include "hockeystick/pairs.hpp"

namespace hockeystick {

// An answer with its guarantee lower <= truth <= upper. The terms say, in units of delta at the
// upper bound, where the distance comes from.
struct Answer {
    double lower = 0, upper = 0;
    std::string engine;         // "closed form" or "fft"
    std::size_t direction = 0;  // which direction attains the upper bound
    double discretisation = 0, truncation = 0, wrap_around = 0, round_off = 0;
    double step = 0;       // lattice step
    std::size_t size = 0;  // transform length
};

using Composition = std::vector<std::pair<PairPtr, std::uint64_t>>;

// The worst over several directions ("remove" and "add") of a heterogeneous composition.
class Profile {
public:
    // accuracy: wanted relative gap upper/lower - 1 of eps (or of delta, when delta is asked for).
    // memory_limit, in bytes: a finer lattice that needs more is not used; the gap stays wider.
    explicit Profile(std::vector<Composition> directions, double accuracy = 1e-3,
                     std::size_t memory_limit = std::size_t{1} << 30);
    ~Profile();
    Profile(Profile&&) noexcept;
    Profile& operator=(Profile&&) noexcept;

    // Smallest eps >= 0 with H_{e^eps} <= delta, for delta in [0, 1]; +inf where there is none.
    Answer epsilon_bounds(double delta) const;
    // delta at a given eps (any real number or +inf).
    Answer delta_bounds(double epsilon) const;

private:
    class Direction;
    std::vector<std::unique_ptr<Direction>> directions_;
    double accuracy_;
};

}  // namespace hockeystick
