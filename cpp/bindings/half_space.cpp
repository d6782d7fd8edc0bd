// Direction Q against P: samples of a half space.
#include "hockeystick/half_space.hpp"

#include <pybind11/pybind11.h>

#include <memory>
#include <utility>
#include <vector>

#include "module.hpp"
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

std::unique_ptr<hs::HalfSpaceSampler> make(const Array& columns, std::size_t steps, const hs::Scheme& scheme,
                                           double noise_multiplier, const Array& direction, double threshold,
                                           const Array& shifts) {
    // Rows (weight, shift).
    if (shifts.ndim() != 2 || shifts.shape(1) != 2) throw py::value_error("shifts must be pairs of numbers");
    const auto entries = view(shifts), unit = view(direction);
    auto strategy = strategy_of(columns, steps);
    std::vector<hs::HalfSpaceSampler::Shift> parts;
    for (std::size_t k = 0; k < entries.size(); k += 2) parts.push_back({entries[k], entries[k + 1]});
    std::vector<double> normal(unit.begin(), unit.end());
    const py::gil_scoped_release release;
    return std::make_unique<hs::HalfSpaceSampler>(std::move(strategy), scheme, noise_multiplier,
                                                  std::move(normal), threshold, std::move(parts));
}

py::tuple tangent(const Array& columns, std::size_t steps, const hs::Scheme& scheme, double noise_multiplier,
                  const Array& outputs) {
    const auto at = view(outputs);
    const auto strategy = strategy_of(columns, steps);
    auto found = released([&] { return hs::tangent(strategy, scheme, noise_multiplier, at); });
    return py::make_tuple(found.log_rest, take(std::move(found.means)));
}

py::array_t<double> samples(const hs::HalfSpaceSampler& sampler, std::uint64_t seed,
                            std::uint64_t first_block, std::size_t blocks) {
    return table(released([&] { return sampler.samples(seed, first_block, blocks, poll); }),
                 blocks * sampler.block_size(), sampler.width());
}

py::array_t<double> values(const hs::HalfSpaceSampler& sampler, std::uint64_t seed, const Array& epsilons,
                           double floor, double log_scale, std::uint64_t first_block, std::size_t blocks) {
    const auto points = view(epsilons);
    return table(
        released([&] { return sampler.values(seed, points, floor, log_scale, first_block, blocks, poll); }),
        points.size(), blocks * sampler.block_size());
}

py::array_t<double> outputs(const hs::HalfSpaceSampler& sampler, std::uint64_t seed, std::uint64_t block) {
    auto found = released([&] { return sampler.outputs(seed, block); });
    const std::size_t steps = found.size() / sampler.block_size();
    return table(std::move(found), sampler.block_size(), steps);
}

}  // namespace

void register_half_space(hs::bindings::Module& m) {
    hs::bindings::Class<hs::HalfSpaceSampler>(m, "HalfSpaceSampler")
        .def(py::init(&make), py::arg("columns"), py::arg("steps"), py::arg("scheme"),
             py::arg("noise_multiplier"), py::arg("direction"), py::arg("threshold"), py::arg("shifts"))
        .def_property_readonly("block_size", &hs::HalfSpaceSampler::block_size)
        .def_property_readonly("log_probability", &hs::HalfSpaceSampler::log_probability)
        .def("samples", &samples, py::arg("seed"), py::arg("first_block"), py::arg("blocks"))
        .def("values", &values, py::arg("seed"), py::arg("epsilons"), py::arg("floor"), py::arg("log_scale"),
             py::arg("first_block"), py::arg("blocks"))
        .def("outputs", &outputs, py::arg("seed"), py::arg("block"));
    m.def("tangent", &tangent, py::arg("columns"), py::arg("steps"), py::arg("scheme"),
          py::arg("noise_multiplier"), py::arg("outputs"));
    m.def("log_normal_below", &hs::log_normal_below, py::arg("threshold"));
}
