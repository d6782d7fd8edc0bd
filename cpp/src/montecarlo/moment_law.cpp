// Which law of several copies a strategy and a scheme have, and what its tables cost.
#include <algorithm>

#include "montecarlo/bins_law.hpp"
#include "montecarlo/independent_law.hpp"
#include "montecarlo/pair_law.hpp"
#include "montecarlo/triple_law.hpp"
#include "numerics/constants.hpp"
#include "numerics/require.hpp"

namespace hockeystick {
namespace {

// Speed: how many numbers of examples a user may have, pairs of which are drawn from one by one, and how many
// entries' worth of time an entry of pairs of numbers takes (docs/montecarlo/tilted.md, section 3).
constexpr double most_choices = 64, time_of_pairs = 0.5;

double pair_entries(const MatrixMechanism& mechanism) {
    const auto& [strategy, scheme, noise_multiplier] = mechanism;
    const auto n = static_cast<double>(strategy.steps());
    const double apart = std::min(static_cast<double>(separation(scheme)), n);
    if (std::holds_alternative<BallsInBins>(scheme)) {
        const double products = n * 2 * static_cast<double>(strategy.bands()),
                     each = InnerProducts::cost(strategy);
        // Those of a Toeplitz matrix are looked up, many in the time of an entry.
        const double time = strategy.is_toeplitz() ? std::max(products / 8, each) : products * each / 16;
        return std::max(time, std::min(apart * apart, products));
    }
    const auto* multi = std::get_if<MultiAttribution>(&scheme);
    // Truncated: the envelope has three.
    const double choices = multi ? static_cast<double>(multi->examples)
                           : std::holds_alternative<TruncatedBMinSep>(scheme) ? 3
                                                                              : 2;
    if (choices > most_choices) return infinity;
    return std::max(choices * 2, multi ? time_of_pairs * choices * choices : 0.0) * n * apart;
}

}  // namespace

bool has_moment_law(const MatrixMechanism& mechanism, int order, double entries) {
    const auto& [strategy, scheme, noise_multiplier] = mechanism;
    if (order < 2 || std::holds_alternative<IndependentBMinSep>(scheme)) return false;
    if (const auto* base = std::get_if<BMinSep>(&scheme); base && base->separation == 1) {
        return strategy.bands() == 1 && order <= 1024 &&  // speed
               static_cast<double>(strategy.steps()) * order <= entries;
    }
    if (!std::holds_alternative<BallsInBins>(scheme) &&
        (!is_chain(scheme) || strategy.bands() > separation(scheme))) {
        return false;
    }
    if (order == 3) {
        const auto* base = std::get_if<BMinSep>(&scheme);
        if (base == nullptr || base->separation > strategy.steps()) return false;
        const auto n = static_cast<double>(strategy.steps()), b = static_cast<double>(base->separation);
        return n * b * b <= entries / 8 && b <= 256;  // speed
    }
    return order == 2 && pair_entries(mechanism) <= entries;
}

std::unique_ptr<MeanLaw> moment_law(const MatrixMechanism& mechanism, int order) {
    const Scheme& scheme = mechanism.scheme;
    check(scheme, mechanism.steps());
    require(has_moment_law(mechanism, order), "no table of this order for this strategy and sampling scheme");
    if (std::holds_alternative<BallsInBins>(scheme)) {
        return std::make_unique<BinsLaw>(mechanism);
    }
    if (const auto* base = std::get_if<BMinSep>(&scheme); base && base->separation == 1) {
        return std::make_unique<IndependentLaw>(mechanism, base->probability, order);
    }
    if (order == 3) return std::make_unique<TripleLaw>(mechanism);
    return std::make_unique<PairLaw>(mechanism, ParticipationChain(scheme, mechanism.steps()));
}

std::unique_ptr<MeanLaw> envelope_law(const MatrixMechanism& mechanism, const Envelope& envelope) {
    const BMinSep& base = *chain_of(mechanism.scheme);
    check(base, mechanism.steps());
    require(mechanism.strategy.bands() <= base.separation, "truncated sampling needs bands <= separation");
    return std::make_unique<PairLaw>(mechanism, ParticipationChain(base, mechanism.steps(), envelope));
}

}  // namespace hockeystick
