// A pair of Gaussian mixtures over the output t, and where its tilts g = P^{1+s} Q^{-s} have their bulk.
#pragma once

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

private:
    std::vector<double> shift_, weight_, log_weight_;
    double low_ = 0, high_ = 0;
};

// One pair of mixtures, taken with probability `weight`.
struct MixturePart {
    double weight;
    MixtureRatio p, q;
};

// For t > high the slope of ln g is at most high - t, for t < low at least low - t.
struct Centres {
    double low, high;
};
Centres centres(const MixturePart& part, double s);

// ln g at a point, up to the constant of the normal density, and what bounds its slope: as the mean shifts
// increase with t, the slope over a cell lies between down() and up() of its ends.
struct TiltedPoint {
    double t, log_g, loss, p_mean, q_mean;
};
TiltedPoint tilted_point(const MixturePart& part, double s, double t);
double down(const TiltedPoint& left, const TiltedPoint& right, double s);
double up(const TiltedPoint& left, const TiltedPoint& right, double s);

}  // namespace hockeystick
