// A pair of Gaussian mixtures over the output t, and where its tilts g = P^{1+s} Q^{-s} have their bulk.
#pragma once

#include <limits>
#include <vector>

#include "hockeystick/pairs.hpp"

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
    // Probability of t > x once t is blurred by an independent normal law of deviation `blur`.
    double tail(double x, double blur) const noexcept;

private:
    std::vector<double> shift_, weight_, log_weight_;
    double low_ = 0, high_ = 0;
};

// One pair of mixtures, taken with probability `weight`, without the outputs beyond `cut`: each t is kept
// with probability Phi((cut - t) / cut_width), which keeps the integrands analytic.
struct MixturePart {
    double weight;
    MixtureRatio p, q;
    double cut = std::numeric_limits<double>::infinity();

    static constexpr double cut_width = 0.15;
    double log_kept(double t) const noexcept;
    // The mass of one side that is dropped.
    double dropped(const MixtureRatio& side) const noexcept;
    // In the complex plane, moved by ia, the kept normal density grows by e^{a^2 growth() / 2}.
    double growth() const noexcept;
};

// For t > high the slope of ln g is at most high - t, for t < low at least low - t.
struct Centres {
    double low, high;
};
Centres centres(const MixturePart& part, double s);

// ln g at a point, up to the constant of the normal density and without what is cut, and what bounds its
// slope: as the mean shifts increase with t, the slope over a cell lies between down() and up() of its ends.
struct TiltedPoint {
    double t, log_g, log_kept, loss, p_mean, q_mean;
};
TiltedPoint tilted_point(const MixturePart& part, double s, double t);
double down(const TiltedPoint& left, const TiltedPoint& right, double s);
double up(const TiltedPoint& left, const TiltedPoint& right, double s);
// ln of bounds of g, with the cut, over a cell.
double log_least(const TiltedPoint& left, const TiltedPoint& right, double s);
double log_most(const TiltedPoint& left, const TiltedPoint& right, double s);

}  // namespace hockeystick
