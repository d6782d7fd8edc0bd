#include "inversion/falling_sum.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "hockeystick/parallel.hpp"
#include "inversion/turning.hpp"
#include "numerics/constants.hpp"
#include "numerics/lane_sum.hpp"

namespace hockeystick {

double FallingSum::bound(double tau) const {
    std::vector<double> term(re.size());
    const double part = tau / 64;
    for (std::size_t i = 0; i < re.size(); ++i) {
        // Proof: e^y >= 1 + y + y^2/2 + y^3/6 for y >= 0. Its 64th power is hardly less, and quicker than
        // exp().
        const double y = part * std::max(0.0, fall[i] - u * turning[i]);
        double rise = 1 + y * (1 + y * (0.5 + y * (1 / 6.0)));
        rise *= rise, rise *= rise, rise *= rise, rise *= rise, rise *= rise, rise *= rise;
        term[i] = (std::abs(re[i]) + std::abs(im[i])) / rise;
    }
    double sum = 0;
    for (const double each : term) sum += each;
    return 1.001 * sum + fixed_error;
}

FallingSum::Row FallingSum::row(double step, std::size_t size, double negligible) const {
    constexpr std::size_t lanes = 4;  // speed
    // At most leap turns by one step follow size/leap turns by as many at once.
    const auto leap =
        static_cast<std::size_t>(std::max(16.0, std::ceil(std::sqrt(static_cast<double>(size)))));
    const double turns = static_cast<double>(leap + size / leap + 1);
    Row out{std::vector<Complex>(size), std::vector<double>(size)};
    std::size_t n = re.size();
    const std::size_t room = (n + lanes - 1) / lanes * lanes;
    std::vector<double> memory(8 * room);
    const auto at = [&](std::size_t i) { return memory.data() + i * room; };
    double *x = at(0), *y = at(1), *c = at(2), *d = at(3), *x_far = at(4), *y_far = at(5), *c_far = at(6),
           *d_far = at(7);
    std::vector<double> still_error = fixed, turn_error = turning;
    for (std::size_t i = 0; i < n; ++i) {
        x_far[i] = re[i];
        y_far[i] = im[i];
        if (size == 1) continue;
        const double fallen = std::exp(-step * fall[i]);
        c[i] = fallen * std::cos(step * turn[i]);
        d[i] = fallen * std::sin(step * turn[i]);
        if (size <= leap) continue;
        const double far = static_cast<double>(leap) * step, fallen_far = std::exp(-far * fall[i]);
        c_far[i] = fallen_far * std::cos(far * turn[i]);
        d_far[i] = fallen_far * std::sin(far * turn[i]);
    }
    double still = 0, turned = 0, left_out = fixed_error;
    std::size_t padded = room;
    for (std::size_t j = 0; j < size; ++j) {
        if (j % leap == 0) {
            interruption_point();
            if (j > 0) turn_all(x_far, y_far, c_far, d_far, n);
            std::size_t kept = 0;
            still = turned = 0;
            for (std::size_t i = 0; i < n; ++i) {
                const double magnitude = std::abs(x_far[i]) + std::abs(y_far[i]);
                if (j > 0 && magnitude * static_cast<double>(n) < negligible) {
                    left_out += magnitude * (1 + 1e-9);
                    continue;
                }
                still += magnitude * (still_error[i] + error_of_turn * turns);
                turned += magnitude * turn_error[i];
                if (kept != i) {
                    for (double* values : {x_far, y_far, c, d, c_far, d_far}) values[kept] = values[i];
                    still_error[kept] = still_error[i];
                    turn_error[kept] = turn_error[i];
                }
                ++kept;
            }
            n = kept;
            padded = (n + lanes - 1) / lanes * lanes;
            for (std::size_t i = n; i < padded; ++i) x_far[i] = y_far[i] = c[i] = d[i] = 0;
            std::copy(x_far, x_far + padded, x);
            std::copy(y_far, y_far + padded, y);
        } else {
            turn_all(x, y, c, d, padded);
        }
        std::array<double, lanes> real{}, imag{};
        for (std::size_t i = 0; i < padded; i += lanes)
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                real[lane] += x[i + lane];
                imag[lane] += y[i + lane];
            }
        out.value[j] = Complex(sum_of(real), sum_of(imag));
        out.error[j] = left_out + 1.01 * u * (still + (start + step * static_cast<double>(j)) * turned);
    }
    return out;
}

}  // namespace hockeystick
