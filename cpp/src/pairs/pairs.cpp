#include "hockeystick/pairs.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "numerics/special.hpp"

namespace hockeystick {

namespace {

constexpr double u = unit_roundoff;
constexpr double infinity = std::numeric_limits<double>::infinity();

// Below every finite loss: all of P lies above, and the profile is the line 1 - e^x.
Tangent nothing_below(double x) { return {-std::expm1(x), std::exp(x), 0.0, 4 * u, 4 * u, 0.0}; }
// Above every loss: all of Q lies below, and "below" is the line e^x - 1, scaled by e^x.
Tangent everything_below(double x) {
    return x > 0 ? Tangent{-std::expm1(-x), 1.0, x, 4 * u, 4 * u, 0.0}
                 : Tangent{std::expm1(x), std::exp(x), 0.0, 4 * u, 4 * u, 0.0};
}

void require(bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
}

// A product that must not vanish: where infinity has a mass, the profile nowhere reaches 0.
double share_of_mass(double weight, double mass) {
    return weight > 0 && mass > 0 ? std::max(weight * mass, 5e-324) : 0.0;
}

// P = N(mu,1), Q = N(0,1): L ~ N(mu^2/2, mu^2) under P. In standard units
// z = (x - mu^2/2)/mu under P and z + mu under Q, and e^x phi(z + mu) = phi(z): both tails share
// the factor e^{-z^2/2}, which goes into the exponent.
class GaussianPair final : public Pair {
public:
    explicit GaussianPair(double mu) : mu_(mu) {}

    Tangent above(double x) const override {
        const double z = x / mu_ - 0.5 * mu_, zq = z + mu_, square = -0.5 * z * z;
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
        const double z = x / mu_ - 0.5 * mu_, zq = z + mu_, square = -0.5 * z * z;
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
    // First-order effect of rounding z (it moves x) and of the tail function itself.
    double error(double x, double z, double tail, double slope) const {
        return u * ((24 + 2 * z * z) * tail + 8 * (1 + std::abs(x) + mu_ * mu_) * slope);
    }
    // The same two effects, apart.
    static double relative(double z) { return u * (24 + 2 * z * z); }
    double misplaced(double x) const { return 8 * u * (std::abs(x) + mu_ * mu_); }

    double mu_;
};

// Lap(0) against Lap(shift), epsilon = shift/scale: atoms at +-epsilon and a density between them.
class LaplacePair final : public Pair {
public:
    explicit LaplacePair(double epsilon) : epsilon_(epsilon) {}

    Tangent above(double at) const override {
        // The loss may have been rounded across an atom.
        if (at >= epsilon_) return {0, 0, 0, at < epsilon_ * (1 + 64 * u) ? 64 * u * epsilon_ : 0.0, 0, 0};
        if (at < -epsilon_) return nothing_below(at);
        const double half = 0.5 * (at - epsilon_);
        const double all = std::exp(half);  // half rounds, which moves the value by as much times this
        return {-std::expm1(half),     0.5 * all, 0, u * (8 + 4 * std::abs(half) * all), 8 * u,
                4 * u * std::abs(half)};
    }
    Tangent below(double at) const override {
        if (at < -epsilon_) return {0, 0, 0, at > -epsilon_ * (1 + 64 * u) ? 64 * u * epsilon_ : 0.0, 0, 0};
        if (at >= epsilon_) return everything_below(at);
        const double half = -0.5 * (at + epsilon_);
        const double all = std::exp(half);
        return {-std::expm1(half),     1 - 0.5 * all, at, u * (8 + 4 * std::abs(half) * all), 8 * u,
                4 * u * std::abs(half)};
    }
    double max_loss() const override { return epsilon_; }
    double anchor() const override { return epsilon_; }
    // Between the atoms, with the loss itself as t: densities e^{(+-t - epsilon)/2} / 4.
    std::optional<LossLaw> loss_law() const override {
        const double constant = -0.5 * epsilon_ - std::log(4);
        LossLaw law;
        law.atoms = {{-epsilon_, -std::log(2) - epsilon_, 0, 4 + 4 * epsilon_},
                     {epsilon_, -std::log(2), 0, 4}};
        law.pieces = {{-epsilon_, epsilon_, false, {{constant, 0.5}}, {{constant, -0.5}}}};
        return law;
    }

private:
    double epsilon_;
};

// Sum with an error of a few units however many terms (Neumaier 1974).
class CompensatedSum {
public:
    void add(double value) {
        const double total = sum_ + value;
        correction_ += std::abs(sum_) >= std::abs(value) ? (sum_ - total) + value : (value - total) + sum_;
        sum_ = total;
    }
    double value() const { return sum_ + correction_; }

private:
    double sum_ = 0, correction_ = 0;
};

class DiscretePair final : public Pair {
public:
    DiscretePair(std::vector<double> losses, const std::vector<double>& p, const std::vector<double>& q,
                 double p_infinity, double spacing, double q_infinity)
        : losses_(std::move(losses)), p_infinity_(p_infinity), spacing_(spacing) {
        const std::size_t n = losses_.size();
        consistent_ = true;
        for (std::size_t i = 0; i < n; ++i) {
            atoms_.push_back(atom(losses_[i], p[i], q[i], spacing > 0));
            // Masses that underflowed have lost digits.
            if (!(std::min(p[i], q[i]) > 1e-290)) continue;
            const double log_p = std::log(p[i]), off = log_p - std::log(q[i]) - losses_[i];
            if (std::abs(off) > 64 * u * (1 + std::abs(losses_[i]) + std::abs(log_p))) consistent_ = false;
        }
        p_above_.resize(n + 1);
        p_below_.resize(n + 1);
        q_below_.resize(n + 1);
        log_q_above_.assign(n + 1, -infinity);
        log_p_below_.assign(n + 1, -infinity);
        CompensatedSum p_up, q_up, p_down, q_down;
        for (std::size_t i = n; i-- > 0;) {
            p_up.add(p[i]);
            q_up.add(q[i]);
            p_above_[i] = p_up.value();
            log_q_above_[i] = log_sum(q_up, log_q_above_[i + 1], q[i], p[i], -losses_[i]);
        }
        // Nor must they sum to anything but 1, but for rounding.
        if (std::abs(p_up.value() + p_infinity - 1) > 1e-13 || q_up.value() > 1 + 1e-13) consistent_ = false;
        // An atom without mass is no loss; one whose P-mass alone is 0 has lost it to underflow.
        for (std::size_t i = 0; i < n; ++i)
            if (p[i] > 0 || q[i] > 0) max_loss_ = losses_[i];
        // Q-mass where P has none sits at -inf. Rounding alone must not create such an atom.
        const double rest = 1 - q_up.value();
        q_down.add(q_infinity >= 0 ? q_infinity : rest < 1e-13 ? 0 : rest);
        rest_is_rounded_ = q_infinity < 0 && q_down.value() > 0;
        q_below_[0] = q_down.value();
        for (std::size_t i = 0; i < n; ++i) {
            p_down.add(p[i]);
            q_down.add(q[i]);
            p_below_[i + 1] = p_down.value();
            q_below_[i + 1] = q_down.value();
            log_p_below_[i + 1] = log_sum(p_down, log_p_below_[i], p[i], q[i], losses_[i]);
        }
    }

    Tangent above(double at) const override {
        const std::size_t i = index(at);
        const double p = p_above_[i], slope = std::exp(at + log_q_above_[i]);
        const double relative = rounding(at, log_q_above_[i]);
        // An atom a rounding to the left may be one to the right, and the profile so far off.
        const double unsure = 8 * u * std::abs(at), before = std::exp(at + log_q_above_[index(at - unsure)]);
        // The logarithm of a mass rounds relatively, too.
        const double error = rounding(0, std::log(p)) * p + slope * relative + unsure * before;
        return {p - slope, slope, 0, error, relative, unsure};
    }
    Tangent below(double at) const override {
        const std::size_t i = index(at);
        const double q = q_below_[i], scaled = std::exp(log_p_below_[i] - at);
        const double unsure = 8 * u * std::abs(at), before = q_below_[index(at + unsure)];
        // Q-mass where P has none may be what the sum leaves of 1.
        const double missing = rest_is_rounded_ ? 64 * u : 0.0;
        const double relative = rounding(at, log_p_below_[i]) + (q > 0 ? missing / q : 0.0);
        return {q - scaled, q, at, std::max(q, scaled) * relative + unsure * before, relative, unsure};
    }
    double max_loss() const override { return max_loss_; }
    double infinity_mass() const override { return p_infinity_; }
    double spacing() const override { return spacing_; }
    // From P's masses and the losses alone, which must imply Q's and the sums.
    std::optional<LossLaw> loss_law() const override {
        if (!consistent_) return {};
        LossLaw law;
        for (const LossAtom& atom : atoms_)
            if (atom.log_p > -infinity) law.atoms.push_back(atom);
        law.missing_p = p_infinity_;
        law.missing_q = q_below_[0];
        law.missing_size = law.missing_p + law.missing_q + (rest_is_rounded_ ? 1 : 0);
        return law;
    }

private:
    std::size_t index(double x) const {
        return static_cast<std::size_t>(std::upper_bound(losses_.begin(), losses_.end(), x) -
                                        losses_.begin());
    }
    // A mass of P's that underflowed, to 0 or to few digits, is restored from Q's: p = q e^loss.
    static LossAtom atom(double loss, double p, double q, bool exact_loss) {
        const bool restored = !(p > 1e-290) && q > p;
        const double mass = restored ? q : p, log_p = std::log(mass) + (restored ? loss : 0);
        const double lost = mass < 1e-300 ? 1e-308 / mass / u : 0;
        return {loss, log_p, exact_loss ? 0 : 2 * std::abs(loss),
                16 + std::abs(log_p) + lost + (restored ? 2 * std::abs(loss) : 0)};
    }
    // ln of a running sum. A mass that underflowed is restored from its partner: q = p e^-loss.
    static double log_sum(const CompensatedSum& sum, double previous, double mass, double partner,
                          double shift) {
        if (sum.value() > 1e-290) return std::log(sum.value());
        const double term = mass > 1e-300 ? std::log(mass)
                            : partner > 0 ? std::log(partner) + shift
                                          : -infinity;
        const double largest = std::max(previous, term);
        if (!(largest > -infinity)) return -infinity;
        return largest + std::log1p(std::exp(std::min(previous, term) - largest));
    }
    // Input masses are trusted to 16 units; e^x and the logarithm of a mass round relatively.
    static double rounding(double x, double log_mass) {
        const double reach = std::isfinite(log_mass) ? std::abs(log_mass) : 0.0;
        return u * (32 + 2 * std::abs(x) + 4 * reach);
    }

    bool consistent_, rest_is_rounded_;
    std::vector<LossAtom> atoms_;
    std::vector<double> losses_, p_above_, p_below_, q_below_, log_q_above_, log_p_below_;
    double p_infinity_, spacing_, max_loss_ = -infinity;
};

class SampledPair final : public Pair {
public:
    SampledPair(PairPtr base, double q, Sampling mode)
        : base_(std::move(base)), q_(q), mode_(mode), smooth_(!base_->gaussian_mixtures().empty()) {}

    Tangent above(double x) const override { return evaluate(x, true); }
    Tangent below(double x) const override { return evaluate(x, false); }

    // The base's largest loss after sampling, rounded up. Both forms increase with the base loss, and what
    // showed the record for sure, at +inf, is next to what an absent one shows under "add": -ln(1-q).
    double max_loss() const override {
        const double base = base_->max_loss();
        if (mode_ == Sampling::add)
            return upwards(base_->infinity_mass() > 0 || base == infinity ? -std::log1p(-q_)
                                                                          : add_loss(base));
        if (base == infinity) return infinity;
        double loss = 0, slack = 0;
        if (base > 700) {
            // e^base q, which neither factor need let overflow, has the rounding of its exponent.
            const double exponent = base + std::log(q_), scaled = std::exp(std::min(exponent, 30.0));
            slack = 4 * u * (base + std::abs(std::log(q_))) * (scaled / (1 + scaled));
            loss = exponent > 30 ? exponent + std::log1p((1 - q_) * std::exp(-exponent))
                                 : std::log1p(scaled - q_);
        } else {
            loss = std::log1p(q_ * std::expm1(base));
        }
        loss = upwards(loss + slack);
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
        const auto base = base_->gaussian_mixtures();
        if (mode_ == Sampling::replace_one || base.size() != 1) return {};
        const GaussianMixtures& plain = base.front();
        if (plain.p_shift.size() != 1 || plain.q_shift != std::vector<double>{0}) return {};
        const std::vector<double> weights{1 - q_, q_};
        const double mu = plain.p_shift.front();
        // "add" is mirrored, so that the loss increases.
        if (mode_ == Sampling::add) return {{1, {0}, {1}, {0, -mu}, weights}};
        return {{1, {0, mu}, weights, {0}, {1}}};
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
        const double finite = std::max(0.0, at_zero.value - at_zero.error) * std::exp(at_zero.exponent);
        return base->joined(q_, finite + (1 - 1e-12) * base_->infinity_mass());
    }

    // All three forms keep the order of profiles.
    PairPtr lower() const override {
        const PairPtr less = base_->lower();
        return less ? sampled(less, q_, mode_) : nullptr;
    }

private:
    static double upwards(double loss) { return loss + 8 * u * std::abs(loss); }
    double add_loss(double base) const {
        const double excess = q_ * std::expm1(-base);
        return excess < -0.5 ? -std::log((1 - q_) + q_ * std::exp(-base)) : -std::log1p(excess);
    }
    // The same tangent on a larger scale, where it may be nothing.
    static Tangent raised(const Tangent& t, double exponent) {
        const double shrink = std::exp(t.exponent - exponent);
        return {t.value * shrink, t.slope * shrink, exponent, t.error * shrink, t.relative, t.misplaced};
    }
    bool uses_add(double x) const {
        return mode_ == Sampling::add || (mode_ == Sampling::replace_one && x < 0);
    }

    // remove: e^{x'} = 1 + (e^x - 1)/q. add: e^{-x'} = 1 + (e^{-x} - 1)/q. Either way the sampled
    // profile is `scale` times the base profile at x', so no mass is lost to cancellation.
    Tangent evaluate(double x, bool above) const {
        const bool add = uses_add(x);
        const double signed_x = add ? -x : x;
        const double growth = std::expm1(signed_x), excess = growth / q_;
        // Where the excess is nearly -1 it has few digits, and from the end of the support there are more.
        const double end_loss = std::log1p(-q_), gap = signed_x - end_loss;
        const bool near_end = excess < -0.5;
        // Rounding, as a change of x.
        const double moved = near_end ? 4 * u * (std::abs(end_loss) + std::abs(gap))
                                      : 4 * u * (std::isfinite(growth) ? std::abs(growth) / (1 + growth) : 1);
        if (near_end && !(gap > 0)) {
            // remove: x lies below the whole support ln(1-q); add: above -ln(1-q).
            Tangent end{0, 0, 0, 0, 0, 0};
            if (add && !above) end = everything_below(x);
            if (!add && above) {
                end = nothing_below(x);
                end.value -= infinity_mass();
            }
            if (std::isfinite(gap) && gap >= -moved) {
                // Or it lies inside by as much, and the profile so far off.
                end.misplaced = moved;
                end.error += 2 * moved * (add ? std::exp(-end.exponent) : std::exp(x));
            }
            return end;
        }
        // 1 + (e^x - 1)/q, and its rounding in units of round-off.
        const double whole = near_end ? (1 - q_) / q_ * std::expm1(gap) : 1 + excess;
        const double cancelled = near_end ? 8 + 4 * (std::abs(end_loss) + gap) / -std::expm1(-gap)
                                          : 4 * (std::abs(excess) / whole);
        // Where (e^x - 1)/q overflows 1 is nothing beside it, and past 709, where expm1 does, nor is e^-x.
        const double magnitude = near_end                ? std::log(whole)
                                 : std::isfinite(excess) ? std::log1p(excess)
                                 : std::isfinite(growth) ? std::log(growth) - std::log(q_)
                                                         : signed_x - std::log(q_);
        const double base_x = add ? -magnitude : magnitude;
        Tangent base = above ? base_->above(base_x) : base_->below(base_x);
        // e^{x - x'}, which is e^x/(1 + excess), or e^x (1 + excess) under "add", unless that overflows.
        const bool plain = std::isfinite(excess) && std::abs(x) < 700;
        const double ratio = !plain ? std::exp(x - base_x) : add ? std::exp(x) * whole : std::exp(x) / whole;
        const double scale = add ? q_ * ratio : q_;
        // The base loss x' is rounded; that moves the base profile by its slope.
        const double rounding = std::isfinite(excess) ? cancelled + 2 * std::abs(base_x)
                                                      : 4 + 2 * std::abs(x) + 4 * std::abs(base_x);
        const double hair = u * rounding;
        // The mass at +inf, which is finite after "add", may be large beside any tail.
        if (add && above && base_->infinity_mass() > 0 && base.exponent < 0) base = raised(base, 0);
        double steepest = base.slope;
        if (!smooth_ && hair < 1) {
            // An atom may lie in between, or a tail that falls by all its size.
            const Tangent beside = above ? base_->above(base_x - hair) : base_->below(base_x + hair);
            if (beside.exponent > base.exponent + 100) base = raised(base, beside.exponent);
            steepest =
                std::max(base.slope, beside.slope * std::exp(beside.exponent - base.exponent + 2 * hair));
        }
        double value = scale * base.value;
        double slope = ratio * base.slope;
        double error = scale * (base.error + hair * steepest + 4 * u * std::abs(base.value));
        const double misplaced =
            moved + (add ? scale : q_ / ratio) * (base.misplaced + 4 * u * std::abs(base_x));
        double relative = base.relative + misplaced + u * (16 + 2 * std::abs(x) + 2 * std::abs(x - base_x));
        if (add) {
            double p_tail = std::max(0.0, above ? base.value + base.slope : base.slope - base.value);
            if (above && base_->infinity_mass() > 0) {
                // What had infinite loss before sampling has a finite one now.
                const double mass = base_->infinity_mass() * std::exp(-base.exponent);
                p_tail += mass;
                value += scale * mass - infinity_mass() * std::exp(-base.exponent);
                error += 16 * u * scale * mass * (1 + std::abs(x));
            }
            const double p_share = (1 - q_) * std::exp(x);
            slope = q_ * ratio * base.slope + p_share * p_tail;
            // Seen from below, the P-tail is only as exact as the base slope is large.
            if (!above && slope > 0) relative *= 1 + p_share * base.slope / slope;
            error +=
                u * (8 + (plain ? cancelled : 2 * std::abs(x)) + 2 * std::abs(x - base_x)) * std::abs(value);
        }
        return {value, slope, base.exponent, error, relative, misplaced};
    }

    PairPtr base_;
    double q_;
    Sampling mode_;
    bool smooth_;  // the base has no atoms
};

// A convex combination of profiles is the profile of the mixture whose choice is released.
class MixturePair final : public Pair {
public:
    MixturePair(std::vector<PairPtr> pairs, std::vector<double> weights)
        : pairs_(std::move(pairs)), weights_(std::move(weights)) {
        CompensatedSum total;
        for (double w : weights_) total.add(w);
        // Rounding of the weights must not create mass at infinity, nor hide it.
        lost_ = 1 - total.value();
        if (lost_ < 1e-14) lost_ = 0;
        for (std::size_t i = 0; i < pairs_.size(); ++i) {
            mu_.push_back(plain_gaussian_mu(*pairs_[i]));
            log_weight_.push_back(std::log(weights_[i]));
        }
    }

    Tangent above(double x) const override { return combine(x, true); }
    Tangent below(double x) const override { return combine(x, false); }

    double max_loss() const override {
        double largest = -infinity;
        for (std::size_t i = 0; i < pairs_.size(); ++i)
            if (weights_[i] > 0) largest = std::max(largest, pairs_[i]->max_loss());
        return largest;
    }
    double infinity_mass() const override {
        double mass = lost_;
        for (std::size_t i = 0; i < pairs_.size(); ++i)
            mass += share_of_mass(weights_[i], pairs_[i]->infinity_mass());
        return mass;
    }
    std::vector<GaussianMixtures> gaussian_mixtures() const override {
        std::vector<GaussianMixtures> all;
        if (lost_ > 0) return all;
        for (std::size_t i = 0; i < pairs_.size(); ++i) {
            if (weights_[i] == 0) continue;
            const auto part = pairs_[i]->gaussian_mixtures();
            if (part.empty()) return {};
            for (const auto& mixtures : part) {
                all.push_back(mixtures);
                all.back().weight *= weights_[i];
            }
        }
        return all;
    }

    std::optional<LossLaw> loss_law() const override {
        LossLaw law;
        law.missing_p = law.missing_q = lost_;
        law.missing_size = 2 * lost_;
        law.group_weight.clear();
        for (std::size_t i = 0; i < pairs_.size(); ++i) {
            if (weights_[i] == 0) continue;
            auto part = pairs_[i]->loss_law();
            if (!part) return {};
            const double log_weight = std::log(weights_[i]);
            const int first = static_cast<int>(law.group_weight.size());
            for (const double weight : part->group_weight) law.group_weight.push_back(weights_[i] * weight);
            for (LossAtom& atom : part->atoms) {
                atom.group += first;
                atom.log_p += log_weight;
                atom.log_p_slack += 2 * std::abs(log_weight) + std::abs(atom.log_p) + 64;
                law.atoms.push_back(atom);
            }
            for (LossPiece& piece : part->pieces) {
                piece.group += first;
                for (auto& term : piece.p) term.log_weight += log_weight;
                for (auto& term : piece.q) term.log_weight += log_weight;
                law.pieces.push_back(std::move(piece));
            }
            law.missing_p += weights_[i] * part->missing_p;
            law.missing_q += weights_[i] * part->missing_q;
            law.missing_size += weights_[i] * part->missing_size;
        }
        return law;
    }

    PairPtr lower() const override {
        std::vector<PairPtr> less;
        bool any = false;
        for (const auto& pair : pairs_) {
            const PairPtr part = pair->lower();
            any = any || part;
            less.push_back(part ? part : pair);
        }
        return any ? mixture(std::move(less), weights_) : nullptr;
    }

private:
    // Of many Gaussian parts only few matter at a loss: nearly all of the others lies to one side of it.
    Tangent combine(double x, bool above) const {
        // The lost mass is P at +inf against Q at -inf: only "below" sees the latter, as e^x.
        const double lost = above ? 0.0 : lost_;
        Tangent sum{lost, lost, lost > 0 ? x : -infinity, 4 * u * lost, 4 * u, 0};
        double largest = lost > 0 ? std::log(lost) + x : -infinity;
        for (std::size_t i = 0; i < pairs_.size(); ++i)
            if (mu_[i] > 0) largest = std::max(largest, log_weight_[i] + gaussian_exponent(mu_[i], x, above));
        bool left_out = false;
        for (std::size_t i = 0; i < pairs_.size(); ++i) {
            if (weights_[i] == 0) continue;
            if (mu_[i] > 0 && log_weight_[i] + gaussian_exponent(mu_[i], x, above) < largest - negligible) {
                left_out = true;
                continue;
            }
            add(part(i, x, above), weights_[i], sum);
        }
        if (left_out) {
            sum.error += u * (std::abs(sum.value) + sum.slope);
            sum.relative += u;
        }
        if (!std::isfinite(sum.exponent)) sum.exponent = 0;
        return sum;
    }

    // The tails of N(mu, 1) against N(0, 1) beyond x, both at most e^this, and the larger one at least
    // that over 3 + 3 |z|, z = x/mu +- mu/2.
    static double gaussian_exponent(double mu, double x, bool above) {
        const double z = x / mu - 0.5 * mu, zq = z + mu;
        if (above) return z > 0 ? -0.5 * z * z : 0;
        return zq < 0 ? -0.5 * z * z : x;
    }

    Tangent part(std::size_t i, double x, bool above) const {
        constexpr double far = 13;  // P(|Z| > far) < 1e-37
        if (const double mu = mu_[i]; mu > 0) {
            const double z = x / mu - 0.5 * mu, zq = z + mu;
            if (above && zq < -far) return nothing_below(x);
            if (!above && z > far) return everything_below(x);
            // All of P lies above, and hardly any of Q; all of Q lies below, and hardly any of P.
            if (above && z < -far && zq > 0) return {1, 0, 0, 4 * u, 4 * u, 0};
            if (!above && zq > far && z < 0) return {1, 1, x, 4 * u, 4 * u, 0};
        }
        return above ? pairs_[i]->above(x) : pairs_[i]->below(x);
    }

    static void add(const Tangent& part, double weight, Tangent& sum) {
        const double exponent = std::max(sum.exponent, part.exponent);
        const double old_scale = std::exp(sum.exponent - exponent);
        const double new_scale = weight * std::exp(part.exponent - exponent);
        // Scaling by e^d rounds by d u relatively; a term with large d is itself small.
        const double distance = std::abs(part.exponent - sum.exponent);
        const double reach = std::isfinite(distance) ? distance * std::exp(-distance) : 0.0;
        sum.value = sum.value * old_scale + part.value * new_scale;
        sum.slope = sum.slope * old_scale + part.slope * new_scale;
        sum.error = sum.error * old_scale + part.error * new_scale + u * (8 + reach) * std::abs(sum.value);
        sum.exponent = exponent;
        sum.relative = std::max(sum.relative, part.relative) + u * (8 + reach);
        sum.misplaced = std::max(sum.misplaced, part.misplaced);
    }

    // e^-120 is nothing beside rounding, whatever the tails' factors.
    static constexpr double negligible = 120;

    std::vector<double> mu_, log_weight_;  // mu_: 0 for parts that are not plain Gaussian
    std::vector<PairPtr> pairs_;
    std::vector<double> weights_;
    double lost_ = 0;
};

class LocationMixturePair final : public Pair {
public:
    LocationMixturePair(Noise noise, double scale, std::vector<double> p_shifts,
                        std::vector<double> p_weights, std::vector<double> q_shifts,
                        std::vector<double> q_weights)
        : noise_(noise), p_(make(p_shifts, p_weights, scale)), q_(make(q_shifts, q_weights, scale)) {
        high_ = *std::max_element(p_.shift.begin(), p_.shift.end());
        low_ = *std::min_element(q_.shift.begin(), q_.shift.end());
        mirrored_ = mirrored();
        if (noise_ == Noise::laplace) {
            // The loss is constant outside [low, high].
            max_ = log_mean_exp(p_, 1) - log_mean_exp(q_, 1);
            min_ = log_mean_exp(p_, -1) - log_mean_exp(q_, -1);
        } else {
            // It levels off where both sides end at the same shift, which is 0.
            if (*std::min_element(p_.shift.begin(), p_.shift.end()) == low_) min_ = end_ratio(low_);
            if (*std::max_element(q_.shift.begin(), q_.shift.end()) == high_) max_ = end_ratio(high_);
        }
    }

    Tangent above(double at) const override {
        // Where the loss levels off, rounding decides on which side of its end it is seen: the profile is at
        // most what is left of the loss.
        const double unsure = 16 * u * (1 + std::abs(max_));
        if (at >= max_)
            return {0, 0, 0, at < max_ + unsure ? unsure : 0.0, 0, at < max_ + unsure ? unsure : 0.0};
        if (at < min_) return nothing_below(at);
        Tangent out = tangent(at, +1);
        if (at > max_ - unsure) {
            if (!(out.exponent > -700)) return {0, 0, 0, 2 * unsure, 0, 2 * unsure};
            out.error += 2 * unsure * std::exp(-out.exponent);
        }
        return out;
    }
    Tangent below(double at) const override {
        if (at < min_) return {0, 0, 0, 0, 0, 0};
        if (at >= max_) return everything_below(at);
        return tangent(at, -1);
    }
    // Rounded up: the weights are kept as logarithms.
    double max_loss() const override {
        double largest = 0;
        for (const Side* side : {&p_, &q_})
            for (const double log_weight : side->log_weight)
                largest = std::max(largest, std::abs(log_weight));
        return max_ + u * (16 + 2 * largest) * std::abs(max_);
    }
    std::vector<GaussianMixtures> gaussian_mixtures() const override {
        if (noise_ != Noise::gaussian) return {};
        return {{1, p_.shift, weights(p_), q_.shift, weights(q_)}};
    }
    // Laplace: between two shifts every density is a sum of e^t and e^-t; beyond the outermost the loss is
    // constant.
    std::optional<LossLaw> loss_law() const override {
        if (noise_ == Noise::gaussian) {
            const auto terms = [](const Side& side) {
                std::vector<LossPiece::Term> out;
                for (std::size_t i = 0; i < side.shift.size(); ++i)
                    out.push_back(gaussian_term(side.log_weight[i], side.shift[i]));
                return out;
            };
            LossLaw law;
            law.pieces = {{-infinity, infinity, true, terms(p_), terms(q_)}};
            return law;
        }
        std::vector<double> ends = p_.shift;
        ends.insert(ends.end(), q_.shift.begin(), q_.shift.end());
        std::sort(ends.begin(), ends.end());
        ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
        const auto terms = [](const Side& side, double low) {
            std::vector<LossPiece::Term> out;
            for (std::size_t i = 0; i < side.shift.size(); ++i)
                out.push_back(side.shift[i] <= low
                                  ? LossPiece::Term{side.log_weight[i] + side.shift[i] - std::log(2), -1}
                                  : LossPiece::Term{side.log_weight[i] - side.shift[i] - std::log(2), 1});
            return out;
        };
        const auto log_tail = [](const Side& side, double t) {
            double sum = 0;
            for (std::size_t i = 0; i < side.shift.size(); ++i)
                sum += std::exp(side.log_weight[i] - std::abs(t - side.shift[i]));
            return std::log(0.5 * sum);
        };
        LossLaw law;
        for (const double end : {ends.front(), ends.back()}) {
            const double at = loss(end), log_p = log_tail(p_, end);
            law.atoms.push_back({at, log_p, 16 + 16 * std::abs(end), 32 + 8 * std::abs(log_p)});
        }
        for (std::size_t i = 0; i + 1 < ends.size(); ++i)
            law.pieces.push_back({ends[i], ends[i + 1], false, terms(p_, ends[i]), terms(q_, ends[i])});
        return law;
    }

private:
    // Shifts and log weights in units of the noise scale.
    struct Side {
        std::vector<double> shift, log_weight;
    };
    static Side make(const std::vector<double>& shifts, const std::vector<double>& weights, double scale) {
        Side side;
        for (std::size_t i = 0; i < shifts.size(); ++i) {
            if (weights[i] <= 0) continue;
            side.shift.push_back(shifts[i] / scale);
            side.log_weight.push_back(std::log(weights[i]));
        }
        return side;
    }

    static std::vector<double> weights(const Side& side) {
        std::vector<double> out;
        for (double log_weight : side.log_weight) out.push_back(std::exp(log_weight));
        return out;
    }

    // ln of the ratio of the weights at one shift, from the weights elsewhere: near 0 nothing is lost.
    double end_ratio(double shift) const {
        const auto log_rest = [shift](const Side& side) {
            double here = 0, elsewhere = 0;
            for (std::size_t i = 0; i < side.shift.size(); ++i)
                (side.shift[i] == shift ? here : elsewhere) += std::exp(side.log_weight[i]);
            return std::log1p(elsewhere / here);
        };
        return log_rest(q_) - log_rest(p_);
    }

    // ln of the mean of e^{+-shift}: near 0 nothing is lost, as the weights sum to 1 and all shifts of a side
    // have the same sign.
    static double log_mean_exp(const Side& side, double sign) {
        double excess = 0, largest = 0;
        for (std::size_t i = 0; i < side.shift.size(); ++i) {
            excess += std::exp(side.log_weight[i]) * std::expm1(sign * side.shift[i]);
            largest = std::max(largest, sign * side.shift[i]);
        }
        if (excess > -0.5 && std::isfinite(excess)) return std::log1p(excess);
        double sum = 0;
        for (std::size_t i = 0; i < side.shift.size(); ++i)
            sum += std::exp(side.log_weight[i] + sign * side.shift[i] - largest);
        return largest + std::log(sum);
    }

    double log_kernel(double d) const { return noise_ == Noise::gaussian ? -0.5 * d * d : -std::abs(d); }

    double log_density(const Side& side, double t) const {
        double largest = -infinity;
        for (std::size_t i = 0; i < side.shift.size(); ++i)
            largest = std::max(largest, side.log_weight[i] + log_kernel(t - side.shift[i]));
        double sum = 0;
        for (std::size_t i = 0; i < side.shift.size(); ++i)
            sum += std::exp(side.log_weight[i] + log_kernel(t - side.shift[i]) - largest);
        return largest + std::log(sum);
    }
    // For Gaussian noise t^2/2 cancels between P and Q; leave it out of both.
    double loss(double t) const {
        if (noise_ == Noise::laplace) return log_density(p_, t) - log_density(q_, t);
        return log_linear(p_, t) - log_linear(q_, t);
    }
    static double log_linear(const Side& side, double t) {
        double largest = -infinity;
        for (std::size_t i = 0; i < side.shift.size(); ++i)
            largest = std::max(largest, side.log_weight[i] + side.shift[i] * (t - 0.5 * side.shift[i]));
        double sum = 0;
        for (std::size_t i = 0; i < side.shift.size(); ++i)
            sum += std::exp(side.log_weight[i] + side.shift[i] * (t - 0.5 * side.shift[i]) - largest);
        return largest + std::log(sum);
    }

    // (1-q) N(0) + q N(s) against (1-q) N(0) + q N(-s): e^{s t} solves a quadratic equation, and
    //     s t = x/2 + arsinh(sinh(x/2) (1-q)/q e^{s^2/2}).
    bool mirrored() const {
        return noise_ == Noise::gaussian && p_.shift.size() == 2 && q_.shift.size() == 2 &&
               p_.shift[0] == 0 && q_.shift[0] == 0 && p_.shift[1] == -q_.shift[1] &&
               p_.log_weight == q_.log_weight && p_.shift[1] > 0;
    }
    double mirrored_root(double x) const {
        const double s = p_.shift[1], half = 0.5 * std::abs(x);
        const double log_odds = p_.log_weight[0] - p_.log_weight[1] + 0.5 * s * s;
        const double log_twice = log_odds + half + std::log(-std::expm1(-2 * half));
        const double turn = log_twice > 40 ? log_twice : std::asinh(0.5 * std::exp(log_twice));
        return std::copysign((half + turn) / s, x);
    }

    // The loss and its slope, up to what cancels between P and Q.
    struct Value {
        double value, slope;
    };
    Value log_with_slope(const Side& side, double t) const {
        const bool plain = noise_ == Noise::gaussian;
        const auto exponent = [&](std::size_t i) {
            const double shift = side.shift[i];
            return side.log_weight[i] + (plain ? shift * (t - 0.5 * shift) : -std::abs(t - shift));
        };
        double largest = -infinity;
        for (std::size_t i = 0; i < side.shift.size(); ++i) largest = std::max(largest, exponent(i));
        double sum = 0, slope = 0;
        for (std::size_t i = 0; i < side.shift.size(); ++i) {
            const double term = std::exp(exponent(i) - largest);
            sum += term;
            slope += term * (plain ? side.shift[i] : t < side.shift[i] ? 1 : -1);
        }
        return {largest + std::log(sum), slope / sum};
    }
    Value loss_with_slope(double t) const {
        const Value p = log_with_slope(p_, t), q = log_with_slope(q_, t);
        return {p.value - q.value, p.slope - q.slope};
    }

    // The loss increases with t: Newton's method in a bracket that halves at least every third step.
    double invert(double x) const {
        if (mirrored_) return x == 0 ? 0 : mirrored_root(x);
        double a = low_, b = high_;
        if (noise_ == Noise::gaussian) {
            double step = 1 + (b - a);
            while (loss(a) > x && step < 1e18) a -= step, step *= 2;
            step = 1 + (b - a);
            while (loss(b) < x && step < 1e18) b += step, step *= 2;
        }
        double t = 0.5 * (a + b), before = infinity;
        for (int i = 0; i < 200 && b - a > 2 * u * (std::abs(a) + std::abs(b)); ++i) {
            const Value at = loss_with_slope(t);
            const double f = at.value - x;
            if (std::abs(f) <= 2 * u * (1 + std::abs(x))) return t;
            (f < 0 ? a : b) = t;
            t -= f / at.slope;
            const bool slow = i % 3 == 2 && b - a > 0.5 * before;
            if (i % 3 == 2) before = b - a;
            if (slow || !(t > a && t < b)) t = 0.5 * (a + b);
        }
        return 0.5 * (a + b);
    }

    // ln Pr[side*(T - shift) > side*t] split into a mantissa and an exponent.
    void tail(double z, double& mantissa, double& exponent) const {
        if (noise_ == Noise::gaussian) {
            exponent = z >= 0 ? -0.5 * z * z : 0;
            mantissa = z >= 0 ? scaled_normal_tail(z) : 1 - std::exp(-0.5 * z * z) * scaled_normal_tail(-z);
        } else {
            exponent = z >= 0 ? -z : 0;
            mantissa = z >= 0 ? 0.5 : 1 - 0.5 * std::exp(z);
        }
    }
    // Sum of a side's tails times e^offset; the largest exponent is taken out.
    double side_tail(const Side& side, double t, int direction, double offset, double& exponent) const {
        std::vector<double> mantissas(side.shift.size()), exponents(side.shift.size());
        double largest = -infinity;
        for (std::size_t i = 0; i < side.shift.size(); ++i) {
            tail(direction * (t - side.shift[i]), mantissas[i], exponents[i]);
            exponents[i] += side.log_weight[i] + offset;
            largest = std::max(largest, exponents[i]);
        }
        double sum = 0;
        for (std::size_t i = 0; i < mantissas.size(); ++i)
            sum += mantissas[i] * std::exp(exponents[i] - largest);
        exponent = largest;
        return sum;
    }

    Tangent tangent(double x, int direction) const {
        const double t = invert(x);
        double p_exponent, q_exponent;
        double p = side_tail(p_, t, direction, 0, p_exponent);
        double q = side_tail(q_, t, direction, x, q_exponent);
        const double exponent = std::max(p_exponent, q_exponent);
        p *= std::exp(p_exponent - exponent);
        q *= std::exp(q_exponent - exponent);
        const double reach = std::max(std::abs(t - high_), std::abs(t - low_));
        const double relative =
            u * (64 + 4 * reach * reach + 4 * std::abs(x) + 4 * static_cast<double>(p_.shift.size()));
        const double value = direction > 0 ? p - q : q - p;
        const double misplaced = 2 * std::abs(loss(t) - x) + 8 * u * (1 + std::abs(x));
        // The loss is a difference of terms of up to reach^2.
        const double moved = misplaced + 8 * u * reach * (1 + reach);
        return {value,    q,    exponent, relative * std::max(p, q) + std::min(1.0, misplaced) * q,
                relative, moved};
    }

    Noise noise_;
    Side p_, q_;
    double low_ = 0, high_ = 0, min_ = -infinity, max_ = infinity;
    bool mirrored_ = false;
};

class BracketPair final : public Pair {
public:
    BracketPair(PairPtr lower, PairPtr upper) : lower_(std::move(lower)), upper_(std::move(upper)) {}

    Tangent above(double x) const override { return upper_->above(x); }
    Tangent below(double x) const override { return upper_->below(x); }
    double max_loss() const override { return upper_->max_loss(); }
    double infinity_mass() const override { return upper_->infinity_mass(); }
    double q_mass() const override { return upper_->q_mass(); }
    double spacing() const override { return upper_->spacing(); }
    double anchor() const override { return upper_->anchor(); }
    std::vector<GaussianMixtures> gaussian_mixtures() const override { return upper_->gaussian_mixtures(); }
    std::optional<LossLaw> loss_law() const override { return upper_->loss_law(); }
    PairPtr lower() const override { return lower_; }

private:
    PairPtr lower_, upper_;
};

}  // namespace

double plain_gaussian_mu(const Pair& pair) {
    const auto mixtures = pair.gaussian_mixtures();
    if (mixtures.size() != 1 || mixtures[0].p_shift.size() != 1 || mixtures[0].q_shift.size() != 1) return 0;
    return mixtures[0].p_shift[0] - mixtures[0].q_shift[0];
}

double plain_laplace_epsilon(const Pair& pair) {
    const auto* laplace_pair = dynamic_cast<const LaplacePair*>(&pair);
    return laplace_pair ? laplace_pair->max_loss() : 0;
}

PairPtr gaussian(double mu) {
    require(std::isfinite(mu) && mu > 0, "gaussian: mu must be finite and positive");
    return std::make_shared<GaussianPair>(mu);
}

PairPtr laplace(double epsilon) {
    require(std::isfinite(epsilon) && epsilon > 0, "laplace: epsilon must be finite and positive");
    return std::make_shared<LaplacePair>(epsilon);
}

PairPtr discrete(std::vector<double> losses, std::vector<double> p, std::vector<double> q, double p_infinity,
                 double spacing, double q_infinity) {
    require(losses.size() == p.size() && p.size() == q.size(),
            "discrete: losses, p and q must have equal lengths");
    require(p_infinity >= 0 && p_infinity <= 1, "discrete: p_infinity must lie in [0, 1]");
    require(std::isfinite(spacing) && spacing >= 0, "discrete: spacing must be finite and not negative");
    CompensatedSum p_total, q_total;
    p_total.add(p_infinity);
    for (std::size_t i = 0; i < losses.size(); ++i) {
        require(std::isfinite(losses[i]) && (i == 0 || losses[i] > losses[i - 1]),
                "discrete: losses must be finite and strictly increasing");
        require(p[i] >= 0 && q[i] >= 0 && std::isfinite(p[i]) && std::isfinite(q[i]),
                "discrete: masses must be finite and not negative");
        p_total.add(p[i]);
        q_total.add(q[i]);
    }
    require(std::abs(p_total.value() - 1) < 1e-9, "discrete: the P-masses must sum to 1");
    require(q_total.value() < 1 + 1e-9, "discrete: the Q-masses must sum to at most 1");
    require(!(q_infinity >= 0) || std::abs(q_total.value() + q_infinity - 1) < 1e-9,
            "discrete: the Q-masses and q_infinity must sum to 1");
    return std::make_shared<DiscretePair>(std::move(losses), p, q, p_infinity, spacing, q_infinity);
}

PairPtr sampled(PairPtr base, double sampling_probability, Sampling mode) {
    require(base != nullptr, "sampled: a base pair is needed");
    require(sampling_probability > 0 && sampling_probability <= 1,
            "sampled: sampling_probability must lie in (0, 1]");
    if (sampling_probability == 1) return base;
    return std::make_shared<SampledPair>(std::move(base), sampling_probability, mode);
}

PairPtr mixture(std::vector<PairPtr> pairs, std::vector<double> weights) {
    require(pairs.size() == weights.size() && !pairs.empty(), "mixture: one weight for each pair is needed");
    double total = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        require(pairs[i] != nullptr, "mixture: a pair is missing");
        require(weights[i] >= 0, "mixture: weights must not be negative");
        total += weights[i];
    }
    require(total <= 1 + 1e-9, "mixture: weights must sum to at most 1");
    return std::make_shared<MixturePair>(std::move(pairs), std::move(weights));
}

PairPtr location_mixture(Noise noise, double scale, std::vector<double> p_shifts,
                         std::vector<double> p_weights, std::vector<double> q_shifts,
                         std::vector<double> q_weights) {
    require(std::isfinite(scale) && scale > 0, "location_mixture: scale must be finite and positive");
    const auto check = [](const std::vector<double>& shifts, const std::vector<double>& weights,
                          double sign) {
        require(!shifts.empty() && shifts.size() == weights.size(),
                "location_mixture: one weight for each shift is needed");
        double total = 0;
        for (std::size_t i = 0; i < shifts.size(); ++i) {
            require(std::isfinite(shifts[i]) && sign * shifts[i] >= 0,
                    "location_mixture: P-shifts must be >= 0 and Q-shifts <= 0");
            require(weights[i] >= 0, "location_mixture: weights must not be negative");
            total += weights[i];
        }
        require(std::abs(total - 1) < 1e-9, "location_mixture: weights must sum to 1");
    };
    check(p_shifts, p_weights, +1);
    check(q_shifts, q_weights, -1);
    return std::make_shared<LocationMixturePair>(noise, scale, std::move(p_shifts), std::move(p_weights),
                                                 std::move(q_shifts), std::move(q_weights));
}

PairPtr bracket(PairPtr lower, PairPtr upper) {
    require(lower != nullptr && upper != nullptr, "bracket: both pairs are needed");
    return std::make_shared<BracketPair>(std::move(lower), std::move(upper));
}

}  // namespace hockeystick
