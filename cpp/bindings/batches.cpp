// The batches of training runs.
#include "hockeystick/batches.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "key.hpp"
#include "module.hpp"
#include "numpy.hpp"

namespace py = pybind11;
namespace hs = hockeystick;
using hs::bindings::key_of;
using hs::bindings::released;
using hs::bindings::take;

namespace {

using Longs = py::array_t<std::int64_t, py::array::c_style>;
using Ids = py::array_t<std::int32_t, py::array::c_style>;
using Most = std::optional<std::uint64_t>;

// Keeps the graph alive, which the core only looks at.
class Sampler {
public:
    Sampler(const hs::BatchLaw& law, std::uint64_t population, std::uint64_t steps, Most max_batch,
            const hs::ChaChaKey& key, Longs offsets = {}, Ids users = {})
        : offsets_(std::move(offsets)), users_(std::move(users)) {
        const py::gil_scoped_release release;
        sampler_ = std::make_unique<hs::BatchSampler>(law, population, steps, max_batch, key);
    }

    Longs next() {
        return take(released([&] { return sampler_->next(); }));
    }

    bool seek(std::uint64_t step, std::uint64_t most) {
        const py::gil_scoped_release release;
        return sampler_->seek(step, most);
    }

    Longs sampled() const {
        // who holds the lock of the core may be waiting for it
        return take(released([&] { return sampler_->sampled(); }));
    }
    std::uint64_t step() const { return sampler_->step(); }
    std::size_t state_bytes() const {
        const py::gil_scoped_release release;
        return sampler_->state_bytes();
    }

private:
    Longs offsets_;
    Ids users_;
    std::unique_ptr<hs::BatchSampler> sampler_;
};

std::unique_ptr<Sampler> poisson(const py::bytes& key, std::uint64_t population, std::uint64_t steps,
                                 Most max_batch, double probability, std::uint64_t groups) {
    return std::make_unique<Sampler>(hs::PoissonBatches{probability, groups}, population, steps, max_batch,
                                     key_of(key));
}

std::unique_ptr<Sampler> fixed(const py::bytes& key, std::uint64_t population, std::uint64_t steps,
                               std::uint64_t size, bool replacement) {
    return std::make_unique<Sampler>(hs::FixedBatches{size, replacement}, population, steps, std::nullopt,
                                     key_of(key));
}

std::unique_ptr<Sampler> balls_in_bins(const py::bytes& key, std::uint64_t population, std::uint64_t steps,
                                       std::uint64_t bins) {
    return std::make_unique<Sampler>(hs::BallsInBinsBatches{bins}, population, steps, std::nullopt,
                                     key_of(key));
}

std::unique_ptr<Sampler> min_sep(const py::bytes& key, std::uint64_t population, std::uint64_t steps,
                                 Most max_batch, std::uint64_t separation, double probability,
                                 bool warm_start) {
    return std::make_unique<Sampler>(hs::MinSepBatches{separation, probability, warm_start}, population,
                                     steps, max_batch, key_of(key));
}

// (offsets, users, number of users), as in attribution.hpp.
using Graph = std::tuple<Longs, Ids, std::size_t>;

std::unique_ptr<Sampler> multi_attribution(const py::bytes& key, std::uint64_t steps, const Graph& given,
                                           std::uint64_t separation, double probability,
                                           bool by_participation, std::uint64_t ahead) {
    const auto& [offsets, users, num_users] = given;
    const hs::AttributionView graph{{offsets.data(), static_cast<std::size_t>(offsets.size())},
                                    {users.data(), static_cast<std::size_t>(users.size())},
                                    num_users};
    hs::check(graph);
    return std::make_unique<Sampler>(
        hs::MultiAttributionBatches{graph, separation, probability, by_participation, ahead},
        graph.num_examples(), steps, std::nullopt, key_of(key), offsets, users);
}

// (block size, thresholds as integers of 256 bits, big-endian)
py::tuple coin_thresholds(double probability, std::uint64_t weight, std::uint64_t most) {
    const hs::Coins coins =
        weight == 0 ? hs::Coins(probability, most) : hs::Coins::stationary(probability, weight, most);
    py::list thresholds;
    for (const auto& threshold : coins.thresholds()) {
        std::string bytes;
        for (const std::uint64_t word : threshold) {
            for (int shift = 56; shift >= 0; shift -= 8)
                bytes.push_back(static_cast<char>(word >> shift & 0xFF));
        }
        thresholds.append(py::bytes(bytes));
    }
    return py::make_tuple(coins.block_size(), thresholds);
}

}  // namespace

void register_batches(hs::bindings::Module& m) {
    m.def("coin_thresholds", &coin_thresholds, py::arg("probability"), py::arg("weight"), py::arg("most"));
    hs::bindings::Class<Sampler>(m, "BatchSampler")
        .def_static("poisson", &poisson, py::arg("key"), py::arg("population"), py::arg("steps"),
                    py::arg("max_batch"), py::arg("probability"), py::arg("groups"))
        .def_static("fixed", &fixed, py::arg("key"), py::arg("population"), py::arg("steps"), py::arg("size"),
                    py::arg("replacement"))
        .def_static("balls_in_bins", &balls_in_bins, py::arg("key"), py::arg("population"), py::arg("steps"),
                    py::arg("bins"))
        .def_static("min_sep", &min_sep, py::arg("key"), py::arg("population"), py::arg("steps"),
                    py::arg("max_batch"), py::arg("separation"), py::arg("probability"),
                    py::arg("warm_start"))
        .def_static("multi_attribution", &multi_attribution, py::arg("key"), py::arg("steps"),
                    py::arg("graph"), py::arg("separation"), py::arg("probability"),
                    py::arg("by_participation"), py::arg("ahead"))
        .def("next", &Sampler::next)
        .def("seek", &Sampler::seek, py::arg("step"), py::arg("most"))
        .def("sampled", &Sampler::sampled)
        .def_property_readonly("step", &Sampler::step)
        .def_property_readonly("state_bytes", &Sampler::state_bytes);
}
