// Real discrete Fourier transforms of even lengths 2^a 3^b 5^c, with an a-priori error bound.
#pragma once

#include <complex>
#include <cstddef>
#include <memory>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// The smallest even 2^a 3^b 5^c that is >= n.
std::size_t good_size(std::size_t n);

// X_k = sum_j x_j e^{-2 pi i jk/n} for k = 0, ..., n/2, and its unscaled inverse. The other half of
// the spectrum is the complex conjugate. Plans are shared between objects of the same length; one
// object may be used from several threads at once.
class RealFft {
public:
    // Throws std::invalid_argument unless n == good_size(n).
    explicit RealFft(std::size_t n);

    std::size_t size() const noexcept { return n_; }
    std::size_t spectrum_size() const noexcept { return n_ / 2 + 1; }

    // Reads size() values, writes spectrum_size() values.
    void forward(const double* x, std::complex<double>* spectrum) const;

    // Reads spectrum_size() values, writes size() values, n times the x of forward. The imaginary
    // parts of the first and last input are taken as 0.
    void inverse(const std::complex<double>* spectrum, double* x) const;

    struct Plan;

private:
    std::size_t n_;
    std::shared_ptr<const Plan> plan_;
};

// Every output of forward has an absolute error <= fft_error_bound(n) * min(|x|_1, sqrt(n) |x|_2).
// The same holds for inverse, with the norms of all n values of the spectrum.
double fft_error_bound(std::size_t n);

}  // namespace hockeystick
