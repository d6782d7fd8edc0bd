// Random numbers against known answers and exact laws; elementary functions against the C library.
#include "hockeystick/random.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "check.hpp"

using namespace hockeystick;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

bool near(double a, double b, double relative) { return std::abs(a - b) <= relative * std::abs(b); }

void known_answers() {
    // From the generator's authors (Random123, kat_vectors).
    using Words = std::array<std::uint32_t, 4>;
    CHECK(philox({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    constexpr std::uint32_t ones = 0xffffffff;
    CHECK(philox({ones, ones, ones, ones}, {ones, ones}) ==
          Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

void streams() {
    const BlockStream block{42, 7};
    Stream a(block, 3, Purpose::participation), again(block, 3, Purpose::participation);
    std::vector<std::uint64_t> first;
    for (int i = 0; i < 1000; ++i) {
        first.push_back(a.bits());
        CHECK(first.back() == again.bits());
        const auto w =
            philox({static_cast<std::uint32_t>(i / 2), block.lane_word(3, Purpose::participation), 7, 0},
                   block.key());
        CHECK(first.back() ==
              (i % 2 == 0 ? std::uint64_t{w[1]} << 32 | w[0] : std::uint64_t{w[3]} << 32 | w[2]));
    }
    // Another sample, purpose, block, direction or seed: nothing in common.
    const std::vector<Stream> others{{block, 4, Purpose::participation},
                                     {block, 3, Purpose::public_counts},
                                     {{42, 8}, 3, Purpose::participation},
                                     {{42, 7 + (std::uint64_t{1} << 32)}, 3, Purpose::participation},
                                     {{42, 7, true}, 3, Purpose::participation},
                                     {{43, 7}, 3, Purpose::participation},
                                     {{42 + (std::uint64_t{1} << 40), 7}, 3, Purpose::participation}};
    for (Stream other : others) {
        bool differs = true;
        for (int i = 0; i < 1000; ++i)
            differs = differs && other.bits() != first[static_cast<std::size_t>(i)];
        CHECK(differs);
    }
    double sum = 0, least = 1, largest = 0;
    for (int i = 0; i < 100000; ++i) {
        const double u = a.uniform();
        sum += u;
        least = std::min(least, u);
        largest = std::max(largest, u);
    }
    CHECK(least > 0 && largest <= 1 && least < 1e-4 && largest > 0.9999);
    CHECK(std::abs(sum / 100000 - 0.5) < 5 * std::sqrt(1.0 / 12 / 100000));
    std::array<int, 7> bins{};
    for (int i = 0; i < 70000; ++i) ++bins[a.below(7)];
    for (const int count : bins) CHECK(std::abs(count - 10000) < 500);
    CHECK(a.below(1) == 0);
}

void geometric() {
    Stream stream({1, 2}, 0, Purpose::participation);
    for (const double p : {0.9, 0.25, 1e-3}) {
        const int n = 100000;
        int none = 0;
        double sum = 0;
        for (int i = 0; i < n; ++i) {
            const auto k = hockeystick::geometric(stream, portable_log1p(-p), 1 << 20);
            none += k == 0 ? 1 : 0;
            sum += static_cast<double>(k);
        }
        CHECK(std::abs(none - n * p) < 5 * std::sqrt(n * p * (1 - p)));
        CHECK(std::abs(sum / n - (1 - p) / p) < 5 * std::sqrt(1 - p) / p / std::sqrt(n));
    }
    CHECK(hockeystick::geometric(stream, -infinity, 10) == 0);  // success at once
    CHECK(hockeystick::geometric(stream, 0.0, 10) == 10);       // never
    CHECK(hockeystick::geometric(stream, -1e-300, ~std::uint64_t{0}) == ~std::uint64_t{0});
}

// Chi-square of counts against the exact law, pooled to cells that expect at least 10.
void binomial_law(std::uint64_t n, double p, const BinomialTable& table = {}) {
    Stream stream({3, n}, 1, Purpose::public_counts);
    const int draws = 200000;
    std::vector<int> seen(n + 1, 0);
    for (int i = 0; i < draws; ++i) {
        const auto k = table.draw(stream, n, p);
        if (!CHECK(k <= n)) return;
        ++seen[k];
    }
    double statistic = 0, expected = 0, observed = 0, total = 0;
    int cells = 0;
    for (std::uint64_t k = 0; k <= n; ++k) {
        const double probability = binomial_probability(n, p, k);
        total += probability;
        expected += draws * probability;
        observed += seen[k];
        if (expected >= 10 || k == n) {
            statistic += expected > 0 ? (observed - expected) * (observed - expected) / expected : observed;
            expected = observed = 0;
            ++cells;
        }
    }
    CHECK(near(total, 1, 1e-9));
    CHECK(statistic < cells + 6 * std::sqrt(2.0 * cells) + 10);
}

// The table's steps against the probabilities, and the law of what is drawn with it.
void binomial_tables() {
    for (const double p : {0.0002, 0.03, 0.5}) {
        for (const std::uint64_t base : {100U, 1000U, 100000U}) {
            const BinomialTable table(base, p);
            const double mean = static_cast<double>(base) * p;
            CHECK(table.has(base) == (mean >= 10 && mean <= 65536));
            CHECK(!table.has(base - 1) && !table.has(base + table.largest_rest + 1));
            double worst = 0;
            std::uint64_t before = 0;
            for (std::size_t i = 0; i < table.cumulative.size(); ++i) {
                const double probability = static_cast<double>(table.cumulative[i] - before) * 0x1p-64;
                const double truth = binomial_probability(base, p, table.first + i);
                worst = std::max(worst, std::abs(probability - truth) - 1e-10 * truth);
                before = table.cumulative[i];
            }
            CHECK(worst < 0x1p-62);
            if (!table.has(base)) continue;
            for (const double more : {0.0, 0.3, 9.0, 40.0}) {
                binomial_law(base + static_cast<std::uint64_t>(more / p), p, table);
            }
            binomial_law(base - 1, p, table);
        }
    }
    CHECK(!BinomialTable().has(0) && BinomialTable().largest_rest == 0);
    // All of n: no guide entry or step beyond the ends.
    const BinomialTable few(20, 0.5);
    CHECK(few.first == 0 && few.cumulative.size() == 21 && few.guide.back() <= 20);
}

void binomials() {
    for (const double p : {0.0001, 0.3, 0.5, 0.98}) {
        for (const std::uint64_t n : {1U, 7U, 60U, 1000U, 50000U}) binomial_law(n, p);
    }
    Stream stream({3, 4}, 1, Purpose::public_counts);
    CHECK(binomial(stream, 0, 0.5) == 0 && binomial(stream, 9, 0) == 0 && binomial(stream, 9, 1) == 9);
    // Huge counts: mean and variance.
    const std::uint64_t n = std::uint64_t{1} << 50;
    const double p = 1e-6, mean = static_cast<double>(n) * p;
    double sum = 0, squares = 0;
    for (int i = 0; i < 20000; ++i) {
        const double z = (static_cast<double>(binomial(stream, n, p)) - mean) / std::sqrt(mean);
        sum += z;
        squares += z * z;
    }
    CHECK(std::abs(sum / 20000) < 5 / std::sqrt(20000.0));
    CHECK(std::abs(squares / 20000 - 1) < 5 * std::sqrt(2.0 / 20000));
    // Tails against their definition.
    for (const std::uint64_t k : {0U, 3U, 20U, 39U, 40U}) {
        double tail = 0;
        for (std::uint64_t j = k; j <= 40; ++j) tail += binomial_probability(40, 0.3, j);
        CHECK(near(binomial_tail(40, 0.3, k), tail, 1e-12));
    }
    CHECK(near(binomial_probability(10, 0.25, 3), 120 * std::pow(0.25, 3) * std::pow(0.75, 7), 1e-13));
    // mpmath, 40 digits.
    CHECK(near(binomial_probability(14745599, 1.2548e-4, 2048), 3.24973081275515e-7, 1e-11));
    CHECK(near(binomial_tail(14745599, 1.2548e-4, 2048), 3.22544038528836e-6, 1e-11));
}

void elementary_functions() {
    for (int i = -7000; i <= 7000; ++i) {
        const double x = i / 10.0 + 0.0123;
        CHECK(near(portable_exp(x), std::exp(x), 5e-16 + (x < -700 ? 1e-8 : 0)));
        CHECK(std::abs(portable_log(std::exp2(x)) - x * std::log(2.0)) <= 1e-15 * std::max(1.0, std::abs(x)));
        CHECK(near(portable_log(1 + x / 1e6), std::log(1 + x / 1e6), 1e-15));
        CHECK(near(portable_log1p(x / 1e3 < -1 ? 0.5 : x / 1e6), std::log1p(x / 1e3 < -1 ? 0.5 : x / 1e6),
                   1e-15));
    }
    CHECK(portable_exp(-infinity) == 0 && portable_exp(infinity) == infinity && portable_exp(0) == 1);
    CHECK(portable_log(0) == -infinity && portable_log(1) == 0 && portable_log(infinity) == infinity);
    CHECK(portable_log1p(-1) == -infinity && portable_log1p(1e-300) == 1e-300);
    CHECK(std::isnan(portable_log(-1)) && std::isnan(portable_exp(std::nan(""))));
    CHECK(std::isnan(portable_log(std::nan(""))) && std::isnan(portable_log1p(-2)));
}

}  // namespace

int main() {
    known_answers();
    streams();
    geometric();
    binomials();
    binomial_tables();
    elementary_functions();
    return check::summary();
}
