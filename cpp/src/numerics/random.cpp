// Counter-based random numbers, the laws drawn from them, and functions that are the same on every machine.
#include "hockeystick/random.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "numerics/constants.hpp"
#include "numerics/philox.hpp"
#include "numerics/polynomials.hpp"

namespace hockeystick {
namespace {

constexpr double quiet_nan = std::numeric_limits<double>::quiet_NaN();

template <std::size_t size>
double horner(const double (&coefficients)[size], double x) noexcept {
    double sum = coefficients[size - 1];
    for (std::size_t k = size - 1; k-- > 0;) sum = sum * x + coefficients[k];
    return sum;
}

// `count` counters side by side, word by word.
template <std::size_t count>
void philox_rounds(std::uint32_t (&c)[4][count], std::array<std::uint32_t, 2> key) noexcept {
    for (int round = 0; round < 10; ++round) {
        for (std::size_t j = 0; j < count; ++j) {
            const std::uint64_t a = philox_factors[0] * c[0][j];
            const std::uint64_t b = philox_factors[1] * c[2][j];
            c[0][j] = static_cast<std::uint32_t>(b >> 32) ^ c[1][j] ^ key[0];
            c[1][j] = static_cast<std::uint32_t>(b);
            c[2][j] = static_cast<std::uint32_t>(a >> 32) ^ c[3][j] ^ key[1];
            c[3][j] = static_cast<std::uint32_t>(a);
        }
        key[0] += philox_steps[0];
        key[1] += philox_steps[1];
    }
}

// ln m! - ((m + 1/2) ln m - m + ln(2 pi)/2), for large m.
double stirling_series(double m) noexcept {
    const double square = m * m;
    return (1.0 / 12 - (1.0 / 360 - (1.0 / 1260 - 1.0 / 1680 / square) / square) / square) / m;
}

// Proof: ln k! - (k + 1/2) ln(k + 1) + (k + 1) - ln(2 pi)/2, relative to Stirling's formula for k + 1.
double stirling_tail(double k) noexcept {
    static constexpr double table[] = {0.08106146679532726, 0.0413406959554093,  0.02767792568499834,
                                       0.02079067210376509, 0.01664469118982119, 0.01387612882307075,
                                       0.01189670994589177, 0.01041126526197209, 0.009255462182712733,
                                       0.008330563433362871};
    if (k < 10) return table[static_cast<int>(k)];
    return stirling_series(k + 1);
}

// Sequential search from 0; p <= 1/2, n p < 10.
std::uint64_t binomial_inversion(Stream& stream, std::uint64_t n, double p) noexcept {
    const double ratio = p / (1 - p);
    const auto trials = static_cast<double>(n);
    const double none = portable_exp(trials * portable_log1p(-p));
    for (;;) {
        double u = stream.uniform(), probability = none;
        for (std::uint64_t k = 0; k <= n; ++k) {
            if (u <= probability) return k;
            u -= probability;
            const auto done = static_cast<double>(k);
            probability *= ratio * (trials - done) / (done + 1);
            if (done > 1000) break;  // u was in the last 1e-300, or lost in rounding: draw again
        }
    }
}

// The probabilities of Binom(n, p) relative to that of the mode, outwards until what is left does not count;
// first: what the first of them is of.
std::vector<double> binomial_terms(std::uint64_t n, double odds, std::uint64_t mode, std::uint64_t& first) {
    const auto trials = static_cast<double>(n);
    std::vector<double> below, above{1.0};
    for (auto k = static_cast<double>(mode); k > 0 && (below.empty() || below.back() > 1e-25); --k) {
        below.push_back((below.empty() ? 1.0 : below.back()) * k / ((trials - k + 1) * odds));
    }
    for (auto k = static_cast<double>(mode); k < trials && above.back() > 1e-25; ++k) {
        above.push_back(above.back() * odds * (trials - k) / (k + 1));
    }
    first = mode - below.size();
    std::vector<double> terms(below.rbegin(), below.rend());
    terms.insert(terms.end(), above.begin(), above.end());
    return terms;
}

// Algorithm BTRS; p <= 1/2, n p >= 10 (docs/montecarlo/estimates.md, "What is drawn").
std::uint64_t binomial_rejection(Stream& stream, std::uint64_t n, double p) noexcept {
    const auto trials = static_cast<double>(n);
    const double spread = std::sqrt(trials * p * (1 - p));
    const double b = 1.15 + 2.53 * spread;
    const double a = -0.0873 + 0.0248 * b + 0.01 * p;
    const double c = trials * p + 0.5;
    const double accept = 0.92 - 4.2 / b;
    for (;;) {
        const double u = stream.uniform() - 0.5;
        double v = stream.uniform();
        const double us = 0.5 - std::abs(u);
        const double k = std::floor((2 * a / us + b) * u + c);
        if (!(k >= 0 && k <= trials)) continue;
        if (us >= 0.07 && v <= accept) return static_cast<std::uint64_t>(k);
        const double alpha = (2.83 + 5.1 / b) * spread;
        v = portable_log(v * alpha / (a / (us * us) + b));
        // ln of the probability of k relative to that of the mode m, without large terms that cancel.
        const double mode = std::floor((trials + 1) * p);
        const double odds = p / (1 - p);
        const double bound = (mode + 0.5) * portable_log((mode + 1) / (odds * (trials - mode + 1))) +
                             (trials + 1) * portable_log1p((k - mode) / (trials - k + 1)) +
                             (k + 0.5) * portable_log(odds * (trials - k + 1) / (k + 1)) +
                             stirling_tail(mode) + stirling_tail(trials - mode) - stirling_tail(k) -
                             stirling_tail(trials - k);
        if (v <= bound) return static_cast<std::uint64_t>(k);
    }
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key) noexcept {
    std::uint32_t c[4][1] = {{counter[0]}, {counter[1]}, {counter[2]}, {counter[3]}};
    philox_rounds(c, key);
    return {c[0][0], c[1][0], c[2][0], c[3][0]};
}

Stream::Stream(const BlockStream& block, std::size_t lane, Purpose purpose) noexcept : key_(block.key()) {
    const auto words = block.counter(lane, purpose);
    counter_ = {0, words[0], words[1], words[2]};
}

std::uint64_t Stream::bits() noexcept {
    if (used_ == values_.size()) refill();
    return values_[used_++];
}

void Stream::refill() noexcept {
    std::uint32_t c[4][batch];
    for (std::uint32_t j = 0; j < batch; ++j) {
        c[0][j] = counter_[0] + j;  // a multiple of batch before: no carry
        for (std::size_t word = 1; word < 4; ++word) c[word][j] = counter_[word];
    }
    philox_rounds(c, key_);
    for (std::size_t j = 0; j < batch; ++j) {
        values_[2 * j] = std::uint64_t{c[1][j]} << 32 | c[0][j];
        values_[2 * j + 1] = std::uint64_t{c[3][j]} << 32 | c[2][j];
    }
    // 2^32 counters are 64 GB of numbers for one sample; beyond, count in the free bits of the next word.
    counter_[0] += batch;
    if (counter_[0] == 0) counter_[1] += 1U << 25;
    used_ = 0;
}

double Stream::uniform() noexcept {
    const std::uint64_t value = bits();
    const auto high = static_cast<double>(value >> 32);
    const auto low = static_cast<double>(value & 0xFFFFFFFF) + 0.5;
    return (high + low * 0x1p-32) * 0x1p-32;
}

std::uint64_t Stream::below(std::uint64_t n) noexcept {
    // The upper half of the 128-bit product of bits() and n.
    const std::uint64_t value = bits();
    const std::uint64_t low = (value & 0xFFFFFFFF) * (n & 0xFFFFFFFF);
    const std::uint64_t cross1 = (value >> 32) * (n & 0xFFFFFFFF);
    const std::uint64_t cross2 = (value & 0xFFFFFFFF) * (n >> 32);
    const std::uint64_t carry = (low >> 32) + (cross1 & 0xFFFFFFFF) + (cross2 & 0xFFFFFFFF);
    return (value >> 32) * (n >> 32) + (cross1 >> 32) + (cross2 >> 32) + (carry >> 32);
}

std::uint64_t geometric(Stream& stream, double log_failure, std::uint64_t limit) noexcept {
    if (log_failure == 0) return limit;  // no success, ever
    const double failures = std::floor(portable_log(stream.uniform()) / log_failure);
    return failures < static_cast<double>(limit) ? static_cast<std::uint64_t>(failures) : limit;
}

std::uint64_t binomial(Stream& stream, std::uint64_t n, double p) noexcept {
    if (n == 0 || !(p > 0)) return 0;
    if (p >= 1) return n;
    if (p > 0.5) return n - binomial(stream, n, 1 - p);
    return static_cast<double>(n) * p < 10 ? binomial_inversion(stream, n, p)
                                           : binomial_rejection(stream, n, p);
}

BinomialTable::BinomialTable(std::uint64_t trials, double p) {
    const double mean = static_cast<double>(trials) * p;
    if (!(mean >= 10 && mean <= 65536 && p <= 0.5)) return;
    base = trials;
    odds = p / (1 - p);
    const auto mode = static_cast<std::uint64_t>(mean);
    const std::vector<double> terms = binomial_terms(base, odds, mode, first);
    // Sums from both ends, so that the small ones keep their relative error.
    std::vector<double> left(terms.size()), right(terms.size() + 1, 0.0);
    double sum = 0;
    for (std::size_t i = 0; i < terms.size(); ++i) left[i] = sum += terms[i];
    for (std::size_t i = terms.size(); i-- > 0;) right[i] = right[i + 1] + terms[i];
    for (std::size_t i = 0; i + 1 < terms.size(); ++i) {
        // Of 2^64: from below, or what is left above.
        const bool lower = left[i] < right[i + 1];
        const auto part = static_cast<std::uint64_t>((lower ? left[i] : right[i + 1]) / sum * 0x1p64);
        cumulative.push_back(lower ? part : std::uint64_t{0} - std::max<std::uint64_t>(part, 1));
    }
    cumulative.push_back(std::numeric_limits<std::uint64_t>::max());
    std::uint32_t at = 0;
    for (std::uint64_t cell = 0; cell < std::uint64_t{1} << guide_bits; ++cell) {
        while (cumulative[at] <= cell << (64 - guide_bits)) ++at;
        guide.push_back(at);
    }
    log_none = portable_log1p(-p);
    largest_rest = static_cast<std::uint64_t>(30 / p);
}

std::uint64_t BinomialTable::draw(Stream& stream, std::uint64_t n, double p) const noexcept {
    if (!has(n)) return binomial(stream, n, p);
    // Below the last entry of the table, which stands for 2^64.
    const std::uint64_t word = std::min(stream.bits(), std::numeric_limits<std::uint64_t>::max() - 1);
    std::size_t at = guide[word >> (64 - guide_bits)];
    while (cumulative[at] <= word) ++at;
    return first + at + binomial(stream, n - base, p);
}

// Loader's saddle-point form: the exponent is n times the divergence of k/n from p, not a difference of
// logarithms of factorials.
double binomial_probability(std::uint64_t n, double p, std::uint64_t k) noexcept {
    const auto trials = static_cast<double>(n), successes = static_cast<double>(k), rest = trials - successes;
    if (k == 0) return portable_exp(trials * portable_log1p(-p));
    if (k == n) return portable_exp(trials * portable_log(p));
    // ln m! relative to Stirling's formula for m.
    const auto correction = [](double m) {
        if (m < 16) {
            double factorial = 1;
            for (double i = 2; i <= m; ++i) factorial *= i;
            return portable_log(factorial) -
                   (0.91893853320467274 + (m + 0.5) * portable_log(m) - m);  // ln(2 pi)/2
        }
        return stirling_series(m);
    };
    const double excess = successes - trials * p;
    const double divergence = successes * portable_log1p(excess / (trials * p)) +
                              rest * portable_log1p(-excess / (trials * (1 - p)));
    const double exponent = correction(trials) - correction(successes) - correction(rest) - divergence;
    return std::sqrt(trials / (6.2831853071795865 * successes * rest)) * portable_exp(exponent);
}

double binomial_tail(std::uint64_t n, double p, std::uint64_t k) noexcept {
    const auto trials = static_cast<double>(n);
    const double odds = p / (1 - p), mean = trials * p;
    double term = 1, sum = 0;
    for (auto j = static_cast<double>(k); j <= trials; ++j) {
        sum += term;
        term *= odds * (trials - j) / (j + 1);
        if (j > mean && term < 1e-17 * sum) break;
    }
    return std::min(1.0, sum * binomial_probability(n, p, k));
}

double portable_exp(double x) noexcept {
    if (!(x < 710)) return x > 0 ? infinity : quiet_nan;
    if (x < -746) return 0;
    const double k = std::floor(x * polynomial::log2_e + 0.5);
    const double r = (x - k * polynomial::ln2_high) - k * polynomial::ln2_low;
    return std::ldexp(horner(polynomial::exponential, r), static_cast<int>(k));
}

double portable_log(double x) noexcept {
    if (!(x > 0)) return x == 0 ? -infinity : quiet_nan;
    if (x == infinity) return x;
    int exponent = 0;
    double fraction = std::frexp(x, &exponent);  // exact
    if (fraction < 0x1.6a09e667f3bcdp-1) {
        fraction *= 2;
        --exponent;
    }
    const double s = (fraction - 1) / (fraction + 1), z = s * s;
    const double k = exponent;
    const double small = 2 * s * z * horner(polynomial::logarithm, z) + k * polynomial::ln2_low;
    return k * polynomial::ln2_high + (2 * s + small);
}

double portable_log1p(double x) noexcept {
    const double y = 1 + x;
    if (y == 1) return x;
    if (!(y > 0) || y == infinity) return portable_log(y);
    // The rounding of 1 + x cancels (Kahan).
    return portable_log(y) * (x / (y - 1));
}

}  // namespace hockeystick
