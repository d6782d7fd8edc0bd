#include "hockeystick/schemes.hpp"

#include <algorithm>
#include <cmath>

#include "hockeystick/random.hpp"
#include "numerics/require.hpp"

namespace hockeystick {
namespace {

// speed: tables grow with the examples of a user.
constexpr std::size_t most_examples = std::size_t{1} << 16;

void check_probability(double p) { require(p >= 0 && p <= 1, "the sampling probability must be in [0, 1]"); }
void check_examples(std::size_t examples) {
    require(examples >= 1 && examples <= most_examples, "a user must have from 1 to 65536 examples");
}

}  // namespace

const BMinSep* chain_of(const Scheme& scheme) noexcept {
    if (const auto* s = std::get_if<TruncatedBMinSep>(&scheme)) return &s->base;
    if (const auto* s = std::get_if<IndependentBMinSep>(&scheme)) return &s->base;
    return std::get_if<BMinSep>(&scheme);
}

double stationary_availability(const BMinSep& scheme) noexcept {
    return 1 / (1 + static_cast<double>(scheme.separation - 1) * scheme.probability);
}

std::size_t separation(const Scheme& scheme) noexcept {
    const auto own = [](const auto& s) {
        if constexpr (requires { s.base; })
            return s.base.separation;
        else if constexpr (requires { s.bins; })
            return s.bins;
        else
            return s.separation;
    };
    return std::visit(own, scheme);
}

void check(const Scheme& scheme, std::size_t steps) {
    require(steps >= 1 && steps <= std::size_t{1} << 31, "steps must be in [1, 2^31]");
    require(separation(scheme) >= 1, "the minimum separation and the number of bins must be >= 1");
    if (const BMinSep* chain = chain_of(scheme)) check_probability(chain->probability);
    if (const auto* s = std::get_if<MultiAttribution>(&scheme)) {
        check_probability(s->probability);
        check_examples(s->examples);
    } else if (const auto* t = std::get_if<TruncatedBMinSep>(&scheme)) {
        require(t->dataset_size >= 1 && t->dataset_size <= std::uint64_t{1} << 53,
                "the dataset size must be in [1, 2^53]");
        require(t->max_batch >= 1, "the largest batch must be >= 1");
    } else if (const auto* i = std::get_if<IndependentBMinSep>(&scheme)) {
        check_examples(i->examples);
    }
}

Envelope envelope(const TruncatedBMinSep& scheme, std::uint64_t most_others, double half_norm, bool absent) {
    // docs/montecarlo/tilted.md, section 8, Lemma 11: never, once, twice are its kappa, lambda and largest s.
    // P_r: with z = LR_1 and LR_2 = e^{-2h} z^2, never >= 1 - s and twice >= s for the second of the two, and
    // never + (once - 1) z + twice e^{-2h} z^2 >= 0 for the first: (1 - once)^2 <= 4 never twice e^{-2h}. The
    // sum of the three is least for never = twice e^{-2h}, if that is allowed.
    constexpr double up = 1 + 1e-12;  // proof: more than rounding takes away
    const auto places = static_cast<double>(scheme.max_batch);
    const auto others = static_cast<double>(std::max(most_others, scheme.max_batch));
    const double kept = std::min(1.0, places / (places + 1) * up);
    if (absent) return {1, kept, 0, -1};
    const double fewest = 1 - places / (others + 1);
    const double overlap = portable_exp(-2 * half_norm);
    const double never = std::min(1.0, std::max(fewest + 1e-15, kept * overlap) * up);
    const double once = std::max(0.0, 1 - 2 * std::sqrt(never * kept * overlap) * (1 - 1e-12));
    return {never, std::min(1.0, once * up), kept, 1};
}

}  // namespace hockeystick
