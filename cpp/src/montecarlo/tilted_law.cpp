// T: the chain of participations with weights p_x theta^|x|, sampled forward by a table of what is to come
// (docs/montecarlo/tilted.md).
#include <algorithm>

#include "montecarlo/law_tables.hpp"

namespace hockeystick {
namespace {

class TiltedChain final : public MeanLaw {
public:
    TiltedChain(const Scheme& scheme, std::size_t steps, const Tilt& tilt, std::span<const Cut> cuts)
        : options_(scheme, steps, cuts, tilt.theta),
          scale_(1 + tilt.shift),
          powers_(powers(options_.stay, steps)),
          to_come_(weights_to_come(options_)) {
        Extended sum;
        for (std::size_t i = 0; i < options_.separation; ++i) {
            sum = sum + Extended(options_.start[i]) * to_come_[i];
            starts_.push_back(sum);
        }
        total_ = sum + Extended(options_.outside);
    }

    double log_normaliser() const override { return total_.log(); }

    void draw(Stream& stream, std::vector<Hit>& hits) const override {
        hits.clear();
        const std::size_t steps = options_.steps;
        const Extended target = Extended(stream.uniform()) * total_;
        const auto first = std::lower_bound(starts_.begin(), starts_.end(), target);
        auto i = static_cast<std::size_t>(first - starts_.begin());  // separation: never available
        while (i < steps && first != starts_.end()) {
            // The weight of staying out for j iterations falls with j.
            const auto value = [&](std::size_t j) { return powers_[j] * to_come_[i + j]; };
            const std::size_t idle = last_above(steps - i, Extended(stream.uniform()) * to_come_[i], value);
            if (idle == steps - i) return;
            i += idle;
            const auto choices = options_.at(i);
            if (choices.empty()) return;
            double sum = 0;
            for (const Choice& choice : choices) sum += choice.weight;
            double u = choices.size() > 1 ? stream.uniform() * sum : 0;
            std::size_t k = 0;
            while (k + 1 < choices.size() && u > choices[k].weight) u -= choices[k++].weight;
            if (choices[k].multiplicity != 0) hits.push_back({i, scale_ * choices[k].multiplicity});
            i += options_.separation;
        }
    }

private:
    ChainOptions options_;
    double scale_;
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

std::unique_ptr<MeanLaw> tilted_law(const Scheme& scheme, std::size_t steps, const Tilt& tilt,
                                    std::span<const Cut> cuts) {
    check(scheme, steps);
    if (const auto* bins = std::get_if<BallsInBins>(&scheme)) {
        return std::make_unique<TiltedBins>(*bins, steps, tilt);
    }
    return std::make_unique<TiltedChain>(scheme, steps, tilt, cuts);
}

}  // namespace hockeystick
