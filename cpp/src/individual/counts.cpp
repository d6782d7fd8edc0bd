#include "individual/counts.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>

namespace hockeystick {

CountTable::CountTable(const IndividualCounts& cells, std::size_t kinds) : cells_(cells), kinds_(kinds) {
    std::visit(
        [&](const auto& all) {
            rows_ = kinds > 0 ? all.size() / kinds : 0;
            row_size_ = kinds * sizeof(all[0]);
        },
        cells_);
}

History CountTable::history(std::size_t row) const {
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

std::vector<char> CountTable::used() const {
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

const unsigned char* CountTable::row_bytes(std::size_t row) const {
    const auto first = [](const auto& all) { return reinterpret_cast<const unsigned char*>(all.data()); };
    return std::visit(first, cells_) + row * row_size_;
}

CountTable::Distinct CountTable::distinct(const std::vector<double>& points) const {
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

}  // namespace hockeystick
