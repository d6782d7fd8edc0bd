// Releases noisy sums, and knows what they have cost: an extension module with the accountant inside.
#include <pybind11/pybind11.h>

#include <cstdint>
#include <utility>

#include "hockeystick/hockeystick.hpp"

namespace py = pybind11;
namespace hs = hockeystick;

// Bounds on epsilon after `steps` steps of DP-SGD, one record added or removed.
std::pair<double, double> epsilon_bounds(double noise_multiplier, double sampling_probability,
                                         std::uint64_t steps, double delta) {
    const hs::PairPtr gradient = hs::gaussian(1 / noise_multiplier);
    const hs::Composition remove = {
        {hs::sampled(gradient, sampling_probability, hs::Sampling::remove), steps}};
    const hs::Composition add = {{hs::sampled(gradient, sampling_probability, hs::Sampling::add), steps}};
    const hs::Answer answer = hs::Profile({remove, add}).epsilon_bounds(delta);
    return {answer.lower, answer.upper};
}

PYBIND11_MODULE(private_release, module) {
    module.def(
        "epsilon_bounds",
        [](double noise_multiplier, double sampling_probability, std::uint64_t steps, double delta) {
            const auto [lower, upper] = epsilon_bounds(noise_multiplier, sampling_probability, steps, delta);
            return py::make_tuple(lower, upper);
        },
        py::arg("noise_multiplier"), py::arg("sampling_probability"), py::arg("steps"), py::arg("delta"));
}
