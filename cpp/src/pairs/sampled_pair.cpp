// A mechanism on a sampled batch: a multiple of the base pair's profile at another loss
// (docs/accounting/bounds.md, "One step on a lattice"; replace_one: docs/mechanisms/replacement.md, section
// 4).

#include <optional>
#include <utility>

#include "numerics/special.hpp"
#include "pairs/tangents.hpp"

namespace hockeystick {
namespace {

class SampledPair final : public Pair {
public:
    SampledPair(PairPtr base, double q, Sampling mode)
        : base_(std::move(base)), q_(q), mode_(mode), shift_(shift_of(*base_)) {}

    Tangent above(double x) const override { return evaluate(x, true); }
    Tangent below(double x) const override { return evaluate(x, false); }

    // The base's largest loss after sampling, rounded up. Both forms increase with the base loss, and what
    // showed the record for sure, at +inf, is next to what an absent one shows under "add": -ln(1-q).
    double max_loss() const override {
        const double base = base_->max_loss();
        if (mode_ == Sampling::add)
            return base_->infinity_mass() > 0 || base == infinity ? upwards(-std::log1p(-q_), infinity)
                                                                  : upwards(-log_blend(q_, -base), base);
        if (base == infinity) return infinity;
        const double plain = log_blend(q_, base), slope = slope_of_blend(q_, base, plain);
        const double loss = upwards(slope > 0 ? plain + 4 * u * slope * std::abs(base) : plain, base);
        return mode_ == Sampling::replace_one ? std::max(0.0, loss) : loss;
    }
    double infinity_mass() const override {
        // Under "add" the record may be absent from the second data set too: losses end at -ln(1-q).
        return mode_ == Sampling::add ? 0.0 : share_of_mass(q_, base_->infinity_mass());
    }

    // Where a record shows whenever it is sampled, all other outputs have the loss +-ln(1-q), or under
    // replace_one 0.
    double anchor() const override {
        if (mode_ == Sampling::replace_one) return 0.0;
        const Tangent t = base_->above(-1);
        const double seen_without = t.slope * std::exp(t.exponent);
        return seen_without < 1e-6 ? -std::log1p(-q_) : 0.0;
    }

    // Only around a plain Gaussian, N(mu) against N(0); replace_one joins two forms and is no mixture.
    std::vector<GaussianMixtures> gaussian_mixtures() const override {
        if (mode_ == Sampling::replace_one || !shift_) return {};
        const std::vector<double> weights{1 - q_, q_};
        // "add" is mirrored, so that the loss increases.
        if (mode_ == Sampling::add) return {{1, {0}, {1}, {0, -*shift_}, weights}};
        return {{1, {0, *shift_}, weights, {0}, {1}}};
    }

    std::vector<GaussianMixtures> joined_mixtures() const override {
        if (mode_ != Sampling::replace_one) return {};
        auto parts = base_->gaussian_mixtures();
        for (GaussianMixtures& part : parts) {
            if (part.p_shift.size() != 1 || part.q_shift != std::vector<double>{0}) return {};
            part.p_shift = {0, part.p_shift.front()};
            part.p_weight = {1 - q_, q_};
            part.joined = JoinedHalf{part.p_shift.back(), 0};
        }
        return parts;
    }

    std::optional<LossLaw> loss_law() const override {
        const auto base = base_->loss_law();
        if (!base) return {};
        switch (mode_) {
            case Sampling::remove:
                return base->sampled(q_);
            case Sampling::add:
                return base->swapped().sampled(q_).swapped();
            case Sampling::replace_one:
                break;
        }
        // Rounded down, as is the atom at 0 that it leads to.
        const Tangent at_zero = base_->above(0);
        const double scale = std::exp(at_zero.exponent), infinite = base_->infinity_mass();
        const double finite = std::max(0.0, at_zero.value - at_zero.error) * scale;
        return base->joined(q_, finite + (1 - lost_of_infinite) * infinite,
                            2 * (at_zero.error * scale + lost_of_infinite * infinite));
    }

    // All three forms keep the order of profiles.
    PairPtr lower() const override {
        const PairPtr less = base_->lower();
        return less ? sampled(less, q_, mode_) : nullptr;
    }
    // One record on either side, wherever the two lie.
    PairPtr looser() const override {
        if (mode_ != Sampling::replace_one || !(shift_ && *shift_ > 0 && *shift_ < furthest_looser))
            return nullptr;
        const std::vector<double> weights{1 - q_, q_};
        return location_mixture(Noise::gaussian, 1, {0, *shift_}, weights, {0, -*shift_}, weights);
    }

private:
    // proof: more than the rounding of an infinite loss's mass, relatively.
    static constexpr double lost_of_infinite = 1e-12;
    // speed: of less noise nobody asks for what is looser.
    static constexpr double furthest_looser = 1e50;
    // speed: no pair is asked farther off; above, a profile is at most 1, and below useless.
    static constexpr double furthest_hair = 1e9, useless = 1e300;

    // Of N(shift) against N(0).
    static std::optional<double> shift_of(const Pair& base) {
        const auto parts = base.gaussian_mixtures();
        const bool plain = parts.size() == 1 && parts.front().p_shift.size() == 1 &&
                           parts.front().q_shift == std::vector<double>{0};
        return plain ? std::optional(parts.front().p_shift.front()) : std::nullopt;
    }
    // Those below the normal doubles are rounded by whole units of theirs, as is what becomes 0 of a base
    // loss that is none.
    static double upwards(double loss, double base) {
        return loss == 0 && base == 0 ? loss : loss + std::max(8 * u * std::abs(loss), 1e-323);
    }
    // The same tangent on a larger scale, where it may be nothing.
    static Tangent raised(const Tangent& t, double exponent) {
        const double shrink = std::exp(t.exponent - exponent);
        return {t.value * shrink, t.slope * shrink, exponent, t.error * shrink, t.relative, t.misplaced};
    }
    bool uses_add(double x) const {
        return mode_ == Sampling::add || (mode_ == Sampling::replace_one && x < 0);
    }

    // Where the base pair is asked, and how that rounds.
    struct BaseLoss {
        double gap;          // from the end of the support, where there is one
        double moved;        // rounding, as a change of the loss that was asked for
        double x = 0;        // the base loss x'
        double ratio = 0;    // e^{x - x'}
        double hair = 0;     // rounding of x'
        double scaling = 0;  // of a product with the ratio, in units of round-off
        bool inside = false;
    };

    // remove: e^{x'} = 1 + (e^x - 1)/q. add: e^{-x'} = 1 + (e^{-x} - 1)/q.
    BaseLoss base_loss(double x, bool add) const {
        const double signed_x = add ? -x : x;
        const double growth = std::expm1(signed_x), excess = growth / q_;
        // Where the excess is nearly -1 it has few digits, and from the end of the support there are more.
        const double end_loss = std::log1p(-q_), gap = signed_x - end_loss;
        // 1 + (e^x - 1)/q, its logarithm, and its rounding in units of round-off.
        double moved, whole, magnitude, cancelled;
        if (excess < -0.5) {
            moved = 4 * u * (std::abs(end_loss) + std::abs(gap));
            if (!(gap > 0)) return {gap, moved};
            whole = (1 - q_) / q_ * std::expm1(gap);
            magnitude = std::log(whole);
            cancelled = 8 + 4 * (std::abs(end_loss) + gap) / -std::expm1(-gap);
        } else {
            moved = 4 * u * (std::isfinite(growth) ? std::abs(growth) / (1 + growth) : 1);
            whole = 1 + excess;
            // Where (e^x - 1)/q overflows 1 is nothing beside it, and past 709, where expm1 does, nor is
            // e^-x.
            magnitude = std::isfinite(excess)   ? std::log1p(excess)
                        : std::isfinite(growth) ? std::log(growth) - std::log(q_)
                                                : signed_x - std::log(q_);
            cancelled = 4 * (std::abs(excess) / whole);
        }
        const double base_x = add ? -magnitude : magnitude;
        // e^{x - x'} is e^x/(1 + excess), or e^x (1 + excess) under "add", unless that overflows.
        const bool plain = std::isfinite(excess) && std::abs(x) < 700;
        const double ratio = !plain ? std::exp(x - base_x) : add ? std::exp(x) * whole : std::exp(x) / whole;
        const double rounding = std::isfinite(excess) ? cancelled + 2 * std::abs(base_x)
                                                      : 4 + 2 * std::abs(x) + 4 * std::abs(base_x);
        return {gap, moved, base_x, ratio, u * rounding, plain ? cancelled : 2 * std::abs(x), true};
    }

    // remove: x lies below the whole support ln(1-q); add: above -ln(1-q).
    Tangent past_end(double x, bool add, bool above, const BaseLoss& at) const {
        Tangent end{0, 0, 0, 0, 0, 0};
        if (add && !above) end = everything_below(x);
        if (!add && above) {
            end = nothing_below(x);
            end.value -= infinity_mass();
        }
        if (std::isfinite(at.gap) && at.gap >= -at.moved) {
            // Or it lies inside by as much, and the profile so far off.
            end.misplaced = at.moved;
            end.error += 2 * at.moved * (add ? std::exp(-end.exponent) : std::exp(x));
        }
        return end;
    }

    Tangent base_at(double x, bool above) const { return above ? base_->above(x) : base_->below(x); }

    // How far the base profile at x may be from that within a hair of it: an atom may lie in between, or a
    // tail that falls by all its size. Above falls in x, and below rises.
    double moved_by(Tangent& base, double x, double hair, bool above) const {
        // The logarithm of a normal tail has a slope of at most (|x|/shift + shift/2 + 1)/shift in x.
        const double shift = std::abs(shift_.value_or(0));
        if (hair * (std::abs(x) + shift + shift * shift) < 0.25 * shift * shift) return 2 * hair * base.slope;
        Tangent beside = hair < furthest_hair ? base_at(above ? x - hair : x + hair, above)
                                              : Tangent{above ? 1 : useless, 0, 0, 0, 0, 0};
        if (beside.exponent > base.exponent + 100) base = raised(base, beside.exponent);
        beside = raised(beside, base.exponent);
        if (hair < 1) return hair * std::max(base.slope, beside.slope * std::exp(2 * hair));
        return std::max(base.value + base.error, beside.value + beside.error - base.value);
    }

    // The sampled profile is `scale` times the base profile at x', so no mass is lost to cancellation.
    Tangent evaluate(double x, bool above) const {
        const bool add = uses_add(x);
        const BaseLoss at = base_loss(x, add);
        if (!at.inside) return past_end(x, add, above, at);
        Tangent base = base_at(at.x, above);
        const double scale = add ? q_ * at.ratio : q_;
        // The mass at +inf, which is finite after "add", may be large beside any tail.
        const bool shown = add && above && base_->infinity_mass() > 0;
        if (shown && base.exponent < 0) base = raised(base, 0);
        // The base loss x' is rounded; that moves the base profile by its slope.
        const double moved = moved_by(base, at.x, at.hair, above);
        const double misplaced =
            at.moved + (add ? scale : q_ / at.ratio) * (base.misplaced + 4 * u * std::abs(at.x));
        Tangent out{scale * base.value,
                    at.ratio * base.slope,
                    base.exponent,
                    scale * (base.error + moved + 4 * u * std::abs(base.value)),
                    base.relative + misplaced + u * (16 + 2 * std::abs(x) + 2 * std::abs(x - at.x)),
                    misplaced};
        if (!add) return out;
        double p_tail = std::max(0.0, above ? base.value + base.slope : base.slope - base.value);
        if (shown) {
            // What had infinite loss before sampling has a finite one now.
            const double mass = base_->infinity_mass() * std::exp(-base.exponent);
            p_tail += mass;
            out.value += scale * mass - infinity_mass() * std::exp(-base.exponent);
            out.error += 16 * u * scale * mass * (1 + std::abs(x));
        }
        const double p_share = (1 - q_) * std::exp(x);
        out.slope = q_ * at.ratio * base.slope + p_share * p_tail;
        // Seen from below, the P-tail is only as exact as the base slope is large.
        if (!above && out.slope > 0) out.relative *= 1 + p_share * base.slope / out.slope;
        out.error += u * (8 + at.scaling + 2 * std::abs(x - at.x)) * std::abs(out.value);
        return out;
    }

    PairPtr base_;
    double q_;
    Sampling mode_;
    std::optional<double> shift_;
};

}  // namespace

PairPtr sampled(PairPtr base, double sampling_probability, Sampling mode) {
    require(base != nullptr, "sampled: a base pair is needed");
    require(sampling_probability > 0 && sampling_probability <= 1,
            "sampled: sampling_probability must lie in (0, 1]");
    if (sampling_probability == 1) return base;
    return std::make_shared<SampledPair>(std::move(base), sampling_probability, mode);
}

}  // namespace hockeystick
