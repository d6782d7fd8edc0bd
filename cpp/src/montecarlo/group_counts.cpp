#include "montecarlo/group_counts.hpp"

#include <utility>

#include "hockeystick/estimate.hpp"

namespace hockeystick {

GroupCounts::GroupCounts(const TruncatedBMinSep& scheme, std::size_t steps, const BinomialTable& table,
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

void GroupCounts::next(std::size_t count, double* counts, double* survival) {
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

void GroupCounts::by_table_or_not(double* counts, double* survival) {
    double* const barred = barred_[state_.oldest];
    for (std::size_t s = 0; s < group_size; ++s) {
        double& available = available_[0][s];
        const auto n = static_cast<std::uint64_t>(available);
        counts[s] = static_cast<double>(table_->draw(streams_[s], n, scheme_.base.probability));
        survival[s] = survival_probability(scheme_, counts[s]);
        if (state_.window > 0) available += std::exchange(barred[s], counts[s]) - counts[s];
    }
    if (++state_.oldest >= state_.window) state_.oldest = 0;
}

}  // namespace hockeystick
