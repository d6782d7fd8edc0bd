// A pair of Gaussian mixtures over the output t, and where its tilts g = P^{1+s} Q^{-s} have their bulk.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "numerics/rounding.hpp"
#include "pairs/window.hpp"

namespace hockeystick {

// One side of the pair, as a density ratio to N(0, 1): sum_i weight[i] e^{shift[i] t - shift[i]^2/2}.
class MixtureRatio {
public:
    MixtureRatio(const std::vector<double>& shifts, const std::vector<double>& weights);

    struct Log {
        double value, slack;  // ln of the ratio; its error in units of round-off
    };
    Log log(double t) const noexcept;
    // Mean shift given the output t, which is the derivative of the logarithm; it increases with t.
    double mean(double t, double log_ratio) const noexcept;
    double low() const noexcept { return low_; }
    double high() const noexcept { return high_; }
    bool plain() const noexcept { return shift_.size() == 1; }
    const std::vector<double>& shifts() const noexcept { return shift_; }
    const std::vector<double>& weights() const noexcept { return weight_; }

private:
    std::vector<double> shift_, weight_, log_weight_;
    double low_ = 0, high_ = 0;
};

// One pair of mixtures, taken with probability `weight`, of which only a window of outputs counts.
struct MixturePart {
    double weight;
    MixtureRatio p, q;
    Window window;
    // Only the positive losses count, joined with minus those of this half, and the rest of the mass at 0
    // (docs/mechanisms/replacement.md, section 3, and truncated.md, section 3).
    std::optional<JoinedHalf> joined = {};

    // The mass that one side has outside the window.
    double missed(const MixtureRatio& side) const noexcept;
    // In the complex plane, moved by ia, the normal density in the window grows by e^{a^2 growth() / 2}.
    double growth() const noexcept { return 1 + window.strength(); }
};

// ln of a bound on how much |P^{1+s} Q^{-s}| with window grows at an output t from t to t + ib; and on how
// much the integral along Im t = b is beside M(s) (docs/accounting/bounds.md, "Exact inversion").
double line_growth(const MixturePart& part, double s, double b);
double integral_growth(const MixturePart& part, double s, double b);

// Losses, and ln of the P-mass that each stands for; the slacks bound their errors, in units of round-off.
struct LossNodes {
    std::vector<double> loss, log_p, loss_slack, log_p_slack;
    std::vector<double> mass, fall;  // P-masses, and p (e^{-loss} - 1 + loss), where many tilts are asked for
};

// Nodes of the trapezoidal rule.
struct MixtureNodes : LossNodes {
    double h = 0, first = 0, last = 0;  // step, ends
};
// At first, first + h, ...
MixtureNodes mixture_nodes(const MixturePart& part, double h, double first, std::size_t size);

// For t > high the slope of ln g is at most high - t, for t < low at least low - t.
struct Centres {
    double low, high;
};
Centres centres(const MixturePart& part, double s);

// ln g at a point, up to the constant of the normal density and without the window, and what bounds its
// slope: as the mean shifts increase with t, the slope over a cell lies between down() and up() of its ends.
// log_kept: ln of the window.
struct TiltedPoint {
    double t, log_g, log_kept, loss, p_mean, q_mean;
};
TiltedPoint tilted_point(const MixturePart& part, double s, double t);
double down(const TiltedPoint& left, const TiltedPoint& right, double s);
double up(const TiltedPoint& left, const TiltedPoint& right, double s);
// ln of bounds of g, with a window that begins nowhere and so falls with t, over a cell.
double log_least(const TiltedPoint& left, const TiltedPoint& right, double s);
double log_most(const TiltedPoint& left, const TiltedPoint& right, double s);

}  // namespace hockeystick
