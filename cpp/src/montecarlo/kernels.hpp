// The inner loops of the Monte Carlo side, compiled once per instruction set and chosen at run time.
// All versions return the same bits.
//
// A group is 16 samples computed side by side. Its data are rows of 16 doubles, one row per iteration,
// aligned to 64 bytes: sample s of the group is column s.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "hockeystick/ieee.hpp"

namespace hockeystick::kernels {

inline constexpr std::size_t group = 16;

// A number mantissa * 2^exponent, the same for all samples.
struct Factor {
    double mantissa, exponent;
};

// Rows of numbers mantissa * 2^exponent, one for each sample.
struct ExtendedView {
    double* mantissa;
    double* exponent;
};

// One way to participate: with probability `weight`, `multiplicity` times the column.
struct Option {
    Factor weight;
    double multiplicity;
};

// The weights f of the participation chain, iteration by iteration; see chain_likelihood.cpp. All arrays
// hold rows of 16.
struct Chain {
    std::size_t separation;  // iterations from one participation to the next possible one
    Factor stay;             // Pr[no participation | available]; mantissa 0 if impossible
    const Option* options;   // the others
    std::size_t option_count;
    ExtendedView free;  // the weight of "available", one row
    ExtendedView ring;  // `separation` rows: what becomes available, by iteration mod separation
    Factor outside;     // weight of the histories that never become available
    std::size_t slot;   // the next iteration mod separation
    // One row; nullptr forbids the short form of the state: weights as plain doubles, with one exponent per
    // sample for the rows before `slot` and for `free` (its exponents), one for the rows from `slot` on.
    // Allowed if separation >= 8, stay^separation >= 2^-60 and all options' weights are in [2^-100, 2^30].
    double* past_exponent = nullptr;
    bool is_short = false;  // which form the state has
};

// Rounds that may be truncated: where survival < 1, a participation is kept with that probability,
// with multiplicity `truncated`; elsewhere it is kept for sure with multiplicity `whole`.
struct Truncation {
    const double* survival;  // one row per iteration
    double whole, truncated;
};

// Public counts of one round after the other: each is Binom(available, p), by the tables of BinomialTable.
struct Counts {
    double base, largest_rest, first, log_none, odds;
    const std::uint64_t* cumulative;
    const std::uint32_t* guide;
    int guide_shift;
    double* available;  // one row
    double* barred;     // `window` rows: the counts of the last rounds, by round mod window
    std::size_t window, oldest;
    double places;  // the largest batch
};

// The chain of a user whose blocked examples keep being sampled; docs/montecarlo/estimates.md, "Schemes and
// their recursions".
struct BlockedChain {
    std::size_t window;    // separation - 1 >= 1
    Factor stay;           // Q
    Factor leave;          // 1 - Q
    const Factor* powers;  // Q^0, ..., Q^window
    const Option* options;
    std::size_t option_count;
    ExtendedView free;
    ExtendedView front;   // sum over the current chunk, one row
    ExtendedView past;    // window rows: A of the chunk before
    ExtendedView suffix;  // window rows: its suffix sums
    ExtendedView now;     // window rows: A of the current chunk
    std::size_t offset;   // the next iteration within the chunk
};

// Several examples of independent chains, by the states of JointStates (joint_states.hpp), a row for each.
struct JointChain {
    std::size_t examples, stride;
    const std::uint32_t* families;
    const std::size_t* sizes;
    const Factor* coefficients;
    ExtendedView weights;
    ExtendedView ratio;  // `examples` rows, for what a family has in common
    // The short form: mantissas are plain doubles, in units of 2^scale; those of states in which all examples
    // are barred in units of 2^slot_scale of the slot where one of them took part last, as nothing happens to
    // them later.
    double* scale;       // one row
    double* slot_scale;  // a row for every slot
    double* relative;    // the same, for their ratios
    std::size_t slots;
    const double* plain_chances;  // `coefficients` as doubles
    double range;                 // binary exponents of likelihood ratios up to which nothing overflows
};

struct Table {
    const char* name;

    // Standard normals for iterations first, ..., first + count - 1; both even. counter: words 1 to 3
    // of the counter of the group's first sample (the others add 1, ..., 15 to word 1).
    void (*normals)(double* rows, std::size_t first, std::size_t count, std::array<std::uint32_t, 3> counter,
                    std::array<std::uint32_t, 2> key);

    // The counts of rounds first, ..., first + count - 1 and the probability to survive truncation in each,
    // as rows; counter and key as above. Stops before a round in which a number of available examples is not
    // in [base, base + largest_rest]; returns the number of rounds done.
    std::size_t (*public_counts)(Counts& state, std::size_t first, std::size_t count,
                                 std::array<std::uint32_t, 3> counter, std::array<std::uint32_t, 2> key,
                                 double* counts, double* survival);

    // out[i] = sum_k filters[i * stride + k] rows[i + k], k < bands, i < count. stride 0: one filter for all.
    void (*correlate)(const double* rows, const double* filters, std::size_t stride, std::size_t bands,
                      std::size_t count, double* out);

    // Circular correlation with a filter given by its spectrum (SlidingProducts):
    // `size` rows in, `size` rows of work, which hold the result. size is a power of two >= 16.
    void (*convolve)(const double* rows, std::size_t size, const double* twiddles, const double* spectrum,
                     double* work);
    // The spectrum as `convolve` needs it. work: `size` rows, whose first column is the filter.
    void (*transform)(std::size_t size, const double* twiddles, double* work);

    // Advances chains that differ in their weights alone by `count` iterations with the sliding products u
    // and |c|^2/2 (both over sigma^2).
    void (*advance)(Chain* chains, std::size_t number, const double* products, const double* half_norms,
                    std::size_t count);
    void (*advance_truncated)(Chain* chains, std::size_t number, const Truncation& truncation,
                              const double* products, const double* half_norms, std::size_t count);
    // ln of the sum of all weights, one row.
    void (*finish)(const Chain& chain, double* out);

    void (*advance_blocked)(BlockedChain& chain, const double* products, const double* half_norms,
                            std::size_t count);
    void (*finish_blocked)(const BlockedChain& chain, double* out);

    // One iteration, in which `slot` is set free. coupling: by slot, e^{-<c_i, c_j>} for the column of the
    // last participation that it stands for, with a mantissa in [1, 2).
    void (*advance_joint)(const JointChain& chain, const double* products, double half_norm, std::size_t slot,
                          const Factor* coupling);
    // The same in the short form; false, and nothing done, where a ratio is out of range. lag: by slot, the
    // iterations since it was the one set free.
    bool (*advance_joint_short)(const JointChain& chain, const double* products, double half_norm,
                                std::size_t slot, const double* coupling, const std::uint32_t* lag);
    // ln of the sum of `count` rows.
    void (*finish_joint)(const JointChain& chain, std::size_t count, double* out);

    // ln sum_j e^{rows[j] - half_norms[j]} + extra, j < count, one row; `extra` counts terms e^0.
    void (*log_sum_exp)(const double* rows, const double* half_norms, std::size_t count, double extra,
                        double* out);
};

// The widest version this machine runs; the environment variable HOCKEYSTICK_LANES (baseline, avx2,
// avx512) asks for a narrower one.
const Table& table();
// A version by name; nullptr if this machine or this build does not have it.
const Table* find(const char* name);

}  // namespace hockeystick::kernels
