// What each example of a data set has spent of its privacy budget: a sum that is never too small.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// How the value v of one example in one step (its gradient's norm, or its mu) becomes a cost:
//     cost = factor * (min(v, clip) / divisor)^2, or factor * v where square is false.
// Every operation rounds up unless its result is exact, so that the cost is never below the true one.
struct Charge {
    double clip = std::numeric_limits<double>::infinity();
    double divisor = 1;
    double factor = 1;
    bool square = true;
};

// Between these, values neither overflow nor lose their rounding errors where the divisor lies in [2^-60,
// 2^60] and the factor in [2^-20, 2^20]. Smaller positive values are charged as if they were this large,
// larger ones as infinite (docs/individual/individual.md, "A budget cannot be overspent in float64").
inline constexpr double smallest_value = 0x1p-400, largest_value = 0x1p+460;

// Index of the first value that is not >= 0 (so nan, too), or the number of values.
std::size_t first_invalid(std::span<const double> values);

// For each example: where spent + cost, rounded up, is at most the budget, it is active and after = that sum;
// elsewhere it is not, and after = spent. Returns the number of active ones. `spent` and `after` may be the
// same memory. Results do not depend on the number of threads, nor on the machine.
std::size_t charge(const Charge& how, std::span<const double> values, std::span<const double> spent,
                   double budget, std::span<double> after, std::span<std::uint8_t> active);

// A checksum of memory: the sum, modulo 2^64, of mixed(first + i, word i) over its 64-bit words, the last one
// filled up with zero bytes. `mixed` is a bijection of the word and of its place, so a change of any one word
// is always found, one of several with probability 1 - 2^-64 (for accidents: this is no protection from
// forgery). As it is a sum, what a part of the words adds to it can be exchanged. Does not depend on the
// number of threads (docs/individual/individual.md, "State").
std::uint64_t checksum(std::span<const std::byte> memory, std::uint64_t first = 0);

// What these values, at these places, add to the checksum of an array of doubles.
std::uint64_t checksum_at(std::span<const std::int64_t> places, std::span<const double> values);

// Which cell of a grid the value of each example falls into: 0 for the value 0, else 1 + c with the smallest
// c for which min(v, clip) / divisor, rounded up, is at most edges[c], and edges.size() + 1 where there is
// none. edges: increasing and positive, at most 65534 of them.
void find_cells(const Charge& how, std::span<const double> values, std::span<const double> edges,
                std::span<std::uint16_t> cells);

// counts[row * columns + cells[row] - 1] += times where cells[row] > 0; std::overflow_error where one is
// full.
template <class Count>  // of 16 or 32 bits
void count_cells(std::span<const std::uint16_t> cells, Count times, std::size_t columns,
                 std::span<Count> counts);

}  // namespace hockeystick
