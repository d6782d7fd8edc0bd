// Compiled once per instruction set (CMakeLists.txt), with HOCKEYSTICK_LANES as the name of the version.
#include "kernels.hpp"

#include "lanes.hpp"

#define HOCKEYSTICK_PASTE_(a, b) a##b
#define HOCKEYSTICK_PASTE(a, b) HOCKEYSTICK_PASTE_(a, b)
#define HOCKEYSTICK_STRING_(a) #a
#define HOCKEYSTICK_STRING(a) HOCKEYSTICK_STRING_(a)

namespace {

using hockeystick::kernels::BlockedChain;
using hockeystick::kernels::Chain;
using hockeystick::kernels::Factor;
using hockeystick::kernels::group;
using hockeystick::kernels::Option;
using hockeystick::kernels::Table;
using hockeystick::kernels::Truncation;

// ---- Noise --------------------------------------------------------------------------------------

void normals(double* rows, std::size_t first, std::size_t count, std::array<std::uint32_t, 3> counter,
             std::array<std::uint32_t, 2> key) {
    U lanes[group / width];
    for (std::size_t part = 0; part < group / width; ++part) {
        for (std::size_t i = 0; i < width; ++i) lanes[part][i] = counter[0] + part * width + i;
    }
    U keys[10][2];
    for (std::uint32_t round = 0; round < 10; ++round) {
        keys[round][0] = splat_bits(static_cast<std::uint32_t>(key[0] + round * 0x9E3779B9));
        keys[round][1] = splat_bits(static_cast<std::uint32_t>(key[1] + round * 0xBB67AE85));
    }
    // First the random bits of several rows, then their normals: the dependent operations of one row are
    // then close enough to those of the next for the processor to overlap them.
    constexpr std::size_t batch = 8, parts = group / width;
    U words[batch * parts][4];
    const U factor0 = splat_bits(0xD2511F53), factor1 = splat_bits(0xCD9E8D57);
    for (std::size_t row = 0; row < count; row += 2 * batch) {
        const std::size_t pairs = count - row < 2 * batch ? (count - row) / 2 : batch;
        for (std::size_t j = 0; j < pairs * parts; ++j) {
            const auto pair = static_cast<std::uint32_t>((first + row) / 2 + j / parts);
            U c0 = splat_bits(pair), c1 = lanes[j % parts], c2 = splat_bits(counter[1]),
              c3 = splat_bits(counter[2]);
#pragma GCC unroll 10
            for (std::size_t round = 0; round < 10; ++round) {
                // multiply_low reads the lower halves only, so what is in the upper ones does not matter.
                const U a = multiply_low(c0, factor0), b = multiply_low(c2, factor1);
                c0 = (b >> 32) ^ c1 ^ keys[round][0];
                c1 = b;
                c2 = (a >> 32) ^ c3 ^ keys[round][1];
                c3 = a;
            }
            const U low = splat_bits(0xFFFFFFFF);
            words[j][0] = c0 & low;
            words[j][1] = c1 & low;
            words[j][2] = c2 & low;
            words[j][3] = c3 & low;
        }
        for (std::size_t j = 0; j < pairs * parts; ++j) {
            V z0, z1;
            normal_pair(words[j][0], words[j][1], words[j][2], words[j][3], z0, z1);
            double* out = rows + (row + j / parts * 2) * group + j % parts * width;
            store(out, z0);
            store(out + group, z1);
        }
    }
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

// Forward, times the spectrum, back: for 2 or 4 rows all at once.
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

// `in` and x may be the same. The twiddle factors of a level of `size` rows take 6 size/4 numbers; those
// of the next level follow.
void convolve_level(const double* in, double* x, std::size_t size, const double* twiddles,
                    const double* spectrum) {
    if (size <= 4) {
        convolve_leaf(x, size, spectrum);
        return;
    }
    const std::size_t quarter = size / 4;
    forward_pass(in, x, size, twiddles);
    for (std::size_t j = 0; j < 4; ++j) {
        double* part = x + j * quarter * group;
        convolve_level(part, part, quarter, twiddles + 6 * quarter, spectrum + 2 * j * quarter);
    }
    backward_pass(x, size, twiddles);
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

struct Plain {
    LANES_INLINE Scaled hit(const Chain& chain, std::size_t, V product, double half_norm) const {
        return likelihood(chain.options, chain.option_count, product, half_norm);
    }
};

struct Truncated {
    Truncation truncation;
    LANES_INLINE Scaled hit(const Chain& chain, std::size_t at, V product, double half_norm) const {
        const V kept = load(truncation.survival + at);
        const I cut = kept < splat(1);
        const V m = select(cut, splat(truncation.truncated), splat(truncation.whole));
        Scaled survives = exponential(m * product - m * m * splat(half_norm));
        survives.mantissa *= kept;
        const Scaled dropped = {splat(1) - kept, select(cut, splat(0), splat(nothing))};
        return constant(chain.options[0].weight) * (survives + dropped);
    }
};

// Two vectors at a time: while one waits for its last result the other computes.
template <typename Hits>
LANES_INLINE void advance_with(Chain& chain, const Hits& hits, const double* products,
                               const double* half_norms, std::size_t count) {
    constexpr std::size_t together = 2;
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
        for (std::size_t row = 0; row < count; ++row) {
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
                             hits.hit(chain, row * group + at, product, half_norms[row]) * available[v]);
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

void advance(Chain& chain, const double* products, const double* half_norms, std::size_t count) {
    if (chain.option_count == 1) {
        // The same, with the loop over the options gone.
        struct Single {
            Option option;
            LANES_INLINE Scaled hit(const Chain&, std::size_t, V product, double half_norm) const {
                return likelihood(&option, 1, product, half_norm);
            }
        };
        advance_with(chain, Single{chain.options[0]}, products, half_norms, count);
    } else {
        advance_with(chain, Plain{}, products, half_norms, count);
    }
}

void advance_truncated(Chain& chain, const Truncation& truncation, const double* products,
                       const double* half_norms, std::size_t count) {
    advance_with(chain, Truncated{truncation}, products, half_norms, count);
}

void finish(const Chain& chain, double* out) {
    for (std::size_t at = 0; at < group; at += width) {
        Scaled sum = constant(chain.outside);
        if (chain.stay.mantissa > 0) {
            sum =
                sum + constant(chain.stay) * load_scaled(chain.free_mantissa + at, chain.free_exponent + at);
        }
        for (std::size_t slot = 0; slot < chain.separation; ++slot) {
            const std::size_t i = slot * group + at;
            sum = normalised(sum + load_scaled(chain.ring_mantissa + i, chain.ring_exponent + i));
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
    correlate,
    correlate_columns,
    convolve,
    transform,
    advance,
    advance_truncated,
    finish,
    advance_blocked,
    finish_blocked,
    log_sum_exp,
};

}  // namespace hockeystick::kernels
