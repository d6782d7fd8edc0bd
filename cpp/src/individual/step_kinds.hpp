// The kinds of steps that all examples share: moments of their losses, and those of a history at the tilts
// that are tabulated.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "individual/counts.hpp"
#include "inversion/mgf.hpp"
#include "inversion/saddle.hpp"

namespace hockeystick {

// Speed: the tilts that all examples share are the powers of a ratio, from 2e-19 to 4e18.
inline constexpr int lowest_tilt = -450, highest_tilt = 450;
double shared_tilt(int index);

class StepKinds {
public:
    // Throws std::invalid_argument unless each pair is a mixture of Gaussians, or null.
    explicit StepKinds(const std::vector<PairPtr>& pairs);

    struct Kind {
        PairPtr pair;
        double shift;            // the largest distance of P's and Q's centres
        double mu;               // of a plain Gaussian: K = mu^2 s (s+1) / 2
        double without;          // the loss far from the record's contribution, where many losses lie; or 0
        std::optional<Mgf> mgf;  // of anything else that reveals something

        // No example with this kind in its history wants such a tilt, and it would take very many nodes.
        bool too_large(double s) const;
        // K(s), rounded up; and with its derivatives.
        double upper(double s) const;
        Cumulant moment(double s) const;
    };
    std::size_t size() const noexcept { return kinds_.size(); }
    const Kind& operator[](std::size_t kind) const { return kinds_[kind]; }
    double deviation(std::size_t kind) const;

    // Of a history: its loss's variance, its largest loss, and the shift that its tilts are to serve.
    double variance(const History& history) const { return dot(history, variance_); }
    double max_loss(const History& history) const { return dot(history, max_loss_); }
    double shift(const History& history) const;
    // The history's K = ln M at a tilt, rounded up. What it needs is computed once, by whoever comes first.
    double log_moment(const History& history, int tilt);

private:
    std::vector<Kind> kinds_;
    std::vector<double> variance_, max_loss_;
    std::vector<std::vector<std::atomic<double>>> columns_;  // nan: not computed yet
    std::vector<std::mutex> mutex_;                          // of each transform's own tables
};

}  // namespace hockeystick
