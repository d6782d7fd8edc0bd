// k-fold composition of lattice losses in one frequency domain (docs/accounting/bounds.md, "Composition").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lattice/lattice.hpp"
#include "numerics/complex.hpp"
#include "numerics/fft.hpp"

namespace hockeystick {

struct LatticeStep {
    Lattice lattice;
    std::uint64_t count;
};

// Tilted probabilities of the composed loss, less `offset`, at lattice points first, first+1, ...: P-mass at
// point i is mass * exp(log_scale - tilt * i * step). The terms are those of the sum of all steps; `beyond`
// is the tilted mass, beside what is inside, of outcomes where some step lies past its lattice.
struct Composed : LatticeTerms {
    Bound bound = Bound::upper;
    double step = 0, tilt = 0;
    std::int64_t first = 0;
    std::vector<double> mass;  // non-negative
    // The ledger. `round_off` bounds the error of every single mass; `outside_left/right` the tilted
    // probability left of / right of the window, which the circular convolution folds into it;
    // `relative_error` that of the scale and of the final sums.
    double round_off = 0, outside_left = 0, outside_right = 0, relative_error = 0;
};

// Composes on the window of `size` points (a size the transform likes) starting at `first`.
// theta_left/right >= 0: further tilts used by Chernoff's bound for the mass outside the window. careful:
// with less round-off where many steps hardly lose anything, which takes longer.
Composed compose(const std::vector<LatticeStep>& steps, std::int64_t first, std::size_t size,
                 double theta_left, double theta_right, bool careful = false);

// The three parts of a composition, for those who keep transforms and multiply them on their own.

// What the steps add up to, whatever the window: all of a composed lattice but its masses, their round-off
// and what lies outside the window.
class StepSums {
public:
    void add(const LatticeTerms& step, std::uint64_t count);
    Composed composed(Bound bound, double step, double tilt) const;

private:
    Composed sums_;
    double log_finite_ = 0, log_full_ = 0;
};

// The transform of a lattice's masses, folded onto the transform's points; returns a bound on its error at
// every frequency. `folded` has room for size() numbers, `spectrum` for spectrum_size().
double transform(const Lattice& lattice, const RealFft& fft, std::span<double> folded,
                 std::span<Complex> spectrum);

// The masses of the window that starts at `first`, from the product of the steps' transforms.
void read_masses(const RealFft& fft, std::span<const Complex> product, std::int64_t first, Composed& out);

}  // namespace hockeystick
