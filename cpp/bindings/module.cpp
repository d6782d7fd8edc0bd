// The extension module hockeystick._core: how it was built and what it runs on, and its rooms.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>

#include "hockeystick/parallel.hpp"
#include "module.hpp"
#if __has_include("commit.hpp")
#include "commit.hpp"  // written by cmake/Commit.cmake
#else
#define HOCKEYSTICK_COMMIT "unknown"
#endif

namespace py = pybind11;
namespace hs = hockeystick;
using hockeystick::bindings::Module;

// Each in a file of its name.
void register_accounting(Module& module);
void register_montecarlo(Module& module);
void register_training(Module& module);
void register_individual(Module& module);

namespace {

py::dict build_config() {
    py::dict config;
    config["version"] = HOCKEYSTICK_VERSION;
    config["commit"] = HOCKEYSTICK_COMMIT;
    config["compiler"] = HOCKEYSTICK_COMPILER;
    config["build_type"] = HOCKEYSTICK_BUILD_TYPE;
    config["fft"] = HOCKEYSTICK_FFT;
    config["openmp"] = hs::has_openmp();
    config["instruction_set"] = hs::instruction_set();
    return config;
}

void register_build(Module& module) {
    // Asked for once here, so that a wrong name in the environment is an error of the import.
    hs::instruction_set();
    hs::set_interruption_hook(&hs::bindings::check_signals);  // one chance in 50 ms
    module.attr("__version__") = HOCKEYSTICK_VERSION;
    module.attr("__commit__") = HOCKEYSTICK_COMMIT;
    module.def("build_config", &build_config, "How this module was built.");
    // Not in standard arithmetic themselves: they tell and set what the caller's thread has.
    py::module_& plain = module;
    plain.def(
        "begin_standard_arithmetic",
        []() -> std::optional<hs::ArithmeticMode> {
            const hs::ArithmeticMode before = hs::arithmetic_mode();
            if (hs::is_standard(before)) return {};
            hs::set_arithmetic_mode(hs::standard_arithmetic());
            return before;
        },
        "Set IEEE arithmetic for this thread; the mode before, or None if it was that already.");
    plain.def("arithmetic_mode", &hs::arithmetic_mode, "This thread's mode, as the processor stores it.");
    plain.def("set_arithmetic_mode", &hs::set_arithmetic_mode, py::arg("mode"),
              "Set this thread's mode to one that `arithmetic_mode` returned.");
    module.def("max_threads", &hs::max_threads, "Number of threads the core uses at most.");
    module.def("set_threads", &hs::set_threads, py::arg("threads"),
               "Limit the number of threads; 0 restores the default. Results do not depend on it.");
}

}  // namespace

PYBIND11_MODULE(_core, plain) {
    Module module(plain);
    module.doc() = "Compiled core of hockeystick.";
    register_build(module);
    register_accounting(module);
    register_montecarlo(module);
    register_training(module);
    register_individual(module);
}
