// The extension module hockeystick._core. Each topic registers itself from a file of its own.
#include <pybind11/pybind11.h>

#include "module.hpp"

void register_build(hockeystick::bindings::Module& module);
void register_accounting(hockeystick::bindings::Module& module);
void register_grid(hockeystick::bindings::Module& module);
void register_attribution(hockeystick::bindings::Module& module);
void register_noise(hockeystick::bindings::Module& module);
void register_strategies(hockeystick::bindings::Module& module);
void register_batches(hockeystick::bindings::Module& module);
void register_montecarlo(hockeystick::bindings::Module& module);
void register_tilted(hockeystick::bindings::Module& module);
void register_half_space(hockeystick::bindings::Module& module);
void register_individual(hockeystick::bindings::Module& module);

PYBIND11_MODULE(_core, plain) {
    hockeystick::bindings::Module module(plain);
    module.doc() = "Compiled core of hockeystick.";
    register_build(module);
    register_accounting(module);
    register_grid(module);
    register_attribution(module);
    register_noise(module);
    register_strategies(module);
    register_batches(module);
    register_montecarlo(module);
    register_tilted(module);
    register_half_space(module);
    register_individual(module);
}
