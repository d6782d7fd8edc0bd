#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "hockeystick/attribution.hpp"

namespace hs = hockeystick;

namespace {

struct Edges {
    std::vector<std::int64_t> examples;
    std::vector<std::int32_t> users;
};

Edges random_edges(std::mt19937& generator, std::size_t examples, std::size_t users) {
    Edges edges;
    for (std::size_t e = 0; e < examples; ++e) {
        // Every fourth user is popular, and some pairs are listed twice.
        const std::size_t count = 1 + generator() % 4;
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t pool = generator() % 2 != 0U ? users : (users + 3) / 4;
            edges.examples.push_back(static_cast<std::int64_t>(e));
            edges.users.push_back(static_cast<std::int32_t>(generator() % pool));
        }
    }
    return edges;
}

// |N| by definition: which of the chosen examples share a user, copies apart.
std::vector<std::size_t> neighbourhoods(const std::vector<std::set<std::int32_t>>& users,
                                        const std::vector<std::int64_t>& chosen) {
    std::vector<std::size_t> sizes(chosen.size(), 0);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        for (const auto other : chosen) {
            const auto& a = users[static_cast<std::size_t>(chosen[i])];
            const auto& b = users[static_cast<std::size_t>(other)];
            sizes[i] += std::any_of(a.begin(), a.end(), [&](auto u) { return b.count(u) > 0; });
        }
    }
    return sizes;
}

bool allowed(const std::vector<std::set<std::int32_t>>& users, const std::vector<std::int64_t>& chosen,
             std::size_t per_user, std::size_t neighbourhood) {
    std::vector<std::size_t> count(64, 0);
    for (const auto e : chosen) {
        for (const auto u : users[static_cast<std::size_t>(e)]) {
            if (++count[static_cast<std::size_t>(u)] > per_user) return false;
        }
    }
    for (const auto size : neighbourhoods(users, chosen)) {
        if (size > neighbourhood) return false;
    }
    return true;
}

void random_graphs() {
    std::mt19937 generator(7);
    for (int trial = 0; trial < 300; ++trial) {
        const std::size_t examples = 1 + generator() % 14, num_users = 1 + generator() % 10;
        const auto edges = random_edges(generator, examples, num_users);
        const auto graph = hs::group_edges(edges.examples, edges.users, examples, num_users);
        const hs::AttributionView view{graph.offsets, graph.users, num_users};
        hs::check(view);
        std::vector<std::set<std::int32_t>> users(examples);
        for (std::size_t i = 0; i < edges.examples.size(); ++i) {
            users[static_cast<std::size_t>(edges.examples[i])].insert(edges.users[i]);
        }
        std::vector<std::int64_t> order(examples);
        for (std::size_t e = 0; e < examples; ++e) {
            order[e] = static_cast<std::int64_t>(e);
            const auto listed = view.of(e);
            CHECK(std::equal(listed.begin(), listed.end(), users[e].begin(), users[e].end()));
        }
        const auto exact = neighbourhoods(users, order);
        for (const std::size_t limit : {std::size_t{0}, std::size_t{2}, std::size_t{5}, ~std::size_t{0}}) {
            const auto sizes = hs::neighbourhood_sizes(view, limit);
            for (std::size_t e = 0; e < examples; ++e) {
                CHECK(static_cast<std::size_t>(sizes[e]) == (exact[e] > limit ? limit + 1 : exact[e]));
            }
        }
        std::shuffle(order.begin(), order.end(), generator);
        const std::size_t per_user = 1 + generator() % 3;
        for (const std::size_t neighbourhood : {std::size_t{1}, std::size_t{3}, std::size_t{1000}}) {
            for (const bool duplicates : {false, true}) {
                std::optional<std::size_t> limit;
                if (neighbourhood < 1000) limit = neighbourhood;
                const auto chosen = hs::bound_contributions(view, order, per_user, duplicates, limit);
                CHECK(allowed(users, chosen, per_user, neighbourhood));
                // Maximal: nothing more fits.
                for (const auto e : order) {
                    if (!duplicates && std::count(chosen.begin(), chosen.end(), e) > 0) continue;
                    auto more = chosen;
                    more.push_back(e);
                    CHECK(!allowed(users, more, per_user, neighbourhood));
                }
                if (!duplicates) {
                    CHECK(std::set<std::int64_t>(chosen.begin(), chosen.end()).size() == chosen.size());
                }
            }
        }
        const auto users_of = hs::by_user(view);
        for (std::size_t u = 0; u < num_users; ++u) {
            for (auto i = users_of.offsets[u]; i < users_of.offsets[u + 1]; ++i) {
                const auto e = static_cast<std::size_t>(users_of.users[static_cast<std::size_t>(i)]);
                CHECK(users[e].count(static_cast<std::int32_t>(u)) == 1);
            }
        }
        CHECK(users_of.users.size() == graph.users.size());
    }
}

void bad_input() {
    const std::vector<std::int64_t> examples{0, 1, 1}, outside{0, 1, 2}, order{0, 1}, twice{0, 0}, beyond{2};
    const std::vector<std::int32_t> users{0, 0, 1}, negative{0, -1, 1};
    CHECK_THROWS(std::invalid_argument, hs::group_edges(outside, users, 2, 2));
    CHECK_THROWS(std::invalid_argument, hs::group_edges(examples, negative, 2, 2));
    CHECK_THROWS(std::invalid_argument, hs::group_edges(examples, users, 2, 1));
    CHECK_THROWS(std::invalid_argument, hs::group_edges(order, users, 2, 2));
    const auto graph = hs::group_edges(examples, users, 3, 2);  // the last example has no user
    const hs::AttributionView view{graph.offsets, graph.users, 2};
    CHECK(hs::neighbourhood_sizes(view, 10) == std::vector<std::int64_t>({2, 2, 0}));
    CHECK_THROWS(std::invalid_argument, hs::bound_contributions(view, twice, 1, false, {}));
    CHECK_THROWS(std::invalid_argument, hs::bound_contributions(view, beyond, 1, false, {}));
    CHECK(hs::bound_contributions(view, order, 0, true, {}).empty());
    CHECK(hs::bound_contributions(view, order, 2, true, 0).empty());
    const std::vector<std::int64_t> descending{0, 2, 1, 3}, short_{0, 1};
    const std::vector<std::int32_t> unsorted{1, 0, 1};
    CHECK_THROWS(std::invalid_argument, hs::check({descending, users, 2}));
    CHECK_THROWS(std::invalid_argument, hs::check({short_, users, 2}));
    CHECK_THROWS(std::invalid_argument, hs::check({std::vector<std::int64_t>{0, 2, 3}, unsorted, 2}));
    CHECK_THROWS(std::invalid_argument, hs::check({{}, {}, 2}));
    CHECK(hs::AttributionView{}.num_examples() == 0);
    CHECK(hs::by_user(hs::AttributionView{}).users.empty());
}

}  // namespace

int main() {
    random_graphs();
    bad_input();
    return check::summary();
}
