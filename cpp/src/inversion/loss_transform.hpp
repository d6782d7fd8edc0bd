// The transform of a loss with atoms and smooth pieces: sums over the atoms, Gauss-Legendre rules over panels
// of the pieces. Their error follows from a bound on the analytic integrand p^{1+z} q^{-z} on ellipses.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "hockeystick/loss_law.hpp"
#include "inversion/loss_sum.hpp"
#include "inversion/rectangles.hpp"
#include "inversion/transform.hpp"

namespace hockeystick {

class LossTransform final : public Transform {
public:
    // tolerance, cut_mass: as in Transform::of. spacing: if positive, all losses are multiples of it, but for
    // an offset; then there are no pieces. joined: Pair::joined_mixtures() of the pair.
    LossTransform(LossLaw law, double tolerance, double cut_mass = 0, double spacing = 0,
                  const std::vector<GaussianMixtures>& joined = {});

    bool can_cut() const override { return law_.group_weight.size() > 1; }
    bool can_drop() const override { return !law_.atoms.empty() && !(spacing_ > 0); }
    std::vector<MixturePart> mixtures() const override { return joined_; }
    double dropped() const override { return dropped_; }
    double atoms() const override;
    double zero_mass() const override;
    bool can_decay() const override { return !law_.pieces.empty(); }
    Cumulant at(double s) const override;
    Row row(double s, double step, std::size_t size, double tolerance) const override;
    std::unique_ptr<DecayBound> decay(double s, double log_mgf) const override;

private:
    // An ellipse around a panel: ln p and ln q at the centre, their slopes at the ends.
    struct Around {
        double centre, p, q, p_left, p_right, q_left, q_right;
    };
    // The rule on one piece: panels of equal width between low and high.
    struct Panels {
        const LossPiece* piece;
        double low, high, half, turn, p_spread, q_spread;
        std::vector<std::vector<Around>> around;  // for each size of ellipse
        std::vector<double> turns;                // as is this, of the loss off the axis
        // ln of the rule's error for p^{1+z} q^{-z} at z = s + i tau, as the least of several lines in tau.
        struct Line {
            double offset, slope;
        };
        std::vector<Line> errors(double s) const;
        static double least(const std::vector<Line>& errors, double tau);
        double log_error(double s, double tau) const { return least(errors(s), tau); }
        // What lies beyond the ends, where the piece goes on.
        double omitted(double s) const;
    };
    // Nodes of all rules, and the atoms.
    struct Nodes : LossNodes {
        std::vector<Panels> panels;
        double plain = 0;  // error of the integrals of p and q themselves
        bool failed = false;
    };
    // Panels good to tolerance e^{K(s)}, by an estimate of K, for the increasing tilts and up to the
    // frequency (docs/accounting/bounds.md, "Exact inversion of losses with atoms").
    Nodes make_nodes(const std::vector<double>& all_tilts, double tau, double tolerance, double most) const;
    struct Tilt {
        double s, log_scale;  // log_scale: the estimate of K(s)
    };
    static std::optional<Panels> make_panels(const LossPiece& piece, const std::vector<Tilt>& tilts,
                                             double tau, double tolerance, double most);
    static void add_nodes(const Panels& panels, Nodes& nodes);
    double log_scale(double s) const;
    const Nodes& nodes_up_to(int k) const;

    LossLaw law_;
    std::vector<MixturePart> joined_;
    double tolerance_, spacing_, dropped_;
    mutable int first_failure_ = 1 << 20;  // the least power for which too many nodes were needed
    mutable std::map<int, Nodes> cache_;   // for at(), by the power of two above s
};

}  // namespace hockeystick
