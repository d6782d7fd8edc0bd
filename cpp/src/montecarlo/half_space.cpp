// Samples of the direction Q against P from a half space (docs/montecarlo/tilted.md, section 9).
#include "montecarlo/half_space.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "montecarlo/output_window.hpp"
#include "montecarlo/weights.hpp"
#include "numerics/constants.hpp"
#include "numerics/require.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

// 1 - e^x, x <= 0, without cancellation (Kahan).
double one_minus_exp(double x) noexcept {
    const double e = portable_exp(x);
    if (e == 1) return -x;
    if (x < -1) return 1 - e;
    return (1 - e) * (x / portable_log(e));
}

double polar_normal(Stream& stream) {
    for (;;) {
        const double x = 2 * stream.uniform() - 1, y = 2 * stream.uniform() - 1;
        const double square = x * x + y * y;
        if (square < 1 && square > 0) return x * std::sqrt(-2 * portable_log(square) / square);
    }
}

}  // namespace

double half_space_value(double epsilon, double floor, double log_ratio, double log_weight,
                        double log_scale) noexcept {
    // What is not a number goes on and ends as 1.
    const double ratio = log_ratio < floor ? floor : log_ratio;
    if (epsilon + ratio >= 0) return 0;
    const double value = portable_exp(log_weight - log_scale) * one_minus_exp(epsilon + ratio);
    // The scale is the largest value of all but for rounding (1e-9: proof); what exceeds it by more shows
    // that it is not.
    return value <= 1 || value > 1 + 1e-9 ? value : 1;
}

double normal_below(Stream& stream, double threshold) {
    if (threshold > -0.4) {  // speed
        for (;;) {
            const double x = polar_normal(stream);
            if (x <= threshold) return x;
        }
    }
    // An exponential beyond the threshold, of the best rate (Robert 1995).
    const double start = -threshold, rate = 0.5 * (start + std::sqrt(start * start + 4));
    for (;;) {
        const double x = start - portable_log(stream.uniform()) / rate;
        const double excess = x - rate;
        if (portable_log(stream.uniform()) <= -0.5 * excess * excess) return -x;
    }
}

double log_normal_below(double threshold) {
    const double square = threshold * threshold;
    if (threshold <= 0) return portable_log(scaled_normal_tail(-threshold)) - 0.5 * square;
    return portable_log1p(-scaled_normal_tail(threshold) * portable_exp(-0.5 * square));
}

HalfSpaceSampler::HalfSpaceSampler(MatrixMechanism mechanism, std::vector<double> direction, double threshold,
                                   std::vector<Shift> shifts)
    : BlockSampler(std::move(mechanism), Direction::add),
      normal_(std::move(direction)),
      threshold_(threshold),
      log_probability_(log_normal_below(threshold)),
      shifts_(std::move(shifts)),
      mixture_(mechanism_, Numerator::present, true) {
    check_scheme();
    double square = 0;
    for (const double x : normal_) square += x * x;
    require(normal_.size() == steps() && std::abs(square - 1) < 1e-9,
            "direction must have one entry per step, and length 1");
    require(std::abs(threshold) <= 1e6, "threshold must be in [-1e6, 1e6]");
    check_shifts();
    for (const Shift& s : shifts_) log_probabilities_.push_back(log_normal_below(threshold_ + s.shift));
    set_size(3 + shifts_.size(), 1.7);  // speed
}

void HalfSpaceSampler::check_scheme() const {
    require(!std::holds_alternative<TruncatedBMinSep>(mechanism_.scheme),
            "the truncated scheme has no half space");
    require(!std::holds_alternative<IndependentBMinSep>(mechanism_.scheme),
            "several examples per user have no half space");
    const auto* multi = std::get_if<MultiAttribution>(&mechanism_.scheme);
    require(multi == nullptr || mechanism_.strategy.bands() <= multi->separation,
            "multi-attribution sampling needs bands <= separation");
}

void HalfSpaceSampler::check_shifts() {
    for (const Shift& s : shifts_) {
        require(s.weight <= 1 && s.shift >= 0 && s.shift <= 1e6,
                "weights must be in [0, 1], shifts in [0, 1e6]");
    }
    require(!shifts_.empty() && shifts_[0].shift == 0 && shifts_[0].weight > 0 && normalise_weights(shifts_),
            "the weights must be in [0, 1] and add up to 1, the first be positive and without shift");
}

// 16 samples: 3 + shifts rows of 16.
void HalfSpaceSampler::sample_group(const BlockStream& stream, std::size_t lane, double* rows,
                                    Draws* record) const {
    const std::size_t steps = this->steps();
    for (std::size_t s = 0; s < group_size; ++s) {
        Stream choice(stream, lane + s, Purpose::proposal);
        const double shift = shifts_[chosen(choice.uniform(), shifts_)].shift;
        // Rounding must not lead out of the half space.
        rows[s] = std::min(normal_below(choice, threshold_ + shift) - shift, threshold_);
    }
    // What the noise has along the direction is replaced.
    double along[group_size] = {};
    constexpr std::size_t chunk = 64;  // speed
    Rows noise(chunk);
    for (std::size_t from = 0; from < steps; from += chunk) {
        const std::size_t live = std::min(chunk, steps - from);
        draw_noise(stream, lane, Purpose::proposal_noise, from, live, noise[0]);
        for (std::size_t i = 0; i < live; ++i) {
            const double weight = normal_[from + i];
            for (std::size_t s = 0; s < group_size; ++s) along[s] += weight * noise[i][s];
        }
    }
    for (std::size_t s = 0; s < group_size; ++s) along[s] = rows[s] - along[s];

    const auto evaluation = mixture_.start();
    OutputWindow window(products_, steps, {stream, lane, Purpose::proposal_noise}, record);
    window.run(
        [&](std::size_t row, std::size_t from, std::size_t live) {
            for (std::size_t i = 0; i < live; ++i) {
                const double weight = normal_[from + i];
                double* const outputs = window.row(row + i);
                for (std::size_t s = 0; s < group_size; ++s) outputs[s] += weight * along[s];
            }
        },
        [&](const double* products, std::size_t, std::size_t count) {
            evaluation->add(products, count, nullptr);
        });
    evaluation->finish(rows + group_size);
    for (std::size_t s = 0; s < group_size; ++s) log_densities(rows + s);
}

// r_k/Q given the half space: e^{-shift v - shift^2/2} times the probabilities' quotient.
void HalfSpaceSampler::log_densities(double* rows) const {
    double largest = -infinity, sum = 0;
    for (std::size_t k = 0; k < shifts_.size(); ++k) {
        const double shift = shifts_[k].shift;
        const double log = -shift * (rows[0] + 0.5 * shift) + (log_probability_ - log_probabilities_[k]);
        rows[(3 + k) * group_size] = log;
        if (shifts_[k].weight > 0) largest = std::max(largest, log);
    }
    for (std::size_t k = 0; k < shifts_.size(); ++k) {
        if (shifts_[k].weight == 0) continue;
        sum += shifts_[k].weight * portable_exp(rows[(3 + k) * group_size] - largest);
    }
    rows[2 * group_size] = -(largest + portable_log(sum));
}

std::vector<double> HalfSpaceSampler::values(std::uint64_t seed, std::span<const double> epsilons,
                                             double floor, double log_scale, std::uint64_t first,
                                             std::size_t blocks) const {
    return values_of({seed, first, blocks}, epsilons, [&](double epsilon, const Rows& rows, std::size_t s) {
        const double log_weight = rows[2][s] + log_probability_;
        return half_space_value(epsilon, floor, rows[1][s], log_weight, log_scale);
    });
}

}  // namespace hockeystick
