// Compiled once per instruction set (CMakeLists.txt), with HOCKEYSTICK_LANES as the name of the version.
#include "montecarlo/kernels.hpp"

#include "numerics/lanes.hpp"

#define HOCKEYSTICK_PASTE_(a, b) a##b
#define HOCKEYSTICK_PASTE(a, b) HOCKEYSTICK_PASTE_(a, b)
#define HOCKEYSTICK_STRING_(a) #a
#define HOCKEYSTICK_STRING(a) HOCKEYSTICK_STRING_(a)

namespace {

using hockeystick::kernels::BlockedChain;
using hockeystick::kernels::Chain;
using hockeystick::kernels::Counts;
using hockeystick::kernels::Factor;
using hockeystick::kernels::group;
using hockeystick::kernels::JointChain;
using hockeystick::kernels::Option;
using hockeystick::kernels::Table;
using hockeystick::kernels::Truncation;

// ---- Noise --------------------------------------------------------------------------------------

// Philox4x32-10 of the counters (pair, lane, block): the lane is the only word that differs between the
// samples of a group, the pair the only one that differs between rows. It takes three rounds for both to
// reach all words; until then most words are the same for all samples or all rows, and computed once.
class Counters {
public:
    Counters(const std::array<std::uint32_t, 3>& counter, const std::array<std::uint32_t, 2>& key)
        : block_{counter[1], counter[2]} {
        for (std::uint32_t round = 0; round < 10; ++round) {
            keys_[round][0] = key[0] + round * 0x9E3779B9;
            keys_[round][1] = key[1] + round * 0xBB67AE85;
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
    static constexpr std::uint64_t factor0 = 0xD2511F53, factor1 = 0xCD9E8D57;

    std::uint32_t block_[2], keys_[10][2], low_;
    U product_[parts], high_[parts];
};

void normals(double* rows, std::size_t first, std::size_t count, std::array<std::uint32_t, 3> counter,
             std::array<std::uint32_t, 2> key) {
    const Counters counters(counter, key);
    // First the random bits of several rows, then their normals: the dependent operations of one row are
    // then close enough to those of the next for the processor to overlap them.
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

// ---- Public counts ------------------------------------------------------------------------------

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
    constexpr std::size_t parts = Counters::parts, batch = 8, together = 2;
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

// ---- Sliding products, directly -------------------------------------------------------------------

constexpr std::size_t strip = 8;  // outputs computed together, so that each row is loaded once

void correlate(const double* rows, const double* filter, std::size_t bands, std::size_t count, double* out) {
    std::size_t i = 0;
    if (bands >= strip) {
        for (; i + strip <= count; i += strip) {
            for (std::size_t column = 0; column < group; column += width) {
                const double* x = rows + i * group + column;
                V sum[strip];
                for (auto& s : sum) s = splat(0);
                // Row r of the strip meets coefficient r - j of output j: the first and last rows miss some.
#pragma GCC unroll 8
                for (std::size_t r = 0; r < strip - 1; ++r) {
                    const V value = load(x + r * group);
#pragma GCC unroll 8
                    for (std::size_t j = 0; j <= r; ++j) sum[j] += splat(filter[r - j]) * value;
                }
                for (std::size_t r = strip - 1; r < bands; ++r) {
                    const V value = load(x + r * group);
#pragma GCC unroll 8
                    for (std::size_t j = 0; j < strip; ++j) sum[j] += splat(filter[r - j]) * value;
                }
                x += bands * group;
#pragma GCC unroll 8
                for (std::size_t r = 0; r < strip - 1; ++r) {
                    const V value = load(x + r * group);
#pragma GCC unroll 8
                    for (std::size_t j = r + 1; j < strip; ++j) {
                        sum[j] += splat(filter[bands + r - j]) * value;
                    }
                }
                for (std::size_t j = 0; j < strip; ++j) store(out + (i + j) * group + column, sum[j]);
            }
        }
    }
    for (; i < count; ++i) {
        for (std::size_t column = 0; column < group; column += width) {
            V sum = splat(0);
            for (std::size_t k = 0; k < bands; ++k) {
                sum += splat(filter[k]) * load(rows + (i + k) * group + column);
            }
            store(out + i * group + column, sum);
        }
    }
}

void correlate_columns(const double* rows, const double* columns, std::size_t bands, std::size_t count,
                       double* out) {
    for (std::size_t i = 0; i < count; ++i) {
        const double* filter = columns + i * bands;
        V sum[group / width];
        for (auto& s : sum) s = splat(0);
        for (std::size_t k = 0; k < bands; ++k) {
            for (std::size_t part = 0; part < group / width; ++part) {
                sum[part] += splat(filter[k]) * load(rows + (i + k) * group + part * width);
            }
        }
        for (std::size_t part = 0; part < group / width; ++part) {
            store(out + i * group + part * width, sum[part]);
        }
    }
}

// ---- Sliding products, by Fourier transform --------------------------------------------------------
//
// The complex transform of sample s + i (sample s + 8), s < 8: a real filter keeps the two apart. Forward
// by decimation in frequency, back by decimation in time, so that nothing is ever reordered; depth first,
// so that all but the first levels stay in the nearest cache.

struct Complex {
    V re, im;
};

constexpr std::size_t half_group = group / 2;

LANES_INLINE Complex load_complex(const double* p) { return {load(p), load(p + half_group)}; }
LANES_INLINE void store_complex(double* p, const Complex& z) {
    store(p, z.re);
    store(p + half_group, z.im);
}
LANES_INLINE Complex operator+(const Complex& a, const Complex& b) { return {a.re + b.re, a.im + b.im}; }
LANES_INLINE Complex operator-(const Complex& a, const Complex& b) { return {a.re - b.re, a.im - b.im}; }
LANES_INLINE Complex times_i(const Complex& a) { return {-a.im, a.re}; }
LANES_INLINE Complex times(const Complex& a, const double* w) {
    return {a.re * splat(w[0]) - a.im * splat(w[1]), a.re * splat(w[1]) + a.im * splat(w[0])};
}
LANES_INLINE Complex times_conjugate(const Complex& a, const double* w) {
    return {a.re * splat(w[0]) + a.im * splat(w[1]), a.im * splat(w[0]) - a.re * splat(w[1])};
}

LANES_INLINE void butterfly(Complex& a, Complex& b, Complex& c, Complex& d) {  // the sign of i: minus
    const Complex even = a + c, odd = a - c, sum = b + d, turned = times_i(b - d);
    a = even + sum;
    b = odd - turned;
    c = even - sum;
    d = odd + turned;
}

LANES_INLINE void butterfly_back(Complex& a, Complex& b, Complex& c, Complex& d) {
    const Complex even = a + c, odd = a - c, sum = b + d, turned = times_i(b - d);
    a = even + sum;
    b = odd + turned;
    c = even - sum;
    d = odd - turned;
}

void forward_pass(const double* in, double* out, std::size_t size, const double* twiddles) {
    const std::size_t quarter = size / 4 * group;
    for (std::size_t k = 0; k < quarter; k += group, twiddles += 6) {
        for (std::size_t column = 0; column < half_group; column += width) {
            const double* x = in + k + column;
            Complex a = load_complex(x), b = load_complex(x + quarter), c = load_complex(x + 2 * quarter),
                    d = load_complex(x + 3 * quarter);
            butterfly(a, b, c, d);
            double* y = out + k + column;
            store_complex(y, a);
            store_complex(y + quarter, times(b, twiddles));
            store_complex(y + 2 * quarter, times(c, twiddles + 2));
            store_complex(y + 3 * quarter, times(d, twiddles + 4));
        }
    }
}

void backward_pass(double* x, std::size_t size, const double* twiddles) {
    const std::size_t quarter = size / 4 * group;
    for (std::size_t k = 0; k < quarter; k += group, twiddles += 6) {
        for (std::size_t column = 0; column < half_group; column += width) {
            double* y = x + k + column;
            Complex a = load_complex(y), b = times_conjugate(load_complex(y + quarter), twiddles),
                    c = times_conjugate(load_complex(y + 2 * quarter), twiddles + 2),
                    d = times_conjugate(load_complex(y + 3 * quarter), twiddles + 4);
            butterfly_back(a, b, c, d);
            store_complex(y, a);
            store_complex(y + quarter, b);
            store_complex(y + 2 * quarter, c);
            store_complex(y + 3 * quarter, d);
        }
    }
}

// One butterfly of the level whose rows are a quarter apart, column b of x, and of the level below it.
template <bool back>
LANES_INLINE void outer_level(Complex (&x)[4][4], std::size_t b, const double* w) {
    if constexpr (back) {
        for (std::size_t a = 1; a < 4; ++a) x[a][b] = times_conjugate(x[a][b], w + 2 * (a - 1));
        butterfly_back(x[0][b], x[1][b], x[2][b], x[3][b]);
    } else {
        butterfly(x[0][b], x[1][b], x[2][b], x[3][b]);
        for (std::size_t a = 1; a < 4; ++a) x[a][b] = times(x[a][b], w + 2 * (a - 1));
    }
}
template <bool back>
LANES_INLINE void inner_level(Complex (&x)[4], const double* w) {
    if constexpr (back) {
        for (std::size_t b = 1; b < 4; ++b) x[b] = times_conjugate(x[b], w + 2 * (b - 1));
        butterfly_back(x[0], x[1], x[2], x[3]);
    } else {
        butterfly(x[0], x[1], x[2], x[3]);
        for (std::size_t b = 1; b < 4; ++b) x[b] = times(x[b], w + 2 * (b - 1));
    }
}

// Two levels at once, a sixteenth of the rows apart: half of the traffic with the slower caches.
template <bool back>
LANES_INLINE void double_pass(const double* in, double* out, std::size_t size, const double* twiddles) {
    const std::size_t sixteenth = size / 16 * group;
    const double* const inner = twiddles + size / 4 * 6;
    for (std::size_t k = 0; k < size / 16; ++k) {
        for (std::size_t column = 0; column < half_group; column += width) {
            Complex x[4][4];  // [a][b]: row k + (4 a + b) size/16
            const double* const from = in + k * group + column;
#pragma GCC unroll 4
            for (std::size_t b = 0; b < 4; ++b) {
#pragma GCC unroll 4
                for (std::size_t a = 0; a < 4; ++a) {
                    const std::size_t row = back ? 4 * b + a : 4 * a + b;
                    x[back ? b : a][back ? a : b] = load_complex(from + row * sixteenth);
                }
                if constexpr (back) {
                    inner_level<true>(x[b], inner + 6 * k);
                } else {
                    outer_level<false>(x, b, twiddles + 6 * (k + b * (size / 16)));
                }
            }
            double* const to = out + k * group + column;
#pragma GCC unroll 4
            for (std::size_t b = 0; b < 4; ++b) {
                if constexpr (back) {
                    outer_level<true>(x, b, twiddles + 6 * (k + b * (size / 16)));
                } else {
                    inner_level<false>(x[b], inner + 6 * k);
                }
#pragma GCC unroll 4
                for (std::size_t a = 0; a < 4; ++a) {
                    const std::size_t row = back ? 4 * a + b : 4 * b + a;
                    store_complex(to + row * sixteenth, x[back ? a : b][back ? b : a]);
                }
            }
        }
    }
}

void forward_double_pass(const double* in, double* out, std::size_t size, const double* twiddles) {
    double_pass<false>(in, out, size, twiddles);
}

void backward_double_pass(double* x, std::size_t size, const double* twiddles) {
    double_pass<true>(x, x, size, twiddles);
}

// Forward, times the spectrum, back: for 2, 4 or 8 rows all at once.
void convolve_leaf(double* x, std::size_t size, const double* spectrum) {
    for (std::size_t column = 0; column < half_group; column += width) {
        double* y = x + column;
        Complex a = load_complex(y), b = load_complex(y + group);
        if (size == 2) {
            const Complex sum = times(a + b, spectrum), difference = times(a - b, spectrum + 2);
            store_complex(y, sum + difference);
            store_complex(y + group, sum - difference);
            continue;
        }
        Complex c = load_complex(y + 2 * group), d = load_complex(y + 3 * group);
        butterfly(a, b, c, d);
        a = times(a, spectrum);
        b = times(b, spectrum + 2);
        c = times(c, spectrum + 4);
        d = times(d, spectrum + 6);
        butterfly_back(a, b, c, d);
        store_complex(y, a);
        store_complex(y + group, b);
        store_complex(y + 2 * group, c);
        store_complex(y + 3 * group, d);
    }
}

// Times e^{-i pi/4}, and times e^{i pi/4}.
LANES_INLINE Complex eighth(const Complex& a) {
    return {(a.re + a.im) * splat(0x1.6a09e667f3bcdp-1), (a.im - a.re) * splat(0x1.6a09e667f3bcdp-1)};
}
LANES_INLINE Complex eighth_back(const Complex& a) {
    return {(a.re - a.im) * splat(0x1.6a09e667f3bcdp-1), (a.re + a.im) * splat(0x1.6a09e667f3bcdp-1)};
}

// A level of four, whose factors are eighths of a turn, and one of two.
void convolve_eight(double* x, const double* spectrum) {
    for (std::size_t column = 0; column < half_group; column += width) {
        double* y = x + column;
        Complex even[4], odd[4];
#pragma GCC unroll 4
        for (std::size_t j = 0; j < 4; ++j) {
            even[j] = load_complex(y + 2 * j * group);
            odd[j] = load_complex(y + (2 * j + 1) * group);
        }
        butterfly(even[0], even[1], even[2], even[3]);
        butterfly(odd[0], odd[1], odd[2], odd[3]);
        odd[1] = eighth(odd[1]);
        odd[2] = {odd[2].im, -odd[2].re};
        odd[3] = eighth({odd[3].im, -odd[3].re});
#pragma GCC unroll 4
        for (std::size_t j = 0; j < 4; ++j) {
            const Complex sum = times(even[j] + odd[j], spectrum + 4 * j);
            const Complex difference = times(even[j] - odd[j], spectrum + 4 * j + 2);
            even[j] = sum + difference;
            odd[j] = sum - difference;
        }
        odd[1] = eighth_back(odd[1]);
        odd[2] = times_i(odd[2]);
        odd[3] = eighth_back(times_i(odd[3]));
        butterfly_back(even[0], even[1], even[2], even[3]);
        butterfly_back(odd[0], odd[1], odd[2], odd[3]);
#pragma GCC unroll 4
        for (std::size_t j = 0; j < 4; ++j) {
            store_complex(y + 2 * j * group, even[j]);
            store_complex(y + (2 * j + 1) * group, odd[j]);
        }
    }
}

// `in` and x may be the same. The twiddle factors of a level of `size` rows take 6 size/4 numbers; those
// of the next level follow.
void convolve_level(const double* in, double* x, std::size_t size, const double* twiddles,
                    const double* spectrum) {
    if (size <= 4) {
        convolve_leaf(x, size, spectrum);
        return;
    }
    if (size == 8) {
        convolve_eight(x, spectrum);
        return;
    }
    const bool two_levels = size >= 64 && size <= 256;
    const std::size_t parts = two_levels ? 16 : 4, part = size / parts;
    const double* const next = twiddles + (two_levels ? size / 4 * 6 + size / 16 * 6 : size / 4 * 6);
    if (two_levels) {
        forward_double_pass(in, x, size, twiddles);
    } else {
        forward_pass(in, x, size, twiddles);
    }
    for (std::size_t j = 0; j < parts; ++j) {
        double* const rows = x + j * part * group;
        convolve_level(rows, rows, part, next, spectrum + 2 * j * part);
    }
    if (two_levels) {
        backward_double_pass(x, size, twiddles);
    } else {
        backward_pass(x, size, twiddles);
    }
}

void convolve(const double* rows, std::size_t size, const double* twiddles, const double* spectrum,
              double* work) {
    convolve_level(rows, work, size, twiddles, spectrum);
}

void transform(std::size_t size, const double* twiddles, double* work) {
    if (size == 2 || size == 4) {
        for (std::size_t column = 0; column < half_group; column += width) {
            double* y = work + column;
            Complex a = load_complex(y), b = load_complex(y + group);
            if (size == 2) {
                store_complex(y, a + b);
                store_complex(y + group, a - b);
                continue;
            }
            Complex c = load_complex(y + 2 * group), d = load_complex(y + 3 * group);
            butterfly(a, b, c, d);
            store_complex(y, a);
            store_complex(y + group, b);
            store_complex(y + 2 * group, c);
            store_complex(y + 3 * group, d);
        }
        return;
    }
    const std::size_t quarter = size / 4;
    forward_pass(work, work, size, twiddles);
    for (std::size_t j = 0; j < 4; ++j) {
        transform(quarter, twiddles + 6 * quarter, work + j * quarter * group);
    }
}

// ---- Participation chains --------------------------------------------------------------------------

LANES_INLINE Scaled constant(const Factor& factor) {
    return {splat(factor.mantissa), splat(factor.exponent)};
}

// As a double, where it is one.
LANES_INLINE double plain(const Factor& factor) {
    return __builtin_ldexp(factor.mantissa, static_cast<int>(factor.exponent));
}

LANES_INLINE double larger(double a, double b) { return a > b ? a : b; }

LANES_INLINE Scaled load_scaled(const double* mantissa, const double* exponent) {
    return {load(mantissa), load(exponent)};
}

LANES_INLINE void store_scaled(double* mantissa, double* exponent, const Scaled& value) {
    store(mantissa, value.mantissa);
    store(exponent, value.exponent);
}

// sum_j weight_j e^{m_j u - m_j^2 |c|^2/2}
LANES_INLINE Scaled likelihood(const Option* options, std::size_t count, V product, double half_norm) {
    Scaled sum = zero();
    for (std::size_t j = 0; j < count; ++j) {
        const double m = options[j].multiplicity;
        const Scaled term =
            constant(options[j].weight) * exponential(splat(m) * product - splat(m * m * half_norm));
        sum = j == 0 ? term : sum + term;
    }
    return sum;
}

// What a participation multiplies the weight by, in the long form (hit) and the short one (factor).
template <std::size_t fixed_count>  // 0: any number of options
struct Plain {
    explicit Plain(const Chain& chain) : options(chain.options), count(chain.option_count) {
        for (std::size_t j = 0; j < fixed_count; ++j) {
            const double weight = plain(options[j].weight), m = options[j].multiplicity;
            for (std::size_t k = 0; k < terms; ++k) coefficients[k] = weight * polynomial::power_of_two[k];
            linear = m * polynomial::log2_e;
            quadratic = m * m * polynomial::log2_e;
        }
        for (std::size_t j = 0; j < count; ++j) {
            largest = larger(largest, __builtin_fabs(options[j].multiplicity));
        }
    }

    LANES_INLINE Scaled hit(std::size_t, V product, double half_norm) const {
        return likelihood(options, fixed_count == 0 ? count : fixed_count, product, half_norm);
    }

    LANES_INLINE V factor(std::size_t, V product, double half_norm) const {
        if constexpr (fixed_count == 1) {
            return exponential2(coefficients, product * splat(linear) - splat(half_norm * quadratic));
        } else {
            V sum = splat(0);
            for (std::size_t j = 0; j < count; ++j) {
                const double m = options[j].multiplicity;
                sum += splat(plain(options[j].weight)) *
                       exponential2(polynomial::power_of_two,
                                    product * splat(m * polynomial::log2_e) -
                                        splat(half_norm) * splat(m * m * polynomial::log2_e));
            }
            return sum;
        }
    }

    static constexpr std::size_t terms = sizeof polynomial::power_of_two / sizeof(double);
    const Option* options;
    std::size_t count;
    double coefficients[terms] = {}, linear = 0, quadratic = 0;
    double largest = 0;  // multiplicity
};

struct Truncated {
    Truncated(const Chain& chain, const Truncation& rounds)
        : weight(chain.options[0].weight),
          plain_weight(plain(weight)),
          truncation(rounds),
          largest(larger(__builtin_fabs(rounds.whole), __builtin_fabs(rounds.truncated))) {}

    LANES_INLINE Scaled hit(std::size_t at, V product, double half_norm) const {
        const V kept = load(truncation.survival + at);
        const I cut = kept < splat(1);
        const V m = select(cut, splat(truncation.truncated), splat(truncation.whole));
        Scaled survives = exponential(m * product - m * m * splat(half_norm));
        survives.mantissa *= kept;
        const Scaled dropped = {splat(1) - kept, select(cut, splat(0), splat(nothing))};
        return constant(weight) * (survives + dropped);
    }

    LANES_INLINE V factor(std::size_t at, V product, double half_norm) const {
        const V kept = load(truncation.survival + at);
        const V m = select(kept < splat(1), splat(truncation.truncated), splat(truncation.whole));
        const V scaled = m * splat(polynomial::log2_e);
        const V ratio =
            exponential2(polynomial::power_of_two, scaled * product - scaled * m * splat(half_norm));
        return splat(plain_weight) * (kept * ratio + (splat(1) - kept));
    }

    Factor weight;
    double plain_weight;
    Truncation truncation;
    double largest;
};

// Two vectors at a time: while one waits for its last result the other computes.
constexpr std::size_t together = 2;

// `count` iterations in the long form, of which the first reads row 0 of products and half_norms and number
// `first` of the truncation.
template <typename Hits>
LANES_INLINE void advance_long(Chain& chain, const Hits& hits, const double* products,
                               const double* half_norms, std::size_t first, std::size_t count) {
    const bool may_stay = chain.stay.mantissa > 0;
    const Scaled stay = constant(chain.stay);
    std::size_t slot = chain.slot;
    for (std::size_t column = 0; column < group; column += together * width) {
        Scaled available[together];
        for (std::size_t v = 0; v < together; ++v) {
            const std::size_t at = column + v * width;
            available[v] = load_scaled(chain.free_mantissa + at, chain.free_exponent + at);
        }
        slot = chain.slot;
        for (std::size_t row = first; row < first + count; ++row) {
            for (std::size_t v = 0; v < together; ++v) {
                const std::size_t at = column + v * width;
                double* mantissa = chain.ring_mantissa + slot * group + at;
                double* exponent = chain.ring_exponent + slot * group + at;
                const Scaled arriving = load_scaled(mantissa, exponent);
                // Whoever may stay out stays available with some weight, from the first iteration on.
                available[v] =
                    may_stay ? normalised_nonzero(stay * available[v] + arriving) : normalised(arriving);
                if (chain.option_count == 0) {
                    store_scaled(mantissa, exponent, zero());
                    continue;
                }
                const V product = load(products + row * group + at);
                store_scaled(mantissa, exponent,
                             hits.hit(row * group + at, product, half_norms[row]) * available[v]);
            }
            if (++slot == chain.separation) slot = 0;
        }
        for (std::size_t v = 0; v < together; ++v) {
            const std::size_t at = column + v * width;
            store_scaled(chain.free_mantissa + at, chain.free_exponent + at, available[v]);
        }
    }
    chain.slot = slot;
}

// The short form. Within a lap, `separation` iterations from slot 0 on, all weights are doubles relative to
// one power of two per sample, chosen so that the weight of "available" is in [1, 2) in the first of them.
//
// Nothing overflows or underflows: a_{i+1} >= stay a_i, so that the a of a lap are at least 2^-60. What takes
// part gets a factor between 2^-400 and 2^330 (short_range, and the options' weights): h_i >= 2^-460, and h_i
// <= 2^330 a_i
// <= 2^390 times the last a of the lap, to which the next lap is relative. There, for up to 2^31 arrivals,
// a_i <= 2^421, hence h_i <= 2^751, and relative to the lap after it h_i >= 2^-881.
constexpr double short_range = 300;

// Whether all factors of these iterations are within the range. nan is: it stays nan.
template <typename Hits>
LANES_INLINE bool within_range(const Hits& hits, const double* products, const double* half_norms,
                               std::size_t count) {
    double half_norm = 0;
    for (std::size_t row = 0; row < count; ++row) half_norm = larger(half_norm, half_norms[row]);
    V largest[group / width];
    for (auto& x : largest) x = splat(0);
    for (std::size_t row = 0; row < count; ++row) {
        for (std::size_t part = 0; part < group / width; ++part) {
            const U bits = reinterpret_cast<U>(load(products + row * group + part * width));
            largest[part] = max(reinterpret_cast<V>(bits & splat_bits(0x7FFFFFFFFFFFFFFF)), largest[part]);
        }
    }
    const double m = hits.largest;
    for (const V& x : largest) {
        for (std::size_t i = 0; i < width; ++i) {
            if (!(polynomial::log2_e * m * (x[i] + m * half_norm) <= short_range)) return false;
        }
    }
    return true;
}

// At slot 0, from the long form to the short one; false where a weight would not fit.
bool shorten(Chain& chain) {
    for (const bool convert : {false, true}) {
        for (std::size_t at = 0; at < group; at += width) {
            // Before the first iteration nothing is available, and its exponent says nothing.
            const Scaled free = load_scaled(chain.free_mantissa + at, chain.free_exponent + at);
            const V exponent = max(free.exponent, load(chain.ring_exponent + at));
            for (std::size_t slot = 0; slot < chain.separation; ++slot) {
                double* mantissa = chain.ring_mantissa + slot * group + at;
                const Scaled value = load_scaled(mantissa, chain.ring_exponent + slot * group + at);
                const V shift = value.exponent - exponent;
                if (convert) {
                    store(mantissa, value.mantissa * power_of_two(shift));
                    continue;
                }
                for (std::size_t i = 0; i < width; ++i) {
                    if (value.mantissa[i] != 0 && !(shift[i] > -460 && shift[i] < 380)) return false;
                }
            }
            if (!convert) continue;
            store(chain.free_mantissa + at, free.mantissa * power_of_two(free.exponent - exponent));
            store(chain.free_exponent + at, exponent);
            store(chain.past_exponent + at, exponent);
        }
    }
    chain.is_short = true;
    return true;
}

// The exponents of a row of the ring.
LANES_INLINE const double* exponents(const Chain& chain, std::size_t slot) {
    if (!chain.is_short) return chain.ring_exponent + slot * group;
    return slot < chain.slot ? chain.free_exponent : chain.past_exponent;
}

void lengthen(Chain& chain) {
    for (std::size_t at = 0; at < group; at += width) {
        for (std::size_t slot = 0; slot < chain.separation; ++slot) {
            double* mantissa = chain.ring_mantissa + slot * group + at;
            store_scaled(mantissa, chain.ring_exponent + slot * group + at,
                         normalised(load_scaled(mantissa, exponents(chain, slot) + at)));
        }
        double* mantissa = chain.free_mantissa + at;
        store_scaled(mantissa, chain.free_exponent + at,
                     normalised(load_scaled(mantissa, chain.free_exponent + at)));
    }
    chain.is_short = false;
}

// `count` iterations of one lap.
template <typename Hits>
LANES_INLINE void advance_short(Chain& chain, const Hits& hits, const double* products,
                                const double* half_norms, std::size_t first, std::size_t count) {
    const double stay = plain(chain.stay);
    for (std::size_t column = 0; column < group; column += together * width) {
        V available[together], scale[together];
        for (std::size_t v = 0; v < together; ++v) {
            const std::size_t at = column + v * width;
            available[v] = load(chain.free_mantissa + at);
            V exponent = load(chain.free_exponent + at);
            const V past = load(chain.past_exponent + at);
            if (chain.slot == 0) {
                // A new lap: free and ring have the same exponent up to here.
                const V next = splat(stay) * available[v] + load(chain.ring_mantissa + at);
                const V shift = exponent_of(next);
                exponent += shift;
                available[v] *= power_of_two(-shift);
                store(chain.free_exponent + at, exponent);
            }
            scale[v] = power_of_two(past - exponent);
        }
        double* ring = chain.ring_mantissa + chain.slot * group + column;
        for (std::size_t row = first; row < first + count; ++row, ring += group) {
            for (std::size_t v = 0; v < together; ++v) {
                const std::size_t at = row * group + column + v * width;
                available[v] = splat(stay) * available[v] + scale[v] * load(ring + v * width);
                store(ring + v * width, hits.factor(at, load(products + at), half_norms[row]) * available[v]);
            }
        }
        for (std::size_t v = 0; v < together; ++v) {
            store(chain.free_mantissa + column + v * width, available[v]);
        }
    }
    chain.slot += count;
    if (chain.slot < chain.separation) return;
    chain.slot = 0;
    for (std::size_t at = 0; at < group; ++at) chain.past_exponent[at] = chain.free_exponent[at];
}

template <typename Hits>
LANES_INLINE void advance_with(Chain& chain, const Hits& hits, const double* products,
                               const double* half_norms, std::size_t count) {
    if (chain.past_exponent == nullptr || chain.option_count == 0) {
        advance_long(chain, hits, products, half_norms, 0, count);
        return;
    }
    // Up to the end of the lap at a time.
    for (std::size_t done = 0, rows = 0; done < count; done += rows) {
        rows = chain.separation - chain.slot;
        if (rows > count - done) rows = count - done;
        const bool small = within_range(hits, products + done * group, half_norms + done, rows);
        if (small && (chain.is_short || (chain.slot == 0 && shorten(chain)))) {
            advance_short(chain, hits, products, half_norms, done, rows);
        } else {
            if (chain.is_short) lengthen(chain);
            advance_long(chain, hits, products, half_norms, done, rows);
        }
    }
}

void advance(Chain& chain, const double* products, const double* half_norms, std::size_t count) {
    if (chain.option_count == 1) {
        advance_with(chain, Plain<1>(chain), products, half_norms, count);
    } else {
        advance_with(chain, Plain<0>(chain), products, half_norms, count);
    }
}

void advance_truncated(Chain& chain, const Truncation& truncation, const double* products,
                       const double* half_norms, std::size_t count) {
    advance_with(chain, Truncated(chain, truncation), products, half_norms, count);
}

void finish(const Chain& chain, double* out) {
    for (std::size_t at = 0; at < group; at += width) {
        Scaled sum = constant(chain.outside);
        if (chain.stay.mantissa > 0) {
            sum =
                sum + constant(chain.stay) * load_scaled(chain.free_mantissa + at, chain.free_exponent + at);
        }
        for (std::size_t slot = 0; slot < chain.separation; ++slot) {
            sum = normalised(
                sum + load_scaled(chain.ring_mantissa + slot * group + at, exponents(chain, slot) + at));
        }
        store(out + at, logarithm(normalised(sum)));
    }
}

void advance_blocked(BlockedChain& chain, const double* products, const double* half_norms,
                     std::size_t count) {
    const Scaled stay = constant(chain.stay), leave = constant(chain.leave);
    const bool may_stay = chain.stay.mantissa > 0, may_leave = chain.leave.mantissa > 0;
    const Scaled release = constant(chain.powers[chain.window]);
    for (std::size_t row = 0; row < count; ++row) {
        const std::size_t offset = chain.offset;
        const Scaled decay = constant(chain.powers[offset]);
        for (std::size_t column = 0; column < group; column += width) {
            const std::size_t at = offset * group + column;
            // Before this iteration: available, or blocked since a sample in the last `window` iterations.
            Scaled available = load_scaled(chain.free_mantissa + column, chain.free_exponent + column);
            const Scaled front = load_scaled(chain.front_mantissa + column, chain.front_exponent + column);
            const Scaled suffix = load_scaled(chain.suffix_mantissa + at, chain.suffix_exponent + at);
            const Scaled blocked = offset == 0 ? suffix : (may_stay ? front + decay * suffix : front);
            // Sampled in this iteration.
            const V product = load(products + row * group + column);
            Scaled sampled = zero();
            if (may_leave) {
                sampled =
                    likelihood(chain.options, chain.option_count, product, half_norms[row]) * available +
                    leave * blocked;
            }
            sampled = normalised(sampled);
            // Available next: not sampled now, or the last sample just left the window.
            const Scaled leaving = load_scaled(chain.past_mantissa + at, chain.past_exponent + at);
            Scaled next = may_stay ? stay * available : zero();
            if (may_stay) next = next + release * leaving;
            store_scaled(chain.free_mantissa + column, chain.free_exponent + column, normalised(next));
            store_scaled(chain.now_mantissa + at, chain.now_exponent + at, sampled);
            store_scaled(chain.front_mantissa + column, chain.front_exponent + column,
                         normalised(offset == 0 || !may_stay ? sampled : stay * front + sampled));
        }
        if (++chain.offset < chain.window) continue;
        // The chunk is complete: it becomes the past, with its suffix sums.
        chain.offset = 0;
        for (std::size_t column = 0; column < group; column += width) {
            Scaled sum = zero();
            for (std::size_t a = chain.window; a-- > 0;) {
                const std::size_t at = a * group + column;
                const Scaled value = load_scaled(chain.now_mantissa + at, chain.now_exponent + at);
                store_scaled(chain.past_mantissa + at, chain.past_exponent + at, value);
                const std::size_t age = chain.window - 1 - a;
                if (age == 0) {
                    sum = value;
                } else if (may_stay) {
                    sum = normalised(sum + constant(chain.powers[age]) * value);
                }
                store_scaled(chain.suffix_mantissa + at, chain.suffix_exponent + at, sum);
            }
        }
    }
}

void finish_blocked(const BlockedChain& chain, double* out) {
    const bool may_stay = chain.stay.mantissa > 0;
    for (std::size_t column = 0; column < group; column += width) {
        const std::size_t at = chain.offset * group + column;
        const Scaled available = load_scaled(chain.free_mantissa + column, chain.free_exponent + column);
        const Scaled front = load_scaled(chain.front_mantissa + column, chain.front_exponent + column);
        const Scaled suffix = load_scaled(chain.suffix_mantissa + at, chain.suffix_exponent + at);
        const Scaled blocked = chain.offset == 0 ? suffix
                               : may_stay        ? front + constant(chain.powers[chain.offset]) * suffix
                                                 : front;
        store(out + column, logarithm(normalised(available + blocked)));
    }
}

void advance_joint(const JointChain& chain, const double* products, double half_norm, std::size_t slot,
                   const Factor* coupling) {
    // e^{j u - j^2 |c|^2/2}: j examples take part, which no others meet.
    for (std::size_t j = 1; j <= chain.examples; ++j) {
        const auto multiplicity = static_cast<double>(j);
        for (std::size_t column = 0; column < group; column += width) {
            const std::size_t at = (j - 1) * group + column;
            store_scaled(chain.ratio_mantissa + at, chain.ratio_exponent + at,
                         exponential(splat(multiplicity) * load(products + column) -
                                     splat(multiplicity * multiplicity * half_norm)));
        }
    }
    const std::uint32_t* entry = chain.families + slot * chain.stride;
    for (std::size_t barred = 0; barred < chain.examples; ++barred) {
        const std::size_t rest = chain.examples - barred;
        const Factor* const chances = chain.coefficients + rest * (rest + 1) / 2;
        for (std::size_t family = 0; family < chain.sizes[barred]; ++family) {
            // Up to 16 mantissas below 2, to powers that add up to 16 with them: no product reaches 2^65.
            Factor met{1.0, 0.0};
            for (std::size_t i = 0; i < barred; ++i, ++entry) {
                met.mantissa *= coupling[*entry].mantissa;
                met.exponent += coupling[*entry].exponent;
            }
            for (std::size_t column = 0; column < group; column += width) {
                // Whoever was barred in the slot is available now.
                std::size_t at = entry[0] * group + column;
                Scaled total = load_scaled(chain.mantissa + at, chain.exponent + at);
                for (std::size_t j = 1; j <= rest; ++j) {
                    at = entry[j] * group + column;
                    total = total + load_scaled(chain.mantissa + at, chain.exponent + at);
                }
                total = normalised(total);
                at = entry[0] * group + column;
                store_scaled(chain.mantissa + at, chain.exponent + at, constant(chances[0]) * total);
                Factor factor{1.0, 0.0};
                for (std::size_t j = 1; j <= rest; ++j) {
                    factor.mantissa *= met.mantissa;
                    factor.exponent += met.exponent;
                    const std::size_t ratio = (j - 1) * group + column;
                    at = entry[j] * group + column;
                    store_scaled(
                        chain.mantissa + at, chain.exponent + at,
                        (constant(chances[j]) * constant(factor)) *
                            (load_scaled(chain.ratio_mantissa + ratio, chain.ratio_exponent + ratio) *
                             total));
                }
            }
            entry += rest + 1;
        }
    }
}

// The short form. Let A be the weight of the state in which nobody is barred, q = Pr[stay out], k the number
// of examples; q^(k b) >= 2^-60.
//
// What underflows does not matter. A state with a barred example has no better prospects than 2^60 times
// those of the state with nobody barred: there all could stay out until they would be set free, with
// probability >= q^(k b), and meet nobody's column on the way. So an absolute error of 2^-1074 units in any
// weight, where A >= 2^-60 units, is a relative error below 2^-900 of the result.
//
// Nothing overflows. Take a history that ends in a state with l barred examples; let those stay out where
// they took part, at most b iterations ago, and since. That is a history of A, whose weight lacks at most l
// factors of likelihood ratios, 2^range each, and has at most q^(l b) more. There are at most 2^k ways to
// choose who it was. With range <= 800/k no weight exceeds 2^(800 + 60 + k) A.
bool advance_joint_short(const JointChain& chain, const double* products, double half_norm, std::size_t slot,
                         const double* coupling, const std::uint32_t* lag) {
    const auto all = static_cast<double>(chain.examples);
    for (std::size_t i = 0; i < group; ++i) {
        const double exponent = all * (__builtin_fabs(products[i]) + all * half_norm);
        if (!(polynomial::log2_e * exponent <= chain.range)) return false;
    }
    for (std::size_t column = 0; column < group; column += width) {
        const V old = load(chain.scale + column);
        for (std::size_t s = 0; s < chain.slots; ++s) {
            const std::size_t at = s * group + column;
            store(chain.relative + at, power_of_two(load(chain.slot_scale + at) - old));
        }
        for (std::size_t j = 1; j <= chain.examples; ++j) {
            const double m = static_cast<double>(j) * polynomial::log2_e;
            store(chain.ratio_mantissa + (j - 1) * group + column,
                  exponential2(polynomial::power_of_two, load(products + column) * splat(m) -
                                                             splat(m * static_cast<double>(j) * half_norm)));
        }
        V unit = splat(1);
        const std::uint32_t* entry = chain.families + slot * chain.stride;
        for (std::size_t barred = 0; barred < chain.examples; ++barred) {
            const std::size_t rest = chain.examples - barred;
            const double* const chances = chain.plain_chances + rest * (rest + 1) / 2;
            for (std::size_t family = 0; family < chain.sizes[barred]; ++family) {
                double met = 1;
                std::size_t latest = slot;
                for (std::size_t i = 0; i < barred; ++i, ++entry) {
                    met *= coupling[*entry];
                    if (lag[*entry] < lag[latest]) latest = *entry;
                }
                V total = load(chain.mantissa + entry[0] * group + column);
                for (std::size_t j = 1; j < rest; ++j) {
                    total += load(chain.mantissa + entry[j] * group + column);
                }
                total += load(chain.relative + latest * group + column) *
                         load(chain.mantissa + entry[rest] * group + column);
                if (barred == 0) {
                    const V shift = exponent_of(total);
                    unit = power_of_two(-shift);
                    store(chain.scale + column, old + shift);
                }
                total *= unit;
                store(chain.mantissa + entry[0] * group + column, splat(chances[0]) * total);
                double factor = 1;
                for (std::size_t j = 1; j <= rest; ++j) {
                    factor *= met;
                    store(chain.mantissa + entry[j] * group + column,
                          splat(chances[j] * factor) *
                              (load(chain.ratio_mantissa + (j - 1) * group + column) * total));
                }
                entry += rest + 1;
            }
        }
    }
    for (std::size_t s = 0; s < group; ++s) chain.slot_scale[slot * group + s] = chain.scale[s];
    return true;
}

void finish_joint(const JointChain& chain, std::size_t count, double* out) {
    for (std::size_t column = 0; column < group; column += width) {
        Scaled sum = zero();
        for (std::size_t row = 0; row < count; ++row) {
            const std::size_t at = row * group + column;
            sum = normalised(sum + load_scaled(chain.mantissa + at, chain.exponent + at));
        }
        store(out + column, logarithm(sum));
    }
}

void log_sum_exp(const double* rows, const double* half_norms, std::size_t count, double extra, double* out) {
    for (std::size_t column = 0; column < group; column += width) {
        Scaled sum = extra > 0 ? normalised({splat(extra), splat(0)}) : zero();
        for (std::size_t j = 0; j < count; ++j) {
            sum = normalised(sum + exponential(load(rows + j * group + column) - splat(half_norms[j])));
        }
        store(out + column, logarithm(sum));
    }
}

}  // namespace

namespace hockeystick::kernels {

extern const Table HOCKEYSTICK_PASTE(table_, HOCKEYSTICK_LANES);
const Table HOCKEYSTICK_PASTE(table_, HOCKEYSTICK_LANES) = {
    HOCKEYSTICK_STRING(HOCKEYSTICK_LANES),
    normals,
    public_counts,
    correlate,
    correlate_columns,
    convolve,
    transform,
    advance,
    advance_truncated,
    finish,
    advance_blocked,
    finish_blocked,
    advance_joint,
    advance_joint_short,
    finish_joint,
    log_sum_exp,
};

}  // namespace hockeystick::kernels
