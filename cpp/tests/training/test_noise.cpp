#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.hpp"
#include "hockeystick/chacha.hpp"
#include "hockeystick/noise.hpp"
#include "hockeystick/parallel.hpp"
#include "training/noise_kernels.hpp"

namespace hs = hockeystick;
using Form = hs::CorrelatedNoise::Form;

namespace {

constexpr hs::ChaChaKey key{1, 2, 3, 4, 5, 6, 7, 8};

hs::ChaChaKey counting_key() {
    hs::ChaChaKey words{};
    for (std::uint32_t i = 0; i < 8; ++i) words[i] = 0x03020100 + i * 0x04040404;
    return words;
}

// RFC 8439: Section 2.3.2, and Appendix A.1, vectors 1, 2 and 3.
void block_function() {
    const std::array<std::uint32_t, 16> example{
        0xe4e7f110, 0x15593bd1, 0x1fdd0f50, 0xc47120a3, 0xc7f4d1c7, 0x0368c033, 0x9aaa2204, 0x4e6cd4c3,
        0x466482d2, 0x09aa9f07, 0x05d7c214, 0xa2028bd9, 0xd19c12b5, 0xb94e16de, 0xe883d0cb, 0x4e3c50a2};
    CHECK(hs::chacha20(counting_key(), 1, {0x09000000, 0x4a000000, 0}) == example);
    const std::array<std::uint32_t, 16> first{
        0xade0b876, 0x903df1a0, 0xe56a5d40, 0x28bd8653, 0xb819d2bd, 0x1aed8da0, 0xccef36a8, 0xc70d778b,
        0x7c5941da, 0x8d485751, 0x3fe02477, 0x374ad8b8, 0xf4b8436a, 0x1ca11815, 0x69b687c3, 0x8665eeb2};
    CHECK(hs::chacha20({}, 0, {}) == first);
    const std::array<std::uint32_t, 16> second{
        0xbee7079f, 0x7a385155, 0x7c97ba98, 0x0d082d73, 0xa0290fcb, 0x6965e348, 0x3e53c612, 0xed7aee32,
        0x7621b729, 0x434ee69c, 0xb03371d5, 0xd539d874, 0x281fed31, 0x45fb0a51, 0x1f0ae1ac, 0x6f4d794b};
    CHECK(hs::chacha20({}, 1, {}) == second);
    const std::array<std::uint32_t, 16> third{
        0x2452eb3a, 0x9249f8ec, 0x8d829d9b, 0xddd4ceb1, 0xe8252083, 0x60818b01, 0xf38422b8, 0x5aaa49c9,
        0xbb00ca8e, 0xda3ba7b4, 0xc4b592d1, 0xfdf2732f, 0x4436274e, 0x2561b3c8, 0xebdd4aa6, 0xa0136c00};
    CHECK(hs::chacha20({0, 0, 0, 0, 0, 0, 0, 0x01000000}, 1, {}) == third);
}

// Box-Muller by the C library from the block function, by the layout that noise_kernels.cpp documents.
double normal(std::uint32_t step, std::uint64_t coordinate) {
    const std::uint64_t tile = coordinate / 128, row = coordinate % 128 / 16, q = coordinate % 16;
    const std::uint64_t block = tile * 16 + q;
    const auto words = hs::chacha20(key, static_cast<std::uint32_t>(block),
                                    {static_cast<std::uint32_t>(block >> 32), step, 0});
    const std::size_t g = row / 2 * 4;
    const double radius = std::sqrt(-2 * std::log((words[g + 1] + (words[g] + 0.5) * 0x1p-32) * 0x1p-32));
    // An angle within an eighth of a turn, reflected and swapped by the last two bits.
    const double turn = ((words[g + 3] + ((words[g + 2] >> 2) + 0.5) * 0x1p-30) * 0x1p-32 - 0.5) * 0.25;
    const double angle = 2 * 3.141592653589793 * turn;
    const double sine = std::sin(angle) * radius;
    const double cosine = std::cos(angle) * radius * ((words[g + 2] & 1) != 0 ? -1 : 1);
    const bool swap = (words[g + 2] & 2) != 0;
    return (row % 2 == 0) != swap ? cosine : sine;
}

// Z[step, start .. start + out.size()), cut out of whole tiles.
void keyed_normals(const hs::ChaChaKey& secret, std::uint32_t step, std::uint64_t start,
                   std::span<double> out) {
    constexpr std::uint64_t tile = hs::kernels::noise_tile;
    const std::uint64_t first = start / tile, last = (start + out.size() - 1) / tile;
    std::vector<double> row((last - first + 1) * tile);
    hs::kernels::noise_table().normals(secret.data(), step, first, last - first + 1, row.data());
    std::copy_n(row.begin() + static_cast<std::ptrdiff_t>(start - first * tile), out.size(), out.begin());
}

void normals_are_box_muller() {
    double worst = 0;
    for (const std::uint64_t start : {std::uint64_t{0}, std::uint64_t{77}, (std::uint64_t{1} << 35) - 130}) {
        for (const std::uint32_t step : {0U, 5U, 0xFFFFFFFFU}) {
            std::vector<double> z(700);
            keyed_normals(key, step, start, z);
            for (std::size_t i = 0; i < z.size(); ++i) {
                const double expected = normal(step, start + i);
                worst = std::max(worst, std::abs(z[i] - expected) / (1e-3 + std::abs(expected)));
            }
        }
    }
    CHECK(worst < 1e-12);
}

void every_instruction_set_gives_the_same_bits() {
    std::vector<double> expected(8 * 128), z(expected.size());
    std::vector<double> row(256), other(256), history(3 * 256);
    std::vector<float> singles(history.size());
    const double coefficients[] = {0.3, -0.25, 0.125};
    const std::size_t offsets[] = {256, 0, 512};
    const hs::kernels::NoiseTaps taps{1.5, 0.75, coefficients, offsets, 3};
    for (std::size_t i = 0; i < history.size(); ++i) {
        history[i] = normal(9, i);
        singles[i] = static_cast<float>(history[i]);
    }
    const auto& baseline = *hs::kernels::find_noise_table("baseline");
    for (const char* name : {"baseline", "avx2", "avx512"}) {
        const auto* table = hs::kernels::find_noise_table(name);
        std::printf("%s: %s\n", name, table != nullptr ? "tested" : "not on this machine");
        if (table == nullptr) continue;
        const std::uint64_t tile = (std::uint64_t{1} << 28) - 4;  // across a carry of the counter
        baseline.normals(key.data(), 3, tile, 8, expected.data());
        table->normals(key.data(), 3, tile, 8, z.data());
        CHECK(z == expected);
        for (const bool single : {false, true}) {
            std::copy_n(expected.begin(), row.size(), row.begin());
            other = row;
            if (single) {
                baseline.combine_single(taps, singles.data(), row.size(), row.data());
                table->combine_single(taps, singles.data(), row.size(), other.data());
            } else {
                baseline.combine_double(taps, history.data(), row.size(), row.data());
                table->combine_double(taps, history.data(), row.size(), other.data());
            }
            CHECK(row == other);
            for (std::size_t x = 0; x < row.size(); ++x) {
                double sum = 1.5 * expected[x];
                for (std::size_t k = 0; k < 3; ++k) {
                    const std::size_t at = offsets[k] + x;
                    sum -= coefficients[k] * (single ? static_cast<double>(singles[at]) : history[at]);
                }
                CHECK(std::abs(row[x] - sum / 0.75) <= 1e-14 * (1 + std::abs(sum)));
            }
        }
    }
}

// Columns of a matrix that is not Toeplitz, cut off at the last row.
std::vector<double> varied(std::size_t steps, std::size_t bands) {
    std::vector<double> columns(steps * bands);
    for (std::size_t j = 0; j < steps; ++j) {
        for (std::size_t k = 0; k < bands && j + k < steps; ++k) {
            const auto seed = static_cast<double>(j * bands + k);
            columns[j * bands + k] =
                (k == 0 ? 1.0 : 0.4) / static_cast<double>(k + 1) * (1 + 0.5 * std::sin(seed));
        }
    }
    return columns;
}

// max |C w - z| or |w - H z| over all rows: what a row leaves over in its own equation.
double residual(const hs::BandedMatrix& matrix, Form form, std::uint64_t start, std::size_t width,
                const std::vector<double>& rows) {
    std::vector<double> z(matrix.steps * width);
    for (std::size_t i = 0; i < matrix.steps; ++i) {
        keyed_normals(key, static_cast<std::uint32_t>(i), start, std::span(z).subspan(i * width, width));
    }
    double worst = 0;
    for (std::size_t i = 0; i < matrix.steps; ++i) {
        for (std::size_t x = 0; x < width; ++x) {
            double sum = 0;
            for (std::size_t k = 0; k < matrix.bands && k <= i; ++k) {
                const auto& source = form == Form::solve ? rows : z;
                sum += matrix.at(i, k) * source[(i - k) * width + x];
            }
            const auto& target = form == Form::solve ? z : rows;
            worst = std::max(worst, std::abs(sum - target[i * width + x]));
        }
    }
    return worst;
}

void rows_solve_their_equations() {
    constexpr std::size_t steps = 25;
    for (const std::size_t bands : {1, 2, 7, 25}) {
        const auto columns = varied(steps, bands);
        for (const bool toeplitz : {false, true}) {
            const hs::BandedMatrix matrix{std::span(columns).first(toeplitz ? bands : columns.size()), bands,
                                          steps};
            for (const Form form : {Form::solve, Form::multiply}) {
                for (const bool single : {false, true}) {
                    constexpr std::uint64_t start = 100, stop = 800;
                    hs::CorrelatedNoise noise(matrix, form, key, start, stop, single);
                    std::vector<double> rows(steps * noise.width());
                    noise.next(steps, 1.0, std::span(rows), false);
                    CHECK(residual(matrix, form, start, noise.width(), rows) < (single ? 1e-6 : 2e-14));
                    CHECK(noise.step() == steps);
                    CHECK_THROWS(std::invalid_argument, noise.next(1, 1.0, std::span<double>(), false));

                    // One row at a time, three threads, two shards, a stop half-way: the same bits.
                    hs::set_threads(3);
                    std::vector<double> pieces(rows.size(), 0.5);
                    for (const std::uint64_t cut : {std::uint64_t{101}, std::uint64_t{640}}) {
                        for (const bool first : {true, false}) {
                            const std::uint64_t from = first ? start : cut, to = first ? cut : stop;
                            hs::CorrelatedNoise part(matrix, form, key, from, to, single);
                            std::vector<double> row(part.width());
                            for (std::size_t i = 0; i < steps; ++i) {
                                if (i == 14) {
                                    std::vector<double> saved(part.history_rows() * part.width());
                                    part.save(saved);
                                    hs::CorrelatedNoise resumed(matrix, form, key, from, to, single);
                                    resumed.next(3, 1.0, std::span<double>(), false);  // into other slots
                                    resumed.restore(14, saved);
                                    std::vector<double> again(part.width());
                                    resumed.next(1, 1.0, std::span(again), false);
                                    part.next(1, 1.0, std::span(row), false);
                                    CHECK(again == row);
                                } else {
                                    part.next(1, 1.0, std::span(row), false);
                                }
                                std::copy(row.begin(), row.end(),
                                          pieces.begin() + static_cast<std::ptrdiff_t>(i * noise.width() +
                                                                                       (from - start)));
                            }
                        }
                        CHECK(pieces == rows);
                    }
                    hs::set_threads(0);
                }
            }
        }
    }
}

// What was prepared ahead is not used after a return to an earlier row.
void restored_backwards() {
    constexpr std::size_t steps = 25, bands = 12, width = 700;
    const auto columns = varied(steps, bands);
    hs::CorrelatedNoise noise({columns, bands, steps}, Form::solve, key, 0, width, false);
    std::vector<double> rows(steps * width), row(width), saved;
    for (std::size_t i = 0; i < steps; ++i) {
        if (i == 6) {
            saved.resize(noise.history_rows() * width);
            noise.save(saved);
        }
        noise.next(1, 1.0, std::span(rows).subspan(i * width, width), false);
        if (i == 10) break;
    }
    noise.restore(6, saved);
    for (std::size_t i = 6; i <= 10; ++i) {
        noise.next(1, 1.0, std::span(row), false);
        CHECK(std::equal(row.begin(), row.end(), rows.begin() + static_cast<std::ptrdiff_t>(i * width)));
    }
}

struct Enough {};
int asked = 0;

// Asked before each block, but not again at once: the first is made, and none of the others.
void stop_at_second() {
    if (++asked == 2) throw Enough{};
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

// Blocks that an interrupted row has reached do not take part in it twice.
void interrupted_between_blocks() {
    constexpr std::size_t steps = 4, width = 2000;
    const std::vector<double> coefficients{1.0, 0.5, 0.25};
    const hs::BandedMatrix matrix{coefficients, 3, steps};
    hs::CorrelatedNoise whole(matrix, Form::solve, key, 0, width, false),
        noise(matrix, Form::solve, key, 0, width, false);
    std::vector<double> rows(steps * width), rest(width);
    whole.next(steps, 1.0, std::span(rows), false);
    noise.next(2, 1.0, std::span<double>(), false);
    hs::set_threads(1);
    hs::set_interruption_hook(&stop_at_second);
    bool ended = false;
    try {
        noise.next(1, 1.0, std::span<double>(), false);
    } catch (const Enough&) {
        ended = true;
    }
    hs::set_interruption_hook(nullptr);
    hs::set_threads(0);
    CHECK(ended && noise.step() == 3);
    noise.next(1, 1.0, std::span(rest), false);
    CHECK(std::equal(rest.begin(), rest.end(), rows.begin() + 3 * width));
}

void scaling_and_adding() {
    const std::vector<double> coefficients{1.0, 0.5};
    const hs::BandedMatrix matrix{coefficients, 2, 4};
    hs::CorrelatedNoise a(matrix, Form::solve, key, 0, 300, false),
        b(matrix, Form::solve, key, 0, 300, false), c(matrix, Form::solve, key, 0, 300, false);
    std::vector<double> plain(1200), added(1200, 2.0);
    std::vector<float> single(1200, 7.0F);
    a.next(4, 1.0, std::span(plain), false);
    b.next(4, 0.25, std::span(added), true);
    c.next(4, 3.0, std::span(single), false);
    for (std::size_t i = 0; i < plain.size(); ++i) {
        CHECK(added[i] == 2.0 + 0.25 * plain[i]);
        CHECK(single[i] == static_cast<float>(3.0 * plain[i]));
    }
}

// C w = z for the dense C of the buffers, in any split into calls, and after a restore.
void buffers() {
    const std::vector<double> both{0.5, 0.25, 0.75, 0.96875};  // weights, decays
    const std::size_t steps = 9, width = 300;
    hs::CorrelatedNoise whole({both, 2, steps}, Form::buffers, key, 0, width, false);
    hs::CorrelatedNoise part({both, 2, steps}, Form::buffers, key, 0, width, false);
    std::vector<double> rows(steps * width), rest(rows.size()), saved(2 * width);
    whole.next(steps, 1.0, std::span(rows), false);
    part.next(4, 1.0, std::span(rest).first(4 * width), false);
    CHECK(part.history_rows() == 2);
    part.save(saved);
    hs::CorrelatedNoise other({both, 2, steps}, Form::buffers, key, 0, width, false);
    CHECK(other.history_rows() == 2);
    other.restore(4, saved);
    other.next(steps - 4, 1.0, std::span(rest).subspan(4 * width), false);
    CHECK(rows == rest);
    for (std::size_t i = 0; i < steps; ++i) {
        std::vector<double> z(width);
        keyed_normals(key, static_cast<std::uint32_t>(i), 0, z);
        for (std::size_t x = 0; x < width; ++x) {
            double sum = rows[i * width + x];
            for (std::size_t k = 1; k <= i; ++k) {
                const auto lag = static_cast<double>(k - 1);
                sum +=
                    (0.5 * std::pow(0.75, lag) + 0.25 * std::pow(0.96875, lag)) * rows[(i - k) * width + x];
            }
            CHECK(std::abs(sum - z[x]) <= 1e-13);
        }
    }
    const auto make = [](std::span<const double> columns) {
        return hs::CorrelatedNoise({columns, 2, 5}, Form::buffers, key, 0, 1, false).steps();
    };
    CHECK_THROWS(std::invalid_argument, make(std::vector<double>{0.5, 0.25, 0.75, 1.0}));
    CHECK_THROWS(std::invalid_argument, make(std::vector<double>{0.5, 0.25, 0.75}));
}

void bad_input() {
    const std::vector<double> good{1.0, 0.5}, zero{0.0, 0.5}, infinite{1.0, INFINITY};
    const auto make = [](std::span<const double> columns, std::size_t bands, std::size_t steps,
                         std::uint64_t start, std::uint64_t stop) {
        return hs::CorrelatedNoise({columns, bands, steps}, Form::solve, key, start, stop, false).steps();
    };
    CHECK(make(good, 2, 4, 0, 1) == 4);
    CHECK_THROWS(std::invalid_argument, make(zero, 2, 4, 0, 1));
    CHECK_THROWS(std::invalid_argument, make(infinite, 2, 4, 0, 1));
    CHECK_THROWS(std::invalid_argument, make(good, 2, 1, 0, 1));
    CHECK_THROWS(std::invalid_argument, make(good, 1, 4, 0, 1));
    CHECK_THROWS(std::invalid_argument, make(good, 2, 0, 0, 1));
    CHECK_THROWS(std::invalid_argument, make(good, 2, 4, 1, 1));
    CHECK_THROWS(std::invalid_argument, make(good, 2, std::size_t{1} << 33, 0, 1));
    // Products of these sizes overflowed to 0.
    const std::vector<double> wide((std::size_t{1} << 15) + 1, 1e-6);
    CHECK_THROWS(std::invalid_argument, make(wide, wide.size(), 40000, 0, std::uint64_t{1} << 53));
    const std::vector<double> one{1.0};
    hs::CorrelatedNoise many({one, 1, std::size_t{1} << 32}, Form::solve, key, 0, 77558837537, false);
    std::vector<double> few(16);
    CHECK_THROWS(std::invalid_argument, many.next(237841936, 1.0, std::span(few), false));
    hs::CorrelatedNoise noise({good, 2, 4}, Form::solve, key, 0, 10, false);
    std::vector<double> wrong(9);
    CHECK_THROWS(std::invalid_argument, noise.next(1, 1.0, std::span(wrong), false));
    CHECK_THROWS(std::invalid_argument, noise.restore(5, {}));
    CHECK_THROWS(std::invalid_argument, noise.restore(1, wrong));
}

}  // namespace

int main() {
    block_function();
    normals_are_box_muller();
    every_instruction_set_gives_the_same_bits();
    rows_solve_their_equations();
    restored_backwards();
    interrupted_between_blocks();
    scaling_and_adding();
    buffers();
    bad_input();
    return check::summary();
}
