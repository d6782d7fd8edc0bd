#include "inversion/inversion.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "inversion/direct_inversion.hpp"

namespace hockeystick {
namespace {

using Budget = DirectInversion::Budget;

// All of these are for speed. What the first attempt may take where layers may do better, in nodes times
// frequencies, what the attempt after them may take, and what the first must leave out less than.
constexpr double few_products = 1e5, some_products = 2e6;
constexpr double near_exact = 1e-10;
// The shares of delta that the largest losses may take which are left out at last.
constexpr double shares[] = {1e-12, 1e-9, 1e-6, 1e-4};
constexpr int most_rounds = 12;

void keep(std::optional<Answer>& best, const std::optional<Answer>& answer) {
    if (relative_gap(answer) < relative_gap(best)) best = answer;
}

}  // namespace

Inversion::Inversion(const Composition& composition, double accuracy)
    : composition_(composition),
      direct_(std::make_unique<DirectInversion>(composition)),
      narrow_gap_(0.1 * accuracy),
      layer_tolerance_(std::clamp(3e-3 * narrow_gap_, 1e-11, 1e-6)) {}
Inversion::~Inversion() = default;

std::unique_ptr<Inversion> Inversion::of(const Composition& composition, double accuracy) {
    std::unique_ptr<Inversion> inversion(new Inversion(composition, accuracy));
    return inversion->direct_->answers() ? std::move(inversion) : nullptr;
}

// dropped: the mass that was left out last, so that nothing is asked twice.
template <class Ask>
std::optional<Answer> Inversion::without_largest(double delta, double& dropped, Ask ask) const {
    std::optional<Answer> best;
    for (const double share : shares) {
        if (relative_gap(best) < narrow_gap_ || !(delta * share > 0)) break;
        const DirectInversion cut(composition_, delta * share);
        if (cut.dropped() != std::exchange(dropped, cut.dropped())) keep(best, ask(cut));
    }
    return best;
}

std::optional<Answer> Inversion::epsilon_bounds(double delta) const {
    const bool layers = direct_->has_layers();
    std::optional<Answer> best;
    // It leaves out what is not worth its nodes, unless delta is that small.
    const bool whole = direct_->dropped() <= 1e-9 * delta;
    if (whole)
        best = direct_->epsilon_bounds(delta, layers ? Budget{near_exact, few_products, true} : Budget{});
    if (!direct_->can_cut() || relative_gap(best) < narrow_gap_) return best;
    if (layers) {
        keep(best, direct_->layers(layer_tolerance_).epsilon_bounds(delta));
        if (relative_gap(best) < narrow_gap_) return best;
        if (whole) keep(best, direct_->epsilon_bounds(delta, {}));
        if (relative_gap(best) < narrow_gap_) return best;
    }
    double dropped = direct_->dropped();
    keep(best, without_largest(delta, dropped,
                               [&](const DirectInversion& cut) { return cut.epsilon_bounds(delta, {}); }));
    return best;
}

std::optional<Answer> Inversion::delta_bounds(double epsilon) const {
    const bool layers = direct_->has_layers();
    std::optional<Answer> best =
        direct_->delta_bounds(epsilon, layers ? Budget{near_exact, few_products, true} : Budget{});
    if (!direct_->can_cut() || relative_gap(best) < narrow_gap_) return best;
    if (layers) {
        // delta is wanted to ten digits.
        keep(best, direct_->layers(std::min(layer_tolerance_, 1e-12)).delta_bounds(epsilon));
        if (relative_gap(best) >= near_exact)
            keep(best,
                 direct_->delta_bounds(epsilon, {std::min(narrow_gap_, relative_gap(best)), some_products}));
        if (relative_gap(best) < narrow_gap_) return best;
        keep(best, direct_->delta_bounds(epsilon, {}));
    }
    // What is cut must be little beside a delta that is not known yet.
    double delta = best ? best->upper : std::exp(direct_->log_delta(epsilon)), dropped = direct_->dropped();
    for (int round = 0; round < most_rounds && relative_gap(best) >= narrow_gap_ && delta > 0; ++round) {
        const auto found = without_largest(
            delta, dropped, [&](const DirectInversion& cut) { return cut.delta_bounds(epsilon, {}); });
        if (!found) break;
        keep(best, found);
        if (found->upper > 0.1 * delta) break;
        delta = found->upper;
    }
    return best;
}

std::vector<std::optional<Answer>> Inversion::delta_curve(std::span<const double> epsilons) const {
    auto curve = direct_->delta_curve(epsilons, direct_->has_layers() ? Budget{narrow_gap_} : Budget{});
    for (std::size_t i = 0; i < curve.size(); ++i)
        if (!(relative_gap(curve[i]) < narrow_gap_)) curve[i] = delta_bounds(epsilons[i]);
    return curve;
}

double Inversion::chernoff_epsilon(double delta) const {
    double best = direct_->chernoff_epsilon(delta);
    if (delta * 0.1 > 0)
        best = std::min(best, DirectInversion(composition_, 0.1 * delta).chernoff_epsilon(delta));
    return best;
}

double Inversion::chernoff_delta(double epsilon) const { return direct_->chernoff_delta(epsilon); }

bool Inversion::surely_below(double epsilon, double delta) const {
    return direct_->surely_below(epsilon, delta);
}

}  // namespace hockeystick
