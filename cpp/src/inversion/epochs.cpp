#include "inversion/epochs.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "hockeystick/parallel.hpp"
#include "inversion/allocation_large_ratios.hpp"
#include "inversion/allocation_parts.hpp"
#include "inversion/allocation_powers.hpp"
#include "inversion/allocation_ratios_apart.hpp"
#include "inversion/allocation_transform.hpp"
#include "inversion/epoch_line.hpp"
#include "inversion/epoch_split.hpp"
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
// Of fewer steps the parts fall slowly where a ratio alone is worth more than so much a step, and the whole
// transform is asked before.
constexpr double enough_steps = 35, loss_per_step = 0.1;
// Of several kinds the whole transform is slower, and nothing is known of a ratio alone.
constexpr double fair_spread = 0.6, hardly_beside_spread = 0.01, largest_of_several = 5;
// How near bounds are near enough; how closely a first guess is looked for.
constexpr double near_bounds = 3e-10;
constexpr int halvings = 10;
constexpr double large_jump = 3.5, series_jump = 1.5;
// Errors of a series beside delta that make it better than three parts, than the whole transform, or than
// nothing; with so many times as much one cut is no better than all others.
constexpr double good_series = 1e-7, close_series = 1e-6, poor_series = 3e-2, hopeless = 10;
// A share of delta that no tilt need make smaller; where less than a share of the error is that of one ratio,
// lesser cuts are worse.
constexpr double hardly = 1e-9, share_of_one = 0.5;
// No series serves where the Gaussian steps' loss varies as much; its moments would take ever more terms.
constexpr double most_variance = 4;
// The W/T that are tried as what is large, and as shares of e^eps - 1 where one decides alone.
constexpr double cuts_alone[] = {0.7, 0.5, 0.35, 0.25, 0.15, 0.1},
                 cuts_of_loss[] = {0.15, 0.25, 0.35, 0.4, 0.45};
// Errors of a series beside the least, or at all, at which its cut may do.
constexpr double fair_share = 20, good_enough = 1e-5;
// How far beyond the loss ratios in several epochs are looked for; tilts beside the slope of ln delta, and
// how closely the best is looked for.
constexpr double beyond_loss = 2.5, least_share = 0.5, largest_share = 8, close_tilt = 0.1;

// The bound e^{log - tilt eps} on a part of delta.
struct Chernoff {
    double log = -infinity, tilt = 0;
    double log_at(double epsilon) const { return log - tilt * epsilon; }
    double at(double epsilon) const { return std::exp(log_at(epsilon)); }
};

}  // namespace

// The cut of the epoch that decides, what it comes to with one ratio beyond that, a bound on that of two, and
// the relative error of both.
struct Epochs::Lone {
    CutStep own;
    LargeRatios large;
    Inverted at;
    double pairs, error;
};

struct Epochs::Attempt {
    std::optional<SplitWithMore> parts;  // none where that is worse than what was asked for
    double error;                        // beside delta, or what is known of it
};

double log_several(const Allocation& law, double epochs, double variance, const Bulk& bulk,
                   const Ladder& ladder, double power, bool apart) {
    const double t = law.steps;
    const CutStep& first = ladder.cut(0);
    double one = -infinity, two = -infinity, three = -infinity;
    for (std::size_t i = 0; i < ladder.parts().size(); ++i) {
        const double theta = best_theta(ladder.parts()[i], power), top = ladder.top(i);
        one = log_add(one, log_power_bound(ladder.parts()[i], power, theta));
        // The largest W is in this part, one or two more are in this or a lower one, and no other is above.
        const auto log_beyond = [&](const CutStep& cut) {
            const CutStep::Log sum = cut.beyond(cut.nodes_beyond(theta, top), theta);
            return std::log(sum.value.real() + sum.error);
        };
        const CutStep::Log below = first.log_below(first.nodes_below(theta), theta);
        const double r = log_beyond(first), each = log_add((below.value.real() + below.error) / t, r) + 8 * u,
                     largest = power * (std::log(power / theta) - 1) + theta + std::log(t) +
                               log_beyond(ladder.cut(i)),
                     more = std::log(t) + r;
        two = log_add(two, largest + more + (t - 2) * each);
        if (t > 2) three = log_add(three, largest + 2 * more - std::log(2.0) + (t - 3) * each);
    }
    const double some = log_add(one, two), whole = log_add(log_power_bound(bulk, power), some);
    return std::log((apart ? 1.0 : 0.5) * epochs * (epochs - 1)) + (apart ? three : some) + some +
           (epochs - 2) * whole + gaussian_steps(variance, power - 1).upper + 1e-6;
}

Epochs::Epochs(std::unique_ptr<EpochSplit> split)
    : split_(std::move(split)), kept_(std::make_unique<KeptLines<SplitWithMore>>()) {}
Epochs::~Epochs() = default;

void Epochs::keep_lines(bool whether) const { kept_->keep(whether); }

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
           (!alone_ || law_.steps >= enough_steps || split_->jump(delta) < loss_per_step * law_.steps) &&
           (spread < (alone_ ? small_spread : fair_spread) ||
            (alone_ && split_->jump(delta) > series_jump + spread)) &&
           split_->jump(rarer * delta) >
               (alone_ ? beside_spread : hardly_beside_spread) * spread * std::sqrt(-2 * std::log(delta));
}

double Epochs::guess(double epsilon) const { return split_->guess(epsilon); }

// Where W/T is that.
double Epochs::place(double ratio) const { return std::log(ratio * law_.steps) / law_.mu + 0.5 * law_.mu; }

// One epoch alone has large ratios, one of which decides: one beyond a cut of its own, at which the error is
// least. Two beyond that have no more than their P-mass.
std::optional<Epochs::Lone> Epochs::lone(const CutStep& cut, double epsilon, double worst) const {
    std::optional<Lone> best;
    const double t = law_.steps;
    const auto attempt = [&](const CutStep& own) {
        const LargeRatios large(law_, own, cut, count_, variance_);
        const Inverted at = large.at(epsilon);
        if (!(at.value > 0)) return;
        const double p = own.beyond_p(), q = own.beyond_q(),
                     pairs = count_ * (t - 1) * q * (p + 0.5 * (t - 2) * q) * 1.01,
                     error = (at.quadrature + at.round_off) / at.value + pairs / at.scaled(at.value);
        if (error < worst) best = Lone{own, large, at, pairs, worst = error};
    };
    attempt(cut);
    for (const double share : cuts_of_loss)
        if (const double end = place(share * std::expm1(epsilon)); end > cut.end())
            attempt(CutStep::at(law_, end, most_halvings));
    return best;
}

// ln of a bound on E[e^{power L}; one epoch has a W on the ladder, and none is beyond].
double Epochs::log_low(const Bulk& bulk, const Ladder& ladder, double power) const {
    double some = -infinity;
    for (const Rest& part : ladder.parts()) some = log_add(some, log_power_bound(part, power));
    return std::log(count_) + some + (count_ - 1) * log_power_bound(bulk, power) +
           gaussian_steps(variance_, power - 1).upper + 1e-6;
}

// By the epochs that have a W > B: none; one; two or more. What is bounded alone is that in one of the latter
// there are three, or one is beyond the ladder, or that none of one epoch's decides.
std::optional<Epochs::Attempt> Epochs::series_at(const CutStep& step, const Lone& lone, double epsilon,
                                                 double delta, double worst) const {
    const Bulk bulk(law_, step);
    const double top = place(std::exp(epsilon + beyond_loss)), t = law_.steps,
                 one = lone.at.scaled(lone.at.value),
                 slope = std::max(lone.at.slope / lone.at.value, least_tilt),
                 both = count_ * (count_ - 1) * (gaussian_tail(top - law_.mu) + t * gaussian_tail(top)) *
                        (step.beyond_p() + t * step.beyond_q());
    // proof: Chernoff's bound is one for positive tilts.
    const auto chernoff = [&](const auto& log_at) {
        const auto bound = [&](double tilt) { return Chernoff{log_at(1 + tilt) + log_chernoff(tilt), tilt}; };
        if (const Chernoff first = bound(slope); first.at(epsilon) < hardly * one) return first;
        return bound(
            std::exp(lowest(std::log(least_share * slope), std::log(largest_share * slope), close_tilt,
                            [&](double log) { return bound(std::exp(log)).log_at(epsilon); })));
    };
    Chernoff low, several;
    if (lone.own.end() > step.end()) {
        const Ladder ladder(law_, step, lone.own.end());
        low = chernoff([&](double power) { return log_low(bulk, ladder, power); });
    }
    const auto more = [&] {
        return [=, sure = both + lone.pairs](double e) { return sure + low.at(e) + several.at(e); };
    };
    std::vector<Contour> lines;
    double error = lone.error;
    if (count_ > 1) {
        const Ladder ladder(law_, step, top);
        const auto bound_several = [&](bool known) {
            return chernoff([&](double power) {
                return log_several(law_, count_, variance_, bulk, ladder, power, known);
            });
        };
        several = bound_several(true);
        if (error + more()(epsilon) / one > worst) return Attempt{{}, error + more()(epsilon) / one};
        auto apart = RatiosApart(law_, step, top, count_, variance_).contour(epsilon, std::log(delta));
        if (!apart) several = bound_several(false);
        if (apart) {
            const Inverted at = invert(*apart, epsilon);
            error += at.scaled(at.aliasing + at.tail + at.quadrature + at.round_off) / one;
            lines.push_back(std::move(*apart));
        }
    }
    error += more()(epsilon) / one;
    if (error > worst) return Attempt{{}, error};
    const auto parts = EpochKind::of_allocation(law_, count_)->parts(step.end(), step.end());
    auto line = EpochLine({{parts.get(), count_}}, variance_, false)
                    .contour(epsilon, std::log(delta), least_tilt, largest_tilt_of_bulk);
    if (!line) return {};
    lines.push_back(std::move(*line));
    return Attempt{SplitWithMore{{std::move(lines), lone.large}, more()}, error};
}

// From the largest B whose series is about as good as any, as long as a lesser one is needed, and better.
std::optional<SplitWithMore> Epochs::by_series(double epsilon, double delta, double worst) const {
    if (!(variance_ < most_variance)) return {};
    std::vector<std::pair<CutStep, Lone>> cuts;
    double least = infinity;
    for (const double w : cuts_alone) {
        const CutStep step = CutStep::at(law_, place(w), most_halvings);
        if (!(step.end() > law_.mu && 2 * w < std::expm1(epsilon))) continue;
        auto found = lone(step, epsilon, worst);
        if (!found) continue;
        least = std::min(least, found->error);
        cuts.emplace_back(step, std::move(*found));
    }
    std::optional<Attempt> best;
    double previous = hopeless * worst;
    for (const auto& [step, found] : cuts) {
        if (found.error > std::max(fair_share * least, good_enough)) continue;
        auto next = series_at(step, found, epsilon, delta, worst);
        if (!next) continue;
        if (!(next->error < previous)) break;
        previous = next->error;
        if (next->parts) best = std::move(next);
        if (previous < good_series || found.error < share_of_one * previous) break;
    }
    return best ? std::move(best->parts) : std::nullopt;
}

// delta: about that.
std::optional<SplitWithMore> Epochs::parts_at(double epsilon, double delta, bool last) const {
    if (!(delta > least_delta && epsilon < largest_loss)) return {};
    interruption_point();
    const bool large = alone_ && epsilon > series_jump,
               three = alone_ ? split_->spread() < small_spread && epsilon < large_jump
                              : last || epsilon < largest_of_several;
    if (large && three)
        if (auto parts = by_series(epsilon, delta, good_series)) return parts;
    if (three)
        if (auto parts = split_->in_three(epsilon, delta)) return parts;
    return large ? by_series(epsilon, delta, last ? poor_series : close_series) : std::nullopt;
}

std::optional<Answer> Epochs::delta_bounds(double epsilon, bool last) const {
    std::optional<SplitWithMore> parts;
    return delta_bounds(epsilon, last, parts);
}

// parts: of the last guess.
std::optional<Answer> Epochs::delta_bounds(double epsilon, bool last,
                                           std::optional<SplitWithMore>& parts) const {
    return delta_in_rounds(epsilon, guess(epsilon), parts,
                           [&](double about) { return parts_at(epsilon, about, last); });
}

std::vector<std::optional<Answer>> Epochs::delta_curve(std::span<const double> epsilons,
                                                       Sharing sharing) const {
    std::vector<double> suited;
    std::vector<std::size_t> place;
    for (std::size_t i = 0; i < epsilons.size(); ++i)
        if (suits(guess(epsilons[i]))) place.push_back(i), suited.push_back(epsilons[i]);
    auto found = curve_by_lines<SplitWithMore>(
        suited, sharing,
        [&](double epsilon, std::optional<SplitWithMore>& parts) {
            return delta_bounds(epsilon, false, parts);
        },
        answer_by<SplitWithMore>, kept_.get());
    std::vector<std::optional<Answer>> curve(epsilons.size());
    for (std::size_t j = 0; j < place.size(); ++j) curve[place[j]] = std::move(found[j]);
    return curve;
}

std::optional<Answer> Epochs::epsilon_bounds(double delta, bool last) const {
    if (!(delta > least_delta && delta < 1)) return {};
    const double spread = split_->spread();
    double first = std::max(spread * std::sqrt(-2 * std::log(delta)), split_->jump(delta));
    double low = 0, high = first;
    for (int i = 0; i < halvings && guess(high) < delta; ++i) {
        first = 0.5 * (low + high);
        (guess(first) < delta ? high : low) = first;
    }
    const auto at = [&](double epsilon) { return parts_at(epsilon, delta, last); };
    return epsilon_in_rounds(delta, first, at, near_bounds);
}

}  // namespace hockeystick
