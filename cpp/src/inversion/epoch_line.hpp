// The transform of one part of the outcomes of several epochs of a random allocation, and Gaussian steps, and
// its inversion's line (docs/mechanisms/allocation.md, "Epochs in three parts").
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "inversion/allocation_powers.hpp"
#include "inversion/contour.hpp"
#include "numerics/powers.hpp"

namespace hockeystick {

class EpochLine {
public:
    // The outcomes in `bulk` in each of `count` epochs, or, if there is any, those in bulk or some rest in
    // each but not in bulk in all. variance: of the Gaussian steps' loss.
    EpochLine(const Bulk& bulk, std::span<const Rest> rest, double count, double variance)
        : bulk_(bulk), rest_(rest), count_(count), variance_(variance) {}

    // The line, which suits eps, where delta is about e^{log_delta}; empty where there is none with so many
    // frequencies. tilts: from `least` to `most`.
    std::optional<Contour> contour(double epsilon, double log_delta, double least, double most);

private:
    double best_tilt(double epsilon, double least, double most) const;
    bool with_bulk() const { return rest_.empty() || count_ > 1; }
    double join(double log_bulk, double log_rest) const;
    double log_upper(double s) const;
    double log_bound(double tau) const;
    double tail(double step, std::size_t first) const;
    PowerLine::Row rest_row(double step, std::size_t size, double log_wanted) const;
    DifferenceOfPowers::Value value(const PowerLine::Row& bulk, const PowerLine::Row& rest, std::size_t j,
                                    const Contour& contour) const;
    bool fill(Contour& contour, std::size_t size, double log_wanted) const;

    const Bulk& bulk_;
    std::span<const Rest> rest_;
    double count_, variance_, s_ = 0;
    std::optional<PowerLine> bulk_line_;  // at s
    std::vector<PowerLine> rest_lines_;
    double log_rest_ = 0;  // of all of these
    Bulk::Edge edge_{1, 0};
};

}  // namespace hockeystick
