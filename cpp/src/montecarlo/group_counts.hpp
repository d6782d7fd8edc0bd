// Public counts of the truncated scheme for 16 samples side by side, where every count is needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "hockeystick/estimate.hpp"
#include "hockeystick/likelihood.hpp"
#include "hockeystick/schemes.hpp"
#include "montecarlo/kernels.hpp"
#include "montecarlo/scheme_draws.hpp"

namespace hockeystick {

// The counts come from the streams of Purpose::public_counts, 128 bits a round; what happens before the first
// round, and the few counts that the tables do not serve, from those of Purpose::candidates, which are free:
// no candidates are drawn (docs/montecarlo/estimates.md, "What is drawn").
class GroupCounts {
public:
    GroupCounts(const TruncatedBMinSep& scheme, std::size_t steps, const BinomialTable& table,
                const BlockStream& block, std::size_t first_lane)
        : scheme_(scheme),
          table_(&table),
          counter_(block.counter(first_lane, Purpose::public_counts)),
          key_(block.key()),
          available_(1) {
        std::size_t window = 0;
        for (std::size_t s = 0; s < group_size; ++s) {
            streams_.emplace_back(block, first_lane + s, Purpose::candidates);
            const OthersAtStart others(scheme, steps, streams_.back());
            window = others.barred.size();
            if (s == 0) barred_ = Rows(window);
            available_[0][s] = static_cast<double>(others.available);
            for (std::size_t i = 0; i < window; ++i) barred_[i][s] = static_cast<double>(others.barred[i]);
        }
        state_ = {static_cast<double>(table.base),
                  static_cast<double>(table.largest_rest),
                  static_cast<double>(table.first),
                  table.log_none,
                  table.odds,
                  table.cumulative.data(),
                  table.guide.data(),
                  64 - BinomialTable::guide_bits,
                  available_[0],
                  barred_[0],
                  window,
                  0,
                  static_cast<double>(scheme.max_batch)};
    }

    // The next `count` rounds: counts, and the probability to survive truncation.
    void next(std::size_t count, double* counts, double* survival) {
        for (std::size_t done = 0; done < count;) {
            if (!table_->cumulative.empty()) {
                const std::size_t rows =
                    kernels::table().public_counts(state_, round_, count - done, counter_, key_,
                                                   counts + done * group_size, survival + done * group_size);
                done += rows;
                round_ += rows;
            }
            if (done == count) return;
            by_table_or_not(counts + done * group_size, survival + done * group_size);
            ++done;
            ++round_;
        }
    }

private:
    void by_table_or_not(double* counts, double* survival) {
        double* const barred = barred_[state_.oldest];
        for (std::size_t s = 0; s < group_size; ++s) {
            double& available = available_[0][s];
            const auto n = static_cast<std::uint64_t>(available);
            counts[s] = static_cast<double>(table_->draw(streams_[s], n, scheme_.base.probability));
            survival[s] = survival_probability(scheme_, counts[s]);
            if (state_.window > 0) available += std::exchange(barred[s], counts[s]) - counts[s];
        }
        if (++state_.oldest >= state_.window) state_.oldest = 0;
    }  // one round

    TruncatedBMinSep scheme_;
    const BinomialTable* table_;
    std::array<std::uint32_t, 3> counter_;
    std::array<std::uint32_t, 2> key_;
    std::vector<Stream> streams_;
    std::size_t round_ = 0;
    Rows available_, barred_;
    kernels::Counts state_{};
};

}  // namespace hockeystick
