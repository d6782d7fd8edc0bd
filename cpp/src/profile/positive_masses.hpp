// Masses on a lattice of which products are sums of positive terms, so that each is known relatively.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "hockeystick/parallel.hpp"

namespace hockeystick {

struct PositiveMasses {
    // proof: more than sums of products lose below the normal doubles, which doubles with each of some forty
    // squares and adds up over some thousand factors.
    static constexpr double lost_below = 1e-290;

    std::vector<double> at{1};  // at the points first, first + 1, ...
    std::int64_t first = 0;
    double units = 0;  // of round-off, by which each may be off, but for what is below the normal doubles

    std::size_t positive() const {
        return at.size() - static_cast<std::size_t>(std::count(at.begin(), at.end(), 0.0));
    }
    // What a product of the two takes.
    double products_with(const PositiveMasses& other) const {
        const double here = static_cast<double>(positive()), there = static_cast<double>(other.positive());
        return std::min(here * static_cast<double>(other.at.size()), there * static_cast<double>(at.size()));
    }

    PositiveMasses operator*(const PositiveMasses& other) const {
        const bool here = positive() < other.positive();
        const std::vector<double>&few = here ? at : other.at, &many = here ? other.at : at;
        PositiveMasses out;
        out.at.assign(few.size() + many.size() - 1, 0);
        for (std::size_t i = 0; i < few.size(); ++i) {
            if (few[i] == 0) continue;
            if (i % 256 == 0) interruption_point();
            for (std::size_t j = 0; j < many.size(); ++j) out.at[i + j] += few[i] * many[j];
        }
        out.first = first + other.first;
        out.units = units + other.units + static_cast<double>(few.size()) + 2;
        return out;
    }

    // What is left without the ends that have no more than this mass each: never empty.
    struct Range {
        std::size_t begin, end;
    };
    Range but_for(double negligible) const {
        const auto inside = [&](auto from, auto last) {
            for (double dropped = 0; from != last && dropped + *from <= negligible; ++from) dropped += *from;
            return from;
        };
        const auto low = inside(at.begin(), at.end() - 1);
        const auto high = inside(at.rbegin(), at.rend() - 1).base();
        const auto begin = static_cast<std::size_t>(low - at.begin());
        return {begin, std::max(begin + 1, static_cast<std::size_t>(high - at.begin()))};
    }
    // Returns at least what is dropped: masses are known to far more than a factor of two, but for what is
    // below the normal doubles.
    double keep(const Range& range) {
        double dropped = 0;
        for (std::size_t i = 0; i < at.size(); ++i)
            if (i < range.begin || i >= range.end) dropped += 2 * at[i] + lost_below;
        first += static_cast<std::int64_t>(range.begin);
        at = std::vector<double>(at.begin() + static_cast<std::ptrdiff_t>(range.begin),
                                 at.begin() + static_cast<std::ptrdiff_t>(range.end));
        return dropped;
    }
};

// The law of `count` steps, of laws that multiply; empty where that takes more than `products`, which are
// taken off. one_by_one: or by squares.
template <class Law>
std::optional<Law> power(Law step, std::uint64_t count, bool one_by_one, double& products) {
    Law out;
    const auto times = [&](const Law& other) {
        products -= out.products_with(other);
        if (products < 0) return false;
        out = out * other;
        return true;
    };
    if (one_by_one) {
        for (; count > 0; --count)
            if (!times(step)) return {};
        return out;
    }
    for (;;) {
        if ((count & 1) && !times(step)) return {};
        if (!(count >>= 1)) return out;
        products -= step.products_with(step);
        if (products < 0) return {};
        step = step * step;
    }
}

}  // namespace hockeystick
