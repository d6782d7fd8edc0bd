#include "lattice/compose.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <stdexcept>

#include "hockeystick/parallel.hpp"
#include "numerics/fft.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

constexpr double u = unit_roundoff;
constexpr std::size_t block_size = 4096;

std::size_t wrap(std::int64_t index, std::size_t size) {
    const auto n = static_cast<std::int64_t>(size);
    return static_cast<std::size_t>(((index % n) + n) % n);
}

// z^k by squaring: the relative error is at most 3 k u.
std::complex<double> power(std::complex<double> z, std::uint64_t k) {
    double re = 1, im = 0, a = z.real(), b = z.imag();
    for (; k > 0; k >>= 1) {
        if (k & 1) {
            const double next = re * a - im * b;
            im = re * b + im * a;
            re = next;
        }
        const double square = a * a - b * b;
        b = 2 * a * b;
        a = square;
    }
    return {re, im};
}

// An upper bound on z^k for z of about 1 at most; it stops above the denormal range, which is slow.
double power_bound(double z, std::uint64_t k) {
    double result = 1;
    for (; k > 0; k >>= 1) {
        if (z < 1e-100) return result * 1e-100;
        if (k & 1) result *= z;
        z *= z;
    }
    return result;
}

// ln of Pr[sum > bound] (direction +1) or Pr[sum < bound] (-1) under the tilted masses, by Chernoff.
double log_outside(const std::vector<LatticeStep>& steps, double bound, double theta, int direction) {
    double log_moment = 0;
    for (const auto& [lattice, count] : steps) {
        // The largest term is taken out, as e^{theta x} may overflow or vanish.
        const auto term = [&, &l = lattice](std::size_t i) {
            return std::log(l.mass[i]) + direction * theta * l.step * static_cast<double>(l.index[i]);
        };
        double largest = -std::numeric_limits<double>::infinity(), sum = 0;
        for (std::size_t i = 0; i < lattice.mass.size(); ++i) largest = std::max(largest, term(i));
        for (std::size_t i = 0; i < lattice.mass.size(); ++i) sum += std::exp(term(i) - largest);
        log_moment += static_cast<double>(count) * (std::log(sum) + largest);
    }
    const double log_probability = log_moment - direction * theta * bound;
    return std::min(0.0, log_probability + 1e-9 * (1 + std::abs(log_moment)));
}

}  // namespace

Composed compose(const std::vector<LatticeStep>& steps, std::int64_t first, std::size_t size,
                 double theta_left, double theta_right) {
    if (steps.empty()) throw std::invalid_argument("compose: at least one lattice is needed");
    const Lattice& front = steps.front().lattice;
    Composed out;
    out.bound = front.bound;
    out.step = front.step;
    out.tilt = front.tilt;
    out.first = first;
    double log_finite = 0, moves = 0, scale_error = 0;
    for (const auto& [lattice, count] : steps) {
        if (lattice.bound != out.bound)
            throw std::invalid_argument("compose: lattices with different bounds do not compose");
        if (lattice.step != out.step || lattice.tilt != out.tilt)
            throw std::invalid_argument("compose: lattices must share step and tilt");
        const double k = static_cast<double>(count);
        log_finite += k * std::log1p(-lattice.infinity_mass);
        out.log_scale += k * lattice.log_scale;
        out.offset += k * lattice.offset;
        out.beyond += k * std::log1p(lattice.beyond);
        out.deficit += k * lattice.deficit;
        out.tilted_deficit += k * lattice.tilted_deficit;
        out.residue.mean += k * lattice.residue.mean;
        out.residue.mean_error += k * lattice.residue.mean_error;
        out.residue.squared_range += k * lattice.residue.squared_range;
        out.residue.outside += k * lattice.residue.outside;
        moves += k;
        scale_error += k * u * (4 + std::abs(lattice.log_scale));
    }
    // Some step beyond its lattice: the full moment less the one inside, (1 + b)^k - 1.
    out.beyond = std::expm1(out.beyond);
    const bool upper = out.bound == Bound::upper;
    out.infinity_mass = std::clamp(-std::expm1(log_finite) * (upper ? 1 + 1e-12 : 1 - 1e-12), 0.0, 1.0);
    out.mass.assign(size, 0.0);
    if (!std::isfinite(out.log_scale)) {
        // Some step has no finite loss at all.
        out.log_scale = 0;
        out.relative_error = 0;
        return out;
    }

    const RealFft fft(size);
    const std::size_t half = size / 2 + 1;
    const std::size_t blocks = (half + block_size - 1) / block_size;
    std::vector<std::complex<double>> product(half, 1.0), spectrum(half);
    // A bound on |product| with every factor at its largest, and on its error relative to that.
    std::vector<double> magnitude(half, 1.0), relative(half, 0.0);
    for (const auto& [lattice, count] : steps) {
        std::fill(out.mass.begin(), out.mass.end(), 0.0);
        double squares = 0, total = 0;
        for (std::size_t i = 0; i < lattice.mass.size(); ++i) {
            out.mass[wrap(lattice.index[i], size)] += lattice.mass[i];
            total += lattice.mass[i];
        }
        for (double m : out.mass) squares += m * m;
        fft.forward(out.mass.data(), spectrum.data());
        const double error =
            fft_error_bound(size) * std::min(total, std::sqrt(static_cast<double>(size) * squares)) +
            4 * u * total;
        const double k = static_cast<double>(count);
        parallel_for(blocks, [&, power_count = count](std::size_t b) {
            const std::size_t end = std::min(half, (b + 1) * block_size);
            for (std::size_t j = b * block_size; j < end; ++j) {
                const std::complex<double> z = spectrum[j];
                const double largest = std::sqrt(std::norm(z)) * (1 + 4 * u) + error;
                magnitude[j] = std::max(1e-100, magnitude[j] * power_bound(largest, power_count));
                // Too small to matter: call it 0, with all of its magnitude as the error.
                const bool negligible = magnitude[j] < 1e-60;
                product[j] = negligible ? 0.0 : product[j] * power(z, power_count);
                relative[j] += negligible ? 1.0 : k * error / largest;
            }
        });
    }
    // |product of computed factors - true product| <= magnitude * relative, and the magnitudes round too.
    double spectral_error = 0, l1 = 0;
    for (std::size_t j = 0; j < half; ++j) {
        const double weight = (j == 0 || (size % 2 == 0 && j + 1 == half)) ? 1 : 2;
        spectral_error += weight * magnitude[j] * relative[j];
        l1 += weight * std::abs(product[j]);
    }
    const double n = static_cast<double>(size);
    out.round_off = (spectral_error * (1 + 4 * u * (moves + n)) + fft_error_bound(size) * l1) / n;
    fft.inverse(product.data(), out.mass.data());
    for (double& m : out.mass) m = std::max(0.0, m / n);
    // Lattice point i sits in slot i mod n; put the window's first point in front.
    std::rotate(out.mass.begin(), out.mass.begin() + static_cast<std::ptrdiff_t>(wrap(first, size)),
                out.mass.end());

    double lowest = 0, highest = 0;
    for (const auto& [lattice, count] : steps) {
        lowest += static_cast<double>(count) * static_cast<double>(lattice.index.front());
        highest += static_cast<double>(count) * static_cast<double>(lattice.index.back());
    }
    const double left = static_cast<double>(first) * out.step;
    const double right = (static_cast<double>(first) + n - 1) * out.step;
    const double last = static_cast<double>(first) + n - 1;
    out.outside_left =
        lowest >= static_cast<double>(first) ? 0.0 : std::exp(log_outside(steps, left, theta_left, -1));
    out.outside_right = highest <= last ? 0.0 : std::exp(log_outside(steps, right, theta_right, +1));
    // Scale, suffix sums of n terms, and the exponentials of a final answer.
    out.relative_error = std::expm1(scale_error + 8 * u * n + 1e-12);
    return out;
}

}  // namespace hockeystick
