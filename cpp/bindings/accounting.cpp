// Dominating pairs, discretisation, composition and certified profiles.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "hockeystick/profile.hpp"
#include "inversion/renyi.hpp"
#include "lattice/compose.hpp"
#include "lattice/coupling.hpp"
#include "lattice/discretise.hpp"
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

py::tuple tangents(const hs::Pair& pair, const Array& losses, bool above) {
    const auto x = view(losses);
    std::vector<double> value(x.size()), slope(x.size()), exponent(x.size()), error(x.size());
    {
        py::gil_scoped_release release;  // only spans and vectors from here on
        for (std::size_t i = 0; i < x.size(); ++i) {
            const hs::Tangent t = above ? pair.above(x[i]) : pair.below(x[i]);
            value[i] = t.value;
            slope[i] = t.slope;
            exponent[i] = t.exponent;
            error[i] = t.error;
        }
    }
    return py::make_tuple(take(std::move(value)), take(std::move(slope)), take(std::move(exponent)),
                          take(std::move(error)));
}

std::vector<double> to_vector(const Array& array) {
    const auto values = view(array);
    return {values.begin(), values.end()};
}

hs::Sampling sampling(const std::string& mode) {
    if (mode == "remove") return hs::Sampling::remove;
    if (mode == "add") return hs::Sampling::add;
    if (mode == "replace_one") return hs::Sampling::replace_one;
    throw py::value_error("mode must be 'remove', 'add' or 'replace_one', not '" + mode + "'");
}

hs::Noise noise_kind(const std::string& noise) {
    if (noise == "gaussian") return hs::Noise::gaussian;
    if (noise == "laplace") return hs::Noise::laplace;
    throw py::value_error("noise must be 'gaussian' or 'laplace', not '" + noise + "'");
}

hs::Bound bound_kind(const std::string& bound) {
    if (bound == "upper") return hs::Bound::upper;
    if (bound == "lower") return hs::Bound::lower;
    if (bound == "mean_preserving") return hs::Bound::mean_preserving;
    throw py::value_error("bound must be 'upper', 'lower' or 'mean_preserving', not '" + bound + "'");
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

void register_pairs(hs::bindings::Module& m) {
    hs::bindings::Class<hs::Pair, std::shared_ptr<hs::Pair>>(m, "Pair",
                                                             "A dominating pair (P, Q) in one direction.")
        .def(
            "above", [](const hs::Pair& p, const Array& x) { return tangents(p, x, true); }, py::arg("x"))
        .def(
            "below", [](const hs::Pair& p, const Array& x) { return tangents(p, x, false); }, py::arg("x"))
        .def_property_readonly("max_loss", &hs::Pair::max_loss)
        .def_property_readonly("infinity_mass", &hs::Pair::infinity_mass)
        .def_property_readonly("spacing", &hs::Pair::spacing)
        .def_property_readonly("lower", [](const hs::Pair& p) { return own(p.lower()); });

    m.def("gaussian_pair", [](double mu) { return own(hs::gaussian(mu)); }, py::arg("mu"));
    m.def("laplace_pair", [](double epsilon) { return own(hs::laplace(epsilon)); }, py::arg("epsilon"));
    m.def(
        "discrete_pair",
        [](const Array& losses, const Array& p, const Array& q, double p_infinity, double spacing,
           std::optional<double> q_infinity) {
            return own(hs::discrete(to_vector(losses), to_vector(p), to_vector(q), p_infinity, spacing,
                                    q_infinity.value_or(-1.0)));
        },
        py::arg("losses"), py::arg("p"), py::arg("q"), py::arg("p_infinity") = 0.0, py::kw_only(),
        py::arg("spacing") = 0.0, py::arg("q_infinity") = py::none());
    m.def(
        "sampled_pair",
        [](const std::shared_ptr<hs::Pair>& pair, double q, const std::string& mode) {
            return own(hs::sampled(pair, q, sampling(mode)));
        },
        py::arg("pair"), py::arg("sampling_probability"), py::arg("mode"));
    m.def(
        "zero_out_pair",
        [](double mu, double q, const std::string& mode) { return own(hs::zero_out(mu, q, sampling(mode))); },
        py::arg("mu"), py::arg("sampling_probability"), py::arg("mode"));
    m.def(
        "mixture_pair",
        [](const std::vector<std::shared_ptr<hs::Pair>>& pairs, const std::vector<double>& weights) {
            return own(hs::mixture({pairs.begin(), pairs.end()}, weights));
        },
        py::arg("pairs"), py::arg("weights"));
    m.def(
        "bracket_pair",
        [](const std::shared_ptr<hs::Pair>& lower, const std::shared_ptr<hs::Pair>& upper) {
            return own(hs::bracket(lower, upper));
        },
        py::arg("lower"), py::arg("upper"));
    m.def(
        "location_mixture_pair",
        [](const std::string& noise, double scale, const std::vector<double>& p_shifts,
           const std::vector<double>& p_weights, const std::vector<double>& q_shifts,
           const std::vector<double>& q_weights) {
            return own(
                hs::location_mixture(noise_kind(noise), scale, p_shifts, p_weights, q_shifts, q_weights));
        },
        py::arg("noise"), py::arg("scale"), py::arg("p_shifts"), py::arg("p_weights"), py::arg("q_shifts"),
        py::arg("q_weights"));
    m.def("renyi_divergence", &hs::renyi_divergence, py::arg("pair"), py::arg("order"),
          hs::bindings::Released());
}

void register_profile(hs::bindings::Module& m) {
    hs::bindings::Class<hs::Answer>(m, "Answer", "A certified interval and the errors it includes.")
        .def_readonly("lower", &hs::Answer::lower)
        .def_readonly("upper", &hs::Answer::upper)
        .def_readonly("engine", &hs::Answer::engine)
        .def_readonly("direction", &hs::Answer::direction)
        .def_readonly("step", &hs::Answer::step)
        .def_readonly("size", &hs::Answer::size)
        .def_property_readonly("terms", &terms);

    hs::bindings::Class<hs::Profile>(m, "Profile",
                                     "The worst over directions of a heterogeneous composition.")
        .def(py::init([](const Directions& directions, double accuracy, std::size_t memory_limit,
                         const std::string& engine) {
                 return hs::Profile(hs::bindings::compositions(directions), accuracy, memory_limit,
                                    hs::bindings::engine_kind(engine));
             }),
             py::arg("directions"), py::arg("accuracy") = 1e-3,
             py::arg("memory_limit") = std::size_t{1} << 30, py::arg("engine") = "auto")
        .def("epsilon_bounds", &hs::Profile::epsilon_bounds, py::arg("delta"), hs::bindings::Released())
        .def("delta_bounds", &hs::Profile::delta_bounds, py::arg("epsilon"), hs::bindings::Released())
        .def(
            "delta_curve",
            [](const hs::Profile& profile, const Array& epsilon) {
                const auto points = view(epsilon);
                std::vector<double> lower(points.size()), upper(points.size());
                {
                    py::gil_scoped_release release;
                    const auto curve = profile.delta_curve(points);
                    std::ranges::transform(curve, lower.begin(), &hs::Answer::lower);
                    std::ranges::transform(curve, upper.begin(), &hs::Answer::upper);
                }
                return py::make_tuple(take(std::move(lower)), take(std::move(upper)));
            },
            py::arg("epsilon"));
}

void register_lattices(hs::bindings::Module& m) {
    hs::bindings::Class<hs::Residue>(m, "Residue",
                                     "The true loss less the mean-preserving one, inside the window.")
        .def_readonly("mean", &hs::Residue::mean)
        .def_readonly("mean_error", &hs::Residue::mean_error)
        .def_readonly("squared_range", &hs::Residue::squared_range)
        .def_readonly("outside", &hs::Residue::outside);

    hs::bindings::Class<hs::Lattice>(m, "Lattice", "A discretised privacy loss: masses at index * step.")
        .def_property_readonly("index",
                               [](const hs::Lattice& l) { return take(std::vector<std::int64_t>(l.index)); })
        .def_property_readonly("mass", [](const hs::Lattice& l) { return take(std::vector<double>(l.mass)); })
        .def_readonly("step", &hs::Lattice::step)
        .def_readonly("tilt", &hs::Lattice::tilt)
        .def_readonly("log_scale", &hs::Lattice::log_scale)
        .def_readonly("infinity_mass", &hs::Lattice::infinity_mass)
        .def_readonly("beyond", &hs::Lattice::beyond)
        .def_readonly("residue", &hs::Lattice::residue);
    m.def(
        "discretise",
        [](const hs::Pair& pair, std::vector<std::int64_t> points, double step, double tilt,
           const std::string& bound) {
            const hs::Bound kind = bound_kind(bound);
            py::gil_scoped_release release;
            return hs::discretise(pair, std::move(points), step, tilt, kind);
        },
        py::arg("pair"), py::arg("points"), py::arg("step"), py::arg("tilt") = 0.0,
        py::arg("bound") = "upper");

    m.def(
        "choose_points",
        [](const hs::Pair& pair, double step, double tilt, double tail) {
            py::gil_scoped_release release;
            return hs::choose_points(hs::trimmed(hs::sketch(pair, 100, 200), tilt, tail, 0), step, tilt);
        },
        py::arg("pair"), py::arg("step"), py::arg("tilt") = 0.0, py::arg("tail") = 1e-12);

    hs::bindings::Class<hs::Composed>(m, "Composed",
                                      "Tilted masses of a composed loss at (first + i) * step.")
        .def_property_readonly("mass",
                               [](const hs::Composed& c) { return take(std::vector<double>(c.mass)); })
        .def_readonly("first", &hs::Composed::first)
        .def_readonly("step", &hs::Composed::step)
        .def_readonly("tilt", &hs::Composed::tilt)
        .def_readonly("log_scale", &hs::Composed::log_scale)
        .def_readonly("infinity_mass", &hs::Composed::infinity_mass)
        .def_readonly("round_off", &hs::Composed::round_off);
    m.def(
        "compose",
        [](const std::vector<std::pair<hs::Lattice, std::uint64_t>>& in, std::int64_t first,
           std::size_t size) {
            std::vector<hs::LatticeStep> steps;
            for (const auto& [lattice, count] : in) steps.push_back({lattice, count});
            py::gil_scoped_release release;
            return hs::compose(steps, first, size, 0, 0);
        },
        py::arg("lattices"), py::arg("first"), py::arg("size"));
}

void register_coupling(hs::bindings::Module& m) {
    const auto ends = [](const hs::Interval& bounds) { return std::make_pair(bounds.lower, bounds.upper); };
    hs::bindings::Class<hs::Coupling>(m, "Coupling",
                                      "Bounds from mean-preserving rounding (Gopi et al. 2021).")
        .def(py::init([](const std::vector<std::pair<std::shared_ptr<hs::Pair>, std::uint64_t>>& in,
                         double step,
                         double failure) { return hs::Coupling({in.begin(), in.end()}, step, failure); }),
             py::arg("composition"), py::arg("step"), py::arg("failure"))
        .def_property_readonly("radius", &hs::Coupling::radius)
        .def(
            "epsilon_bounds",
            [ends](const hs::Coupling& c, double delta) { return ends(c.epsilon_bounds(delta)); },
            py::arg("delta"), hs::bindings::Released())
        .def(
            "delta_bounds",
            [ends](const hs::Coupling& c, double epsilon) { return ends(c.delta_bounds(epsilon)); },
            py::arg("epsilon"), hs::bindings::Released());
}

}  // namespace

void register_accounting(hs::bindings::Module& m) {
    register_pairs(m);
    register_profile(m);
    register_lattices(m);
    register_coupling(m);
}
