#include "hockeystick/batches.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "hockeystick/attribution.hpp"
#include "hockeystick/chacha.hpp"
#include "training/coins.hpp"

namespace hs = hockeystick;

namespace {

// The allocation after this many fails; never if negative.
long allocations_left = -1;

}  // namespace

void* operator new(std::size_t size) {
    if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
    if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
    throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    return std::malloc(size > 0 ? size : 1);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

using Batch = std::vector<std::int64_t>;

hs::ChaChaKey key_of(std::uint32_t seed) { return {seed, 2, 3, 4, 5, 6, 7, 8}; }

// Word by word the blocks of RFC 8439, in order.
void stream_is_the_block_function() {
    hs::KeyedStream stream(key_of(1), 17, 2);
    for (std::uint32_t block = 0; block < 40; ++block) {
        for (const std::uint32_t word : hs::chacha20(key_of(1), block, {0, 17, 2}))
            CHECK(stream.word() == word);
    }
    hs::KeyedStream again(key_of(1), 17, 2), other(key_of(1), 18, 2), third(key_of(1), 17, 1);
    const std::uint64_t first = again.bits();
    CHECK(other.bits() != first);
    CHECK(third.bits() != first);
}

void below_is_uniform() {
    hs::KeyedStream stream(key_of(1), 0, 0);
    CHECK(stream.below(1) == 0);
    for (const std::uint64_t n : {2U, 3U, 6U, 17U}) {
        std::vector<double> counts(n);
        for (int i = 0; i < 20000; ++i) ++counts[stream.below(n)];
        const double mean = 20000.0 / static_cast<double>(n);
        for (const double count : counts) CHECK(std::abs(count - mean) < 6 * std::sqrt(mean));
    }
    for (int i = 0; i < 100; ++i) {
        CHECK(stream.below((std::uint64_t{1} << 40) + 1) <= std::uint64_t{1} << 40);
        CHECK(stream.bits(40) < std::uint64_t{1} << 40);
    }
    CHECK(stream.bits(0) == 0);
}

// Pr[J >= 1] of a block, by its definition in double precision.
void thresholds() {
    for (const double p : {1e-12, 1e-4, 0.01, 0.3, 0.5, 0.99}) {
        const hs::Coins coins(p, std::uint64_t{1} << 50);
        CHECK(static_cast<double>(coins.block_size()) * p <= 4.0);
        CHECK(static_cast<double>(coins.block_size()) * p > 2.0);
        const double none = std::exp(static_cast<double>(coins.block_size()) * std::log1p(-p));
        const double first = static_cast<double>(coins.thresholds()[0][0]) * 0x1p-64;
        CHECK(std::abs(first - (1.0 - none)) < 1e-12);
        for (std::size_t j = 1; j < coins.thresholds().size(); ++j) {
            CHECK(coins.thresholds()[j] <= coins.thresholds()[j - 1]);
        }
    }
    CHECK(hs::Coins(0.0, 10).thresholds().empty());
    CHECK(hs::Coins::stationary(0.1, 0, 10).thresholds().empty());
    CHECK_THROWS(std::invalid_argument, hs::Coins(-0.1, 10));
    CHECK_THROWS(std::invalid_argument, hs::Coins(std::numeric_limits<double>::quiet_NaN(), 10));
    CHECK_THROWS(std::invalid_argument, hs::Coins(1.5, 10));
    CHECK_THROWS(std::invalid_argument, hs::Coins::stationary(0.5, std::uint64_t{1} << 60, 10));
}

void coins_are_ascending_and_in_range() {
    for (const double p : {0.001, 0.2, 0.7, 1.0}) {
        for (const std::uint64_t count : {0U, 1U, 5U, 4096U, 5000U}) {
            const hs::Coins coins(p, 5000);
            double heads = 0;
            for (std::uint32_t step = 0; step < 200; ++step) {
                hs::KeyedStream stream(key_of(3), step, 0);
                std::optional<std::uint64_t> last;
                coins.toss(stream, count, [&](std::uint64_t i) {
                    CHECK(i < count);
                    CHECK(!last || i > *last);
                    last = i;
                    ++heads;
                });
            }
            const double mean = 200.0 * p * static_cast<double>(count);
            CHECK(std::abs(heads - mean) <= 6 * std::sqrt(mean * (1 - p)));
        }
    }
}

void subsets() {
    for (const std::uint64_t size : {0U, 1U, 2U, 3U, 5U}) {
        std::map<std::vector<std::uint64_t>, double> counts;
        hs::KeyedStream stream(key_of(4), 0, 0);
        for (int i = 0; i < 10000; ++i) ++counts[hs::random_subset(stream, 5, size)];
        const double outcomes = std::array<double, 6>{1, 5, 10, 10, 5, 1}[size];
        CHECK(static_cast<double>(counts.size()) == outcomes);
        for (const auto& [subset, count] : counts) {
            CHECK(subset.size() == size);
            CHECK(std::is_sorted(subset.begin(), subset.end()));
            CHECK(std::abs(count - 10000 / outcomes) <= 6 * std::sqrt(10000 / outcomes));
        }
    }
    hs::KeyedStream stream(key_of(4), 0, 0);
    CHECK_THROWS(std::invalid_argument, hs::random_subset(stream, 3, 4));
}

const hs::Attribution pairs = hs::group_edges(std::vector<std::int64_t>{0, 0, 1, 1, 2, 3},
                                              std::vector<std::int32_t>{0, 1, 1, 2, 2, 0}, 4, 3);

std::vector<hs::BatchLaw> laws(std::uint64_t n) {
    std::vector<hs::BatchLaw> all{hs::PoissonBatches{0.2},          hs::PoissonBatches{0.5, 3},
                                  hs::FixedBatches{2, false},       hs::FixedBatches{7, true},
                                  hs::BallsInBinsBatches{4, false}, hs::MinSepBatches{3, 0.2, false},
                                  hs::MinSepBatches{3, 0.2, true},  hs::MinSepBatches{4, 0.9, true},
                                  hs::MinSepBatches{4, 0.9, false}, hs::MinSepBatches{1, 0.5, true}};
    if (n == 4) {
        const hs::AttributionView graph{pairs.offsets, pairs.users, 3};
        all.push_back(hs::MultiAttributionBatches{graph, 3, 0.3, false, 0});
        all.push_back(hs::MultiAttributionBatches{graph, 3, 0.3, false, 5});
        all.push_back(hs::MultiAttributionBatches{graph, 3, 0.3, true, 0});
    }
    return all;
}

void every_step_can_be_reached() {
    for (const std::uint64_t n : {4U, 300U}) {
        for (const auto& law : laws(n)) {
            hs::BatchSampler whole(law, n, 30, std::nullopt, key_of(5));
            std::vector<Batch> batches;
            while (whole.step() < whole.steps()) batches.push_back(whole.next());
            CHECK_THROWS(std::out_of_range, whole.next());
            hs::BatchSampler sampler(law, n, 30, std::nullopt, key_of(5));
            for (const std::uint64_t step : {20U, 3U, 29U, 0U}) {
                while (!sampler.seek(step, 7)) {
                }
                CHECK(sampler.step() == step);
                CHECK(sampler.next() == batches[step]);
            }
            CHECK_THROWS(std::invalid_argument, sampler.seek(31, 1));
            for (const Batch& batch : batches) {
                CHECK(std::is_sorted(batch.begin(), batch.end()));
                CHECK(std::all_of(batch.begin(), batch.end(), [&](std::int64_t e) {
                    return e >= 0 && e < static_cast<std::int64_t>(n);
                }));
            }
        }
    }
}

void separation_and_size() {
    for (const double p : {0.05, 0.6}) {
        for (const bool warm : {false, true}) {
            hs::BatchSampler sampler(hs::MinSepBatches{6, p, warm}, 1000, 100, 60, key_of(6));
            std::vector<int> last(1000, -6);
            for (int step = 0; step < 100; ++step) {
                const Batch batch = sampler.next();
                const Batch sampled = sampler.sampled();
                CHECK(batch.size() == std::min<std::size_t>(sampled.size(), 60));
                CHECK(std::includes(sampled.begin(), sampled.end(), batch.begin(), batch.end()));
                for (const std::int64_t e : sampled) {
                    int& before = last[static_cast<std::size_t>(e)];
                    CHECK(step - before >= 6);
                    before = step;
                }
            }
            CHECK(sampler.state_bytes() < 16 * 1000);
        }
    }
}

// One place an epoch for everyone: another one each time where they are redrawn, else the same.
void places_are_redrawn() {
    constexpr std::uint64_t bins = 5, population = 400;
    for (const bool redrawn : {false, true}) {
        hs::BatchSampler sampler(hs::BallsInBinsBatches{bins, redrawn}, population, 3 * bins, {}, key_of(8));
        std::vector<std::uint64_t> before;
        for (int epoch = 0; epoch < 3; ++epoch) {
            std::vector<std::uint64_t> places(population, bins);
            for (std::uint64_t place = 0; place < bins; ++place) {
                for (const std::int64_t e : sampler.next()) {
                    CHECK(places[static_cast<std::size_t>(e)] == bins);
                    places[static_cast<std::size_t>(e)] = place;
                }
            }
            CHECK(std::ranges::count(places, bins) == 0);
            double moved = 0;
            for (std::size_t e = 0; e < before.size(); ++e) moved += before[e] != places[e];
            CHECK(redrawn && epoch > 0 ? std::abs(moved - 320) < 6 * 8 : moved == 0);
            before = places;
        }
    }
}

// Wherever memory runs out, be it again while the steps before are made up for, the step can be repeated with
// the batch it would have had, as can all after it.
void out_of_memory() {
    int failures = 0, again = 0;
    for (const auto& law : laws(300)) {
        hs::BatchSampler whole(law, 300, 12, 20, key_of(7));
        std::vector<Batch> batches;
        while (whole.step() < whole.steps()) batches.push_back(whole.next());
        for (long most = 0; most < 60; most += 7) {
            hs::BatchSampler sampler(law, 300, 12, 20, key_of(7));
            std::uint64_t step = 0;
            for (const Batch& expected : batches) {
                CHECK(sampler.step() == step++);
                Batch batch;
                bool drawn = false;
                for (const long allowed : {most, most + 5, 3 * most, -1L}) {
                    if (drawn) break;
                    allocations_left = allowed;
                    try {
                        batch = sampler.next();
                        drawn = true;
                    } catch (const std::bad_alloc&) {
                        (allowed == most ? failures : again)++;
                    }
                    allocations_left = -1;
                    CHECK(sampler.step() == step - !drawn);
                }
                CHECK(batch == expected);
            }
        }
    }
    CHECK(failures > 100);
    CHECK(again > 100);
}

void refusals() {
    const auto make = [](const hs::BatchLaw& law, std::uint64_t n, std::uint64_t steps,
                         std::optional<std::uint64_t> most) {
        return hs::BatchSampler(law, n, steps, most, key_of(1)).steps();
    };
    const std::uint64_t many = (std::uint64_t{1} << 32) + 1;
    CHECK_THROWS(std::invalid_argument, make(hs::PoissonBatches{1.5}, 4, 3, {}));
    CHECK_THROWS(std::invalid_argument, make(hs::PoissonBatches{0.5, 0}, 4, 3, {}));
    CHECK_THROWS(std::invalid_argument, make(hs::PoissonBatches{0.5}, 0, 3, {}));
    CHECK_THROWS(std::invalid_argument, make(hs::PoissonBatches{0.5}, 4, many, {}));
    CHECK_THROWS(std::invalid_argument, make(hs::PoissonBatches{0.5}, 4, 3, 0));
    CHECK_THROWS(std::invalid_argument, make(hs::FixedBatches{5, false}, 4, 3, {}));
    CHECK_THROWS(std::invalid_argument, make(hs::BallsInBinsBatches{0, false}, 4, 3, {}));
    CHECK_THROWS(std::invalid_argument, make(hs::BallsInBinsBatches{3, true}, many, 3, {}));
    CHECK_THROWS(std::invalid_argument, make(hs::MinSepBatches{0, 0.1, false}, 4, 3, {}));
    CHECK_THROWS(std::invalid_argument, make(hs::MinSepBatches{2, 0.1, false}, many, 3, {}));
    CHECK_THROWS(std::invalid_argument, make(hs::MinSepBatches{~std::uint64_t{0}, 0.1, true}, 4, 3, {}));
    const hs::AttributionView graph{pairs.offsets, pairs.users, 3};
    CHECK_THROWS(std::invalid_argument, make(hs::MultiAttributionBatches{graph, 2, 0.1, false, 0}, 5, 3, {}));
    CHECK_THROWS(std::invalid_argument,
                 make(hs::MultiAttributionBatches{graph, 2, 0.1, false, many}, 4, 3, {}));
    const std::vector<std::int64_t> beyond{0, 1, 2, 3, 100};
    const hs::AttributionView wrong{beyond, pairs.users, 3}, strangers{pairs.offsets, pairs.users, 1};
    for (const auto& each : {wrong, strangers})
        CHECK_THROWS(std::invalid_argument,
                     make(hs::MultiAttributionBatches{each, 2, 0.1, false, 0}, 4, 3, {}));
    CHECK_THROWS(std::invalid_argument, make(hs::FixedBatches{many * many, true}, 4, 3, {}));
}

}  // namespace

int main() {
    stream_is_the_block_function();
    below_is_uniform();
    thresholds();
    coins_are_ascending_and_in_range();
    subsets();
    every_step_can_be_reached();
    separation_and_size();
    places_are_redrawn();
    out_of_memory();
    refusals();
    return check::summary();
}
