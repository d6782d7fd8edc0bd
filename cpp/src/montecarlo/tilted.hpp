// Importance sampling of delta: outputs from a mixture R of laws that are heavier where the loss is large,
// with weights P/R that never exceed a known bound (docs/montecarlo/tilted.md, sections 1 to 8).
//
// delta(epsilon) = E_R[Y], Y = (P/R) (1 - e^{epsilon - L})_+, L = ln P/Q. With S_a of weight pi_a in R,
// P/R <= M_a e^{-(a-1) L}/pi_a, so 0 <= Y <= B = min_a (M_a/pi_a) max_{L > epsilon} e^{-(a-1) L} (1 -
// e^{epsilon-L}) = min_a (M_a/pi_a) e^{-(a-1) epsilon} (1/a) (1 - 1/a)^{a-1}, whatever the other components.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "hockeystick/estimate.hpp"
#include "montecarlo/proposal.hpp"

namespace hockeystick {

// One component of R. order >= 2: S_order; 0: T of this tilt (theta 1, shift 0 is P).
struct Component {
    double weight;  // >= 0; a component of weight 0 is only evaluated
    int order;
    Tilt tilt;
};

// Samples of the direction H(P||Q). Rows: L, ln R/Q, and ln of each component's density over Q.
//
// The truncated scheme: given the public counts r, which are drawn first, P_r and Q_r take the places of P
// and Q in L, Y and the components T. Order 2 is U^2/(M R), U >= P_r the envelope (the same for all r, so
// that one table serves), R = N(0, sigma^2), M = E_R[(U/R)^2]: with Q_r >= q_0 R and weight pi,
//     Y <= M (P_r/R - e^epsilon q_0)_+ / (pi (U/R)^2) <= M e^-epsilon / (4 q_0 pi).
// Direction add: the same with Q_r and P_r swapped, for this scheme only. Where more than most_others others
// are sampled in some round, L is -infinity: Y = 0.
//
// Direction replace_one: Q(y) = P(-y) >= p_0 R, p_0 the probability of no participation, S_a = P^a
// R^{1-a}/M_a (truncated: U^2/(M R)), and with weight pi
//     Y <= M_a (P/R - e^epsilon p_0)_+ / (pi (P/R)^a)
//       <= (M_a/pi) (e^epsilon p_0)^{-(a-1)} (1/a) (1 - 1/a)^{a-1}.
class TiltedSampler final : public BlockSampler {
public:
    // Throws std::invalid_argument for parameters out of range, for schemes without an exact density or
    // table, and unless the weights are >= 0 and add up to 1 (they are scaled to do so exactly) and S_a or P
    // has a positive one. Tables are those of `like`, a sampler of the same mechanism with other components,
    // as far as it has them: they may take longer than the samples of a pilot.
    TiltedSampler(MatrixMechanism mechanism, std::vector<Component> components,
                  std::uint64_t most_others = std::uint64_t{1} << 62, Direction direction = Direction::remove,
                  const TiltedSampler* like = nullptr);

    // ln M_a of component k (where Q is a mixture, >= q_0 R: of M_a/q_0^{a-1}, with which P/R <= that / pi
    // times e^{-(a-1) L}), or for T its ln sum_x p_x theta^|x|. Throws std::out_of_range.
    double log_normaliser(std::size_t k) const;
    // ln B, without allowance for rounding.
    double log_bound(double epsilon) const;

    // Y/B, B = e^log_scale, for each epsilon: [epsilon][sample]. What is not a number counts as 1.
    std::vector<double> values(std::uint64_t seed, std::span<const double> epsilons, double log_scale,
                               std::uint64_t first, std::size_t blocks) const;

private:
    struct Truncation;
    class Group;

    std::shared_ptr<const MeanLaw> order_law(int order);
    void check_scheme() const;
    void check_components();
    void add_tilted_mixtures(Numerator numerator);
    void weigh(const Rows& densities, std::size_t s, double below, double bound, double* rows) const;
    void sample_group(const BlockStream& stream, std::size_t lane, double* rows,
                      Draws* record) const override;

    std::vector<Component> components_;
    std::vector<std::shared_ptr<const MeanLaw>> laws_;
    std::map<int, std::shared_ptr<const MeanLaw>> tables_;  // by order, also those that `like` had
    std::vector<double> log_normalisers_;
    std::vector<Mixture> mixtures_;   // of P, then of the T other than P, those of a shift together
    std::size_t densities_ = 1;       // rows of all of them
    std::vector<std::size_t> slots_;  // which row component k reads; 0: P's
    double log_none_ = 0;             // ln of what R has in Q at least, where Q is another mixture
    std::shared_ptr<const Truncation> truncation_;  // nullptr for all other schemes
    std::shared_ptr<const Mixture> mirror_;         // Q of replace_one, else nullptr
};

// Y/B: (P/R) (1 - e^{epsilon - loss})_+ e^{-log_scale}; not a number: 1.
double tilted_value(double epsilon, double loss, double log_ratio, double log_scale) noexcept;

}  // namespace hockeystick
