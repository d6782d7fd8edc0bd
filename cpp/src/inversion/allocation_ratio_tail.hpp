// E[e^{theta (W-1)}; W > c] of one likelihood ratio W = e^{mu g - mu^2/2} at high frequencies Im theta, as an
// integral along W = c (1 + ix), where it does not turn but falls (docs/mechanisms/allocation.md, "Epochs in
// three parts", "Between two cuts").
#pragma once

#include <cstddef>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "inversion/allocation_step.hpp"
#include "numerics/complex.hpp"

namespace hockeystick {

class RatioTail {
public:
    // c: where the normal variable is g. For this Re theta and Im theta from `low` to `high`.
    RatioTail(const Allocation& law, double g, double real, double low, double high);
    // From which g on these are high frequencies; infinite where there is too much noise.
    static double first_place(const Allocation& law, double low);

    // At theta, theta + i step, ..., so many.
    std::vector<CutStep::Log> row(Complex theta, double step, std::size_t size) const;

private:
    void add_panel(double from, double to, double real, double low, double high);

    Allocation law_;
    double g_, c_;
    std::vector<double> x_, slack_;
    std::vector<Complex> weight_;
    double error_ = 0;
};

// What lies beyond a place of g where Re s < 0, by s = T theta: as of CutStep::beyond.
class BeyondPlace {
public:
    BeyondPlace(const Allocation& law, double g, double least, Complex most)
        : steps_(law.steps), tail_(law, g, most.real() / steps_, least / steps_, most.imag() / steps_) {}
    std::vector<CutStep::Log> row(Complex s, double step, std::size_t size) const {
        return tail_.row(s / steps_, step / steps_, size);
    }

private:
    double steps_;
    RatioTail tail_;
};

// What lies between two places, whatever Re s is.
class BetweenPlaces {
public:
    BetweenPlaces(const Allocation& law, double g, double top, double least, Complex most)
        : from_(law, g, least, most), to_(law, top, least, most) {}
    std::vector<CutStep::Log> row(Complex s, double step, std::size_t size) const {
        std::vector<CutStep::Log> out = from_.row(s, step, size);
        const std::vector<CutStep::Log> to = to_.row(s, step, size);
        for (std::size_t j = 0; j < size; ++j) {
            out[j].value -= to[j].value;
            out[j].error += to[j].error;
        }
        return out;
    }

private:
    BeyondPlace from_, to_;
};

}  // namespace hockeystick
