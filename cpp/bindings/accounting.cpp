// Dominating pairs, certified profiles and grids of many, the coupling bound.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <string>
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

namespace {

py::tuple tangents(const hs::Pair& pair, const Array& losses, bool above) {
    const auto x = view(losses);
    std::vector<double> value(x.size()), slope(x.size()), exponent(x.size()), error(x.size());
    released([&] {
        for (std::size_t i = 0; i < x.size(); ++i) {
            const hs::Tangent t = above ? pair.above(x[i]) : pair.below(x[i]);
            value[i] = t.value;
            slope[i] = t.slope;
            exponent[i] = t.exponent;
            error[i] = t.error;
        }
    });
    return py::make_tuple(take(std::move(value)), take(std::move(slope)), take(std::move(exponent)),
                          take(std::move(error)));
}

std::vector<double> to_vector(const Array& array) {
    const auto values = view(array);
    return {values.begin(), values.end()};
}

hs::Sampling sampling(const std::string& mode) {
    using enum hs::Sampling;
    return named<hs::Sampling>("mode", mode,
                               {{"remove", remove}, {"add", add}, {"replace_one", replace_one}});
}

hs::Engine engine_kind(const std::string& engine) {
    return named<hs::Engine>(
        "engine", engine,
        {{"auto", hs::Engine::automatic}, {"fft", hs::Engine::fft}, {"prv", hs::Engine::prv}});
}

// Directions as Python lists them, in a form that pybind11 can fill; pairs are immutable all the same.
using Directions = std::vector<std::vector<std::pair<std::shared_ptr<hs::Pair>, std::uint64_t>>>;

std::vector<hs::Composition> compositions(const Directions& directions) {
    std::vector<hs::Composition> out;
    for (const auto& direction : directions) out.emplace_back(direction.begin(), direction.end());
    return out;
}

py::dict terms(const hs::Answer& answer) {
    py::dict out;
    out["discretisation"] = answer.discretisation;
    out["truncation"] = answer.truncation;
    out["wrap_around"] = answer.wrap_around;
    out["round_off"] = answer.round_off;
    return out;
}

// pybind11 holds a shared_ptr to non-const; pairs are immutable all the same.
std::shared_ptr<hs::Pair> own(const hs::PairPtr& pair) { return std::const_pointer_cast<hs::Pair>(pair); }

void register_pairs(Module& m) {
    Class<hs::Pair, std::shared_ptr<hs::Pair>>(m, "Pair", "A dominating pair (P, Q) in one direction.")
        .def("above", [](const hs::Pair& p, const Array& x) { return tangents(p, x, true); })
        .def("below", [](const hs::Pair& p, const Array& x) { return tangents(p, x, false); })
        .def_property_readonly("max_loss", &hs::Pair::max_loss)
        .def_property_readonly("infinity_mass", &hs::Pair::infinity_mass)
        .def_property_readonly("spacing", &hs::Pair::spacing)
        .def_property_readonly("lower", [](const hs::Pair& p) { return own(p.lower()); });

    m.def("gaussian_pair", [](double mu) { return own(hs::gaussian(mu)); });
    m.def("laplace_pair", [](double epsilon) { return own(hs::laplace(epsilon)); });
    m.def(
        "discrete_pair",
        [](const Array& losses, const Array& p, const Array& q, double p_infinity, double spacing,
           std::optional<double> q_infinity, double loss_error, bool total_is_rounded) {
            return own(hs::discrete(to_vector(losses), to_vector(p), to_vector(q), p_infinity, spacing,
                                    q_infinity.value_or(-1.0), {loss_error, total_is_rounded}));
        },
        py::arg("losses"), py::arg("p"), py::arg("q"), py::arg("p_infinity") = 0.0, py::kw_only(),
        py::arg("spacing") = 0.0, py::arg("q_infinity") = py::none(), py::arg("loss_error") = 2.0,
        py::arg("total_is_rounded") = false);
    m.def("sampled_pair", [](const std::shared_ptr<hs::Pair>& pair, double q, const std::string& mode) {
        return own(hs::sampled(pair, q, sampling(mode)));
    });
    m.def("zero_out_pair", [](double mu, double q, const std::string& mode) {
        return own(hs::zero_out(mu, q, sampling(mode)));
    });
    m.def(
        "random_allocation_pair",
        [](double mu, double steps, const std::string& mode, double told_mu) {
            return own(hs::random_allocation(mu, steps, sampling(mode), told_mu));
        },
        py::arg("mu"), py::arg("steps"), py::arg("mode"),
        py::arg("told_mu") = std::numeric_limits<double>::infinity());
    m.def("mixture_pair",
          [](const std::vector<std::shared_ptr<hs::Pair>>& pairs, const std::vector<double>& weights) {
              return own(hs::mixture({pairs.begin(), pairs.end()}, weights));
          });
    m.def("bracket_pair", [](const std::shared_ptr<hs::Pair>& lower, const std::shared_ptr<hs::Pair>& upper) {
        return own(hs::bracket(lower, upper));
    });
    m.def("location_mixture_pair",
          [](const std::string& noise, double scale, const std::vector<double>& p_shifts,
             const std::vector<double>& p_weights, const std::vector<double>& q_shifts,
             const std::vector<double>& q_weights) {
              const auto kind = named<hs::Noise>(
                  "noise", noise, {{"gaussian", hs::Noise::gaussian}, {"laplace", hs::Noise::laplace}});
              return own(hs::location_mixture(kind, scale, p_shifts, p_weights, q_shifts, q_weights));
          });
    m.def("renyi_divergence", [](const hs::Pair& pair, double order) {
        return released([&] { return hs::renyi_divergence(pair, order); });
    });
}

// Both bounds of one of the profile's curves.
template <class Curve>
py::tuple curve(const Array& epsilon, Curve curve) {
    const auto points = view(epsilon);
    std::vector<double> lower(points.size()), upper(points.size());
    const auto answers = released([&] { return curve(points); });
    std::ranges::transform(answers, lower.begin(), &hs::Answer::lower);
    std::ranges::transform(answers, upper.begin(), &hs::Answer::upper);
    return py::make_tuple(take(std::move(lower)), take(std::move(upper)));
}

void register_profile(Module& m) {
    Class<hs::Answer>(m, "Answer", "A certified interval and the errors it includes.")
        .def_readonly("lower", &hs::Answer::lower)
        .def_readonly("upper", &hs::Answer::upper)
        .def_readonly("engine", &hs::Answer::engine)
        .def_readonly("direction", &hs::Answer::direction)
        .def_readonly("step", &hs::Answer::step)
        .def_readonly("size", &hs::Answer::size)
        .def_property_readonly("terms", &terms);

    Class<hs::Profile>(m, "Profile", "The worst over directions of a heterogeneous composition.")
        .def(py::init([](const Directions& directions, double accuracy, std::size_t memory_limit,
                         const std::string& engine) {
                 return hs::Profile(compositions(directions), accuracy, memory_limit, engine_kind(engine));
             }),
             py::arg("directions"), py::arg("accuracy") = 1e-3,
             py::arg("memory_limit") = std::size_t{1} << 30, py::arg("engine") = "auto")
        .def_released("epsilon_bounds", &hs::Profile::epsilon_bounds)
        .def_released("delta_bounds", &hs::Profile::delta_bounds)
        .def("delta_curve",
             [](const hs::Profile& profile, const Array& epsilon) {
                 return curve(epsilon, [&](auto points) { return profile.delta_curve(points); });
             })
        .def(
            "rough_curve",
            [](const hs::Profile& profile, const Array& epsilon, double negligible) {
                return curve(epsilon, [&](auto points) { return profile.rough_curve(points, negligible); });
            },
            py::arg("epsilon"), py::arg("negligible") = 1e-15);
}

py::tuple grid(const std::string& quantity, const std::vector<std::pair<Directions, Array>>& in,
               double accuracy, std::size_t memory_limit, const std::string& engine,
               const py::object& progress) {
    using enum hs::Quantity;
    const auto wanted = named<hs::Quantity>("quantity", quantity, {{"epsilon", epsilon}, {"delta", delta}});
    const hs::Engine kind = engine_kind(engine);
    std::vector<hs::Inquiry> inquiries;
    inquiries.reserve(in.size());
    std::size_t total = 0;
    for (const auto& [directions, array] : in) {
        const auto points = view(array);
        inquiries.push_back({compositions(directions), {points.begin(), points.end()}});
        total += points.size();
    }
    const auto poll = [&](std::size_t done) {
        check_signals();
        const py::gil_scoped_acquire gil;
        if (!progress.is_none()) progress(done, total);
    };
    const auto answers =
        released([&] { return hs::answer_all(inquiries, wanted, accuracy, memory_limit, kind, poll); });
    std::vector<double> lower, upper;
    py::list engines;
    for (const auto& answer : answers) {
        lower.push_back(answer.lower);
        upper.push_back(answer.upper);
        engines.append(answer.engine);
    }
    return py::make_tuple(take(std::move(lower)), take(std::move(upper)), engines);
}

void register_grid(Module& m) {
    m.def("grid", &grid, py::arg("quantity"), py::arg("inquiries"), py::arg("accuracy") = 1e-3,
          py::arg("memory_limit") = std::size_t{1} << 30, py::arg("engine") = "auto",
          py::arg("progress") = py::none());
}

void register_coupling(Module& m) {
    const auto ends = [](const hs::Interval& bounds) { return std::make_pair(bounds.lower, bounds.upper); };
    Class<hs::Coupling>(m, "Coupling", "Bounds from mean-preserving rounding (Gopi et al. 2021).")
        .def(py::init([](const std::vector<std::pair<std::shared_ptr<hs::Pair>, std::uint64_t>>& in,
                         double step,
                         double failure) { return hs::Coupling({in.begin(), in.end()}, step, failure); }))
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
