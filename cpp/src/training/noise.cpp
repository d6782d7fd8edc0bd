// Correlated noise, row by row in blocks of coordinates (docs/matrix/noise.md, "How exact the rows are").
#include "hockeystick/noise.hpp"

#include <cmath>
#include <optional>

#include "hockeystick/parallel.hpp"
#include "numerics/instruction_set.hpp"
#include "numerics/require.hpp"
#include "training/noise_kernels.hpp"

namespace hockeystick {

namespace kernels {

extern const NoiseTable noise_table_baseline, noise_table_avx2, noise_table_avx512;

const NoiseTable* find_noise_table(const char* name) {
    return find_version<NoiseTable>(name, {HOCKEYSTICK_BUILT(noise_table)});
}

const NoiseTable& noise_table() {
    static const NoiseTable& chosen = *find_noise_table(instruction_set());
    return chosen;
}

}  // namespace kernels

namespace {

using kernels::noise_tile;

// Coordinates that are worked on together: a row of them is one page of doubles, and the rows of 32 bands
// fit the second-level cache: speed.
constexpr std::size_t block_tiles = 4, block_size = block_tiles * noise_tile;
// Speed: rows one page apart would compete for the same few lines of the first-level cache.
constexpr std::size_t slot_size = block_size + 32;
// Speed: steps prepared at a time.
constexpr std::size_t most_rows = 16;
// Limit: numbers that are kept, of which no product of sizes overflows; no machine has that memory.
constexpr std::size_t most_kept = std::size_t{1} << 44;

void check_bands(const BandedMatrix& matrix, bool solve) {
    require(matrix.bands <= matrix.steps, "bands must be in [1, steps]");
    require(matrix.columns.size() == matrix.bands || matrix.columns.size() / matrix.bands == matrix.steps,
            "columns must be bands, or steps times bands, numbers");
    for (std::size_t j = 0; solve && j < matrix.columns.size(); j += matrix.bands) {
        require(matrix.columns[j] > 0.0, "the diagonal must be positive");
    }
}

void check_buffers(const BandedMatrix& matrix) {
    require(matrix.columns.size() == 2 * matrix.bands, "each buffer must have a weight and a decay");
    for (const double decay : matrix.columns.subspan(matrix.bands)) {
        require(decay >= 0.0 && decay < 1.0, "decays must be in [0, 1)");
    }
}

// Speed: where a single row would need more kept rows than this, the next few rows are prepared together.
constexpr std::size_t many_slots = 8, most_ahead = 4;

struct Taps {
    double gain, divisor;
    std::vector<double> coefficients;
    std::vector<std::size_t> offsets;

    kernels::NoiseTaps view() const {
        return {gain, divisor, coefficients.data(), offsets.data(), coefficients.size()};
    }
};

// What rows i - oldest .. i - newest add to row i, oldest first: in the order in which they lie in memory.
Taps taps_of(const BandedMatrix& matrix, double sign, std::size_t i, std::size_t oldest, std::size_t newest,
             std::size_t slots) {
    Taps taps{1.0, 1.0, {}, {}};
    for (std::size_t k = oldest; k >= newest; --k) {
        taps.coefficients.push_back(sign * matrix.at(i, k));
        taps.offsets.push_back((i - k) % slots * slot_size);
    }
    return taps;
}

Taps taps_of(std::span<const double> weights) {
    Taps taps{1.0, 1.0, {weights.begin(), weights.end()}, {}};
    for (std::size_t s = 0; s < weights.size(); ++s) taps.offsets.push_back(s * slot_size);
    return taps;
}

void combine(const kernels::NoiseTaps& taps, const double* history, std::size_t count, double* row) {
    kernels::noise_table().combine_double(taps, history, count, row);
}

void combine(const kernels::NoiseTaps& taps, const float* history, std::size_t count, double* row) {
    kernels::noise_table().combine_single(taps, history, count, row);
}

}  // namespace

// One row: whether it is in a window of prepared rows; what prepares the window, if it is the first of it;
// its place there; and what is left to do.
struct CorrelatedNoise::Row {
    bool prepared = false;
    std::vector<Taps> window;
    std::size_t place = 0;
    Taps rest;
};

CorrelatedNoise::CorrelatedNoise(const BandedMatrix& matrix, Form form, const ChaChaKey& key,
                                 std::uint64_t start, std::uint64_t stop, bool single)
    : matrix_(matrix), form_(form), key_(key), start_(start), stop_(stop) {
    require(matrix.steps >= 1 && matrix.steps <= std::size_t{1} << 32, "steps must be in [1, 2^32]");
    require(matrix.bands >= 1, "bands must be positive");
    for (const double entry : matrix.columns) require(std::isfinite(entry), "entries must be finite");
    form == Form::buffers ? check_buffers(matrix) : check_bands(matrix, form == Form::solve);
    require(start < stop && stop <= std::uint64_t{1} << 53, "coordinates must be a range within [0, 2^53]");
    first_tile_ = start / noise_tile;
    tiles_ = static_cast<std::size_t>((stop + noise_tile - 1) / noise_tile - first_tile_);
    blocks_ = (tiles_ + block_tiles - 1) / block_tiles;
    slots_ = form == Form::buffers ? matrix.bands : matrix.bands - 1;
    // For H, a row needs what is not kept yet: Z of its window.
    ahead_ = form == Form::solve && slots_ >= many_slots ? most_ahead : 0;
    require(slots_ + ahead_ <= most_kept / (blocks_ * slot_size),
            "kept rows times coordinates must be at most 2^44");
    pending_.resize(blocks_ * ahead_ * slot_size);
    if (single) {
        history_ = std::vector<float>(blocks_ * slots_ * slot_size);
    } else {
        history_ = std::vector<double>(blocks_ * slots_ * slot_size);
    }
}

std::size_t CorrelatedNoise::state_bytes() const noexcept {
    const std::size_t kept = slots_ * (single() ? sizeof(float) : sizeof(double));
    return blocks_ * slot_size * (kept + ahead_ * sizeof(double));
}

std::size_t CorrelatedNoise::block_width(std::size_t block) const noexcept {
    return std::min(block_tiles, tiles_ - block * block_tiles) * noise_tile;
}

template <typename Out>
void CorrelatedNoise::next(std::size_t count, double scale, std::span<Out> out, bool add) {
    const std::lock_guard lock(mutex_);
    require(count <= steps() - step_, "there are not that many steps left");
    // A product with count may overflow.
    require(out.empty() || (out.size() % width() == 0 && out.size() / width() == count),
            "out must have width() numbers for each row");
    settle();
    // Half of a sum without its noise must not be left behind.
    std::optional<Uninterrupted> whole;
    if (add) whole.emplace();
    while (count > 0) {
        const std::size_t rows = std::min(count, most_rows);
        Out* const target = out.empty() ? nullptr : out.data();
        std::visit([&](auto& history) { advance(history, rows, scale, target, add); }, history_);
        if (!out.empty()) out = out.subspan(rows * width());
        count -= rows;
    }
}

// Rows that an interruption left to some of the blocks are made up for, without output.
void CorrelatedNoise::settle() {
    if (underway_ == 0) return;
    std::visit([&](auto& history) { advance(history, underway_, 1.0, static_cast<double*>(nullptr), false); },
               history_);
}

// What rows `now`, ..., now + count - 1 take. `window` and `filled` become those after them.
std::vector<CorrelatedNoise::Row> CorrelatedNoise::plan(std::size_t now, std::size_t count,
                                                        std::size_t& window, std::size_t& filled) const {
    const bool solve = form_ == Form::solve;
    std::vector<Row> rows(count);
    for (std::size_t i = now; i < now + count; ++i) {
        Row& row = rows[i - now];
        if (form_ == Form::buffers) {
            row.rest = taps_of(matrix_.columns.first(slots_));
            continue;
        }
        const bool started = filled > 0 && i < window + filled;
        // Rows of one call find the kept rows in the cache anyway.
        row.prepared = started || (ahead_ > 0 && count == 1);
        if (row.prepared && !started) {
            window = i;
            filled = std::min(ahead_, steps() - i);
            for (std::size_t s = 0; s < filled; ++s) {
                row.window.push_back(taps_of(matrix_, 1.0, i + s, std::min(i + s, slots_), s + 1, slots_));
            }
        }
        row.place = i - window;
        const std::size_t oldest = row.prepared ? row.place : std::min(i, slots_);
        row.rest = taps_of(matrix_, solve ? 1.0 : -1.0, i, oldest, 1, slots_);
        (solve ? row.rest.divisor : row.rest.gain) = matrix_.at(i, 0);
    }
    return rows;
}

// Rows now, now + 1, ... of one block, each handed to use(number, row).
template <typename State, typename Use>
void CorrelatedNoise::make(std::span<const Row> rows, std::size_t now, std::size_t block, State* past,
                           const Use& use) {
    alignas(64) double row[block_size];
    alignas(64) double normals[block_size];
    const bool solve = form_ == Form::solve, buffered = form_ == Form::buffers;
    const std::size_t length = block_width(block);
    const auto draw = [&](std::size_t step, double* target) {
        kernels::noise_table().normals(key_.data(), static_cast<std::uint32_t>(step),
                                       first_tile_ + block * block_tiles, length / noise_tile, target);
    };
    for (std::size_t r = 0; r < rows.size(); ++r) {
        if (rows[r].prepared) {
            // The same operations in the same order as without a window, so the same bits.
            double* const prepared = pending_.data() + block * ahead_ * slot_size;
            for (std::size_t s = 0; s < rows[r].window.size(); ++s) {
                draw(now + r + s, prepared + s * slot_size);
                combine(rows[r].window[s].view(), past, length, prepared + s * slot_size);
            }
            std::copy_n(prepared + rows[r].place * slot_size, length, row);
        } else {
            draw(now + r, row);
        }
        // What is kept, in the precision in which it is kept: z_i, or the row itself.
        if (form_ == Form::multiply) {
            for (std::size_t x = 0; x < length; ++x) row[x] = normals[x] = static_cast<State>(row[x]);
        }
        combine(rows[r].rest.view(), past, length, row);
        if (solve) {
            for (std::size_t x = 0; x < length; ++x) row[x] = static_cast<State>(row[x]);
        }
        for (std::size_t s = 0; buffered && s < slots_; ++s) {
            const double decay = matrix_.columns[slots_ + s];
            State* const buffer = past + s * slot_size;
            for (std::size_t x = 0; x < length; ++x) {
                buffer[x] = static_cast<State>(decay * static_cast<double>(buffer[x]) + row[x]);
            }
        }
        if (slots_ > 0 && !buffered) {
            // Last: the slot still held the oldest row.
            State* const slot = past + (now + r) % slots_ * slot_size;
            const double* const kept = solve ? row : normals;
            for (std::size_t x = 0; x < length; ++x) slot[x] = static_cast<State>(kept[x]);
        }
        use(r, row);
    }
}

template <typename Out, typename State>
void CorrelatedNoise::advance(std::vector<State>& history, std::size_t count, double scale, Out* out,
                              bool add) {
    const std::size_t now = step_ - underway_, size = width();
    std::size_t window = window_, filled = filled_;
    const std::vector<Row> rows = plan(now, count, window, filled);
    if (underway_ == 0) {
        ahead_of_others_.assign(blocks_, 0);
        underway_ = count;
        step_ += count;
    }
    parallel_for(blocks_, [&](std::size_t block) {
        if (ahead_of_others_[block] != 0) return;
        const std::uint64_t first = (first_tile_ + block * block_tiles) * noise_tile;
        const auto left = static_cast<std::size_t>(std::max(first, start_) - first);
        const auto right = static_cast<std::size_t>(std::min(first + block_width(block), stop_) - first);
        const auto write = [&](std::size_t r, const double* row) {
            if (out == nullptr) return;
            Out* const target = out + r * size + (first + left - start_);
            const double factor = scale;  // which no store to the target changes
            if (add) {
                for (std::size_t x = left; x < right; ++x) {
                    target[x - left] =
                        static_cast<Out>(static_cast<double>(target[x - left]) + factor * row[x]);
                }
            } else {
                for (std::size_t x = left; x < right; ++x) {
                    target[x - left] = static_cast<Out>(factor * row[x]);
                }
            }
        };
        make(std::span(rows), now, block, history.data() + block * slots_ * slot_size, write);
        ahead_of_others_[block] = 1;
    });
    underway_ = 0;
    window_ = window;
    filled_ = filled;
}

template <typename Body>
void CorrelatedNoise::for_history(std::size_t step, const Body& body) const {
    const std::size_t rows = rows_at(step);
    for (std::size_t row = 0; row < rows; ++row) {
        const std::size_t slot = form_ == Form::buffers ? row : (step - rows + row) % slots_;
        for (std::size_t block = 0; block < blocks_; ++block) {
            const std::uint64_t first = (first_tile_ + block * block_tiles) * noise_tile;
            const std::uint64_t left = std::max(first, start_);
            const std::uint64_t right = std::min(first + block_width(block), stop_);
            body((block * slots_ + slot) * slot_size + (left - first), row * width() + (left - start_),
                 static_cast<std::size_t>(right - left));
        }
    }
}

void CorrelatedNoise::save(std::span<double> out) {
    const std::lock_guard lock(mutex_);
    settle();
    require(out.size() == history_rows() * width(), "out must have width() numbers for each row");
    std::visit(
        [&](const auto& history) {
            for_history(step_, [&](std::size_t from, std::size_t to, std::size_t length) {
                std::copy_n(history.data() + from, length, out.data() + to);
            });
        },
        history_);
}

void CorrelatedNoise::restore(std::size_t step, std::span<const double> saved) {
    const std::lock_guard lock(mutex_);
    require(step <= steps(), "step must be at most the number of steps");
    require(saved.size() == rows_at(step) * width(), "history must have width() numbers for each row");
    std::visit(
        [&](auto& history) {
            using State = typename std::decay_t<decltype(history)>::value_type;
            for_history(step, [&](std::size_t to, std::size_t from, std::size_t length) {
                std::transform(saved.data() + from, saved.data() + from + length, history.data() + to,
                               [](double value) { return static_cast<State>(value); });
            });
        },
        history_);
    step_ = step;
    filled_ = 0;
    underway_ = 0;
}

template void CorrelatedNoise::next(std::size_t, double, std::span<double>, bool);
template void CorrelatedNoise::next(std::size_t, double, std::span<float>, bool);

}  // namespace hockeystick
