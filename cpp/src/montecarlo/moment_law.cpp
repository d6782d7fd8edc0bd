// Which law of several copies a strategy and a scheme have, and what its tables cost.
#include <algorithm>

#include "montecarlo/bins_law.hpp"
#include "montecarlo/independent_law.hpp"
#include "montecarlo/pair_law.hpp"
#include "montecarlo/triple_law.hpp"
#include "numerics/require.hpp"

namespace hockeystick {
namespace {

double pair_entries(const Strategy& strategy, const Scheme& scheme) {
    const auto n = static_cast<double>(strategy.steps());
    const double apart = std::min(static_cast<double>(separation(scheme)), n);
    if (std::holds_alternative<BallsInBins>(scheme)) {
        return std::min(apart * apart, n * 2 * static_cast<double>(strategy.bands()));
    }
    const auto* multi = std::get_if<MultiAttribution>(&scheme);
    // Truncated: the envelope has three.
    const double choices = multi ? static_cast<double>(multi->examples)
                           : std::holds_alternative<TruncatedBMinSep>(scheme) ? 3
                                                                              : 2;
    return choices * 2 * n * apart;
}

}  // namespace

bool has_moment_law(const Strategy& strategy, const Scheme& scheme, int order, double entries) {
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
    return order == 2 && pair_entries(strategy, scheme) <= entries;
}

std::unique_ptr<MeanLaw> moment_law(const Strategy& strategy, const Scheme& scheme, double noise_multiplier,
                                    int order) {
    check(scheme, strategy.steps());
    require(has_moment_law(strategy, scheme, order),
            "no table of this order for this strategy and sampling scheme");
    if (const auto* bins = std::get_if<BallsInBins>(&scheme)) {
        return std::make_unique<BinsLaw>(strategy, *bins, noise_multiplier);
    }
    if (const auto* base = std::get_if<BMinSep>(&scheme); base && base->separation == 1) {
        return std::make_unique<IndependentLaw>(strategy, base->probability, noise_multiplier, order);
    }
    if (order == 3) return std::make_unique<TripleLaw>(strategy, scheme, noise_multiplier);
    return std::make_unique<PairLaw>(strategy, ParticipationChain(scheme, strategy.steps()),
                                     noise_multiplier);
}

std::unique_ptr<MeanLaw> envelope_law(const Strategy& strategy, const BMinSep& scheme,
                                      double noise_multiplier, const Envelope& envelope) {
    check(scheme, strategy.steps());
    require(strategy.bands() <= scheme.separation, "truncated sampling needs bands <= separation");
    return std::make_unique<PairLaw>(strategy, ParticipationChain(scheme, strategy.steps(), envelope),
                                     noise_multiplier);
}

}  // namespace hockeystick
