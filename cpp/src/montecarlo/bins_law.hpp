// The law of two copies of balls-in-bins (docs/montecarlo/tilted.md, section 3).
#pragma once

#include <algorithm>
#include <vector>

#include "hockeystick/parallel.hpp"
#include "montecarlo/law_tables.hpp"

namespace hockeystick {

// Balls-in-bins: pairs of places (j, k) with weight e^{<Cx^j, Cx^k>/sigma^2} / bins^2. Places whose columns
// never meet have e^0, and only the others are listed.
class BinsLaw final : public MeanLaw {
public:
    explicit BinsLaw(const MatrixMechanism& mechanism)
        : steps_(mechanism.steps()), bins_(separation(mechanism.scheme)), used_(std::min(bins_, steps_)) {
        const auto& [strategy, scheme, noise_multiplier] = mechanism;
        const std::size_t bands = strategy.bands();
        const InnerProducts inner(strategy);
        std::vector<double> product(used_);
        std::vector<bool> meets(used_);
        for (std::size_t j = 0; j < used_; ++j) {
            interruption_point();
            std::fill(product.begin(), product.end(), 0.0);
            std::fill(meets.begin(), meets.end(), false);
            for (std::size_t i = j; i < steps_; i += bins_) {
                const std::size_t first = i + 1 > bands ? i + 1 - bands : 0,
                                  end = std::min(steps_, i + bands);
                for (std::size_t k = first, place = k % bins_; k < end; ++k) {
                    product[place] += inner(i, k);
                    meets[place] = true;
                    if (++place == bins_) place = 0;
                }
            }
            Row row;
            for (std::size_t place = 0; place < used_; ++place) {
                if (!meets[place]) continue;
                row.places.push_back(place);
                row.weights.push_back(
                    Extended::exponential(product[place] / noise_multiplier / noise_multiplier));
            }
            Extended sum(static_cast<double>(bins_ - row.places.size()));
            for (const Extended& weight : row.weights) sum = sum + weight;
            rows_.push_back(std::move(row));
            total_ = total_ + sum;
            sums_.push_back(total_);
        }
        // Places past the last iteration meet nobody.
        const auto all = static_cast<double>(bins_);
        total_ = total_ + Extended(static_cast<double>(bins_ - used_) * all);
    }

    double log_normaliser() const override {
        return total_.log() - 2 * portable_log(static_cast<double>(bins_));
    }

    void draw(Stream& stream, std::vector<Hit>& hits) const override {
        hits.clear();
        const Extended target = Extended(stream.uniform()) * total_;
        const auto found = std::lower_bound(sums_.begin(), sums_.end(), target);
        const auto first = static_cast<std::size_t>(found - sums_.begin());
        std::size_t second = 0;
        if (first == used_) {
            second = static_cast<std::size_t>(stream.below(bins_));
        } else {
            const Row& row = rows_[first];
            const std::size_t listed = row.places.size();
            const std::size_t k = pick(
                stream.uniform(),
                [&](std::size_t j) {
                    return j < listed ? row.weights[j] : Extended(static_cast<double>(bins_ - listed));
                },
                listed + (bins_ > listed ? 1 : 0));
            if (k < listed) {
                second = row.places[k];
            } else {
                // One of the others, in order.
                second = static_cast<std::size_t>(stream.below(bins_ - listed));
                for (const std::size_t place : row.places) second += place <= second ? 1 : 0;
            }
        }
        for (std::size_t start = 0; start < steps_; start += bins_) {
            const std::size_t low = start + std::min(first, second), high = start + std::max(first, second);
            if (low == high && low < steps_) hits.push_back({low, 2});
            if (low != high && low < steps_) hits.push_back({low, 1});
            if (low != high && high < steps_) hits.push_back({high, 1});
        }
    }

private:
    struct Row {
        std::vector<std::size_t> places;
        std::vector<Extended> weights;
    };
    std::size_t steps_, bins_, used_;
    std::vector<Row> rows_;
    std::vector<Extended> sums_;
    Extended total_;
};

}  // namespace hockeystick
