// Laws of participations that importance sampling draws from, each with the density of its outputs.
//
// P = sum_x p_x N(Cx, sigma^2), Q = N(0, sigma^2). Two families have a density that the recursion over
// participations gives (docs/montecarlo/tilted.md, sections 2 and 4):
//   S_a = P^a Q^{1-a} / M_a, M_a = E_Q[(P/Q)^a], for a = 2 or 3 (with b-min-sep separation 1: any a): the
//         mixture of N(C sum_k x^k, sigma^2) with weights prod_k p_{x^k} prod_{j<k} exp(<Cx^j,
//         Cx^k>/sigma^2);
//   T   = the mixture of N((1 + shift) C x, sigma^2) with weights p_x theta^|x|.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "hockeystick/likelihood.hpp"
#include "hockeystick/random.hpp"

namespace hockeystick {

// Column `iteration` of C enters the mean so many times.
struct Hit {
    std::size_t iteration;
    double multiplicity;
};

// A law of the mean's coefficients; immutable, used by many threads.
class MeanLaw {
public:
    virtual ~MeanLaw() = default;
    // ln of the sum of all weights: ln M_a, or for T ln sum_x p_x theta^|x|.
    virtual double log_normaliser() const = 0;
    // Replaces `hits` by one draw, in order of iteration.
    virtual void draw(Stream& stream, std::vector<Hit>& hits) const = 0;
};

// Whether moment_law() has this order for the scheme, within `entries` table entries.
bool has_moment_law(const MatrixMechanism& mechanism, int order, double entries = 0x1p26);

// S_a; for the truncated scheme that of its rounds without truncation. Throws std::invalid_argument where
// has_moment_law() is false.
std::unique_ptr<MeanLaw> moment_law(const MatrixMechanism& mechanism, int order);

// The same for U, the sum of an envelope, in the place of P and a = 2: U^2/(M R), M = E_R[(U/R)^2]. Hits lack
// its sign (docs/montecarlo/tilted.md, section 8, Lemma 11).
std::unique_ptr<MeanLaw> envelope_law(const MatrixMechanism& mechanism, const Envelope& envelope);

// ln of bounds on E_R[(P_r/R)^2] of the truncated scheme for all public counts r with at most 0, 1, ...,
// `most` truncated rounds, R = N(0, sigma^2): whoever chooses the rounds may look at the pair of patterns
// while it unfolds (docs/montecarlo/tilted.md, section 8, Lemma 5).
std::vector<double> log_moments_of_cuts(const MatrixMechanism& mechanism, std::size_t most);

// T. For balls-in-bins theta does not change anything. Throws std::invalid_argument for the exact law of
// multi-attribution.
std::unique_ptr<MeanLaw> tilted_law(const Scheme& scheme, std::size_t steps, const Tilt& tilt);

}  // namespace hockeystick
