// How fast the characteristic function of a tilted loss decays: a bound for all high frequencies at once.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "inversion/rectangles.hpp"
#include "inversion/transform.hpp"
#include "pairs/mixture.hpp"

namespace hockeystick {

// The density f of the tilted loss lies above a step function with levels f_c on the cells of a grid. A
// step function is a sum of rectangles, so f = sum_i a_i Uniform(I_i) + (1 - sum_i a_i) rest, and with
// |hat Uniform(I)| = |sinc(tau |I|/2)| (docs/accounting/bounds.md, "Exact inversion"),
//     |M(s + i tau)/M(s)| <= 1 - sum_i a_i (1 - S(tau |I_i|/2)),   S(x) >= sup over x' >= x of |sinc x'|.
class StepDecay : public DecayBound {
public:
    double log_bound(double tau) const override;

protected:
    // Between points of a grid over the output t, the cells of which have losses on one side of each other.
    // least(a, b): a level between two neighbours. What lies e^-depth below the largest density is left out.
    template <class Least>
    void add_cells(const std::vector<TiltedPoint>& grid, double depth, Least least) {
        double peak = -std::numeric_limits<double>::infinity();
        for (const TiltedPoint& point : grid) peak = std::max(peak, point.log_g + point.log_kept);
        for (std::size_t i = 0; i + 1 < grid.size(); ++i) {
            const TiltedPoint &a = grid[i], &b = grid[i + 1];
            const bool counts = std::max(a.log_g + a.log_kept, b.log_g + b.log_kept) >= peak - depth &&
                                std::abs(b.loss - a.loss) > 1e-5 * std::abs(a.loss);
            const double height = counts ? least(a, b) : -1;
            if (height >= 0 && std::isfinite(height))
                rectangles_.extend(a.loss, b.loss, height);
            else
                rectangles_.close();
        }
        rectangles_.close();
    }

private:
    Rectangles rectangles_;
};

// Of mixtures of Gaussians.
class Decay final : public StepDecay {
public:
    // log_mgf: an upper bound on ln M(s).
    Decay(std::vector<MixturePart> parts, double s, double log_mgf);
    // The lesser of log_bound() and a bound by moving the integral over the output t into the complex plane,
    //     |M(s + i tau)| <= e^{a^2/2} integral |g(t)| e^{-tau angle(t + ia)} |turn of Q|^{-s} dt,   a > 0,
    // which decays exponentially where the loss moves with t at all. Dearer.
    double steep_log_bound(double tau) const override;

private:
    void add_part(const MixturePart& part);

    // A cell of the grid over t.
    struct Slice {
        double log_mass, p_mean, q_mean;
    };
    std::vector<Slice> slices(const MixturePart& part) const;
    // Along Im t = a: each cell's share of M(s) at most, beside e^{log_growth}, and its angle at least.
    struct SteepLine {
        struct Turned {
            double log_mass, angle;
        };
        double log_growth;
        std::vector<Turned> slices;
    };
    void add_steep_lines() const;

    std::vector<MixturePart> parts_;
    double s_, log_mgf_;
    mutable std::vector<SteepLine> steep_lines_;  // on first use
};

}  // namespace hockeystick
