// How an example that is available may take part, round by round: what the tables of importance sampling
// and the recursion of the likelihood have in common, for the schemes that bar it for a while after.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "hockeystick/proposal.hpp"
#include "hockeystick/schemes.hpp"
#include "numerics/extended.hpp"

namespace hockeystick {

// One way to take part, and to be barred afterwards.
struct Choice {
    double weight, multiplicity;
};

struct ChainOptions {
    // Throws std::invalid_argument for schemes that are no such chain. theta: factor per participation.
    ChainOptions(const Scheme& scheme, std::size_t step_count, std::span<const Cut> cuts, double theta);

    // The choices of an envelope.
    ChainOptions(const BMinSep& scheme, std::size_t step_count, const Envelope& envelope);

    std::span<const Choice> at(std::size_t iteration) const;
    // The most choices of any round.
    std::size_t most() const;

    std::size_t steps, separation;  // separation <= steps
    double stay;                    // Pr[no participation | available]
    std::vector<double> start;      // Pr[first available in iteration i], i < separation
    double outside = 0;             // ... after the last iteration
    bool is_envelope = false;       // the weights of a round do not add up to 1

private:
    std::vector<Choice> usual_;
    std::vector<std::size_t> cut_iterations_;
    std::vector<Choice> cut_choices_;  // two for each
};

// Whether the scheme is such a chain.
bool is_chain(const Scheme& scheme);

// The weight of all that may happen from iteration i on if the example is available in i, i < steps +
// separation: 1 past the end.
std::vector<Extended> weights_to_come(const ChainOptions& options);

// stay^k, k = 0, ..., count.
std::vector<Extended> powers(double stay, std::size_t count);

}  // namespace hockeystick
