// The moment generating function M(z) = E_P[e^{zL}] of a Gaussian mixture pair's loss, in the complex
// plane, with error bounds.
//
// With psi(y) = e^y - 1 - y and E_P[e^{-L}] = 1,
//     M(z) - 1 = E_P[ psi(zL) + z psi(-L) ],
// where nothing cancels, so that T ln M(z) stays exact for T = 1e9 nearly silent steps. The expectation is
// an integral over the output t in the real line, by the trapezoidal rule. The integrand
// P^{1+z} Q^{-z} is analytic in a strip around it, and the rule's error falls exponentially with the
// strip's width over the step. For high frequencies the rule is along a line Im t = a, where they ask for no
// more nodes (docs/accounting/bounds.md, "Exact inversion").
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "inversion/transform.hpp"
#include "pairs/mixture.hpp"

namespace hockeystick {

class Mgf final : public Transform {
public:
    // Arguments as in Transform::of.
    Mgf(const std::vector<GaussianMixtures>& mixtures, double tolerance, double cut_mass = 0);
    bool can_cut() const override;
    double dropped() const override { return dropped_; }

    Cumulant at(double s) const override;
    // `tolerance` is that of the rule's aliasing.
    Row row(double s, double step, std::size_t size, double tolerance) const override;
    std::unique_ptr<DecayBound> decay(double s, double log_mgf) const override;
    double rare_shift() const override;
    std::vector<MixturePart> mixtures() const override;

    const std::vector<MixturePart>& parts() const noexcept { return parts_; }

private:
    using Nodes = MixtureNodes;
    const std::vector<Nodes>& nodes_up_to(int k) const;
    const std::vector<Nodes>& nodes_for(double s) const;
    // Of one part: M(s) - 1, its first two derivatives, and the first one's error, all over e^shift.
    struct Moments {
        double value, first, second, error;
    };
    Moments moments(const MixturePart& part, const Nodes& nodes, double s, double shift) const;
    std::optional<double> log_moment(std::size_t part, double s) const;
    static Nodes make_nodes(const MixturePart& part, double h, double low, double high, double reach);
    // An end of the nodes: ln of P's density and the loss there.
    struct End {
        double t, log_p, loss;
    };
    // Bound on what the rule leaves out beyond the ends, on the real line.
    static double omitted(const MixturePart& part, const End& low, const End& high, double s, double modulus,
                          double shift);
    static double omitted(const MixturePart& part, const Nodes& nodes, double s, double modulus,
                          double shift);
    struct Rule;
    static std::optional<Rule> line_rule(const MixturePart& part, double s, double end, double tolerance);
    std::optional<Rule> real_rule(std::size_t part, double s, double end, std::size_t size,
                                  double tolerance) const;
    // Frequencies first <= j < last of one part, but for the rule's aliasing; |M - 1| at the first.
    static double add_band(const MixturePart& part, const Rule& rule, double s, double step,
                           std::size_t first, std::size_t last, double tolerance, Row& row);

    std::vector<MixturePart> parts_;
    double tolerance_, dropped_ = 0, rare_ = 0;        // rare_: of the parts that are left out altogether
    mutable std::map<int, std::vector<Nodes>> cache_;  // for at(), by the power of two above s
};

}  // namespace hockeystick
