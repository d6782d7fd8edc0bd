// A released choice between pairs, of which only those that matter are evaluated (docs/accounting/bounds.md,
// "One step on a lattice").

#include <algorithm>
#include <utility>

#include "numerics/sums.hpp"
#include "pairs/tangents.hpp"

namespace hockeystick {
namespace {

// A convex combination of profiles is the profile of the mixture whose choice is released.
class MixturePair final : public Pair {
public:
    MixturePair(std::vector<PairPtr> pairs, std::vector<double> weights)
        : pairs_(std::move(pairs)), weights_(std::move(weights)) {
        CompensatedSum total;
        for (double w : weights_) total.add(w);
        // Rounding of the weights must not create mass at infinity, nor hide it.
        constexpr double rounding_of_weights = 1e-14;  // proof: what `mixture` declares to be rounding
        lost_ = 1 - total.value();
        if (lost_ < rounding_of_weights) lost_ = 0;
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
        return mixtures_of([](const Pair& pair) { return pair.gaussian_mixtures(); });
    }
    std::vector<GaussianMixtures> joined_mixtures() const override {
        auto all = mixtures_of([](const Pair& pair) {
            auto joined = pair.joined_mixtures();
            return joined.empty() ? pair.gaussian_mixtures() : joined;
        });
        const bool any =
            std::any_of(all.begin(), all.end(), [](const auto& part) { return part.joined.has_value(); });
        return any ? all : std::vector<GaussianMixtures>();
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
                if (atom.group != LossAtom::of_all) atom.group += first;
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
            law.of_all += weights_[i] * part->of_all;
            law.lacks_rounding = law.lacks_rounding || part->lacks_rounding;
        }
        return law;
    }

    PairPtr lower() const override { return of_parts(&Pair::lower); }
    PairPtr looser() const override { return of_parts(&Pair::looser); }

private:
    PairPtr of_parts(PairPtr (Pair::*other)() const) const {
        std::vector<PairPtr> parts;
        bool any = false;
        for (const auto& pair : pairs_) {
            const PairPtr part = ((*pair).*other)();
            any = any || part;
            parts.push_back(part ? part : pair);
        }
        return any ? mixture(std::move(parts), weights_) : nullptr;
    }

    template <class MixturesOf>
    std::vector<GaussianMixtures> mixtures_of(MixturesOf of) const {
        std::vector<GaussianMixtures> all;
        if (lost_ > 0) return all;
        for (std::size_t i = 0; i < pairs_.size(); ++i) {
            if (weights_[i] == 0) continue;
            auto part = of(*pairs_[i]);
            if (part.empty()) return {};
            for (GaussianMixtures& mixtures : part) {
                mixtures.weight *= weights_[i];
                all.push_back(std::move(mixtures));
            }
        }
        return all;
    }

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
            add(above ? pairs_[i]->above(x) : pairs_[i]->below(x), weights_[i], sum);
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

    static void add(const Tangent& part, double weight, Tangent& sum) {
        const double exponent = std::max(sum.exponent, part.exponent);
        double old_scale = 1, new_scale = weight, reach = 0;
        if (part.exponent != sum.exponent) {
            old_scale = std::exp(sum.exponent - exponent);
            new_scale = weight * std::exp(part.exponent - exponent);
            // Scaling by e^d rounds by d u relatively; a term with large d is itself small.
            const double distance = std::abs(part.exponent - sum.exponent);
            reach = std::isfinite(distance) ? distance * std::exp(-distance) : 0.0;
        }
        sum.value = sum.value * old_scale + part.value * new_scale;
        sum.slope = sum.slope * old_scale + part.slope * new_scale;
        sum.error = sum.error * old_scale + part.error * new_scale + u * (8 + reach) * std::abs(sum.value);
        sum.exponent = exponent;
        sum.relative = std::max(sum.relative, part.relative) + u * (8 + reach);
        sum.misplaced = std::max(sum.misplaced, part.misplaced);
    }

    // proof: e^-120 is nothing beside rounding, whatever the tails' factors ("One step on a lattice").
    static constexpr double negligible = 120;

    std::vector<double> mu_, log_weight_;  // mu_: 0 for parts that are not plain Gaussian
    std::vector<PairPtr> pairs_;
    std::vector<double> weights_;
    double lost_ = 0;
};

}  // namespace

PairPtr mixture(std::vector<PairPtr> pairs, std::vector<double> weights) {
    require(pairs.size() == weights.size() && !pairs.empty(), "mixture: one weight for each pair is needed");
    double total = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        require(pairs[i] != nullptr, "mixture: a pair is missing");
        require(weights[i] >= 0, "mixture: weights must not be negative");
        total += weights[i];
        // The inversion does not know mixtures.
        if (PairPtr other = pairs[i]->stand_in()) pairs[i] = std::move(other);
    }
    require(total <= 1 + 1e-9, "mixture: weights must sum to at most 1");
    return std::make_shared<MixturePair>(std::move(pairs), std::move(weights));
}

}  // namespace hockeystick
