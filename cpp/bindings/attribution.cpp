// Contribution bounding of multi-attribution data.
#include "hockeystick/attribution.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "module.hpp"
#include "numpy.hpp"

namespace py = pybind11;
namespace hs = hockeystick;
using hs::bindings::released;
using hs::bindings::take;

namespace {

template <typename T>
using Integers = py::array_t<T, py::array::c_style>;
using Longs = Integers<std::int64_t>;
using Ids = Integers<std::int32_t>;

template <typename T>
std::span<const T> view(const Integers<T>& array) {
    return {array.data(), static_cast<std::size_t>(array.size())};
}

hs::AttributionView graph_view(const Longs& offsets, const Ids& users, std::size_t num_users) {
    return {view(offsets), view(users), num_users};
}

py::tuple arrays(hs::Attribution&& graph) {
    auto offsets = take(std::move(graph.offsets));
    auto users = take(std::move(graph.users));
    return py::make_tuple(std::move(offsets), std::move(users));
}

py::tuple group_edges(const Longs& examples, const Ids& users, std::size_t num_examples,
                      std::size_t num_users) {
    return arrays(
        released([&] { return hs::group_edges(view(examples), view(users), num_examples, num_users); }));
}

py::array_t<std::int64_t> bound_contributions(const Longs& offsets, const Ids& users, std::size_t num_users,
                                              const Longs& order, std::size_t max_examples_per_user,
                                              bool duplicates, std::optional<std::size_t> max_neighbourhood) {
    std::vector<std::int64_t> taken;
    {
        const py::gil_scoped_release release;
        const auto in = graph_view(offsets, users, num_users);
        hs::check(in);
        taken =
            hs::bound_contributions(in, view(order), max_examples_per_user, duplicates, max_neighbourhood);
    }
    return take(std::move(taken));
}

py::array_t<std::int64_t> neighbourhood_sizes(const Longs& offsets, const Ids& users, std::size_t num_users,
                                              std::size_t limit) {
    std::vector<std::int64_t> sizes;
    {
        const py::gil_scoped_release release;
        const auto in = graph_view(offsets, users, num_users);
        hs::check(in);
        sizes = hs::neighbourhood_sizes(in, limit);
    }
    return take(std::move(sizes));
}

void check(const Longs& offsets, const Ids& users, std::size_t num_users) {
    const py::gil_scoped_release release;
    hs::check(graph_view(offsets, users, num_users));
}

}  // namespace

void register_attribution(hs::bindings::Module& m) {
    m.def("check_attribution", &check, py::arg("offsets"), py::arg("users"), py::arg("num_users"));
    m.def("group_edges", &group_edges, py::arg("examples"), py::arg("users"), py::arg("num_examples"),
          py::arg("num_users"));
    m.def("bound_contributions", &bound_contributions, py::arg("offsets"), py::arg("users"),
          py::arg("num_users"), py::arg("order"), py::arg("max_examples_per_user"),
          py::arg("duplicates") = false, py::arg("max_neighbourhood") = py::none());
    m.def("neighbourhood_sizes", &neighbourhood_sizes, py::arg("offsets"), py::arg("users"),
          py::arg("num_users"), py::arg("limit"));
}
