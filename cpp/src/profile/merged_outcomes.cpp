#include "profile/merged_outcomes.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "hockeystick/loss_law.hpp"
#include "numerics/constants.hpp"
#include "profile/positive_masses.hpp"

namespace hockeystick {
namespace {

// speed: no more outcomes than that are asked about, nor found by so many products.
constexpr std::size_t most_merged = 1 << 14;
constexpr double most_products = 1e9;
// speed: the mass at either end that is not worth its place.
constexpr double trimmed = 1e-80;
// speed: from what relative error of an atom's mass all of it counts as lost.
constexpr double unsure = 1e-9;
// proof: more than what is computed of errors rounds by.
constexpr double products = 1 + 1e-9;

// P-masses at the points of a lattice that begins at `offset`.
class OnComb {
public:
    OnComb() = default;
    OnComb(const LossLaw& law, double offset, double spacing) : offset_(offset) {
        const auto place = [&](const LossAtom& atom) {
            return static_cast<std::int64_t>(std::llround((atom.loss - offset) / spacing));
        };
        mass_.first = place(law.atoms.front());
        mass_.at.assign(static_cast<std::size_t>(place(law.atoms.back()) - mass_.first) + 1, 0);
        for (const LossAtom& atom : law.atoms) {
            const double mass = std::exp(std::min(0.0, atom.log_p)), share = u * atom.log_p_slack;
            if (!(share <= unsure)) {
                lost_ += std::min(1.0, mass * (1 + share) * (1 + unsure));
                continue;
            }
            loss_error_ = std::max(loss_error_, u * atom.loss_slack);
            mass_.units = std::max(mass_.units, atom.log_p_slack + 4);
            mass_.at[static_cast<std::size_t>(place(atom) - mass_.first)] += mass;
        }
        mass_.units += static_cast<double>(law.atoms.size());
        lost_ += mass_.keep(mass_.but_for(trimmed));
    }

    bool small() const { return mass_.at.size() <= most_merged; }
    double products_with(const OnComb& other) const { return mass_.products_with(other.mass_); }

    OnComb operator*(const OnComb& other) const {
        OnComb out;
        out.mass_ = mass_ * other.mass_;
        out.offset_ = offset_ + other.offset_;
        out.loss_error_ = loss_error_ + other.loss_error_ + 4 * u * std::abs(out.offset_);
        out.lost_ = lost_ + other.lost_ + out.mass_.keep(out.mass_.but_for(trimmed));
        return out;
    }

    void terms(double spacing, MergedOutcomes& into) const {
        const double share = products * std::expm1(u * (mass_.units + 4)),
                     size = static_cast<double>(mass_.at.size());
        for (std::size_t i = 0; i < mass_.at.size(); ++i) {
            const double multiple = static_cast<double>(mass_.first + static_cast<std::int64_t>(i)) * spacing,
                         loss = offset_ + multiple, mass = mass_.at[i],
                         off = products * (loss_error_ + 8 * u * (std::abs(offset_) + std::abs(multiple)));
            if (!(mass > 0)) continue;
            into.lower.push_back(
                {loss - off, std::max(0.0, mass * (1 - share) - PositiveMasses::lost_below)});
            into.upper.push_back({loss + off, mass * (1 + share) + PositiveMasses::lost_below});
        }
        into.lost = lost_ * products + size * PositiveMasses::lost_below;
    }

private:
    PositiveMasses mass_;
    double offset_ = 0, loss_error_ = 0, lost_ = 0;
};

}  // namespace

bool only_atoms(const Pair& pair) {
    const auto law = pair.loss_law();
    return law && law->pieces.empty() && !law->atoms.empty();
}

std::optional<MergedOutcomes> MergedOutcomes::of(const Composition& composition) {
    std::vector<LossLaw> laws;
    std::vector<double> spacings;
    for (const auto& [pair, count] : composition) {
        auto law = pair->loss_law();
        if (!law || !law->pieces.empty() || law->atoms.empty() || law->lacks_rounding) return {};
        laws.push_back(std::move(*law));
        spacings.push_back(pair->spacing());
    }
    const auto comb = onto_lattice(laws, spacings);
    if (!comb) return apart(composition, most_merged);
    OnComb all;
    for (std::size_t i = 0; i < laws.size(); ++i) {
        double left = most_products;
        const auto steps =
            power(OnComb(laws[i], comb->offset[i], comb->spacing), composition[i].second, false, left);
        if (!steps || !steps->small() || all.products_with(*steps) > most_products) return {};
        all = all * *steps;
        if (!all.small()) return {};
    }
    MergedOutcomes out;
    all.terms(comb->spacing, out);
    return out.upper.empty() ? std::nullopt : std::optional(std::move(out));
}

std::optional<MergedOutcomes> MergedOutcomes::apart(const Composition& composition, std::size_t most) {
    MergedOutcomes out{Outcomes::terms(composition, most, false), Outcomes::terms(composition, most, true)};
    return out.upper.empty() ? std::nullopt : std::optional(std::move(out));
}

}  // namespace hockeystick
