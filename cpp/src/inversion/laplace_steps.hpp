// T steps of one Laplace mechanism, whose transform does not decay: its atoms make delta a function with
// kinks.
//
// With a = shift/scale and w = z + 1/2,
//     M(z)^T = sum over j of e^{-Ta/2} binom(T, j) u^{T-j} v^j,   u, v = e^{+-wa} (1 +- 1/(2w)) / 2,
// the j-th term being e^{w a (T-2j)} times a rational function. The line Re z = s is followed up to Im z = Y
// only. From there the terms with a (T-2j) > eps go on to the left, where they vanish, the others to the
// right (docs/accounting/bounds.md, "Exact inversion of losses with atoms", plain Laplace noise).
#pragma once

#include <optional>
#include <vector>

#include "hockeystick/answer.hpp"
#include "inversion/contour.hpp"
#include "numerics/complex.hpp"

namespace hockeystick {

class LaplaceSteps {
public:
    // epsilon: a.
    LaplaceSteps(double epsilon, double steps);

    // Whether the tilted mass of the atoms matters at the tilt s, so that this is the way.
    bool needed_at(double s) const;

    // log_share: about ln delta - K(s) + s eps, to which the errors are fitted. Empty if that fails.
    std::optional<Answer> delta_bounds(double epsilon, double s, double log_share) const;
    // The search begins at eps = `guess`.
    std::optional<Answer> epsilon_bounds(double delta, double guess, double s, double log_share) const;

private:
    // A panel of the line: the half height of the ellipse around it, K at its ends Re z = s -+ b, and the
    // rest of what bounds the rule's error.
    struct Panel {
        double b, below, above, log_rest;
    };
    // The line up to Im z = top. Values are relative to e^{K(s) - s eps}, and without e^{-i eps Im z}.
    struct Line {
        double s, top, log_scale, log_tolerance;
        std::vector<Complex> z, value;
        std::vector<double> error;
        std::vector<Panel> panels;
    };
    struct Excess {
        Complex value;
        double size;
    };
    Excess excess(Complex z) const;  // M(z) - 1, and the size of the terms that make it up
    double log_mgf(double s) const;
    std::optional<Line> make_line(double s, double epsilon, double log_share) const;
    static Inverted along(const Line& line, double epsilon);
    // The terms from `first` on: downwards and to the left (direction -1), or upwards and to the right.
    struct Ray {
        const Line& line;
        double epsilon, first;
        int direction;
        double gap;              // the first term's loss less epsilon
        double constant, slack;  // of the first term's exponent, and its error in units of round-off
    };
    // ln of a bound on the sum of these terms' moduli where Re z is on the near side of `real`, and |w| >= w.
    double log_bound(const Ray& ray, double real, double w, double turn) const;
    bool add_ray(const Line& line, double epsilon, double first, int direction, Inverted& sum) const;
    // The half length of a panel from `begin` on, at most `half`, and its rule's error; 0 where none will do.
    double panel(const Ray& ray, double begin, double half, double& error) const;
    void add_panel(const Ray& ray, double begin, double half, Inverted& sum) const;
    // Of delta e^{s eps - K(s)}; its error is infinite where that fails.
    Inverted all(const Line& line, double epsilon) const;

    double a_, steps_;
};

}  // namespace hockeystick
