// Importance sampling of delta.
#include <pybind11/pybind11.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "hockeystick/tilted.hpp"
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

std::unique_ptr<hs::TiltedSampler> make(const Array& columns, std::size_t steps, const hs::Scheme& scheme,
                                        double noise_multiplier, const Array& components,
                                        std::uint64_t most_others, bool swapped) {
    // Rows (weight, order, theta, shift).
    if (components.ndim() != 2 || components.shape(1) != 4) {
        throw py::value_error("components must be rows of four numbers");
    }
    const auto entries = view(components);
    auto strategy = strategy_of(columns, steps);
    std::vector<hs::Component> parts;
    for (std::size_t k = 0; k < entries.size(); k += 4) {
        parts.push_back({entries[k], static_cast<int>(entries[k + 1]), {entries[k + 2], entries[k + 3]}});
    }
    const py::gil_scoped_release release;
    return std::make_unique<hs::TiltedSampler>(std::move(strategy), scheme, noise_multiplier,
                                               std::move(parts), most_others,
                                               swapped ? hs::Direction::add : hs::Direction::remove);
}

py::array_t<double> samples(const hs::TiltedSampler& sampler, std::uint64_t seed, std::uint64_t first_block,
                            std::size_t blocks) {
    return table(released([&] { return sampler.samples(seed, first_block, blocks, poll); }),
                 blocks * sampler.block_size(), sampler.width());
}

py::array_t<double> values(const hs::TiltedSampler& sampler, std::uint64_t seed, const Array& epsilons,
                           double log_scale, std::uint64_t first_block, std::size_t blocks) {
    const auto points = view(epsilons);
    return table(released([&] { return sampler.values(seed, points, log_scale, first_block, blocks, poll); }),
                 points.size(), blocks * sampler.block_size());
}

hs::TiltedSampler::Draws drawn(const hs::TiltedSampler& sampler, std::uint64_t seed, std::uint64_t block) {
    const py::gil_scoped_release release;
    return sampler.draws(seed, block);
}

py::tuple draws(const hs::TiltedSampler& sampler, std::size_t steps, std::uint64_t seed,
                std::uint64_t block) {
    auto found = drawn(sampler, seed, block);
    return py::make_tuple(table(std::move(found.means), sampler.block_size(), steps),
                          table(std::move(found.outputs), sampler.block_size(), steps),
                          take(std::move(found.components)));
}

py::array_t<double> public_counts(const hs::TiltedSampler& sampler, std::size_t steps, std::uint64_t seed,
                                  std::uint64_t block) {
    auto found = drawn(sampler, seed, block);
    if (found.public_counts.empty()) throw py::value_error("only the truncated scheme has public counts");
    return table(std::move(found.public_counts), sampler.block_size(), steps);
}

}  // namespace

void register_tilted(hs::bindings::Module& m) {
    hs::bindings::Class<hs::TiltedSampler>(m, "TiltedSampler")
        .def(py::init(&make), py::arg("columns"), py::arg("steps"), py::arg("scheme"),
             py::arg("noise_multiplier"), py::arg("components"),
             py::arg("most_others") = std::uint64_t{1} << 62, py::arg("swapped") = false)
        .def_property_readonly("block_size", &hs::TiltedSampler::block_size)
        .def(
            "log_normaliser",
            [](const hs::TiltedSampler& sampler, std::size_t component) {
                if (component >= sampler.components().size()) throw py::index_error("component");
                return sampler.log_normaliser(component);
            },
            py::arg("component"))
        .def("log_bound", &hs::TiltedSampler::log_bound, py::arg("epsilon"))
        .def("samples", &samples, py::arg("seed"), py::arg("first_block"), py::arg("blocks"))
        .def("values", &values, py::arg("seed"), py::arg("epsilons"), py::arg("log_scale"),
             py::arg("first_block"), py::arg("blocks"))
        .def("draws", &draws, py::arg("steps"), py::arg("seed"), py::arg("block"))
        .def("public_counts", &public_counts, py::arg("steps"), py::arg("seed"), py::arg("block"));
    m.def(
        "has_moment_law",
        [](const Array& columns, std::size_t steps, const hs::Scheme& scheme, int order) {
            return hs::has_moment_law(strategy_of(columns, steps), scheme, order);
        },
        py::arg("columns"), py::arg("steps"), py::arg("scheme"), py::arg("order"));
    m.def(
        "log_moments_of_cuts",
        [](const Array& columns, std::size_t steps, const hs::Scheme& scheme, double noise_multiplier,
           std::size_t most) {
            const auto* truncated = std::get_if<hs::TruncatedBMinSep>(&scheme);
            if (truncated == nullptr) throw py::value_error("scheme must be truncated");
            const auto strategy = strategy_of(columns, steps);
            return take(hs::log_moments_of_cuts(strategy, *truncated, noise_multiplier, most));
        },
        py::arg("columns"), py::arg("steps"), py::arg("scheme"), py::arg("noise_multiplier"),
        py::arg("most"));
}
