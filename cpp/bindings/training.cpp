// What a training loop draws from: batches, correlated noise, graphs of who owns which example.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

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

hs::AttributionView graph_view(const Longs& offsets, const Ids& users, std::size_t num_users) {
    return {view(offsets), view(users), num_users};
}

py::tuple group_edges(const Longs& examples, const Ids& users, std::size_t num_examples,
                      std::size_t num_users) {
    hs::Attribution graph =
        released([&] { return hs::group_edges(view(examples), view(users), num_examples, num_users); });
    return py::make_tuple(take(std::move(graph.offsets)), take(std::move(graph.users)));
}

Longs bound_contributions(const Longs& offsets, const Ids& users, std::size_t num_users, const Longs& order,
                          std::size_t max_examples_per_user, bool duplicates,
                          std::optional<std::size_t> max_neighbourhood) {
    return take(released([&] {
        const auto in = graph_view(offsets, users, num_users);
        hs::check(in);
        return hs::bound_contributions(in, view(order), max_examples_per_user, duplicates, max_neighbourhood);
    }));
}

Longs neighbourhood_sizes(const Longs& offsets, const Ids& users, std::size_t num_users, std::size_t limit) {
    return take(released([&] {
        const auto in = graph_view(offsets, users, num_users);
        hs::check(in);
        return hs::neighbourhood_sizes(in, limit);
    }));
}

void check(const Longs& offsets, const Ids& users, std::size_t num_users) {
    released([&] { hs::check(graph_view(offsets, users, num_users)); });
}

void register_attribution(Module& m) {
    m.def("check_attribution", &check);
    m.def("group_edges", &group_edges);
    m.def("bound_contributions", &bound_contributions, py::arg("offsets"), py::arg("users"),
          py::arg("num_users"), py::arg("order"), py::arg("max_examples_per_user"),
          py::arg("duplicates") = false, py::arg("max_neighbourhood") = py::none());
    m.def("neighbourhood_sizes", &neighbourhood_sizes);
}

using Most = std::optional<std::uint64_t>;

// Keeps the graph alive, which the core only looks at. Without the GIL: who holds the lock of the core may be
// waiting for it.
class Sampler {
public:
    Sampler(const hs::BatchLaw& law, std::uint64_t population, std::uint64_t steps, Most max_batch,
            const py::bytes& key, Longs offsets = {}, Ids users = {})
        : offsets_(std::move(offsets)), users_(std::move(users)) {
        const hs::ChaChaKey words = key_of(key);
        const py::gil_scoped_release release;
        sampler_ = std::make_unique<hs::BatchSampler>(law, population, steps, max_batch, words);
    }

    Longs next() {
        return take(released([&] { return sampler_->next(); }));
    }
    bool seek(std::uint64_t step, std::uint64_t most) {
        return released([&] { return sampler_->seek(step, most); });
    }
    Longs sampled() const {
        return take(released([&] { return sampler_->sampled(); }));
    }
    std::uint64_t step() const { return sampler_->step(); }
    std::size_t state_bytes() const {
        return released([&] { return sampler_->state_bytes(); });
    }

private:
    Longs offsets_;
    Ids users_;
    std::unique_ptr<hs::BatchSampler> sampler_;
};

template <class Law, class... Fields>
Sampler sampler(const py::bytes& key, std::uint64_t population, std::uint64_t steps, Most max_batch,
                Fields... fields) {
    return {Law{fields...}, population, steps, max_batch, key};
}

// (offsets, users, number of users), as in attribution.hpp.
using Graph = std::tuple<Longs, Ids, std::size_t>;

Sampler multi_attribution(const py::bytes& key, std::uint64_t steps, const Graph& given,
                          std::uint64_t separation, double probability, bool by_participation,
                          std::uint64_t ahead) {
    const auto& [offsets, users, num_users] = given;
    const hs::AttributionView graph = graph_view(offsets, users, num_users);
    hs::check(graph);
    return {hs::MultiAttributionBatches{graph, separation, probability, by_participation, ahead},
            graph.num_examples(),
            steps,
            std::nullopt,
            key,
            offsets,
            users};
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
        .def("next", &Sampler::next)
        .def("seek", &Sampler::seek)
        .def("sampled", &Sampler::sampled)
        .def_property_readonly("step", &Sampler::step)
        .def_property_readonly("state_bytes", &Sampler::state_bytes);
}

// The same for the matrix.
class Noise {
public:
    using Form = hs::CorrelatedNoise::Form;

    Noise(const Array& columns, std::size_t bands, std::size_t steps, const std::string& form,
          const py::bytes& key, std::uint64_t start, std::uint64_t stop, bool single)
        : columns_(columns),
          noise_({view(columns_), bands, steps},
                 named<Form>(
                     "form", form,
                     {{"strategy", Form::solve}, {"inverse", Form::multiply}, {"buffers", Form::buffers}}),
                 key_of(key), start, stop, single) {}

    template <typename Out>
    void fill(Exact<Out>& out, double scale, bool add) {
        const std::span<Out> target = mutable_view(out);
        if (target.size() % noise_.width() != 0) throw py::value_error("out must hold whole rows");
        const py::gil_scoped_release release;
        if (!target.empty()) noise_.next(target.size() / noise_.width(), scale, target, add);
    }
    void skip(std::size_t count) {
        released([&] { noise_.next(count, 1.0, std::span<double>(), false); });
    }
    Array history() {
        Array out(
            {static_cast<py::ssize_t>(noise_.history_rows()), static_cast<py::ssize_t>(noise_.width())});
        const auto target = mutable_view(out);
        released([&] { noise_.save(target); });
        return out;
    }
    void restore(std::size_t step, const Array& history) {
        released([&] { noise_.restore(step, view(history)); });
    }
    std::size_t step() const { return noise_.step(); }
    std::size_t state_bytes() const { return noise_.state_bytes(); }

private:
    Array columns_;
    hs::CorrelatedNoise noise_;
};

void register_noise(Module& m) {
    Class<Noise>(m, "CorrelatedNoise")
        .def(py::init<const Array&, std::size_t, std::size_t, const std::string&, const py::bytes&,
                      std::uint64_t, std::uint64_t, bool>())
        .def("fill", &Noise::fill<float>, py::arg("out").noconvert(), py::arg("scale"), py::arg("add"))
        .def("fill", &Noise::fill<double>, py::arg("out").noconvert(), py::arg("scale"), py::arg("add"))
        .def("skip", &Noise::skip)
        .def("history", &Noise::history)
        .def("restore", &Noise::restore)
        .def_property_readonly("step", &Noise::step)
        .def_property_readonly("state_bytes", &Noise::state_bytes);
}

}  // namespace

void register_training(Module& m) {
    register_attribution(m);
    register_batches(m);
    register_noise(m);
}
