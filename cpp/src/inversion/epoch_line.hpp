// The transform of one part of the outcomes of a composition with epochs of random allocation, and its
// inversion's line (docs/mechanisms/allocation.md, "Epochs in three parts").
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "inversion/contour.hpp"
#include "inversion/epoch_kind.hpp"
#include "numerics/powers.hpp"

namespace hockeystick {

class EpochLine {
public:
    struct Kind {
        KindParts* parts;
        double count;
    };
    // The outcomes in the bulk in each step of all kinds, or, if `rest`, those in bulk or rest in each but
    // not in bulk in all. variance: of the Gaussian steps' loss.
    EpochLine(std::vector<Kind> kinds, double variance, bool rest);

    // The line, which suits eps, where delta is about e^{log_delta}; empty where there is none with so many
    // frequencies. tilts: from `least` to `most`.
    std::optional<Contour> contour(double epsilon, double log_delta, double least, double most);

private:
    // What there is of one kind.
    bool with_bulk(std::size_t k) const { return k != lone_; }
    bool with_rest(std::size_t k) const { return rest_ && kinds_[k].parts->split(); }
    template <class LogBulk, class LogRest>
    double join(LogBulk log_bulk, LogRest log_rest) const;
    double log_upper(double s) const;
    double log_bound(double tau) const;
    double tail(double step, std::size_t first) const;
    struct Rows {
        PartRow bulk, rest;
    };
    DifferenceOfPowers::Value value(const std::vector<Rows>& rows, std::size_t j,
                                    const Contour& contour) const;
    bool fill(Contour& contour, std::size_t size, double log_wanted) const;

    std::vector<Kind> kinds_;
    double variance_, s_ = 0;
    bool rest_;
    // The one kind of one step that has a rest, whose bulk then does not count.
    std::size_t lone_ = static_cast<std::size_t>(-1);
};

}  // namespace hockeystick
