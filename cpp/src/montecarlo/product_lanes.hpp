// Sliding products of 16 samples: sums, and Fourier transforms of blocks (docs/montecarlo/estimates.md, "The
// kernel").
//
// Included by kernels.cpp only; see numerics/lanes.hpp.
#pragma once

#include "montecarlo/kernels.hpp"
#include "numerics/lanes.hpp"

namespace {

using namespace hockeystick::kernels;

void correlate(const double* rows, const double* filters, std::size_t stride, std::size_t bands,
               std::size_t count, double* out) {
    for (std::size_t i = 0; i < count; ++i) {
        const double* const filter = filters + i * stride;
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

// By Fourier transform. The complex transform of sample s + i (sample s + 8), s < 8: a real filter keeps the
// two apart. Forward by decimation in frequency, back by decimation in time, so that nothing is ever
// reordered; depth first, so that all but the first levels stay in the nearest cache.

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
    butterfly(a, b, c, d);
    const Complex turned = b;
    b = d;
    d = turned;
}

// One butterfly of a level and its twiddle factors.
template <bool back>
LANES_INLINE void level(Complex& a, Complex& b, Complex& c, Complex& d, const double* w) {
    if constexpr (back) {
        b = times_conjugate(b, w);
        c = times_conjugate(c, w + 2);
        d = times_conjugate(d, w + 4);
        butterfly_back(a, b, c, d);
    } else {
        butterfly(a, b, c, d);
        b = times(b, w);
        c = times(c, w + 2);
        d = times(d, w + 4);
    }
}

// One level, a quarter of the rows apart.
template <bool back>
void pass(const double* in, double* out, std::size_t size, const double* twiddles) {
    const std::size_t quarter = size / 4 * group;
    for (std::size_t k = 0; k < quarter; k += group, twiddles += 6) {
        for (std::size_t column = 0; column < half_group; column += width) {
            const double* x = in + k + column;
            Complex a = load_complex(x), b = load_complex(x + quarter), c = load_complex(x + 2 * quarter),
                    d = load_complex(x + 3 * quarter);
            level<back>(a, b, c, d, twiddles);
            double* y = out + k + column;
            store_complex(y, a);
            store_complex(y + quarter, b);
            store_complex(y + 2 * quarter, c);
            store_complex(y + 3 * quarter, d);
        }
    }
}

// Forward, times the spectrum, back: for 4 or 8 rows all at once.
void convolve_four(double* x, const double* spectrum) {
    for (std::size_t column = 0; column < half_group; column += width) {
        double* y = x + column;
        Complex a = load_complex(y), b = load_complex(y + group), c = load_complex(y + 2 * group),
                d = load_complex(y + 3 * group);
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
    if (size == 4) return convolve_four(x, spectrum);
    if (size == 8) return convolve_eight(x, spectrum);
    const std::size_t quarter = size / 4;
    pass<false>(in, x, size, twiddles);
    for (std::size_t j = 0; j < 4; ++j) {
        double* const rows = x + j * quarter * group;
        convolve_level(rows, rows, quarter, twiddles + 6 * quarter, spectrum + 2 * j * quarter);
    }
    pass<true>(x, x, size, twiddles);
}

void convolve(const double* rows, std::size_t size, const double* twiddles, const double* spectrum,
              double* work) {
    convolve_level(rows, work, size, twiddles, spectrum);
}

void transform(std::size_t size, const double* twiddles, double* work) {
    if (size <= 4) {
        for (std::size_t column = 0; column < half_group; column += width) {
            Complex x[4] = {};
            for (std::size_t r = 0; r < size; ++r) x[r] = load_complex(work + r * group + column);
            if (size == 4) {
                butterfly(x[0], x[1], x[2], x[3]);
            } else {
                const Complex sum = x[0] + x[1];
                x[1] = x[0] - x[1];
                x[0] = sum;
            }
            for (std::size_t r = 0; r < size; ++r) store_complex(work + r * group + column, x[r]);
        }
        return;
    }
    const std::size_t quarter = size / 4;
    pass<false>(work, work, size, twiddles);
    for (std::size_t j = 0; j < 4; ++j) {
        transform(quarter, twiddles + 6 * quarter, work + j * quarter * group);
    }
}

}  // namespace
