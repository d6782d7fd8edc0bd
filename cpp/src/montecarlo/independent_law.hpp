// The law of any number of copies where all rounds are independent (docs/montecarlo/tilted.md, section 3).
#pragma once

#include <algorithm>
#include <cmath>

#include "montecarlo/law_tables.hpp"

namespace hockeystick {

// Separation 1: rounds are independent, and any order will do. k of the `order` copies take part in a round
// with weight binomial(order, k) p^k (1-p)^{order-k} e^{k (k-1)/2 |c_i|^2/sigma^2}.
class IndependentLaw final : public MeanLaw {
public:
    IndependentLaw(const MatrixMechanism& mechanism, double p, int order)
        : steps_(mechanism.steps()), order_(static_cast<std::size_t>(order)) {
        const double sigma = mechanism.noise_multiplier;
        const auto norms = mechanism.strategy.squared_norms();
        const bool same = std::all_of(norms.begin(), norms.end(), [&](double x) { return x == norms[0]; });
        const auto successes = powers(Extended(p), order_), failures = powers(Extended(1 - p), order_);
        for (std::size_t i = 0; i < (same ? 1 : steps_); ++i) {
            const double square = norms[i] / sigma / sigma;
            Extended sum, ways(1.0);
            std::vector<Extended> terms;
            for (std::size_t k = 0; k <= order_; ++k) {
                if (k > 0)
                    ways = ways * Extended(static_cast<double>(order_ - k + 1) / static_cast<double>(k));
                const auto hits = static_cast<double>(k);
                terms.push_back(ways * successes[k] * failures[order_ - k] *
                                Extended::exponential(0.5 * hits * (hits - 1) * square));
                sum = sum + terms.back();
            }
            Extended some, total = sum;
            for (std::size_t k = 1; k <= order_; ++k) {
                some = some + terms[k];
                counts_.push_back(some);
            }
            // -ln Pr[nobody takes part].
            const double hit = some.over(total);
            hazards_.push_back(hit < 1 ? -portable_log1p(-hit) : infinite);
            log_moments_.push_back(total.log());
        }
        double hazard = 0;
        for (std::size_t i = 0; i < steps_; ++i) {
            log_normaliser_ += log_moments_[same ? 0 : i];
            if (!same) {
                hazard = std::min(hazard + hazards_[i], infinite);
                cumulative_.push_back(hazard);
            }
        }
    }

    double log_normaliser() const override { return log_normaliser_; }

    void draw(Stream& stream, std::vector<Hit>& hits) const override {
        hits.clear();
        std::size_t i = 0;
        while (i < steps_) {
            const double waiting = -portable_log(stream.uniform());
            if (cumulative_.empty()) {
                const double rounds = hazards_[0] > 0 ? std::floor(waiting / hazards_[0]) : infinite;
                if (!(rounds < static_cast<double>(steps_ - i))) return;
                i += static_cast<std::size_t>(rounds);
            } else {
                // Certain rounds have hazards that hide all others in a sum: step by step there.
                const double before = i == 0 ? 0 : cumulative_[i - 1];
                if (before >= hiding) {
                    if (waiting > hazards_[i]) {
                        ++i;
                        continue;
                    }
                } else {
                    const auto found = std::lower_bound(cumulative_.begin() + static_cast<std::ptrdiff_t>(i),
                                                        cumulative_.end(), before + waiting);
                    if (found == cumulative_.end()) return;
                    i = static_cast<std::size_t>(found - cumulative_.begin());
                }
            }
            const Extended* counts = counts_.data() + (cumulative_.empty() ? 0 : i * order_);
            const Extended target = Extended(stream.uniform()) * counts[order_ - 1];
            const auto found = std::lower_bound(counts, counts + order_ - 1, target);
            hits.push_back({i, static_cast<double>(found - counts) + 1});
            ++i;
        }
    }

private:
    static constexpr double infinite = 1e6;  // proof: a hazard: e^-1e6 is no probability
    static constexpr double hiding = 64;     // proof: sums below are rounded by 32 u a round at most

    std::size_t steps_, order_;
    std::vector<Extended> counts_;
    std::vector<double> hazards_, log_moments_, cumulative_;
    double log_normaliser_ = 0;
};

}  // namespace hockeystick
