// How often each example went through each kind of step: a table of counts, whatever their type; see
// individual.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "hockeystick/individual.hpp"
#include "hockeystick/parallel.hpp"
#include "numerics/lane_sum.hpp"

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
    std::array<double, 4> sum{};
    for (const auto& [kind, count] : history)
        sum[kind < paired ? kind % 4 : 0] += static_cast<double>(count) * value(kind);
    return sum_of(sum);
}
inline double dot(const History& history, const std::vector<double>& values) {
    return sum_over(history, values.size() / 4 * 4, [&](std::size_t kind) { return values[kind]; });
}

// body(i) for all i < count, some dozens to a task.
template <class Body>
void in_tasks(std::size_t count, const Body& body) {
    constexpr std::size_t examples_per_task = 64;  // speed
    parallel_ranges(count, examples_per_task, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) body(i);
    });
}

class CountTable {
public:
    CountTable(const IndividualCounts& cells, std::size_t kinds) : cells_(cells), kinds_(kinds) {
        std::visit(
            [&](const auto& all) {
                rows_ = kinds > 0 ? all.size() / kinds : 0;
                row_size_ = kinds * sizeof(all[0]);
            },
            cells_);
    }

    std::size_t rows() const noexcept { return rows_; }
    History history(std::size_t row) const {
        History out;
        std::visit(
            [&](const auto& all) {
                for (std::size_t kind = 0; kind < kinds_; ++kind)
                    if (const std::uint64_t count = all[row * kinds_ + kind]; count != 0)
                        out.push_back({kind, count});
            },
            cells_);
        return out;
    }
    // Which kinds occur at all.
    std::vector<char> used() const {
        std::vector<char> out(kinds_);
        std::visit(
            [&](const auto& all) {
                for (std::size_t row = 0; row < rows_; ++row)
                    for (std::size_t kind = 0; kind < kinds_; ++kind)
                        out[kind] = static_cast<char>(out[kind] | (all[row * kinds_ + kind] != 0));
            },
            cells_);
        return out;
    }
    // The first of the rows that are alike, `point` included, and for every row which one that is.
    struct Distinct {
        std::vector<std::uint32_t> rows, first;
    };
    Distinct distinct(const std::vector<double>& points) const {
        std::vector<std::uint64_t> hash(rows_);
        in_tasks(rows_, [&](std::size_t row) {
            std::uint64_t h = std::bit_cast<std::uint64_t>(points[row]);
            const unsigned char* const at = row_bytes(row);
            for (std::size_t i = 0; i < row_size_; i += 8) {
                std::uint64_t word = 0;
                std::memcpy(&word, at + i, std::min<std::size_t>(8, row_size_ - i));
                h = (h ^ word) * 0x9e3779b97f4a7c15;
                h ^= h >> 29;
            }
            hash[row] = h;
        });
        Distinct out;
        out.first.resize(rows_);
        std::unordered_map<std::uint64_t, std::uint32_t> seen;
        seen.reserve(rows_);
        for (std::size_t row = 0; row < rows_; ++row) {
            const auto [at, added] = seen.try_emplace(hash[row], static_cast<std::uint32_t>(row));
            const std::size_t other = at->second;
            const bool same = !added && points[row] == points[other] &&
                              std::memcmp(row_bytes(row), row_bytes(other), row_size_) == 0;
            out.first[row] = static_cast<std::uint32_t>(same ? other : row);
            if (!same) out.rows.push_back(static_cast<std::uint32_t>(row));
        }
        return out;
    }

private:
    const unsigned char* row_bytes(std::size_t row) const {
        const auto first = [](const auto& all) { return reinterpret_cast<const unsigned char*>(all.data()); };
        return std::visit(first, cells_) + row * row_size_;
    }

    IndividualCounts cells_;
    std::size_t kinds_, rows_, row_size_;  // row_size: in bytes
};

}  // namespace hockeystick
