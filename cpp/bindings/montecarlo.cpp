// Monte Carlo samples of the privacy loss of matrix mechanisms.
#include <pybind11/pybind11.h>

#include <string>
#include <utility>
#include <vector>

#include "hockeystick/estimate.hpp"
#include "module.hpp"
#include "montecarlo/empirical.hpp"
#include "numpy.hpp"
#include "sampling.hpp"

namespace py = pybind11;
namespace hs = hockeystick;
using hs::bindings::Array;
using hs::bindings::poll;
using hs::bindings::released;
using hs::bindings::strategy_of;
using hs::bindings::table;
using hs::bindings::take;
using hs::bindings::view;

namespace {

hs::Direction direction_kind(const std::string& direction) {
    if (direction == "remove") return hs::Direction::remove;
    if (direction == "add") return hs::Direction::add;
    throw py::value_error("direction must be 'remove' or 'add', not '" + direction + "'");
}

hs::LossSampler make(const Array& columns, std::size_t steps, const hs::Scheme& scheme,
                     double noise_multiplier, const std::string& direction) {
    return {strategy_of(columns, steps), scheme, noise_multiplier, direction_kind(direction)};
}

py::array_t<double> losses(const hs::LossSampler& sampler, std::uint64_t seed, std::uint64_t first_block,
                           std::size_t blocks) {
    return take(released([&] { return sampler.losses(seed, first_block, blocks, poll); }));
}

py::tuple delta_sums(const hs::LossSampler& sampler, std::uint64_t seed, const Array& epsilons,
                     std::uint64_t first_block, std::size_t blocks) {
    const auto points = view(epsilons);
    auto sums = released([&] { return sampler.delta_sums(seed, points, first_block, blocks, poll); });
    if (sums.not_a_number > 0) {
        const std::string message =
            std::to_string(sums.not_a_number) + " privacy losses are not a number; they count as infinite";
        if (PyErr_WarnEx(PyExc_RuntimeWarning, message.c_str(), 2) != 0) throw py::error_already_set();
    }
    return py::make_tuple(table(std::move(sums.values), points.size(), blocks),
                          table(std::move(sums.squares), points.size(), blocks));
}

py::tuple draws(const hs::LossSampler& sampler, std::uint64_t seed, std::uint64_t first_block,
                std::size_t blocks) {
    auto drawn = released([&] { return sampler.draws(seed, first_block, blocks); });
    const std::size_t rows = blocks * sampler.block_size();
    py::object counts = py::none();
    if (!drawn.public_counts.empty()) counts = table(std::move(drawn.public_counts), rows, sampler.steps());
    return py::make_tuple(table(std::move(drawn.participations), rows, sampler.steps()),
                          table(std::move(drawn.outputs), rows, sampler.steps()), counts);
}

py::array_t<double> evaluate(const hs::LossSampler& sampler, const Array& outputs,
                             const Array& public_counts) {
    const auto in = view(outputs), counts = view(public_counts);
    return take(released([&] { return sampler.evaluate(in, counts, poll); }));
}

py::tuple spread_values(const Array& values) {
    std::vector<std::uint64_t> masses(hs::empirical_points);
    const auto in = view(values);
    auto refused = released([&] { return hs::spread_values(in, masses); });
    return py::make_tuple(take(std::move(masses)), refused);
}

py::array_t<double> empirical_points() {
    std::vector<double> points(hs::empirical_points);
    for (std::size_t i = 0; i < points.size(); ++i) points[i] = hs::empirical_point(i);
    return take(std::move(points));
}

}  // namespace

void register_montecarlo(hs::bindings::Module& m) {
    hs::bindings::Class<hs::Scheme>(m, "Scheme");
    m.def(
        "b_min_sep",
        [](std::size_t separation, double probability, bool warm_start) {
            return hs::Scheme(hs::BMinSep{separation, probability, warm_start});
        },
        py::arg("separation"), py::arg("probability"), py::arg("warm_start"));
    m.def(
        "balls_in_bins", [](std::size_t bins) { return hs::Scheme(hs::BallsInBins{bins}); }, py::arg("bins"));
    m.def(
        "multi_attribution",
        [](std::size_t separation, double probability, std::size_t examples, bool exact) {
            return hs::Scheme(hs::MultiAttribution{separation, probability, examples, exact});
        },
        py::arg("separation"), py::arg("probability"), py::arg("examples"), py::arg("exact"));
    m.def(
        "truncated_b_min_sep",
        [](std::size_t separation, double probability, bool warm_start, std::uint64_t dataset_size,
           std::uint64_t max_batch) {
            return hs::Scheme(
                hs::TruncatedBMinSep{{separation, probability, warm_start}, dataset_size, max_batch});
        },
        py::arg("separation"), py::arg("probability"), py::arg("warm_start"), py::arg("dataset_size"),
        py::arg("max_batch"));

    m.def(
        "independent_b_min_sep",
        [](std::size_t separation, double probability, bool warm_start, std::size_t examples) {
            return hs::Scheme(hs::IndependentBMinSep{{separation, probability, warm_start}, examples});
        },
        py::arg("separation"), py::arg("probability"), py::arg("warm_start"), py::arg("examples"));
    m.def("joint_examples", &hs::joint_examples, py::arg("scheme"), py::arg("steps"));

    m.def("empirical_points", &empirical_points);
    m.def("spread_values", &spread_values, py::arg("values"));

    hs::bindings::Class<hs::LossSampler>(m, "LossSampler")
        .def(py::init(&make), py::arg("columns"), py::arg("steps"), py::arg("scheme"),
             py::arg("noise_multiplier"), py::arg("direction"))
        .def_property_readonly("block_size", &hs::LossSampler::block_size)
        .def("losses", &losses, py::arg("seed"), py::arg("first_block"), py::arg("blocks"))
        .def("delta_sums", &delta_sums, py::arg("seed"), py::arg("epsilons"), py::arg("first_block"),
             py::arg("blocks"))
        .def("draws", &draws, py::arg("seed"), py::arg("first_block"), py::arg("blocks"))
        .def("evaluate", &evaluate, py::arg("outputs"), py::arg("public_counts"));
}
