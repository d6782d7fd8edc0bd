// delta(eps) of a composition of Gaussian mixtures as a sum over layers of losses.
//
// The outputs of a step are cut at losses c_0 < ... < c_m. With A_k the measure of the outputs below c_k and
// B_k = A_k - A_{k-1}, the outcomes whose largest step lies in layer k have the transform A_k^T - A_{k-1}^T,
// which falls as fast as B_k does; and they have a tilt, a period and a last frequency of their own.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "hockeystick/answer.hpp"
#include "hockeystick/contour.hpp"
#include "hockeystick/mixture.hpp"

namespace hockeystick {

class Layers {
public:
    // Steps of one kind: a mixture of parts that are not cut, whose shifts of P are not negative, those of Q
    // not positive.
    struct Kind {
        std::vector<MixturePart> parts;
        double count;
    };
    // variance: of plain Gaussian steps, K = variance s (s+1)/2. tolerance: the share of delta that each
    // source of error aims at.
    Layers(const std::vector<Kind>& kinds, double variance, double tolerance);

    // Bounds as in Profile; empty where none were found.
    std::optional<Answer> epsilon_bounds(double delta);
    std::optional<Answer> delta_bounds(double epsilon);

private:
    friend struct LayersProbe;  // the tests'

    // Layer k lies between cut k-1 and cut k; `bottom` k is all below cut k.
    struct Which {
        std::size_t cut;
        bool bottom;
    };
    struct Cumulant {
        double value, first, second, upper;
    };
    struct Saddle {
        double s = 0, log_delta = 0, curvature = 0;
        Cumulant k{};
        bool found = false;
        double log_bound = 0, log_least = 0;  // Chernoff's bound e^{log_bound - s eps}
    };
    // The nodes' shares of one measure, outputs below a cut or between two, for the range where it has any.
    struct Measure {
        MixturePart mixture;
        std::vector<double> log_share;
        std::size_t begin = 0, end = 0;
        double aliasing = 0;  // of the rule along the real line, relative to the sum; 0: not known yet
    };
    struct Part {
        Part(MixturePart all, std::size_t of) : mixture(std::move(all)), kind(of) {}
        MixturePart mixture;
        std::size_t kind;
        bool cut = false;
        double width = 0;
        std::vector<std::int64_t> edge;  // of the windows, at each cut
        // Along the real line, for bounds at real tilts; their rounding in units of round-off is at most
        // rounding + s loss_rounding.
        MixtureNodes real;
        double rounding = 0, loss_rounding = 0;
        std::vector<double> p_mean, q_mean;                 // of the shifts, given the output
        std::vector<TiltedPoint> far;                       // points beyond the last node, ever further
        std::vector<std::optional<Measure>> below, inside;  // by cut, on first use
        // Along Im t = line, to whatever frequency: ln of P's density, and the loss.
        double line = 0, h = 0, first = 0;
        std::vector<std::complex<double>> log_p, loss;
        std::vector<double> p_slack, loss_slack;
    };
    // On the line, weight e^{i tau loss}.
    struct Terms {
        std::vector<double> re, im, turn, fall;  // weights; Re and Im of the losses
        std::vector<double> fixed, turning;      // errors of weight and loss, in units of round-off
        double shift = 0, fixed_error = 0;       // values are relative to e^shift
        double bound(double tau) const;          // of the sum at all frequencies from tau on
    };
    struct Row {
        std::vector<std::complex<double>> value;
        std::vector<double> error;
    };
    // Of a measure at a real tilt: ln of the sum, of an upper bound, and the tilted loss's mean and variance.
    struct Sums {
        double value, mean, variance, upper;
    };

    double ratio_below(double cut) const;
    bool prepare(double log_mass, double epsilon);
    Measure& measure(Part& part, bool inside, std::size_t cut);
    Sums sums(std::size_t kind, bool inside, std::size_t cut, double s);
    static double beyond(const Part& part, const Measure& m, std::size_t i, double s, double shift);
    Cumulant cumulant(Which which, double s);
    Saddle saddle(Which which, double epsilon, double enough);
    double line_error() const;
    void make_line(Part& part, double s);
    void add_terms(Part& part, bool inside, std::size_t cut, double s, double upper, double wanted,
                   Terms& terms);
    Terms terms(std::size_t kind, bool inside, std::size_t cut, double s, double wanted);
    static Row turned(const Terms& terms, double step, std::size_t size, double negligible);
    double alias(Which which, const Saddle& saddle, double epsilon, double wanted, int direction,
                 double& shift, double& offset);
    std::optional<Contour> contour(Which which, const Saddle& saddle, double epsilon, double log_wanted,
                                   std::size_t most);
    bool fill(Contour& contour, std::size_t size, const std::vector<Terms>& below,
              const std::vector<Terms>& inside, double negligible) const;
    // The narrowest answer of a few window widths.
    template <class Try>
    std::optional<Answer> best_of(const Try& attempt);
    // Estimates ln delta, and what it falls by with epsilon; makes the contours if asked to.
    std::optional<Answer> epsilon_at(double delta);
    std::optional<Answer> delta_at(double epsilon);
    struct Estimate {
        double log_delta, slope;
    };
    std::optional<Estimate> visit(double epsilon, bool make);
    double rest(double epsilon) const;
    Answer describe(const Inverted& at) const;

    std::vector<double> counts_;
    std::vector<Part> parts_;
    double sharpness_ = 1;  // of the windows
    double variance_, tolerance_, steps_ = 0, dropped_ = 0;
    std::vector<double> cuts_;                      // losses, increasing
    std::vector<double> layer_tilt_, bottom_tilt_;  // of the last saddles, to begin the next search at
    std::vector<Contour> contours_;
    struct Light {
        double tilt, log_bound;
    };
    std::vector<Light> light_;  // Chernoff's bounds of the layers that hardly count
};

}  // namespace hockeystick
