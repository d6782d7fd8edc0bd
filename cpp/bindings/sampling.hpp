// What the bindings of plain and of importance sampling share.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>

#include "hockeystick/strategy.hpp"
#include "numpy.hpp"

namespace hockeystick::bindings {

// Ctrl-C stops between batches of blocks.
inline void poll() {
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

inline Strategy strategy_of(const Array& columns, std::size_t steps) {
    if (columns.ndim() != 2) throw py::value_error("columns must have two dimensions");
    const auto values = view(columns);
    return {steps, static_cast<std::size_t>(columns.shape(1)), {values.begin(), values.end()}};
}

}  // namespace hockeystick::bindings
