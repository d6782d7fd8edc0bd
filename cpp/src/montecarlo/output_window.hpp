// The outputs of 16 samples, generated block by block of iterations as their sliding products need them:
// noise, and the columns of C that each sample's participations add to it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "hockeystick/likelihood.hpp"
#include "hockeystick/random.hpp"
#include "montecarlo/kernels.hpp"

namespace hockeystick {

// The noise of iterations [first, first + count) of the group of samples that begins with `lane`; `first` is
// even, and there is room for an even number of rows.
inline void draw_noise(const BlockStream& stream, std::size_t lane, Purpose purpose, std::size_t first,
                       std::size_t count, double* rows) {
    kernels::table().normals(rows, first, (count + 1) / 2 * 2, stream.counter(lane, purpose), stream.key());
}

class OutputWindow {
public:
    // Where the noise of the group is drawn from.
    struct Noise {
        BlockStream stream;
        std::size_t lane;
        Purpose purpose;
    };

    // In the memory of `rows`, at least products.rows() of them.
    OutputWindow(const SlidingProducts& products, std::size_t steps, const Noise& noise, Rows& rows)
        : products_(products), steps_(steps), noise_(noise), rows_(rows) {}

    // add(row, from, live) adds to the noise of iterations [from, from + live), which are in `row` and the
    // rows after it; use(first, count) then finds iterations [first, first + count) in the first rows, and
    // behind them what their products need. shift() is called when the rows behind move to the front.
    template <class Add, class Use, class Shift = void (*)()>
    void run(const Add& add, const Use& use, const Shift& shift = [] {}) {
        const std::size_t overlap = products_.overlap(), stride = products_.outputs();
        generate(0, overlap, add);
        for (first_ = 0; first_ < steps_; first_ += stride) {
            if (first_ > 0) {
                move_to_front(rows_);
                shift();
            }
            generate(overlap, stride, add);
            use(first_, std::min(stride, steps_ - first_));
        }
    }

    void move_to_front(Rows& rows) const {
        std::memmove(rows[0], rows[products_.outputs()], products_.overlap() * group_size * sizeof(double));
    }

    // Column `iteration` of C, so many times, in one sample's mean.
    struct Column {
        std::size_t lane, iteration;
        double multiplicity;
    };
    // Adds the part in iterations [from, from + live) of the columns that began before.
    void continue_columns(std::size_t from, std::size_t live) {
        std::erase_if(open_, [&](const Column& column) { return !add(column, from, live); });
    }
    // The same for a column that begins there.
    void begin_column(const Column& column, std::size_t from, std::size_t live) {
        if (add(column, from, live)) open_.push_back(column);
    }

private:
    template <class Add>
    void generate(std::size_t row, std::size_t count, const Add& add) {
        const std::size_t from = first_ + row, live = from < steps_ ? std::min(count, steps_ - from) : 0;
        draw_noise(noise_.stream, noise_.lane, noise_.purpose, from, live, rows_[row]);
        // Past the last iteration there is no output: the last columns of C are cut off there.
        std::fill(rows_[row + live], rows_[row + count], 0.0);
        if (live > 0) add(row, from, live);
    }

    // Whether there is more of the column later.
    bool add(const Column& open, std::size_t from, std::size_t live) {
        const auto column = products_.column(open.iteration);
        const std::size_t begin = std::max(from, open.iteration);
        const std::size_t end = std::min(from + live, open.iteration + column.size());
        for (std::size_t i = begin; i < end; ++i) {
            rows_[i - first_][open.lane] += open.multiplicity * column[i - open.iteration];
        }
        return open.iteration + column.size() > from + live;
    }

    const SlidingProducts& products_;
    std::size_t steps_, first_ = 0;  // iteration of row 0
    Noise noise_;
    Rows& rows_;
    std::vector<Column> open_;
};

}  // namespace hockeystick
