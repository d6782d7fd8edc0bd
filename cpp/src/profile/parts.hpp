// What else may be asked of a composition: what stands in for it, lies below it, or is left of it.
#pragma once

#include <algorithm>
#include <utility>

#include "hockeystick/pairs.hpp"
#include "profile/closed_form.hpp"

namespace hockeystick {

// Of the pairs below the mechanisms; empty where every pair is its mechanism.
inline Composition lower_composition(const Composition& composition) {
    Composition less;
    bool any = false;
    for (const auto& [pair, count] : composition) {
        const PairPtr part = pair->lower();
        any = any || part;
        less.emplace_back(part ? part : pair, count);
    }
    return any ? less : Composition{};
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
