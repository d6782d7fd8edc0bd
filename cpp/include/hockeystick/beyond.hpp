// The outputs beyond a cut as a measure of their losses, B(z) = E_P[kappa e^{zL}].
//
// Where a record is hardly ever sampled, or in a few steps, most outputs have losses within a hair of each
// other, and M(z) hardly decays: its law is nearly an atom. B decays, to full relative precision.
#pragma once

#include <complex>
#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "hockeystick/mixture.hpp"
#include "hockeystick/transform.hpp"

namespace hockeystick {

class Beyond {
public:
    // Parts that begin somewhere; shifts of P are not negative, those of Q not positive.
    explicit Beyond(std::vector<MixturePart> parts) : parts_(std::move(parts)) {}

    // ln B at a real s >= 0 with its first two derivatives, and bounds about 1e-7 apart. `upper` is infinite
    // where too many nodes were needed.
    struct Real {
        double value, first, second, lower, upper;
    };
    Real at(double s) const;

    // B(s + i j step) e^{-shift} for j = 0, ..., size - 1, with error bounds; empty as in Transform.
    // tolerance: wanted of the rule, beside B(s). Along a line Im t = a > 0 the integrand falls with the
    // frequency, so that nodes need not follow it.
    Transform::Row row(double s, double step, std::size_t size, double tolerance) const;

    // log_b: an upper bound on ln B(s); then |B(s + i tau')| <= e^{log_b + log_bound(tau)} for all tau' >=
    // tau.
    std::unique_ptr<DecayBound> decay(double s, double log_b) const;

private:
    // A node on a line Im t = a: weight e^{i tau loss}, with the errors of the weight (relative) and of the
    // loss in units of round-off.
    struct Term {
        std::complex<double> loss, weight;
        double fixed, turning;
    };
    static void add(const std::vector<Term>& terms, double step, double negligible, Transform::Row& row);
    // Nodes for tilts from low to high.
    static MixtureNodes make_nodes(const MixturePart& part, double h, double low, double high,
                                   double tolerance);
    // The rest of the sum beyond the nodes' ends.
    static double omitted(const MixturePart& part, const MixtureNodes& nodes, double s, double shift);
    const std::vector<MixtureNodes>& nodes_up_to(int k) const;

    std::vector<MixturePart> parts_;
    mutable std::map<int, std::vector<MixtureNodes>> cache_;  // for at(), by the power of two above s
};

}  // namespace hockeystick
