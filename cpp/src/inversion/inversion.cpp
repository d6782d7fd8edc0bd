#include "inversion/inversion.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "inversion/direct_inversion.hpp"
#include "inversion/epochs.hpp"
#include "inversion/one_epoch.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

using Budget = DirectInversion::Budget;

// Speed: what the first attempt may take where layers may do better, in nodes times frequencies, what an
// attempt after them may take, what the first must leave out less than, the gap from which layers follow, and
// what a coarse attempt at epsilon aims at beside what they do.
constexpr double few_products = 6e5, some_products = 2e6;
constexpr double near_exact = 1e-10, poor_gap = 1e-6, coarse_share = 0.1;
// Speed: the least and the largest tolerance of layers, and how much larger one is tried where nothing comes
// of it.
constexpr double finest_tolerance = 1e-12, coarsest_tolerance = 1e-6, coarser = 100;
// Speed: a contour serves further points of a curve where its gap there is no larger.
constexpr double near_as_good = 1e-9;
// Speed: the shares of delta that the largest losses may take which are left out at last, and how often delta
// is guessed anew.
constexpr double largest_shares[] = {1e-9, 1e-6};
constexpr int most_rounds = 12;
// Speed: the share that a bound from above leaves out.
constexpr double share_of_bound = 0.1;
// Speed: how much less a bound from above is to be for another one to be tried, which leaves out less.
constexpr double worth_a_bound = 0.5;
// Speed: joined pairs' layers are nearly as quick at this tolerance, which is tried first; a single answer
// with a larger gap is worth their time, but not what they take beside allocations.
constexpr double fine_tolerance = 1e-9, fine_gap = 1e-8;
// Speed: what one epoch of random allocation may take before anything else is tried, and after that, in
// frequencies.
constexpr std::size_t few_frequencies = 2500, many_frequencies = 16000;
// Speed: what epochs without their largest ratios may take before they are told apart, where those count for
// little.
constexpr Budget few_of_epochs{100 * near_exact, infinity, true, 0, 64};
// Speed: what the whole transform may take where somebody else answers otherwise, on a curve; and alone, for
// each outcome given which that is, with few and with very many of them.
constexpr std::size_t frequencies_of_curve = 512, frequencies_of_outcome = 16, least_of_little = 128,
                      most_of_little = 2048;
// Speed: what it may take at last beside allocations, where nobody else answers.
constexpr std::size_t frequencies_at_last = std::size_t{1} << 16;
// Speed: beside allocations, next to the 1e-60 that these leave out in any case, nothing comes of that.
constexpr double least_at_last = 1e-55;
// Speed: a gap, in those that are aimed at, with which no point of a rough curve, or of one that takes noise,
// is asked about alone; it is the accuracy.
constexpr double wide_of_curve = 10;
// Speed: by how much an attempt of its own must narrow a point of a curve to have been worth its time.
constexpr double worth_alone = 0.5;
// Speed: how many points of a rough curve that no contour serves get a bound of their own.
constexpr std::size_t most_alone = 24;
// Speed: about how many times lines are laid for one where each takes long.
constexpr std::size_t most_lines = 64;
// Speed: a frequency's values and errors, of one kind, of which so many are filled together.
constexpr std::size_t bytes_per_frequency = 32, kinds_at_once = 32;
// Speed: the share of delta that may be left out where noise is added, how much less than a guess of delta
// makes another one worth it, and what share of a curve's gap one noise for all of its points aims at.
constexpr double share_beside_noise = 1e-12, near_guess = 0.1, noisy_share = 0.5;
// Speed: the P-mass that a curve beside noise may leave out: nothing beside any delta that has a say in the
// noise.
constexpr double beside_curve = 1e-34;
// Speed: where all of delta may have been cut, about this is tried next.
constexpr double next_delta = 1e-280;

// layers: whether these follow.
Budget whole_budget(Inversion::Effort effort, std::size_t frequencies_of_little, bool layers = false) {
    if (layers) return {near_exact, few_products, true};
    Budget budget;
    if (effort == Inversion::Effort::little) budget.frequencies = frequencies_of_little;
    return budget;
}

// Whether somebody else answers a curve sooner.
bool brief(Inversion::Effort effort) {
    return effort == Inversion::Effort::little || effort == Inversion::Effort::cut;
}

void keep(std::optional<Answer>& best, const std::optional<Answer>& answer) {
    if (relative_gap(answer) < relative_gap(best)) best = answer;
}

}  // namespace

Inversion::Inversion(const Composition& composition, double accuracy, std::size_t memory_limit)
    : composition_(composition),
      most_frequencies_(memory_limit /
                        (bytes_per_frequency * (2 + std::min(composition.size(), kinds_at_once)))),
      direct_(std::make_unique<DirectInversion>(composition)),
      one_epoch_(OneEpoch::of(composition)),
      epochs_(Epochs::of(composition)),
      allocation_(has_allocation(composition)),
      slow_(direct_->joined() || allocation_),
      of_little_(most_of_little),
      whole_gap_(epochs_ ? poor_gap : infinity),
      narrow_gap_(0.1 * accuracy),
      curve_gap_(narrow_gap_),
      layer_tolerance_(std::clamp(2e-3 * narrow_gap_, 1e-11, coarsest_tolerance)),
      fine_tolerance_(direct_->joined() ? fine_tolerance : infinity) {
    if (direct_->joined()) narrow_gap_ = std::min(narrow_gap_, allocation_ ? poor_gap : fine_gap);
}
Inversion::~Inversion() = default;

std::unique_ptr<Inversion> Inversion::of(const Composition& composition, double accuracy,
                                         std::size_t memory_limit) {
    std::unique_ptr<Inversion> inversion(new Inversion(composition, accuracy, memory_limit));
    return inversion->direct_->known() ? std::move(inversion) : nullptr;
}

void Inversion::beside(std::size_t outcomes) {
    of_little_ = std::clamp(frequencies_of_outcome * outcomes, least_of_little, most_of_little);
}

// With a pinch of noise, and without the largest losses, as they ask for a long period: of a P-mass that is
// nothing beside delta, of which the first estimate may be too large.
std::optional<Answer> Inversion::delta_with_noise(double epsilon, double enough) const {
    std::optional<Answer> best;
    double about = std::exp(direct_->log_delta(epsilon)), previous = infinity;
    while (about < near_guess * previous) {
        const auto answer = DirectInversion(composition_, share_beside_noise * about)
                                .delta_with_noise(epsilon, enough, most_frequencies_);
        keep(best, answer);
        if (!answer || relative_gap(best) < enough) break;
        previous = std::exchange(about, answer->upper);
    }
    return best;
}

// Whether layers of this tolerance may do what finer ones have not.
bool Inversion::worth_coarser(const std::optional<Answer>& best, double tolerance) const {
    return tolerance <= coarsest_tolerance &&
           relative_gap(best) >= (tolerance > layer_tolerance_ ? poor_gap : narrow_gap_);
}

// delta is wanted to ten digits, or else to fewer. Of joined pairs ten take long to try for where fewer are
// hard to have.
std::optional<Answer> Inversion::delta_in_layers(double epsilon) const {
    std::optional<Answer> best;
    const auto ask = [&](double tolerance) { keep(best, direct_->layers(tolerance).delta_bounds(epsilon)); };
    if (direct_->joined()) ask(fine_tolerance_);
    const bool hard = direct_->joined() && relative_gap(best) >= narrow_gap_;
    if (!hard) ask(std::min(layer_tolerance_, finest_tolerance));
    for (double tolerance = layer_tolerance_; worth_coarser(best, tolerance); tolerance *= coarser)
        ask(tolerance);
    // In company the whole transform had its full budget before.
    if (!direct_->in_company() && relative_gap(best) >= near_exact)
        keep(best,
             direct_->delta_bounds(epsilon, {std::min(narrow_gap_, relative_gap(best)), some_products}));
    return best;
}

// The same is asked for again, and what it knows of tilts may have taken long.
const DirectInversion& Inversion::without(double mass) const {
    if (!cut_ || mass != cut_mass_) cut_ = std::make_unique<DirectInversion>(composition_, cut_mass_ = mass);
    return *cut_;
}

// fits: whether the whole transform was asked already.
template <class AskDirect, class AboutDelta>
void Inversion::without_largest(std::optional<Answer>& best, double enough, bool fits, Effort effort,
                                AskDirect ask_direct, AboutDelta delta) const {
    if (!direct_->can_cut() || !direct_->answers() || relative_gap(best) < enough) return;
    // What is cut must be little beside a delta that may not be known yet.
    double about = delta(best), previous = infinity,
           dropped = fits && !layers_soon(false) ? direct_->dropped() : -1;
    for (int round = 0; round < most_rounds && about < 0.1 * previous; ++round) {
        for (const double share : largest_shares) {
            const DirectInversion& cut = without(share * about);
            if (cut.dropped() == std::exchange(dropped, cut.dropped())) continue;
            const double before = relative_gap(best);
            keep(best, ask_direct(cut, whole_budget(effort, of_little_)));
            if (relative_gap(best) < enough) return;
            // Where the cut is not what keeps them apart, a larger one takes as long in vain.
            if (epochs_ && !(relative_gap(best) < 0.5 * before) && !lacks(best, cut.dropped())) return;
        }
        previous = std::exchange(about, delta(best));
    }
}

// With all effort layers, unless they were asked, and beside allocations very many frequencies, where it is
// these that are missing.
template <class AskDirect, class AskLayers, class AboutDelta>
void Inversion::ask_at_last(std::optional<Answer>& best, double enough, bool fits, bool asked_layers,
                            Effort effort, AskDirect ask_direct, AskLayers ask_layers,
                            AboutDelta delta) const {
    if (allocation_ && !(delta(best) > least_at_last)) return;
    const bool all = effort == Effort::all;
    if (all && !asked_layers && relative_gap(best) >= enough) keep(best, ask_layers());
    const auto missing = [&] {
        return allocation_ && relative_gap(best) >= enough && !(best && best->round_off > best->truncation);
    };
    const Budget most{.frequencies = std::min(frequencies_at_last, most_frequencies_)};
    if (direct_->can_cut() && missing())
        keep(best, ask_direct(without(largest_shares[0] * delta(best)), most));
    if (all && fits && missing()) keep(best, ask_direct(*direct_, most));
}

bool Inversion::cuts_alone(Effort effort) const { return effort == Effort::cut && direct_->can_cut(); }

// In company the whole transform often falls without layers.
bool Inversion::layers_soon(bool dear) const {
    return direct_->has_layers() && !direct_->in_company() && (dear || !direct_->joined());
}

bool Inversion::lacks(const std::optional<Answer>& best, double dropped) {
    return best && best->upper - best->lower < 2 * dropped;
}

template <class AskDirect, class AboutDelta>
std::optional<Answer> Inversion::epochs_quickly(const std::optional<Answer>& best, AskDirect ask_direct,
                                                AboutDelta delta) const {
    if (!epochs_) return {};
    return ask_direct(without(largest_shares[0] * delta(best)), few_of_epochs);
}

template <class AskDirect, class AskEpoch, class AskEpochs, class AskLayers, class AboutDelta>
std::optional<Answer> Inversion::narrowest(double enough, bool fits, Effort effort, AskDirect ask_direct,
                                           AskEpoch ask_epoch, AskEpochs ask_epochs, AskLayers ask_layers,
                                           AboutDelta delta) const {
    direct_->next_question();
    std::optional<Answer> best = ask_epoch(few_frequencies);
    const auto unless = [&](double near, const auto& ask) {
        if (relative_gap(best) >= near) keep(best, ask());
    };
    const auto unless_enough = [&](const auto& ask) { unless(enough, ask); };
    unless_enough([&] { return epochs_quickly(best, ask_direct, delta); });
    bool left = epochs_ != nullptr;  // to ask at last
    unless_enough([&] {
        auto answer = ask_epochs(false);
        left &= !answer;
        return answer;
    });
    fits &= !cuts_alone(effort);
    const bool layers = layers_soon(effort == Effort::all);
    bool cut = false;
    const auto ask_cut = [&](bool asked) {
        if (!std::exchange(cut, true)) without_largest(best, enough, asked, effort, ask_direct, delta);
    };
    // Epochs whose ratios lie too close together to be told apart: without the largest few frequencies do.
    if (!layers && (!fits || left)) ask_cut(false);
    // Where large ratios in several epochs are bounded alone, the whole transform may do better.
    if (fits)
        unless(std::min(enough, whole_gap_),
               [&] { return ask_direct(*direct_, whole_budget(effort, of_little_, layers)); });
    // Where nothing but what was left out is missing, less of that will do.
    if (!layers && lacks(best, direct_->dropped())) ask_cut(fits);
    if (effort == Effort::little) {
        ask_cut(fits);
        return best;
    }
    unless_enough([&] { return ask_epoch(many_frequencies); });
    if (layers) unless(std::min(enough, poor_gap), ask_layers);
    if (left) unless_enough([&] { return ask_epochs(true); });
    ask_cut(fits);
    if (effort != Effort::some)
        ask_at_last(best, enough, fits, layers, effort, ask_direct, ask_layers, delta);
    return best;
}

// The whole transform leaves out what is not worth its nodes, unless delta is that small.
bool Inversion::fits(double delta) const {
    return direct_->answers() && direct_->dropped() <= largest_shares[0] * delta;
}

std::optional<Answer> Inversion::epsilon_bounds(double delta, Effort effort) const {
    return narrowest(
        narrow_gap_, fits(delta), effort,
        [&](const DirectInversion& direct, Budget budget) {
            if (budget.quick && direct.slow()) return std::optional<Answer>();
            if (budget.quick && direct.has_layers()) budget.coarse = coarse_share * layer_tolerance_;
            return direct.epsilon_bounds(delta, budget);
        },
        [&](std::size_t most) { return one_epoch_ ? one_epoch_->epsilon_bounds(delta, most) : std::nullopt; },
        [&](bool last) {
            return epochs_ && (last || epochs_->suits(delta)) ? epochs_->epsilon_bounds(delta, last)
                                                              : std::nullopt;
        },
        [&] {
            std::optional<Answer> best;
            const double first = std::min(layer_tolerance_, fine_tolerance_);
            if (direct_->has_layers()) best = direct_->layers(first).epsilon_bounds(delta);
            double tolerance = first < layer_tolerance_ ? layer_tolerance_ : coarser * first;
            for (; direct_->has_layers() && worth_coarser(best, tolerance); tolerance *= coarser)
                keep(best, direct_->layers(tolerance).epsilon_bounds(delta));
            if (direct_->noise_helps() && relative_gap(best) >= narrow_gap_)
                keep(best, DirectInversion(composition_, share_beside_noise * delta)
                               .epsilon_with_noise(delta, narrow_gap_, most_frequencies_));
            return best;
        },
        [&](const std::optional<Answer>&) { return delta; });
}

std::optional<Answer> Inversion::delta_bounds(double epsilon, Effort effort) const {
    return delta_bounds(epsilon, narrow_gap_, effort);
}

std::optional<Answer> Inversion::delta_bounds(double epsilon, double enough, Effort effort) const {
    return narrowest(
        enough, direct_->answers(), effort,
        [&](const DirectInversion& direct, Budget budget) { return direct.delta_bounds(epsilon, budget); },
        [&](std::size_t most) { return one_epoch_ ? one_epoch_->delta_bounds(epsilon, most) : std::nullopt; },
        [&](bool last) {
            return epochs_ && (last || epochs_->suits(epochs_->guess(epsilon)))
                       ? epochs_->delta_bounds(epsilon, last)
                       : std::nullopt;
        },
        [&] {
            std::optional<Answer> best;
            if (direct_->has_layers()) best = delta_in_layers(epsilon);
            if (direct_->noise_helps() && relative_gap(best) >= enough)
                keep(best, delta_with_noise(epsilon, enough));
            return best;
        },
        [&](const std::optional<Answer>& best) {
            if (!best) return std::exp(direct_->log_delta(epsilon));
            if (best->upper > 2 * direct_->dropped()) return best->upper;
            return best->lower > 0 ? best->lower : std::min(best->upper, next_delta);
        });
}

// What neighbours share, and the places where the gap is not below `enough`.
std::vector<std::optional<Answer>> Inversion::shared(std::span<const double> epsilons, Sharing sharing,
                                                     double enough, Effort effort,
                                                     std::vector<std::size_t>& left) const {
    direct_->next_question();
    std::vector<std::optional<Answer>> curve(epsilons.size());
    const auto narrow = [&](const auto& ask) {
        left.clear();
        std::vector<double> open;
        for (std::size_t i = 0; i < curve.size(); ++i) {
            if (answered(curve[i], enough, sharing.slack)) continue;
            left.push_back(i);
            open.push_back(epsilons[i]);
        }
        if (open.empty()) return;
        const auto found = ask(open);
        for (std::size_t j = 0; j < open.size(); ++j) keep(curve[left[j]], found[j]);
    };
    const auto by_layers = [&](double tolerance) {
        narrow([&](const auto& open) { return direct_->layers(tolerance).delta_curve(open, sharing); });
    };
    Budget budget;
    if (layers_soon(false)) budget.worst = curve_gap_;
    if (brief(effort)) {
        budget.frequencies = frequencies_of_curve;
        budget.quick = true;  // Dear bounds of what is left out would be looked for at each point.
    }
    if (one_epoch_)
        narrow([&](const auto& open) { return one_epoch_->delta_curve(open, few_frequencies, sharing); });
    if (epochs_) narrow([&](const auto& open) { return epochs_->delta_curve(open, sharing); });
    if (direct_->joined()) by_layers(layer_tolerance_);
    if (direct_->answers())
        narrow([&](const auto& open) { return direct_->delta_curve(open, budget, sharing); });
    if (direct_->noise_helps() && !brief(effort))
        narrow([&](const auto& open) {
            return DirectInversion(composition_, beside_curve)
                .curve_with_noise(open, noisy_share * curve_gap_, most_frequencies_);
        });
    if (direct_->has_layers() && !direct_->joined()) {
        by_layers(layer_tolerance_);
        by_layers(std::min(layer_tolerance_, finest_tolerance));
    }
    narrow([](const auto& open) { return std::vector<std::optional<Answer>>(open.size()); });
    return curve;
}

double Inversion::little_from(std::vector<double> epsilons) const {
    const auto little = [&](double epsilon) {
        return surely_below(epsilon, little_of_curve) ||
               (!slow_ && direct_->can_drop() && chernoff_delta(epsilon) < little_of_curve);
    };
    std::sort(epsilons.begin(), epsilons.end());
    if (epsilons.empty() || (quick() && !direct_->noise_helps()) || !little(epsilons.back())) return infinity;
    return *std::partition_point(epsilons.begin(), epsilons.end() - 1,
                                 [&](double epsilon) { return !little(epsilon); });
}

std::vector<std::optional<Answer>> Inversion::delta_curve(std::span<const double> epsilons, double& little,
                                                          Effort effort, double slack) const {
    std::vector<std::size_t> left;
    auto curve = shared(epsilons, {near_as_good, 0, slack}, curve_gap_, effort, left);
    // Joined pairs have had their layers.
    const bool dear = direct_->noise_helps() && !direct_->joined();
    // What an attempt of its own that takes long would make a little narrower is narrow enough.
    const double enough = dear || !quick() ? wide_of_curve * curve_gap_ : curve_gap_;
    std::erase_if(left, [&](std::size_t i) { return relative_gap(curve[i]) < enough; });
    std::vector<double> open;
    for (const std::size_t i : left) open.push_back(epsilons[i]);
    little = little_from(std::move(open));
    std::erase_if(left, [&](std::size_t i) { return epsilons[i] >= little; });
    if (!brief(effort)) ask_alone(epsilons, left, dear, curve);
    return curve;
}

// Where the neighbours' own attempts were in vain, few are made.
void Inversion::ask_alone(std::span<const double> epsilons, std::span<const std::size_t> places, bool dear,
                          std::vector<std::optional<Answer>>& curve) const {
    Patience patience;
    for (const std::size_t i : places) {
        if (patience.leaves_out()) continue;
        const double before = relative_gap(curve[i]);
        keep(curve[i], delta_bounds(epsilons[i], curve_gap_, dear ? Effort::all : Effort::some));
        patience.asked(!(relative_gap(curve[i]) < worth_alone * before));
    }
}

std::vector<std::optional<Answer>> Inversion::rough_curve(std::span<const double> epsilons) const {
    std::vector<std::size_t> left;
    const double enough = wide_of_curve * curve_gap_;
    const bool slow = slow_ || direct_->slow();
    auto curve =
        shared(epsilons, {enough, slow ? epsilons.size() / most_lines : 0}, enough, Effort::all, left);
    if (!direct_->answers()) return curve;
    if (!slow) {
        ask_alone(epsilons, left, false, curve);
        return curve;
    }
    // A few of those without any bounds, evenly between the others, have at least one from above.
    std::erase_if(left, [&](std::size_t i) { return curve[i].has_value(); });
    const std::size_t asked = std::min(most_alone, left.size());
    for (std::size_t j = 0; j < asked; ++j) {
        const std::size_t i = left[j * left.size() / asked];
        if (epochs_) curve[i] = epochs_->delta_bounds(epsilons[i], true);
        if (curve[i]) continue;
        curve[i].emplace().engine = "inversion";
        curve[i]->upper = direct_->chernoff_delta(epsilons[i]);
    }
    return curve;
}

void Inversion::keep_lines(bool whether) const {
    if (one_epoch_) one_epoch_->keep_lines(whether);
    if (epochs_) epochs_->keep_lines(whether);
}

bool Inversion::takes_noise() const { return direct_->noise_helps(); }
bool Inversion::quick() const { return !slow_ && !direct_->slow() && direct_->answers(); }

double Inversion::chernoff_epsilon(double delta) const {
    double best = direct_->chernoff_epsilon(delta);
    if (direct_->can_drop() && share_of_bound * delta > 0)
        best = std::min(best, without(share_of_bound * delta).chernoff_epsilon(delta));
    return best;
}

// Large losses keep tilts small even where they are so rare that leaving them out costs less. What
// allocations leave out in any case may be more than all else, but is less than anybody asks for. Where what
// was left out is most of the bound, far less is left out next.
double Inversion::chernoff_delta(double epsilon) const {
    double delta = direct_->chernoff_delta(epsilon), share = share_of_bound;
    while (direct_->can_drop() && share * delta > 0) {
        const DirectInversion& cut = without(share * delta);
        const double next = cut.chernoff_delta(epsilon);
        const bool worth = next < worth_a_bound * delta;
        if (!worth && share == share_of_bound) break;
        delta = std::min(delta, next);
        const double less = share * share;
        share = worth && next < 2 * cut.dropped() && less * delta > 0 ? less : share_of_bound;
    }
    return delta;
}

bool Inversion::surely_below(double epsilon, double delta) const {
    if (direct_->dropped() < delta) return direct_->surely_below(epsilon, delta);
    return DirectInversion(composition_, Transform::uncut).surely_below(epsilon, delta);
}

bool Inversion::far(double epsilon) const { return direct_->far(epsilon); }

}  // namespace hockeystick
