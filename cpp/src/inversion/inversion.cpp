#include "inversion/inversion.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "inversion/direct_inversion.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

using Budget = DirectInversion::Budget;

// Speed: what the first attempt may take where layers may do better, in nodes times frequencies, what an
// attempt after them may take, and what the first must leave out less than.
constexpr double few_products = 1e5, some_products = 2e6;
constexpr double near_exact = 1e-10;
// Speed: the shares of delta that the largest losses may take which are left out at last, and how often delta
// is guessed anew.
constexpr double largest_shares[] = {1e-9, 1e-6};
constexpr int most_rounds = 12;
// Speed: joined pairs' layers are nearly as quick at this tolerance, which is tried first; a single answer
// with a larger gap is worth their time.
constexpr double fine_tolerance = 1e-9, fine_gap = 1e-8;

void keep(std::optional<Answer>& best, const std::optional<Answer>& answer) {
    if (relative_gap(answer) < relative_gap(best)) best = answer;
}

}  // namespace

Inversion::Inversion(const Composition& composition, double accuracy)
    : composition_(composition),
      direct_(std::make_unique<DirectInversion>(composition)),
      narrow_gap_(0.1 * accuracy),
      curve_gap_(narrow_gap_),
      layer_tolerance_(std::clamp(3e-3 * narrow_gap_, 1e-11, 1e-6)),
      fine_tolerance_(direct_->joined() ? fine_tolerance : infinity) {
    if (direct_->joined()) narrow_gap_ = std::min(narrow_gap_, fine_gap);
}
Inversion::~Inversion() = default;

std::unique_ptr<Inversion> Inversion::of(const Composition& composition, double accuracy) {
    std::unique_ptr<Inversion> inversion(new Inversion(composition, accuracy));
    return inversion->direct_->answers() ? std::move(inversion) : nullptr;
}

// dropped: what was left out already.
template <class AskDirect, class AboutDelta>
void Inversion::without_largest(std::optional<Answer>& best, double enough, double dropped,
                                AskDirect ask_direct, AboutDelta delta) const {
    // What is cut must be little beside a delta that may not be known yet.
    double about = delta(best), previous = infinity;
    for (int round = 0; round < most_rounds && about < 0.1 * previous; ++round) {
        for (const double share : largest_shares) {
            const DirectInversion cut(composition_, share * about);
            if (cut.dropped() == std::exchange(dropped, cut.dropped())) continue;
            keep(best, ask_direct(cut, Budget{}));
            if (relative_gap(best) < enough) return;
        }
        previous = std::exchange(about, delta(best));
    }
}

template <class AskDirect, class AskLayers, class AboutDelta>
std::optional<Answer> Inversion::narrowest(Effort effort, bool fits, AskDirect ask_direct,
                                           AskLayers ask_layers, AboutDelta delta) const {
    const auto [enough, layers, layers_at_last] = effort;
    std::optional<Answer> best;
    if (fits) best = ask_direct(*direct_, layers ? Budget{near_exact, few_products, true} : Budget{});
    if (!direct_->can_cut() || relative_gap(best) < enough) return best;
    if (layers) keep(best, ask_layers());
    if (relative_gap(best) < enough) return best;
    without_largest(best, enough, fits && !layers ? direct_->dropped() : -1, ask_direct, delta);
    if (layers_at_last && relative_gap(best) >= enough) keep(best, ask_layers());
    return best;
}

std::optional<Answer> Inversion::epsilon_bounds(double delta) const {
    return narrowest(
        of_one(),
        // It leaves out what is not worth its nodes, unless delta is that small.
        direct_->dropped() <= largest_shares[0] * delta,
        [&](const DirectInversion& direct, Budget budget) { return direct.epsilon_bounds(delta, budget); },
        [&] {
            auto best = direct_->layers(std::min(layer_tolerance_, fine_tolerance_)).epsilon_bounds(delta);
            if (relative_gap(best) >= narrow_gap_ && fine_tolerance_ < layer_tolerance_)
                keep(best, direct_->layers(layer_tolerance_).epsilon_bounds(delta));
            return best;
        },
        [&](const std::optional<Answer>&) { return delta; });
}

std::optional<Answer> Inversion::delta_bounds(double epsilon) const {
    return delta_bounds(epsilon, of_one());
}

std::optional<Answer> Inversion::delta_bounds(double epsilon, Effort effort) const {
    return narrowest(
        effort, true,
        [&](const DirectInversion& direct, Budget budget) { return direct.delta_bounds(epsilon, budget); },
        // delta is wanted to ten digits.
        [&] {
            auto best = direct_->layers(std::min(layer_tolerance_, 1e-12)).delta_bounds(epsilon);
            for (const double tolerance : {fine_tolerance_, layer_tolerance_})
                if (relative_gap(best) >= narrow_gap_ && fine_tolerance_ < infinity)
                    keep(best, direct_->layers(tolerance).delta_bounds(epsilon));
            if (relative_gap(best) >= near_exact)
                keep(best, direct_->delta_bounds(epsilon,
                                                 {std::min(narrow_gap_, relative_gap(best)), some_products}));
            return best;
        },
        [&](const std::optional<Answer>& best) {
            return best ? best->upper : std::exp(direct_->log_delta(epsilon));
        });
}

// Of joined pairs most are narrow without layers, which come last, and are too dear for each of many points.
Inversion::Effort Inversion::of_one() const {
    const bool joined = direct_->joined();
    return {narrow_gap_, direct_->has_layers() && !joined, joined};
}

Inversion::Effort Inversion::of_many() const {
    return {curve_gap_, direct_->has_layers() && !direct_->joined(), false};
}

std::vector<std::optional<Answer>> Inversion::delta_curve(std::span<const double> epsilons) const {
    auto curve = direct_->delta_curve(epsilons, of_many().layers ? Budget{curve_gap_} : Budget{});
    for (std::size_t i = 0; i < curve.size(); ++i)
        if (!(relative_gap(curve[i]) < curve_gap_)) curve[i] = delta_bounds(epsilons[i], of_many());
    return curve;
}

std::vector<std::optional<Answer>> Inversion::rough_curve(std::span<const double> epsilons) const {
    auto curve = direct_->delta_curve(epsilons, of_many().layers ? Budget{curve_gap_} : Budget{}, curve_gap_);
    for (std::size_t i = 0; i < curve.size(); ++i)
        if (!(relative_gap(curve[i]) < 10 * curve_gap_)) curve[i] = delta_bounds(epsilons[i], of_many());
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
