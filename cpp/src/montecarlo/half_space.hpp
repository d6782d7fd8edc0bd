// Where P/Q is small: H(Q||P) from samples of Q in a half space that contains all of {P/Q < e^-epsilon}.
//
// P/Q - Pr[x = 0] = sum_{x != 0} p_x e^{<Cx, y>/sigma^2 - |Cx|^2/(2 sigma^2)}, whose logarithm is a convex
// function of y: it lies above its tangent at any point. So where P/Q < e^-epsilon the tangent is below
// ln(e^-epsilon - Pr[x = 0]), which is a half space, of a probability under Q that is known exactly. Outputs
// are in units of sigma here (docs/montecarlo/tilted.md, section 9).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hockeystick/estimate.hpp"

namespace hockeystick {

// ln sum_{x != 0} p_x N(Cx)/N(0) at `outputs`, and its gradient C `means`/sigma: means = E_w[x], w
// proportional to the terms of the sum.
struct LikelihoodTangent {
    double log_rest;
    std::vector<double> means;
};

// For every scheme but the truncated one. If the columns are longer than the separation, of the lower bound
// of P/Q that the losses of direction Q against P are made of (Mixture, `lower`). O(steps), for the exact law
// of multi-attribution O(steps * separation). Throws std::invalid_argument.
LikelihoodTangent tangent(const MatrixMechanism& mechanism, std::span<const double> outputs);

// ln P/Q of one example, and E[x | output], x its participations.
struct Posterior {
    double log_ratio;
    std::vector<double> means;
};
Posterior posterior(const BMinSep& scheme, std::span<const double> products, std::span<const double> norms);

// A standard normal number given that it is at most `threshold`; exact in law for any threshold.
double normal_below(Stream& stream, double threshold);
// ln Pr[N(0,1) <= threshold], absolute error at most 8 units of 2^-53 times (1 + threshold^2).
double log_normal_below(double threshold);

// Samples of the direction H(Q||P). R is the mixture over k of N(-shift_k direction, 1) given the half space
// {<direction, y> <= threshold}. Rows: <direction, y>, ln P/Q, ln of (Q/R over the half space's probability),
// and ln of each shift's density over that of Q given the half space.
class HalfSpaceSampler final : public BlockSampler {
public:
    struct Shift {
        double weight, shift;  // both >= 0
    };

    // direction: of length 1 up to rounding. The first shift must be 0 and have a positive weight: it is Q
    // given the half space, and bounds Q/R by the half space's probability over its weight. The weights add
    // up to 1. Throws std::invalid_argument.
    HalfSpaceSampler(MatrixMechanism mechanism, std::vector<double> direction, double threshold,
                     std::vector<Shift> shifts);

    // ln of the half space's probability under Q.
    double log_probability() const noexcept { return log_probability_; }

    // (Q/R) (1 - e^{epsilon} max(P/Q, e^floor))_+ over e^log_scale, for each epsilon: [epsilon][sample];
    // floor: a lower bound of ln P/Q. What is not a number counts as 1.
    std::vector<double> values(std::uint64_t seed, std::span<const double> epsilons, double floor,
                               double log_scale, std::uint64_t first, std::size_t blocks) const;

private:
    void sample_group(const BlockStream& stream, std::size_t lane, double* rows,
                      Draws* record) const override;
    void check_scheme() const;
    void check_shifts();
    void log_densities(double* rows) const;

    std::vector<double> normal_;
    double threshold_, log_probability_;
    std::vector<Shift> shifts_;
    std::vector<double> log_probabilities_;  // of the half space, under each shifted law
    Mixture mixture_;
};

// e^log_weight (1 - e^{epsilon + max(log_ratio, floor)})_+ e^-log_scale; not a number: 1. Above 1 where the
// scale is no bound.
double half_space_value(double epsilon, double floor, double log_ratio, double log_weight,
                        double log_scale) noexcept;

}  // namespace hockeystick
