#include "inversion/epochs.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "hockeystick/parallel.hpp"
#include "inversion/allocation_parts.hpp"
#include "inversion/allocation_powers.hpp"
#include "inversion/allocation_transform.hpp"
#include "inversion/epoch_line.hpp"
#include "inversion/epoch_split.hpp"
#include "inversion/large_ratios.hpp"
#include "inversion/saddle.hpp"
#include "numerics/constants.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

// All of these are for speed. Smaller deltas and larger losses are left to others.
constexpr double least_delta = 1e-60, largest_loss = 30;
constexpr double least_tilt = 0.1, largest_tilt_of_bulk = 1e6;
// Where this is the way: a narrow bulk, and a W of not much less than delta's P-mass that is large beside it.
// Where that is very large, one ratio decides alone.
constexpr double small_spread = 0.25, rarer = 1e-3, beside_spread = 0.1;
// Of several kinds the whole transform is slower, and nothing is known of a ratio alone.
constexpr double fair_spread = 0.6, hardly_beside_spread = 0.01, largest_of_several = 5;
// Their bounds are near enough then; how closely a first guess is looked for.
constexpr double near_bounds = 3e-10, close_guess = 1e-2, lesser_guess = 0.7;
constexpr int most_guesses = 1;
constexpr double large_jump = 3.5, series_jump = 1.5, good_series = 1e-7, fair_series = 1e-5,
                 poor_series = 3e-2;
// From so many steps on nothing else does better than a poor series.
constexpr double very_many_steps = 5e4;
// No series serves where the Gaussian steps' loss varies as much; its moments would take ever more terms.
constexpr double most_variance = 4;
// The W/T that are tried where one decides alone, how far beyond the loss two are looked for, and tilts for
// that beside the slope of ln delta.
constexpr double cuts_alone[] = {0.1, 0.15, 0.25, 0.35, 0.5, 0.7};
constexpr double beyond_loss = 1.5, tilts_of_pairs[] = {0.7, 1.0, 1.3};

}  // namespace

double log_pairs(const Allocation& law, double epochs, double variance, const Bulk& bulk,
                 const Ladder& ladder, double power) {
    const double t = law.steps;
    const CutStep& first = ladder.cut(0);
    double one = -infinity, two = -infinity;
    for (std::size_t i = 0; i < ladder.parts().size(); ++i) {
        const double theta = best_theta(ladder.parts()[i], power), top = ladder.top(i);
        one = log_add(one, log_power_bound(ladder.parts()[i], power, theta));
        // The largest W is in this part, another one in this or a lower one, and no other is above.
        const auto log_beyond = [&](const CutStep& cut) {
            const CutStep::Log sum = cut.beyond(cut.nodes_beyond(theta, top), theta);
            return std::log(sum.value.real() + sum.error);
        };
        const CutStep::Log below = first.log_below(first.nodes_below(theta), theta);
        const double r = log_beyond(first), each = log_add((below.value.real() + below.error) / t, r) + 8 * u;
        two = log_add(two, power * (std::log(power / theta) - 1) + theta + 2 * std::log(t) + (t - 2) * each +
                               log_beyond(ladder.cut(i)) + r);
    }
    const double whole = log_add(log_power_bound(bulk, power, best_theta(bulk, power)), one);
    return log_add(std::log(epochs) + two + (epochs - 1) * whole,
                   std::log(0.5 * epochs * (epochs - 1)) + 2 * one + (epochs - 2) * whole) +
           gaussian_steps(variance, power - 1).upper + 1e-6;
}

Epochs::Epochs(std::unique_ptr<EpochSplit> split) : split_(std::move(split)) {}
Epochs::~Epochs() = default;

std::unique_ptr<Epochs> Epochs::of(const Composition& composition) {
    auto split = EpochSplit::of(composition);
    if (!split) return nullptr;
    std::unique_ptr<Epochs> out(new Epochs(std::move(split)));
    std::size_t others = 0;
    for (const auto& [pair, steps] : composition) {
        const double k = static_cast<double>(steps), mu = plain_gaussian_mu(*pair);
        out->variance_ += k * mu * mu;
        if (mu != 0) continue;
        ++others;
        if (const auto law = pair->allocation()) out->law_ = *law, out->count_ = k;
    }
    out->alone_ = others == 1;
    return out;
}

bool Epochs::suits(double delta) const {
    const double spread = split_->spread();
    return delta > least_delta && delta < 1 &&
           (spread < (alone_ ? small_spread : fair_spread) ||
            (alone_ && split_->jump(delta) > series_jump + spread)) &&
           split_->jump(rarer * delta) >
               (alone_ ? beside_spread : hardly_beside_spread) * spread * std::sqrt(-2 * std::log(delta));
}

double Epochs::guess(double epsilon) const { return split_->guess(epsilon); }

// Where W/T is that.
double Epochs::place(double ratio) const { return std::log(ratio * law_.steps) / law_.mu + 0.5 * law_.mu; }

// One W > B alone, at the B where the error is least; none; and two or more: of those beyond the ladder their
// P-mass.
std::optional<SplitWithMore> Epochs::by_series(double epsilon, double delta, double worst) const {
    std::optional<SplitWithMore> best;
    if (!(variance_ < most_variance)) return best;
    for (const double w : cuts_alone) {
        const CutStep step = CutStep::at(law_, place(w), most_halvings);
        if (!(step.end() > law_.mu && 2 * w < std::expm1(epsilon))) continue;
        const LargeRatios large(law_, step, count_, variance_);
        const Inverted at = large.at(epsilon);
        double error = (at.quadrature + at.round_off) / at.value;
        if (!(at.value > 0 && error < worst)) continue;
        const Bulk bulk(law_, step);
        const double top = place(std::exp(epsilon + beyond_loss)), t = law_.steps,
                     both = count_ * count_ * (gaussian_tail(top - law_.mu) + t * gaussian_tail(top)) *
                            (step.beyond_p() + t * step.beyond_q());
        const Ladder ladder(law_, step, top);
        double log_two = infinity, tilt = 0;
        for (const double share : tilts_of_pairs) {
            const double s = share * at.slope / at.value;
            // proof: Chernoff's bound is one for positive tilts.
            if (!(s > 0)) continue;
            const double log = log_pairs(law_, count_, variance_, bulk, ladder, 1 + s) + log_chernoff(s);
            if (log - s * epsilon < log_two - tilt * epsilon) log_two = log, tilt = s;
        }
        const auto more = [=](double e) { return both + std::exp(log_two - tilt * e); };
        error += more(epsilon) / at.scaled(at.value);
        if (!(error < worst)) continue;
        const auto parts = EpochKind::of_allocation(law_, count_)->parts(step.end(), step.end());
        auto line = EpochLine({{parts.get(), count_}}, variance_, false)
                        .contour(epsilon, std::log(delta), least_tilt, largest_tilt_of_bulk);
        if (!line) continue;
        worst = error;
        best = SplitWithMore{{{std::move(*line)}, large}, more};
    }
    return best;
}

// delta: about that.
std::optional<SplitWithMore> Epochs::parts_at(double epsilon, double delta) const {
    if (!(delta > least_delta && epsilon < largest_loss)) return {};
    interruption_point();
    const bool large = alone_ && epsilon > series_jump,
               three = alone_ ? split_->spread() < small_spread && epsilon < large_jump
                              : epsilon < largest_of_several;
    if (large && three)
        if (auto parts = by_series(epsilon, delta, good_series)) return parts;
    if (three)
        if (auto parts = split_->in_three(epsilon, delta)) return parts;
    const double worst = law_.steps >= very_many_steps ? poor_series : fair_series;
    return large ? by_series(epsilon, delta, worst) : std::nullopt;
}

std::optional<Answer> Epochs::delta_bounds(double epsilon) const {
    std::optional<SplitWithMore> parts;
    return delta_in_rounds(epsilon, guess(epsilon), parts,
                           [&](double about) { return parts_at(epsilon, about); });
}

std::optional<Answer> Epochs::epsilon_bounds(double delta) const {
    if (!(delta > least_delta && delta < 1)) return {};
    const double spread = split_->spread();
    double first = std::max(spread * std::sqrt(-2 * std::log(delta)), split_->jump(delta));
    // Of several kinds both matter.
    if (!alone_ && guess(first) < delta) {
        for (double low = 0, high = first; high - low > close_guess * high;) {
            first = 0.5 * (low + high);
            (guess(first) < delta ? high : low) = first;
        }
    }
    const auto at = [&](double epsilon) { return parts_at(epsilon, delta); };
    auto answer = epsilon_in_rounds(delta, first, at, alone_ ? 0 : near_bounds);
    // A guess may be too large to have lines.
    for (int i = 0; !alone_ && !answer && i < most_guesses; ++i)
        answer = epsilon_in_rounds(delta, first *= lesser_guess, at, near_bounds);
    return answer;
}

}  // namespace hockeystick
