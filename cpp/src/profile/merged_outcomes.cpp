#include "profile/merged_outcomes.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "hockeystick/loss_law.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// speed: no more outcomes than that are asked about, nor found by so many products.
constexpr std::size_t most_merged = 1 << 14;
constexpr double most_products = 1e9;
// speed: the mass at either end that is not worth its place.
constexpr double trimmed = 1e-80;
// speed: from what relative error of an atom's mass all of it counts as lost.
constexpr double unsure = 1e-9;
// proof: more than what is computed of errors rounds by; and more than sums of products lose below the normal
// doubles, which doubles with each of some forty squares.
constexpr double products = 1 + 1e-9, lost_below = 1e-290;

// P-masses at offset + (first + i) spacing, i = 0, 1, ...
class OnComb {
public:
    OnComb() : mass_{1} {}
    OnComb(const LossLaw& law, double offset, double spacing) : offset_(offset) {
        const auto place = [&](const LossAtom& atom) {
            return static_cast<std::int64_t>(std::llround((atom.loss - offset) / spacing));
        };
        first_ = place(law.atoms.front());
        mass_.resize(static_cast<std::size_t>(place(law.atoms.back()) - first_) + 1);
        for (const LossAtom& atom : law.atoms) {
            const double mass = std::exp(std::min(0.0, atom.log_p)), share = u * atom.log_p_slack;
            if (!(share <= unsure)) {
                lost_ += std::min(1.0, mass * (1 + share) * (1 + unsure));
                continue;
            }
            loss_error_ = std::max(loss_error_, u * atom.loss_slack);
            units_ = std::max(units_, atom.log_p_slack + 4);
            mass_[static_cast<std::size_t>(place(atom) - first_)] += mass;
        }
        units_ += static_cast<double>(law.atoms.size());
        trim();
    }

    bool small() const { return mass_.size() <= most_merged; }
    double products_with(const OnComb& other) const {
        return static_cast<double>(mass_.size()) * static_cast<double>(other.mass_.size());
    }

    OnComb operator*(const OnComb& other) const {
        const std::vector<double>&few = mass_.size() < other.mass_.size() ? mass_ : other.mass_,
              &many = mass_.size() < other.mass_.size() ? other.mass_ : mass_;
        OnComb out;
        out.mass_.assign(few.size() + many.size() - 1, 0);
        for (std::size_t i = 0; i < few.size(); ++i)
            for (std::size_t j = 0; j < many.size(); ++j) out.mass_[i + j] += few[i] * many[j];
        out.first_ = first_ + other.first_;
        out.offset_ = offset_ + other.offset_;
        out.units_ = units_ + other.units_ + static_cast<double>(few.size()) + 2;
        out.loss_error_ = loss_error_ + other.loss_error_ + 4 * u * std::abs(out.offset_);
        out.lost_ = lost_ + other.lost_;
        out.trim();
        return out;
    }

    void terms(double spacing, MergedOutcomes& into) const {
        const double share = products * std::expm1(u * (units_ + 4));
        for (std::size_t i = 0; i < mass_.size(); ++i) {
            const double multiple = static_cast<double>(first_ + static_cast<std::int64_t>(i)) * spacing,
                         loss = offset_ + multiple,
                         off = products * (loss_error_ + 8 * u * (std::abs(offset_) + std::abs(multiple)));
            if (!(mass_[i] > 0)) continue;
            into.lower.push_back({loss - off, std::max(0.0, mass_[i] * (1 - share) - lost_below)});
            into.upper.push_back({loss + off, mass_[i] * (1 + share) + lost_below});
        }
        into.lost = lost_ * products + static_cast<double>(mass_.size()) * lost_below;
    }

private:
    void trim() {
        const auto drop = [&](auto from, auto to) {
            // The masses are known to far more than a factor of two, but for what is below the normal
            // doubles.
            double dropped = 0;
            for (; from != to && dropped + *from <= trimmed; ++from) {
                dropped += *from;
                lost_ += 2 * *from + lost_below;
            }
            return from;
        };
        const auto low = drop(mass_.begin(), mass_.end() - 1);
        const auto high = drop(mass_.rbegin(), mass_.rend() - 1).base();
        first_ += low - mass_.begin();
        mass_ = low < high ? std::vector<double>(low, high) : std::vector<double>{*low};
    }

    std::vector<double> mass_;
    std::int64_t first_ = 0;
    // Errors: of each mass in units of round-off, of each loss.
    double offset_ = 0, units_ = 0, loss_error_ = 0, lost_ = 0;
};

// Empty where that takes too much.
std::optional<OnComb> power(OnComb square, std::uint64_t count) {
    OnComb out;
    for (double done = 0;; square = square * square) {
        if ((done += out.products_with(square) + square.products_with(square)) > most_products) return {};
        if (count & 1) out = out * square;
        if (!(count >>= 1)) return out.small() ? std::optional(out) : std::nullopt;
    }
}

}  // namespace

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
        const auto steps = power(OnComb(laws[i], comb->offset[i], comb->spacing), composition[i].second);
        if (!steps || all.products_with(*steps) > most_products) return {};
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
