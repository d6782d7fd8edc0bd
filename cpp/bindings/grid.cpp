// Many questions in one call.
#include "hockeystick/grid.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <utility>

#include "module.hpp"
#include "numpy.hpp"
#include "profiles.hpp"

namespace py = pybind11;
namespace hs = hockeystick;
using hs::bindings::Array;
using hs::bindings::Directions;
using hs::bindings::take;
using hs::bindings::view;

namespace {

hs::Quantity quantity_kind(const std::string& quantity) {
    if (quantity == "epsilon") return hs::Quantity::epsilon;
    if (quantity == "delta") return hs::Quantity::delta;
    throw py::value_error("quantity must be 'epsilon' or 'delta', not '" + quantity + "'");
}

py::tuple grid(const std::string& quantity, const std::vector<std::pair<Directions, Array>>& in,
               double accuracy, std::size_t memory_limit, const std::string& engine,
               const py::object& progress) {
    const hs::Quantity wanted = quantity_kind(quantity);
    const hs::Engine kind = hs::bindings::engine_kind(engine);
    std::vector<hs::Inquiry> inquiries;
    inquiries.reserve(in.size());
    std::size_t total = 0;
    for (const auto& [directions, array] : in) {
        const auto points = view(array);
        inquiries.push_back({hs::bindings::compositions(directions), {points.begin(), points.end()}});
        total += points.size();
    }
    const auto poll = [&](std::size_t done) {
        const py::gil_scoped_acquire gil;
        if (PyErr_CheckSignals() != 0) throw py::error_already_set();
        if (!progress.is_none()) progress(done, total);
    };
    std::vector<hs::Answer> answers;
    {
        const py::gil_scoped_release release;
        answers = hs::answer_all(inquiries, wanted, accuracy, memory_limit, kind, poll);
    }
    std::vector<double> lower, upper;
    py::list engines;
    for (const auto& answer : answers) {
        lower.push_back(answer.lower);
        upper.push_back(answer.upper);
        engines.append(answer.engine);
    }
    return py::make_tuple(take(std::move(lower)), take(std::move(upper)), engines);
}

}  // namespace

void register_grid(hs::bindings::Module& m) {
    m.def("grid", &grid, py::arg("quantity"), py::arg("inquiries"), py::arg("accuracy") = 1e-3,
          py::arg("memory_limit") = std::size_t{1} << 30, py::arg("engine") = "auto",
          py::arg("progress") = py::none());
}
