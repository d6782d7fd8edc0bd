// What is drawn for 16 samples side by side: the noise, and public counts (docs/montecarlo/estimates.md,
// "What is drawn").
//
// Included by kernels.cpp only; see numerics/lanes.hpp.
#pragma once

#include "montecarlo/kernels.hpp"
#include "numerics/lanes.hpp"
#include "numerics/philox.hpp"

namespace {

using namespace hockeystick::kernels;

// Philox4x32-10 of the counters (pair, lane, block): the lane is the only word that differs between the
// samples of a group, the pair the only one that differs between rows. It takes three rounds for both to
// reach all words; until then most words are the same for all samples or all rows, and computed once.
class Counters {
public:
    Counters(const std::array<std::uint32_t, 3>& counter, const std::array<std::uint32_t, 2>& key)
        : block_{counter[1], counter[2]} {
        for (std::uint32_t round = 0; round < 10; ++round) {
            keys_[round][0] = key[0] + round * hockeystick::philox_steps[0];
            keys_[round][1] = key[1] + round * hockeystick::philox_steps[1];
        }
        const std::uint64_t product = factor1 * block_[0];
        low_ = static_cast<std::uint32_t>(product);
        for (std::size_t part = 0; part < parts; ++part) {
            U lane{};
            for (std::size_t i = 0; i < width; ++i) lane[i] = counter[0] + part * width + i;
            lane = lane ^ splat_bits((product >> 32) ^ keys_[0][0]);
            product_[part] = (lane & splat_bits(0xFFFFFFFF)) * splat_bits(factor0);
            high_[part] = (product_[part] >> 32) ^ splat_bits(keys_[1][1]);
        }
    }

    static constexpr std::size_t parts = group / width;

    // 128 random bits for each sample of `together` parts of the group, which are computed side by side, as
    // each operation waits for the one before.
    template <std::size_t together>
    LANES_INLINE void bits(std::uint32_t pair, std::size_t first_part, U (*words)[2]) const {
        // Rounds 0, 1 and what of round 2 is the same for all samples. Upper halves of words are never read.
        const std::uint64_t a0 = factor0 * pair;
        const std::uint64_t b1 = factor1 * static_cast<std::uint32_t>((a0 >> 32) ^ block_[1] ^ keys_[0][1]);
        const std::uint64_t a2 = factor0 * static_cast<std::uint32_t>((b1 >> 32) ^ low_ ^ keys_[1][0]);
        U c0[together], c1[together], c2[together], c3[together];
#pragma GCC unroll 8
        for (std::size_t v = 0; v < together; ++v) {
            const U mixed = high_[first_part + v] ^ splat_bits(static_cast<std::uint32_t>(a0));
            c1[v] = multiply_low(mixed, splat_bits(factor1));
            c0[v] = (c1[v] >> 32) ^ splat_bits(static_cast<std::uint32_t>(b1) ^ keys_[2][0]);
            c2[v] = product_[first_part + v] ^ splat_bits((a2 >> 32) ^ keys_[2][1]);
            c3[v] = splat_bits(a2);
        }
#pragma GCC unroll 6
        for (std::size_t round = 3; round < 9; ++round) {
#pragma GCC unroll 8
            for (std::size_t v = 0; v < together; ++v) {
                const U a = multiply_low(c0[v], splat_bits(factor0)),
                        b = multiply_low(c2[v], splat_bits(factor1));
                c0[v] = (b >> 32) ^ c1[v] ^ splat_bits(keys_[round][0]);
                c1[v] = b;
                c2[v] = (a >> 32) ^ c3[v] ^ splat_bits(keys_[round][1]);
                c3[v] = a;
            }
        }
#pragma GCC unroll 8
        for (std::size_t v = 0; v < together; ++v) {
            // The last round's words in pairs: the first above the second, the third above the fourth.
            const U a = multiply_low(c0[v], splat_bits(factor0)),
                    b = multiply_low(c2[v], splat_bits(factor1));
            words[v][0] = b ^ (c1[v] << 32) ^ splat_bits(std::uint64_t{keys_[9][0]} << 32);
            words[v][1] = a ^ (c3[v] << 32) ^ splat_bits(std::uint64_t{keys_[9][1]} << 32);
        }
    }

private:
    static constexpr std::uint64_t factor0 = hockeystick::philox_factors[0],
                                   factor1 = hockeystick::philox_factors[1];

    std::uint32_t block_[2], keys_[10][2], low_;
    U product_[parts], high_[parts];
};

void normals(double* rows, std::size_t first, std::size_t count, std::array<std::uint32_t, 3> counter,
             std::array<std::uint32_t, 2> key) {
    const Counters counters(counter, key);
    // Speed: first the random bits of several rows, then their normals: the dependent operations of one row
    // are then close enough to those of the next for the processor to overlap them.
    constexpr std::size_t batch = 8, parts = Counters::parts, together = 2;
    U words[batch * parts][2];
    for (std::size_t row = 0; row < count; row += 2 * batch) {
        const std::size_t pairs = count - row < 2 * batch ? (count - row) / 2 : batch;
        for (std::size_t j = 0; j < pairs * parts; j += together) {
            const auto pair = static_cast<std::uint32_t>((first + row) / 2 + j / parts);
            counters.bits<together>(pair, j % parts, words + j);
        }
        for (std::size_t j = 0; j < pairs * parts; j += together) {
            V z0[together], z1[together];
#pragma GCC unroll 8
            for (std::size_t v = 0; v < together; ++v)
                normal_pair(words[j + v][0], words[j + v][1], z0[v], z1[v]);
            double* out = rows + (row + j / parts * 2) * group + j % parts * width;
#pragma GCC unroll 8
            for (std::size_t v = 0; v < together; ++v) {
                store(out + v * width, z0[v]);
                store(out + group + v * width, z1[v]);
            }
        }
    }
}

// Binom(trials, p), sequential search from 0, for trials p <= 30.
LANES_INLINE V small_binomial(V u, V trials, double log_none, double odds) {
    V probability = exponential2(polynomial::power_of_two, trials * splat(log_none * polynomial::log2_e));
    V count = splat(0);
    I more = u > probability;
    for (double k = 0; any(more); ++k) {
        u = u - probability;
        probability *= (splat(odds) * (trials - splat(k))) / splat(k + 1);
        count = select(more, splat(k + 1), count);
        // Rounding may leave something of u when all that could be has been counted.
        more = more & (u > probability) & (trials > splat(k + 1)) & (probability > splat(1e-25));
    }
    return count;
}

std::size_t public_counts(Counts& state, std::size_t first, std::size_t count,
                          std::array<std::uint32_t, 3> counter, std::array<std::uint32_t, 2> key,
                          double* counts, double* survival) {
    const Counters counters(counter, key);
    constexpr std::size_t parts = Counters::parts, batch = 8, together = 2;  // speed
    U words[batch * parts][2];
    for (std::size_t row = 0; row < count; ++row) {
        if (row % batch == 0) {
            for (std::size_t j = 0; j < batch * parts; j += together) {
                counters.bits<together>(static_cast<std::uint32_t>(first + row + j / parts), j % parts,
                                        words + j);
            }
        }
        for (std::size_t part = 0; part < parts; ++part) {
            const V rest = load(state.available + part * width) - splat(state.base);
            if (any((rest < splat(0)) | (rest > splat(state.largest_rest)))) return row;
        }
        double* const barred = state.barred + state.oldest * group;
        for (std::size_t part = 0; part < parts; ++part) {
            const std::size_t at = part * width;
            const U* const bits = words[row % batch * parts + part];
            V number;
            for (std::size_t i = 0; i < width; ++i) {
                // The last entry of the table stands for 2^64.
                const std::uint64_t word = bits[0][i] - (bits[0][i] == ~std::uint64_t{0} ? 1 : 0);
                std::uint32_t k = state.guide[word >> state.guide_shift];
                while (state.cumulative[k] <= word) ++k;
                number[i] = k;
            }
            V available = load(state.available + at);
            const V u = (from_unsigned(bits[1]) + splat(0.5)) * splat(0x1p-64);
            number = (number + splat(state.first)) +
                     small_binomial(u, available - splat(state.base), state.log_none, state.odds);
            store(counts + row * group + at, number);
            store(survival + row * group + at,
                  select(number < splat(state.places), splat(1), splat(state.places) / (number + splat(1))));
            if (state.window == 0) continue;
            // Who was sampled `window` rounds ago is available in the next.
            available += load(barred + at) - number;
            store(barred + at, number);
            store(state.available + at, available);
        }
        if (++state.oldest >= state.window) state.oldest = 0;
    }
    return count;
}

}  // namespace
