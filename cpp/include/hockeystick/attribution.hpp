// Multi-attribution data: every example belongs to several users, every user owns several examples.
//
// The hypergraph is kept as CSR by example: the users of example e are
// users[offsets[e] .. offsets[e + 1]), ascending and distinct.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

struct Attribution {
    std::vector<std::int64_t> offsets;  // one more than there are examples
    std::vector<std::int32_t> users;
};

// A view of an Attribution, or of arrays that someone else owns. User ids lie in [0, num_users).
struct AttributionView {
    std::span<const std::int64_t> offsets;
    std::span<const std::int32_t> users;
    std::size_t num_users = 0;

    std::size_t num_examples() const noexcept { return offsets.empty() ? 0 : offsets.size() - 1; }

    std::span<const std::int32_t> of(std::size_t example) const noexcept {
        const auto first = static_cast<std::size_t>(offsets[example]);
        return users.subspan(first, static_cast<std::size_t>(offsets[example + 1]) - first);
    }
};

// Throws std::invalid_argument unless the offsets ascend from 0 to the number of users listed and
// the users of every example are in range, ascending and distinct, and there are at most 2^31 users. The
// functions below rely on it, and do not look again.
void check(const AttributionView& graph);

// Groups the pairs (examples[i], users[i]) by example; repeated pairs count once. Throws
// std::invalid_argument for ids outside [0, num_examples) and [0, num_users).
Attribution group_edges(std::span<const std::int64_t> examples, std::span<const std::int32_t> users,
                        std::size_t num_examples, std::size_t num_users);

// The same hypergraph by user: the examples of user u, ascending.
Attribution by_user(const AttributionView& graph);

// Contribution bounding: walks through the examples in the given order (indices, each at most once)
// and takes each one whose users all have fewer than max_examples_per_user examples taken so far.
// With duplicates it walks again, over those taken in the walk before, until it takes none.
// With max_neighbourhood, it also leaves an example out if that would give it or one already taken
// more than that many examples that share a user with it (itself and copies included).
//
// A refusal never becomes invalid by taking more, so the outcome is maximal: no other example, and
// with duplicates no other copy, can be added. Returns the examples in the order taken. Examples
// without users must not be in the order (no bound holds them back). With duplicates there may be
// max_examples_per_user copies of each, in memory.
std::vector<std::int64_t> bound_contributions(const AttributionView& graph,
                                              std::span<const std::int64_t> order,
                                              std::size_t max_examples_per_user, bool duplicates,
                                              std::optional<std::size_t> max_neighbourhood);

// min(|N(e)|, limit + 1) for every example, N(e) the examples that share a user with e, e itself
// included if it has one. O(edges * limit * log(limit)) time, or O(sum of squared user degrees).
std::vector<std::int64_t> neighbourhood_sizes(const AttributionView& graph, std::size_t limit);

}  // namespace hockeystick
