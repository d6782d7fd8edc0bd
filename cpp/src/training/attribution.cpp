#include "hockeystick/attribution.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "hockeystick/parallel.hpp"
#include "numerics/require.hpp"

namespace hockeystick {
namespace {

constexpr std::size_t max_id = std::numeric_limits<std::int32_t>::max();

void check_sizes(std::size_t num_examples, std::size_t num_users) {
    require(num_examples <= max_id && num_users <= max_id, "at most 2147483647 examples and users");
}

std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

// What the greedy walk knows about the examples it has taken, if neighbourhoods are limited.
class Neighbourhoods {
public:
    Neighbourhoods(std::size_t num_users, std::size_t limit) : owned_(num_users), limit_(limit) {}

    // Takes one more example with these users if no neighbourhood grows past the limit.
    bool take(std::span<const std::int32_t> users) {
        found_.clear();
        for (const auto user : users) {
            const auto& owned = owned_[index(user)];
            found_.insert(found_.end(), owned.begin(), owned.end());
        }
        std::sort(found_.begin(), found_.end());
        found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
        if (found_.size() + 1 > limit_) return false;
        for (const auto other : found_) {
            if (sizes_[other] + 1 > limit_) return false;
        }
        for (const auto other : found_) ++sizes_[other];
        for (const auto user : users) owned_[index(user)].push_back(sizes_.size());
        sizes_.push_back(found_.size() + 1);
        return true;
    }

private:
    std::vector<std::vector<std::size_t>> owned_;  // by user; the limit bounds each of them
    std::vector<std::size_t> sizes_;               // |N| of each example taken
    std::vector<std::size_t> found_;
    std::size_t limit_;
};

}  // namespace

void check(const AttributionView& graph) {
    require(!graph.offsets.empty(), "offsets must have at least one entry");
    check_sizes(graph.num_examples(), graph.num_users);
    require(graph.offsets.front() == 0 && index(graph.offsets.back()) == graph.users.size(),
            "offsets must run from 0 to the number of edges");
    for (std::size_t e = 0; e < graph.num_examples(); ++e) {
        require(graph.offsets[e + 1] >= graph.offsets[e] && index(graph.offsets[e + 1]) <= graph.users.size(),
                "offsets must not decrease");
        std::int64_t last = -1;
        for (const auto user : graph.of(e)) {
            if (user <= last || index(user) >= graph.num_users) {
                throw std::invalid_argument("users of example " + std::to_string(e) +
                                            " must be ascending, distinct and in range");
            }
            last = user;
        }
    }
}

Attribution group_edges(std::span<const std::int64_t> examples, std::span<const std::int32_t> users,
                        std::size_t num_examples, std::size_t num_users) {
    check_sizes(num_examples, num_users);
    require(examples.size() == users.size(), "examples and users must have the same length");
    std::vector<std::int64_t> starts(num_examples + 1, 0);
    for (std::size_t i = 0; i < examples.size(); ++i) {
        if (examples[i] < 0 || index(examples[i]) >= num_examples || users[i] < 0 ||
            index(users[i]) >= num_users) {
            throw std::invalid_argument("edge " + std::to_string(i) + " is out of range");
        }
        ++starts[index(examples[i]) + 1];
    }
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    Attribution result;
    result.users.resize(users.size());
    auto next = starts;
    for (std::size_t i = 0; i < examples.size(); ++i) {
        result.users[index(next[index(examples[i])]++)] = users[i];
    }
    result.offsets.assign(num_examples + 1, 0);
    auto end = result.users.begin();
    for (std::size_t e = 0; e < num_examples; ++e) {
        if (e % 65536 == 0) interruption_point();
        const auto first = result.users.begin() + starts[e];
        const auto last = result.users.begin() + starts[e + 1];
        std::sort(first, last);
        // Never ahead of `first`, so nothing unread is overwritten.
        end = std::unique_copy(first, last, end);
        result.offsets[e + 1] = end - result.users.begin();
    }
    result.users.erase(end, result.users.end());
    return result;
}

Attribution by_user(const AttributionView& graph) {
    Attribution result;
    result.offsets.assign(graph.num_users + 1, 0);
    for (const auto user : graph.users) ++result.offsets[index(user) + 1];
    std::partial_sum(result.offsets.begin(), result.offsets.end(), result.offsets.begin());
    result.users.resize(graph.users.size());
    std::vector<std::int64_t> next(result.offsets.begin(), result.offsets.end() - 1);
    for (std::size_t e = 0; e < graph.num_examples(); ++e) {
        for (const auto user : graph.of(e)) {
            result.users[index(next[index(user)]++)] = static_cast<std::int32_t>(e);
        }
    }
    return result;
}

std::vector<std::int64_t> bound_contributions(const AttributionView& graph,
                                              std::span<const std::int64_t> order,
                                              std::size_t max_examples_per_user, bool duplicates,
                                              std::optional<std::size_t> max_neighbourhood) {
    std::vector<bool> listed(graph.num_examples(), false);
    for (const auto example : order) {
        require(example >= 0 && index(example) < graph.num_examples() && !listed[index(example)],
                "order must list examples, each at most once");
        if (graph.of(index(example)).empty()) {
            throw std::invalid_argument("example " + std::to_string(example) + " has no user");
        }
        listed[index(example)] = true;
    }
    std::vector<std::size_t> taken_of(graph.num_users, 0);
    std::optional<Neighbourhoods> neighbourhoods;
    if (max_neighbourhood) neighbourhoods.emplace(graph.num_users, *max_neighbourhood);

    std::vector<std::int64_t> taken;
    const auto walk = [&](std::span<const std::int64_t> candidates) {
        const std::size_t before = taken.size();
        for (const auto example : candidates) {
            if (index(example) % 1024 == 0) interruption_point();
            const auto users = graph.of(index(example));
            const bool spare = std::all_of(users.begin(), users.end(), [&](auto user) {
                return taken_of[index(user)] < max_examples_per_user;
            });
            if (!spare || (neighbourhoods && !neighbourhoods->take(users))) continue;
            for (const auto user : users) ++taken_of[index(user)];
            taken.push_back(example);
        }
        return before;
    };
    std::size_t before = walk(order);
    while (duplicates && before < taken.size()) {
        // Whatever was refused once is refused for good (docs/sampling/attribution.md, "Contribution
        // bounding").
        const std::vector<std::int64_t> again(taken.begin() + static_cast<std::ptrdiff_t>(before),
                                              taken.end());
        before = walk(again);
    }
    return taken;
}

std::vector<std::int64_t> neighbourhood_sizes(const AttributionView& graph, std::size_t limit) {
    const Attribution users = by_user(graph);
    const AttributionView owned{users.offsets, users.users, graph.num_examples()};
    limit = std::min(limit, graph.num_examples());  // so that limit + 1 does not overflow
    std::vector<std::int64_t> sizes(graph.num_examples(), 0);
    constexpr std::size_t block_size = 4096;  // speed
    parallel_ranges(graph.num_examples(), block_size, [&](std::size_t begin, std::size_t end) {
        std::vector<std::int32_t> found;
        for (std::size_t e = begin; e < end; ++e) {
            found.clear();
            std::size_t size = 0;
            for (const auto user : graph.of(e)) {
                const auto examples = owned.of(index(user));
                // One user's examples are distinct: more than the limit of them settles it.
                size = std::max(size, examples.size());
                if (size > limit) break;
                found.insert(found.end(), examples.begin(), examples.end());
            }
            if (size <= limit) {
                std::sort(found.begin(), found.end());
                size = static_cast<std::size_t>(std::unique(found.begin(), found.end()) - found.begin());
            }
            sizes[e] = static_cast<std::int64_t>(std::min(size, limit + 1));
        }
    });
    return sizes;
}

}  // namespace hockeystick
