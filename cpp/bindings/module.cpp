// The extension module hockeystick._core. Each topic registers itself from a file of its own.
#include <pybind11/pybind11.h>

void register_build(pybind11::module_& module);
void register_accounting(pybind11::module_& module);
void register_grid(pybind11::module_& module);
void register_attribution(pybind11::module_& module);
void register_noise(pybind11::module_& module);
void register_batches(pybind11::module_& module);
void register_montecarlo(pybind11::module_& module);
void register_tilted(pybind11::module_& module);
void register_half_space(pybind11::module_& module);
void register_individual(pybind11::module_& module);

PYBIND11_MODULE(_core, module) {
    module.doc() = "Compiled core of hockeystick.";
    register_build(module);
    register_accounting(module);
    register_grid(module);
    register_attribution(module);
    register_noise(module);
    register_batches(module);
    register_montecarlo(module);
    register_tilted(module);
    register_half_space(module);
    register_individual(module);
}
