// The likelihood ratio W = e^{mu g - mu^2/2} of one step of a random allocation, on either side of a cut of
// its normal variable g (docs/mechanisms/allocation.md, "Large tilts" and "One epoch in two parts").
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "numerics/complex.hpp"

namespace hockeystick {

class CutStep {
public:
    // Cuts where P(some W is larger) is about `mass`, and never more. Panels of nodes are halved at most so
    // often, for speed: their error says how far that serves.
    CutStep(const Allocation& law, double mass, int most_halvings);
    // The cut that is given.
    static CutStep at(const Allocation& law, double end, int most_halvings);

    double end() const { return end_; }            // in g
    double largest() const;                        // W - 1 there
    double beyond_q() const { return beyond_q_; }  // Q(g > end) and E_Q[W; g > end], to round-off
    double beyond_p() const { return beyond_p_; }
    double left_out() const { return left_out_of(end_); }

    // Gauss-Legendre nodes over g, for one Re s, or any from 0 to that of `most`, and |Im s| of at most its:
    // density, W - 1, errors in units of round-off; a bound on the rule's error.
    struct Nodes {
        std::vector<double> weight, excess, slack;
        double error = 0;
        // The first `small` of them lie so near W = 1 that for |s| <= T reach their moments of W - 1 do: the
        // second and higher ones, over k!, and the second with the slacks as weights.
        std::size_t small = 0;
        double reach = 0, second_slack = 0;
        std::array<double, 17> moment{};
    };
    Nodes nodes_below(Complex most) const;
    // The same beyond the cut, up to another one, or for Re s < 0.
    Nodes nodes_beyond(Complex most, double top = std::numeric_limits<double>::infinity()) const;
    double last_node() const;  // of those without a top

    struct Log {
        Complex value;
        double error;
    };
    // ln E[e^{s(V-1)}; no W > c], T times that of one step; and the same at s, s + i step, ..., so many.
    Log log_below(const Nodes& nodes, Complex s) const;
    std::vector<Log> log_below(const Nodes& nodes, Complex s, double step, std::size_t size) const;
    // E[e^{s(W-1)/T}; W > c], up to the nodes' top, of one step; and the same at s, s + i step, ...
    Log beyond(const Nodes& nodes, Complex s) const { return beyond(nodes, s, 0, 1)[0]; }
    std::vector<Log> beyond(const Nodes& nodes, Complex s, double step, std::size_t size) const;

private:
    // What the integrand is: that of log_below, which is of second order, or e^{s(W-1)/T}.
    enum class Part { below, beyond };
    CutStep(const Allocation& law, int most_halvings) : law_(law), most_halvings_(most_halvings) {}
    void set(double end);
    double left_out_of(double end) const;
    static void sum_moments(Nodes& nodes, double reach);
    // A sum over nodes, and its error in units of round-off.
    struct Sum {
        Complex value = 0;
        double error = 0;
    };
    static Sum sum_of_small(const Nodes& nodes, Complex theta);
    Log log_of(const Nodes& nodes, Complex theta, const Sum& sum) const;
    void add_panel(Nodes& nodes, double low, double high, Complex theta, Part part, int depth) const;

    Allocation law_;
    int most_halvings_;
    double end_ = 0, beyond_q_ = 0, beyond_p_ = 0;
};

// Uniform laws below the density of W, tilted by e^{theta W} and cut, that overlap nowhere else: what bounds
// its characteristic function ("One epoch in two parts").
class StepLayers {
public:
    StepLayers(const Allocation& law, double end, double theta);
    // |E[e^{(theta + i tau)(W-1)}; W <= c]| is less than at tau = 0 by at least this, for every larger tau.
    double lost(double tau) const;
    // ln of a bound on it, by the total variation of that density.
    double log_bound(double tau) const { return log_variation_ - std::log(tau); }

private:
    std::vector<double> mass_, half_width_;
    double log_variation_ = std::numeric_limits<double>::infinity();
};

}  // namespace hockeystick
