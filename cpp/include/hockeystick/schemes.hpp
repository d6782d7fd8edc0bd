// How the batches are sampled: which iterations one example (or one user's examples) takes part in.
// Iterations count from 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "hockeystick/random.hpp"

namespace hockeystick {

// While available, the example takes part with this probability; afterwards it is barred until
// `separation` iterations later. With separation 1 this is Poisson sampling. Warm start: the state before
// the first iteration is stationary (Algorithms 1 and 2 of the b-min-sep paper).
struct BMinSep {
    std::size_t separation;
    double probability;
    bool warm_start;
};

// One of `bins` places, uniformly, once and for all: iterations j, j + bins, j + 2 bins, ...
struct BallsInBins {
    std::size_t bins;
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
};

// A user with `examples` examples, each with a chain of its own: nobody bars anybody else.
struct IndependentBMinSep {
    BMinSep base;
    std::size_t examples;
};

// b-min-sep sampling of dataset_size examples; a batch larger than max_batch is cut down to max_batch by a
// uniformly random choice. Public: how many other examples were sampled in each round.
struct TruncatedBMinSep {
    BMinSep base;
    std::uint64_t dataset_size, max_batch;
};

using Scheme = std::variant<BMinSep, BallsInBins, MultiAttribution, TruncatedBMinSep, IndependentBMinSep>;

// The chain that each example follows; nullptr for the schemes without one.
const BMinSep* chain_of(const Scheme& scheme) noexcept;

// The iterations from one participation to the next possible one; the number of bins.
std::size_t separation(const Scheme& scheme) noexcept;

// Throws std::invalid_argument if a parameter is outside its range.
void check(const Scheme& scheme, std::size_t steps);

// The iterations one sample takes part in, in order.
class Participations {
public:
    Participations(const Scheme& scheme, std::size_t steps, Stream stream);

    struct Next {
        std::size_t iteration;  // >= steps: none any more
        double multiplicity;
    };
    const Next& next() const noexcept { return next_; }
    void advance();
    // For decisions about the current participation: survival of truncation.
    Stream& stream() noexcept { return stream_; }

private:
    void sample(std::size_t available);
    void soonest();

    Scheme scheme_;
    std::size_t steps_;
    Stream stream_;
    double log_failure_;             // of being sampled, while available
    std::vector<double> counts_;     // Pr[at most j of the user's examples | at least one], j = 1, 2, ...
    std::vector<std::size_t> each_;  // IndependentBMinSep: the next iteration of each example
    Next next_{};
};

// Truncated b-min-sep: how many of the other examples are available in the first round, and how many were
// sampled in each of the min(separation - 1, steps) rounds before it, the oldest first, as far as that
// matters later.
struct OthersAtStart {
    OthersAtStart(const TruncatedBMinSep& scheme, std::size_t steps, Stream& stream);

    std::uint64_t available;
    std::vector<std::uint64_t> barred;
};

// Truncated b-min-sep: how many of the other dataset_size - 1 examples are sampled, round by round.
//
// Where truncation is rare, most samples need no counts: think of each count as the inverse distribution
// function of Binom(available, p) at a uniform number U. Whatever is available, at most dataset_size - 1 are,
// so there is no truncation unless U > 1 - T, T >= Pr[Binom(dataset_size - 1, p) >= max_batch]. The rounds
// with such a U, the candidates, are independent of everything else and can be drawn first. If there is one,
// the counts are drawn given which rounds are candidates.
class PublicCounts {
public:
    // A bound T on the probability that a round is truncated, given the past; 1 if candidates do not pay, and
    // every count is to be drawn (GroupCounts).
    static double candidate_probability(const TruncatedBMinSep& scheme, std::size_t steps);

    // For the usual numbers of available examples; outlives every PublicCounts.
    static BinomialTable table(const TruncatedBMinSep& scheme);

    // candidate_probability < 1.
    PublicCounts(const TruncatedBMinSep& scheme, std::size_t steps, double candidate_probability,
                 const BinomialTable& table, const BlockStream& block, std::size_t lane);

    // No round is truncated; the counts need not be asked for.
    bool quiet() const noexcept { return candidates_.empty(); }
    // The same for the next round and all after it.
    bool settled() const noexcept { return candidate_ == candidates_.size(); }
    // The count of the next round.
    std::uint64_t next();

private:
    void start();
    std::uint64_t below_threshold();
    std::uint64_t above_threshold();

    TruncatedBMinSep scheme_;
    std::size_t steps_;
    const BinomialTable* table_;
    std::uint64_t available_;
    std::vector<std::uint64_t> barred_;  // by round, modulo min(separation - 1, steps)
    std::size_t oldest_ = 0;
    double candidate_probability_;
    std::vector<std::size_t> candidates_;
    std::size_t round_ = 0, candidate_ = 0;
    // Counts up to safe_count_ are below the threshold whenever at least safe_available_ are available.
    std::uint64_t safe_available_ = 0, safe_count_ = 0;
    Stream stream_;
};

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
