// The law of a loss as atoms and smooth pieces, from which its transform follows.
#pragma once

#include <optional>
#include <vector>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// P-mass e^{log_p} at one loss; errors of both in units of round-off.
struct LossAtom {
    // proof: the group of an atom that may belong to several laws.
    static constexpr int of_all = -1;
    double loss, log_p, loss_slack = 0, log_p_slack = 16;
    int group = 0;
};

// Densities p(t) = sum of e^{log_weight + rate t}, q(t) likewise, on low < t < high, times e^{-t^2/2} if
// `gaussian`; the loss is ln p/q, and monotone. Only Gaussian pieces reach to infinity.
struct LossPiece {
    struct Term {
        double log_weight, rate;
    };
    double low, high;
    bool gaussian;
    std::vector<Term> p, q;
    int group = 0;
};

// e^{log_weight} N(shift, 1) on a Gaussian piece.
LossPiece::Term gaussian_term(double log_weight, double shift);

// What is missing from P's masses to 1 is its mass at +inf, from Q's `missing_q`, that at -inf; both are
// known to 64 units of round-off of `missing_size`.
struct LossLaw {
    std::vector<LossAtom> atoms;
    std::vector<LossPiece> pieces;
    double missing_p = 0, missing_q = 0, missing_size = 0;
    // Whether an atom may be missing, or have less than its mass, by as much as 1 rounds: next to nothing in
    // M - 1, but perhaps all there is of an outcome.
    bool lacks_rounding = false;
    // Where the choice between several laws is part of the output: the probability of each, which is its
    // P- and its Q-mass but for what is missing at infinite losses.
    std::vector<double> group_weight = {1};
    // Q-mass at the atoms `LossAtom::of_all`, to which several of these laws may have given some of theirs.
    double of_all = 0;
    // Leaves out the least likely of these, of at most `mass` together, and returns how much it was. A zero
    // loss is left where it is, as it adds nothing to M - 1.
    double drop_rare(double mass);
    // The same of the atoms with the largest losses, as far as these are positive.
    double drop_largest(double mass);
    // The same of the least likely atoms, of which there may be many.
    double drop_least(double mass);

    // P and Q swapped: atoms and pieces at the negative losses.
    LossLaw swapped() const;
    // The law of (qP + (1-q)Q, Q), the "remove" form of sampling.
    LossLaw sampled(double q) const;
    // Advanced joint convexity: the "remove" form where L > 0, the "add" form where L < 0, and what is
    // left of P at L = 0, which is P(L = 0) + (1-q) total_variation. This may be too small by `error`.
    LossLaw joined(double q, double total_variation, double error) const;

private:
    template <class Drop>
    double drop_last(double mass, Drop drop);
};

// Moves the losses of laws without pieces onto offset + k h, with one h for all and as large as it can be, as
// far as their errors allow; empty if there is no such h.
struct Comb {
    double spacing;
    std::vector<double> offset;  // of each law
};
std::optional<Comb> onto_lattice(std::vector<LossLaw>& laws, const std::vector<double>& spacings);

}  // namespace hockeystick
