// The module and its classes: every function that is defined on them runs in standard arithmetic, whatever
// the host has set for its thread.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <utility>

#include "hockeystick/arithmetic.hpp"

namespace hockeystick::bindings {

namespace py = pybind11;

using Standard = py::call_guard<StandardArithmetic>;
// Without the GIL as well.
using Released = py::call_guard<StandardArithmetic, py::gil_scoped_release>;

// Ctrl-C and other signals: Python's handlers run, on its main thread only, and what they raise is thrown.
inline void check_signals() {
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// Kinds that Python calls by name: of up to three, what the argument is.
template <class Kind>
struct Names {
    const char* what;
    std::pair<const char*, Kind> all[3];
};
template <class Kind, const Names<Kind>& names>
class Named {
public:
    PYBIND11_TYPE_CASTER(Kind, py::detail::const_name("str"));
    bool load(py::handle given, bool) {
        if (!py::isinstance<py::str>(given)) return false;
        const std::string asked = given.cast<std::string>();
        std::string known;
        for (const auto& [each, kind] : names.all) {
            if (each == nullptr) continue;
            value = kind;
            if (asked == each) return true;
            known += (known.empty() ? "'" : ", '") + std::string(each) + "'";
        }
        throw py::value_error(std::string(names.what) + " must be one of " + known + ", not '" + asked + "'");
    }
};

class Module : public py::module_ {
public:
    explicit Module(py::module_ module) : py::module_(std::move(module)) {}

    template <class... Arguments>
    Module& def(Arguments&&... arguments) {
        py::module_::def(std::forward<Arguments>(arguments)..., Standard());
        return *this;
    }
    // For functions that touch nothing of Python's; so below.
    template <class... Arguments>
    Module& def_released(Arguments&&... arguments) {
        py::module_::def(std::forward<Arguments>(arguments)..., Released());
        return *this;
    }
};

template <class T, class... Options>
class Class : public py::class_<T, Options...> {
    using Base = py::class_<T, Options...>;

public:
    using Base::Base;

    template <class... Arguments>
    Class& def(Arguments&&... arguments) {
        Base::def(std::forward<Arguments>(arguments)..., Standard());
        return *this;
    }
    template <class... Arguments>
    Class& def_released(Arguments&&... arguments) {
        Base::def(std::forward<Arguments>(arguments)..., Released());
        return *this;
    }
    template <class... Arguments>
    Class& def_static(Arguments&&... arguments) {
        Base::def_static(std::forward<Arguments>(arguments)..., Standard());
        return *this;
    }
    template <class Getter>
    Class& def_property_readonly(const char* name, Getter&& getter) {
        Base::def_property_readonly(
            name, py::cpp_function(py::method_adaptor<T>(std::forward<Getter>(getter)), Standard()));
        return *this;
    }
    template <class D, class Of>
    Class& def_readonly(const char* name, D Of::* member) {
        Base::def_readonly(name, static_cast<const D T::*>(member));  // only copies
        return *this;
    }
};

}  // namespace hockeystick::bindings
