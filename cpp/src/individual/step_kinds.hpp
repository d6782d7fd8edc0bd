// The kinds of steps that all examples share: moments of their losses, and those of a history at the tilts
// that are tabulated (docs/individual/individual.md, "Individual ε of DP-SGD").
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <limits>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "hockeystick/mutex.hpp"
#include "hockeystick/pairs.hpp"
#include "individual/counts.hpp"
#include "inversion/mgf.hpp"
#include "inversion/saddle.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {

// Speed: the tilts that all examples share are the powers of a ratio, from 2e-19 to 4e18.
inline constexpr int lowest_tilt = -450, highest_tilt = 450;
inline double shared_tilt(int index) { return std::pow(1.1, index); }

class StepKinds {
public:
    // Throws std::invalid_argument unless each pair is a mixture of Gaussians, or null.
    explicit StepKinds(const std::vector<PairPtr>& pairs) : mutex_(pairs.size()) {
        for (const auto& pair : pairs) {
            double mu = 0;
            std::optional<Mgf> mgf;
            if (pair) {
                mu = plain_gaussian_mu(*pair);
                const auto mixtures = pair->gaussian_mixtures();
                if (mixtures.empty())
                    throw std::invalid_argument("pairs must be mixtures of Gaussians, or null");
                if (mu == 0) mgf.emplace(mixtures, 1e-14);
            }
            double shift = mu;
            if (mgf)
                for (const auto& part : mgf->parts()) shift = std::max(shift, part.p.high() - part.q.low());
            // Squares of rates and shifts underflow: 0 is the variance of those alone that reveal nothing.
            const double variance = mgf ? mgf->at(0).second : mu * mu;
            variance_.push_back(shift > 0 ? std::max(variance, std::numeric_limits<double>::min())
                                          : variance);
            max_loss_.push_back(pair ? std::max(0.0, pair->max_loss()) : 0.0);
            kinds_.push_back({pair, shift, mu, pair ? loss_without(*pair) : 0.0, std::move(mgf)});
        }
        for (int i = lowest_tilt; i <= highest_tilt; ++i)
            for (auto& value : columns_.emplace_back(size()))
                value = std::numeric_limits<double>::quiet_NaN();
    }

    struct Kind {
        PairPtr pair;
        double shift;            // the largest distance of P's and Q's centres
        double mu;               // of a plain Gaussian: K = mu^2 s (s+1) / 2
        double without;          // the loss far from the record's contribution, where many losses lie; or 0
        std::optional<Mgf> mgf;  // of anything else that reveals something

        // No example with this kind in its history wants such a tilt, and it would take very many nodes.
        bool too_large(double s) const { return mgf && s * shift > most_shift; }
        // K(s), rounded up; and with its derivatives.
        double upper(double s) const {
            if (too_large(s)) return infinity;
            double k = mgf ? mgf->at(s).upper * (1 + 4 * u) : 0.5 * mu * mu * s * (s + 1) * (1 + 8 * u);
            // So little noise takes too many nodes; under "add" no loss is large.
            if (mgf && !(k < infinity)) k = std::min(of_centres(*mgf, s), s * pair->max_loss() * (1 + 4 * u));
            return shift > 0 ? k + std::numeric_limits<double>::denorm_min() : k;
        }
        Cumulant moment(double s) const {
            if (too_large(s)) return {infinity, infinity, infinity, infinity};
            return mgf ? mgf->at(s) : gaussian_steps(mu * mu, s);
        }
    };
    std::size_t size() const noexcept { return kinds_.size(); }
    const Kind& operator[](std::size_t kind) const { return kinds_[kind]; }
    double deviation(std::size_t kind) const { return std::sqrt(variance_[kind]); }

    // Of a history: its loss's variance, its largest loss, and the shift that its tilts are to serve.
    double variance(const History& history) const { return dot(history, variance_); }
    double max_loss(const History& history) const { return dot(history, max_loss_); }
    double shift(const History& history) const {
        double shift = std::sqrt(variance(history));
        for (const Counted& each : history) shift = std::max(shift, 0.125 * kinds_[each.kind].shift);
        return shift;
    }
    // The history's K = ln M at a tilt, rounded up. What it needs is computed once, by whoever comes first.
    double log_moment(const History& history, int tilt) {
        std::vector<std::atomic<double>>& column = columns_[static_cast<std::size_t>(tilt - lowest_tilt)];
        const auto upper = [&](std::size_t kind) {
            double value = column[kind].load(std::memory_order_relaxed);
            if (std::isnan(value)) {
                const std::lock_guard lock(mutex_[kind]);
                value = kinds_[kind].upper(shared_tilt(tilt));
                column[kind].store(value, std::memory_order_relaxed);
            }
            return value;
        };
        return sum_over(history, size(), upper) * (1 + 1e-12);
    }

private:
    // Proof: exponents, at most 2 most_shift^2, are squares of differences; no sum has as many as 1e4 terms.
    static constexpr double rounding_of_centres = 1e-11;
    // Speed: how far a tilt may move the noise, in its standard deviations.
    static constexpr double most_shift = 1e4;

    // ln of the sum of w_i v_j e^{(p_i - q_j)^2 s (s+1)/2}, over centres of P and Q and their weights, which
    // by joint convexity is no less than K(s).
    static double of_centres(const Mgf& mgf, double s) {
        const double variance = 0.5 * s * (s + 1);
        double largest = 0;
        for (const MixturePart& part : mgf.parts()) {
            const double far = std::max(part.p.high() - part.q.low(), part.q.high() - part.p.low());
            largest = std::max(largest, far * far * variance);
        }
        double excess = 0, k = -infinity;  // of the sum over 1, where that is small; its logarithm
        for (const MixturePart& part : mgf.parts())
            for (std::size_t i = 0; i < part.p.shifts().size(); ++i)
                for (std::size_t j = 0; j < part.q.shifts().size(); ++j) {
                    const double far = part.p.shifts()[i] - part.q.shifts()[j], rise = far * far * variance;
                    if (largest < 1)
                        excess += part.weight * part.p.weights()[i] * part.q.weights()[j] * std::expm1(rise);
                    else
                        k = log_add(k, std::log(part.weight) + std::log(part.p.weights()[i]) +
                                           std::log(part.q.weights()[j]) + rise);
                }
        if (largest < 1) k = std::log1p(excess);
        return k + rounding_of_centres * (largest < 1 ? k : largest);
    }

    // A sampled pair's loss where the record leaves no trace: ln(1-q), or -ln(1-q) for "add".
    static double loss_without(const Pair& pair) {
        const auto mixtures = pair.gaussian_mixtures();
        if (mixtures.size() != 1) return 0;
        const auto weight_at_0 = [](const std::vector<double>& shift, const std::vector<double>& weight) {
            return shift.size() == 2 && shift.front() == 0 ? std::log(weight.front()) : 0.0;
        };
        const GaussianMixtures& m = mixtures.front();
        return weight_at_0(m.p_shift, m.p_weight) - weight_at_0(m.q_shift, m.q_weight);
    }

    std::vector<Kind> kinds_;
    std::vector<double> variance_, max_loss_;
    std::vector<std::vector<std::atomic<double>>> columns_;  // nan: not computed yet
    std::vector<Mutex> mutex_;                               // of each transform's own tables
};

}  // namespace hockeystick
