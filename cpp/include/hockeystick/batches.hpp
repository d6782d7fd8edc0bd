// Draws the batches of a training run, as the sampling schemes say: the examples of one step after another.
//
// All random bits come from ChaCha20 under a secret key, by step. Batches are the same on any machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "hockeystick/attribution.hpp"
#include "hockeystick/chacha.hpp"
#include "hockeystick/mutex.hpp"

namespace hockeystick {

class Coins;

// Example e belongs to group e mod `groups`; step i takes each of group i mod groups with this probability.
// One group: Poisson sampling.
struct PoissonBatches {
    double probability;
    std::uint64_t groups = 1;
};

// Batches of exactly `size` examples, all sets (or with replacement, all sequences) alike.
struct FixedBatches {
    std::uint64_t size;
    bool replacement;
};

// Each example in one of `bins` places, independently and uniformly, for good or redrawn every `bins` steps:
// step i takes place i mod bins.
struct BallsInBinsBatches {
    std::uint64_t bins;
    bool redrawn;
};

// Poisson sampling of those in none of the last separation - 1 batches; with a warm start, the state before
// the first step is stationary (Algorithms 1 and 2 of the b-min-sep paper).
struct MinSepBatches {
    std::uint64_t separation;
    double probability;
    bool warm_start;
};

// Every example sampled with this probability in every step, and left out if one of its users had an example
// sampled in the last separation - 1 steps (Algorithm 3); with by_participation, an example in the batch of
// one of these (Algorithm 4, whose privacy is conjectured). `ahead` steps are drawn before the first.
struct MultiAttributionBatches {
    AttributionView graph;  // the caller keeps it alive, and as it is
    std::uint64_t separation;
    double probability;
    bool by_participation;
    std::uint64_t ahead;
};

using BatchLaw =
    std::variant<PoissonBatches, FixedBatches, BallsInBinsBatches, MinSepBatches, MultiAttributionBatches>;

// Numbers below 2^32 in groups: each example in the group (place, step) that it was assigned.
struct Groups {
    std::vector<std::uint64_t> offsets;
    std::vector<std::uint32_t> members;
};

class BatchSampler {
public:
    // Of `population` examples, for steps 0 .. steps - 1. More than max_batch of them are cut down to a
    // uniformly random choice; those that are left out count as sampled. Throws std::invalid_argument for
    // parameters outside their range, and for more than 2^32 examples or 2^27 places where these are kept in
    // memory.
    BatchSampler(const BatchLaw& law, std::uint64_t population, std::uint64_t steps,
                 std::optional<std::uint64_t> max_batch, const ChaChaKey& key);
    ~BatchSampler();

    std::uint64_t step() const noexcept { return step_; }
    std::uint64_t steps() const noexcept { return steps_; }
    // Bytes that are kept between steps.
    std::size_t state_bytes() const;

    // The examples of the next step, ascending (with replacement: each as often as drawn). Throws
    // std::out_of_range after the last step.
    std::vector<std::int64_t> next();
    // Makes `step` the next one; at most `most` steps are drawn on the way. True once it has arrived. Laws
    // without memory go anywhere at once; the others go on from here, or start anew to go back.
    bool seek(std::uint64_t step, std::uint64_t most);
    // What the last step sampled before it was cut down.
    std::vector<std::int64_t> sampled() const;

private:
    using Batch = std::vector<std::int64_t>;

    void start();
    void start(const PoissonBatches&) noexcept {}
    void start(const FixedBatches&) noexcept {}
    void start(const BallsInBinsBatches& law);
    void place(const BallsInBinsBatches& law, std::uint64_t epoch);
    void start(const MinSepBatches& law);
    void start(const MultiAttributionBatches& law);
    void recover();
    Batch draw(std::uint64_t step);
    Batch draw(const PoissonBatches& law, KeyedStream& stream, std::uint64_t step) const;
    Batch draw(const FixedBatches& law, KeyedStream& stream, std::uint64_t step) const;
    Batch draw(const BallsInBinsBatches& law, KeyedStream& stream, std::uint64_t step);
    Batch draw(const MinSepBatches& law, KeyedStream& stream, std::uint64_t step);
    Batch draw(const MultiAttributionBatches& law, KeyedStream& stream, std::uint64_t step);
    Batch draw_from_all(KeyedStream& stream);
    Batch draw_from_available(KeyedStream& stream);
    void release(std::uint32_t example);
    bool remembers() const noexcept;

    BatchLaw law_;
    std::uint64_t population_, steps_;
    std::optional<std::uint64_t> max_batch_;
    ChaChaKey key_;
    std::unique_ptr<const Coins> coins_;
    std::uint64_t step_ = 0;
    bool interrupted_ = false;  // memory ran out in the middle of a step: what is remembered is made anew
    Batch before_cut_;

    std::uint64_t epoch_ = 0;  // balls in bins: of the places in groups_
    Groups groups_;  // balls in bins: by place; warm start: by the step in which they become available
    // Min-sep: who is barred, as a set of bits or, where most examples are, by the list of all others.
    bool listed_ = false;
    std::vector<std::uint64_t> barred_;
    std::vector<std::uint32_t> available_;
    std::deque<std::uint32_t> recent_;        // members of the batches that bar them, oldest first
    std::deque<std::uint64_t> recent_sizes_;  // of these batches
    std::vector<std::uint32_t> free_from_;    // by user
    mutable Mutex mutex_;                     // two threads that ask for batches get different ones
};

}  // namespace hockeystick
