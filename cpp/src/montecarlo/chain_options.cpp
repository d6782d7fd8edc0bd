#include "montecarlo/chain_options.hpp"

#include <algorithm>
#include <stdexcept>

namespace hockeystick {

bool is_chain(const Scheme& scheme) {
    if (std::holds_alternative<BallsInBins>(scheme) || std::holds_alternative<IndependentBMinSep>(scheme)) {
        return false;
    }
    const auto* multi = std::get_if<MultiAttribution>(&scheme);
    return multi == nullptr || !multi->exact || multi->separation == 1;
}

ChainOptions::ChainOptions(const Scheme& scheme, std::size_t step_count, std::span<const Cut> cuts,
                           double theta)
    : steps(step_count) {
    check(scheme, steps);
    if (!is_chain(scheme)) throw std::invalid_argument("no table for this sampling scheme");
    const auto single = [&](const BMinSep& base) {
        separation = std::min(base.separation, steps);
        stay = 1 - base.probability;
        if (base.probability > 0) usual_ = {{base.probability * theta, 1}};
        const double available = base.warm_start ? stationary_availability(base) : 1;
        const double later = base.warm_start ? base.probability * available : 0;
        start.assign(separation, later);
        start[0] = available;
        outside = later * static_cast<double>(base.separation - separation);
        for (const Cut& cut : cuts) {
            cut_iterations_.push_back(cut.iteration);
            cut_choices_.push_back({base.probability * theta * cut.survival, 2});
            cut_choices_.push_back({base.probability * theta * (1 - cut.survival), 0});
        }
    };
    if (const auto* s = std::get_if<BMinSep>(&scheme)) {
        single(*s);
    } else if (const auto* t = std::get_if<TruncatedBMinSep>(&scheme)) {
        single(t->base);
    } else {
        const auto& m = std::get<MultiAttribution>(scheme);
        separation = std::min(m.separation, steps);
        const double p = m.probability;
        start.assign(separation, 0.0);
        start[0] = 1;
        // Pr[Binom(examples, p) = j] theta^j, in the same steps as the recursion of the likelihood.
        Extended weight(1.0), raised(1.0);
        for (std::size_t j = 0; j < m.examples; ++j) weight = weight * Extended(1 - p);
        const Extended one(1.0);
        stay = weight.over(one);
        for (std::size_t j = 1; j <= m.examples && p > 0; ++j) {
            raised = raised * Extended(theta);
            if (p < 1) {
                const double ways = static_cast<double>(m.examples - j + 1) / static_cast<double>(j);
                weight = weight * Extended(p / (1 - p)) * Extended(ways);
            } else {
                weight = j == m.examples ? one : Extended();
            }
            const double value = (weight * raised).over(one);
            if (value > 0) usual_.push_back({value, static_cast<double>(j)});
        }
    }
}

ChainOptions::ChainOptions(const BMinSep& scheme, std::size_t step_count, const Envelope& envelope)
    : ChainOptions(scheme, step_count, {}, 1.0) {
    is_envelope = true;
    const double p = scheme.probability;
    usual_ = {{p * envelope.never, 0}, {p * envelope.once, 1}, {p * envelope.twice, 2}};
    std::erase_if(usual_, [](const Choice& choice) { return !(choice.weight > 0); });
}

std::span<const Choice> ChainOptions::at(std::size_t iteration) const {
    const auto found = std::lower_bound(cut_iterations_.begin(), cut_iterations_.end(), iteration);
    if (found == cut_iterations_.end() || *found != iteration) return usual_;
    if (usual_.empty()) return usual_;
    return {cut_choices_.data() + 2 * (found - cut_iterations_.begin()), 2};
}

std::size_t ChainOptions::most() const {
    return std::max<std::size_t>(usual_.size(), cut_choices_.empty() ? 1 : 2);
}

std::vector<Extended> weights_to_come(const ChainOptions& options) {
    std::vector<Extended> result(options.steps + options.separation, Extended(1.0));
    for (std::size_t i = options.steps; i-- > 0;) {
        result[i] = Extended(options.stay) * result[i + 1];
        for (const Choice& choice : options.at(i)) {
            result[i] = result[i] + Extended(choice.weight) * result[i + options.separation];
        }
    }
    return result;
}

std::vector<Extended> powers(double stay, std::size_t count) {
    std::vector<Extended> result{Extended(1.0)};
    const Extended factor(stay);
    for (std::size_t k = 0; k < count; ++k) result.push_back(result.back() * factor);
    return result;
}

}  // namespace hockeystick
