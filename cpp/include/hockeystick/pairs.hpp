// Dominating pairs (P, Q) of one mechanism in one direction, seen through their hockey-stick profile.
//
// With L = ln dP/dQ, a pair answers two questions at a loss x, each as a tangent of the convex
// function y -> H_y(P||Q) at y = e^x:
//     above:  value = P(x < L < inf) - e^x Q(L > x),   slope = e^x Q(L > x);
//     below:  value = e^x Q(L <= x) - P(L <= x),       slope = e^x Q(L <= x).
// P(L = +inf) is kept apart, so that it cannot swamp the tails: the profile is above's value plus
// infinity_mass(). "above" is accurate relative to the right tail, "below" relative to the left one;
// they differ by the straight line 1 - infinity_mass() - e^x. Numbers are scaled by e^exponent, so tails far
// below 1e-308 are exact. Because a tangent of a convex function lies below it wherever it touches, an
// inexact inversion of L only costs a second-order error.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "hockeystick/loss_law.hpp"

namespace hockeystick {

// A tangent at one loss: |error of value| <= error; value, slope and error carry e^exponent.
// The tails behind it are those at some loss within `misplaced` of x: slope, and the P-tail (value + slope
// above, slope - value below), are exact there up to `relative` times the larger of the two.
struct Tangent {
    double value, slope, exponent, error, relative, misplaced;
};

// The loss ln P/Q of P = (1-q) N(0, 1) + q N(p_shift, 1) and Q = (1-q) N(0, 1) + q N(q_shift, 1) beyond the
// output (p_shift + q_shift)/2, where it is 0 and from where it grows. q_shift is 0 or half of p_shift.
struct JoinedHalf {
    double p_shift, q_shift;
    bool operator==(const JoinedHalf&) const = default;
};

// P = sum_i p_weight[i] N(p_shift[i], 1) and Q = sum_j q_weight[j] N(q_shift[j], 1), with p_shift >= 0 and
// q_shift <= 0, so that the loss increases with the output. Where the choice between several is part of
// the output, `weight` is the probability of this one. joined: these are those of a half, of which the
// positive losses are; the negative ones are minus the losses of this other half, which Q's mass has, and
// what P's mass lacks then has the loss 0. The two have one q.
struct GaussianMixtures {
    double weight;
    std::vector<double> p_shift, p_weight, q_shift, q_weight;
    std::optional<JoinedHalf> joined = {};
};

// One of T steps, drawn uniformly: with V the mean of T independent e^{mu g - mu^2/2}, g standard normal, V
// is dP/dQ under Q. Direction remove is the pair (P, Q), add the pair (Q, P).
struct Allocation {
    double mu, steps;
    bool add;
};

class Pair {
public:
    virtual ~Pair() = default;

    virtual Tangent above(double x) const = 0;
    virtual Tangent below(double x) const = 0;

    // Where above() and below() are not known, so that only the inversion answers: a pair that is more than
    // this one and has them, as has what its lower() says is less. Null: they are known.
    virtual std::shared_ptr<const Pair> stand_in() const { return nullptr; }

    // Supremum of the finite losses, -inf if there are none: never below it, whatever rounds. P(L = +inf).
    // The step of which every loss is a multiple (0: none).
    virtual double max_loss() const { return std::numeric_limits<double>::infinity(); }
    virtual double infinity_mass() const { return 0.0; }
    // Q's whole mass: 1, but for a pair whose loss is counted from another point.
    virtual double q_mass() const { return 1.0; }
    virtual double spacing() const { return 0.0; }
    // A loss that carries an atom, or nearly one, and so had better lie on the lattice (0: none).
    virtual double anchor() const { return spacing(); }
    // The pair as Gaussian mixtures; empty where it is something else.
    virtual std::vector<GaussianMixtures> gaussian_mixtures() const { return {}; }
    // The same where some of them are joined; else empty.
    virtual std::vector<GaussianMixtures> joined_mixtures() const { return {}; }
    // The pair as a random allocation, if it is one.
    virtual std::optional<Allocation> allocation() const { return {}; }
    // The law of L as atoms and smooth pieces, where it is known as such.
    virtual std::optional<LossLaw> loss_law() const { return {}; }
    // Where this pair is more than the mechanism (`bracket`): one that is less. Null: it is the mechanism.
    virtual std::shared_ptr<const Pair> lower() const { return nullptr; }
    // A pair that is more, and simpler: Gaussian mixtures where this one joins two forms. Null: there is
    // none.
    virtual std::shared_ptr<const Pair> looser() const { return nullptr; }
};

using PairPtr = std::shared_ptr<const Pair>;

// How a sampled mechanism differs from its base pair (P, Q), with sampling probability q:
//   remove:      (q P + (1-q) Q, Q)
//   add:         (P, (1-q) P + q Q); the base pair already points from "without" to "with"
//   replace_one: advanced joint convexity (Balle, Barthe & Gaboardi 2018, Theorem 2): the "remove"
//                form for e^eps >= 1 and the "add" form below, joined at eps = 0.
enum class Sampling { remove, add, replace_one };

enum class Noise { gaussian, laplace };

// The mu of a pair that is N(mu, 1) against N(0, 1), up to a common shift; 0 for any other.
double plain_gaussian_mu(const Pair& pair);

// The epsilon of a pair that is unsampled Laplace noise; 0 for any other.
double plain_laplace_epsilon(const Pair& pair);

// N(mu, 1) against N(0, 1).
PairPtr gaussian(double mu);
// Laplace noise with shift / scale = epsilon.
PairPtr laplace(double epsilon);
// Atoms with strictly increasing finite losses, their P- and Q-masses, and a P-mass at +inf. P-masses sum to
// 1 up to rounding: what is missing is counted nowhere, and 1e-9 is refused. Q-mass where P has none is
// q_infinity, or, if that is negative, what q lacks to 1: over many steps the rounding of that difference
// shows. How exact these are: the relative error of each loss in units of round-off (none if spacing > 0),
// and whether the Q-masses with q_infinity are 1 only up to 64 units.
struct MassesGiven {
    double loss_error = 2;
    bool total_is_rounded = false;
};
PairPtr discrete(std::vector<double> losses, std::vector<double> p, std::vector<double> q,
                 double p_infinity = 0.0, double spacing = 0.0, double q_infinity = -1.0,
                 MassesGiven given = {});
PairPtr sampled(PairPtr base, double sampling_probability, Sampling mode);
// The choice is part of the output. Weights sum to at most 1; the rest, if more than the rounding of
// the weights (1e-14), is P-mass at +inf.
PairPtr mixture(std::vector<PairPtr> pairs, std::vector<double> weights);
// P = sum_i w_i D(t - s_i) with all s_i >= 0, Q = sum_j v_j D(t - r_j) with all r_j <= 0: the loss
// increases with t, and is inverted numerically.
PairPtr location_mixture(Noise noise, double scale, std::vector<double> p_shifts,
                         std::vector<double> p_weights, std::vector<double> q_shifts,
                         std::vector<double> q_weights);

// One record of a fixed-size Gaussian sum replaced by zero, the pair behind truncated batches: the worst case
// over all |v| <= mu, |w - v| <= mu of
//     P = (1-q) N(0, 1) + q N(w, 1)   against   Q = (1-q) N(0, 1) + q N(v, 1):
// with probability q another record, -v, is swapped for the record w - v, or for nothing.
//     e^eps >= 1:  (1-q) N(0) + q N(2 mu)  against  (1-q) N(0) + q N(mu);
//     e^eps <  1:  N(0)                    against  (1-q) N(0) + q N(mu).
// Their maximum is convex in e^eps, hence a profile (docs/mechanisms/truncated.md). Mode add is the pair (Q,
// P); replace_one is refused. q in (0, 1].
PairPtr zero_out(double mu, double q, Sampling mode);
// One of `steps` steps, drawn uniformly, with a record's contribution mu in units of the noise. Modes remove
// and add (docs/mechanisms/allocation.md).
// told_mu: what who is told the step sees, if that is less than mu. mu <= 100: of larger ones gaussian(mu),
// that of who is told, is hardly larger.
PairPtr random_allocation(double mu, double steps, Sampling mode,
                          double told_mu = std::numeric_limits<double>::infinity());
// The pair `upper` in the place of a mechanism between the two: upper bounds are its own, lower bounds those
// of `lower`, through sampling, mixing and composition.
PairPtr bracket(PairPtr lower, PairPtr upper);

}  // namespace hockeystick
