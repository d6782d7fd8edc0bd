// The one gate between NumPy and the core: arrays come in as spans and vectors go out as arrays.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace hockeystick::bindings {

namespace py = pybind11;

// Anything NumPy can turn into contiguous doubles; a contiguous double array is taken as it is.
using Array = py::array_t<double, py::array::c_style | py::array::forcecast>;

// Exactly this type, contiguous, no conversion: written to, or too large to copy.
template <class T>
using Exact = py::array_t<T, py::array::c_style>;

// All elements in C order. The span lives as long as the array, with or without the GIL.
template <class T, int flags>
std::span<const T> view(const py::array_t<T, flags>& array) {
    return {array.data(), static_cast<std::size_t>(array.size())};
}
template <class T, int flags>
std::span<T> mutable_view(py::array_t<T, flags>& array) {
    return {array.mutable_data(), static_cast<std::size_t>(array.size())};
}

// A one-dimensional array that owns the vector's memory: nothing is copied.
template <typename T>
py::array_t<T, py::array::c_style> take(std::vector<T>&& values) {
    auto owner = std::make_unique<std::vector<T>>(std::move(values));
    T* data = owner->data();
    const auto size = static_cast<py::ssize_t>(owner->size());
    py::capsule base(owner.get(), [](void* p) { delete static_cast<std::vector<T>*>(p); });
    owner.release();  // the capsule owns it now
    return py::array_t<T, py::array::c_style>(size, data, base);
}

// The same, row by row.
inline py::array_t<double> table(std::vector<double>&& values, std::size_t rows, std::size_t columns) {
    return take(std::move(values))
        .reshape({static_cast<py::ssize_t>(rows), static_cast<py::ssize_t>(columns)});
}

// What `body` returns, computed without the GIL: it must not touch anything of Python's.
template <typename Body>
auto released(const Body& body) {
    const py::gil_scoped_release release;
    return body();
}

}  // namespace hockeystick::bindings
