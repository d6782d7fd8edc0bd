#include "inversion/allocation_transform.hpp"

#include <algorithm>
#include <cmath>

#include "numerics/complex.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// speed: how large Re a is at least, and at most for the sake of high frequencies; beyond which k powers are
// dear.
constexpr double least_kappa = 3, most_kappa = 16, frequencies_per_kappa = 10;
constexpr double most_power = 160, largest_log = 650;  // e^{k^2 mu^2/2} must not overflow
// speed: the difference quotients of K.
constexpr double wide_step = 0.05;
constexpr double tolerance_of_value = 1e-13, least_cut = 1e-60, worst_error_of_cut = 1e-9;

// L = g/sigma + L', g ~ N(0, 1/T) under Q and independent of L': the mean of the T normal variables scales V.
class AllocationDecay final : public DecayBound {
public:
    AllocationDecay(double variance, CutAllocation::Edge edge) : variance_(variance), edge_(edge) {}
    double log_bound(double tau) const override {
        const double falling = log_falling(tau);
        if (edge_.edge == 0) return falling;
        return std::min(0.0, std::log(edge_.turning * std::exp(falling) + edge_.edge) + 1e-12);
    }
    double log_falling(double tau) const override { return -0.5 * variance_ * tau * tau * (1 - 1e-12); }

private:
    double variance_;
    CutAllocation::Edge edge_;
};

}  // namespace

AllocationTransform::AllocationTransform(const Allocation& law, double cut_mass) : law_(law) {
    if (!law.add) cut_.emplace(law, std::max(cut_mass, least_cut));
}

std::optional<Moments> AllocationTransform::moments(double s, std::span<const double> tau, double log_scale,
                                                    double tolerance) const {
    const double wanted = std::clamp(tau.back() / frequencies_per_kappa, least_kappa, most_kappa);
    const double most = std::min(most_power, std::floor(std::sqrt(2 * largest_log) / law_.mu));
    const double least = law_.add ? std::max(0.0, std::ceil(1 - s)) : std::ceil(2 + s);
    if (!(least <= most)) return {};
    const double power =
        std::clamp(std::ceil(wanted + (law_.add ? -s : 1 + s)), least, std::max(most, least));
    const double kappa = law_.add ? s + power : power - 1 - s;
    auto found = allocation_moments(law_, static_cast<int>(power), kappa, tau, log_scale, tolerance);
    if (found && !law_.add)
        for (auto& value : found->value) value = std::conj(value);
    return found;
}

namespace {

constexpr double zero_frequency[] = {0.0};

}  // namespace

std::optional<AllocationTransform::Whole> AllocationTransform::by_cut(double s) const {
    if (!cut_) return {};
    const auto found = cut_->moments(1 + s, zero_frequency, 0, tolerance_of_value);
    if (!found || !(found->error[0] < worst_error_of_cut * found->value[0].real())) return {};
    return Whole{std::log1p(found->value[0].real() - 1), found->error[0] / found->value[0].real()};
}

std::optional<AllocationTransform::Whole> AllocationTransform::whole(double s) const {
    if (const auto cut = by_cut(s)) return cut;
    const auto found = moments(s, zero_frequency, std::min(0.0, s), tolerance_of_value);
    if (!found || !(found->value[0].real() > 0)) return {};
    const double value = found->value[0].real();
    return Whole{found->shift + (found->shift > 0 ? std::log(value) : std::log1p(value - 1)),
                 found->error[0] / value};
}

Cumulant AllocationTransform::at(double s) const {
    const double wide = wide_step * std::max(s, 1.0);
    const auto low = whole(s - wide), middle = whole(s), high = whole(s + wide);
    if (!low || !middle || !high) return {infinity, 0, 0, infinity};
    const double first = (high->log - low->log) / (2 * wide);
    const double second = (high->log + low->log - 2 * middle->log) / (wide * wide);
    return {middle->log, first, std::max(second, 0.0),
            middle->log + std::log1p(middle->error) + 4 * u * std::abs(middle->log)};
}

Transform::Row AllocationTransform::row(double s, double step, std::size_t size, double tolerance) const {
    std::vector<double> tau(size);
    for (std::size_t j = 0; j < size; ++j) tau[j] = step * static_cast<double>(j);
    tolerance = std::max(tolerance, 1e-15);
    std::optional<Moments> found;
    if (const auto cut = by_cut(s))
        found = cut_->moments(1 + s, tau, cut->log, tolerance);
    else if (const auto all = whole(s))
        found = moments(s, tau, std::max(0.0, all->log - 1e-6), tolerance);
    if (!found) return {};
    Row row{found->shift, std::move(found->value), std::move(found->error)};
    for (std::size_t j = 0; j < size; ++j) {
        row.error[j] += 4 * u * std::abs(row.value[j]);
        row.value[j] -= 1.0;
    }
    return row;
}

std::unique_ptr<DecayBound> AllocationTransform::decay(double s, double) const {
    const auto cut = by_cut(s);
    return std::make_unique<AllocationDecay>(
        law_.mu * law_.mu / law_.steps,
        cut ? cut_->edge(1 + s, cut->log - cut->error - 1e-12) : CutAllocation::Edge{1, 0});
}

}  // namespace hockeystick
