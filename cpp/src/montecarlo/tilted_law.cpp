// T: the chain of participations with weights p_x theta^|x|, sampled forward by a table of what is to come
// (docs/montecarlo/tilted.md, section 4).
#include <algorithm>

#include "montecarlo/law_tables.hpp"
#include "numerics/require.hpp"

namespace hockeystick {
namespace {

class TiltedChain final : public MeanLaw {
public:
    TiltedChain(const Scheme& scheme, std::size_t steps, const Tilt& tilt)
        : chain_(scheme, steps, tilt.theta),
          scale_(1 + tilt.shift),
          powers_(powers(chain_.stay, steps)),
          to_come_(weights_to_come(chain_)) {
        for (const Choice& choice : chain_.choices) {
            weights_.push_back(choice.weight.value());
            total_weight_ += weights_.back();
        }
        Extended sum;
        for (std::size_t i = 0; i < chain_.separation; ++i) {
            sum = sum + chain_.start[i] * to_come_[i];
            starts_.push_back(sum);
        }
        total_ = sum + chain_.outside;
    }

    double log_normaliser() const override { return total_.log(); }

    void draw(Stream& stream, std::vector<Hit>& hits) const override {
        hits.clear();
        const std::size_t steps = chain_.steps;
        const Extended target = Extended(stream.uniform()) * total_;
        const auto first = std::lower_bound(starts_.begin(), starts_.end(), target);
        auto i = static_cast<std::size_t>(first - starts_.begin());  // separation: never available
        while (i < steps && first != starts_.end()) {
            // The weight of staying out for j iterations falls with j.
            const auto value = [&](std::size_t j) { return powers_[j] * to_come_[i + j]; };
            const std::size_t idle = last_above(steps - i, Extended(stream.uniform()) * to_come_[i], value);
            if (idle == steps - i) return;
            i += idle;
            if (weights_.empty()) return;
            double u = weights_.size() > 1 ? stream.uniform() * total_weight_ : 0;
            std::size_t k = 0;
            while (k + 1 < weights_.size() && u > weights_[k]) u -= weights_[k++];
            hits.push_back({i, scale_ * chain_.choices[k].multiplicity});
            i += chain_.separation;
        }
    }

private:
    ParticipationChain chain_;
    double scale_, total_weight_ = 0;
    std::vector<double> weights_;  // of the choices
    std::vector<Extended> powers_, to_come_, starts_;
    Extended total_;
};

// One of `bins` places; theta would be a factor of about the same size for all of them.
class TiltedBins final : public MeanLaw {
public:
    TiltedBins(const BallsInBins& scheme, std::size_t steps, const Tilt& tilt)
        : bins_(scheme.bins), steps_(steps), scale_(1 + tilt.shift) {}
    double log_normaliser() const override { return 0; }
    void draw(Stream& stream, std::vector<Hit>& hits) const override {
        hits.clear();
        for (auto i = static_cast<std::size_t>(stream.below(bins_)); i < steps_; i += bins_) {
            hits.push_back({i, scale_});
        }
    }

private:
    std::size_t bins_, steps_;
    double scale_;
};

}  // namespace

std::unique_ptr<MeanLaw> tilted_law(const Scheme& scheme, std::size_t steps, const Tilt& tilt) {
    check(scheme, steps);
    if (const auto* bins = std::get_if<BallsInBins>(&scheme)) {
        return std::make_unique<TiltedBins>(*bins, steps, tilt);
    }
    require(is_chain(scheme), "no table for this sampling scheme");
    return std::make_unique<TiltedChain>(scheme, steps, tilt);
}

}  // namespace hockeystick
