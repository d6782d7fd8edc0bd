// Gaussian noise: N(mu, 1) against N(0, 1), in closed form (docs/accounting/bounds.md, "One step on a
// lattice").

#include "pairs/tangents.hpp"

namespace hockeystick {
namespace {

// P = N(mu,1), Q = N(0,1): L ~ N(mu^2/2, mu^2) under P. In standard units
// z = (x - mu^2/2)/mu under P and z + mu under Q, and e^x phi(z + mu) = phi(z): both tails share
// the factor e^{-z^2/2}, which goes into the exponent.
class GaussianPair final : public Pair {
public:
    explicit GaussianPair(double mu) : mu_(mu) {}

    Tangent above(double x) const override {
        const double z = standard(x), zq = z + mu_, square = -0.5 * z * z;
        if (z >= 0) {
            const double p = scaled_normal_tail(z), q = scaled_normal_tail(zq);
            return {p - q, q, square, error(x, z, p, q), relative(z), misplaced(x)};
        }
        const double bell = std::exp(square);
        const double p = 1 - bell * scaled_normal_tail(-z);
        const double q =
            zq >= 0 ? bell * scaled_normal_tail(zq) : std::exp(x) - bell * scaled_normal_tail(-zq);
        return {p - q, q, 0.0, error(x, 0, p, q), relative(z), misplaced(x)};
    }

    Tangent below(double x) const override {
        const double z = standard(x), zq = z + mu_, square = -0.5 * z * z;
        if (zq <= 0) {
            const double p = scaled_normal_tail(-z), q = scaled_normal_tail(-zq);
            return {q - p, q, square, error(x, z, q, q), relative(z), misplaced(x)};
        }
        // Scaled by e^x, because Q(L <= x) is no longer small.
        const double bell = std::exp(-0.5 * zq * zq);  // = e^{-z^2/2} e^{-x}
        const double q = 1 - bell * scaled_normal_tail(zq);
        const double p = z <= 0 ? bell * scaled_normal_tail(-z) : std::exp(-x) - bell * scaled_normal_tail(z);
        return {q - p, q, x, error(x, 0, q, q) + u * zq * zq * p, relative(zq), misplaced(x)};
    }

    std::vector<GaussianMixtures> gaussian_mixtures() const override { return {{1, {mu_}, {1}, {0}, {1}}}; }
    std::optional<LossLaw> loss_law() const override {
        LossLaw law;
        law.pieces = {{-infinity, infinity, true, {gaussian_term(0, mu_)}, {gaussian_term(0, 0)}}};
        return law;
    }

private:
    double standard(double x) const { return std::clamp(x / mu_ - 0.5 * mu_, -farthest_out, farthest_out); }

    // First-order effect of rounding z (it moves x) and of the tail function itself.
    double error(double x, double z, double tail, double slope) const {
        return relative(z) * tail + (8 * u + misplaced(x)) * slope;
    }
    // The same two effects, apart.
    static double relative(double z) { return u * (24 + 2 * z * z); }
    double misplaced(double x) const { return 8 * (u * std::abs(x) + u * mu_ * mu_); }

    double mu_;
};

}  // namespace

double plain_gaussian_mu(const Pair& pair) {
    const auto mixtures = pair.gaussian_mixtures();
    if (mixtures.size() != 1 || mixtures[0].p_shift.size() != 1 || mixtures[0].q_shift.size() != 1) return 0;
    return mixtures[0].p_shift[0] - mixtures[0].q_shift[0];
}

PairPtr gaussian(double mu) {
    require(std::isfinite(mu) && mu > 0, "gaussian: mu must be finite and positive");
    return std::make_shared<GaussianPair>(mu);
}

}  // namespace hockeystick
