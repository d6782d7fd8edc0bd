// T: the chain of participations with weights p_x theta^|x|, sampled forward by a table of what is to come.
#include <algorithm>
#include <stdexcept>

#include "hockeystick/proposal.hpp"
#include "montecarlo/chain_options.hpp"

namespace hockeystick {
namespace {

// to_come_[i]: the weight of all that may happen from iteration i on if the example is available in i,
//     to_come_[i] = stay to_come_[i + 1] + sum_choices weight to_come_[i + separation],   1 past the end.
class TiltedChain final : public MeanLaw {
public:
    TiltedChain(const Scheme& scheme, std::size_t steps, const Tilt& tilt, std::span<const Cut> cuts)
        : options_(scheme, steps, cuts, tilt.theta),
          scale_(1 + tilt.shift),
          powers_(powers(options_.stay, steps)),
          to_come_(steps + options_.separation, Wide(1.0)) {
        const Wide stay(options_.stay);
        for (std::size_t i = steps; i-- > 0;) {
            Wide sum = stay * to_come_[i + 1];
            for (const Choice& choice : options_.at(i)) {
                sum = sum + Wide(choice.weight) * to_come_[i + options_.separation];
            }
            to_come_[i] = sum;
        }
        Wide sum;
        for (std::size_t i = 0; i < options_.separation; ++i) {
            sum = sum + Wide(options_.start[i]) * to_come_[i];
            starts_.push_back(sum);
        }
        total_ = sum + Wide(options_.outside);
    }

    double log_normaliser() const override { return total_.log(); }

    void draw(Stream& stream, std::vector<Hit>& hits) const override {
        hits.clear();
        const std::size_t steps = options_.steps;
        const Wide target = Wide(stream.uniform()) * total_;
        const auto first = std::lower_bound(starts_.begin(), starts_.end(), target);
        auto i = static_cast<std::size_t>(first - starts_.begin());  // separation: never available
        while (i < steps && first != starts_.end()) {
            // Staying out up to j has the weight stay^(j - i) to_come_[j], which falls with j.
            const Wide level = Wide(stream.uniform()) * to_come_[i];
            const auto stays = [&](std::size_t j) { return !(powers_[j - i] * to_come_[j] < level); };
            if (stays(steps)) return;
            std::size_t low = i, high = steps;  // stays up to low, not up to high
            while (high - low > 1) {
                const std::size_t middle = low + (high - low) / 2;
                (stays(middle) ? low : high) = middle;
            }
            const auto choices = options_.at(low);
            if (choices.empty()) return;
            double sum = 0;
            for (const Choice& choice : choices) sum += choice.weight;
            double u = choices.size() > 1 ? stream.uniform() * sum : 0;
            std::size_t k = 0;
            while (k + 1 < choices.size() && u > choices[k].weight) u -= choices[k++].weight;
            if (choices[k].multiplicity != 0) hits.push_back({low, scale_ * choices[k].multiplicity});
            i = low + options_.separation;
        }
    }

private:
    ChainOptions options_;
    double scale_;
    std::vector<Wide> powers_, to_come_, starts_;
    Wide total_;
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
