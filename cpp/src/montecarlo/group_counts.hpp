// Public counts of the truncated scheme for 16 samples side by side, where every count is needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hockeystick/likelihood.hpp"
#include "hockeystick/schemes.hpp"
#include "montecarlo/kernels.hpp"

namespace hockeystick {

// The counts come from the streams of Purpose::public_counts, 128 bits a round; what happens before the first
// round, and the few counts that the tables do not serve, from those of Purpose::candidates, which are free:
// no candidates are drawn.
class GroupCounts {
public:
    GroupCounts(const TruncatedBMinSep& scheme, std::size_t steps, const BinomialTable& table,
                const BlockStream& block, std::size_t first_lane);

    // The next `count` rounds: counts, and the probability to survive truncation.
    void next(std::size_t count, double* counts, double* survival);

private:
    void by_table_or_not(double* counts, double* survival);  // one round

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
