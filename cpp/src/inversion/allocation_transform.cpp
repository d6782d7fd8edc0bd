#include "inversion/allocation_transform.hpp"

#include <algorithm>
#include <cmath>

#include "inversion/allocation_powers.hpp"
#include "inversion/allocation_turned_ratios.hpp"
#include "numerics/complex.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// speed: how large Re a is at least, and at most for the sake of high frequencies; beyond which k powers are
// dear.
constexpr double least_kappa = 3, most_kappa = 60, frequencies_per_kappa = 1.5;
constexpr double most_power = 160, largest_log = 650;  // e^{k^2 mu^2/2} must not overflow
// speed: how many tilts' moments are remembered.
constexpr std::size_t most_known = 64;
// speed: what is cut in any case; at least, of what may be left out; errors of a value and of a cut that do.
constexpr double always_cut = 1e-60, least_cut = 1e-300;
constexpr double tolerance_of_value = 1e-13, worst_error_of_cut = 1e-9;
// speed: where a line is only chosen, the error of M beside the least that its logarithm's curvature can be,
// and at most.
constexpr double share_of_curvature = 1e-4, tolerance_near = 1e-6;
// speed: of few steps the cut keeps the transform from falling: a larger share of what does not fall is worse
// than the time that moments without a cut take.
constexpr double worst_edge = 1e-3;
// speed: where V, as the line weighs it, is more than that, the tail that is kept swamps the rest.
constexpr double largest_mean = 1.3;
// speed: how often panels of a step's integral are halved; at what frequency, beside the loss's deviation,
// derivatives are taken.
constexpr int fewer_halvings = 6;
constexpr double share_of_deviation = 0.1;

// L = g/sigma + L', g ~ N(0, 1/T) under Q and independent of L': the mean of the T normal variables scales V.
class AllocationDecay final : public DecayBound {
public:
    AllocationDecay(double variance, Bulk::Edge edge, std::optional<TurnedRatios> turned, double log_mgf)
        : variance_(variance), edge_(edge), turned_(std::move(turned)), log_mgf_(log_mgf) {}
    double log_bound(double tau) const override {
        const double falling = log_falling(tau);
        if (edge_.edge == 0) return falling;
        return std::min(0.0, std::log(edge_.turning * std::exp(falling) + edge_.edge) + 1e-12);
    }
    double log_falling(double tau) const override { return -0.5 * variance_ * tau * tau * (1 - 1e-12); }
    double steep_log_bound(double tau) const override {
        const double plain = log_bound(tau);
        if (!turned_) return plain;
        // Where to cut off is looked for at the same frequencies again and again.
        const auto [known, fresh] = known_.try_emplace(tau, 0);
        if (fresh) known->second = turned_->log_bound(tau) - log_mgf_;
        return std::min(plain, known->second);
    }

private:
    double variance_;
    Bulk::Edge edge_;
    std::optional<TurnedRatios> turned_;
    double log_mgf_;
    mutable std::map<double, double> known_;  // not for several threads at once
};

}  // namespace

AllocationTransform::AllocationTransform(const Allocation& law, double cut_mass)
    : law_(law), for_cut_(cut_mass > 0) {
    if (!law.add && cut_mass >= 0)
        cut_.emplace(law, for_cut_ ? std::max(cut_mass, least_cut) : always_cut, fewer_halvings);
}

std::optional<Moments> AllocationTransform::moments(double s, double step, std::size_t size, double log_scale,
                                                    double tolerance) const {
    const double highest = step * static_cast<double>(size - 1),
                 wanted = std::clamp(highest / frequencies_per_kappa, least_kappa, most_kappa);
    const double most = std::floor(std::sqrt(2 * largest_log) / law_.mu);
    const double least = law_.add ? std::max(0.0, std::ceil(1 - s)) : std::ceil(2 + s);
    if (!(least <= std::min(most, most_power))) return {};
    const double best = std::clamp(std::ceil(wanted + (law_.add ? -s : 1 + s)), least, most);
    std::optional<Moments> found;
    // Where more powers are too many for a double.
    for (const double power : {best, std::min(best, most_power)}) {
        const double kappa = law_.add ? s + power : power - 1 - s;
        found = allocation_moments(law_, static_cast<int>(power), kappa, step, size, log_scale, tolerance);
        if (found || best <= most_power) break;
    }
    if (found && !law_.add)
        for (auto& value : found->value) value = std::conj(value);
    return found;
}

std::optional<AllocationTransform::Whole> AllocationTransform::whole(double s, Look look) const {
    const std::pair key(s, look);
    {
        const std::lock_guard guard(lock_);
        if (const auto known = known_.find(key); known != known_.end()) return known->second;
    }
    const auto found = find_whole(s, look);
    const std::lock_guard guard(lock_);
    if (known_.size() >= most_known) known_.clear();
    known_.emplace(key, found);
    return found;
}

std::optional<AllocationTransform::Whole> AllocationTransform::find_whole(double s, Look look) const {
    const double least_curvature = law_.mu * law_.mu / law_.steps,
                 tolerance = look == Look::full ? tolerance_of_value
                                                : std::clamp(share_of_curvature * least_curvature,
                                                             tolerance_of_value, tolerance_near);
    std::optional<Whole> by_cut;
    if (cut_ && look != Look::uncut && 1 + s >= least_power) {
        by_cut = find_cut(s, tolerance);
        if ((by_cut && by_cut->edge.edge < worst_edge) || for_cut_) return by_cut;
    }
    const auto found = moments(s, 0, 1, std::min(0.0, s), tolerance);
    if (!found || !(found->value[0].real() > 0)) return by_cut;
    const double value = found->value[0].real();
    // Of much noise the curvature is lost among its terms, and with it the scale of all tilts.
    return Whole{found->shift + (found->shift > 0 ? std::log(value) : std::log1p(value - 1)),
                 found->error[0] / value,
                 law_.add ? -found->first : found->first,
                 std::max(found->second, least_curvature),
                 false,
                 {1, 0}};
}

// Derivatives, which only choose a line, from the nearest frequencies.
std::optional<AllocationTransform::Whole> AllocationTransform::find_cut(double s, double tolerance) const {
    const Bulk bulk(law_, *cut_);
    const PowerLine line(bulk, 1 + s, true);
    if (line.empty() || !(1 + s < largest_mean * line.theta())) return {};
    const double variance = std::expm1(std::min(law_.mu * law_.mu, 1.0)) / law_.steps,
                 tau = std::min(share_of_deviation / std::sqrt(variance), s);
    // The line's bound is up to about sqrt(p) times the value.
    const PowerLine::Row row = line.row(tau, 2, std::log(tolerance) - 0.5 * std::log1p(s));
    if (row.empty()) return {};
    const double value = row.value[0].real();
    if (!(row.error[0] < std::max(worst_error_of_cut, 8 * tolerance) * value)) return {};
    const double about = std::log((1 + s) / line.theta());  // ln V, as it is weighed
    const Complex turned = std::log(row.value[1] / value * std::polar(1.0, -tau * about));
    const double more = std::log(value), log = line.log_upper() + more,
                 error = row.error[0] / value + 4 * u * (std::abs(line.log_upper()) + std::abs(more));
    return Whole{log,
                 error,
                 about + turned.imag() / tau,
                 -2 * turned.real() / (tau * tau),
                 true,
                 bulk.edge(1 + s, line.theta(), log - error - 1e-12)};
}

Cumulant AllocationTransform::bound_of(const std::optional<Whole>& whole) {
    if (!whole) return {infinity, 0, 0, infinity};
    return {whole->log, whole->first, std::max(whole->second, 0.0),
            whole->log + std::log1p(whole->error) + 4 * u * std::abs(whole->log)};
}

Cumulant AllocationTransform::at(double s) const { return bound_of(whole(s, Look::near)); }

// What is more than the cut law bounds it, too.
Cumulant AllocationTransform::for_line(double s, double line) const {
    const auto all = whole(line, Look::full);
    if (!all || !lays(*all)) return bound_of(std::nullopt);
    if (s == line) return bound_of(all);
    return all->by_cut ? at(s) : bound_of(whole(s, Look::uncut));
}

Transform::Row AllocationTransform::row(double s, double step, std::size_t size, double tolerance) const {
    tolerance = std::max(tolerance, 1e-15);
    const auto all = whole(s, Look::full);
    if (!all || !lays(*all)) return {};
    Row row;
    if (all->by_cut) {
        const Bulk bulk(law_, *cut_);
        const PowerLine line(bulk, 1 + s, true);
        PowerLine::Row found = line.row(step, size, std::log(tolerance) + all->log - line.log_upper());
        if (found.empty()) return {};
        row.shift = all->log > 20 ? line.log_upper() : 0;
        const double unit = std::exp(line.log_upper() - row.shift);
        for (std::size_t j = 0; j < size; ++j) {
            found.value[j] *= unit;
            found.error[j] = unit * found.error[j] + 4 * u * std::abs(found.value[j]);
        }
        row.value = std::move(found.value), row.error = std::move(found.error);
    } else {
        auto found = moments(s, step, size, std::max(0.0, all->log - 1e-6), tolerance);
        if (!found) return {};
        row = {found->shift, std::move(found->value), std::move(found->error)};
    }
    for (std::size_t j = 0; j < size; ++j) {
        // Where hardly anything is left, what rounds is the 1.
        row.error[j] += u * (4 * std::abs(row.value[j]) + 1);
        row.value[j] -= 1.0;
    }
    return row;
}

bool AllocationTransform::dear_at(double s) const {
    const auto all = whole(s, Look::full);
    return dear() && !(all && all->by_cut);
}

std::unique_ptr<DecayBound> AllocationTransform::decay(double s, double log_mgf) const {
    const auto all = whole(s, Look::full);
    std::optional<TurnedRatios> turned;
    if (all && !all->by_cut && !law_.add) turned.emplace(law_, 1 + s);
    return std::make_unique<AllocationDecay>(law_.mu * law_.mu / law_.steps,
                                             all ? all->edge : Bulk::Edge{1, 0}, std::move(turned), log_mgf);
}

}  // namespace hockeystick
