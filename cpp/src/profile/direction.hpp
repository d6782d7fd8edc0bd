// One direction of a profile: which engine answers it (docs/accounting/bounds.md). A question goes on until
// an answer is as close as asked for:
//   1. beyond the largest losses or next to their sum: SupportEnd;
//   2. a closed form, or the sum over all outcomes where these are few: ClosedForm;
//   3. at eps < 0, of allocations, P and Q in each other's places: direction_beside.cpp;
//   4. of a few atoms on no lattice, sums over outcomes that are put together: near_outcomes.hpp;
//   5. the inverse of the transform: Inversion; beside allocations, where that is not close at little effort,
//      what is left of it given each outcome of the atoms, and after all effort what is left given each loss
//      of the allocations: GivenOutcomes;
//   6. what takes little: Chernoff's bound, single steps, the frequent steps alone (parts.hpp);
//   7. lattices: LatticeEngine, beside an allocation of its noise alone; and at last such sums of all else.
// Lower bounds of pairs that are more than their mechanism come from a Direction of what lies below them;
// upper bounds, where they are wide, also from one of looser pairs that are simpler.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "hockeystick/mutex.hpp"
#include "hockeystick/profile.hpp"
#include "inversion/inversion.hpp"
#include "numerics/constants.hpp"
#include "profile/answers.hpp"
#include "profile/closed_form.hpp"
#include "profile/coupling_engine.hpp"
#include "profile/given_outcomes.hpp"
#include "profile/lattice_engine.hpp"
#include "profile/near_outcomes.hpp"
#include "profile/parts.hpp"
#include "profile/support_end.hpp"

namespace hockeystick {

class Profile::Direction {
public:
    Direction(Composition composition, double accuracy, std::size_t memory_limit, Engine engine,
              const std::function<void()>& before_lattices)
        : accuracy_(accuracy),
          memory_limit_(memory_limit),
          before_lattices_(before_lattices),
          end_(composition),
          max_loss_(end_.sum()),
          stands_in_(std::any_of(composition.begin(), composition.end(),
                                 [](const auto& step) { return step.first->stand_in() != nullptr; })),
          closed_(ClosedForm::of(composition, engine)),
          inversion_(engine == Engine::automatic ? Inversion::of(composition, accuracy, memory_limit)
                                                 : nullptr),
          unamplified_(stands_in_ ? ClosedForm::of(on_lattices(composition), engine) : std::nullopt),
          plain_(inversion_ && stands_in_ && !unamplified_
                     ? Inversion::of(on_lattices(composition), accuracy, memory_limit)
                     : nullptr),
          lattices_(on_lattices(composition), end_.log_finite(), memory_limit) {
        summed_ = !closed_ && engine == Engine::automatic;
        if (summed_)
            closed_ = ClosedForm::of_outcomes(composition,
                                              inversion_ && inversion_->quick()
                                                  ? outcomes_beside_inversion
                                                  : std::min(most_outcomes, memory_limit / bytes_per_outcome),
                                              end_.infinity_mass());
        if (stands_in_ && !inversion_)
            throw std::invalid_argument("Profile: these pairs are answered by inversion alone");
        composition_ = composition;
        sums_first_ =
            summed_ && inversion_ && inversion_->takes_noise() && sums_last() &&
            std::ranges::all_of(composition, [](const auto& step) { return only_atoms(*step.first); });
        if (engine == Engine::prv) coupling_.emplace(composition, memory_limit);
        if (Composition less = lower_composition(composition); !less.empty())
            lower_ =
                std::make_unique<Direction>(std::move(less), accuracy, memory_limit, engine, before_lattices);
    }

    // Where pairs are more than their mechanism, their answer is an upper bound alone, here and in what
    // follows; the lower one is that of `lower_`.
    Answer epsilon_bounds(double delta) const {
        Answer answer = epsilon_of_pairs(delta);
        if (const Direction* more = known_closely(answer, accuracy_) ? nullptr : looser())
            answer = with_upper(answer, more->epsilon_bounds(delta));
        return lower_ ? with_lower(answer, lower_->epsilon_bounds(delta)) : answer;
    }

    Answer delta_bounds(double epsilon) const {
        Answer answer = delta_alone(epsilon);
        if (const Direction* more = settled(answer) ? nullptr : looser())
            answer = with_upper(answer, more->delta_bounds(epsilon));
        return lower_ ? with_lower(answer, lower_->delta_bounds(epsilon)) : answer;
    }

    // The same at many: what an engine lays for one of them serves its neighbours. sum: no less than what
    // they are added up to, weighted, so that none need be known more closely than that.
    std::vector<Answer> delta_curve(std::span<const double> epsilons, double sum = 0) const;

    // As delta_curve, roughly: where the inversion does not answer a few lattices do, and nothing is asked
    // about a delta that is negligible.
    std::vector<Answer> rough_curve(std::span<const double> epsilons, double negligible) const;

    // Whether that takes next to no time, whatever delta is.
    bool quick() const {
        return (closed_ || (inversion_ && inversion_->quick())) && (!lower_ || lower_->quick());
    }

    // Whether an upper bound, mostly a coarse one, proves that eps(delta), or delta(eps), is at most
    // `ceiling`.
    bool epsilon_at_most(double delta, double ceiling) const {
        if (delta >= 1 || ceiling == infinity) return true;
        if (!(ceiling > 0) || delta <= end_.infinity_mass().upper || delta == 0 || closed_ || coupling_)
            return false;
        // Finite losses never add up to more.
        if (ceiling >= max_loss_) return true;
        const Direction* more = slow_inversion() ? looser() : nullptr;
        const std::lock_guard lock(mutex_);
        return coarsely([&] { return inversion_->surely_below(ceiling, delta); },
                        [&] { return lattices().epsilon_at_most(delta, ceiling); },
                        [&]() -> std::optional<bool> {
                            if (epsilon_surely_at_most(delta, ceiling, more)) return true;
                            const auto& inverted = inverted_epsilon(delta);
                            return inverted ? std::optional(inverted->upper <= ceiling) : std::nullopt;
                        });
    }
    // dear: whether the inversion may be asked for more than that.
    bool delta_at_most(double epsilon, double ceiling, bool dear = true) const {
        if (ceiling >= 1) return true;
        if (!(ceiling > 0) || !std::isfinite(epsilon) || closed_ || coupling_) return false;
        if (end_.rules(epsilon)) return end_.delta(epsilon).upper <= ceiling;
        // Finite losses never add up to more.
        if (epsilon >= max_loss_ && end_.infinity_mass().upper <= ceiling) return true;
        const Direction* more = dear && slow_inversion() ? looser() : nullptr;
        const std::lock_guard lock(mutex_);
        return coarsely([&] { return inversion_->surely_below(epsilon, ceiling); },
                        [&] { return lattices().delta_at_most(epsilon, ceiling); },
                        [&]() -> std::optional<bool> {
                            if (!dear) return false;
                            if (delta_surely_at_most(epsilon, ceiling, more)) return true;
                            const auto& inverted = inverted_delta(epsilon);
                            return inverted ? std::optional(inverted->upper <= ceiling) : std::nullopt;
                        });
    }

private:
    // proof: more than 2^53 losses lose to underflow, each some units of the smallest double. speed: losses
    // this small underflow in every transform.
    static constexpr double smallest_loss = 1e-290;
    static constexpr double smallest_double = 5e-324, not_a_number = std::numeric_limits<double>::quiet_NaN();
    // speed: so many outcomes are added up where the inversion is quick, and where it takes longer.
    static constexpr std::size_t outcomes_beside_inversion = 256, most_outcomes = 1 << 17;
    static constexpr std::size_t bytes_per_outcome = 128;
    // speed: no smaller delta is worth an engine, where it is bounded already, or as it has few digits.
    static constexpr double no_delta = 1e-100, least_normal = std::numeric_limits<double>::min();
    // speed: a lower bound from pairs below those that stand in (`less_`) is no nearer than this.
    static constexpr double rough_gap = 1e-3;
    // speed: the memory that lattices of `less_` may take, each point of which is dear.
    static constexpr std::size_t memory_of_less = std::size_t{1} << 23;
    // speed: where bounds are as near as this, `less_` is not asked, and nothing beside a sum over outcomes.
    static constexpr double near_enough = 1e-2;
    // speed: how near the inversion knows a delta of whose epsilon no lattice would say more.
    static constexpr double well_known = 1e-6;
    // speed: what the rounding of losses leaves open next to one of them.
    static constexpr double rounding_of_loss = 1e-12;
    // speed: how near to the sum of the largest losses, relatively, engines look in vain for more than these
    // say, where that is as close as this.
    static constexpr double next_to_end = 3e-10, near_end = 2e-2;
    // speed: what outcomes beside allocations may improve on, beside the accuracy.
    static constexpr double fine = 1e-3;
    // speed: how much more closely than the whole what is beside atoms is asked for, and of the accuracy what
    // one delta may be off by beside a sum of several.
    static constexpr double share_of_rest = 0.25, share_of_sum = 1e-4;
    // speed: what of an allocation's losses is left out, of P's mass and of delta; how many are told apart;
    // how closely eps is looked for, beside the accuracy.
    static constexpr double negligible_losses = 1e-10;
    static constexpr std::size_t most_losses = 8192;
    static constexpr double fine_of_losses = 0.001;
    // speed: of more steps sums over outcomes that are put together take longer than noise, or than very many
    // frequencies beside allocations; unless all of them hardly tell P and Q apart, alone.
    static constexpr std::uint64_t few_steps = 100, most_rare_steps = 1000;
    static constexpr double hardly_apart = 0.02;
    // speed: how closely these are asked for, beside the accuracy, of a point before anything else and
    // otherwise, and which of the first answers will do; how many products of masses they may take then, for
    // some points of a curve or at last, and beside allocations; how often delta is guessed anew.
    static constexpr double finest_of_sums = 1e-3, fine_of_sums = 0.03, good_of_sums = 0.1,
                            few_products = 1e8, some_products = 2e8, most_products = 2e9;
    static constexpr int most_guesses = 6;
    // speed: transforms of allocations leave out 1e-60; next to that nothing comes of their losses.
    static constexpr double least_told_apart = 1e-50;
    // speed: by how much more of them must have narrowed an answer to be worth another look; how many there
    // are.
    static constexpr double worth_more_losses = 0.8;
    static constexpr int most_passes = 6;
    // speed: nobody looks for less of what a mirror says.
    static constexpr double negligible_of_mirror = 1e-16;
    // speed: how many points of a curve of next to no delta are bounded one by one.
    static constexpr std::size_t most_chernoff = 8;
    // proof: more than the rounding of the largest losses and of their sum ("The end of the support").
    static constexpr double rounding_of_max_loss = 2e-11;

    // What other directions say of this one (direction_beside.cpp). Another composition, asked as this one is
    // but for its accuracy.
    std::unique_ptr<Direction> other(Composition composition, double accuracy) const;
    // Given each outcome of the atoms: these, and who answers for what is beside them. given: null where
    // there is no such part, or rest.
    struct Given {
        GivenOutcomes outcomes;
        std::unique_ptr<Direction> rest;

        std::vector<Answer> delta_curve(std::span<const double> epsilons,
                                        std::span<const double> about) const;
        Answer epsilon_bounds(double delta, const Answer& about) const;
    };
    const Given* given() const;
    // Beside allocations that comes before what is dear, elsewhere after all else.
    bool given_early() const { return stands_in_ && given(); }
    // The same of their own losses, where a few steps of atoms beside them take noise.
    bool losses_early() const {
        return std::ranges::all_of(
                   composition_,
                   [](const auto& step) { return step.first->stand_in() || only_atoms(*step.first); }) &&
               apart() && apart()->others->sums_beside();
    }
    // Whether outcomes that are put together may say more than lattices.
    bool sums_last() const {
        if (!inversion_ || stands_in_) return false;
        const std::uint64_t steps = total_steps(composition_);
        return steps <= few_steps || (steps <= most_rare_steps && most_apart() <= hardly_apart);
    }
    bool sums_beside() const { return sums_first_ && total_steps(composition_) <= few_steps; }
    bool given_last() const { return !stands_in_ && given(); }
    // Where `best` is not close; if that is in vain, all that the inversion may try. keep_given: of a curve,
    // what is open below that point; known: of each at least, or 0.
    Answer epsilon_given(double delta, Answer best) const;
    Answer delta_given(double epsilon, Answer best) const;
    void keep_given(std::span<const double> epsilons, std::span<const double> known, double below,
                    std::vector<std::optional<Answer>>& curve) const;
    // This one, or what a lattice knows of it, as what is left given an outcome of something else.
    GivenOutcomes::Rest as_rest() const;
    static GivenOutcomes::Rest as_rest(const LatticeEngine::TablesPtr& lattice,
                                       const std::optional<ClosedForm>& sums = {});
    // Outcomes that are put together, where noise and lattices take longer or round-off hides delta from
    // them.
    const ByNearOutcomes& epsilon_by_sums(double delta, double products) const;
    const ByNearOutcomes& delta_by_sums(double epsilon, const Answer& about, double products) const;
    void keep_sums(std::span<const double> epsilons, std::vector<std::optional<Answer>>& curve) const;
    std::vector<std::optional<Answer>> curve_by_sums(std::span<const double> epsilons) const;
    static Answer named_by_sums(Answer answer) {
        answer.engine = by_sums;
        return answer;
    }
    ByNearOutcomes sums_of(double about, double products, const auto& ask) const;
    static Answer with_sums(const ByNearOutcomes& sums, const Answer& best) {
        return sums.form ? both(sums.answer, best) : best;
    }
    // Given each loss of the allocations: these alone, and what is beside them; null where nothing is.
    struct Apart {
        std::unique_ptr<Direction> allocations, others;

        // From where to where it counts, with this delta.
        std::optional<std::pair<double, double>> losses(double delta) const;
    };
    const Apart* apart() const;
    // While this lives what one curve has laid serves the next ones, of the same question.
    class LinesKept {
    public:
        explicit LinesKept(const Direction& direction) : direction_(direction) { keep(true); }
        ~LinesKept() { keep(false); }
        LinesKept(const LinesKept&) = delete;
        LinesKept& operator=(const LinesKept&) = delete;

    private:
        void keep(bool whether) const {
            const std::lock_guard lock(direction_.mutex_);
            if (direction_.inversion_) direction_.inversion_->keep_lines(whether);
        }
        const Direction& direction_;
    };
    // What is beside them by a lattice, or where that is not close by sums as well; and what these say alone.
    struct Beside {
        GivenOutcomes::Rest rest;
        Answer alone;
    };
    template <class AskLattice, class AskSums>
    Beside beside_losses(AskLattice ask_lattice, AskSums ask_sums) const;
    template <class Ask, class Where, class Near>
    Answer given_losses(double delta, Answer best, const GivenOutcomes::Rest& rest, Ask ask, Where where,
                        Near near) const;
    // ceiling: where it is enough to know on which side of it the answer lies.
    Answer epsilon_given_losses(double delta, Answer best, double ceiling = not_a_number) const;
    Answer delta_given_losses(double epsilon, Answer best, double ceiling = not_a_number) const;
    // Whether looser pairs, little effort of the inversion, or the losses of allocations say so, which is not
    // worth it where the inversion is quick.
    bool epsilon_surely_at_most(double delta, double ceiling, const Direction* more) const;
    bool delta_surely_at_most(double epsilon, double ceiling, const Direction* more) const;
    bool slow_inversion() const { return inversion_ && !inversion_->quick(); }
    // Of looser pairs: bounds from above, where the pairs' own are wide. Null where there are none.
    const Direction* looser() const;
    template <class Wide, class Ask>
    void ask_looser(std::span<const double> epsilons, Wide wide, std::vector<Answer>& curve, Ask ask) const;
    // P and Q in each other's places, or null: at eps < 0 little depends on what these leave to be known.
    // Empty elsewhere.
    const Direction* mirror() const;
    std::vector<std::optional<Answer>> by_mirror(std::span<const double> epsilons) const;
    std::optional<Answer> by_mirror(double epsilon) const { return by_mirror({&epsilon, 1}).front(); }
    // As delta_curve; where there is surely less than `negligible` nothing more is known.
    std::vector<Answer> but_for_nothing(std::span<const double> epsilons, double negligible) const;

    std::vector<std::optional<Answer>> one_by_one(std::span<const double> epsilons) const;
    // Whether that is worth no further look.
    bool fully_known(const Answer& answer) const {
        return close(answer, given_early() ? fine * accuracy_ : accuracy_);
    }

    void before_lattices() const {
        if (before_lattices_) before_lattices_();
    }
    LatticeEngine& lattices() const {
        before_lattices();
        return lattices_;
    }

    // Of all engines, one after another, as far as it takes (direction_whole.cpp).
    Answer epsilon_of_whole(double delta, Answer best) const;
    Answer delta_of_whole(double epsilon) const;
    Answer delta_at_last(double epsilon, Answer best) const;
    // By sums first where these take little, the inversion, and beside allocations given outcomes or losses;
    // whether that is close.
    bool epsilon_by_inversion(double delta, Answer& best) const;
    bool delta_by_inversion(double epsilon, Answer& best) const;
    template <class Ask, class AskLess>
    Answer with_lattice(Answer best, Ask ask, AskLess ask_less) const;
    Answer with_frequent(Answer best, double delta) const;
    Answer with_chernoff(Answer best, double epsilon) const;

    // Below the largest loss delta is positive, however little of it a double holds.
    double least_delta(double epsilon) const { return epsilon < max_loss_ ? smallest_double : 0.0; }
    // The inversion's answer to one question: it is wanted again when a ceiling is not kept.
    struct Inverted {
        double question = std::numeric_limits<double>::quiet_NaN();
        std::optional<Answer> answer;
    };
    const std::optional<Answer>& inverted_epsilon(double delta) const {
        if (inversion_ && inverted_epsilon_.question != delta)
            inverted_epsilon_ = {delta, inversion_->epsilon_bounds(delta, effort())};
        return inverted_epsilon_.answer;
    }
    const std::optional<Answer>& inverted_delta(double epsilon) const {
        if (inversion_ && inverted_delta_.question != epsilon)
            inverted_delta_ = {
                epsilon, epsilon < infinity ? inversion_->delta_bounds(epsilon, effort()) : std::nullopt};
        return inverted_delta_.answer;
    }
    // Beside allocations atoms keep transforms from falling, while what is given their outcomes is quick.
    Inversion::Effort effort() const {
        if (given_early()) return Inversion::Effort::little;
        return losses_early() ? Inversion::Effort::cut : Inversion::Effort::all;
    }
    // Which may be nothing where every engine is lost among the rounding of the steps.
    double most_apart() const { return steps_apart(on_lattices(composition_)); }

    // Which eps never exceeds; infinite losses count however little of them a double holds.
    double most_epsilon() const {
        return end_.infinity_mass().upper > 0 ? infinity : std::max(0.0, max_loss_);
    }
    // Finite losses never add up to more, but where delta may be less than the mass of infinite ones.
    Answer capped(Answer answer, double delta) const {
        if (end_.infinity_mass().upper <= delta)
            answer.upper = std::min(answer.upper, std::max(0.0, max_loss_));
        answer.lower = std::min(answer.lower, answer.upper);
        return answer;
    }

    Answer unamplified_epsilon(double delta) const {
        if (unamplified_) return upper_of(unamplified_->epsilon(delta, max_loss_));
        Answer nothing;
        nothing.upper = infinity;
        return nothing;
    }

    // Beside the largest losses closed forms may be wide.
    Answer closed_epsilon(double delta) const {
        const Answer answer = closed_->epsilon(delta, max_loss_);
        if (close(answer, accuracy_)) return answer;
        const auto ending = end_.epsilon(delta);
        return ending ? both(answer, *ending) : answer;
    }
    Answer closed_delta(double epsilon) const {
        const Answer answer = closed_->delta(epsilon);
        return settled(answer) ? answer : both(answer, end_.delta(epsilon));
    }

    Answer epsilon_of_pairs(double delta) const {
        const Answer infinite = end_.infinity_mass();
        if (delta >= 1) return exact(0);
        if (delta < infinite.lower) return exact(infinity);
        if (infinite.upper <= delta && !(max_loss_ > 0)) return exact(0);
        if (delta == 0) {
            Answer answer = exact(std::max(0.0, max_loss_));
            answer.lower = std::max(0.0, answer.lower * (1 - rounding_of_max_loss) - smallest_loss);
            answer.upper = most_epsilon();
            return answer;
        }
        Answer best = unamplified_epsilon(delta);
        if (closed_) {
            best = closed_epsilon(delta);
            if (!summed_ || close(best, near_enough)) return best;
        }
        if (coupling_) {
            before_lattices();
            return coupling_->epsilon(delta, accuracy_, infinite.upper, most_epsilon());
        }
        return epsilon_of_whole(delta, best);
    }

    // Whether one of these says so. A lattice this coarse takes less than an inversion that is slow.
    template <class Chernoff, class Lattice, class Inverted>
    bool coarsely(Chernoff by_chernoff, Lattice by_lattice, Inverted by_inversion) const {
        if (inversion_ && by_chernoff()) return true;
        const bool quick = inversion_ && inversion_->quick();
        if (!quick && !stands_in_ && by_lattice()) return true;
        if (const std::optional<bool> known = by_inversion()) return *known;
        return quick && !stands_in_ && by_lattice();
    }

    // What takes next to no work, where nothing else is needed.
    std::optional<Answer> at_once(double epsilon) const {
        if (epsilon == infinity || epsilon >= max_loss_) return end_.infinity_mass();
        if (epsilon == -infinity) return exact(1);
        if (closed_) {
            const Answer answer = closed_delta(epsilon);
            if (!summed_ || close(answer, near_enough) || answer.upper - answer.lower < rounding_of_loss)
                return answer;
        }
        if (coupling_) return {};
        if (max_loss_ - epsilon < smallest_loss || end_.rules(epsilon)) return end_.delta(epsilon);
        if (!(max_loss_ - epsilon < next_to_end * max_loss_)) return {};
        const Answer ending = end_.delta(epsilon);
        return close(ending, near_end) ? std::optional(ending) : std::nullopt;
    }

    Answer delta_alone(double epsilon) const {
        Answer answer = delta_of_pairs(epsilon);
        if (std::isnan(answer.upper - answer.lower)) {
            // Squares of an epsilon this large overflow. delta falls.
            answer = epsilon > 2 ? delta_alone(std::sqrt(epsilon)) : exact(1);
            answer.lower = 0;
            return answer;
        }
        answer.upper = std::max(answer.upper, least_delta(epsilon));
        return answer;
    }

    Answer delta_of_pairs(double epsilon) const {
        if (const auto known = at_once(epsilon)) return *known;
        if (const auto turned = by_mirror(epsilon)) return *turned;
        return delta_of_whole(epsilon);
    }

    // Whether a delta is known as closely as is asked for, or as its few digits next to the smallest double
    // allow.
    bool settled(const Answer& delta) const {
        return delta.upper - delta.lower <= accuracy_ * delta.upper + least_normal;
    }

    // As `fully_known`, or so near that no more than `slack` is open.
    bool fully_settled(const Answer& delta, double slack = 0) const {
        const double share = given_early() ? fine : 1;
        return delta.upper - delta.lower <= std::max(share * accuracy_ * delta.upper + least_normal, slack);
    }

    // What takes little work, and may be wide.
    Answer known_of(double epsilon) const {
        const Answer answer = closed_ ? closed_delta(epsilon) : end_.delta(epsilon);
        return unamplified_ ? both(upper_of(unamplified_->delta(epsilon)), answer) : answer;
    }

    // Where nobody reads more than an order of magnitude, what the inversion has found, if it has, or
    // Chernoff's bound if that may be `dear`, which beside an allocation it is.
    Answer of_little(const std::optional<Answer>& inverted, double epsilon, bool dear) const;
    bool needs_no_engine(const Answer& known) const {
        return settled(known) || (unamplified_ && known.upper < no_delta);
    }
    // What takes little, and what the mirror knows; empty elsewhere.
    std::vector<std::optional<Answer>> without_engines(std::span<const double> epsilons) const;
    // As delta_of_pairs where the inversion answers closely, or nothing need be computed, or there is too
    // little to ask for; empty elsewhere.
    std::vector<std::optional<Answer>> curve_of_pairs(std::span<const double> epsilons, double sum) const;

    // speed: where it is worth a look whether less than any double is left; without amplification a closed
    // form says so.
    bool may_be_nothing(double epsilon) const {
        if (!inversion_) return false;
        return max_loss_ < infinity || (unamplified_ ? little_noise() : inversion_->far(epsilon));
    }

    // speed: whether an allocation hardly hides a step that is known, as with noise multipliers below a
    // quarter: engines then take seconds to find that there is nothing.
    bool little_noise() const {
        return std::any_of(composition_.begin(), composition_.end(), [](const auto& step) {
            const PairPtr known = step.first->stand_in();
            return known && ClosedForm::of({{known, 1}}, Engine::fft)->delta(0).upper > 0.95;
        });
    }

    // The least of these points at which delta is surely below `negligible`, as it is from there on; nan,
    // which nothing is beyond, if there is none.
    double nothing_from(std::vector<double> epsilons, double negligible) const;

    // Worth asking an engine about, where the answer may be rough.
    bool vague(const Answer& answer, double negligible) const;

    // Without an engine; from the last point on, as long as there is hardly anything.
    std::vector<Answer> known_beforehand(std::span<const double> epsilons, double negligible) const;

    std::vector<Answer> rough_curve_of_pairs(std::span<const double> epsilons, double negligible) const;

    double accuracy_;
    std::size_t memory_limit_;
    std::function<void()> before_lattices_;
    Composition composition_;
    SupportEnd end_;
    double max_loss_;
    bool summed_ = false;      // closed_ is a sum over all outcomes, whose masses may be unsure
    bool sums_first_ = false;  // there are atoms alone, on no lattice, that transforms need noise for
    bool stands_in_;  // some pair is replaced by another one for lattices, which is more than its mechanism

    // Who answers, and of which pairs. Of the composition's own pairs:
    std::optional<ClosedForm> closed_;
    std::optional<CouplingEngine> coupling_;  // alone, if it was asked for
    std::unique_ptr<Inversion> inversion_;    // with all that follows guarded by the mutex, as these cache
    // Of the pairs that stand in, bounds from above alone: a closed form or else an inversion, and lattices.
    std::optional<ClosedForm> unamplified_;
    std::unique_ptr<Inversion> plain_;
    mutable LatticeEngine lattices_;
    // Of the pairs below the mechanisms where those of the composition are above, and of the pairs below
    // those that stand in: bounds from below alone.
    std::unique_ptr<Direction> lower_;
    mutable std::unique_ptr<Direction> less_;
    mutable Mutex mutex_;
    mutable Inverted inverted_epsilon_, inverted_delta_;
    mutable struct {
        double delta = not_a_number, epsilon = not_a_number, products = 0;
        ByNearOutcomes found;
    } sums_;
    // Made when they are needed: the whole given each outcome of its atoms, or each loss of its allocations;
    // P and Q in each other's places; and looser pairs.
    mutable std::optional<Given> given_;
    mutable std::optional<Apart> apart_;
    mutable std::unique_ptr<Direction> mirror_, looser_;
    mutable bool asked_apart_ = false, asked_given_ = false, asked_mirror_ = false, asked_looser_ = false;
};

}  // namespace hockeystick
