// eps(delta) of very many compositions of the same few pairs, as the examples of a data set have them: each
// example is a vector of counts, how often it went through each kind of step.
//
// The inversion of inversion.hpp, on lines Re z = s that all examples share. The logarithms of the kinds'
// transforms at a line's few frequencies are tabulated once; the composition's is their inner product with
// the counts. So one example costs a few short inner products and some exponentials.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "hockeystick/pairs.hpp"

namespace hockeystick {

// How the upper bound was found: nothing was spent; the lines of 16, up to 96 or 512 frequencies; losses
// rounded to a lattice; Chernoff's bound, where nothing is better.
enum class Path : std::uint8_t { nothing, short_line, medium_line, long_line, lattice, chernoff };

// The examples' counts of each kind: row-major, as many to a row as there are kinds.
using IndividualCounts = std::variant<std::span<const std::uint16_t>, std::span<const std::uint32_t>>;

// floor: for each example, a value below which its upper bound need not be improved (empty: none). lower:
// whether lower bounds are wanted where they cost extra; else they may be 0.
struct IndividualWish {
    std::span<const double> floor = {};
    bool lower = true;
};

struct IndividualAnswers {
    std::vector<double> lower, upper;
    std::vector<Path> path;
};

// Bounds for one direction; a null pair is a step that reveals nothing. Tables are made on demand and kept.
// Not for use by several threads at once. An answer depends on the example's own counts only.
class IndividualProfiles {
public:
    // Throws std::invalid_argument unless each pair is a mixture of Gaussians.
    explicit IndividualProfiles(const std::vector<PairPtr>& pairs);
    ~IndividualProfiles();

    std::size_t kinds() const noexcept;
    // For each pair an upper bound of K(s) = ln E_P[e^{sL}], s > 0: s times the Renyi divergence of order 1 +
    // s.
    std::vector<double> log_moments(double s) const;
    // Bounds on the eps at `delta`, in [0, 1]. Both throw std::invalid_argument for what does not fit.
    IndividualAnswers epsilon(const IndividualCounts& counts, double delta, const IndividualWish& wish = {});
    // Bounds on delta at each example's own eps >= 0.
    IndividualAnswers delta(const IndividualCounts& counts, std::span<const double> epsilons,
                            const IndividualWish& wish = {});

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace hockeystick
