// The measures between the cuts of a composition's outputs: their transforms at real tilts and along lines.
#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "inversion/falling_sum.hpp"
#include "inversion/joined_rule.hpp"
#include "inversion/layer_cuts.hpp"
#include "inversion/line.hpp"
#include "pairs/mixture.hpp"

namespace hockeystick {

class LayerMeasures {
public:
    // Steps of one kind: a mixture of parts that are not cut, whose shifts of P are not negative, those of Q
    // not positive (docs/accounting/bounds.md, "Layers of losses").
    struct Kind {
        std::vector<MixturePart> parts;
        double count;
    };
    explicit LayerMeasures(const std::vector<Kind>& kinds);

    // Cuts as in choose_cuts(); false where nothing can be cut. tolerance: the share of delta that each
    // source of error aims at.
    bool cut(double log_mass, double epsilon, double sharpness, double tolerance);

    bool any_joined() const;
    const std::vector<double>& counts() const noexcept { return counts_; }
    double steps() const noexcept { return steps_; }
    const std::vector<LayerPart>& parts() const noexcept { return parts_; }
    const LayerCuts& cuts() const noexcept { return cuts_; }
    // P-mass beyond the last cut, of all steps together.
    double dropped() const noexcept { return dropped_; }

    // The outputs of a step of this kind below a cut, or between that cut and the one before.
    struct Which {
        std::size_t kind, cut;
        bool between;
        auto operator<=>(const Which&) const = default;
    };
    // At a real tilt: ln of the sum, of an upper bound, and the tilted loss's mean and variance.
    struct Sums {
        double value, mean, variance, upper;
    };
    const Sums& sums(Which which, double s);
    // Along Re z = s, to whatever frequency. Terms that weigh less than `wanted` together are left out.
    FallingSum along(Which which, double s, double wanted);
    // As parts with windows; empty where some of them are joined.
    std::vector<MixturePart> mixtures(Which which);

private:
    // The nodes' shares of one measure, for the range where it has any.
    struct Measure {
        MixturePart mixture;
        std::vector<double> log_share;
        std::size_t begin = 0, end = 0;
        double aliasing = 0;  // of the rule along the real line, relative to the sum; 0: not known yet
        std::optional<JoinedRule::Share> joined;
        bool empty() const { return begin == end; }
    };
    // The nodes of one part.
    struct Nodes {
        // Along the real line, for bounds at real tilts; their rounding in units of round-off is at most
        // rounding + s loss_rounding.
        MixtureNodes real;
        double rounding = 0, loss_rounding = 0;
        std::vector<double> p_mean, q_mean;                  // of the shifts, given the output
        std::vector<TiltedPoint> far;                        // points beyond the last node, ever further
        std::vector<std::optional<Measure>> below, between;  // by cut, on first use
        LineNodes line;                                      // to whatever frequency
        double h = 0;
        std::optional<JoinedRule> joined;  // where the part is joined: of its halves, in the place of both
    };
    // Sums of one part, relative to a common factor.
    struct Total {
        double value = 0, first = 0, second = 0, upper = 0;
    };

    Sums new_sums(Which which, double s);
    void choose_parts(double log_mass);
    double line_error() const;
    bool make_nodes(std::size_t part);
    void make_line(std::size_t part, double s);
    Measure& measure(std::size_t part, Which which);
    // Of the trapezoidal sum, and the integral, beyond node i.
    double beyond(std::size_t part, const Measure& m, std::size_t i, double s, double shift) const;
    double omitted(std::size_t part, const Measure& m, double s, double shift) const;
    double light_ends(std::size_t part, const Measure& m, double s, double growth, double shift,
                      std::size_t begin, std::size_t end) const;
    double light_above(std::size_t part, const Measure& m, double s, double growth, double shift,
                       double end) const;
    double peak(std::size_t part, const Measure& m, double s) const;
    Total total(std::size_t part, Measure& m, double s, double shift) const;
    JoinedRule::Error joined_error(std::size_t part, const Measure& m, double s, double shift) const;
    Total joined_total(std::size_t part, const Measure& m, double s, double shift) const;
    void add_line(std::size_t part, Which which, double s, double upper, double wanted, FallingSum& sum);
    void add_joined(std::size_t part, Which which, double s, double upper, double wanted, FallingSum& sum);

    std::vector<double> counts_;
    double steps_ = 0, tolerance_ = 0, dropped_ = 0;
    std::vector<LayerPart> all_parts_, parts_;  // parts_: those that are not too rare to count
    LayerCuts cuts_;
    std::vector<Nodes> nodes_;  // by part
    std::map<std::pair<Which, double>, Sums> known_;
};

}  // namespace hockeystick
