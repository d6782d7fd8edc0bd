// Dominating pairs, certified profiles and grids of many, the coupling bound.
#include <pybind11/pybind11.h>

#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "hockeystick/grid.hpp"
#include "hockeystick/pairs.hpp"
#include "hockeystick/profile.hpp"
#include "inversion/renyi.hpp"
#include "lattice/coupling.hpp"
#include "module.hpp"
#include "numpy.hpp"

namespace py = pybind11;
namespace hs = hockeystick;
using namespace hockeystick::bindings;

constexpr Names<hs::Sampling> modes{"mode",
                                    {{"remove", hs::Sampling::remove},
                                     {"add", hs::Sampling::add},
                                     {"replace_one", hs::Sampling::replace_one}}};
constexpr Names<hs::Noise> noises{"noise",
                                  {{"gaussian", hs::Noise::gaussian}, {"laplace", hs::Noise::laplace}}};
constexpr Names<hs::Engine> engines{
    "engine", {{"auto", hs::Engine::automatic}, {"fft", hs::Engine::fft}, {"prv", hs::Engine::prv}}};
constexpr Names<hs::Quantity> quantities{
    "quantity", {{"epsilon", hs::Quantity::epsilon}, {"delta", hs::Quantity::delta}}};

template <>
struct pybind11::detail::type_caster<hs::Sampling> : Named<hs::Sampling, modes> {};
template <>
struct pybind11::detail::type_caster<hs::Noise> : Named<hs::Noise, noises> {};
template <>
struct pybind11::detail::type_caster<hs::Engine> : Named<hs::Engine, engines> {};
template <>
struct pybind11::detail::type_caster<hs::Quantity> : Named<hs::Quantity, quantities> {};

namespace {

template <auto side>  // above or below
auto tangents(const hs::Pair& pair, std::span<const double> x) {
    std::vector<double> value, slope, exponent, error;
    for (const double at : x) {
        const hs::Tangent t = (pair.*side)(at);
        value.push_back(t.value);
        slope.push_back(t.slope);
        exponent.push_back(t.exponent);
        error.push_back(t.error);
    }
    return std::tuple(std::move(value), std::move(slope), std::move(exponent), std::move(error));
}

hs::PairPtr discrete(std::vector<double> losses, std::vector<double> p, std::vector<double> q,
                     double p_infinity, double spacing, std::optional<double> q_infinity, double loss_error,
                     bool total_is_rounded) {
    return hs::discrete(std::move(losses), std::move(p), std::move(q), p_infinity, spacing,
                        q_infinity.value_or(-1.0), {loss_error, total_is_rounded});
}

void register_pairs(Module& m) {
    Class<hs::Pair, std::shared_ptr<hs::Pair>>(m, "Pair", "A dominating pair (P, Q) in one direction.")
        .def_released("above", &tangents<&hs::Pair::above>)
        .def_released("below", &tangents<&hs::Pair::below>)
        .def_property_readonly("max_loss", &hs::Pair::max_loss)
        .def_property_readonly("infinity_mass", &hs::Pair::infinity_mass)
        .def_property_readonly("spacing", &hs::Pair::spacing)
        .def_property_readonly("lower", &hs::Pair::lower);

    m.def("gaussian_pair", &hs::gaussian);
    m.def("laplace_pair", &hs::laplace);
    m.def("discrete_pair", &discrete, py::arg("losses"), py::arg("p"), py::arg("q"),
          py::arg("p_infinity") = 0.0, py::kw_only(), py::arg("spacing") = 0.0,
          py::arg("q_infinity") = py::none(), py::arg("loss_error") = 2.0,
          py::arg("total_is_rounded") = false);
    m.def("sampled_pair", &hs::sampled);
    m.def("zero_out_pair", &hs::zero_out);
    m.def("random_allocation_pair", &hs::random_allocation, py::arg("mu"), py::arg("steps"), py::arg("mode"),
          py::arg("told_mu") = std::numeric_limits<double>::infinity());
    m.def("mixture_pair", &hs::mixture);
    m.def("bracket_pair", &hs::bracket);
    m.def("location_mixture_pair", &hs::location_mixture);
    m.def_released("renyi_divergence", &hs::renyi_divergence);
}

auto bounds(const std::vector<hs::Answer>& answers) {
    std::vector<double> lower, upper;
    for (const hs::Answer& answer : answers) {
        lower.push_back(answer.lower);
        upper.push_back(answer.upper);
    }
    return std::pair(std::move(lower), std::move(upper));
}

void register_profile(Module& m) {
    Class<hs::Answer>(m, "Answer", "A certified interval and the errors it includes.")
        .def_readonly("lower", &hs::Answer::lower)
        .def_readonly("upper", &hs::Answer::upper)
        .def_readonly("engine", &hs::Answer::engine)
        .def_readonly("direction", &hs::Answer::direction)
        .def_readonly("step", &hs::Answer::step)
        .def_readonly("size", &hs::Answer::size)
        .def_property_readonly("terms", [](const hs::Answer& answer) {
            using namespace py::literals;
            return py::dict("discretisation"_a = answer.discretisation, "truncation"_a = answer.truncation,
                            "wrap_around"_a = answer.wrap_around, "round_off"_a = answer.round_off);
        });

    Class<hs::Profile>(m, "Profile", "The worst over directions of a heterogeneous composition.")
        .def(py::init<std::vector<hs::Composition>, double, std::size_t, hs::Engine>(), py::arg("directions"),
             py::arg("accuracy") = 1e-3, py::arg("memory_limit") = std::size_t{1} << 30,
             py::arg("engine") = "auto")
        .def_released("epsilon_bounds", &hs::Profile::epsilon_bounds)
        .def_released("delta_bounds", &hs::Profile::delta_bounds)
        .def_released("delta_curve", [](const hs::Profile& profile,
                                        std::span<const double> x) { return bounds(profile.delta_curve(x)); })
        .def_released(
            "rough_curve",
            [](const hs::Profile& profile, std::span<const double> x, double negligible) {
                return bounds(profile.rough_curve(x, negligible));
            },
            py::arg("epsilon"), py::arg("negligible") = 1e-15)
        .def_property_readonly("quick", &hs::Profile::quick);
}

py::tuple grid(hs::Quantity wanted,
               std::vector<std::pair<std::vector<hs::Composition>, std::vector<double>>> in, double accuracy,
               std::size_t memory_limit, hs::Engine engine, const py::object& progress) {
    std::vector<hs::Inquiry> inquiries;
    std::size_t total = 0;
    for (auto& [directions, points] : in) {
        total += points.size();
        inquiries.push_back({std::move(directions), std::move(points)});
    }
    const auto poll = [&](std::size_t done) {
        check_signals();
        const py::gil_scoped_acquire gil;
        if (!progress.is_none()) progress(done, total);
    };
    const auto answers =
        released([&] { return hs::answer_all(inquiries, wanted, accuracy, memory_limit, engine, poll); });
    py::list engines;
    for (const auto& answer : answers) engines.append(answer.engine);
    auto [lower, upper] = bounds(answers);
    return py::make_tuple(take(std::move(lower)), take(std::move(upper)), engines);
}

void register_grid(Module& m) {
    m.def("grid", &grid, py::arg("quantity"), py::arg("inquiries"), py::arg("accuracy") = 1e-3,
          py::arg("memory_limit") = std::size_t{1} << 30, py::arg("engine") = "auto",
          py::arg("progress") = py::none());
}

void register_coupling(Module& m) {
    const auto ends = [](const hs::Interval& bounds) { return std::pair(bounds.lower, bounds.upper); };
    Class<hs::Coupling>(m, "Coupling", "Bounds from mean-preserving rounding (Gopi et al. 2021).")
        .def(py::init<const hs::Composition&, double, double>())
        .def_property_readonly("radius", &hs::Coupling::radius)
        .def_released("epsilon_bounds",
                      [ends](const hs::Coupling& c, double delta) { return ends(c.epsilon_bounds(delta)); })
        .def_released("delta_bounds", [ends](const hs::Coupling& c, double epsilon) {
            return ends(c.delta_bounds(epsilon));
        });
}

}  // namespace

void register_accounting(Module& m) {
    register_pairs(m);
    register_profile(m);
    register_grid(m);
    register_coupling(m);
}
