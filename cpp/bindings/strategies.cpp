// Toeplitz strategy matrices.
#include <pybind11/pybind11.h>

#include <utility>
#include <vector>

#include "hockeystick/toeplitz.hpp"
#include "module.hpp"
#include "numpy.hpp"
#include "sampling.hpp"

namespace py = pybind11;
namespace hs = hockeystick;
using hs::bindings::Array;
using hs::bindings::poll;
using hs::bindings::released;
using hs::bindings::take;
using hs::bindings::view;

namespace {

py::array_t<double> divide_by_toeplitz(const Array& coefficients, const Array& values) {
    const auto c = view(coefficients), v = view(values);
    return take(released([&] { return hs::divide_by_toeplitz(c, v, poll); }));
}

py::array_t<double> optimal_toeplitz(std::size_t steps, const Array& kept) {
    const auto weights = view(kept);
    return take(released([&] { return hs::optimal_toeplitz(steps, weights, poll); }));
}

}  // namespace

void register_strategies(hs::bindings::Module& m) {
    m.def("divide_by_toeplitz", &divide_by_toeplitz, py::arg("coefficients"), py::arg("values"));
    m.def("optimal_toeplitz", &optimal_toeplitz, py::arg("steps"), py::arg("kept"));
}
