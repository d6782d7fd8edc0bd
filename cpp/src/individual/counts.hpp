// How often each example went through each kind of step: a table of counts, whatever their type; see
// individual.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hockeystick/individual.hpp"
#include "hockeystick/parallel.hpp"

namespace hockeystick {

// What one example has of each kind that it has anything of, by increasing kind.
struct Counted {
    std::size_t kind;
    std::uint64_t count;
};
using History = std::vector<Counted>;

// A history's sum of count times value: what does not occur does not count, be its value infinite. The order
// of the additions is fixed, so that results do not depend on the machine; `paired` kinds go to lanes.
template <class Value>
double sum_over(const History& history, std::size_t paired, Value value) {
    double sum[4] = {0, 0, 0, 0};
    for (const auto& [kind, count] : history)
        sum[kind < paired ? kind % 4 : 0] += static_cast<double>(count) * value(kind);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}
inline double dot(const History& history, const std::vector<double>& values) {
    return sum_over(history, values.size() / 4 * 4, [&](std::size_t kind) { return values[kind]; });
}

class CountTable {
public:
    CountTable(const IndividualCounts& cells, std::size_t kinds);

    std::size_t rows() const noexcept { return rows_; }
    History history(std::size_t row) const;
    // Which kinds occur at all.
    std::vector<char> used() const;
    // The first of the rows that are alike, `point` included, and for every row which one that is.
    struct Distinct {
        std::vector<std::uint32_t> rows, first;
    };
    Distinct distinct(const std::vector<double>& points) const;

private:
    const unsigned char* row_bytes(std::size_t row) const;

    IndividualCounts cells_;
    std::size_t kinds_, rows_, row_size_;  // row_size: in bytes
};

// body(i) for all i < count, some dozens to a task.
template <class Body>
void in_tasks(std::size_t count, const Body& body) {
    constexpr std::size_t examples_per_task = 64;  // speed
    parallel_ranges(count, examples_per_task, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) body(i);
    });
}

}  // namespace hockeystick
