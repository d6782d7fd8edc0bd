#include "inversion/epochs.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "hockeystick/parallel.hpp"
#include "inversion/allocation_parts.hpp"
#include "inversion/allocation_powers.hpp"
#include "inversion/allocation_transform.hpp"
#include "inversion/epoch_line.hpp"
#include "inversion/large_ratios.hpp"
#include "inversion/saddle.hpp"
#include "numerics/constants.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

// All of these are for speed. Smaller deltas and larger losses are left to others, and so are laws without
// digits. That layers' widths have their digits rests on the least mu, too: proof.
constexpr double least_delta = 1e-60, largest_loss = 30;
constexpr double least_mu = 1e-2, largest_mu = 5, least_steps = 9, most_steps = 1e9, most_epochs = 1e6;
constexpr double least_tilt = 0.1, largest_tilt = 40, largest_tilt_of_bulk = 1e6;
// How far the other steps may move the loss down where a W decides alone, in standard deviations at least; in
// which steps it is looked for; what of delta is left to that.
constexpr double least_margin = 6, most_margin = 4, margin_step = 0.08, largest_put_tilt = 5e3;
constexpr double share_of_put = 1e-12;
// Where this is the way: a narrow bulk, and a W of not much less than delta's P-mass that is large beside it.
// Where that is very large, one ratio decides alone.
constexpr double small_spread = 0.25, rarer = 1e-3, beside_spread = 0.1;
constexpr double large_jump = 3.5, series_jump = 1.5, good_series = 1e-7, fair_series = 1e-5,
                 poor_series = 3e-2;
// From so many steps on nothing else does better than a poor series.
constexpr double very_many_steps = 5e4;
// The largest W/T of the bulk; those that are tried where one decides alone, how far beyond the loss two are
// looked for, and tilts for that beside the slope of ln delta.
constexpr double largest_cut = 0.5, cuts_alone[] = {0.1, 0.15, 0.25, 0.35, 0.5, 0.7};
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

// And a bound on what else there is of delta at any eps.
struct Epochs::Parts : Split {
    std::function<double(double epsilon)> more;

    Inverted at(double epsilon) const {
        Inverted out = with_others(invert(lines, epsilon), epsilon);
        const double half = 0.5 * more(epsilon) * std::exp(-out.log_scale);
        out.value += half;
        out.tail += 1.01 * half;
        return out;
    }
};

std::unique_ptr<Epochs> Epochs::of(const Composition& composition) {
    std::optional<Allocation> law;
    double count = 0, variance = 0;
    for (const auto& [pair, steps] : composition) {
        const double k = static_cast<double>(steps), mu = plain_gaussian_mu(*pair);
        const auto found = pair->allocation();
        if (mu == 0 && (!found || found->add || law)) return nullptr;
        if (found) law = found, count = k;
        variance += k * mu * mu;
    }
    if (!law || !(law->mu >= least_mu && law->mu <= largest_mu) || !(count <= most_epochs) ||
        !(law->steps >= least_steps && law->steps <= most_steps))
        return nullptr;
    return std::unique_ptr<Epochs>(new Epochs(*law, count, variance));
}

// The standard deviation of the loss, but for its tail.
double Epochs::spread() const {
    return std::sqrt(count_ * std::expm1(std::min(law_.mu * law_.mu, 50.0)) / law_.steps + variance_);
}

// The loss by the one W that is exceeded in P-mass of delta.
double Epochs::jump(double delta) const {
    const double g = CutStep(law_, delta / count_, 0).end();
    return std::log1p(std::max(0.0, std::expm1(law_.mu * (g - 0.5 * law_.mu))) / law_.steps);
}

bool Epochs::suits(double delta) const {
    return delta > least_delta && delta < 1 &&
           (spread() < small_spread || jump(delta) > series_jump + spread()) &&
           jump(rarer * delta) > beside_spread * spread() * std::sqrt(-2 * std::log(delta));
}

double Epochs::guess(double epsilon) const {
    if (!(epsilon > 0)) return 0.5;
    const double g = std::log(1 + law_.steps * std::expm1(epsilon)) / law_.mu + 0.5 * law_.mu;
    return std::min(0.5, gaussian_tail(epsilon / spread()) + count_ * gaussian_tail(g - law_.mu));
}

// Where W/T is that.
double Epochs::place(double ratio) const { return std::log(ratio * law_.steps) / law_.mu + 0.5 * law_.mu; }

// Beyond it a W decides alone: by e^L >= (c/T) e^{L'}, L' the loss of all others, and (1 - y)_+ <=
// chernoff(t) y^{-t}. Empty where it would have to be too large.
std::optional<Epochs::SecondCut> Epochs::second_cut(double first, double epsilon, double log_delta) const {
    const double mu = law_.mu, own = spread() * spread() - variance_,
                 others = std::sqrt(std::max(0.0, own * (1 - 1 / count_) + variance_));
    const auto cut_at = [&](double margin) {
        return std::max(first, (std::log(law_.steps) + epsilon + margin) / mu + 0.5 * mu);
    };
    const auto log_w = [&](double g) { return mu * (g - 0.5 * mu) - std::log(law_.steps); };
    if (count_ == 1 && variance_ == 0) {
        const double g = cut_at(1.5 * near_epsilon * epsilon + 1e-9);
        return SecondCut{g, -infinity, 1, log_w(g) - 1e-12};
    }
    const AllocationTransform one({mu, law_.steps, true}, 0);
    for (double margin = least_margin * others; margin < most_margin + 20 * others;
         margin += margin_step + others) {
        const double g = cut_at(margin),
                     tilt = std::clamp(0.7 * margin / (others * others), 1.0, largest_put_tilt),
                     moments = (count_ > 1 ? (count_ - 1) * one.at(tilt).upper : 0.0) +
                               0.5 * variance_ * tilt * (tilt + 1);
        const double log_put = log_chernoff(tilt) + std::log(count_ * law_.steps * gaussian_tail(g)) -
                               tilt * log_w(g) + moments + 1e-9;
        if (log_put + (1 + tilt) * epsilon < log_delta + std::log(share_of_put))
            return SecondCut{g, log_put, tilt, infinity};
    }
    return {};
}

std::optional<Epochs::Parts> Epochs::in_three(double epsilon, double delta) const {
    const double log_delta = std::log(delta);
    CutStep step = first_cut(law_, count_, delta);
    if (step.end() > place(largest_cut)) step = CutStep::at(law_, place(largest_cut), most_halvings);
    const auto second = second_cut(step.end(), epsilon, log_delta);
    if (!second) return {};
    const Bulk bulk(law_, step);
    const Ladder ladder(law_, step, second->g);
    std::vector<Contour> lines;
    for (const auto rest : {std::span<const Rest>(), ladder.parts()}) {
        if (!lines.empty() && rest.empty()) break;
        auto line =
            EpochLine(bulk, rest, count_, variance_)
                .contour(epsilon, log_delta, least_tilt, rest.empty() ? largest_tilt_of_bulk : largest_tilt);
        if (!line) return {};
        lines.push_back(std::move(*line));
    }
    return Parts{{std::move(lines), Decided(law_, count_, second->g)}, [put = *second](double e) {
                     return e <= put.most ? std::exp(put.log_put + (1 + put.tilt) * e) : infinity;
                 }};
}

// One W > B alone, at the B where the error is least; none; and two or more: of those beyond the ladder their
// P-mass.
std::optional<Epochs::Parts> Epochs::by_series(double epsilon, double delta, double worst) const {
    std::optional<Parts> best;
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
            const double s = share * at.slope / at.value,
                         log = log_pairs(law_, count_, variance_, bulk, ladder, 1 + s) + log_chernoff(s);
            if (log - s * epsilon < log_two - tilt * epsilon) log_two = log, tilt = s;
        }
        const auto more = [=](double e) { return both + std::exp(log_two - tilt * e); };
        error += more(epsilon) / at.scaled(at.value);
        if (!(error < worst)) continue;
        auto line = EpochLine(bulk, {}, count_, variance_)
                        .contour(epsilon, std::log(delta), least_tilt, largest_tilt_of_bulk);
        if (!line) continue;
        worst = error;
        best = Parts{{{std::move(*line)}, large}, more};
    }
    return best;
}

// delta: about that.
std::optional<Epochs::Parts> Epochs::parts_at(double epsilon, double delta) const {
    if (!(delta > least_delta && epsilon < largest_loss)) return {};
    interruption_point();
    const bool large = epsilon > series_jump, three = spread() < small_spread && epsilon < large_jump;
    if (large && three)
        if (auto parts = by_series(epsilon, delta, good_series)) return parts;
    if (three)
        if (auto parts = in_three(epsilon, delta)) return parts;
    const double worst = law_.steps >= very_many_steps ? poor_series : fair_series;
    return large ? by_series(epsilon, delta, worst) : std::nullopt;
}

std::optional<Answer> Epochs::delta_bounds(double epsilon) const {
    std::optional<Parts> parts;
    return delta_in_rounds(epsilon, guess(epsilon), parts,
                           [&](double about) { return parts_at(epsilon, about); });
}

std::optional<Answer> Epochs::epsilon_bounds(double delta) const {
    if (!(delta > least_delta && delta < 1)) return {};
    const double first = std::max(spread() * std::sqrt(-2 * std::log(delta)), jump(delta));
    return epsilon_in_rounds(delta, first, [&](double epsilon) { return parts_at(epsilon, delta); });
}

}  // namespace hockeystick
