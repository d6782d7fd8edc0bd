// Counter-based random numbers: every draw is a function of (seed, block, sample, purpose, index),
// so results depend neither on the number of threads nor on the order of the work, nor on the machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011): 128 random bits for a counter and a key.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key) noexcept;

// What a stream of random numbers is for. Streams of different purposes are independent.
enum class Purpose : std::uint32_t {
    noise = 0,
    participation = 1,
    public_counts = 2,
    candidates = 3,
    proposal = 4,
    proposal_noise = 5
};

// Names the streams of one block of samples. The two directions of a divergence have streams of their own.
struct BlockStream {
    std::uint64_t seed;
    std::uint64_t block;
    bool swapped = false;  // the direction Q against P

    // The counter's second word: which sample of the block (< 2^16), for what.
    std::uint32_t lane_word(std::size_t lane, Purpose purpose) const noexcept {
        return static_cast<std::uint32_t>(lane) | static_cast<std::uint32_t>(purpose) << 16 |
               (swapped ? 1U << 24 : 0U);
    }
    // The counter's words after its first.
    std::array<std::uint32_t, 3> counter(std::size_t lane, Purpose purpose) const noexcept {
        return {lane_word(lane, purpose), static_cast<std::uint32_t>(block),
                static_cast<std::uint32_t>(block >> 32)};
    }
    std::array<std::uint32_t, 2> key() const noexcept {
        return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
    }
};

// The numbers of one sample for one purpose, in order.
class Stream {
public:
    Stream(const BlockStream& block, std::size_t lane, Purpose purpose) noexcept;

    std::uint64_t bits() noexcept;
    // Uniform in (0, 1): (k + 1/2) 2^-64, rounded to a double; 1 with probability 2^-54.
    double uniform() noexcept;
    // Uniform in {0, ..., n - 1}, n >= 1, each probability off by at most 2^-64.
    std::uint64_t below(std::uint64_t n) noexcept;

private:
    void refill() noexcept;

    static constexpr std::size_t batch = 8;  // speed: counters at a time, whose rounds overlap
    std::array<std::uint32_t, 4> counter_;
    std::array<std::uint32_t, 2> key_;
    std::array<std::uint64_t, 2 * batch> values_{};
    std::size_t used_ = 2 * batch;
};

// Number of failures, Pr[failure] = e^log_failure in [0, 1], before the first success; limit where it is
// limit or more.
std::uint64_t geometric(Stream& stream, double log_failure, std::uint64_t limit) noexcept;

// Number of successes in n independent trials of probability p, by inversion where the mean is
// small, otherwise by transformed rejection (Hörmann 1993). Exact up to the rounding of doubles.
std::uint64_t binomial(Stream& stream, std::uint64_t n, double p) noexcept;

// The same for many n that differ little, from tables: Binom(n, p) is Binom(base, p) by inversion plus
// Binom(n - base, p), which is 0 most of the time. The law is exact to a relative error of 1e-12 per
// probability.
struct BinomialTable {
    BinomialTable() = default;  // no tables: every draw by binomial()
    // 0 < p < 1. Tables only where base * p is in [10, 65536]: below and above they do not pay.
    BinomialTable(std::uint64_t trials, double p);

    // In two parts: by the tables where has(n), else by binomial().
    std::uint64_t draw(Stream& stream, std::uint64_t n, double p) const noexcept;

    bool has(std::uint64_t n) const noexcept {
        return !cumulative.empty() && n >= base && n - base <= largest_rest;
    }

    std::uint64_t base = 0, largest_rest = 0;  // (n - base) p <= 30 for all n that the tables serve
    double odds = 0, log_none = 0;             // p/(1-p), ln(1-p)
    // The number of entries <= a uniform word, plus `first`, is Binom(base, p); the last entry is 2^64 - 1.
    std::uint64_t first = 0;
    std::vector<std::uint64_t> cumulative;
    // That number for the smallest word with these upper bits (speed: of so many).
    static constexpr int guide_bits = 12;
    std::vector<std::uint32_t> guide;
};

// Pr[Binom(n, p) = k] and Pr[Binom(n, p) >= k], 0 <= k <= n, 0 < p < 1; relative error below 1e-9 for n up
// to 2^53 and probabilities above 1e-300.
double binomial_probability(std::uint64_t n, double p, std::uint64_t k) noexcept;
double binomial_tail(std::uint64_t n, double p, std::uint64_t k) noexcept;

// exp, ln, ln(1 + x) with relative errors of a few units in the last place, bit by bit the same on
// every machine. exp(nan) and ln(negative) are nan.
double portable_exp(double x) noexcept;
double portable_log(double x) noexcept;
double portable_log1p(double x) noexcept;

}  // namespace hockeystick
