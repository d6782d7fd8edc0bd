// How fast the characteristic function of a tilted loss decays: a bound for all high frequencies at once.
#pragma once

#include <utility>
#include <vector>

#include "inversion/mgf.hpp"
#include "inversion/rectangles.hpp"

namespace hockeystick {

// The density f of the tilted loss lies above a step function with levels f_c on the cells of a grid. A
// step function is a sum of rectangles, so f = sum_i a_i Uniform(I_i) + (1 - sum_i a_i) rest, and with
// |hat Uniform(I)| = |sinc(tau |I|/2)|
//     |M(s + i tau)/M(s)| <= 1 - sum_i a_i (1 - S(tau |I_i|/2)),   S(x) >= sup over x' >= x of |sinc x'|.
class Decay final : public DecayBound {
public:
    // log_mgf: an upper bound on ln M(s).
    Decay(const Mgf& mgf, double s, double log_mgf);
    double log_bound(double tau) const override;
    // The lesser of that and of a bound by moving the integral over the output t into the complex plane,
    //     |M(s + i tau)| <= e^{a^2/2} integral |g(t)| e^{-tau angle(t + ia)} |turn of Q|^{-s} dt,   a > 0,
    // which decays exponentially where the loss moves with t at all. Dearer.
    double steep_log_bound(double tau) const override;

private:
    void add_part(const MixturePart& part, double s, double log_mgf);

    // A cell of the grid over t: ln of an upper bound on its share of M(s), lower bounds of the mean shifts.
    struct Slice {
        double log_mass, p_mean, q_mean;
    };
    struct Slices {
        double p_extreme, q_extreme, q_spread;
        std::vector<Slice> all;
    };
    void slice(const MixturePart& part) const;

    std::vector<MixturePart> parts_;
    double s_, log_mgf_;
    Rectangles rectangles_;
    mutable std::vector<Slices> slices_;  // for steep_log_bound, on first use
};

}  // namespace hockeystick
