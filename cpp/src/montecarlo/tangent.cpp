// The tangent of ln sum_{x != 0} p_x N(Cx)/N(0): the recursion over participations forwards and backwards
// (docs/montecarlo/tilted.md, section 9).
#include <algorithm>
#include <limits>
#include <utility>

#include "montecarlo/half_space.hpp"
#include "montecarlo/participation_chain.hpp"
#include "numerics/extended.hpp"
#include "numerics/require.hpp"

namespace hockeystick {
namespace {

// What the recursions read: in each iteration the weights of all ways to take part together, the same times
// the multiplicity, and the weight of none.
struct Factors {
    std::vector<Extended> take, mean;
    Extended stay;
};

Factors factors(const ParticipationChain& chain, std::span<const double> products,
                std::span<const double> norms) {
    Factors result;
    result.stay = chain.stay;
    for (std::size_t i = 0; i < chain.steps; ++i) {
        Extended take, mean;
        for (const Choice& choice : chain.choices) {
            const double m = choice.multiplicity;
            const Extended weight = choice.weight * Extended::exponential(m * products[i] - m * m * norms[i]);
            take = take + weight;
            mean = mean + weight * Extended(m);
        }
        result.take.push_back(take);
        result.mean.push_back(mean);
    }
    return result;
}

// all[i]: the weight of everything from iteration i on if the example is available in i; some[i]: of what is
// not x = 0. before[i]: the weight of everything before i after which it is available in i.
LikelihoodTangent chain_tangent(const ParticipationChain& chain, const Factors& f) {
    const std::size_t n = chain.steps, b = chain.separation;
    std::vector<Extended> all(n + b, Extended(1.0)), some(n + 1), before(n);
    for (std::size_t i = n; i-- > 0;) {
        const Extended after = f.take[i] * all[i + b];
        all[i] = f.stay * all[i + 1] + after;
        some[i] = f.stay * some[i + 1] + after;
    }
    Extended rest;
    for (std::size_t i = 0; i < b; ++i) rest = rest + chain.start[i] * some[i];
    LikelihoodTangent result{rest.log(), std::vector<double>(n, 0.0)};
    for (std::size_t i = 0; i < n; ++i) {
        before[i] = i < b ? chain.start[i] : f.take[i - b] * before[i - b];
        if (i > 0) before[i] = before[i] + f.stay * before[i - 1];
        if (!rest.is_zero()) result.means[i] = (before[i] * f.mean[i] * all[i + b]).over(rest);
    }
    return result;
}

// The exact law of multi-attribution: samples go on while the examples are barred, and each bars anew. With Q
// = stay, after[i] the weight of everything later than i if i had a sample, of which the next comes 1, 2, ...
// iterations later or, after b - 1 without one, from an available example.
LikelihoodTangent blocked_tangent(const ParticipationChain& chain, const Factors& f) {
    const std::size_t n = chain.steps, b = chain.separation;
    const auto stays = powers(chain.stay, b);
    std::vector<Extended> all(n + 1, Extended(1.0)), some(n + 1), after(n), before(n + 1), barred(n);
    for (std::size_t i = n; i-- > 0;) {
        const std::size_t most = std::min(b - 1, n - 1 - i);
        Extended sum = stays[most] * (i + b <= n ? all[i + b] : Extended(1.0));
        for (std::size_t d = 1; d <= most; ++d) sum = sum + stays[d - 1] * chain.leave * after[i + d];
        after[i] = sum;
        all[i] = f.stay * all[i + 1] + f.take[i] * sum;
        some[i] = f.stay * some[i + 1] + f.take[i] * sum;
    }
    const Extended rest = some[0];
    LikelihoodTangent result{rest.log(), std::vector<double>(n, 0.0)};
    before[0] = Extended(1.0);
    // barred[i]: the weight of everything up to a sample in i.
    for (std::size_t i = 0; i < n; ++i) {
        Extended sum;
        for (std::size_t d = 1; d <= std::min(b - 1, i); ++d) sum = sum + stays[d - 1] * barred[i - d];
        barred[i] = before[i] * f.take[i] + chain.leave * sum;
        before[i + 1] = f.stay * before[i];
        if (i + 1 >= b) before[i + 1] = before[i + 1] + stays[b - 1] * barred[i + 1 - b];
        if (!rest.is_zero()) result.means[i] = (before[i] * f.mean[i] * after[i]).over(rest);
    }
    return result;
}

LikelihoodTangent bins_tangent(std::size_t bins, std::span<const double> products,
                               std::span<const double> norms) {
    std::vector<double> exponents(norms.size());
    for (std::size_t j = 0; j < norms.size(); ++j) exponents[j] = -norms[j];
    for (std::size_t i = 0; i < products.size(); ++i) exponents[i % bins] += products[i];
    std::vector<Extended> weights;
    Extended rest;
    for (const double exponent : exponents) {
        weights.push_back(Extended::exponential(exponent));
        rest = rest + weights.back();
    }
    LikelihoodTangent result{rest.log() - portable_log(static_cast<double>(bins)),
                             std::vector<double>(products.size(), 0.0)};
    for (std::size_t i = 0; i < products.size() && !rest.is_zero(); ++i) {
        result.means[i] = weights[i % bins].over(rest);
    }
    return result;
}

}  // namespace

Posterior posterior(const BMinSep& scheme, std::span<const double> products, std::span<const double> norms) {
    const std::size_t n = products.size();
    const ParticipationChain chain(scheme, n);
    LikelihoodTangent some = chain_tangent(chain, factors(chain, products, norms));
    const auto stays = powers(chain.stay, n);
    Extended none = chain.outside;
    for (std::size_t i = 0; i < chain.separation; ++i) none = none + chain.start[i] * stays[n - i];
    if (some.log_rest == -std::numeric_limits<double>::infinity()) return {none.log(), std::move(some.means)};
    const Extended rest = Extended::exponential(some.log_rest), all = none + rest;
    const double share = rest.over(all);
    for (double& mean : some.means) mean *= share;
    return {all.log(), std::move(some.means)};
}

LikelihoodTangent tangent(const MatrixMechanism& mechanism, std::span<const double> outputs) {
    const auto& [strategy, scheme, noise_multiplier] = mechanism;
    const std::size_t n = strategy.steps();
    check(scheme, n);
    require(!std::holds_alternative<TruncatedBMinSep>(scheme), "the truncated scheme has no half space");
    check_noise_multiplier(noise_multiplier);
    require(outputs.size() == n, "there must be one output per step");
    const auto norms = half_norms(mechanism, true);
    std::vector<double> products(n);
    for (std::size_t i = 0; i < n; ++i) {
        const auto column = strategy.column(i);
        double sum = 0;
        for (std::size_t k = 0; k < column.size(); ++k) sum += column[k] / noise_multiplier * outputs[i + k];
        products[i] = sum;
    }
    if (const auto* places = std::get_if<BallsInBins>(&scheme)) {
        return bins_tangent(places->bins, products, norms);
    }
    require(!std::holds_alternative<IndependentBMinSep>(scheme),
            "several examples per user have no half space");
    const ParticipationChain chain(scheme, n);
    const Factors f = factors(chain, products, norms);
    return is_chain(scheme) ? chain_tangent(chain, f) : blocked_tangent(chain, f);
}

}  // namespace hockeystick
