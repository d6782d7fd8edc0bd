// What other directions say of this one: those of what is beside its atoms, given each of their outcomes, and
// that of P and Q in each other's places.
#include <algorithm>
#include <functional>
#include <mutex>
#include <numeric>

#include "profile/direction.hpp"
#include "profile/outcomes_of_curve.hpp"

namespace hockeystick {
namespace {

// What a lattice says; below 0, where its tilt may leave it little to say, also by chords of a convex
// function of e^eps that is 1 at 0.
Answer by_lattice(const LatticeEngine::Tables& tables, double epsilon) {
    // Speed: which chords.
    constexpr int chords = 8;
    Answer answer = LatticeEngine::delta_by(tables, epsilon);
    double at = 0.5 * epsilon;
    for (int i = 0; epsilon < 0 && i < chords; ++i, at *= i + 1 < chords ? 0.5 : 0) {
        const double gap = std::expm1(epsilon - at), there = LatticeEngine::delta_by(tables, at).upper;
        answer.upper = std::min(answer.upper, (there + gap * (there - 1)) * (1 + 8 * u));
    }
    answer.lower = std::min(answer.lower, answer.upper);
    return answer;
}

bool beside(const Answer& found, double ceiling) { return found.upper <= ceiling || found.lower > ceiling; }

}  // namespace

std::unique_ptr<Profile::Direction> Profile::Direction::other(Composition composition,
                                                              double accuracy) const {
    return std::make_unique<Direction>(std::move(composition), accuracy, memory_limit_, Engine::automatic,
                                       before_lattices_);
}

GivenOutcomes::Rest Profile::Direction::as_rest() const {
    return {[this](auto epsilons, double sum) {
                return ask_in_order(epsilons, [&](const auto& sorted) { return delta_curve(sorted, sum); });
            },
            [this](auto epsilons, double negligible) {
                const std::lock_guard lock(mutex_);
                return nothing_from(std::move(epsilons), negligible);
            }};
}

GivenOutcomes::Rest Profile::Direction::as_rest(const LatticeEngine::TablesPtr& lattice,
                                                const std::optional<ClosedForm>& sums) {
    return {[lattice, sums](auto epsilons, double) {
                std::vector<Answer> deltas;
                for (const double epsilon : epsilons) {
                    deltas.push_back(by_lattice(*lattice, epsilon));
                    if (sums) deltas.back() = both(deltas.back(), sums->delta(epsilon));
                }
                return deltas;
            },
            [](const auto&, double) { return not_a_number; }};
}

std::vector<Answer> Profile::Direction::Given::delta_curve(std::span<const double> epsilons,
                                                           std::span<const double> about) const {
    return outcomes.delta_curve(epsilons, about, rest->as_rest());
}

Answer Profile::Direction::Given::epsilon_bounds(double delta, const Answer& about) const {
    return outcomes.epsilon_bounds(delta, about, rest->as_rest());
}

const Profile::Direction::Given* Profile::Direction::given() const {
    auto outcomes = !asked_given_ && inversion_ ? GivenOutcomes::of(composition_) : std::nullopt;
    if (outcomes) {
        inversion_->beside(outcomes->size());
        auto rest = other(outcomes->rest(), share_of_rest * accuracy_);
        given_ = Given{std::move(*outcomes), std::move(rest)};
    }
    asked_given_ = true;
    return given_ ? &*given_ : nullptr;
}

Answer Profile::Direction::epsilon_given(double delta, Answer best) const {
    if (!(best.lower > 0 && std::isfinite(best.upper)))
        best.upper = std::min(best.upper, inversion_->chernoff_epsilon(delta));
    best = both(given()->epsilon_bounds(delta, best), best);
    if (close(best, accuracy_) || effort() == Inversion::Effort::all) return best;
    const auto inverted = inversion_->epsilon_bounds(delta);
    return inverted ? both(capped(*inverted, delta), best) : best;
}

Answer Profile::Direction::delta_given(double epsilon, Answer best) const {
    best = both(given()->delta_curve({&epsilon, 1}, {&best.lower, 1}).front(), best);
    if (settled(best) || effort() == Inversion::Effort::all) return best;
    const auto inverted = inversion_->delta_bounds(epsilon);
    return inverted ? both(*inverted, best) : best;
}

const Profile::Direction::Apart* Profile::Direction::apart() const {
    if (!std::exchange(asked_apart_, true) && stands_in_ && inversion_) {
        Composition allocations, others;
        for (const auto& step : composition_) (step.first->stand_in() ? allocations : others).push_back(step);
        if (!others.empty() && !mirrored(allocations).empty())
            apart_ = Apart{other(std::move(allocations), share_of_rest * accuracy_),
                           other(std::move(others), share_of_rest * accuracy_)};
    }
    return apart_ ? &*apart_ : nullptr;
}

// From P's mass of 1e-10 on, by P and Q in each other's places, to that share of delta.
std::optional<std::pair<double, double>> Profile::Direction::Apart::losses(double delta) const {
    const Direction* turned = nullptr;
    {
        const std::lock_guard lock(allocations->mutex_);
        turned = allocations->mirror();
    }
    const double low = -turned->epsilon_bounds(negligible_losses).upper,
                 high = allocations->epsilon_bounds(negligible_losses * delta).upper;
    if (!(low < 0 && high > 0 && high - low < infinity)) return {};
    return std::pair(low, high);
}

// More points where the last ones show that losses count, until what is asked for is as close as wanted.
template <class Ask, class Where, class Near>
Answer Profile::Direction::given_losses(double delta, Answer best, const GivenOutcomes::Rest& rest, Ask ask,
                                        Where where, Near near) const {
    const auto range = delta > least_told_apart ? apart()->losses(delta) : std::nullopt;
    if (!range) return best;
    const LinesKept lines(*apart()->allocations);
    std::vector<double> points = first_points(range->first, range->second);
    double before = infinity;
    for (int pass = 1;; ++pass) {
        const GivenOutcomes outcomes(outcomes_of_curve(points, apart()->allocations->delta_curve(points)),
                                     exact(0));
        best = both(ask(outcomes, best), best);
        const double gap = best.upper - best.lower;
        const bool narrower = gap < worth_more_losses * std::exchange(before, gap);
        if (near(best) || pass == most_passes || (std::isfinite(gap) && !narrower)) return best;
        if (!std::isfinite(where(best))) return best;
        const double wanted = std::sqrt(gap / (fine_of_losses * accuracy_ * best.upper)),
                     count = std::clamp(std::isfinite(gap) ? 1.2 * wanted : 4.0, 2.0, 16.0) *
                             static_cast<double>(points.size());
        points = finer_points(points, outcomes.shares(where(best), rest),
                              std::min(most_losses, static_cast<std::size_t>(count)));
    }
}

template <class AskLattice, class AskSums>
Profile::Direction::Beside Profile::Direction::beside_losses(AskLattice ask_lattice, AskSums ask_sums) const {
    const std::lock_guard lock(mutex_);
    // Those of atoms are sooner put together than lattices are fine.
    const Answer found = ask_lattice(lattices(), sums_beside() ? accuracy_ : fine_of_sums * accuracy_);
    const LatticeEngine::TablesPtr lattice = lattices_.last();
    if (known_closely(found, fine_of_sums * accuracy_)) return {as_rest(lattice), found};
    const ByNearOutcomes& sums =
        ask_sums(known_closely(found, accuracy_) ? some_products : most_products, found);
    return {as_rest(lattice, sums.form), with_sums(sums, found)};
}

Answer Profile::Direction::epsilon_given_losses(double delta, Answer best, double ceiling) const {
    const Direction& others = *apart()->others;
    const Beside said = others.closed_
                            ? Beside{others.as_rest(), others.epsilon_bounds(delta)}
                            : others.beside_losses(
                                  [&](auto& lattices, double accuracy) {
                                      return lattices.epsilon(delta, accuracy, others.most_epsilon());
                                  },
                                  [&](double products, const Answer&) -> const auto& {
                                      return others.epsilon_by_sums(delta, products);
                                  });
    const GivenOutcomes::Rest& rest = said.rest;
    Answer guess = said.alone;
    // The steps together spend no less than some of them, and seldom more than both alone.
    best.lower = std::max(best.lower, std::min(best.upper, guess.lower));
    guess.upper += apart()->allocations->epsilon_bounds(delta).upper;
    return given_losses(
        delta, best, rest,
        [&](const GivenOutcomes& outcomes, const Answer& known) {
            return outcomes.epsilon_bounds(delta, std::isfinite(known.upper) ? known : guess, rest);
        },
        [&](const Answer& found) {
            const double high = std::isfinite(found.upper) ? found.upper : guess.upper;
            return std::midpoint(found.lower > 0 ? found.lower : high, high);
        },
        [&](const Answer& found) {
            return beside(found, ceiling) || known_closely(found, fine_of_losses * accuracy_);
        });
}

Answer Profile::Direction::delta_given_losses(double epsilon, Answer best, double ceiling) const {
    const Direction& others = *apart()->others;
    const Beside said =
        others.closed_
            ? Beside{others.as_rest(), others.closed_delta(epsilon)}
            : others.beside_losses(
                  [&](auto& lattices, double accuracy) { return lattices.delta(epsilon, accuracy); },
                  [&](double products, const Answer& about) -> const auto& {
                      return others.delta_by_sums(epsilon, about, products);
                  });
    const GivenOutcomes::Rest& rest = said.rest;
    const double least =
        std::max({best.lower, said.alone.lower, apart()->allocations->delta_bounds(epsilon).lower});
    return given_losses(
        least, best, rest,
        [&](const GivenOutcomes& outcomes, const Answer& about) {
            return outcomes.delta_curve({&epsilon, 1}, {&about.lower, 1}, rest).front();
        },
        [&](const Answer&) { return epsilon; },
        [&](const Answer& found) { return beside(found, ceiling) || settled(found); });
}

bool Profile::Direction::epsilon_surely_at_most(double delta, double ceiling, const Direction* more) const {
    if (!slow_inversion()) return false;
    if (more && more->epsilon_bounds(delta).upper <= ceiling) return true;
    if (!apart()) return false;
    const auto little = given_early() ? inverted_epsilon(delta)
                                      : inversion_->epsilon_bounds(delta, Inversion::Effort::little);
    const Answer known = little.value_or(unknown(infinity));
    if (beside(known, ceiling)) return known.upper <= ceiling;
    return epsilon_given_losses(delta, known, ceiling).upper <= ceiling;
}

bool Profile::Direction::delta_surely_at_most(double epsilon, double ceiling, const Direction* more) const {
    if (!slow_inversion()) return false;
    if (more && more->delta_bounds(epsilon).upper <= ceiling) return true;
    if (!apart()) return false;
    const auto little = given_early() ? inverted_delta(epsilon)
                                      : inversion_->delta_bounds(epsilon, Inversion::Effort::little);
    const Answer known = little.value_or(unknown(1));
    if (beside(known, ceiling)) return known.upper <= ceiling;
    return delta_given_losses(epsilon, known, ceiling).upper <= ceiling;
}

// delta falls, so that it is no less than what is known of one further on.
void Profile::Direction::keep_given(std::span<const double> epsilons, std::span<const double> known,
                                    double below, std::vector<std::optional<Answer>>& curve) const {
    const auto open = [&](std::size_t i) { return !curve[i] && epsilons[i] < below; };
    std::vector<std::size_t> last_first(epsilons.size());
    std::iota(last_first.begin(), last_first.end(), std::size_t{0});
    std::ranges::sort(last_first, std::greater(), [&](std::size_t i) { return epsilons[i]; });
    std::vector<double> least(epsilons.size()), about;
    double most = 0;
    for (const std::size_t i : last_first) least[i] = most = std::max(most, known[i]);
    for (std::size_t i = 0; i < epsilons.size(); ++i)
        if (open(i)) about.push_back(least[i]);
    ask_together(
        epsilons, open, [&](const auto& asked) { return given()->delta_curve(asked, about); },
        [&](std::size_t i, const Answer& found) {
            if (settled(found)) curve[i] = found;
        });
}

const Profile::Direction* Profile::Direction::looser() const {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(asked_looser_, true) && inversion_)
        if (Composition more = with_other(composition_, &Pair::looser); !more.empty())
            looser_ = other(std::move(more), accuracy_);
    return looser_.get();
}

const Profile::Direction* Profile::Direction::mirror() const {
    if (!asked_mirror_ && inversion_)
        if (Composition turned = mirrored(composition_); !turned.empty())
            mirror_ = other(std::move(turned), accuracy_);
    asked_mirror_ = true;
    return mirror_.get();
}

std::vector<std::optional<Answer>> Profile::Direction::by_mirror(std::span<const double> epsilons) const {
    std::vector<std::optional<Answer>> curve(epsilons.size());
    if (!std::any_of(epsilons.begin(), epsilons.end(), [](double epsilon) { return epsilon < 0; }))
        return curve;
    const std::lock_guard lock(mutex_);
    const Direction* other = mirror();
    if (!other) return curve;
    ask_together(
        epsilons, [&](std::size_t i) { return epsilons[i] < 0; },
        [&](std::vector<double> turned) {
            for (double& epsilon : turned) epsilon = -epsilon;
            return ask_in_order(turned, [&](const auto& sorted) {
                return other->but_for_nothing(sorted, negligible_of_mirror);
            });
        },
        [&](std::size_t i, const Answer& found) { curve[i] = from_mirror(found, epsilons[i]); });
    return curve;
}

std::vector<Answer> Profile::Direction::but_for_nothing(std::span<const double> epsilons,
                                                        double negligible) const {
    double end = not_a_number;
    {
        const std::lock_guard lock(mutex_);
        end = nothing_from({epsilons.begin(), epsilons.end()}, negligible);
    }
    Answer hardly = exact(0);
    hardly.upper = negligible;
    std::vector<Answer> curve(epsilons.size(), hardly);
    ask_together(
        epsilons, [&](std::size_t i) { return !(epsilons[i] >= end); },
        [&](const auto& open) { return delta_curve(open); },
        [&](std::size_t i, const Answer& found) { curve[i] = found; });
    return curve;
}

}  // namespace hockeystick
