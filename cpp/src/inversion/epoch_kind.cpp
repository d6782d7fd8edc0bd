#include "inversion/epoch_kind.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "inversion/loss_transform.hpp"
#include "inversion/mgf.hpp"
#include "inversion/transform.hpp"
#include "numerics/constants.hpp"
#include "numerics/special.hpp"
#include "pairs/mixture.hpp"

namespace hockeystick {
namespace {

// Speed: what a step's transform is searched at, and the least error its rows aim at.
constexpr double search_tolerance = 1e-3, least_tolerance = 1e-22;

// The transform of a whole measure, and how it falls along a line.
class LaidTransform {
public:
    explicit LaidTransform(std::shared_ptr<const Transform> transform) : transform_(std::move(transform)) {}
    double log_at(double s) const { return (laid_ ? transform_->for_line(s, s_) : transform_->at(s)).upper; }
    // There is no line then.
    void lift() { laid_ = false; }
    void lay(double s) {
        laid_ = true;
        s_ = s;
        log_ = log_at(s);
        decay_ = transform_->decay(s, log_);
    }
    double s() const { return s_; }
    double log_bound(double tau) const { return log_ + std::min(0.0, decay_->log_bound(tau)); }
    PartRow row(double step, std::size_t size, double log_wanted) const {
        auto row = transform_->row(s_, step, size, std::max(std::exp(log_wanted), least_tolerance));
        return {std::move(row.value), std::move(row.error), row.shift, true};
    }

private:
    std::shared_ptr<const Transform> transform_;
    bool laid_ = false;
    double s_ = 0, log_ = 0;
    std::unique_ptr<DecayBound> decay_;
};

// All outcomes are in the bulk.
class WholeParts : public KindParts {
public:
    explicit WholeParts(std::shared_ptr<const Transform> transform) : bulk_(std::move(transform)) {}
    double log_bulk(double s) const override { return bulk_.log_at(s); }
    void lay(double s, bool bulk, bool) override { bulk ? bulk_.lay(s) : bulk_.lift(); }
    double log_bulk_at(double tau) const override { return bulk_.log_bound(tau); }
    PartRow bulk(double step, std::size_t size, double log_wanted) const override {
        return bulk_.row(step, size, log_wanted);
    }

private:
    LaidTransform bulk_;
};

class WholeKind : public EpochKind {
public:
    WholeKind(std::unique_ptr<const Transform> whole, std::unique_ptr<const Transform> inverse, double steps)
        : EpochKind(steps),
          whole_(std::move(whole)),
          inverse_(std::move(inverse)),
          variance_(whole_->at(0).second) {}
    double variance() const override { return variance_; }
    double log_inverse(double t) const override { return inverse_->at(t).upper; }
    double dropped() const override { return whole_->dropped(); }
    std::unique_ptr<KindParts> parts(double, double) const override {
        return std::make_unique<WholeParts>(whole_);
    }

private:
    std::shared_ptr<const Transform> whole_;
    std::unique_ptr<const Transform> inverse_;  // of the pair (Q, P)
    double variance_;
};

// A sampled Gaussian: P a mixture of N(shift, 1), all shifts at least 0, Q = N(0, 1). Its loss increases with
// the output.
using Mixture = MixtureRatio;

double p_tail(const Mixture& p, double g) {
    double sum = 0;
    for (std::size_t i = 0; i < p.shifts().size(); ++i)
        sum += p.weights()[i] * gaussian_tail(g - p.shifts()[i]);
    return sum;
}

// What normal tails at g round by, beside 64 units of round-off.
double tail_units(double g) { return 1 + 0.125 * g * g; }

// The law between two places, each side divided by a mass.
LossLaw law_between(const Mixture& p, double low, double high, double p_mass, double q_mass) {
    LossPiece piece{low, high, true, {}, {gaussian_term(-std::log(q_mass), 0)}};
    for (std::size_t i = 0; i < p.shifts().size(); ++i)
        piece.p.push_back(gaussian_term(std::log(p.weights()[i]) - std::log(p_mass), p.shifts()[i]));
    LossLaw law;
    law.pieces.push_back(std::move(piece));
    return law;
}

std::shared_ptr<const Transform> below(const Mixture& p, double g, double tolerance) {
    LossLaw law = law_between(p, -infinity, g, 1, 1);
    law.missing_p = p_tail(p, g);
    law.missing_q = gaussian_tail(g);
    law.missing_size = (law.missing_p + law.missing_q) * tail_units(g);
    return std::make_shared<LossTransform>(std::move(law), tolerance);
}

class SampledParts final : public WholeParts {
public:
    SampledParts(const Mixture& p, double first, double second, double tolerance)
        : WholeParts(below(p, has_rest(first, second) ? first : second, tolerance)) {
        if (!has_rest(first, second)) return;
        const double p_mass = p_tail(p, first) - p_tail(p, second),
                     q_mass = gaussian_tail(first) - gaussian_tail(second);
        log_p_ = std::log(p_mass), log_q_ = std::log(q_mass);
        const double sums = std::max((p_tail(p, first) + p_tail(p, second)) / p_mass,
                                     (gaussian_tail(first) + gaussian_tail(second)) / q_mass);
        units_ = 64 * tail_units(second) * sums;
        LossLaw law = law_between(p, first, second, p_mass, q_mass);
        law.missing_size = tail_units(second) * sums;
        rest_.emplace(std::make_shared<LossTransform>(std::move(law), tolerance));
    }

    bool split() const override { return rest_.has_value(); }
    double log_rest(double s) const override {
        return rest_ ? rest_->log_at(s) + moved(s) + 2 * units_ * u * (1 + std::abs(s)) : -infinity;
    }
    void lay(double s, bool bulk, bool rest) override {
        WholeParts::lay(s, bulk, rest);
        if (rest_) rest ? rest_->lay(s) : rest_->lift();
    }
    double log_rest_at(double tau) const override {
        const double s = rest_ ? rest_->s() : 0;
        return rest_ ? rest_->log_bound(tau) + moved(s) + 2 * units_ * u * (1 + std::abs(s)) : -infinity;
    }
    // E_P[(dP/dQ)^z; B] is that of the law given B, whose loss is less by ln P(B)/Q(B).
    PartRow rest(double step, std::size_t size, double log_wanted) const override {
        PartRow row = rest_->row(step, size, log_wanted);
        const double s = rest_->s();
        for (std::size_t j = 0; j < row.value.size(); ++j) {
            const double tau = step * static_cast<double>(j), turn = tau * (log_p_ - log_q_);
            const Complex whole = row.value[j] + 1.0;
            row.value[j] = whole * std::polar(1.0, turn);
            row.error[j] += u * (std::abs(whole) + row.error[j]) *
                            (16 + 4 * std::abs(turn) + 2 * units_ * (1 + std::abs(s) + tau) + 4 * row.shift);
        }
        row.shift += moved(s);
        row.less_one = false;
        return row;
    }

private:
    // speed: what lies between closer cuts belongs to A.
    static constexpr double least_between = 0.01;
    static bool has_rest(double first, double second) {
        return second > first + least_between && gaussian_tail(first) > gaussian_tail(second);
    }
    double moved(double s) const { return (1 + s) * log_p_ - s * log_q_; }

    std::optional<LaidTransform> rest_;         // of the law given B
    double log_p_ = 0, log_q_ = 0, units_ = 0;  // of B, and what they round by
};

// The pair (Q, P), mirrored so that the loss increases with the output.
std::vector<GaussianMixtures> reversed(std::vector<GaussianMixtures> mixtures) {
    const auto negate = [](std::vector<double>& shifts) {
        for (double& shift : shifts) shift = -shift;
    };
    for (GaussianMixtures& m : mixtures) {
        std::swap(m.p_shift, m.q_shift);
        std::swap(m.p_weight, m.q_weight);
        negate(m.p_shift);
        negate(m.q_shift);
    }
    return mixtures;
}

// speed: between which a place is looked for, in normal standard deviations, and how closely.
constexpr double farthest_place = 37;
constexpr int halvings = 50;

class SampledKind final : public WholeKind {
public:
    SampledKind(std::unique_ptr<const Transform> whole, std::unique_ptr<const Transform> inverse,
                const Mixture& p, double steps)
        : WholeKind(std::move(whole), std::move(inverse), steps), p_(p) {}

    bool can_split() const override { return true; }
    double place_alone(double least) const override {
        return first_where([&](double g) { return p_.log(g).value > least; });
    }
    double place_of(double loss) const override { return place_alone(loss); }
    double place_of_mass(double mass) const override {
        return first_where([&](double g) { return p_tail(p_, g) < mass; });
    }
    Beyond beyond(double g) const override {
        const double p = p_tail(p_, g), q = gaussian_tail(g);
        const Mixture::Log log = p_.log(g);
        return {log.value - u * log.slack, log.value, p, q, std::log1p(-p), std::log1p(-q)};
    }
    std::unique_ptr<KindParts> parts(double first, double second) const override {
        return std::make_unique<SampledParts>(p_, first, second, search_tolerance / count);
    }

private:
    template <class Holds>
    double first_where(Holds holds) const {
        double low = 0, high = farthest_place + p_.high();
        for (int i = 0; i < halvings; ++i) {
            const double middle = 0.5 * (low + high);
            (holds(middle) ? high : low) = middle;
        }
        return high;
    }
    Mixture p_;
};

}  // namespace

std::unique_ptr<EpochKind> EpochKind::of(const Pair& pair, double count) {
    if (pair.infinity_mass() > 0 || pair.q_mass() != 1.0) return nullptr;
    const double tolerance = search_tolerance / count;
    std::unique_ptr<const Transform> whole = Transform::of(pair, tolerance), inverse;
    if (!whole) return nullptr;
    if (const auto law = pair.allocation()) {
        inverse = Transform::of(
            *random_allocation(law->mu, law->steps, law->add ? Sampling::remove : Sampling::add), tolerance);
    } else if (const auto mixtures = pair.gaussian_mixtures(); !mixtures.empty()) {
        inverse = std::make_unique<Mgf>(reversed(mixtures), tolerance);
        const GaussianMixtures& only = mixtures.front();
        if (mixtures.size() == 1 && only.p_shift.size() > 1 && only.q_shift == std::vector<double>{0})
            return std::make_unique<SampledKind>(std::move(whole), std::move(inverse),
                                                 Mixture(only.p_shift, only.p_weight), count);
    } else if (const auto loss_law = pair.loss_law()) {
        if (loss_law->missing_p > 0 || loss_law->missing_q > 0) return nullptr;
        inverse = std::make_unique<LossTransform>(loss_law->swapped(), tolerance);
    }
    if (!inverse || inverse->dropped() > 0) return nullptr;
    return std::make_unique<WholeKind>(std::move(whole), std::move(inverse), count);
}

}  // namespace hockeystick
