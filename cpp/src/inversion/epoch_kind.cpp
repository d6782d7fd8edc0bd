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
// Speed: infinite losses of more mass are left to others.
constexpr double next_to_nothing = 1e-100;

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
    // missing_p, missing_q: of infinite losses, of which neither transform is.
    WholeKind(std::unique_ptr<const Transform> whole, std::unique_ptr<const Transform> inverse, double steps,
              double missing_p = 0, double missing_q = 0)
        : EpochKind(steps),
          whole_(std::move(whole)),
          inverse_(std::move(inverse)),
          variance_(whole_->at(0).second),
          missing_p_(missing_p),
          missing_q_(missing_q) {}
    double variance() const override { return variance_; }
    double log_inverse(double t) const override { return inverse_->at(t).upper; }
    double dropped() const override { return whole_->dropped() + missing_p_; }
    double impossible() const override { return missing_q_; }
    std::unique_ptr<KindParts> parts(double, double) const override {
        return std::make_unique<WholeParts>(whole_);
    }

private:
    std::shared_ptr<const Transform> whole_;
    std::unique_ptr<const Transform> inverse_;  // of the pair (Q, P)
    double variance_, missing_p_, missing_q_;
};

// A sampled Gaussian, taken with some probability, which is released: P a mixture of N(shift, 1), all shifts
// at least 0, Q = N(0, 1). Its loss increases with the output.
struct Branch {
    double weight;
    MixtureRatio p;

    double p_tail(double g) const {
        double sum = 0;
        for (std::size_t i = 0; i < p.shifts().size(); ++i)
            sum += p.weights()[i] * gaussian_tail(g - p.shifts()[i]);
        return sum;
    }
};
using Branches = std::vector<Branch>;

// What normal tails at g round by, beside 64 units of round-off.
double tail_units(double g) { return 1 + 0.125 * g * g; }

// speed: between which a place is looked for, in normal standard deviations, and how closely.
constexpr double farthest_place = 37;
constexpr int halvings = 50;

template <class Holds>
double first_where(double low, double high, Holds holds) {
    for (int i = 0; i < halvings; ++i) {
        const double middle = 0.5 * (low + high);
        (holds(middle) ? high : low) = middle;
    }
    return high;
}

// The outputs whose loss exceeds a given one: where they begin in each branch, or infinity; their masses.
struct Tails {
    std::vector<double> g;
    double p = 0, q = 0, farthest = 0;

    Tails(const Branches& branches, double loss) {
        for (const Branch& branch : branches) {
            const double end = farthest_place + branch.p.high();
            const auto exceeds = [&](double x) { return branch.p.log(x).value > loss; };
            g.push_back(loss < infinity && exceeds(end) ? first_where(0, end, exceeds) : infinity);
            if (g.back() < infinity) farthest = std::max(farthest, g.back());
        }
        for (std::size_t i = 0; i < g.size(); ++i) {
            p += branches[i].weight * branches[i].p_tail(g[i]);
            q += branches[i].weight * gaussian_tail(g[i]);
        }
    }
};

// The law between them, each side divided by a mass.
LossLaw law_between(const Branches& branches, const std::vector<double>& low, const std::vector<double>& high,
                    double p_mass, double q_mass) {
    LossLaw law;
    for (std::size_t k = 0; k < branches.size(); ++k) {
        if (!(low[k] < high[k])) continue;
        const auto& [weight, ratio] = branches[k];
        LossPiece piece{low[k], high[k], true, {}, {gaussian_term(std::log(weight) - std::log(q_mass), 0)}};
        for (std::size_t i = 0; i < ratio.shifts().size(); ++i)
            piece.p.push_back(
                gaussian_term(std::log(weight * ratio.weights()[i]) - std::log(p_mass), ratio.shifts()[i]));
        law.pieces.push_back(std::move(piece));
    }
    return law;
}

std::shared_ptr<const Transform> below(const Branches& branches, const Tails& tails, double tolerance) {
    const std::vector<double> all(branches.size(), -infinity);
    LossLaw law = law_between(branches, all, tails.g, 1, 1);
    law.missing_p = tails.p;
    law.missing_q = tails.q;
    law.missing_size = (law.missing_p + law.missing_q) * tail_units(tails.farthest);
    return std::make_shared<LossTransform>(std::move(law), tolerance);
}

class SampledParts final : public WholeParts {
public:
    SampledParts(const Branches& branches, const Tails& first, const Tails& second, double tolerance)
        : WholeParts(below(branches, has_rest(first, second) ? first : second, tolerance)) {
        if (!has_rest(first, second)) return;
        const double p_mass = first.p - second.p, q_mass = first.q - second.q,
                     farthest = tail_units(std::max(first.farthest, second.farthest)),
                     sums = std::max((first.p + second.p) / p_mass, (first.q + second.q) / q_mass);
        log_p_ = std::log(p_mass), log_q_ = std::log(q_mass);
        units_ = 64 * farthest * sums;
        LossLaw law = law_between(branches, first.g, second.g, p_mass, q_mass);
        law.missing_size = farthest * sums;
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
    static bool has_rest(const Tails& first, const Tails& second) {
        bool apart = false;
        for (std::size_t i = 0; i < first.g.size(); ++i)
            apart = apart || second.g[i] > first.g[i] + least_between;
        return apart && first.p > second.p && first.q > second.q;
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

// A place is a loss.
class SampledKind final : public WholeKind {
public:
    SampledKind(std::unique_ptr<const Transform> whole, std::unique_ptr<const Transform> inverse,
                Branches branches, double steps)
        : WholeKind(std::move(whole), std::move(inverse), steps), branches_(std::move(branches)) {}

    bool can_split() const override { return true; }
    double place_alone(double least) const override { return least; }
    double place_of(double loss) const override { return loss; }
    double place_of_mass(double mass) const override {
        double most = 0;
        for (const auto& [weight, ratio] : branches_)
            most = std::max(most, ratio.log(farthest_place + ratio.high()).value);
        return first_where(0, most, [&](double loss) { return Tails(branches_, loss).p < mass; });
    }
    Beyond beyond(double loss) const override {
        const Tails tails(branches_, loss);
        double least = infinity;
        for (std::size_t i = 0; i < branches_.size(); ++i) {
            if (tails.g[i] == infinity) continue;
            const MixtureRatio::Log log = branches_[i].p.log(tails.g[i]);
            least = std::min(least, log.value - u * log.slack);
        }
        return {least, loss, tails.p, tails.q, std::log1p(-tails.p), std::log1p(-tails.q), tails.farthest};
    }
    std::unique_ptr<KindParts> parts(double first, double second) const override {
        return std::make_unique<SampledParts>(branches_, Tails(branches_, first), Tails(branches_, second),
                                              search_tolerance / count);
    }

private:
    Branches branches_;
};

// Empty where some mixture is another.
Branches branches_of(const std::vector<GaussianMixtures>& mixtures) {
    Branches out;
    for (const GaussianMixtures& m : mixtures) {
        const MixtureRatio ratio(m.p_shift, m.p_weight);
        if (m.q_shift != std::vector<double>{0} || !(ratio.low() >= 0 && ratio.high() > 0)) return {};
        out.push_back({m.weight, ratio});
    }
    return out;
}

}  // namespace

std::unique_ptr<EpochKind> EpochKind::of(const Pair& pair, double count) {
    if (pair.q_mass() != 1.0) return nullptr;
    const double tolerance = search_tolerance / count;
    double missing_p = 0, missing_q = 0;
    std::unique_ptr<const Transform> whole = Transform::of(pair, tolerance), inverse;
    if (!whole) return nullptr;
    if (const auto law = pair.allocation()) {  // of direction remove, as all in three parts
        inverse = Transform::of(*random_allocation(law->mu, law->steps, Sampling::add), tolerance);
    } else if (const auto mixtures = pair.gaussian_mixtures(); !mixtures.empty()) {
        inverse = std::make_unique<Mgf>(reversed(mixtures), tolerance);
        if (auto branches = branches_of(mixtures); !branches.empty())
            return std::make_unique<SampledKind>(std::move(whole), std::move(inverse), std::move(branches),
                                                 count);
    } else if (const auto loss_law = pair.loss_law()) {
        if (std::max(loss_law->missing_p, loss_law->missing_q) > next_to_nothing) return nullptr;
        missing_p = loss_law->missing_p, missing_q = loss_law->missing_q + 64 * u * loss_law->missing_size;
        inverse = std::make_unique<LossTransform>(loss_law->swapped(), tolerance);
    }
    if (!inverse || inverse->dropped() > 0) return nullptr;
    return std::make_unique<WholeKind>(std::move(whole), std::move(inverse), count, missing_p, missing_q);
}

}  // namespace hockeystick
