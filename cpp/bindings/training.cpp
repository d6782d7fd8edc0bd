// What a training loop draws from: batches, correlated noise, graphs of who owns which example.
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "hockeystick/batches.hpp"
#include "hockeystick/noise.hpp"
#include "module.hpp"
#include "numpy.hpp"
#include "training/coins.hpp"

namespace py = pybind11;
namespace hs = hockeystick;
using namespace hockeystick::bindings;

using Form = hs::CorrelatedNoise::Form;
constexpr Names<Form> forms{
    "form", {{"strategy", Form::solve}, {"inverse", Form::multiply}, {"buffers", Form::buffers}}};
template <>
struct pybind11::detail::type_caster<Form> : Named<Form, forms> {};

namespace {

using Longs = Exact<std::int64_t>;
using Ids = Exact<std::int32_t>;

// 32 bytes of Python become the words of a key.
hs::ChaChaKey key_of(const py::bytes& secret) {
    const std::string bytes = secret;
    hs::ChaChaKey key{};
    if (bytes.size() != 4 * key.size()) throw py::value_error("key must have 32 bytes");
    for (std::size_t i = 0; i < bytes.size(); ++i) {  // little-endian words, on any machine
        key[i / 4] |= std::uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * (i % 4));
    }
    return key;
}

auto group_edges(std::span<const std::int64_t> examples, std::span<const std::int32_t> users,
                 std::size_t num_examples, std::size_t num_users) {
    hs::Attribution graph = hs::group_edges(examples, users, num_examples, num_users);
    return std::pair(std::move(graph.offsets), std::move(graph.users));
}

hs::AttributionView checked(std::span<const std::int64_t> offsets, std::span<const std::int32_t> users,
                            std::size_t num_users) {
    const hs::AttributionView graph{offsets, users, num_users};
    hs::check(graph);
    return graph;
}

auto bound_contributions(std::span<const std::int64_t> offsets, std::span<const std::int32_t> users,
                         std::size_t num_users, std::span<const std::int64_t> order,
                         std::size_t max_examples_per_user, bool duplicates,
                         std::optional<std::size_t> max_neighbourhood) {
    return hs::bound_contributions(checked(offsets, users, num_users), order, max_examples_per_user,
                                   duplicates, max_neighbourhood);
}

auto neighbourhood_sizes(std::span<const std::int64_t> offsets, std::span<const std::int32_t> users,
                         std::size_t num_users, std::size_t limit) {
    return hs::neighbourhood_sizes(checked(offsets, users, num_users), limit);
}

void register_attribution(Module& m) {
    m.def_released("check_attribution",
                   [](std::span<const std::int64_t> offsets, std::span<const std::int32_t> users,
                      std::size_t num_users) { checked(offsets, users, num_users); });
    m.def_released("group_edges", &group_edges);
    m.def_released("bound_contributions", &bound_contributions, py::arg("offsets"), py::arg("users"),
                   py::arg("num_users"), py::arg("order"), py::arg("max_examples_per_user"),
                   py::arg("duplicates") = false, py::arg("max_neighbourhood") = py::none());
    m.def_released("neighbourhood_sizes", &neighbourhood_sizes);
}

// Keeps the graph alive, which the core only looks at. Its calls are made without the GIL: who holds the lock
// of the core may be waiting for it.
struct Sampler : hs::BatchSampler {
    using BatchSampler::BatchSampler;
    py::object graph;
};

template <class Law, class... Fields>
std::unique_ptr<Sampler> sampler(const py::bytes& key, std::uint64_t population, std::uint64_t steps,
                                 std::optional<std::uint64_t> max_batch, Fields... fields) {
    const hs::ChaChaKey words = key_of(key);
    return released(
        [&] { return std::make_unique<Sampler>(Law{fields...}, population, steps, max_batch, words); });
}

// (offsets, users, number of users), as in attribution.hpp.
using Graph = std::tuple<Longs, Ids, std::size_t>;

std::unique_ptr<Sampler> multi_attribution(const py::bytes& key, std::uint64_t steps, const Graph& given,
                                           std::uint64_t separation, double probability,
                                           bool by_participation, std::uint64_t ahead) {
    const auto& [offsets, users, num_users] = given;
    const hs::AttributionView graph{view(offsets), view(users), num_users};
    const hs::MultiAttributionBatches law{graph, separation, probability, by_participation, ahead};
    const hs::ChaChaKey words = key_of(key);
    auto made = released(
        [&] { return std::make_unique<Sampler>(law, graph.num_examples(), steps, std::nullopt, words); });
    made->graph = py::make_tuple(offsets, users);
    return made;
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

void register_batches(Module& m) {
    m.def("coin_thresholds", &coin_thresholds);
    Class<Sampler>(m, "BatchSampler")
        .def_static("poisson", &sampler<hs::PoissonBatches, double, std::uint64_t>)
        .def_static("fixed", &sampler<hs::FixedBatches, std::uint64_t, bool>)
        .def_static("balls_in_bins", &sampler<hs::BallsInBinsBatches, std::uint64_t, bool>)
        .def_static("min_sep", &sampler<hs::MinSepBatches, std::uint64_t, double, bool>)
        .def_static("multi_attribution", &multi_attribution)
        .def_released("next", &Sampler::next)
        .def_released("seek", &Sampler::seek)
        .def_released("sampled", &Sampler::sampled)
        .def_property_readonly("step", &Sampler::step)
        .def_property_readonly("state_bytes", [](const Sampler& sampler) {
            return released([&] { return sampler.state_bytes(); });
        });
}

// The same for the matrix.
class Noise : public hs::CorrelatedNoise {
public:
    Noise(Array columns, std::size_t bands, std::size_t steps, Form form, const py::bytes& key,
          std::uint64_t start, std::uint64_t stop, bool single)
        : CorrelatedNoise({view(columns), bands, steps}, form, key_of(key), start, stop, single),
          columns_(std::move(columns)) {}

    template <typename Out>
    void fill(std::span<Out> out, double scale, bool add) {
        if (out.size() % width() != 0) throw py::value_error("out must hold whole rows");
        if (!out.empty()) next(out.size() / width(), scale, out, add);
    }
    void skip(std::size_t count) { next(count, 1.0, std::span<double>(), false); }
    Array history() {
        Array out({static_cast<py::ssize_t>(history_rows()), static_cast<py::ssize_t>(width())});
        const auto target = mutable_view(out);
        released([&] { save(target); });
        return out;
    }

private:
    Array columns_;
};

void register_noise(Module& m) {
    Class<Noise>(m, "CorrelatedNoise")
        .def(py::init<Array, std::size_t, std::size_t, Noise::Form, const py::bytes&, std::uint64_t,
                      std::uint64_t, bool>())
        .def_released("fill", &Noise::fill<float>, py::arg("out"), py::arg("scale"), py::arg("add"))
        .def_released("fill", &Noise::fill<double>, py::arg("out"), py::arg("scale"), py::arg("add"))
        .def_released("skip", &Noise::skip)
        .def("history", &Noise::history)
        .def_released("restore", &Noise::restore)
        .def_property_readonly("step", &Noise::step)
        .def_property_readonly("state_bytes", &Noise::state_bytes);
}

}  // namespace

void register_training(Module& m) {
    register_attribution(m);
    register_batches(m);
    register_noise(m);
}
