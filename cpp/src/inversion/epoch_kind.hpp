// One kind of step of a composition with epochs of random allocation, and the parts its outcomes fall into
// (docs/mechanisms/allocation.md, "Epochs in three parts"): A those without a large likelihood ratio, B those
// with one that does not decide alone, and those with one that does.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "numerics/complex.hpp"

namespace hockeystick {

// A transform along a line, times e^{-shift}, and its errors; less 1 where that is what is known best.
struct PartRow {
    std::vector<Complex> value;
    std::vector<double> error;
    double shift = 0;
    bool less_one = false;
    bool empty() const { return value.empty(); }
};

// The transforms of A and B, with z = 0 at E_P[1; A].
class KindParts {
public:
    virtual ~KindParts() = default;
    // Whether there is a B at all.
    virtual bool split() const { return false; }
    // ln of upper bounds at a real z = s.
    virtual double log_bulk(double s) const = 0;
    virtual double log_rest(double) const { return -std::numeric_limits<double>::infinity(); }

    // What follows belongs to the line Re z = s that was laid last, for those parts that it was laid for.
    virtual void lay(double s, bool bulk, bool rest) = 0;
    // ln of bounds at s + i tau' for all tau <= tau' <= 2 tau.
    virtual double log_bulk_at(double tau) const = 0;
    virtual double log_rest_at(double) const { return -std::numeric_limits<double>::infinity(); }
    // At s + i j step, j < size, with errors that aim at e^{log_wanted} beside the value at s; empty where
    // too many nodes were needed.
    virtual PartRow bulk(double step, std::size_t size, double log_wanted) const = 0;
    virtual PartRow rest(double, std::size_t, double) const { return {}; }
};

class EpochKind {
public:
    explicit EpochKind(double steps) : count(steps) {}
    virtual ~EpochKind() = default;

    // Null where no transform is known, or none in both directions, or more than next to nothing is
    // impossible for P or Q alone.
    static std::unique_ptr<EpochKind> of(const Pair& pair, double count);
    static std::unique_ptr<EpochKind> of_allocation(const Allocation& law, double count);

    const double count;
    // Of the loss, about.
    virtual double variance() const = 0;
    // ln of an upper bound on E_Q[e^{-tL}], t > 0.
    virtual double log_inverse(double t) const = 0;
    // P-mass that all parts leave out, in one step; Q-mass, at most, of outcomes that are impossible for P.
    virtual double dropped() const { return 0; }
    virtual double impossible() const { return 0; }

    // Places: of the normal variable on which a ratio depends, or losses. Whether there is any; where a ratio
    // is large enough for a loss of that alone, and where it adds so much to what it mostly is; the one
    // beyond which a step has this P-mass.
    virtual bool can_split() const { return false; }
    virtual double place_alone(double) const { return std::numeric_limits<double>::infinity(); }
    virtual double place_of(double) const { return std::numeric_limits<double>::infinity(); }
    virtual double place_of_mass(double) const { return std::numeric_limits<double>::infinity(); }
    // Where some ratio is beyond a place: less than the loss then, and about what it is mostly; the P-mass
    // and the Q-mass at most; ln of the masses of all else; how far out normal variables are there.
    struct Beyond {
        double least_loss, loss, p, q, log_kept_p, log_kept_q, farthest;
    };
    virtual Beyond beyond(double) const { return {}; }

    // The cuts: up to the first A, up to the second B.
    virtual std::unique_ptr<KindParts> parts(double first, double second) const = 0;
};

}  // namespace hockeystick
