// Where to cut the outputs of a composition for the inversion, by estimates on a coarse grid.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

namespace hockeystick {

// P-mass e^{log_p} at a loss.
struct CoarseMass {
    double loss, log_p;
};

class CutSearch {
public:
    // variance: of plain Gaussian steps, K = variance s (s+1)/2.
    explicit CutSearch(double variance) : variance_(variance) { set_tilts(std::ldexp(1.0, -12), 2); }
    // A step of which there are `count`; losses increase. Empty: no transform of it is cut (or may be).
    void add(const std::vector<CoarseMass>& law, double count);

    // Leaves out the largest losses, of about this P-mass in all steps together.
    void leave_out(double log_mass);
    // Leaves out e^{-depth} of delta(epsilon), and returns an estimate of its logarithm.
    double leave_out_at(double epsilon, double depth);
    // Makes ready for cut_at(), near this epsilon.
    void focus(double epsilon);
    // The largest loss at which to cut such that delta(epsilon) of outcomes without any step beyond it is
    // at most e^{-depth} of the rest, about e^{log_delta}; empty if there is none.
    struct Cut {
        double loss, log_delta;
    };
    std::optional<Cut> cut_at(double epsilon, double depth) const;
    // About where ln delta(epsilon) is `log_delta`.
    double epsilon_at(double log_delta);

private:
    static constexpr int tilts = 34;
    // e^{log_scale} value
    struct Sum {
        double log_scale, value;
    };
    struct Step {
        double count;
        std::vector<double> loss;
        std::vector<double> log_p;
        std::size_t end;                 // of the losses that count
        std::vector<Sum> below, beyond;  // of e^{log_p + s loss}, by tilt, then by how many losses are below
    };
    const Sum& below(const Step& step, int j, std::size_t index) const;
    const Sum& beyond(const Step& step, int j, std::size_t index) const;
    // Chernoff's bounds of delta(epsilon), of both halves at a cut.
    struct Halves {
        double log_below, log_beyond;
    };
    Halves halves(double loss, double epsilon) const;

    std::array<double, tilts> chernoffs(double epsilon) const;
    void set_tilts(double lowest, double ratio);

    double variance_;
    std::vector<Step> steps_;
    std::array<double, tilts> tilt_{};
};

}  // namespace hockeystick
