// How the core was built, and how many threads it may use.
#include <pybind11/pybind11.h>

#include "hockeystick/parallel.hpp"

namespace py = pybind11;
namespace hs = hockeystick;

namespace {

py::dict build_config() {
    py::dict config;
    config["version"] = HOCKEYSTICK_VERSION;
    config["compiler"] = HOCKEYSTICK_COMPILER;
    config["build_type"] = HOCKEYSTICK_BUILD_TYPE;
    config["fft"] = HOCKEYSTICK_FFT;
    config["openmp"] = hs::has_openmp();
    return config;
}

}  // namespace

void register_build(py::module_& module) {
    module.attr("__version__") = HOCKEYSTICK_VERSION;
    module.def("build_config", &build_config, "How this module was built.");
    module.def("max_threads", &hs::max_threads, "Number of threads the core uses at most.");
    module.def("set_threads", &hs::set_threads, py::arg("threads"),
               "Limit the number of threads; 0 restores the default. Results do not depend on it.");
}
