// The moments E[V^p; no W > c] of a random allocation in direction remove, at the large tilts that only its
// bulk allows (docs/mechanisms/allocation.md, "Large tilts").
//
// V^p = Gamma(p+1)/(2 pi i) integral e^{sV} s^{-p-1} ds along Re s = s0 > 0, by the trapezoidal rule in Im s,
// and E[e^{sV}; no W > c] is a power of an integral over one normal variable.
#pragma once

#include <complex>
#include <optional>
#include <span>
#include <vector>

#include "inversion/allocation_moments.hpp"

namespace hockeystick {

class CutAllocation {
public:
    // Cuts at a W that is exceeded in P-mass of at most `mass`.
    CutAllocation(const Allocation& law, double mass);

    // P-mass of the outcomes left out.
    double dropped() const { return dropped_; }

    // E[V^p] for p = power + i tau, tau increasing from 0, power >= least_power. Empty where the cut tail
    // would swamp the rest. log_scale as in allocation_moments.
    static constexpr double least_power = 24;  // speed
    std::optional<Moments> moments(double power, std::span<const double> tau, double log_scale,
                                   double tolerance) const;

    // |E[V^{power + i tau}]| <= E[V^power] (turning e^{-tau^2 mu^2/(2T)} + edge) for every tau, by the tilt
    // s0 and log_moment, a lower bound of ln E[V^power].
    struct Edge {
        double turning, edge;
    };
    Edge edge(double power, double log_moment) const;

private:
    struct Log {
        std::complex<double> value;
        double error;
    };
    // Gauss-Legendre nodes over the normal variable, for Re s and |Im s| of at most those of `most`: density,
    // W - 1, errors in units of round-off; a bound on the error of E[psi(s (W-1)/T)].
    struct Nodes {
        std::vector<double> weight, excess, slack;
        double error = 0;
    };
    Nodes nodes_for(std::complex<double> most) const;
    void add_panel(Nodes& nodes, double low, double high, std::complex<double> theta, int depth) const;
    Log log_transform(const Nodes& nodes, std::complex<double> s) const;  // ln E[e^{s(V-1)}; no W > c]
    double tilt_for(const Nodes& nodes, double power) const;

    struct Strip;
    struct Line;
    Strip strip_of(const Line& line, double width) const;
    void choose_step(Line& line, double power, std::span<const double> tau, double log_error) const;
    static double log_beyond(const Line& line, std::complex<double> p, double v);
    bool fill(Line& line, double power, double highest, double log_error) const;
    // The moment, times e^{-shift}, its error, and derivatives of its logarithm in p.
    struct Value {
        std::complex<double> value, first, second;
        double error;
    };
    Value sum(const Line& line, std::complex<double> p, double shift) const;

    Allocation law_;
    double end_, dropped_, one_step_q_, one_step_p_;  // the normal variable's cut; masses beyond it
};

}  // namespace hockeystick
