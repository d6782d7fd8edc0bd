// Finitely many losses, atoms with a P- and a Q-mass each, as running sums (docs/accounting/bounds.md, "One
// step on a lattice").

#include <utility>

#include "numerics/sums.hpp"
#include "pairs/tangents.hpp"

namespace hockeystick {
namespace {

// proof: sums and masses above this have all their digits, as what rounds below the normal doubles is nothing
// beside them.
constexpr double fully_precise = 1e-290;
// proof: more than the rounding of masses that sum to 1 ("One step on a lattice").
constexpr double rounding_of_one = 1e-13;
// speed: no mistake of rounding alone: losses that are not those of the masses at all would go unnoticed.
constexpr double most_off = 1e-3;
// proof: of a largest loss, in units of round-off, where it is a multiple of a spacing that is itself
// rounded.
constexpr double rounding_of_spacing = 2;

class DiscretePair final : public Pair {
public:
    DiscretePair(std::vector<double> losses, const std::vector<double>& p, const std::vector<double>& q,
                 double p_infinity, double spacing, double q_infinity, MassesGiven given)
        : losses_(std::move(losses)),
          p_infinity_(p_infinity),
          spacing_(spacing),
          loss_error_(spacing > 0 ? 0 : given.loss_error) {
        const std::size_t n = losses_.size();
        consistent_ = true;
        for (std::size_t i = 0; i < n; ++i) {
            atoms_.push_back(atom(losses_[i], p[i], q[i], loss_error_));
            // Masses that underflowed have lost digits.
            if (!(std::min(p[i], q[i]) > fully_precise)) continue;
            const double log_p = std::log(p[i]), off = std::abs(log_p - std::log(q[i]) - losses_[i]);
            require(off <= most_off * (1 + std::abs(losses_[i])), "discrete: each loss must be ln p/q");
            if (off > std::max(64.0, loss_error_) * u * (1 + std::abs(losses_[i]) + std::abs(log_p)))
                consistent_ = false;
        }
        p_above_.resize(n + 1);
        p_above_error_.resize(n + 1);
        p_below_.resize(n + 1);
        q_below_.resize(n + 1);
        log_q_above_.assign(n + 1, -infinity);
        log_p_below_.assign(n + 1, -infinity);
        CompensatedSum p_up, q_up, p_down, q_down;
        for (std::size_t i = n; i-- > 0;) {
            p_up.add(p[i]);
            q_up.add(q[i]);
            p_above_[i] = p_up.value();
            // The logarithm of a mass rounds relatively, too.
            p_above_error_[i] = rounding(0, std::log(p_above_[i])) * p_above_[i];
            log_q_above_[i] = log_sum(q_up, log_q_above_[i + 1], q[i], p[i], -losses_[i]);
        }
        // Nor must they sum to anything but 1, but for rounding.
        if (std::abs(p_up.value() + p_infinity - 1) > rounding_of_one || q_up.value() > 1 + rounding_of_one)
            consistent_ = false;
        // An atom without mass is no loss; one whose P-mass alone is 0 has lost it to underflow.
        for (std::size_t i = 0; i < n; ++i)
            if (p[i] > 0 || q[i] > 0)
                max_loss_ =
                    losses_[i] + std::max(loss_error_, rounding_of_spacing) * u * std::abs(losses_[i]);
        // Q-mass where P has none sits at -inf. Rounding alone must not create such an atom.
        const double rest = 1 - q_up.value();
        q_down.add(q_infinity >= 0 ? q_infinity : rest < rounding_of_one ? 0 : rest);
        rest_is_rounded_ = given.total_is_rounded || (q_infinity < 0 && q_down.value() > 0);
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
        const double unsure = misplaced(at);
        const bool may_move = i > 0 && losses_[i - 1] > at - unsure;
        const double before = may_move ? std::exp(at + log_q_above_[index(at - unsure)]) : slope;
        return {p - slope, slope, 0, p_above_error_[i] + slope * relative + unsure * before,
                relative,  unsure};
    }
    Tangent below(double at) const override {
        const std::size_t i = index(at);
        const double q = q_below_[i], scaled = std::exp(log_p_below_[i] - at);
        const double unsure = misplaced(at);
        const bool may_move = i < losses_.size() && losses_[i] <= at + unsure;
        const double before = may_move ? q_below_[index(at + unsure)] : q;
        // Q-mass where P has none may be what the sum leaves of 1.
        const double missing = rest_is_rounded_ ? 64 * u : 0.0;
        const double relative = rounding(at, log_p_below_[i]) + (q > 0 ? missing / q : 0.0);
        const double error = std::max(q, scaled) * relative + (q > 0 ? 0 : missing) + unsure * before;
        return {q - scaled, q, at, error, relative, unsure};
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
        law.lacks_rounding = rest_is_rounded_;
        return law;
    }

private:
    // Losses closer than this cannot be told apart.
    double misplaced(double x) const { return std::max(8.0, loss_error_ + 4) * u * std::abs(x); }
    std::size_t index(double x) const {
        return static_cast<std::size_t>(std::upper_bound(losses_.begin(), losses_.end(), x) -
                                        losses_.begin());
    }
    // A mass of P's that underflowed, to 0 or to few digits, is restored from Q's: p = q e^loss.
    static LossAtom atom(double loss, double p, double q, double loss_error) {
        const bool restored = !(p > fully_precise) && q > p;
        const double mass = restored ? q : p, log_p = std::log(mass) + (restored ? loss : 0);
        const double lost = mass < 1e-300 ? 1e-308 / mass / u : 0;
        return {loss, log_p, loss_error * std::abs(loss),
                16 + std::abs(log_p) + lost + (restored ? 2 * std::abs(loss) : 0)};
    }
    // ln of a running sum. A mass that underflowed is restored from its partner: q = p e^-loss.
    static double log_sum(const CompensatedSum& sum, double previous, double mass, double partner,
                          double shift) {
        if (sum.value() > fully_precise) return std::log(sum.value());
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
        return u * 32 + 2 * u * std::abs(x) + 4 * u * reach;  // the sum may overflow
    }

    bool consistent_, rest_is_rounded_;
    std::vector<LossAtom> atoms_;
    std::vector<double> losses_, p_above_, p_above_error_, p_below_, q_below_, log_q_above_, log_p_below_;
    double p_infinity_, spacing_, loss_error_, max_loss_ = -infinity;
};

}  // namespace

PairPtr discrete(std::vector<double> losses, std::vector<double> p, std::vector<double> q, double p_infinity,
                 double spacing, double q_infinity, MassesGiven given) {
    require(losses.size() == p.size() && p.size() == q.size(),
            "discrete: losses, p and q must have equal lengths");
    require(p_infinity >= 0 && p_infinity <= 1, "discrete: p_infinity must lie in [0, 1]");
    require(given.loss_error >= 0 && given.loss_error <= 65536,
            "discrete: loss_error must lie in [0, 65536]");
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
    require(!std::isnan(q_infinity), "discrete: q_infinity must be a number");
    require(!(q_infinity >= 0) || std::abs(q_total.value() + q_infinity - 1) < 1e-9,
            "discrete: the Q-masses and q_infinity must sum to 1");
    return std::make_shared<DiscretePair>(std::move(losses), p, q, p_infinity, spacing, q_infinity, given);
}

}  // namespace hockeystick
