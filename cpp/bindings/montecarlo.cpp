// Strategies, and Monte Carlo samples of the privacy loss of matrix mechanisms: plain, importance sampling,
// half spaces.
#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hockeystick/estimate.hpp"
#include "hockeystick/toeplitz.hpp"
#include "module.hpp"
#include "montecarlo/empirical.hpp"
#include "montecarlo/half_space.hpp"
#include "montecarlo/tilted.hpp"
#include "numpy.hpp"

namespace py = pybind11;
namespace hs = hockeystick;
using namespace hockeystick::bindings;

PYBIND11_MAKE_OPAQUE(hs::Scheme)  // a class, whatever it consists of

constexpr Names<hs::Direction> directions{"direction",
                                          {{"remove", hs::Direction::remove},
                                           {"add", hs::Direction::add},
                                           {"replace_one", hs::Direction::replace_one}}};
template <>
struct pybind11::detail::type_caster<hs::Direction> : Named<hs::Direction, directions> {};

namespace {

template <class Kind, class... Fields>
hs::Scheme scheme(Fields... fields) {
    return Kind{fields...};
}

template <class Kind, class... Fields>
hs::Scheme around_b_min_sep(std::size_t separation, double probability, bool warm_start, Fields... fields) {
    return Kind{{separation, probability, warm_start}, fields...};
}

hs::MatrixMechanism mechanism(const Array& columns, std::size_t steps, const hs::Scheme& scheme,
                              double noise_multiplier) {
    if (columns.ndim() != 2) throw py::value_error("columns must have two dimensions");
    const auto values = view(columns);
    const auto bands = static_cast<std::size_t>(columns.shape(1));
    return {{steps, bands, {values.begin(), values.end()}}, scheme, noise_multiplier};
}

py::tuple delta_sums(const hs::LossSampler& sampler, std::uint64_t seed, std::span<const double> epsilons,
                     std::uint64_t first_block, std::size_t blocks) {
    auto sums = released([&] { return sampler.delta_sums(seed, epsilons, first_block, blocks); });
    if (sums.not_a_number > 0) {
        const std::string message =
            std::to_string(sums.not_a_number) + " privacy losses are not a number; they count as infinite";
        if (PyErr_WarnEx(PyExc_RuntimeWarning, message.c_str(), 2) != 0) throw py::error_already_set();
    }
    return py::make_tuple(table(std::move(sums.values), epsilons.size(), blocks),
                          table(std::move(sums.squares), epsilons.size(), blocks));
}

// Means, outputs, public counts or None, components.
py::tuple draws(const hs::BlockSampler& sampler, std::uint64_t seed, std::uint64_t first_block,
                std::size_t blocks) {
    auto drawn = released([&] { return sampler.draws(seed, first_block, blocks); });
    const auto by_step = [&](std::vector<double>& values) -> py::object {
        if (values.empty()) return py::none();
        return table(std::move(values), blocks * sampler.block_size(), sampler.steps());
    };
    return py::make_tuple(by_step(drawn.means), by_step(drawn.outputs), by_step(drawn.public_counts),
                          take(std::move(drawn.components)));
}

auto spread_values(std::span<const double> values) {
    std::vector<std::uint64_t> masses(hs::empirical_points);
    const std::size_t refused = hs::spread_values(values, masses);
    return std::pair(std::move(masses), refused);
}

std::vector<double> empirical_points() {
    std::vector<double> points(hs::empirical_points);
    for (std::size_t i = 0; i < points.size(); ++i) points[i] = hs::empirical_point(i);
    return points;
}

// Rows of so many numbers.
std::span<const double> rows_of(const Array& array, py::ssize_t width, const char* refusal) {
    if (array.ndim() != 2 || array.shape(1) != width) throw py::value_error(refusal);
    return view(array);
}

std::unique_ptr<hs::TiltedSampler> make_tilted(const hs::MatrixMechanism& mechanism, const Array& components,
                                               std::uint64_t most_others, hs::Direction direction,
                                               const hs::TiltedSampler* like) {
    // (weight, order, theta, shift)
    const auto entries = rows_of(components, 4, "components must be rows of four numbers");
    std::vector<hs::Component> parts;
    for (std::size_t k = 0; k < entries.size(); k += 4) {
        parts.push_back({entries[k], static_cast<int>(entries[k + 1]), {entries[k + 2], entries[k + 3]}});
    }
    const py::gil_scoped_release release;
    return std::make_unique<hs::TiltedSampler>(mechanism, std::move(parts), most_others, direction, like);
}

py::array_t<double> samples(const hs::BlockSampler& sampler, std::uint64_t seed, std::uint64_t first_block,
                            std::size_t blocks) {
    return table(released([&] { return sampler.samples(seed, first_block, blocks); }),
                 blocks * sampler.block_size(), sampler.width());
}

// scales: what values are bounded by, and measured in.
template <class Sampler, class... Scales>
py::array_t<double> values(const Sampler& sampler, std::uint64_t seed, std::span<const double> epsilons,
                           Scales... scales, std::uint64_t first_block, std::size_t blocks) {
    return table(released([&] { return sampler.values(seed, epsilons, scales..., first_block, blocks); }),
                 epsilons.size(), blocks * sampler.block_size());
}

std::unique_ptr<hs::HalfSpaceSampler> make_half_space(const hs::MatrixMechanism& mechanism,
                                                      std::vector<double> direction, double threshold,
                                                      const Array& shifts) {
    // (weight, shift)
    const auto entries = rows_of(shifts, 2, "shifts must be pairs of numbers");
    std::vector<hs::HalfSpaceSampler::Shift> parts;
    for (std::size_t k = 0; k < entries.size(); k += 2) parts.push_back({entries[k], entries[k + 1]});
    const py::gil_scoped_release release;
    return std::make_unique<hs::HalfSpaceSampler>(mechanism, std::move(direction), threshold,
                                                  std::move(parts));
}

auto tangent(const hs::MatrixMechanism& mechanism, std::span<const double> outputs) {
    auto found = hs::tangent(mechanism, outputs);
    return std::pair(found.log_rest, std::move(found.means));
}

void register_plain(Module& m) {
    m.def_released("divide_by_toeplitz", &hs::divide_by_toeplitz);
    m.def_released("optimal_toeplitz",
                   [](std::span<const double> kept, std::span<const double> response,
                      std::span<const double> gram) { return hs::optimal_toeplitz(kept, {response, gram}); });

    Class<hs::Scheme>(m, "Scheme");
    m.def("b_min_sep", &scheme<hs::BMinSep, std::size_t, double, bool>);
    m.def("balls_in_bins", &scheme<hs::BallsInBins, std::size_t>);
    m.def("multi_attribution", &scheme<hs::MultiAttribution, std::size_t, double, std::size_t, bool>);
    m.def("truncated_b_min_sep", &around_b_min_sep<hs::TruncatedBMinSep, std::uint64_t, std::uint64_t>);
    m.def("independent_b_min_sep", &around_b_min_sep<hs::IndependentBMinSep, std::size_t>);
    m.def("joint_examples", &hs::joint_examples);
    Class<hs::MatrixMechanism>(m, "MatrixMechanism").def(py::init(&mechanism));

    m.def("empirical_points", &empirical_points);
    m.def_released("spread_values", &spread_values);

    Class<hs::BlockSampler>(m, "BlockSampler")
        .def_property_readonly("block_size", &hs::BlockSampler::block_size)
        .def("samples", &samples)
        .def("draws", &draws);
    Class<hs::LossSampler, hs::BlockSampler>(m, "LossSampler")
        .def(py::init<hs::MatrixMechanism, hs::Direction>())
        .def_released("losses", &hs::LossSampler::losses)
        .def("delta_sums", &delta_sums)
        .def_released("evaluate", &hs::LossSampler::evaluate);
}

void register_importance(Module& m) {
    Class<hs::TiltedSampler, hs::BlockSampler>(m, "TiltedSampler")
        .def(py::init(&make_tilted), py::arg("mechanism"), py::arg("components"),
             py::arg("most_others") = std::uint64_t{1} << 62, py::arg("direction") = "remove",
             py::arg("like") = static_cast<hs::TiltedSampler*>(nullptr))
        .def("log_normaliser", &hs::TiltedSampler::log_normaliser)
        .def("log_bound", &hs::TiltedSampler::log_bound)
        .def("values", &values<hs::TiltedSampler, double>);
    m.def("has_moment_law", [](const hs::MatrixMechanism& mechanism, int order) {
        return hs::has_moment_law(mechanism, order);
    });
    m.def("log_moments_of_cuts", &hs::log_moments_of_cuts);

    Class<hs::HalfSpaceSampler, hs::BlockSampler>(m, "HalfSpaceSampler")
        .def(py::init(&make_half_space))
        .def_property_readonly("log_probability", &hs::HalfSpaceSampler::log_probability)
        .def("values", &values<hs::HalfSpaceSampler, double, double>);
    m.def_released("tangent", &tangent);
    m.def("log_normal_below", &hs::log_normal_below);
}

}  // namespace

void register_montecarlo(Module& m) {
    register_plain(m);
    register_importance(m);
}
