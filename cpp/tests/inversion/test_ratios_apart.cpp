// Large ratios in several epochs: the transform and the bound of its fall against powers by the gamma
// function's integral, delta against a sum of these on another line.
#include <cmath>
#include <complex>
#include <cstddef>
#include <numbers>
#include <vector>

#include "check.hpp"
#include "hockeystick/pairs.hpp"
#include "inversion/allocation_gamma_kernel.hpp"
#include "inversion/allocation_ratios_apart.hpp"
#include "inversion/allocation_step.hpp"
#include "inversion/contour.hpp"

namespace hs = hockeystick;
using Complex = std::complex<double>;

namespace {

constexpr double pi = std::numbers::pi;
// What the rules below are off by, beside the largest value.
constexpr double rules = 3e-8;

struct Law {
    double mu, steps, epochs, variance;
    double place(double share) const { return std::log(share * steps) / mu + 0.5 * mu; }
};

// V^p = Gamma(p+1)/(2 pi i) integral of e^{theta V} theta^{-p-1}, on a line of its own, from Simpson's rule
// for one step's e^{theta W/T} below the cut and beyond it.
class ByGamma {
public:
    ByGamma(const Law& law, double cut, double top) : law_(law) {
        for (int n = 0; n <= nodes; ++n) {
            const Complex theta(real, step * n);
            add(theta, one_step(theta, -11, cut), one_step(theta, cut, top));
            if (n > 0) add(std::conj(theta), std::conj(below_.back()), std::conj(beyond_.back()));
        }
    }

    // Two or more epochs with large W, one or two each.
    Complex operator()(Complex z) const {
        const double t = law_.steps;
        const Complex p = 1.0 + z, front = std::exp(hs::log_gamma(p + 1.0)) * step / (2 * pi);
        Complex none = 0, some = 0;
        for (std::size_t i = 0; i < theta_.size(); ++i) {
            const Complex kernel = front * std::exp(-(p + 1.0) * std::log(theta_[i])),
                          rest = std::exp((t - 2) * std::log(below_[i])), a = below_[i], r = beyond_[i];
            none += kernel * rest * a * a;
            some += kernel * rest * (t * a * r + 0.5 * t * (t - 1) * r * r);
        }
        Complex sum = 0;
        double choose = law_.epochs;
        for (double k = 2; k <= law_.epochs; ++k) {
            choose *= (law_.epochs - k + 1) / k;
            sum += choose * std::pow(some, k) * std::pow(none, law_.epochs - k);
        }
        return sum * std::exp(0.5 * law_.variance * z * (z + 1.0));
    }

private:
    void add(Complex theta, Complex below, Complex beyond) {
        theta_.push_back(theta);
        below_.push_back(below);
        beyond_.push_back(beyond);
    }
    static constexpr double real = 3, step = 0.25;
    static constexpr int nodes = 2800;
    Complex one_step(Complex theta, double low, double high) const {
        constexpr int panels = 1200;
        const double h = (high - low) / panels;
        Complex sum = 0;
        for (int i = 0; i <= panels; ++i) {
            const double g = low + h * i, weight = i == 0 || i == panels ? 1 : i % 2 == 0 ? 2 : 4;
            sum +=
                weight * std::exp(theta * std::exp(law_.mu * (g - 0.5 * law_.mu)) / law_.steps - 0.5 * g * g);
        }
        return sum * h / 3.0 / std::sqrt(2 * pi);
    }

    Law law_;
    std::vector<Complex> theta_, below_, beyond_;
};

void holds(const Law& law, double share, double top_share, double epsilon) {
    const hs::Allocation allocation{law.mu, law.steps, false};
    const double cut = law.place(share), top = law.place(top_share);
    const hs::RatiosApart apart(allocation, hs::CutStep::at(allocation, cut, 9), top, law.epochs,
                                law.variance);
    const ByGamma truth(law, cut, top);
    for (const double s : {0.7, 2.5, 5.0}) {
        const double scale = apart.log_upper(s), size = truth(s).real() * std::exp(-scale);
        CHECK(size <= 1 + rules && size > 0.9);
        double fallen = 1;
        for (const double tau : {0.0, 0.5, 3.0, 11.0, 19.0, 23.0, 40.0}) {
            const auto at = apart.at({s, tau}, scale);
            const Complex there = truth({s, tau}) * std::exp(-scale);
            CHECK(std::abs(at.value - there) <= at.error + rules);
            CHECK(tau > 4 || at.error < 0.01 * size);
            const double bound = std::exp(apart.log_beyond(s, tau) - scale);
            CHECK(std::abs(there) <= bound + rules);
            CHECK(bound <= fallen * (1 + 1e-9));
            fallen = bound;
        }
        CHECK(apart.log_beyond(s, 3000) < scale + std::log(0.1));
    }
    // The trapezoidal rule on the line Re z = 2; what its second half adds is more than what it leaves out.
    constexpr double line = 2, step = 0.2;
    constexpr int size = 400;
    double delta = 0, half = 0;
    for (int j = 0; j < size; ++j) {
        const Complex z(line, step * j);
        delta +=
            (j == 0 ? 0.5 : 1.0) * step / pi * (truth(z) * std::exp(-z * epsilon) / (z * (z + 1.0))).real();
        if (j == size / 2) half = delta;
    }
    const double off = std::abs(delta - half) + 1e-6 * delta;
    CHECK(off < 0.01 * delta);
    const auto contour = apart.contour(epsilon, std::log(delta));
    CHECK(contour.has_value());
    if (!contour) return;
    const hs::Inverted at = hs::invert(*contour, epsilon);
    CHECK(at.lower() <= delta + off && delta - off <= at.upper());
    CHECK(at.upper() - at.lower() < 1e-3 * delta);
}

}  // namespace

int main() {
    holds({1.2, 20000, 2, 0.02}, 0.03, 3, 0.6);
    holds({1.2, 2000, 3, 0.05}, 0.1, 3, 0.9);
    holds({1.6, 60000, 5, 0.01}, 0.1, 6, 1.4);
    holds({0.8, 700, 40, 0.01}, 0.05, 1, 0.5);
    // Sums of small ratios that are no small part of their mean have no series.
    const hs::Allocation wide{2.5, 500, false};
    CHECK(!hs::RatiosApart(wide, hs::CutStep::at(wide, 4.5, 9), 9, 3, 0).contour(3, std::log(1e-4)));
    return check::summary();
}
