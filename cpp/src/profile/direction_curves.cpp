// Many points of one direction at once: what engines lay for one of them serves its neighbours.
#include <algorithm>
#include <mutex>

#include "inversion/contour.hpp"
#include "profile/direction.hpp"

namespace hockeystick {

// Upper bounds from looser pairs where `wide`.
template <class Wide, class Ask>
void Profile::Direction::ask_looser(std::span<const double> epsilons, Wide wide, std::vector<Answer>& curve,
                                    Ask ask) const {
    const Direction* more = nullptr;
    for (std::size_t i = 0; !more && i < curve.size(); ++i)
        if (wide(i) && !(more = looser())) return;
    ask_together(
        epsilons, wide, [&](const auto& open) { return ask(*more, open); },
        [&](std::size_t i, const Answer& found) { curve[i] = with_upper(curve[i], found); });
}

std::vector<Answer> Profile::Direction::delta_curve(std::span<const double> epsilons, double sum) const {
    auto curve = curve_of_pairs(epsilons, sum);
    ask_together(
        epsilons, [&](std::size_t i) { return !curve[i]; },
        [&](const auto& open) { return one_by_one(open); },
        [&](std::size_t i, const std::optional<Answer>& found) { curve[i] = found; });
    std::vector<Answer> out;
    for (std::size_t i = 0; i < curve.size(); ++i) {
        out.push_back(curve[i] ? *curve[i] : delta_alone(epsilons[i]));
        out[i].upper = std::max(out[i].upper, least_delta(epsilons[i]));
    }
    const auto wide = [&](std::size_t i) { return !settled(out[i]); };
    ask_looser(epsilons, wide, out,
               [](const Direction& more, const auto& open) { return more.delta_curve(open); });
    if (!lower_) return out;
    const auto less = lower_->delta_curve(epsilons);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = with_lower(out[i], less[i]);
    return out;
}

std::vector<Answer> Profile::Direction::rough_curve(std::span<const double> epsilons,
                                                    double negligible) const {
    auto curve = rough_curve_of_pairs(epsilons, negligible);
    for (std::size_t i = 0; i < curve.size(); ++i)
        curve[i].upper = std::max(curve[i].upper, least_delta(epsilons[i]));
    const auto wide = [&](std::size_t i) { return vague(curve[i], negligible); };
    ask_looser(epsilons, wide, curve,
               [&](const Direction& more, const auto& open) { return more.rough_curve(open, negligible); });
    if (!lower_) return curve;
    const auto less = lower_->rough_curve(epsilons, negligible);
    for (std::size_t i = 0; i < curve.size(); ++i) curve[i] = with_lower(curve[i], less[i]);
    return curve;
}

void Profile::Direction::keep_sums(std::span<const double> epsilons,
                                   std::vector<std::optional<Answer>>& curve) const {
    if (!sums_first_) return;
    std::vector<double> inside;
    for (std::size_t i = 0; i < epsilons.size(); ++i)
        if (!curve[i]) inside.push_back(epsilons[i]);
    // Beyond which sums would be asked about next to nothing.
    double little = infinity;
    inversion_->delta_curve(inside, little, Inversion::Effort::little);
    ask_together(
        epsilons, [&](std::size_t i) { return !curve[i] && epsilons[i] < little; },
        [&](const auto& open) { return curve_by_sums(open); },
        [&](std::size_t i, const std::optional<Answer>& found) {
            if (found && settled(*found)) curve[i] = found;
        });
}

std::vector<std::optional<Answer>> Profile::Direction::curve_by_sums(std::span<const double> epsilons) const {
    return curve_by_lines<ClosedForm>(
        epsilons, {accuracy_},
        [&](double epsilon, std::optional<ClosedForm>& form) {
            const ByNearOutcomes& sums = delta_by_sums(epsilon, unknown(1), some_products);
            form = sums.form;
            return form ? std::optional(sums.answer) : std::nullopt;
        },
        [&](const ClosedForm& form, double epsilon) { return named_by_sums(form.delta(epsilon)); });
}

// As delta_alone, but for what a neighbour's lattice, or the outcomes that it put together, answer as closely
// as is asked for, or hardly less closely than for the neighbour; empty where lattices say next to nothing.
std::vector<std::optional<Answer>> Profile::Direction::one_by_one(std::span<const double> epsilons) const {
    using Lines = std::function<Answer(double)>;
    bool wide = false;
    return curve_by_lines<Lines>(
        epsilons, {accuracy_},
        [&](double epsilon, std::optional<Lines>& lines) {
            lines.reset();
            const Answer answer = delta_alone(epsilon);
            wide = !settled(answer);
            const std::lock_guard lock(mutex_);
            if (answer.engine == "fft" && !stands_in_)
                lines = [lattice = lattices_.last()](double at) {
                    return LatticeEngine::delta_by(*lattice, at);
                };
            if (answer.engine == by_sums && sums_.found.form)
                lines = [form = *sums_.found.form](double at) { return named_by_sums(form.delta(at)); };
            return std::optional(answer);
        },
        [&](const Lines& lines, double epsilon) {
            const Answer answer = lines(epsilon);
            return wide || settled(answer) ? std::optional(answer) : std::nullopt;
        });
}

Answer Profile::Direction::of_little(const std::optional<Answer>& inverted, double epsilon, bool dear) const {
    const Answer known = known_of(epsilon);
    Answer little = inverted ? both(*inverted, known) : known;
    if (dear && !stands_in_) return with_chernoff(little, epsilon);
    little.upper = std::min(little.upper, Inversion::little_of_curve);
    little.lower = std::min(little.lower, little.upper);
    return little;
}

std::vector<std::optional<Answer>> Profile::Direction::without_engines(
    std::span<const double> epsilons) const {
    std::vector<std::optional<Answer>> curve(epsilons.size());
    for (std::size_t i = 0; i < epsilons.size(); ++i) curve[i] = at_once(epsilons[i]);
    ask_together(
        epsilons, [&](std::size_t i) { return !curve[i]; },
        [&](const auto& asked) { return by_mirror(asked); },
        [&](std::size_t i, const std::optional<Answer>& found) { curve[i] = found; });
    for (std::size_t i = 0; unamplified_ && i < epsilons.size(); ++i) {
        if (curve[i]) continue;
        if (const Answer known = known_of(epsilons[i]); needs_no_engine(known)) curve[i] = known;
    }
    return curve;
}

std::vector<std::optional<Answer>> Profile::Direction::curve_of_pairs(std::span<const double> epsilons,
                                                                      double sum) const {
    std::vector<std::optional<Answer>> curve = without_engines(epsilons);
    std::vector<double> inside;
    for (std::size_t i = 0; i < epsilons.size(); ++i)
        if (!curve[i]) inside.push_back(epsilons[i]);
    if (inside.empty() || !inversion_) return curve;
    const std::lock_guard lock(mutex_);
    const bool ends = may_be_nothing(*std::max_element(inside.begin(), inside.end()));
    const double end = ends ? nothing_from(std::move(inside), smallest_double) : not_a_number;
    for (std::size_t i = 0; i < epsilons.size(); ++i)
        if (!curve[i] && epsilons[i] >= end) curve[i] = less_than_any_double();
    double little = infinity;
    const double slack = share_of_sum * accuracy_ * sum;
    keep_sums(epsilons, curve);
    std::vector<double> about(epsilons.size());
    std::vector<std::pair<std::size_t, std::optional<Answer>>> littles;
    ask_together(
        epsilons, [&](std::size_t i) { return !curve[i]; },
        [&](const auto& open) { return inversion_->delta_curve(open, little, effort(), slack); },
        [&](std::size_t i, const std::optional<Answer>& inverted) {
            if (inverted) about[i] = inverted->lower;
            if (inverted && fully_settled(*inverted, slack))
                curve[i] = inverted;
            else if (epsilons[i] >= little)
                littles.emplace_back(i, inverted);
        });
    if (given_early()) keep_given(epsilons, about, little, curve);
    const std::size_t apart = littles.size() / (most_chernoff + 1) + 1;
    for (std::size_t j = 0; j < littles.size(); ++j) {
        const auto& [i, inverted] = littles[j];
        curve[i] = of_little(inverted, epsilons[i], j % apart == 0);
    }
    return curve;
}

double Profile::Direction::nothing_from(std::vector<double> epsilons, double negligible) const {
    // Whole allocations take long, and cut ones leave out more than the least double: their noise alone
    // may say enough.
    const Inversion* known = plain_ && negligible <= smallest_double ? plain_.get() : inversion_.get();
    const auto nothing = [&](double epsilon) { return known->surely_below(epsilon, negligible); };
    std::sort(epsilons.begin(), epsilons.end());
    if (!known || epsilons.empty() || !nothing(epsilons.back())) return not_a_number;
    return *std::partition_point(epsilons.begin(), epsilons.end() - 1,
                                 [&](double epsilon) { return !nothing(epsilon); });
}

bool Profile::Direction::vague(const Answer& answer, double negligible) const {
    return answer.upper - answer.lower > accuracy_ * answer.upper + negligible;
}

std::vector<Answer> Profile::Direction::known_beforehand(std::span<const double> epsilons,
                                                         double negligible) const {
    std::vector<Answer> curve;
    std::vector<double> open;
    for (const double epsilon : epsilons) {
        const auto known = at_once(epsilon);
        curve.push_back(known ? *known : known_of(epsilon));
        if (!known && curve.back().upper > negligible) open.push_back(epsilon);
    }
    const double first = nothing_from(std::move(open), negligible);
    for (std::size_t i = 0; i < epsilons.size(); ++i)
        if (epsilons[i] >= first) curve[i].upper = std::min(curve[i].upper, negligible);
    for (Answer& answer : curve) answer.lower = std::min(answer.lower, answer.upper);
    return curve;
}

std::vector<Answer> Profile::Direction::rough_curve_of_pairs(std::span<const double> epsilons,
                                                             double negligible) const {
    const std::lock_guard lock(mutex_);
    std::vector<Answer> curve = known_beforehand(epsilons, negligible);
    // Asks one engine for what is still vague.
    const auto refine = [&](auto&& ask) {
        ask_together(
            epsilons, [&](std::size_t i) { return vague(curve[i], negligible); }, ask,
            [&](std::size_t i, const std::optional<Answer>& found) {
                if (found) curve[i] = both(*found, curve[i]);
            });
    };
    if (inversion_) refine([&](const auto& open) { return inversion_->rough_curve(open); });
    if (!stands_in_) refine([&](const auto& open) { return lattices().curve(open, accuracy_, negligible); });
    return curve;
}

}  // namespace hockeystick
