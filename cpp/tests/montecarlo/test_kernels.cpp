// The vector loops: against plain loops, and bit by bit the same for every instruction set.
#include "montecarlo/joint_states.hpp"
#include "montecarlo/kernels.hpp"
#include "montecarlo/mixture_forms.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <vector>

#include "check.hpp"
#include "hockeystick/likelihood.hpp"
#include "hockeystick/random.hpp"

using namespace hockeystick;
using kernels::group;

namespace {

Rows random_rows(std::size_t count, double scale, std::uint64_t seed) {
    Rows rows(count);
    Stream stream({seed, 0}, 0, Purpose::noise);
    for (std::size_t i = 0; i < count * group; ++i) rows[0][i] = scale * (2 * stream.uniform() - 1);
    return rows;
}

bool same(const Rows& a, const Rows& b) {
    return std::memcmp(a[0], b[0], a.count() * group * sizeof(double)) == 0;
}

std::vector<const kernels::Table*> versions() {
    std::vector<const kernels::Table*> found;
    for (const char* name : {"baseline", "avx2", "avx512"}) {
        if (const auto* table = kernels::find(name)) found.push_back(table);
    }
    return found;
}

std::vector<double> twiddles(std::size_t n) {
    std::vector<double> values;
    for (std::size_t size = n; size > 4; size /= 4) {
        for (std::size_t k = 0; k < size / 4; ++k) {
            for (std::size_t j = 1; j < 4; ++j) {
                const double angle =
                    -2 * std::numbers::pi * static_cast<double>(j * k) / static_cast<double>(size);
                values.push_back(std::cos(angle));
                values.push_back(std::sin(angle));
            }
        }
    }
    return values;
}

// Every loop of one version, on the same data.
std::vector<Rows> everything(const kernels::Table& table) {
    std::vector<Rows> results;
    Rows noise(40);
    table.normals(noise[0], 6, 40, {5, 6, 7}, {8, 9});
    results.push_back(std::move(noise));
    const Rows rows = random_rows(512, 2, 1);
    std::vector<double> filter(33), columns(33 * 100);
    Stream stream({2, 0}, 0, Purpose::noise);
    for (double& x : filter) x = stream.uniform();
    for (double& x : columns) x = stream.uniform();
    for (const std::size_t bands : {1, 2, 7, 8, 9, 33}) {
        Rows out(100), general(100);
        table.correlate(rows[0], filter.data(), 0, bands, 100, out[0]);
        table.correlate(rows[0], columns.data(), bands, bands, 100, general[0]);
        for (std::size_t i = 0; i < 100; ++i) {
            for (std::size_t s = 0; s < group; ++s) {
                double sum = 0, other = 0;
                for (std::size_t k = 0; k < bands; ++k) {
                    sum += filter[k] * rows[i + k][s];
                    other += columns[i * bands + k] * rows[i + k][s];
                }
                if (sum != out[i][s] || other != general[i][s]) CHECK(sum == out[i][s]);
            }
        }
        results.push_back(std::move(out));
        results.push_back(std::move(general));
    }
    for (const std::size_t n : {16, 32, 64, 128, 256, 512}) {
        const auto factors = twiddles(n);
        Rows work(n), result(n);
        for (std::size_t k = 0; k < 9; ++k) work[k][0] = filter[k];
        table.transform(n, factors.data(), work[0]);
        std::vector<double> spectrum;
        for (std::size_t k = 0; k < n; ++k) {
            spectrum.push_back(work[k][0] / static_cast<double>(n));
            spectrum.push_back(-work[k][group / 2] / static_cast<double>(n));
        }
        table.convolve(rows[0], n, factors.data(), spectrum.data(), result[0]);
        for (std::size_t i = 0; i < n; ++i) {
            for (std::size_t s = 0; s < group; ++s) {
                double sum = 0;
                for (std::size_t k = 0; k < 9; ++k) sum += filter[k] * rows[(i + k) % n][s];
                if (!(std::abs(sum - result[i][s]) < 1e-13)) CHECK(std::abs(sum - result[i][s]) < 1e-13);
            }
        }
        results.push_back(std::move(result));
    }
    // Chains: large and small likelihood ratios, zeros.
    const Rows products = random_rows(50, 900, 3), survival = random_rows(50, 1, 4);
    const std::vector<double> norms(50, 0.5);
    const kernels::Option options[] = {{{1.5, -3}, 1}, {{1.25, -900}, 2}};
    const kernels::Factor powers[] = {{1, 0}, {1.5, -1}, {1.125, -1}, {1.6875, -2}};
    for (int kind = 0; kind < 6; ++kind) {
        Rows free_m(1), free_e(1, -0x1p50), ring_m(3), ring_e(3, -0x1p50), out(1);
        std::fill_n(ring_m[0], group, 1.0);
        std::fill_n(ring_e[0], group, 0.0);
        const kernels::Factor stay = kind == 3 ? kernels::Factor{0, -0x1p50} : kernels::Factor{1.5, -1};
        kernels::Chain chain{3,         stay,      options,   kind == 4 ? 0U : kind == 1 ? 2U : 1U,
                             free_m[0], free_e[0], ring_m[0], ring_e[0],
                             {1.5, -4}, 0};
        if (kind == 2) {
            Rows kept(50);
            for (std::size_t i = 0; i < 50 * group; ++i)
                kept[0][i] = std::min(1.0, 1.5 * std::abs(survival[0][i]));
            table.advance_truncated(&chain, 1, {kept[0], 1, 2}, products[0], norms.data(), 50);
        } else if (kind < 5) {
            table.advance(&chain, 1, products[0], norms.data(), 50);
        }
        if (kind < 5) {
            table.finish(chain, out[0]);
        } else {
            Rows front_m(1), front_e(1, -0x1p50), past_m(3), past_e(3, -0x1p50), suffix_m(3),
                suffix_e(3, -0x1p50), now_m(3), now_e(3, -0x1p50);
            kernels::BlockedChain blocked{3,         powers[1], {1, -2},     powers,      options,
                                          2,         ring_m[0], ring_e[0],   front_m[0],  front_e[0],
                                          past_m[0], past_e[0], suffix_m[0], suffix_e[0], now_m[0],
                                          now_e[0],  0};
            table.advance_blocked(blocked, products[0], norms.data(), 50);
            table.finish_blocked(blocked, out[0]);
        }
        for (std::size_t s = 0; s < group; ++s) CHECK(std::isfinite(out[0][s]));
        results.push_back(std::move(out));
    }
    // Three examples with chains of their own, in both forms: the same ratio.
    const JointStates states({{5, 0.1, true}, 3}, 50);
    Rows forms[2];
    for (const bool is_short : {false, true}) {
        Rows mantissa(states.count), exponent(states.count), ratio_m(3), ratio_e(3), scale(1), slot_scale(5),
            relative(5), out(1);
        for (std::size_t i = 0; i < states.count; ++i) {
            const kernels::Factor start = factor(states.start[i]);
            const double plain =
                std::ldexp(start.mantissa, static_cast<int>(std::max(start.exponent, -2000.0)));
            std::fill_n(mantissa[i], group, is_short ? plain : start.mantissa);
            std::fill_n(exponent[i], group, start.exponent);
        }
        const kernels::JointChain chain{3,
                                        states.stride,
                                        states.families.data(),
                                        states.sizes.data(),
                                        states.coefficients.data(),
                                        mantissa[0],
                                        exponent[0],
                                        ratio_m[0],
                                        ratio_e[0],
                                        scale[0],
                                        slot_scale[0],
                                        relative[0],
                                        states.slots,
                                        states.plain_coefficients.data(),
                                        states.range};
        const std::vector<kernels::Factor> met(5, {1.5, -1});
        const std::vector<double> plain_met(5, 0.75);
        const Rows small = random_rows(50, 3, 7);
        for (std::uint32_t i = 0; i < 50; ++i) {
            if (!is_short) {
                table.advance_joint(chain, small[i], 0.5, i % 5, met.data());
                continue;
            }
            std::uint32_t lag[5];
            for (std::uint32_t slot = 0; slot < 5; ++slot) lag[slot] = (i + 4 - slot) % 5 + 1;
            CHECK(table.advance_joint_short(chain, small[i], 0.5, i % 5, plain_met.data(), lag));
        }
        if (is_short) {
            Rows far = random_rows(1, 1e4, 8);
            const std::uint32_t lag[5] = {5, 4, 3, 2, 1};
            CHECK(!table.advance_joint_short(chain, far[0], 0.5, 0, plain_met.data(), lag));
            // The states in which nobody, or one of the three, is barred.
            for (std::size_t i = 0; i < 6; ++i) {
                for (std::size_t s = 0; s < group; ++s)
                    mantissa[i][s] = std::ldexp(mantissa[i][s], static_cast<int>(scale[0][s]));
            }
        } else {
            table.finish_joint(chain, states.count, out[0]);
            for (std::size_t s = 0; s < group; ++s) CHECK(std::isfinite(out[0][s]));
            for (std::size_t i = 0; i < 6; ++i) {
                for (std::size_t s = 0; s < group; ++s)
                    mantissa[i][s] = std::ldexp(mantissa[i][s], static_cast<int>(exponent[i][s]));
            }
            results.push_back(std::move(out));
        }
        forms[is_short ? 1 : 0] = std::move(mantissa);
    }
    for (std::size_t i = 0; i < 6; ++i) {
        for (std::size_t s = 0; s < group; ++s) {
            const double expected = forms[0][i][s];
            if (!(std::abs(forms[1][i][s] - expected) <= 1e-12 * expected)) CHECK(forms[1][i][s] == expected);
        }
    }
    results.push_back(std::move(forms[1]));
    Rows sums(1);
    table.log_sum_exp(products[0], norms.data(), 50, 3, sums[0]);
    for (std::size_t s = 0; s < group; ++s) {
        double largest = 0, sum = 0;
        for (std::size_t j = 0; j < 50; ++j) largest = std::max(largest, products[j][s] - 0.5);
        for (std::size_t j = 0; j < 50; ++j) sum += std::exp(products[j][s] - 0.5 - largest);
        CHECK(std::abs(sums[0][s] - (largest + std::log(sum + 3 * std::exp(-largest)))) < 1e-12 * largest);
    }
    results.push_back(std::move(sums));
    return results;
}

void all_versions_agree() {
    const auto tables = versions();
    CHECK(!tables.empty() && kernels::find("none") == nullptr);
    const auto expected = everything(*tables[0]);
    for (const auto* table : tables) {
        const auto found = everything(*table);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            if (!CHECK(same(expected[i], found[i]))) std::printf("  %s, result %zu\n", table->name, i);
        }
    }
}

// The same chain in the long form and in the short one, which some iterations force back to the long.
double short_form(const kernels::Table& table, std::size_t separation, std::size_t options, double scale,
                  bool truncated, Rows& out, std::size_t& in_short_form) {
    constexpr std::size_t steps = 400;
    Rows products = random_rows(steps, scale, 5), survival = random_rows(steps, 1, 6);
    for (std::size_t i = 0; i < steps * group; ++i)
        survival[0][i] = std::min(1.0, 1.5 * std::abs(survival[0][i]));
    products[150][3] = 250;   // e^250 and e^500
    products[151][4] = -900;  // outside of what the short form takes
    products[290][5] = 900;
    std::vector<double> norms(steps);
    for (std::size_t i = 0; i < steps; ++i) norms[i] = 0.5 + 0.01 * static_cast<double>(i % 7);
    // Chains of different weights: one by one in the long form, and together.
    constexpr std::size_t number = 3;
    kernels::Option all[number][2];
    Rows results[2];
    for (const bool allowed : {false, true}) {
        std::vector<Rows> memory;
        std::vector<kernels::Chain> chains;
        for (std::size_t k = 0; k < number; ++k) {
            all[k][0] = {{1.5, -7 + 3 * static_cast<double>(k)}, 1};
            all[k][1] = {{1.25, -90 + 20 * static_cast<double>(k)}, 2};
            for (const std::size_t rows : {std::size_t{1}, std::size_t{1}, separation})
                memory.emplace_back(rows);
            memory.emplace_back(1, -0x1p50);
            memory.emplace_back(separation, -0x1p50);
            Rows *const own = &memory[5 * k], &ring_m = own[2], &ring_e = own[4];
            for (std::size_t s = 0; s < group; ++s) {
                ring_m[0][s] = 1.25;
                ring_e[0][s] = 0;
                ring_m[5][s] = 1.75;
                ring_e[5][s] = -20;
            }
            chains.push_back({separation,
                              {1.984375, -1},
                              all[k],
                              options,
                              own[0][0],
                              own[3][0],
                              ring_m[0],
                              ring_e[0],
                              {1.5, -40},
                              0,
                              allowed ? own[1][0] : nullptr});
        }
        const std::size_t together = allowed ? number : 1;
        for (std::size_t done = 0, count = 1; done < steps; done += count) {
            count = std::min(steps - done, done % 13 + 1);  // across the ends of laps, and one by one
            if (done == 91) count = std::min<std::size_t>(steps - done, 70);
            for (std::size_t k = 0; k < number; k += together) {
                if (truncated) {
                    table.advance_truncated(&chains[k], together, {survival[done], 1, 2}, products[done],
                                            norms.data() + done, count);
                } else {
                    table.advance(&chains[k], together, products[done], norms.data() + done, count);
                }
            }
            if (allowed && chains[0].is_short) ++in_short_form;
        }
        results[allowed] = Rows(number);
        for (std::size_t k = 0; k < number; ++k) table.finish(chains[k], results[allowed][k]);
    }
    double difference = 0;
    for (std::size_t s = 0; s < number * group; ++s) {
        const double truth = results[0][0][s];
        difference =
            std::max(difference, std::abs(results[1][0][s] - truth) / std::max(1.0, std::abs(truth)));
    }
    out = std::move(results[1]);
    return difference;
}

void short_and_long_form_agree() {
    for (const std::size_t separation : {8, 13, 31}) {
        for (const std::size_t options : {1, 2}) {
            for (const double scale : {3.0, 60.0, 250.0}) {
                for (const bool truncated : {false, true}) {
                    Rows first;
                    for (const auto* table : versions()) {
                        Rows out;
                        std::size_t in_short_form = 0;
                        CHECK(short_form(*table, separation, options, scale, truncated, out, in_short_form) <
                              1e-13);
                        CHECK(scale > 200 || in_short_form > 0);
                        if (table != versions()[0]) CHECK(same(first, out));
                        if (table == versions()[0]) first = std::move(out);
                    }
                }
            }
        }
    }
}

// The counts against the words of the streams, one by one.
void counts_come_from_the_counters() {
    const BlockStream block{7, 0x1122334455667788ULL};
    const double p = 1e-3;
    const BinomialTable binomials(50000, p);
    for (const auto* table : versions()) {
        for (const std::size_t window : {std::size_t{0}, std::size_t{3}}) {
            Rows available(1), barred(3), counts(40), survival(40);
            for (std::size_t s = 0; s < group; ++s) available[0][s] = 50400.0 + 37.0 * static_cast<double>(s);
            available[0][5] = 50000.0 + static_cast<double>(binomials.largest_rest);
            kernels::Counts state{static_cast<double>(binomials.base),
                                  static_cast<double>(binomials.largest_rest),
                                  static_cast<double>(binomials.first),
                                  binomials.log_none,
                                  binomials.odds,
                                  binomials.cumulative.data(),
                                  binomials.guide.data(),
                                  64 - BinomialTable::guide_bits,
                                  available[0],
                                  barred[0],
                                  window,
                                  0,
                                  55};
            Rows expected(1);
            std::copy_n(available[0], group, expected[0]);
            CHECK(table->public_counts(
                      state, 9, 40, {block.lane_word(16, Purpose::public_counts), 0x55667788U, 0x11223344U},
                      block.key(), counts[0], survival[0]) == 40);
            for (std::size_t i = 0; i < 40; ++i) {
                for (std::size_t s = 0; s < group; ++s) {
                    const auto w =
                        philox({static_cast<std::uint32_t>(9 + i),
                                block.lane_word(16 + s, Purpose::public_counts), 0x55667788U, 0x11223344U},
                               block.key());
                    const std::uint64_t word = std::uint64_t{w[0]} << 32 | w[1];
                    std::size_t k = 0;
                    while (binomials.cumulative[k] <= word) ++k;
                    const double rest = expected[0][s] - 50000;
                    double u = (w[2] + (w[3] + 0.5) * 0x1p-32) * 0x1p-32, probability = std::pow(1 - p, rest),
                           more = 0;
                    for (; u > probability; ++more) {
                        u -= probability;
                        probability *= p / (1 - p) * (rest - more) / (more + 1);
                    }
                    const double count = static_cast<double>(binomials.first + k) + more;
                    CHECK(counts[i][s] == count);
                    CHECK(survival[i][s] == (count < 55 ? 1.0 : 55 / (count + 1)));
                    if (window == 0) continue;
                    expected[0][s] += (i < window ? 0 : counts[i - window][s]) - count;
                }
            }
            // Fewer than the table is for, or more: nothing is done.
            available[0][7] = 49999;
            CHECK(table->public_counts(state, 0, 1, {0, 0, 0}, {0, 0}, counts[0], survival[0]) == 0);
            available[0][7] = 50001.0 + static_cast<double>(binomials.largest_rest);
            CHECK(table->public_counts(state, 0, 1, {0, 0, 0}, {0, 0}, counts[0], survival[0]) == 0);
        }
    }
}

// The vector generator draws from the streams that random.hpp describes.
void noise_comes_from_the_counters() {
    Rows noise(4);
    const BlockStream block{0x123456789abcdefULL, 0x1122334455667788ULL, true};
    kernels::table().normals(noise[0], 10, 4, {block.lane_word(32, Purpose::noise), 0x55667788U, 0x11223344U},
                             block.key());
    for (std::size_t s = 0; s < group; ++s) {
        for (std::size_t pair = 0; pair < 2; ++pair) {
            const auto word = static_cast<std::uint32_t>(5 + pair);
            const auto w = philox({word, block.lane_word(32 + s, Purpose::noise), 0x55667788U, 0x11223344U},
                                  block.key());
            const double u = (w[0] + (w[1] + 0.5) * 0x1p-32) * 0x1p-32;
            const double radius = std::sqrt(-2 * std::log(u));
            const double x = noise[2 * pair][s], y = noise[2 * pair + 1][s];
            CHECK(std::abs(std::hypot(x, y) - radius) < 1e-14 * radius);
            const double turn = ((w[2] + ((w[3] >> 2) + 0.5) * 0x1p-30) * 0x1p-32 - 0.5) / 4;
            const double sine = std::sin(2 * std::numbers::pi * turn);
            const double cosine = std::cos(2 * std::numbers::pi * turn) * (w[3] & 1 ? -1 : 1);
            CHECK(std::abs((w[3] & 2 ? x : y) - radius * sine) < 1e-14 * radius);
            CHECK(std::abs((w[3] & 2 ? y : x) - radius * cosine) < 1e-14 * radius);
        }
    }
}

void nan_stays_nan() {
    for (const auto* table : versions()) {
        for (const bool may_be_short : {false, true}) {
            for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
                Rows free_m(1), free_e(1, -0x1p50), ring_m(8), ring_e(8, -0x1p50), out(1), products(29),
                    past(1);
                std::fill_n(ring_m[0], group, 1.0);
                std::fill_n(ring_e[0], group, 0.0);
                products[4][3] = products[17][7] = bad;
                const kernels::Option option{{1.5, -3}, 1};
                const std::vector<double> norms(29, 0.5);
                kernels::Chain chain{8,
                                     {1.5, -1},
                                     &option,
                                     1,
                                     free_m[0],
                                     free_e[0],
                                     ring_m[0],
                                     ring_e[0],
                                     {0, -0x1p50},
                                     0,
                                     may_be_short ? past[0] : nullptr};
                table->advance(&chain, 1, products[0], norms.data(), 29);
                CHECK(chain.is_short == (may_be_short && std::isnan(bad)));
                table->finish(chain, out[0]);
                for (std::size_t s = 0; s < group; ++s) CHECK(std::isnan(out[0][s]) == (s == 3 || s == 7));
            }
        }
    }
}

}  // namespace

int main() {
    all_versions_agree();
    short_and_long_form_agree();
    counts_come_from_the_counters();
    noise_comes_from_the_counters();
    nan_stays_nan();
    return check::summary();
}
