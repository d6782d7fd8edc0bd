#include "profile/near_outcomes.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "hockeystick/parallel.hpp"
#include "lattice/sketch.hpp"
#include "numerics/constants.hpp"
#include "profile/outcomes_of_curve.hpp"
#include "profile/positive_masses.hpp"

namespace hockeystick {
namespace {

// speed: the points of one step's curve. proof: so many spacings from 0, all steps together, are a double.
constexpr double most_of_curve = 1 << 14, most_spacings = 4e15;
// proof: no sum of losses overflows, and no share of the spacing that rounding is made up for with
// underflows.
constexpr double largest_loss = 1e100, least_spacing = 1e-270;
// speed: the share of delta's accuracy that may be left out; how often that may be trimmed off a product,
// where these are squares.
constexpr double share_left_out = 3e-3, most_squares = 256;
// speed: the first lattice has so many points in a step's range; how much finer the next ones are, aiming at
// that share of the gap; what must have become of the gap; how many there are.
constexpr double first_points_of_step = 1 << 10, finest = 1.0 / 32, coarsest = 0.5, aim = 0.4,
                 worth_another = 0.7;
constexpr int most_rounds = 8;
// speed: nats beside those of what may be left out, beyond which no sketch looks.
constexpr double beyond = 5;
// proof: more than what is computed of errors rounds by, and than what a point on a line rounds by.
constexpr double products_of_errors = 1 + 1e-9, rounding = 8 * u;

// From above: masses at the points of the lattice.
struct Above {
    PositiveMasses p;
    double negligible = 0, lost = 0;

    double products_with(const Above& other) const { return p.products_with(other.p); }
    Above operator*(const Above& other) const {
        return Above{p * other.p, std::max(negligible, other.negligible), lost + other.lost}.trimmed();
    }
    Above trimmed() && {
        lost += p.keep(p.but_for(negligible));
        return std::move(*this);
    }
};

// From below: what of P and of Q is in a cell. To put outcomes together is post-processing, and so is to
// leave out some of both.
struct Below {
    PositiveMasses p, q;
    double negligible = 0;

    double products_with(const Below& other) const {
        return p.products_with(other.p) + q.products_with(other.q);
    }
    Below operator*(const Below& other) const {
        return Below{p * other.p, q * other.q, std::max(negligible, other.negligible)}.trimmed();
    }
    Below trimmed() && {
        const auto range = p.but_for(negligible);
        p.keep(range);
        q.keep(range);
        return std::move(*this);
    }
};

struct Range {
    double low, high;
};

// Where all but next to nothing of a step's loss lies.
Range range_of(const Pair& pair, double negligible) {
    const double depth = beyond - std::log(negligible);
    const Sketch seen = sketch(pair, depth, depth);
    return seen.empty() ? Range{0, 0} : Range{seen.left.front(), seen.right.back()};
}

// One step's losses, as outcomes from either side.
std::optional<MergedOutcomes> outcomes_of_step(const PairPtr& pair, double spacing, double negligible) {
    if (only_atoms(*pair)) return MergedOutcomes::apart({{pair, 1}}, static_cast<std::size_t>(most_of_curve));
    // What is infinite has no place on a curve.
    if (pair->stand_in() || pair->infinity_mass() > 0 || pair->q_mass() != 1) return {};
    const Range range = range_of(*pair, negligible);
    const double first = std::floor(range.low / spacing) - 2, last = std::ceil(range.high / spacing) + 2;
    if (!(last - first < most_of_curve && std::max(-first, last) < most_spacings)) return {};
    std::vector<double> points;
    for (double i = first; i <= last; ++i) points.push_back(i * spacing);
    const auto curve = ClosedForm::of({{pair, 1}}, Engine::automatic);
    std::vector<Answer> deltas(points.size());
    parallel_for_light(points.size(), [&](std::size_t i) { deltas[i] = curve->delta(points[i]); });
    MergedOutcomes out = outcomes_of_curve(points, deltas);
    // Next to nothing, far from all the others.
    std::erase_if(out.lower, [&](const Outcomes::Term& term) { return term.loss < points.front(); });
    return out;
}

// Without the ends of no more than this mass each; returns what that was, rounded up.
double drop_ends(std::vector<Outcomes::Term>& terms, double negligible) {
    const auto end_of = [&](auto from, auto to) {
        for (double mass = 0; from != to && (mass += from->mass) <= negligible;) ++from;
        return from;
    };
    const std::size_t size = terms.size();
    terms.erase(end_of(terms.rbegin(), terms.rend() - 1).base(), terms.end());
    terms.erase(terms.begin(), end_of(terms.begin(), terms.end() - 1));
    return terms.size() < size ? 3 * negligible : 0;
}

// Whether their lattice is worth its memory.
bool fit(const std::vector<Outcomes::Term>& terms, double spacing, double steps, std::size_t points) {
    const auto [least, most] = std::ranges::minmax_element(terms, {}, &Outcomes::Term::loss);
    const double farthest = std::max(-least->loss, most->loss);
    return (most->loss - least->loss) / spacing < static_cast<double>(points) - 4 &&
           steps * (farthest / spacing) < most_spacings && farthest < largest_loss && spacing > least_spacing;
}

PositiveMasses masses_of(const std::vector<std::pair<std::int64_t, double>>& parts) {
    PositiveMasses out;
    const auto [least, most] = std::ranges::minmax_element(parts);
    out.first = least->first;
    out.at.assign(static_cast<std::size_t>(most->first - least->first) + 1, 0);
    for (const auto& [place, mass] : parts) out.at[static_cast<std::size_t>(place - out.first)] += mass;
    out.units = static_cast<double>(parts.size()) + 16;
    return out;
}

// Each outcome on the points to either side of it, with its P- and its Q-mass.
Above onto_points(const std::vector<Outcomes::Term>& terms, double spacing) {
    std::vector<std::pair<std::int64_t, double>> parts;
    for (const auto& [loss, mass] : terms) {
        // Moved up by more than the points and the shares round by.
        const double at = loss + rounding * (std::abs(loss) + spacing), left = std::floor(at / spacing),
                     share = std::clamp(std::expm1(left * spacing - at) / std::expm1(-spacing), 0.0, 1.0);
        const auto place = static_cast<std::int64_t>(left);
        if (share < 1) parts.emplace_back(place, mass * (1 - share));
        if (share > 0) parts.emplace_back(place + 1, mass * share);
    }
    return {masses_of(parts)};
}

Below into_cells(const std::vector<Outcomes::Term>& terms, double spacing) {
    std::vector<std::pair<std::int64_t, double>> p, q;
    for (const auto& [loss, mass] : terms) {
        const double other = mass * std::exp(-loss) * (1 + rounding * (1 + std::abs(loss)));
        if (!(mass > 0 && other < infinity)) continue;
        const auto place = static_cast<std::int64_t>(std::llround(loss / spacing));
        p.emplace_back(place, mass);
        q.emplace_back(place, other);
    }
    if (p.empty()) return {};
    return {masses_of(p), masses_of(q)};
}

// All steps of all kinds; empty where that takes too much.
template <class Law>
std::optional<Law> composed(const Composition& composition, std::vector<Law> laws, double negligible,
                            SumsBudget& budget) {
    Law all;
    double& products = budget.products;
    for (std::size_t i = 0; i < laws.size(); ++i) {
        const std::uint64_t count = composition[i].second;
        laws[i].negligible = negligible / (static_cast<double>(count) + most_squares);
        const PositiveMasses& p = laws[i].p;
        // Squares of few atoms are no longer few.
        const double factors = static_cast<double>(p.positive()) * static_cast<double>(count),
                     size = static_cast<double>(p.at.size());
        const bool one_by_one = factors < 2 * size;
        if (one_by_one && factors * size > products) return {};
        const auto part = power(std::move(laws[i]), count, one_by_one, products);
        if (!part || part->p.at.size() > budget.points) return {};
        products -= all.products_with(*part);
        if (products < 0) return {};
        all = all * *part;
    }
    return all;
}

// Of the first lattice, or 0 where there is none; and the least, where some step is no atoms alone.
struct Spacings {
    double first = 0, least = 0;
};
Spacings spacings(const Composition& composition, double negligible) {
    Spacings out;
    for (const auto& [pair, count] : composition) {
        if (pair->stand_in()) return {};
        const Range range = range_of(*pair, negligible / static_cast<double>(total_steps(composition)));
        const double width = range.high - range.low;
        if (!std::isfinite(width)) return {};
        out.first = std::max(out.first, width / first_points_of_step);
        if (!only_atoms(*pair)) out.least = std::max(out.least, width / (most_of_curve - 8));
    }
    return out;
}

}  // namespace

std::optional<MergedOutcomes> near_outcomes(const Composition& composition, double spacing, double negligible,
                                            SumsBudget& budget) {
    std::vector<Above> above;
    std::vector<Below> below;
    double lost = 0, largest = 0;
    const double all = static_cast<double>(total_steps(composition));
    for (const auto& [pair, count] : composition) {
        auto step = outcomes_of_step(pair, spacing, negligible / all);
        if (!step || step->upper.empty() || step->lower.empty()) return {};
        step->lost += drop_ends(step->upper, negligible / all);
        drop_ends(step->lower, negligible / all);
        for (const auto* side : {&step->upper, &step->lower})
            if (!fit(*side, spacing, all, budget.points)) return {};
        above.push_back(onto_points(step->upper, spacing));
        below.push_back(into_cells(step->lower, spacing));
        lost += static_cast<double>(count) * step->lost;
        largest += static_cast<double>(count) *
                   std::max(std::abs(step->upper.front().loss), std::abs(step->upper.back().loss));
    }
    const auto upper = composed(composition, std::move(above), negligible, budget);
    const auto lower = upper ? composed(composition, std::move(below), negligible, budget) : std::nullopt;
    if (!lower) return {};
    MergedOutcomes out;
    constexpr double lost_below = PositiveMasses::lost_below;
    const auto share = [](const PositiveMasses& masses) {
        return products_of_errors * std::expm1(u * (masses.units + 4));
    };
    for (std::size_t i = 0; i < upper->p.at.size(); ++i) {
        const double loss = static_cast<double>(upper->p.first + static_cast<std::int64_t>(i)) * spacing;
        // Points are multiples of the spacing but for what these round by, in each step.
        out.upper.push_back(
            {loss + 4 * u * (largest + std::abs(loss)), upper->p.at[i] * (1 + share(upper->p)) + lost_below});
    }
    for (std::size_t i = 0; i < lower->p.at.size(); ++i) {
        const double p = lower->p.at[i] * (1 - share(lower->p)) - lost_below,
                     q = lower->q.at[i] * (1 + share(lower->q)) + lost_below, loss = std::log(p / q);
        if (p > 0) out.lower.push_back({loss - rounding * (1 + std::abs(loss)), p});
    }
    if (out.lower.empty()) return {};
    std::ranges::sort(out.lower, {}, &Outcomes::Term::loss);
    out.lost = (lost + upper->lost) * products_of_errors;
    return out;
}

ByNearOutcomes by_near_outcomes(const Composition& composition, const Answer& infinite, double about,
                                double accuracy, SumsBudget budget,
                                const std::function<Answer(const ClosedForm&)>& ask) {
    ByNearOutcomes found;
    const double negligible = share_left_out * accuracy * about;
    if (!(negligible > 0)) return found;
    const auto [first, least] = spacings(composition, negligible);
    double spacing = first, before = infinity;
    for (int round = 0; round < most_rounds && spacing > 0; ++round) {
        const double products = budget.products;
        const auto outcomes = near_outcomes(composition, spacing, negligible, budget);
        if (!outcomes) break;
        auto form = ClosedForm::of_outcomes(*outcomes, infinite);
        Answer answer = ask(form);
        answer.engine = by_sums;
        answer.step = spacing;
        answer.size = outcomes->upper.size();
        const double gap = answer.upper - answer.lower, wanted = accuracy * answer.upper;
        if (!found.form || gap < found.answer.upper - found.answer.lower) {
            found.answer = answer;
            found.form.emplace(std::move(form));
        }
        if (!(gap > wanted) || !(gap < worth_another * before)) break;
        before = gap;
        // Products of few atoms grow with the points, others with their square.
        const double ratio = std::isfinite(gap) ? std::sqrt(aim * wanted / gap) : coarsest,
                     spent = (products - budget.products) / budget.products,
                     affordable = std::max(finest, least > 0 ? std::sqrt(spent) : spent);
        if (!(affordable < coarsest)) break;
        const double finer = std::max(least, spacing * std::clamp(ratio, affordable, coarsest));
        if (!(finer < spacing)) break;
        spacing = finer;
    }
    return found;
}

}  // namespace hockeystick
