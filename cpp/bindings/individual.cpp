// Individual privacy: ledgers, histories on a grid of sensitivities, and their epsilons.
#include "hockeystick/individual.hpp"

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "individual/ledger.hpp"
#include "module.hpp"
#include "numpy.hpp"
#include "pairs/gdp.hpp"

namespace py = pybind11;
namespace hs = hockeystick;
using namespace hockeystick::bindings;

namespace {

void same_size(std::size_t a, std::size_t b) {
    if (a != b)
        throw py::value_error("arrays differ in size: " + std::to_string(a) + ", " + std::to_string(b));
}

// (clip, divisor, factor, square): what a value costs.
using Cost = std::tuple<double, double, double, bool>;

std::size_t charge(std::span<const double> values, std::span<const double> spent, double budget,
                   std::span<double> after, std::span<std::uint8_t> active, const Cost& cost) {
    same_size(values.size(), spent.size());
    same_size(values.size(), after.size());
    same_size(values.size(), active.size());
    const auto [clip, divisor, factor, square] = cost;
    return hs::charge({clip, divisor, factor, square}, values, spent, budget, after, active);
}

std::uint64_t checksum(const py::array& array, std::uint64_t first) {
    if (!(array.flags() & py::array::c_style)) throw py::value_error("array: must be contiguous");
    const std::span<const std::byte> memory{static_cast<const std::byte*>(array.data()),
                                            static_cast<std::size_t>(array.nbytes())};
    return released([&] { return hs::checksum(memory, first); });
}

std::uint64_t checksum_at(std::span<const std::int64_t> places, std::span<const double> values) {
    same_size(places.size(), values.size());
    return hs::checksum_at(places, values);
}

Exact<std::uint16_t> find_cells(std::span<const double> values, std::span<const double> edges, double clip,
                                double divisor) {
    if (edges.empty() || edges.size() > 65534) throw py::value_error("edges: 1 to 65534 of them");
    Exact<std::uint16_t> cells(static_cast<py::ssize_t>(values.size()));
    const auto out = mutable_view(cells);
    released([&] { hs::find_cells({clip, divisor, 1, true}, values, edges, out); });
    return cells;
}

template <class Count>
void count_cells(std::span<const std::uint16_t> cells, Count times, std::span<Count> counts) {
    const std::size_t columns = cells.empty() ? 0 : counts.size() / cells.size();
    same_size(cells.size() * columns, counts.size());
    for (const std::uint16_t cell : cells)
        if (cell > columns) throw py::value_error("a cell lies past the last column");
    hs::count_cells(cells, times, columns, counts);
}

using Floor = std::optional<Exact<double>>;

// Bounds of `rows` examples; solve(wish) without the GIL.
template <class Solve>
py::tuple answers(const Floor& floor, bool lower, std::size_t rows, const Solve& solve) {
    hs::IndividualWish wish{{}, lower};
    if (floor) {
        same_size(rows, static_cast<std::size_t>(floor->size()));
        wish.floor = view(*floor);
    }
    hs::IndividualAnswers found = released([&] { return solve(wish); });
    std::vector<std::uint8_t> path;
    for (const hs::Path p : found.path) path.push_back(static_cast<std::uint8_t>(p));
    return py::make_tuple(take(std::move(found.lower)), take(std::move(found.upper)), take(std::move(path)));
}

template <class Count>
py::tuple epsilon(hs::IndividualProfiles& profiles, std::span<const Count> counts, double delta,
                  const Floor& floor, bool lower) {
    if (profiles.kinds() == 0 || counts.size() % profiles.kinds() != 0)
        throw py::value_error("counts: one column for each pair");
    return answers(floor, lower, counts.size() / profiles.kinds(),
                   [&](const auto& wish) { return profiles.epsilon(counts, delta, wish); });
}

template <class Count>
py::tuple delta(hs::IndividualProfiles& profiles, std::span<const Count> counts,
                std::span<const double> epsilons, const Floor& floor, bool lower) {
    same_size(counts.size(), epsilons.size() * profiles.kinds());
    return answers(floor, lower, epsilons.size(),
                   [&](const auto& wish) { return profiles.delta(counts, epsilons, wish); });
}

// What takes counters, which have 16 or 32 bits.
template <class Count>
void register_counters(Module& m, Class<hs::IndividualProfiles>& profiles) {
    m.def_released("count_cells", &count_cells<Count>, py::arg().noconvert(), py::arg(), py::arg());
    profiles
        .def("epsilon", &epsilon<Count>, py::arg("counts").noconvert(), py::arg("delta"),
             py::arg("floor").noconvert() = py::none(), py::arg("lower") = true)
        .def("delta", &delta<Count>, py::arg("counts").noconvert(), py::arg("epsilons").noconvert(),
             py::arg("floor").noconvert() = py::none(), py::arg("lower") = true);
}

}  // namespace

void register_individual(Module& m) {
    m.def_released("first_invalid", &hs::first_invalid, py::arg("values").noconvert());
    m.def_released(
        "gaussian_epsilons",
        [](std::span<const double> mu, double delta) {
            std::vector<double> epsilon(mu.size());
            hs::gaussian_epsilons(mu, delta, epsilon);
            return epsilon;
        },
        py::arg("mu").noconvert(), py::arg("delta"));
    m.def_released("charge", &charge, py::arg("values").noconvert(), py::arg("spent").noconvert(),
                   py::arg("budget"), py::arg("after"), py::arg("active"), py::arg("cost"));
    m.def("checksum", &checksum, py::arg("array"), py::arg("first") = 0);
    m.def_released("checksum_at", &checksum_at, py::arg("places").noconvert(), py::arg("values").noconvert());
    m.def("find_cells", &find_cells, py::arg("values").noconvert(), py::arg("edges").noconvert(),
          py::arg("clip"), py::arg("divisor"));
    Class<hs::IndividualProfiles> profiles(m, "IndividualProfiles",
                                           "Many compositions of the same few pairs, in one direction.");
    profiles.def(py::init<const std::vector<hs::PairPtr>&>())
        .def("log_moments", &hs::IndividualProfiles::log_moments);
    register_counters<std::uint16_t>(m, profiles);
    register_counters<std::uint32_t>(m, profiles);
}
