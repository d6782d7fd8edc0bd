#include "hockeystick/contour.hpp"

#include <algorithm>
#include <numbers>

#include "hockeystick/special.hpp"

namespace hockeystick {
namespace {

using Complex = std::complex<double>;
constexpr double u = unit_roundoff;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double pi = std::numbers::pi;

}  // namespace

double log_chernoff(double s) { return s > 0 ? -s * std::log1p(1 / s) - std::log1p(s) : 0; }

Complex log1p(Complex f) {
    const double x = f.real(), y = f.imag();
    const double modulus = std::hypot(1 + x, y);
    return {modulus < 0.7 ? std::log(modulus) : 0.5 * std::log1p(x * (2 + x) + y * y), std::atan2(y, 1 + x)};
}

Inverted invert(const Contour& contour, double epsilon) {
    Inverted out{};
    double sum = 0, turned = 0, c = 1, d = 0;
    const double c1 = std::cos(contour.step * epsilon), d1 = std::sin(contour.step * epsilon);
    for (std::size_t j = 0; j < contour.integrand.size(); ++j) {
        const double tau = contour.step * static_cast<double>(j);
        // e^{i tau eps}, turned on by one step at a time and started afresh before errors add up.
        if (j % 16 == 0) {
            c = std::cos(tau * epsilon);
            d = std::sin(tau * epsilon);
        } else {
            const double turn = c * c1 - d * d1;
            d = d * c1 + c * d1;
            c = turn;
        }
        const Complex f = contour.integrand[j];
        const double re = f.real() * c + f.imag() * d, im = f.imag() * c - f.real() * d;
        out.value += re;
        out.slope += contour.s * re - tau * im;
        const double magnitude = std::abs(f.real()) + std::abs(f.imag());
        sum += magnitude;
        turned += magnitude * tau;
        out.quadrature += contour.error[j];
    }
    const double n = static_cast<double>(contour.integrand.size());
    out.round_off = u * ((n + 100) * sum + 4 * std::abs(epsilon) * turned);
    out.tail = contour.tail;
    const double period = 2 * pi / contour.step;
    const auto aliases = [&](double log_bound, double shift, double direction) {
        return std::exp(log_bound - shift * (direction * epsilon + period)) / -std::expm1(-shift * period);
    };
    out.aliasing = 1.001 * (aliases(contour.log_right, contour.right_shift, 1) +
                            aliases(contour.log_left, contour.left_shift, -1));
    // The derivative converges more slowly; delta falls about like e^{-s eps}.
    if (!(out.slope > 0.25 * contour.s * out.value)) out.slope = contour.s * std::abs(out.value);
    out.log_scale = contour.scale - contour.s * epsilon;
    out.round_off += (std::abs(out.value) + out.aliasing + out.tail + out.quadrature) * u *
                     (8 + 4 * (std::abs(contour.scale) + contour.s * std::abs(epsilon)));
    return out;
}

Inverted newton(const Contour& contour, double target, double& epsilon, double still) {
    double low = 0, high = infinity;
    Inverted at = invert(contour, epsilon);
    for (int i = 0; i < 60; ++i) {
        const double excess = at.value > 0 ? std::log(at.value) + at.log_scale - target : -infinity;
        (excess > 0 ? low : high) = epsilon;
        double next = epsilon + excess * at.value / at.slope;
        if (!(next > low && next < high)) next = std::isfinite(high) ? 0.5 * (low + high) : 2 * low;
        if (excess < 0 && epsilon == 0) break;
        const bool close = std::abs(next - epsilon) <= still * next;
        epsilon = next;
        at = invert(contour, epsilon);
        if (close) break;
    }
    return at;
}

Bracket bracket(const Contour& contour, const Inverted& at, double epsilon, double delta, double dropped) {
    Bracket out{0, infinity};
    const double least = 4 * u * epsilon + 1e-300;
    double margin = 1.5 * (at.upper() + dropped - at.scaled(at.value)) / at.scaled(at.slope) + least;
    int tries = 0;
    while (!(invert(contour, epsilon + margin).upper() + dropped + 5e-324 <= delta)) {
        margin *= 2;
        if (++tries > 60 || !std::isfinite(margin)) return out;
    }
    out.upper = epsilon + margin;
    margin = 1.5 * (at.scaled(at.value) - at.lower()) / at.scaled(at.slope) + least;
    while (epsilon - margin > 0 && !(invert(contour, epsilon - margin).lower() - 5e-324 > delta)) margin *= 2;
    out.lower = std::max(0.0, epsilon - margin);
    return out;
}

}  // namespace hockeystick
