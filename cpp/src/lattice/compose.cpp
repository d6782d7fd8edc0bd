#include "lattice/compose.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "hockeystick/parallel.hpp"
#include "numerics/constants.hpp"
#include "numerics/sums.hpp"

namespace hockeystick {
namespace {

constexpr std::size_t block_size = 4096;  // speed
// speed: where terms are added up one by one: the steps, the points to either side of 0, all products with
// frequencies, and the mass beyond those points.
constexpr std::uint64_t few_steps = 100;
constexpr std::int64_t widest_bulk = 256;
constexpr double most_products = 1e7, little_outside = 0.02;
// proof: factors and products below these count as zero, with all of their bound as the error
// ("Composition").
constexpr double smallest_factor = 1e-100, negligible_product = 1e-60;
// proof: more than the rounding of a product of masses at infinity, of a logarithm of moments.
constexpr double rounding_of_mass = 1e-12, rounding_of_moment = 1e-9;

std::size_t wrap(std::int64_t index, std::size_t size) {
    const auto n = static_cast<std::int64_t>(size);
    return static_cast<std::size_t>(((index % n) + n) % n);
}

// z^k by squaring: the relative error is at most 3 k u.
Complex power(Complex z, std::uint64_t k) {
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
        if (z < smallest_factor) return result * smallest_factor;
        if (k & 1) result *= z;
        z *= z;
    }
    return result;
}

// ln of Pr[sum > bound] (direction +1) or Pr[sum < bound] (-1) under the tilted masses, by Chernoff.
double log_outside(const std::vector<LatticeStep>& steps, double bound, double theta, int direction) {
    double log_moment = 0;
    for (const LatticeStep& step : steps) {
        const Lattice& l = step.lattice;
        log_moment +=
            static_cast<double>(step.count) * log_sum_exp(l.mass.size(), [&](std::size_t i) {
                return std::log(l.mass[i]) + direction * theta * l.step * static_cast<double>(l.index[i]);
            });
    }
    const double log_probability = log_moment - direction * theta * bound;
    return std::min(0.0, log_probability + rounding_of_moment * (1 + std::abs(log_moment)));
}

// How far from 0 nearly all of the mass lies, in steps; 0 where that is too far.
std::int64_t bulk_of(const Lattice& lattice, std::size_t size) {
    for (std::int64_t reach = 1; reach <= widest_bulk; reach *= 2) {
        if (static_cast<double>(reach) * static_cast<double>(size) > most_products) return 0;
        double outside = 0;
        for (std::size_t i = 0; i < lattice.mass.size(); ++i)
            if (std::abs(lattice.index[i]) > reach) outside += lattice.mass[i];
        if (outside < little_outside) return reach;
    }
    return 0;
}

// The spectrum less 1, that of the bulk term by term, and its errors: sum m - 1 + sum m (e^{-i theta} - 1).
void transform_less_one(const Lattice& lattice, std::int64_t reach, const RealFft& fft,
                        std::span<double> folded, std::vector<Complex>& spectrum,
                        std::vector<double>& errors) {
    const auto n = static_cast<std::int64_t>(fft.size());
    Lattice rest = lattice;
    CompensatedSum excess;
    excess.add(-1);
    double outside = 0;
    std::vector<std::pair<std::int64_t, double>> bulk;
    for (std::size_t i = 0; i < rest.mass.size(); ++i) {
        excess.add(rest.mass[i]);
        if (std::abs(rest.index[i]) <= reach) {
            bulk.emplace_back(rest.index[i], std::exchange(rest.mass[i], 0.0));
        } else {
            outside += rest.mass[i];
        }
    }
    const double terms = static_cast<double>(rest.mass.size());
    const double fixed = transform(rest, fft, folded, spectrum) +
                         4 * u * (outside * terms + std::abs(excess.value()) + u * terms);
    errors.resize(spectrum.size());
    parallel_ranges(spectrum.size(), block_size, [&](std::size_t begin, std::size_t end) {
        for (std::size_t j = begin; j < end; ++j) {
            double re = 0, im = 0, size = 0;
            for (const auto& [index, m] : bulk) {
                std::int64_t turn = static_cast<std::int64_t>(j) * index % n;
                if (2 * turn > n) turn -= n;
                if (2 * turn < -n) turn += n;
                const double half = pi * static_cast<double>(turn) / static_cast<double>(n),
                             sine = std::sin(half);
                re -= 2 * m * sine * sine;
                im -= 2 * m * sine * std::cos(half);
                size += 2 * m * std::abs(sine);
            }
            spectrum[j] += Complex(re, im) - outside + excess.value();
            errors[j] = fixed + (4 * static_cast<double>(reach) + 32) * u * size;
        }
    });
}

// A product of powers of transforms, and what the errors of its factors may add up to.
class Product {
public:
    explicit Product(std::size_t size)
        : size_(size),
          value_(size / 2 + 1, 1.0),
          magnitude_(value_.size(), 1.0),
          relative_(value_.size(), 0.0) {}

    void multiply(const std::vector<Complex>& spectrum, double error, std::uint64_t count) {
        const double k = static_cast<double>(count);
        parallel_ranges(value_.size(), block_size, [&](std::size_t begin, std::size_t end) {
            for (std::size_t j = begin; j < end; ++j) {
                const Complex z = spectrum[j];
                const double largest = std::sqrt(std::norm(z)) * (1 + 4 * u) + error;
                magnitude_[j] = std::max(smallest_factor, magnitude_[j] * power_bound(largest, count));
                // Too small to matter: call it 0, with all of its magnitude as the error.
                const bool negligible = magnitude_[j] < negligible_product;
                value_[j] = negligible ? 0.0 : value_[j] * power(z, count);
                relative_[j] += negligible ? 1.0 : k * error / largest;
            }
        });
    }

    // The same for a spectrum less 1: neither its errors nor the power's grow by more than a share of it.
    void multiply_near_one(const std::vector<Complex>& spectrum, const std::vector<double>& errors,
                           std::uint64_t count) {
        const double k = static_cast<double>(count);
        parallel_ranges(value_.size(), block_size, [&](std::size_t begin, std::size_t end) {
            for (std::size_t j = begin; j < end; ++j) {
                const Complex w = spectrum[j], log = log1p(w);
                const double size = std::abs(w), whole = std::abs(1.0 + w), error = errors[j];
                const double largest = whole * (1 + 4 * u) + error;
                magnitude_[j] = std::max(smallest_factor, magnitude_[j] * power_bound(largest, count));
                const bool negligible = magnitude_[j] < negligible_product;
                value_[j] =
                    negligible ? 0.0 : value_[j] * std::polar(std::exp(k * log.real()), k * log.imag());
                // The logarithm rounds relatively to w, its multiple and their exponential to that.
                const double rounding = 8 * (size + size * size) / whole + 8 * std::abs(log);
                relative_[j] += negligible ? 1.0 : k * (error / largest + u * rounding) + 16 * u;
            }
        });
    }

    std::span<const Complex> value() const { return value_; }
    // Bounds the error of each mass. |product of computed factors - true product| <= magnitude * relative,
    // and the magnitudes round too.
    double round_off(double moves) const {
        double spectral_error = 0, l1 = 0;
        for (std::size_t j = 0; j < value_.size(); ++j) {
            const double weight = (j == 0 || (size_ % 2 == 0 && j + 1 == value_.size())) ? 1 : 2;
            spectral_error += weight * magnitude_[j] * relative_[j];
            l1 += weight * std::abs(value_[j]);
        }
        const double n = static_cast<double>(size_);
        return (spectral_error * (1 + 4 * u * (moves + n)) + fft_error_bound(size_) * l1) / n;
    }

private:
    std::size_t size_;
    std::vector<Complex> value_;
    // A bound on |value| with every factor at its largest, and on its error relative to that.
    std::vector<double> magnitude_, relative_;
};

}  // namespace

void StepSums::add(const LatticeTerms& step, std::uint64_t count) {
    const double k = static_cast<double>(count);
    log_finite_ += k * std::log1p(-step.infinity_mass);
    log_full_ += k * std::log1p(step.beyond);
    sums_.log_scale += k * step.log_scale;
    sums_.offset += k * step.offset;
    sums_.offset_error += k * (step.offset_error + u * std::abs(step.offset)) + u * std::abs(sums_.offset);
    sums_.deficit += k * step.deficit;
    sums_.tilted_deficit += k * step.tilted_deficit;
    sums_.residue.mean += k * step.residue.mean;
    sums_.residue.mean_error += k * step.residue.mean_error;
    sums_.residue.squared_range += k * step.residue.squared_range;
    sums_.residue.outside += k * step.residue.outside;
    sums_.relative_error += k * u * (4 + std::abs(step.log_scale));
}

Composed StepSums::composed(Bound bound, double step, double tilt) const {
    Composed out = sums_;
    out.bound = bound;
    out.step = step;
    out.tilt = tilt;
    // Some step beyond its lattice: the full moment less the one inside, (1 + b)^k - 1.
    out.beyond = std::expm1(log_full_);
    const double outwards = bound == Bound::upper ? 1 + rounding_of_mass : 1 - rounding_of_mass;
    out.infinity_mass = std::clamp(-std::expm1(log_finite_) * outwards, 0.0, 1.0);
    return out;
}

double transform(const Lattice& lattice, const RealFft& fft, std::span<double> folded,
                 std::span<Complex> spectrum) {
    std::fill(folded.begin(), folded.end(), 0.0);
    double squares = 0, total = 0;
    for (std::size_t i = 0; i < lattice.mass.size(); ++i) {
        folded[wrap(lattice.index[i], fft.size())] += lattice.mass[i];
        total += lattice.mass[i];
    }
    for (const double m : folded) squares += m * m;
    fft.forward(folded.data(), spectrum.data());
    return fft_error_bound(fft.size()) *
               std::min(total, std::sqrt(static_cast<double>(fft.size()) * squares)) +
           4 * u * total;
}

void read_masses(const RealFft& fft, std::span<const Complex> product, std::int64_t first, Composed& out) {
    const double n = static_cast<double>(fft.size());
    out.first = first;
    out.mass.resize(fft.size());
    fft.inverse(product.data(), out.mass.data());
    for (double& m : out.mass) m = std::max(0.0, m / n);
    // Lattice point i sits in slot i mod n; put the window's first point in front.
    std::rotate(out.mass.begin(), out.mass.begin() + static_cast<std::ptrdiff_t>(wrap(first, fft.size())),
                out.mass.end());
    // Scale, suffix sums of n terms, and the exponentials of a final answer.
    out.relative_error = std::expm1(out.relative_error + 8 * u * n + rounding_of_mass);
}

Composed compose(const std::vector<LatticeStep>& steps, std::int64_t first, std::size_t size,
                 double theta_left, double theta_right, bool careful) {
    if (steps.empty()) throw std::invalid_argument("compose: at least one lattice is needed");
    const Lattice& front = steps.front().lattice;
    StepSums sums;
    double moves = 0, lowest = 0, highest = 0;
    for (const auto& [lattice, count] : steps) {
        if (lattice.bound != front.bound)
            throw std::invalid_argument("compose: lattices with different bounds do not compose");
        if (lattice.step != front.step || lattice.tilt != front.tilt)
            throw std::invalid_argument("compose: lattices must share step and tilt");
        sums.add(lattice, count);
        const double k = static_cast<double>(count);
        moves += k;
        lowest += k * static_cast<double>(lattice.index.front());
        highest += k * static_cast<double>(lattice.index.back());
    }
    Composed out = sums.composed(front.bound, front.step, front.tilt);
    out.first = first;
    out.mass.assign(size, 0.0);
    if (!std::isfinite(out.log_scale)) {
        // Some step has no finite loss at all.
        out.log_scale = 0;
        out.relative_error = 0;
        return out;
    }

    const RealFft fft(size);
    Product product(size);
    std::vector<Complex> spectrum(fft.spectrum_size());
    std::vector<double> errors;
    for (const auto& [lattice, count] : steps) {
        if (const std::int64_t reach = careful && count >= few_steps ? bulk_of(lattice, size) : 0;
            reach > 0) {
            transform_less_one(lattice, reach, fft, out.mass, spectrum, errors);
            product.multiply_near_one(spectrum, errors, count);
        } else {
            const double error = transform(lattice, fft, out.mass, spectrum);
            product.multiply(spectrum, error, count);
        }
    }
    out.round_off = product.round_off(moves);
    read_masses(fft, product.value(), first, out);

    const double left = static_cast<double>(first), last = left + static_cast<double>(size) - 1;
    if (lowest < left) out.outside_left = std::exp(log_outside(steps, left * out.step, theta_left, -1));
    if (highest > last) out.outside_right = std::exp(log_outside(steps, last * out.step, theta_right, +1));
    return out;
}

}  // namespace hockeystick
