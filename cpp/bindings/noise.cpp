// Correlated noise for training.
#include "hockeystick/noise.hpp"

#include <pybind11/pybind11.h>

#include "key.hpp"
#include "module.hpp"
#include "numpy.hpp"

namespace py = pybind11;
namespace hs = hockeystick;
using hs::bindings::Array;
using hs::bindings::key_of;
using hs::bindings::mutable_view;
using hs::bindings::view;
using Form = hs::CorrelatedNoise::Form;

namespace {

// Keeps the matrix alive, which the core only looks at.
class Noise {
public:
    Noise(const Array& columns, std::size_t bands, std::size_t steps, bool inverse, const py::bytes& key,
          std::uint64_t start, std::uint64_t stop, bool single)
        : columns_(columns),
          noise_({view(columns_), bands, steps}, inverse ? Form::multiply : Form::solve, key_of(key), start,
                 stop, single) {}

    template <typename Out>
    void fill(py::array_t<Out, py::array::c_style>& out, double scale, bool add) {
        const std::span<Out> target(out.mutable_data(), static_cast<std::size_t>(out.size()));
        if (target.size() % noise_.width() != 0) throw py::value_error("out must hold whole rows");
        const py::gil_scoped_release release;
        if (!target.empty()) noise_.next(target.size() / noise_.width(), scale, target, add);
    }

    void skip(std::size_t count) {
        const py::gil_scoped_release release;
        noise_.next(count, 1.0, std::span<double>(), false);
    }

    // Without the GIL: who holds the lock of the core may be waiting for it.
    Array history() {
        Array out(
            {static_cast<py::ssize_t>(noise_.history_rows()), static_cast<py::ssize_t>(noise_.width())});
        const auto target = mutable_view(out);
        const py::gil_scoped_release release;
        noise_.save(target);
        return out;
    }

    void restore(std::size_t step, const Array& history) {
        const auto rows = view(history);
        const py::gil_scoped_release release;
        noise_.restore(step, rows);
    }

    std::size_t step() const { return noise_.step(); }
    std::size_t state_bytes() const { return noise_.state_bytes(); }

private:
    Array columns_;
    hs::CorrelatedNoise noise_;
};

}  // namespace

void register_noise(hs::bindings::Module& m) {
    hs::bindings::Class<Noise>(m, "CorrelatedNoise")
        .def(py::init<const Array&, std::size_t, std::size_t, bool, const py::bytes&, std::uint64_t,
                      std::uint64_t, bool>(),
             py::arg("columns"), py::arg("bands"), py::arg("steps"), py::arg("inverse"), py::arg("key"),
             py::arg("start"), py::arg("stop"), py::arg("single"))
        .def("fill", &Noise::fill<float>, py::arg("out").noconvert(), py::arg("scale"), py::arg("add"))
        .def("fill", &Noise::fill<double>, py::arg("out").noconvert(), py::arg("scale"), py::arg("add"))
        .def("skip", &Noise::skip, py::arg("count"))
        .def("history", &Noise::history)
        .def("restore", &Noise::restore, py::arg("step"), py::arg("history"))
        .def_property_readonly("step", &Noise::step)
        .def_property_readonly("state_bytes", &Noise::state_bytes);
}
