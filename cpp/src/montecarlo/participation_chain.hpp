// How an example, or a user with several, takes part round by round: what the recursion of the likelihood and
// the tables of importance sampling read, for the schemes that bar it for a while after
// (docs/montecarlo/estimates.md, "Schemes and their recursions").
#pragma once

#include <cstddef>
#include <vector>

#include "hockeystick/schemes.hpp"
#include "numerics/extended.hpp"

namespace hockeystick {

// One way to take part, and to be barred afterwards.
struct Choice {
    Extended weight;
    double multiplicity;
};

struct ParticipationChain {
    // Not for balls-in-bins. theta: factor per participation.
    ParticipationChain(const Scheme& scheme, std::size_t step_count, double theta = 1);
    // The choices of an envelope, without its sign.
    ParticipationChain(const BMinSep& scheme, std::size_t step_count, const Envelope& envelope);

    // separation <= steps: whoever takes part once in so long a separation does not again.
    std::size_t steps, separation;
    Extended stay, leave;         // Pr[no participation | available], and the rest of it
    std::vector<Extended> start;  // Pr[first available in iteration i], i < separation
    Extended outside;             // ... after the last iteration
    std::vector<Choice> choices;
    bool is_envelope = false;  // the weights of a round do not add up to 1
};

// Whether the scheme is one such chain, in which no sample extends a bar.
bool is_chain(const Scheme& scheme);

// The weight of all that may happen from iteration i on if the example is available in i, i < steps +
// separation: 1 past the end.
std::vector<Extended> weights_to_come(const ParticipationChain& chain);

// base^k, k = 0, ..., count.
std::vector<Extended> powers(const Extended& base, std::size_t count);

}  // namespace hockeystick
