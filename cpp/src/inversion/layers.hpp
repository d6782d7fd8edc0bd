// delta(eps) of a composition of Gaussian mixtures as a sum over layers of losses.
//
// The outputs of a step are cut at losses c_0 < ... < c_m. With A_k the measure of the outputs below c_k and
// B_k = A_k - A_{k-1}, the outcomes whose largest step lies in layer k have the transform A_k^T - A_{k-1}^T,
// which falls as fast as B_k does; and they have a tilt, a period and a last frequency of their own. Steps of
// other kinds are not cut: their transform multiplies that of every layer.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "hockeystick/answer.hpp"
#include "inversion/contour.hpp"
#include "inversion/decay.hpp"
#include "inversion/layer_measures.hpp"
#include "inversion/saddle.hpp"
#include "inversion/transform.hpp"

namespace hockeystick {

struct DifferenceOfPowers;

class Layers {
public:
    using Kind = LayerMeasures::Kind;
    struct Company {
        const Transform* transform;
        double count;
    };
    // What is composed with the kinds that are cut: plain Gaussian steps, K = variance s (s+1)/2, and steps
    // of other kinds, with the P-mass at +inf of all steps, rounded down and up.
    struct Beside {
        double variance = 0;
        std::vector<Company> company;
        double least_infinite = 0, most_infinite = 0;
        double deviation = 0;  // about, of the whole loss
    };
    // tolerance: the share of delta that each source of error aims at. in_vain: dear values of the company
    // that were asked for and led to nothing, so far.
    Layers(const std::vector<Kind>& kinds, Beside beside, double tolerance,
           std::shared_ptr<std::size_t> in_vain = std::make_shared<std::size_t>(0));

    // Bounds as in Profile; empty where none were found.
    std::optional<Answer> epsilon_bounds(double delta);
    std::optional<Answer> delta_bounds(double epsilon);
    // The same for many; the contours of one serve its neighbours.
    std::vector<std::optional<Answer>> delta_curve(std::span<const double> epsilons, Sharing sharing);

private:
    // Layer k lies between cut k-1 and cut k; `bottom` k is all below cut k.
    struct Which {
        std::size_t cut;
        bool bottom;
    };
    // The best tilt that was tried for one of them.
    struct Tilt {
        SaddlePoint saddle{};
        bool found = false;
        // The saddle's estimate of ln delta; Chernoff's bound e^{log_bound - s eps}, and its logarithm.
        double log_delta = 0, log_bound = 0, log_least = 0;
    };

    bool prepare(double log_mass, double epsilon);
    double planned(double epsilon) const;
    LayerMeasures::Which below(Which which, std::size_t kind) const;
    Cumulant cumulant(Which which, double s);
    Tilt tilt(Which which, double epsilon, double enough);
    std::optional<Contour> contour(Which which, const Tilt& tilt, double epsilon, double log_wanted,
                                   std::size_t most);
    // Bounds at all high frequencies along Re z = s: of A of each kind, where the bottom falls, and of a
    // layer's B (docs/accounting/bounds.md, "Layers of losses").
    struct Ceiling {
        double s;
        const Beside& beside;
        const std::vector<double>& counts;
        std::vector<double> log_a;                   // of A(s)
        std::vector<std::unique_ptr<Decay>> decays;  // null: a kind's terms themselves fall
        std::vector<FallingSum> below, between;
        std::vector<double> log_company;  // as log_a and decays
        std::vector<std::unique_ptr<DecayBound>> company_decays;
        // ln of a bound of |e^{K(s + i tau')}| for all tau' >= tau.
        double log_at(double tau) const;
    };
    std::optional<Ceiling> ceiling(Which which, double s, double wanted);
    bool fill(Contour& contour, std::size_t size, const std::vector<FallingSum>& below,
              const std::vector<FallingSum>& between, double negligible);
    bool add_company(std::vector<DifferenceOfPowers>& sums, const Contour& contour, double negligible);
    static bool add_rows(std::vector<DifferenceOfPowers>& sums, const FallingSum& a, const FallingSum* b,
                         double count, double step, double negligible);
    // The narrowest answer of a few window widths.
    template <class Try>
    std::optional<Answer> best_of(const Try& attempt);
    std::optional<Answer> epsilon_at(double delta);
    std::optional<Answer> delta_at(double epsilon);
    // By the contours that were laid last, for whichever epsilon.
    std::optional<Answer> as_laid(double epsilon) const;
    // Of ln delta, and what it falls by with epsilon.
    struct Estimate {
        double log_delta, slope;
    };
    // What was found about the layers from the last one down.
    struct Visit {
        struct Found {
            Which which;
            Tilt tilt;
        };
        double epsilon;
        bool make;
        std::vector<Found> found;
        double log_delta = -std::numeric_limits<double>::infinity(), log_slope = log_delta;
        void add(Which which, const Tilt& best);
    };
    bool light(const Tilt& best, double log_limit);
    bool visit_bottom(std::size_t k, Visit& visit);
    // Which layers count at epsilon, and whether the bottom is among them; makes the contours if asked to.
    std::optional<Estimate> visit(double epsilon, bool make);
    double of_one_step(double delta) const;
    double of_company(double delta) const;
    bool approach(double target, double& epsilon);
    double rest(double epsilon) const;
    Answer describe(const Inverted& at, double left_out) const;

    LayerMeasures measures_;
    double sharpness_ = 1;  // of the windows
    Beside beside_;
    double tolerance_;
    std::shared_ptr<std::size_t> in_vain_;
    // Speed: the frequencies for the bottom, and nodes times frequencies of a contour. Where parts are joined
    // the terms that are summed fall, so that more of both are worth their time.
    std::size_t most_at_bottom_ = 300;
    double most_products_ = 3e7;
    std::vector<double> layer_tilt_, bottom_tilt_;  // of the last saddles, to begin the next search at
    std::vector<Contour> contours_;
    struct Light {
        double tilt, log_bound;
    };
    std::vector<Light> light_;  // Chernoff's bounds of the layers that hardly count
};

}  // namespace hockeystick
