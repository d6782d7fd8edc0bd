// What else may be asked of a composition: what stands in for it, lies below it, or is left of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "hockeystick/pairs.hpp"
#include "profile/closed_form.hpp"

namespace hockeystick {

// Of other pairs in the place of some; empty where there are none.
inline Composition with_other(const Composition& composition, PairPtr (Pair::*other)() const) {
    Composition all;
    bool any = false;
    for (const auto& [pair, count] : composition) {
        const PairPtr part = ((*pair).*other)();
        any = any || part;
        all.emplace_back(part ? part : pair, count);
    }
    return any ? all : Composition{};
}

// Of the pairs below the mechanisms; empty where every pair is its mechanism.
inline Composition lower_composition(const Composition& composition) {
    return with_other(composition, &Pair::lower);
}

// P and Q in each other's places; empty where some pair is no allocation and no plain Gaussian, or none is
// the former.
inline Composition mirrored(Composition composition) {
    bool any = false;
    for (auto& [pair, count] : composition) {
        if (const auto law = pair->allocation())
            pair = random_allocation(law->mu, law->steps, law->add ? Sampling::remove : Sampling::add);
        else if (!(plain_gaussian_mu(*pair) > 0))
            return {};
        any = any || pair->allocation();
    }
    return any ? composition : Composition{};
}

// delta(eps) = 1 - e^eps + e^eps delta'(-eps), of P and Q in each other's places: what these say.
inline Answer from_mirror(Answer answer, double epsilon) {
    const double most = std::exp(epsilon), rounding = 8 * u * (1 + std::abs(epsilon));
    answer.lower =
        std::max(trivial_delta(epsilon), (most * answer.lower - std::expm1(epsilon)) * (1 - rounding));
    answer.upper = std::min(1.0, (most * answer.upper - std::expm1(epsilon)) * (1 + rounding));
    return answer;
}

inline Composition on_lattices(Composition composition) {
    for (auto& [pair, count] : composition)
        if (PairPtr other = pair->stand_in()) pair = std::move(other);
    return composition;
}

// The total variation of one step, rounded up; 1 where Q is no distribution.
inline double step_apart(const PairPtr& pair) {
    return pair->q_mass() == 1 ? ClosedForm::of({{pair, 1}}, Engine::fft)->delta(0).upper : 1;
}

// At least the sum of the steps' total variations, which delta at no eps >= 0 is above.
inline double steps_apart(const Composition& composition) {
    // Proof: more than the rounding of a sum over a million kinds.
    constexpr double rounding = 1e-9;
    double sum = 0;
    for (const auto& [pair, count] : composition) sum += static_cast<double>(count) * step_apart(pair);
    return std::min(1.0, sum * (1 + rounding));
}

// What single steps say of all of them. From below, as to leave out the others is post-processing; from
// above, where all are alike, by basic composition: each is (eps/k, delta_1)-DP, so that delta is at most the
// sum of e^{j eps/k} delta_1 over j < k (docs/accounting/bounds.md, "What is not certified").
inline Answer by_single_steps(const Composition& composition, double epsilon) {
    // Proof: more than two quotients of expm1 and a product round by, where no share of epsilon is subnormal.
    constexpr double rounding = 1e-12, least_share = 1e-280;
    Answer found = exact(0);
    found.upper = 1;
    for (const auto& [pair, count] : composition) {
        const auto one = ClosedForm::of({{pair, 1}}, Engine::automatic);
        if (!one || pair->q_mass() != 1) continue;
        found.lower = std::max(found.lower, one->delta(epsilon).lower);
        if (composition.size() > 1 || !(epsilon > least_share)) continue;
        const double share = epsilon / static_cast<double>(count),
                     times = std::expm1(epsilon) / std::expm1(share);
        found.upper =
            std::min(found.upper, one->delta(std::nextafter(share, 0)).upper * times * (1 + rounding));
    }
    found.lower = std::min(found.lower, found.upper);
    return found;
}

// The steps that are not next to nothing together with others of their kind; empty unless some are and some
// are not. To leave out steps is post-processing: what is left bounds from below.
inline Composition frequent(const Composition& composition) {
    // Speed: any share is sound.
    constexpr double next_to_nothing = 1e-3;
    Composition left;
    for (const auto& [pair, count] : composition)
        if (static_cast<double>(count) * step_apart(pair) > next_to_nothing) left.emplace_back(pair, count);
    return left.size() < composition.size() ? left : Composition{};
}

}  // namespace hockeystick
