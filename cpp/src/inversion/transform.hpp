// The Laplace transform M(z) = E_P[e^{zL}; L < inf] of one step's loss, as the inversion sees it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "inversion/saddle.hpp"
#include "numerics/complex.hpp"
#include "pairs/mixture.hpp"

namespace hockeystick {

// |M(s + i tau')| <= e^{log_mgf + log_bound(tau)} for every tau' >= tau > 0, log_mgf >= ln M(s).
class DecayBound {
public:
    virtual ~DecayBound() = default;
    virtual double log_bound(double tau) const = 0;
    // The same without what does not fall any further; it says where to stop, no more.
    virtual double log_falling(double tau) const { return log_bound(tau); }
    // Dearer, and never more.
    virtual double steep_log_bound(double tau) const { return log_bound(tau); }
};

class Transform {
public:
    virtual ~Transform() = default;

    // The pair's transform; null where none is known. tolerance: that of at(). cut_mass: if positive, P's
    // largest losses may be left out, of about that mass; dropped() says how much it was. Allocations leave
    // some out at 0 as well, however little, and none if it is less.
    static constexpr double uncut = -1;  // speed: any number below 0
    static std::unique_ptr<Transform> of(const Pair& pair, double tolerance, double cut_mass = 0);
    // Whether the transform falls at high frequencies, as it does but for atoms.
    virtual bool can_decay() const { return true; }
    virtual bool can_cut() const { return false; }
    // Whether it may be, for a bound at least: an inversion of what is left may not fall either.
    virtual bool can_drop() const { return can_cut(); }
    virtual double dropped() const { return 0; }
    // About how many terms a value takes, where losses have atoms that keep the transform from falling; or 0.
    virtual double atoms() const { return 0; }
    // A lower bound on P(L = 0), what is left there of M at high frequencies.
    virtual double zero_mass() const { return 0; }
    // The mixtures of Gaussians of which it is one, if Layers can cut their outputs.
    virtual std::vector<MixturePart> mixtures() const { return {}; }

    // K = ln M at a real s >= 0. The upper bound lies above by about the tolerance, or is infinite where too
    // many nodes were needed (docs/accounting/bounds.md, "Exact inversion").
    virtual Cumulant at(double s) const = 0;
    // A bound for the very law that row(line, ...) is the transform of, where another tilt may have one that
    // leaves out more: what the line's errors, aliases among them, are bounded by.
    virtual Cumulant for_line(double s, double /*line*/) const { return at(s); }

    // M(s + i j step) e^{-shift} - 1 for j = 0, ..., size - 1, with error bounds. The shift is 0 unless M(s)
    // is huge.
    struct Row {
        double shift = 0;
        std::vector<Complex> value;
        std::vector<double> error;
        // Of 1 + value: the logarithm, the modulus, and the error with what the logarithm rounds by.
        struct Log {
            Complex value;
            double modulus, slack;
        };
        Log log(std::size_t j) const;
    };
    // The error aims at `tolerance`. Empty where too many nodes were needed.
    virtual Row row(double s, double step, std::size_t size, double tolerance) const = 0;

    // Whether values take long: longer than a steep bound of those left out, and than their last digits are
    // worth.
    virtual bool dear() const { return false; }
    // Whether those at this tilt do.
    virtual bool dear_at(double /*s*/) const { return dear(); }
    // For all high frequencies at once. log_mgf: an upper bound on ln M(s).
    virtual std::unique_ptr<DecayBound> decay(double s, double log_mgf) const = 0;

    // The shift of the noise behind rare large losses, which sets the scale of their tilts; 0: none.
    virtual double rare_shift() const { return 0; }
};

}  // namespace hockeystick
