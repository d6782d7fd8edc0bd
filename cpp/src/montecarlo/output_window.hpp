// The outputs of 16 samples and their sliding products, generated block by block of iterations: noise, and
// the columns of C that each sample's participations add to it (docs/montecarlo/estimates.md, "The kernel").
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "hockeystick/estimate.hpp"
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

    // The outputs go to the `record`, if there is one.
    OutputWindow(const SlidingProducts& sliding, std::size_t steps, const Noise& noise,
                 BlockSampler::Draws* record)
        : sliding_(sliding),
          steps_(steps),
          noise_(noise),
          record_(record),
          rows_(Rows::scratch(sliding.rows())),
          products_(Rows::scratch(sliding.rows())) {}

    // add(row, from, live) adds to the noise of iterations [from, from + live), which are in `row` and the
    // rows after it; use(products, first, count) then finds the products of iterations [first, first +
    // count). shift() is called when the rows behind, which those products needed too, move to the front.
    template <class Add, class Use, class Shift = void (*)()>
    void run(const Add& add, const Use& use, const Shift& shift = [] {}) {
        const std::size_t overlap = sliding_.overlap(), stride = sliding_.outputs();
        generate(0, overlap, add);
        for (first_ = 0; first_ < steps_; first_ += stride) {
            if (first_ > 0) {
                move_to_front(rows_);
                shift();
            }
            generate(overlap, stride, add);
            const std::size_t count = std::min(stride, steps_ - first_);
            sliding_.compute(rows_, first_, products_);
            use(products_[0], first_, count);
            if (record_ != nullptr) rows_.by_sample(count, record_->outputs.data() + first_, steps_);
        }
    }

    void move_to_front(Rows& rows) const {
        std::memmove(rows[0], rows[sliding_.outputs()], sliding_.overlap() * group_size * sizeof(double));
    }
    double* row(std::size_t at) { return rows_[at]; }

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
        const auto column = sliding_.column(open.iteration);
        const std::size_t begin = std::max(from, open.iteration);
        const std::size_t end = std::min(from + live, open.iteration + column.size());
        for (std::size_t i = begin; i < end; ++i) {
            rows_[i - first_][open.lane] += open.multiplicity * column[i - open.iteration];
        }
        return open.iteration + column.size() > from + live;
    }

    const SlidingProducts& sliding_;
    std::size_t steps_, first_ = 0;  // iteration of row 0
    Noise noise_;
    BlockSampler::Draws* record_;
    Rows rows_, products_;
    std::vector<Column> open_;
};

}  // namespace hockeystick
