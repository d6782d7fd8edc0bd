// Individual privacy: ledgers, histories on a grid of sensitivities, and their epsilons.
#include "hockeystick/individual.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

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

std::size_t charge(const Exact<double>& values, const Exact<double>& spent, double budget,
                   Exact<double>& after, Exact<std::uint8_t>& active, const Cost& cost) {
    const auto v = view(values), s = view(spent);
    const auto a = mutable_view(after);
    const auto flags = mutable_view(active);
    same_size(v.size(), s.size());
    same_size(v.size(), a.size());
    same_size(v.size(), flags.size());
    const auto [clip, divisor, factor, square] = cost;
    const hs::Charge rule{clip, divisor, factor, square};
    return released([&] { return hs::charge(rule, v, s, budget, a, flags); });
}

std::uint64_t checksum(const py::array& array, std::uint64_t first) {
    if (!(array.flags() & py::array::c_style)) throw py::value_error("array: must be contiguous");
    const std::span<const std::byte> memory{static_cast<const std::byte*>(array.data()),
                                            static_cast<std::size_t>(array.nbytes())};
    return released([&] { return hs::checksum(memory, first); });
}

std::uint64_t checksum_at(const Exact<std::int64_t>& places, const Exact<double>& values) {
    const auto p = view(places);
    const auto v = view(values);
    same_size(p.size(), v.size());
    return released([&] { return hs::checksum_at(p, v); });
}

Exact<std::uint16_t> find_cells(const Exact<double>& values, const Exact<double>& edges, double clip,
                                double divisor) {
    const auto v = view(values), e = view(edges);
    if (e.empty() || e.size() > 65534) throw py::value_error("edges: 1 to 65534 of them");
    Exact<std::uint16_t> cells(static_cast<py::ssize_t>(v.size()));
    const auto out = mutable_view(cells);
    released([&] { hs::find_cells({clip, divisor, 1, true}, v, e, out); });
    return cells;
}

template <class Count>
void count_cells(const Exact<std::uint16_t>& cells, Count times, Exact<Count>& counts) {
    const auto c = view(cells);
    const auto out = mutable_view(counts);
    const std::size_t columns = c.empty() ? 0 : out.size() / c.size();
    same_size(c.size() * columns, out.size());
    for (const std::uint16_t cell : c)
        if (cell > columns) throw py::value_error("a cell lies past the last column");
    released([&] { hs::count_cells(c, times, columns, out); });
}

py::tuple answers(hs::IndividualAnswers&& found) {
    std::vector<std::uint8_t> path;
    path.reserve(found.path.size());
    for (const hs::Path p : found.path) path.push_back(static_cast<std::uint8_t>(p));
    return py::make_tuple(take(std::move(found.lower)), take(std::move(found.upper)), take(std::move(path)));
}

hs::IndividualWish wish_for(const std::optional<Exact<double>>& floor, bool lower, std::size_t rows) {
    if (!floor) return {{}, lower};
    same_size(rows, static_cast<std::size_t>(floor->size()));
    return {view(*floor), lower};
}

template <class Count>
py::tuple epsilon(hs::IndividualProfiles& profiles, const Exact<Count>& counts, double delta,
                  const std::optional<Exact<double>>& floor, bool lower) {
    const auto c = view(counts);
    if (profiles.kinds() == 0 || c.size() % profiles.kinds() != 0)
        throw py::value_error("counts: one column for each pair");
    const auto wish = wish_for(floor, lower, c.size() / profiles.kinds());
    auto found = released([&] { return profiles.epsilon(c, delta, wish); });
    return answers(std::move(found));
}

template <class Count>
py::tuple delta(hs::IndividualProfiles& profiles, const Exact<Count>& counts, const Exact<double>& epsilons,
                const std::optional<Exact<double>>& floor, bool lower) {
    const auto c = view(counts);
    const auto e = view(epsilons);
    same_size(c.size(), e.size() * profiles.kinds());
    const auto wish = wish_for(floor, lower, e.size());
    auto found = released([&] { return profiles.delta(c, e, wish); });
    return answers(std::move(found));
}

// What takes counters, which have 16 or 32 bits.
template <class Count>
void register_counters(Module& m, Class<hs::IndividualProfiles>& profiles) {
    m.def("count_cells", &count_cells<Count>, py::arg().noconvert(), py::arg(), py::arg().noconvert());
    profiles
        .def("epsilon", &epsilon<Count>, py::arg("counts").noconvert(), py::arg("delta"),
             py::arg("floor").noconvert() = py::none(), py::arg("lower") = true)
        .def("delta", &delta<Count>, py::arg("counts").noconvert(), py::arg("epsilons").noconvert(),
             py::arg("floor").noconvert() = py::none(), py::arg("lower") = true);
}

}  // namespace

void register_individual(Module& m) {
    m.def(
        "first_invalid",
        [](const Exact<double>& values) {
            return released([v = view(values)] { return hs::first_invalid(v); });
        },
        py::arg("values").noconvert());
    m.def(
        "gaussian_epsilons",
        [](const Exact<double>& mu, double delta) {
            const auto in = view(mu);
            Exact<double> epsilon(static_cast<py::ssize_t>(in.size()));
            const auto out = mutable_view(epsilon);
            released([&] { hs::gaussian_epsilons(in, delta, out); });
            return epsilon;
        },
        py::arg("mu").noconvert(), py::arg("delta"));
    m.def("charge", &charge, py::arg("values").noconvert(), py::arg("spent").noconvert(), py::arg("budget"),
          py::arg("after").noconvert(), py::arg("active").noconvert(), py::arg("cost"));
    m.def("checksum", &checksum, py::arg("array"), py::arg("first") = 0);
    m.def("checksum_at", &checksum_at, py::arg("places").noconvert(), py::arg("values").noconvert());
    m.def("find_cells", &find_cells, py::arg("values").noconvert(), py::arg("edges").noconvert(),
          py::arg("clip"), py::arg("divisor"));
    Class<hs::IndividualProfiles> profiles(m, "IndividualProfiles",
                                           "Many compositions of the same few pairs, in one direction.");
    profiles
        .def(py::init([](const std::vector<std::shared_ptr<hs::Pair>>& pairs) {
            return std::make_unique<hs::IndividualProfiles>(
                std::vector<hs::PairPtr>(pairs.begin(), pairs.end()));
        }))
        .def("log_moments",
             [](const hs::IndividualProfiles& of, double s) { return take(of.log_moments(s)); });
    register_counters<std::uint16_t>(m, profiles);
    register_counters<std::uint32_t>(m, profiles);
}
