// k-fold composition of lattice losses in one frequency domain.
#pragma once

#include <cstdint>
#include <vector>

#include "lattice/lattice.hpp"

namespace hockeystick {

struct LatticeStep {
    Lattice lattice;
    std::uint64_t count;
};

// Tilted probabilities of the composed loss, less `offset`, at lattice points first, first+1, ...
struct Composed {
    Bound bound = Bound::upper;
    double step = 0, tilt = 0, offset = 0;
    std::int64_t first = 0;
    std::vector<double> mass;  // non-negative
    double log_scale = 0;      // P-mass at point i is mass * exp(log_scale - tilt * i * step)
    // The ledger. `round_off` bounds the error of every single mass; `outside_left/right` the tilted
    // probability left of / right of the window, which the circular convolution folds into it;
    // `beyond` the tilted mass, beside what is inside, of outcomes where some step lies past its lattice.
    double round_off = 0, outside_left = 0, outside_right = 0, beyond = 0;
    double infinity_mass = 0;                // P-mass at +inf
    double deficit = 0, tilted_deficit = 0;  // what rounding of the single steps adds up to
    double relative_error = 0;               // of the scale and of the final sums
    Residue residue;                         // mean_preserving: of the sum of all steps
};

// Composes on the window of `size` points (a size the transform likes) starting at `first`.
// theta_left/right >= 0: further tilts used by Chernoff's bound for the mass outside the window.
Composed compose(const std::vector<LatticeStep>& steps, std::int64_t first, std::size_t size,
                 double theta_left, double theta_right);

}  // namespace hockeystick
