// Correlated Gaussian noise for DP-MF training: the rows of C^{-1} Z one after another, Z standard
// normal, C banded, the inverse of a banded matrix, or buffered: in memory for bands - 1 rows, or for the
// buffers.
//
// Entry (i, x) of Z is a function of the key, i and x alone: whoever has the key can make any range of
// coordinates, and gets the same bits for any number of threads, any split into ranges and on any machine.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "hockeystick/chacha.hpp"
#include "hockeystick/mutex.hpp"

namespace hockeystick {

// A banded lower-triangular matrix. `columns` holds `bands` Toeplitz coefficients, or steps rows of
// `bands`: entries (j .. j + bands - 1, j) in row j. For Form::buffers, `columns` holds the weights and then
// the decays of `bands` buffers. The caller keeps them alive.
struct BandedMatrix {
    std::span<const double> columns;
    std::size_t bands;
    std::size_t steps;

    bool toeplitz() const noexcept { return columns.size() == bands; }
    // Entry (i, i - lag).
    double at(std::size_t i, std::size_t lag) const noexcept {
        return toeplitz() ? columns[lag] : columns[(i - lag) * bands + lag];
    }
};

class CorrelatedNoise {
public:
    enum class Form {
        solve,     // the matrix is C: row i is (z_i - sum_k C[i, i-k] w_{i-k}) / C[i, i]
        multiply,  // the matrix is H = C^{-1}: row i is sum_k H[i, i-k] z_{i-k}
        buffers,   // C is 1 + sum_s weight_s x/(1 - decay_s x): row i is z_i - sum_s weight_s b_s, then b_s =
                   // decay_s b_s + row i
    };

    // For coordinates [start, stop). With single, the rows kept are floats: row i (solve) or z_i
    // (multiply) is rounded to one before it is used, so that what comes out is as exact a solution for a
    // Z that differs by at most 2^-24 C[i, i] |w_i| (solve) or 2^-24 |z_i| (multiply) in row i.
    // Throws std::invalid_argument for empty ranges, a diagonal that is not positive (solve), entries that
    // are not finite or more than 2^32 steps.
    CorrelatedNoise(const BandedMatrix& matrix, Form form, const ChaChaKey& key, std::uint64_t start,
                    std::uint64_t stop, bool single);

    std::size_t steps() const noexcept { return matrix_.steps; }
    std::size_t width() const noexcept { return static_cast<std::size_t>(stop_ - start_); }
    // The step of the next row; steps() at the end.
    std::size_t step() const noexcept { return step_; }
    bool single() const noexcept { return std::holds_alternative<std::vector<float>>(history_); }
    std::size_t state_bytes() const noexcept;

    // Writes scale * the next `count` rows to `out`, row after row, or adds them to what is there.
    // An empty `out` just moves on. Throws std::invalid_argument past the last step. An interruption leaves
    // `out` incomplete, unless it is added to, and rows underway count as made; what follows has the same
    // bits.
    template <typename Out>
    void next(std::size_t count, double scale, std::span<Out> out, bool add);

    // The rows that later ones depend on, oldest first: min(step, bands - 1) rows of width(), or all buffers.
    std::size_t history_rows() const noexcept { return rows_at(step_); }
    void save(std::span<double> out);
    void restore(std::size_t step, std::span<const double> history);

private:
    struct Row;
    std::vector<Row> plan(std::size_t now, std::size_t count, std::size_t& window, std::size_t& filled) const;
    template <typename State, typename Use>
    void make(std::span<const Row> rows, std::size_t now, std::size_t block, State* past, const Use& use);
    template <typename Out, typename State>
    void advance(std::vector<State>& history, std::size_t count, double scale, Out* out, bool add);
    void settle();
    std::size_t rows_at(std::size_t step) const noexcept {
        return form_ == Form::buffers ? slots_ : std::min(step, slots_);
    }
    std::size_t block_width(std::size_t block) const noexcept;  // in coordinates, whole tiles
    // Calls body(history index, row in a saved history, column, length) for every stretch of it.
    template <typename Body>
    void for_history(std::size_t step, const Body& body) const;

    BandedMatrix matrix_;
    Form form_;
    ChaChaKey key_;
    std::uint64_t start_, stop_, first_tile_;
    std::size_t tiles_, blocks_, slots_;
    std::atomic<std::size_t> step_{0};
    // By block of coordinates, by slot (step mod slots), by coordinate.
    std::variant<std::vector<double>, std::vector<float>> history_;
    // Rows window_ .. window_ + filled_ - 1, as far as the rows before window_ determine them: the kept rows
    // are read once for several rows even if these are asked for one by one. None if filled_ is 0.
    std::size_t ahead_, window_ = 0, filled_ = 0;
    std::vector<double> pending_;  // by block, by row of the window, by coordinate
    // After an interruption: how many of the last rows are not made for all blocks, and for which they are.
    std::size_t underway_ = 0;
    std::vector<char> ahead_of_others_;
    mutable Mutex mutex_;  // two threads that ask for rows get different ones
};

}  // namespace hockeystick
