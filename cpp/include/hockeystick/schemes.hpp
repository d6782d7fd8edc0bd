// How the batches are sampled: which iterations one example (or one user's examples) takes part in.
// Iterations count from 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// While available, the example takes part with this probability; afterwards it is barred until
// `separation` iterations later. With separation 1 this is Poisson sampling. Warm start: the state before
// the first iteration is stationary (Algorithms 1 and 2 of the b-min-sep paper).
struct BMinSep {
    std::size_t separation;
    double probability;
    bool warm_start;
    bool operator==(const BMinSep&) const = default;
};

// One of `bins` places, uniformly, once and for all: iterations j, j + bins, j + 2 bins, ...
struct BallsInBins {
    std::size_t bins;
    bool operator==(const BallsInBins&) const = default;
};

// A user with `examples` examples, each sampled in every iteration with this probability; a sample bars all
// of them for separation - 1 iterations. Exact: samples of barred examples extend the bar (Algorithm 3 for a
// user alone). Otherwise: no samples while barred (the law of Theorem 6.1). For users whose examples share an
// owner with nobody else's.
struct MultiAttribution {
    std::size_t separation;
    double probability;
    std::size_t examples;
    bool exact;
    bool operator==(const MultiAttribution&) const = default;
};

// A user with `examples` examples, each with a chain of its own: nobody bars anybody else.
struct IndependentBMinSep {
    BMinSep base;
    std::size_t examples;
    bool operator==(const IndependentBMinSep&) const = default;
};

// b-min-sep sampling of dataset_size examples; a batch larger than max_batch is cut down to max_batch by a
// uniformly random choice. Public: how many other examples were sampled in each round.
struct TruncatedBMinSep {
    BMinSep base;
    std::uint64_t dataset_size, max_batch;
    bool operator==(const TruncatedBMinSep&) const = default;
};

using Scheme = std::variant<BMinSep, BallsInBins, MultiAttribution, TruncatedBMinSep, IndependentBMinSep>;

// The chain that each example follows; nullptr for the schemes without one.
const BMinSep* chain_of(const Scheme& scheme) noexcept;

// The iterations from one participation to the next possible one; the number of bins.
std::size_t separation(const Scheme& scheme) noexcept;

// Throws std::invalid_argument if a parameter is outside its range.
void check(const Scheme& scheme, std::size_t steps);

// Not a law: participations that count 0, sign and 2 sign times, with these weights and in every round alike,
// so that their sum is at least that of the truncated scheme whatever the public counts.
struct Envelope {
    double never, once, twice, sign;
};

// An envelope of b-min-sep sampling truncated at max_batch, for rounds in which at most most_others others
// are sampled: with LR_m = exp(m u - m^2 h), for every u, every h in [0, half_norm] and
// max_batch/(most_others+1) <= s <= max_batch/(max_batch+1),
//     max(LR_1, s LR_2 + 1 - s) <= never + once LR_1 + twice LR_2     for P_r,
//     max(1, s LR_-1 + 1 - s)   <= never + once LR_-1                 for Q_r (`absent`).
Envelope envelope(const TruncatedBMinSep& scheme, std::uint64_t most_others, double half_norm, bool absent);

// The stationary probability 1/(1 + (b-1)p) to be available in the first iteration; the first available
// iteration is each of the next b - 1 with p times this probability.
double stationary_availability(const BMinSep& scheme) noexcept;

}  // namespace hockeystick
