// E[(e^L - c)_+; two or more epochs have large likelihood ratios, one or two each], of epochs of one random
// allocation in direction remove, and Gaussian steps: an inversion whose transform is a sum over where the
// large ratios are (docs/mechanisms/allocation.md, "Large ratios in several epochs").
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "inversion/allocation_light_ratios.hpp"
#include "inversion/allocation_step.hpp"
#include "inversion/contour.hpp"
#include "numerics/complex.hpp"

namespace hockeystick {

class RatiosApart {
public:
    // Large is what lies beyond the cut, up to a place g; variance: of the Gaussian steps' loss.
    RatiosApart(const Allocation& law, const CutStep& cut, double top, double epochs, double variance);

    // A line that suits eps, where delta is about e^{log_delta}; empty where there is none.
    std::optional<Contour> contour(double epsilon, double log_delta) const;

    // E[e^{zL}; these outcomes] e^{-scale}, and its error.
    struct Value {
        Complex value;
        double error;
    };
    Value at(Complex z, double scale) const { return at(z, scale, moduli(z.real())); }
    // ln of a bound on that at real z = s, and on its modulus at every z = s + i tau', tau' >= tau.
    double log_upper(double s) const { return log_beyond(moduli(s), 0); }
    double log_beyond(double s, double tau) const;

private:
    // Gauss-Legendre nodes over the large ratio's g: W/T, and ln of T times the weight with the density.
    struct Rule {
        std::vector<double> ratio, log_weight;
        double half;  // of a panel
    };
    Rule rule(double widest) const;
    double ratio_at(double g) const;
    // E (x + v)^p/x^p as a polynomial in 1/x, v what a sum of small ratios is more than its mean; the error
    // is one for any larger x, too.
    struct Polynomial {
        std::array<Complex, series_degree> coefficient;
        std::size_t size = 0;
        double error;
        // Of the moduli.
        double most(double x) const;
    };
    static Polynomial expanded(const LightSum& sum, Complex p, double x);
    // ln of E[V^p; no ratio is large] of one epoch, and of the same with one or two; relative errors.
    struct Log {
        Complex value;
        double error;
    };
    Log none(Complex p) const;
    Log one(Complex p) const;
    Log two(Complex p) const;
    // ln of bounds on these at real z = s; and what one falls like, e^{log_edges}/|p + 1| +
    // e^{log_inside}/|(p + 1)(p + 2)|.
    struct Moduli {
        double s, log_none, log_one, log_two, log_edges = 0, log_inside = 0;
        bool falls = false;
    };
    Moduli moduli(double s) const;
    void set_fall(Moduli& line) const;
    double log_beyond(const Moduli& line, double tau) const;
    Value at(Complex z, double scale, const Moduli& line) const;
    double log_panels(Complex p, double shift) const;
    double log_panels_of_two(Complex p, double shift) const;

    double mu_, epochs_, variance_, q_, steps_, first_, last_;
    LightSum all_, others_, both_;  // of all steps of an epoch, of all but one, of all but two
    Rule rule_, rule_of_two_;
    // ln of all W/T that are large and the others' mean, of one and of two; and of the latter's weight.
    std::vector<double> log_x_, log_x_of_two_, log_weight_of_two_;
};

}  // namespace hockeystick
