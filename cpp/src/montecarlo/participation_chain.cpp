#include "montecarlo/participation_chain.hpp"

#include <algorithm>

namespace hockeystick {
namespace {

// Pr[Binom(examples, p) = j], j = 0, ..., examples.
std::vector<Extended> binomial_weights(std::size_t examples, double p) {
    std::vector<Extended> weights(examples + 1);
    if (p == 1) {
        weights[examples] = Extended(1.0);
        return weights;
    }
    const Extended odds(p / (1 - p));
    weights[0] = power(Extended(1 - p), examples);
    for (std::size_t j = 1; j <= examples; ++j) {
        const double ways = static_cast<double>(examples - j + 1) / static_cast<double>(j);
        weights[j] = weights[j - 1] * odds * Extended(ways);
    }
    return weights;
}

}  // namespace

bool is_chain(const Scheme& scheme) {
    if (std::holds_alternative<BallsInBins>(scheme) || std::holds_alternative<IndependentBMinSep>(scheme)) {
        return false;
    }
    const auto* multi = std::get_if<MultiAttribution>(&scheme);
    return multi == nullptr || !multi->exact || multi->separation == 1;
}

ParticipationChain::ParticipationChain(const Scheme& scheme, std::size_t step_count, double theta)
    : steps(step_count), separation(std::min(hockeystick::separation(scheme), steps)), start(separation) {
    std::vector<Extended> weights;  // of how many samples
    if (const BMinSep* const base = chain_of(scheme)) {
        const double p = base->probability, available = base->warm_start ? stationary_availability(*base) : 1;
        const double later = base->warm_start ? p * available : 0;
        weights = {Extended(1 - p), Extended(p)};
        start.assign(separation, Extended(later));
        start[0] = Extended(available);
        outside = Extended(later * static_cast<double>(base->separation - separation));
    } else {
        const auto& multi = std::get<MultiAttribution>(scheme);
        weights = binomial_weights(multi.examples, multi.probability);
        start[0] = Extended(1.0);
    }
    stay = weights[0];
    Extended raised(1.0);
    for (std::size_t j = 1; j < weights.size(); ++j) {
        leave = leave + weights[j];
        raised = raised * Extended(theta);
        const Extended weight = weights[j] * raised;
        if (!weight.is_zero()) choices.push_back({weight, static_cast<double>(j)});
    }
}

ParticipationChain::ParticipationChain(const BMinSep& scheme, std::size_t step_count,
                                       const Envelope& envelope)
    : ParticipationChain(scheme, step_count) {
    is_envelope = true;
    const Extended p(scheme.probability);
    choices = {{p * Extended(envelope.never), 0},
               {p * Extended(envelope.once), 1},
               {p * Extended(envelope.twice), 2}};
    std::erase_if(choices, [](const Choice& choice) { return choice.weight.is_zero(); });
}

std::vector<Extended> weights_to_come(const ParticipationChain& chain) {
    std::vector<Extended> result(chain.steps + chain.separation, Extended(1.0));
    for (std::size_t i = chain.steps; i-- > 0;) {
        result[i] = chain.stay * result[i + 1];
        for (const Choice& choice : chain.choices) {
            result[i] = result[i] + choice.weight * result[i + chain.separation];
        }
    }
    return result;
}

std::vector<Extended> powers(const Extended& base, std::size_t count) {
    std::vector<Extended> result{Extended(1.0)};
    for (std::size_t k = 0; k < count; ++k) result.push_back(result.back() * base);
    return result;
}

}  // namespace hockeystick
