#include "inversion/epochs.hpp"

#include <algorithm>
#include <cmath>

#include "hockeystick/parallel.hpp"
#include "inversion/allocation_parts.hpp"
#include "inversion/allocation_transform.hpp"
#include "inversion/epoch_line.hpp"
#include "numerics/constants.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

// All of these are for speed. Smaller deltas and larger losses are left to others, and so are laws without
// digits. That layers' widths have their digits rests on the least mu, too: proof.
constexpr double least_delta = 1e-60, largest_loss = 30;
constexpr double least_mu = 1e-2, largest_mu = 5, least_steps = 100, most_steps = 1e9, most_epochs = 1e6;
constexpr double least_tilt = 0.1, largest_tilt = 40, largest_tilt_of_bulk = 1e6;
// How far the other steps may move the loss down where a W decides alone, in standard deviations at least; in
// which steps it is looked for; what of delta is left to that.
constexpr double least_margin = 6, most_margin = 4, margin_step = 0.08, largest_put_tilt = 5e3;
constexpr double share_of_put = 1e-12;
// The largest W/T of the bulk; how much the loss differs within a part of the rest.
constexpr double largest_cut = 0.5, widest_part = 1.0, most_parts = 6;
// Where this is the way: many steps, whose bulk is narrow, and a W of not much less than delta's P-mass that
// is large beside it.
constexpr double many_steps = 500, small_spread = 0.25, large_jump = 3.5, rarer = 1e-3, beside_spread = 0.1;

}  // namespace

// The lines, the outcomes with a W that decides alone, and E[(e^eps - e^L)_+; they] <= e^{log_put + (1 +
// tilt) eps}, where eps <= `most`.
struct Epochs::Parts {
    std::vector<Contour> lines;
    Decided decided;
    double log_put, tilt, most;

    Inverted at(double epsilon) const {
        Inverted out = decided.add_to(invert(lines, epsilon), std::exp(epsilon));
        out.tail +=
            epsilon <= most ? 1.01 * std::exp(log_put + (1 + tilt) * epsilon - out.log_scale) : infinity;
        return out;
    }
    Answer describe(const Inverted& at) const {
        std::size_t size = 0;
        for (const Contour& line : lines) size += line.integrand.size();
        return hockeystick::describe(at, lines[0].step, size);
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
    return delta > least_delta && delta < 1 && law_.steps >= many_steps && spread() < small_spread &&
           jump(delta) < large_jump &&
           jump(rarer * delta) > beside_spread * spread() * std::sqrt(-2 * std::log(delta));
}

double Epochs::guess(double epsilon) const {
    if (!(epsilon > 0)) return 0.5;
    const double g = std::log(1 + law_.steps * std::expm1(epsilon)) / law_.mu + 0.5 * law_.mu;
    return std::min(0.5, gaussian_tail(epsilon / spread()) + count_ * gaussian_tail(g - law_.mu));
}

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

// delta: about that.
std::optional<Epochs::Parts> Epochs::parts_at(double epsilon, double delta) const {
    if (!(delta > least_delta && epsilon < largest_loss)) return {};
    interruption_point();
    const double log_delta = std::log(delta);
    CutStep step = first_cut(law_, count_, delta);
    const auto g_of = [&](double w) { return std::log(w * law_.steps) / law_.mu + 0.5 * law_.mu; };
    if (step.end() > g_of(largest_cut)) step = CutStep::at(law_, g_of(largest_cut), most_halvings);
    const auto second = second_cut(step.end(), epsilon, log_delta);
    if (!second) return {};
    const Bulk bulk(law_, step);
    const double narrow = std::log1p((1 + step.largest()) / law_.steps),
                 wide = std::log1p(std::exp(law_.mu * (second->g - 0.5 * law_.mu)) / law_.steps);
    const int parts = static_cast<int>(std::clamp(std::ceil((wide - narrow) / widest_part), 0.0, most_parts));
    std::vector<CutStep> cuts;
    std::vector<Rest> rest;
    cuts.reserve(static_cast<std::size_t>(parts));
    for (int i = 0; i < parts && second->g > step.end(); ++i) {
        const auto cut = [&](int k) {
            return k == parts ? second->g : g_of(std::expm1(narrow + (wide - narrow) * k / parts));
        };
        cuts.push_back(i == 0 ? step : CutStep::at(law_, cut(i), most_halvings));
        rest.emplace_back(law_, cuts.back(), cut(i + 1));
    }
    std::vector<Contour> lines;
    for (const bool with_rest : {false, true}) {
        if (with_rest && rest.empty()) continue;
        EpochLine line(bulk, with_rest ? std::span<const Rest>(rest) : std::span<const Rest>(), count_,
                       variance_);
        auto contour =
            line.contour(epsilon, log_delta, least_tilt, with_rest ? largest_tilt : largest_tilt_of_bulk);
        if (!contour) return {};
        lines.push_back(std::move(*contour));
    }
    return Parts{std::move(lines), Decided(law_, count_, second->g), second->log_put, second->tilt,
                 second->most};
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
