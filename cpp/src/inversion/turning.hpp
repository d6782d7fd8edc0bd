// Exponentials e^{theta x} of many x along a line: from theta to theta + i step each turns by e^{i step x}, a
// product in the place of an exponential (docs/accounting/bounds.md, "Exact inversion").
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "numerics/complex.hpp"
#include "numerics/lane_sum.hpp"
#include "numerics/special.hpp"

namespace hockeystick {

// Proof: a product by a rounded e^{i step x}, in units of round-off ("Exact inversion").
inline constexpr double error_of_turn = 6;

inline void turn_all(double* real, double* imaginary, const double* cosine, const double* sine,
                     std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        const double next = real[i] * cosine[i] - imaginary[i] * sine[i];
        imaginary[i] = real[i] * sine[i] + imaginary[i] * cosine[i];
        real[i] = next;
    }
}

class Turning {
    // speed: sums over them go by so many at once.
    static constexpr std::size_t lanes = 4;

public:
    Turning(std::span<const double> x, Complex theta, double step)
        : modulus_((x.size() + lanes - 1) / lanes * lanes),
          real_(modulus_.size()),
          imaginary_(modulus_.size()),
          cosine_(modulus_.size()),
          sine_(modulus_.size()) {
        for (std::size_t i = 0; i < x.size(); ++i) {
            const double angle = theta.imag() * x[i];
            modulus_[i] = exp_or_0(theta.real() * x[i]);
            real_[i] = modulus_[i] * std::cos(angle);
            imaginary_[i] = modulus_[i] * std::sin(angle);
            cosine_[i] = std::cos(step * x[i]);
            sine_[i] = std::sin(step * x[i]);
        }
    }
    void turn() {
        turn_all(real_.data(), imaginary_.data(), cosine_.data(), sine_.data(), modulus_.size());
        ++turns_;
    }

    // As many as there are lanes for, those beyond the last x being 0.
    std::size_t size() const { return modulus_.size(); }
    double modulus(std::size_t i) const { return modulus_[i]; }
    double real(std::size_t i) const { return real_[i]; }
    double imaginary(std::size_t i) const { return imaginary_[i]; }
    // Of each, in units of round-off of its modulus, beside what theta x rounds by.
    double rounding() const { return 4 + error_of_turn * static_cast<double>(turns_); }

    // The sums of terms(i), an array of so many numbers, over all i.
    template <std::size_t count, class Terms>
    std::array<double, count> sum(const Terms& terms) const {
        std::array<std::array<double, lanes>, count> partial{};
        for (std::size_t i = 0; i < modulus_.size(); i += lanes)
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                const std::array<double, count> term = terms(i + lane);
                for (std::size_t k = 0; k < count; ++k) partial[k][lane] += term[k];
            }
        std::array<double, count> out;
        for (std::size_t k = 0; k < count; ++k) out[k] = sum_of(partial[k]);
        return out;
    }

private:
    std::size_t turns_ = 0;
    std::vector<double> modulus_, real_, imaginary_, cosine_, sine_;
};

}  // namespace hockeystick
