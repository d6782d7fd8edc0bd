// One record of a fixed-size Gaussian sum replaced by zero: docs/mechanisms/truncated.md, section 3.
#include "pairs/tangents.hpp"

namespace hockeystick {
namespace {

class ZeroOutPair final : public Pair {
public:
    ZeroOutPair(double mu, double q, bool reversed)
        : mu_(mu), q_(q), reversed_(reversed), plain_(sampled(gaussian(mu), q, Sampling::add)) {
        if (reversed) plain_ = sampled(gaussian(mu), q, Sampling::remove);
    }

    // The pair (Q, P) has the loss -L: its view from above at x is the view from below at -x, times e^x.
    Tangent above(double x) const override {
        if (reversed_ ? x >= 0 : x < 0) return plain_->above(x);
        return reversed_ ? mirrored(doubled_below(-x), x, true) : doubled_above(x);
    }
    Tangent below(double x) const override {
        if (reversed_ ? x >= 0 : x < 0) return plain_->below(x);
        return reversed_ ? mirrored(doubled_above(-x), x, false) : doubled_below(x);
    }

    // The form for a >= 1 where L > 0, that for a < 1 where L < 0; the rest of P and of Q is equally much, as
    // both forms give q (Phi(mu/2) - Phi(-mu/2)) at a = 1, and sits at L = 0.
    std::optional<LossLaw> loss_law() const override {
        const auto terms = [this](double shift) {
            std::vector<LossPiece::Term> out{gaussian_term(std::log(q_), shift)};
            if (q_ < 1) out.push_back(gaussian_term(std::log1p(-q_), 0));
            return out;
        };
        LossLaw law;
        law.pieces = {{1.5 * mu_, infinity, true, terms(2 * mu_), terms(mu_)},
                      {0.5 * mu_, infinity, true, {gaussian_term(0, 0)}, terms(mu_)}};
        // What P has left: 1 - Pr[N(0) > mu/2] on the left, without (1-q) Pr[N(0) > 3 mu/2] + q Pr[N(0) >
        // -mu/2].
        const auto tail = [](double z) { return std::exp(-0.5 * z * z) * scaled_normal_tail(z); };
        const double at_zero = (1 - q_) * (1 - tail(0.5 * mu_) - tail(1.5 * mu_));
        if (at_zero > 0)
            law.atoms.push_back(
                {0, std::log(at_zero), 0, 64 + 2 * std::abs(std::log(at_zero)) + 64 / at_zero});
        return reversed_ ? law.swapped() : law;
    }

    std::vector<GaussianMixtures> joined_mixtures() const override {
        if (q_ == 1) return {};
        const std::vector<double> weights{1 - q_, q_};
        const JoinedHalf doubled{2 * mu_, mu_}, plain{mu_, 0};
        if (reversed_) return {{1, {0, plain.p_shift}, weights, {0}, {1}, doubled}};
        return {{1, {0, doubled.p_shift}, weights, {0, doubled.q_shift}, weights, plain}};
    }

    // That of all |v| <= mu, |w| <= 2 mu (docs/mechanisms/truncated.md, section 3).
    PairPtr looser() const override {
        if (!(mu_ < furthest_looser)) return nullptr;
        const std::vector<double> weights{1 - q_, q_};
        const double p = reversed_ ? mu_ : 2 * mu_, q = reversed_ ? 2 * mu_ : mu_;
        return location_mixture(Noise::gaussian, 1, {0, p}, weights, {0, -q}, weights);
    }

private:
    // speed: of less noise nobody asks.
    static constexpr double furthest_looser = 1e50;

    // For e^x = a >= 1. P > a Q beyond one point t: with y = e^{mu t},
    //     q e^{-2 mu^2} y^2 = a q e^{-mu^2/2} y + (a-1)(1-q),
    // a quadratic equation whose only positive root is e^{3 mu^2/2 + x} (1 + sqrt(1 + r))/2.
    struct Root {
        double z;            // t - 2 mu
        double share, rest;  // a phi(t - mu)/phi(z), and (a-1)(1-q)/q phi(t)/phi(z): together 1
        double misplaced;
    };
    Root root(double x) const {
        const double r = 4 * std::exp(-mu_ * mu_ - x) * -std::expm1(-x) * ((1 - q_) / q_);
        const double s = std::sqrt(1 + r), move = x + std::log1p(0.5 * (r / (1 + s)));
        const double rest = r < 1e100 ? r / ((1 + s) * (1 + s)) : 1.0;
        return {std::min(move / mu_ - 0.5 * mu_, farthest_out), 2 / (1 + s), rest,
                16 * u * (mu_ * mu_ + move)};
    }

    // Tails beyond t, divided by e^exponent.
    struct Tails {
        double exponent;    // -z^2/2, if z >= 0
        double p, against;  // of N(2 mu); of a N(mu) + (a-1)(1-q)/q N(0)
        double none;        // of N(0)
    };
    Tails tails(const Root& at) const {
        const double z = at.z, z1 = z + mu_, z0 = z1 + mu_;
        const double against = at.share * scaled_normal_tail(z1) + at.rest * scaled_normal_tail(z0);
        const double none = std::exp(-2 * mu_ * z1) * scaled_normal_tail(z0);
        const double bell = std::exp(-0.5 * z * z);
        if (z >= 0) return {-0.5 * z * z, scaled_normal_tail(z), against, none};
        return {0, 1 - bell * scaled_normal_tail(-z), bell * against, bell * none};
    }

    static double relative(double z) { return u * (32 + 2 * z * z); }

    Tangent doubled_above(double x) const {
        const Root at = root(x);
        const Tails tail = tails(at);
        // a Q is q times `against`, and (1-q) N(0).
        const double slope = q_ * tail.against + (1 - q_) * tail.none;
        const double moved = 16 * u * (1 + std::abs(x) + mu_ * mu_ + at.z * at.z);
        const double error = q_ * (relative(at.z) * tail.p + moved * tail.against);
        return {q_ * (tail.p - tail.against), slope, tail.exponent, error, relative(at.z), at.misplaced};
    }

    // Scaled by e^x, as Q(L <= x) is never small here.
    Tangent doubled_below(double x) const {
        const Root at = root(x);
        const auto left = [](double z) {  // Pr[N(0,1) <= z]
            const double bell = std::exp(-0.5 * z * z);
            return z < 0 ? bell * scaled_normal_tail(-z) : 1 - bell * scaled_normal_tail(z);
        };
        const double none = (1 - q_) * left(at.z + 2 * mu_);
        const double q_left = none + q_ * left(at.z + mu_), p_left = none + q_ * left(at.z);
        return {q_left - std::exp(-x) * p_left, q_left,      x, 64 * u * q_left,
                relative(std::min(at.z, 0.0)),  at.misplaced};
    }

    static Tangent mirrored(Tangent t, double x, bool above) {
        // From below: value = e^y Q(L<=y) - P(L<=y), slope = e^y Q(L<=y), y = -x. From above likewise.
        t.slope = above ? t.slope - t.value : t.slope + t.value;
        t.exponent += x;
        t.error += 4 * u * (std::abs(t.value) + std::abs(t.slope));
        return t;
    }

    double mu_, q_;
    bool reversed_;
    PairPtr plain_;
};

}  // namespace

PairPtr zero_out(double mu, double q, Sampling mode) {
    require(std::isfinite(mu) && mu > 0, "zero_out: mu must be finite and positive");
    require(q > 0 && q <= 1, "zero_out: q must lie in (0, 1]");
    require(mode != Sampling::replace_one, "zero_out: mode must be remove or add");
    return std::make_shared<ZeroOutPair>(mu, q, mode == Sampling::add);
}

}  // namespace hockeystick
