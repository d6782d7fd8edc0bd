// One question about a whole composition: engines one after another, as far as it takes.
#include <algorithm>
#include <cmath>
#include <mutex>

#include "profile/direction.hpp"

namespace hockeystick {

// Lattices of more than the mechanisms bound from above alone, and only where nothing else is known;
// Gaussians need none. What is less bounds from below, where that may be nearer.
template <class Ask, class AskLess>
Answer Profile::Direction::with_lattice(Answer best, Ask ask, AskLess ask_less) const {
    if (!stands_in_) return both(best, ask());
    if (known_closely(best, near_enough)) return best;
    if (!unamplified_) best.upper = std::min(best.upper, ask().upper);
    if (!less_)
        less_ = std::make_unique<Direction>(lower_composition(on_lattices(composition_)), rough_gap,
                                            std::min(memory_limit_, memory_of_less), Engine::automatic,
                                            before_lattices_);
    best.lower = std::max(best.lower, std::min(best.upper, ask_less(*less_).lower));
    return best;
}

// Where delta is less than rare steps alone are worth, engines may know nothing from below, after long
// searches.
Answer Profile::Direction::with_frequent(Answer best, double delta) const {
    if (!inversion_ || stands_in_ || !std::isfinite(best.upper) || close(best, near_enough)) return best;
    const Composition left = frequent(composition_);
    if (left.empty()) return best;
    const Direction rest(left, accuracy_, memory_limit_, Engine::automatic, before_lattices_);
    const Answer found = rest.epsilon_bounds(delta);
    best.lower = std::max(best.lower, std::min(best.upper, found.lower));
    if (best.engine.empty()) best.engine = found.engine;
    return best;
}

// Chernoff's bound, which beside an allocation, where it takes long, need say no more than that there is next
// to nothing.
Answer Profile::Direction::with_chernoff(Answer best, double epsilon) const {
    if (!inversion_) return best;
    if (stands_in_ && !(best.lower > 0) && inversion_->surely_below(epsilon, no_delta)) {
        best.upper = std::min(best.upper, no_delta);
        return best;
    }
    best.upper = std::min(best.upper, inversion_->chernoff_delta(epsilon));
    best.lower = std::min(best.lower, best.upper);
    return best.upper <= smallest_double ? less_than_any_double() : best;
}

ByNearOutcomes Profile::Direction::sums_of(double about, double products, const auto& ask) const {
    if (!inversion_) return {};
    const double share = products == few_products ? finest_of_sums : fine_of_sums;
    return by_near_outcomes(composition_, end_.infinity_mass(), about, share * accuracy_,
                            {products, memory_limit_ / bytes_per_outcome}, ask);
}

const ByNearOutcomes& Profile::Direction::epsilon_by_sums(double delta, double products) const {
    if (sums_.delta == delta && sums_.products >= products) return sums_.found;
    sums_ = {delta, not_a_number, products,
             sums_of(delta, products, [&](const auto& form) { return form.epsilon(delta, max_loss_); })};
    return sums_.found;
}

const ByNearOutcomes& Profile::Direction::delta_by_sums(double epsilon, const Answer& about,
                                                        double products) const {
    if (sums_.epsilon == epsilon && sums_.products >= products) return sums_.found;
    sums_ = {not_a_number, epsilon, products, {}};
    if (!inversion_) return sums_.found;
    double guess = about.lower > 0 ? about.lower : std::min(about.upper, inversion_->chernoff_delta(epsilon));
    for (int round = 0; round < most_guesses && guess > 0; ++round) {
        sums_.found = sums_of(guess, products, [&](const auto& form) { return form.delta(epsilon); });
        // Where so much was left out that little else is known.
        if (!sums_.found.form || sums_.found.answer.lower > 0) break;
        guess = std::min(guess, sums_.found.answer.upper) * accuracy_;
    }
    return sums_.found;
}

bool Profile::Direction::epsilon_by_inversion(double delta, Answer& best) const {
    if (sums_first_) best = with_sums(epsilon_by_sums(delta, few_products), best);
    if (known_closely(best, good_of_sums * accuracy_)) return true;
    if (const auto& inverted = inverted_epsilon(delta)) {
        best = both(capped(*inverted, delta), best);
        if (fully_known(*inverted)) return true;
    }
    const auto open = [&] { return !known_closely(best, accuracy_); };
    if (given_early()) best = epsilon_given(delta, best);
    if (open() && apart()) best = epsilon_given_losses(delta, best);
    if (open() && losses_early())
        if (const auto all = inversion_->epsilon_bounds(delta)) best = both(capped(*all, delta), best);
    return !open();
}

bool Profile::Direction::delta_by_inversion(double epsilon, Answer& best) const {
    if (sums_first_) best = with_sums(delta_by_sums(epsilon, best, few_products), best);
    if (close(best, good_of_sums * accuracy_)) return true;
    if (const auto& inverted = inverted_delta(epsilon)) {
        best = both(*inverted, best);
        if (fully_settled(*inverted)) return true;
    }
    if (given_early()) best = delta_given(epsilon, best);
    if (!settled(best) && apart()) best = delta_given_losses(epsilon, best);
    if (!settled(best) && losses_early())
        if (const auto all = inversion_->delta_bounds(epsilon)) best = both(*all, best);
    return settled(best);
}

Answer Profile::Direction::epsilon_of_whole(double delta, Answer best) const {
    const std::lock_guard lock(mutex_);
    // An inversion that takes long would look in vain.
    const bool apart_first = inversion_ && !inversion_->quick();
    if (apart_first && most_apart() <= delta) return exact(0);
    if (epsilon_by_inversion(delta, best)) return best;
    if (const auto ending = end_.epsilon(delta)) {
        best = both(best, *ending);
        if (close(best, accuracy_)) return best;
    }
    if (most_apart() <= delta) return exact(0);
    if (inversion_) best.upper = std::min(best.upper, inversion_->chernoff_epsilon(delta));
    best = with_frequent(best, delta);
    if (known_closely(best, accuracy_)) return best;
    // The curve may be so flat there that bounds of epsilon are wide, though those of delta are not.
    const double well_below = delta - well_known * (delta - end_.infinity_mass().upper);
    if (inverted_delta(best.upper).value_or(exact(0)).lower >= well_below) return best;
    best = with_lattice(
        best, [&] { return lattices().epsilon(delta, accuracy_, most_epsilon()); },
        [&](const Direction& less) { return less.epsilon_bounds(delta); });
    if (!close(best, accuracy_) && given_last()) best = epsilon_given(delta, best);
    if (close(best, accuracy_) || !sums_last()) return best;
    return with_sums(epsilon_by_sums(delta, some_products), best);
}

Answer Profile::Direction::delta_of_whole(double epsilon) const {
    if (coupling_) {
        before_lattices();
        return coupling_->delta(epsilon, accuracy_);
    }
    Answer best = known_of(epsilon);
    if (needs_no_engine(best)) return best;
    const std::lock_guard lock(mutex_);
    if (may_be_nothing(epsilon) && nothing_from({epsilon}, smallest_double) == epsilon)
        return less_than_any_double();
    if (delta_by_inversion(epsilon, best)) return best;
    if (epsilon >= 0) best.upper = std::min(best.upper, most_apart());
    best = with_chernoff(best, epsilon);
    if (!stands_in_ && inversion_ && !settled(best))
        best = both(best, by_single_steps(composition_, epsilon));
    if (settled(best) || (best.upper <= no_delta && (best.lower > 0) != stands_in_)) return best;
    best = with_lattice(
        best, [&] { return lattices().delta(epsilon, accuracy_); },
        [&](const Direction& less) { return less.delta_bounds(epsilon); });
    return settled(best) ? best : delta_at_last(epsilon, best);
}

Answer Profile::Direction::delta_at_last(double epsilon, Answer best) const {
    if (given_last()) best = delta_given(epsilon, best);
    if (settled(best) || !sums_last()) return best;
    return with_sums(delta_by_sums(epsilon, best, some_products), best);
}

}  // namespace hockeystick
