#include "numerics/fft.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "numerics/special.hpp"

namespace hs = hockeystick;
using Complex = std::complex<double>;

namespace {

// Largest error / bound seen so far: how much room the a-priori bound leaves.
double worst = 0.0;

// e^{-2 pi i m/n}, off by at most 5 unit round-offs, as the angle stays below pi.
Complex root(std::size_t m, std::size_t n) {
    m %= n;
    if (2 * m > n) return std::conj(root(n - m, n));
    const double angle = 2.0 * std::numbers::pi * static_cast<double>(m) / static_cast<double>(n);
    return {std::cos(angle), -std::sin(angle)};
}

// A sum whose own rounding errors are negligible (Neumaier), so that references of many terms are
// more accurate than what they are compared with.
class Sum {
public:
    void add(double term) {
        const double next = total_ + term;
        correction_ += std::abs(total_) >= std::abs(term) ? (total_ - next) + term : (term - next) + total_;
        total_ = next;
    }
    double value() const { return total_ + correction_; }

private:
    double total_ = 0.0, correction_ = 0.0;
};

struct Norms {
    double one = 0.0, two = 0.0;
};

template <typename Values>
Norms norms(const Values& values) {
    Norms result;
    for (const auto& v : values) {
        result.one += std::abs(v);
        result.two += std::norm(v);
    }
    result.two = std::sqrt(result.two);
    return result;
}

// The stated bound; references add 6 unit round-offs per term (root and product).
bool within_bound(double error, const Norms& input, std::size_t n) {
    const double size = std::min(input.one, std::sqrt(static_cast<double>(n)) * input.two);
    const double bound = hs::fft_error_bound(n) * size;
    worst = std::max(worst, error / bound);
    return error <= bound + 6.0 * hs::unit_roundoff * input.one;
}

std::vector<double> random_values(std::size_t n, unsigned seed) {
    std::mt19937_64 engine(seed);
    std::uniform_real_distribution<double> uniform(-1.0, 1.0);
    std::vector<double> x(n);
    for (double& v : x) v = uniform(engine);
    return x;
}

// A mass that decays over many orders of magnitude, like a privacy-loss distribution.
std::vector<double> decaying_values(std::size_t n) {
    std::vector<double> x(n);
    for (std::size_t j = 0; j < n; ++j) x[j] = std::exp(-0.5 * static_cast<double>(j));
    return x;
}

std::vector<Complex> whole_spectrum(const std::vector<Complex>& half, std::size_t n) {
    std::vector<Complex> all(n);
    for (std::size_t k = 0; k < n; ++k) all[k] = k <= n / 2 ? half[k] : std::conj(half[n - k]);
    return all;
}

void check_forward(const std::vector<double>& x) {
    const std::size_t n = x.size();
    const hs::RealFft fft(n);
    std::vector<Complex> spectrum(fft.spectrum_size());
    fft.forward(x.data(), spectrum.data());
    double error = 0.0;
    for (std::size_t k = 0; k < spectrum.size(); ++k) {
        Sum re, im;
        for (std::size_t j = 0; j < n; ++j) {
            const Complex w = root(j * k, n);
            re.add(x[j] * w.real());
            im.add(x[j] * w.imag());
        }
        error = std::max(error, std::abs(spectrum[k] - Complex(re.value(), im.value())));
    }
    CHECK(within_bound(error, norms(x), n));
}

void check_inverse(const std::vector<double>& values) {
    const std::size_t n = values.size();
    const hs::RealFft fft(n);
    std::vector<Complex> spectrum(fft.spectrum_size());
    for (std::size_t k = 0; k < spectrum.size(); ++k) {
        const bool is_real = k == 0 || 2 * k == n;
        spectrum[k] = {values[k], is_real ? 0.0 : values[n - k]};
    }
    std::vector<double> x(n);
    fft.inverse(spectrum.data(), x.data());
    const auto all = whole_spectrum(spectrum, n);
    double error = 0.0;
    for (std::size_t j = 0; j < n; ++j) {
        Sum sum;
        for (std::size_t k = 0; k < n; ++k) {
            const Complex w = std::conj(root(j * k, n));
            sum.add(all[k].real() * w.real());
            sum.add(-all[k].imag() * w.imag());
        }
        error = std::max(error, std::abs(x[j] - sum.value()));
    }
    CHECK(within_bound(error, norms(all), n));
}

// Long transforms, where a direct sum is out of reach: the transform of a unit impulse is known.
void check_impulse(std::size_t n, std::size_t at) {
    const hs::RealFft fft(n);
    std::vector<double> x(n, 0.0);
    x[at] = 1.0;
    std::vector<Complex> spectrum(fft.spectrum_size());
    fft.forward(x.data(), spectrum.data());
    double error = 0.0;
    for (std::size_t k = 0; k < spectrum.size(); ++k) {
        error = std::max(error, std::abs(spectrum[k] - root(at * k, n)));
    }
    CHECK(within_bound(error, norms(x), n));
}

void check_round_trip(std::size_t n) {
    const std::vector<double> x = random_values(n, 7);
    const hs::RealFft fft(n);
    std::vector<Complex> spectrum(fft.spectrum_size());
    fft.forward(x.data(), spectrum.data());
    std::vector<double> back(n);
    fft.inverse(spectrum.data(), back.data());
    double squares = 0.0;
    for (std::size_t j = 0; j < n; ++j) {
        const double d = back[j] / static_cast<double>(n) - x[j];
        squares += d * d;
    }
    // In the 2-norm the relative errors of the two transforms add.
    CHECK(std::sqrt(squares) <= 2.0 * hs::fft_error_bound(n) * norms(x).two);
}

bool is_good(std::size_t n) {
    if (n == 0 || n % 2 != 0) return false;
    for (const std::size_t p : {2u, 3u, 5u}) {
        while (n % p == 0) n /= p;
    }
    return n == 1;
}

void check_good_size() {
    std::size_t expected = 2;
    for (std::size_t n = 0; n <= 5000; ++n) {
        while (expected < n || !is_good(expected)) ++expected;
        CHECK(hs::good_size(n) == expected);
    }
    CHECK(hs::good_size((std::size_t{1} << 40) + 1) > std::size_t{1} << 40);
    CHECK(is_good(hs::good_size((std::size_t{1} << 40) + 1)));
    CHECK_THROWS(std::length_error, hs::good_size((std::size_t{1} << 48) + 1));
    CHECK_THROWS(std::invalid_argument, hs::RealFft(0));
    CHECK_THROWS(std::invalid_argument, hs::RealFft(7));
    CHECK_THROWS(std::invalid_argument, hs::RealFft(14));
}

}  // namespace

int main() {
    check_good_size();
    for (std::size_t n = 2; n <= 300; n = hs::good_size(n + 1)) {
        check_forward(random_values(n, static_cast<unsigned>(n)));
        check_forward(decaying_values(n));
        check_inverse(random_values(n, static_cast<unsigned>(n)));
        check_round_trip(n);
    }
    // 10,000 and beyond, the kernel packs two reals into a complex number.
    for (const std::size_t n : {8192u, 10000u, 13122u, 16384u, 39366u, 46656u, 262144u, 781250u}) {
        for (const std::size_t at : {std::size_t{0}, std::size_t{1}, n / 3, n / 2, n - 1}) {
            check_impulse(n, at);
        }
        check_round_trip(n);
    }
    std::printf("largest error / bound: %.3f\n", worst);
    return check::summary();
}
