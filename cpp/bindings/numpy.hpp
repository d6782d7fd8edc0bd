// The one gate between Python and the core: arrays come in as spans, vectors go out as arrays, and pairs are
// shared.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "hockeystick/pairs.hpp"

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

template <class T>
using Readable = std::conditional_t<std::is_same_v<T, double>, Array, Exact<T>>;

}  // namespace hockeystick::bindings

namespace pybind11::detail {

// Functions of the core may be bound as they are: the array lives as long as the call.
template <class T>
class type_caster<std::span<const T>> : public make_caster<hockeystick::bindings::Readable<T>> {
public:
    template <class>
    using cast_op_type = std::span<const T>;
    operator std::span<const T>() const { return hockeystick::bindings::view(this->value); }
};

// To be written to: never a copy.
template <class T>
    requires(!std::is_const_v<T>)
class type_caster<std::span<T>> : public make_caster<hockeystick::bindings::Exact<T>> {
public:
    template <class>
    using cast_op_type = std::span<T>;
    operator std::span<T>() { return hockeystick::bindings::mutable_view(this->value); }
    bool load(handle source, bool) {
        return make_caster<hockeystick::bindings::Exact<T>>::load(source, false);
    }
};

template <class T>
    requires std::is_arithmetic_v<T>
class type_caster<std::vector<T>> {
    using Span = make_caster<std::span<const T>>;

public:
    PYBIND11_TYPE_CASTER(std::vector<T>, Span::name);
    bool load(handle source, bool convert) {
        Span from;
        if (!from.load(source, convert)) return false;
        const std::span<const T> all = from;
        value.assign(all.begin(), all.end());
        return true;
    }
    static handle cast(std::vector<T> values, return_value_policy, handle) {
        return hockeystick::bindings::take(std::move(values)).release();
    }
};

// pybind11 holds a shared_ptr to non-const; pairs are immutable all the same.
template <>
class type_caster<hockeystick::PairPtr> {
    using Own = make_caster<std::shared_ptr<hockeystick::Pair>>;

public:
    PYBIND11_TYPE_CASTER(hockeystick::PairPtr, Own::name);
    bool load(handle source, bool convert) {
        Own own;
        if (!own.load(source, convert)) return false;
        value = cast_op<std::shared_ptr<hockeystick::Pair>&>(own);
        return true;
    }
    static handle cast(const hockeystick::PairPtr& pair, return_value_policy policy, handle parent) {
        return Own::cast(std::const_pointer_cast<hockeystick::Pair>(pair), policy, parent);
    }
};

}  // namespace pybind11::detail
