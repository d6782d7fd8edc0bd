#include "profile/given_outcomes.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "numerics/constants.hpp"
#include "profile/answers.hpp"
#include "profile/support_end.hpp"

namespace hockeystick {
namespace {

// speed: the share of delta below which nobody looks for it.
constexpr double negligible = 1e-10;
// speed: how many outcomes are looked at where delta is not known; about how many arguments are asked about
// together, each of which takes a hundred bytes.
constexpr std::size_t most_looks = 8, most_at_once = 1 << 18;
// speed: how near ln delta is brought to what was asked for, beside how closely it is known; how much wider
// the interval is made each time until both of its ends are proven; when to stop.
constexpr double near_enough = 1e-10, wider = 8, widest = 0.1;
constexpr int most_rounds = 40;
// speed: how far Chernoff's bound of eps mostly is from it, at most.
constexpr double near_chernoff = 0.9;

// Looks for the eps at which a delta that falls is the one asked for. Nothing but what an evaluation shows is
// relied on.
class Search {
public:
    Search(double delta, const std::string& engine, std::function<Answer(double)> at)
        : delta_(delta), at_(std::move(at)) {
        best.upper = infinity;
        best.engine = engine;
    }

    // By secants in ln delta, which hardly bends. low: may be above it, too.
    void find(double low, double high) {
        double last = low, at_last = ask(low);
        if (best.upper == 0) return;
        if (at_last < 0) return find(0, low);
        here_ = high;
        double at_here = ask(high);
        for (int i = 0; i < most_rounds && !(std::abs(at_here) < close_) && low < high; ++i) {
            (at_here > 0 ? low : high) = here_;
            slope_ = (at_here - at_last) / (here_ - last);
            double next = here_ - at_here / slope_;
            if (!(next > low && next < high)) next = 0.5 * (low + high);
            last = std::exchange(here_, next);
            at_last = std::exchange(at_here, ask(next));
        }
        aside_ = (std::abs(at_here) + 2 * close_) / std::abs(slope_);
    }

    // To either side of what was found.
    void enclose() {
        for (; best.upper > 0 && aside_ < widest * (1 + here_); aside_ *= wider) {
            if (!(best.upper <= here_ + aside_)) ask(here_ + aside_);
            if (!(best.lower >= here_ - aside_) && here_ > aside_) ask(here_ - aside_);
            if (best.upper - best.lower <= 3 * aside_) break;
        }
        best.lower = std::min(best.lower, best.upper);
    }

    Answer best;

private:
    // ln of the upper bound beside what was asked for.
    double ask(double epsilon) {
        Answer at = at_(epsilon);
        const double log = std::log(at.upper / delta_);
        close_ = near_enough + (at.upper - at.lower) / at.upper;
        if (at.lower > delta_) best.lower = std::max(best.lower, epsilon);
        if (at.upper <= delta_ && epsilon < best.upper) {
            at.lower = best.lower;
            at.upper = epsilon;
            best = at;
        }
        return log;
    }

    double delta_;
    std::function<Answer(double)> at_;
    double here_ = 0, slope_ = -1, close_ = 0, aside_ = 0;
};

}  // namespace

GivenOutcomes::GivenOutcomes(MergedOutcomes outcomes, const Answer& infinite)
    : outcomes_(std::move(outcomes)), infinite_(infinite) {
    infinite_.upper += outcomes_.lost;
}

std::optional<GivenOutcomes> GivenOutcomes::of(const Composition& composition) {
    Composition part, rest;
    for (const auto& step : composition) (only_atoms(*step.first) ? part : rest).push_back(step);
    if (part.empty() || rest.empty()) return {};
    auto outcomes = MergedOutcomes::of(part);
    if (!outcomes) return {};
    GivenOutcomes given(std::move(*outcomes), SupportEnd(part).infinity_mass());
    given.rest_ = std::move(rest);
    return given;
}

// Of the rest's deltas, one from below and one from above for each outcome.
Answer GivenOutcomes::mean(std::span<const Answer> deltas) const {
    Answer out;
    double lower = 0, upper = 0, largest = 0;
    for (std::size_t i = 0; i < outcomes_.upper.size(); ++i) {
        const Answer &below = deltas[2 * i], &above = deltas[2 * i + 1];
        const double mass = outcomes_.upper[i].mass;
        lower += outcomes_.lower[i].mass * below.lower;
        upper += mass * above.upper;
        largest = std::max(largest, above.upper);
        if (out.engine.empty()) out.engine = above.engine;
        out.discretisation += mass * above.discretisation;
        out.truncation += mass * above.truncation;
        out.wrap_around += mass * above.wrap_around;
        out.round_off += mass * above.round_off;
    }
    // Sums of positive terms, of which each may have lost what is below the normal doubles.
    const double terms = static_cast<double>(outcomes_.upper.size()) + 4, lost = terms * 5e-324;
    out.lower = std::max(0.0, (lower + infinite_.lower) * (1 - terms * u) - lost);
    out.upper = std::min(1.0, (upper + infinite_.upper) * (1 + terms * u) + lost);
    // No mean is above the largest, which may be the least double.
    if (!(infinite_.upper > 0)) out.upper = std::min(out.upper, largest);
    return out;
}

// What outcome i / 2 leaves of epsilon, rounded up for the lower bound, i even, or down.
double GivenOutcomes::argument(std::size_t i, double epsilon) const {
    return i % 2 == 0 ? std::nextafter(epsilon - outcomes_.lower[i / 2].loss, infinity)
                      : std::nextafter(epsilon - outcomes_.upper[i / 2].loss, -infinity);
}

// Which outcomes are worth asking about beside so much: those above are too rare, and those below leave the
// rest too little, as it may take long to know how much.
GivenOutcomes::Range GivenOutcomes::worth_asking(double epsilon, double nothing, const Rest& rest) const {
    Range range{0, outcomes_.upper.size()};
    double mass = 0;
    while (range.end > 0 && (mass += outcomes_.upper[range.end - 1].mass) <= nothing) --range.end;
    std::vector<double> arguments;
    for (std::size_t i = range.end; i-- > 0;) arguments.push_back(argument(2 * i + 1, epsilon));
    const double from = nothing > 0 ? rest.nothing_from(arguments, nothing) : infinity;
    while (range.begin < range.end && argument(2 * range.begin + 1, epsilon) >= from) ++range.begin;
    return range;
}

// What some outcomes alone say of delta, evenly between the median loss and the largest one.
double GivenOutcomes::least(double epsilon, const Rest& rest) const {
    const std::size_t size = outcomes_.lower.size();
    std::size_t median = size - 1;
    for (double mass = 0; median > 0 && (mass += outcomes_.lower[median].mass) < 0.5;) --median;
    std::vector<std::size_t> some;
    for (std::size_t j = 0; j < most_looks; ++j)
        some.push_back(median + (size - 1 - median) * j / (most_looks - 1));
    std::vector<double> arguments;
    for (const std::size_t i : some) arguments.push_back(argument(2 * i, epsilon));
    const std::vector<Answer> found = rest.deltas(arguments, 0);
    double known = 0;
    for (std::size_t j = 0; j < some.size(); ++j)
        known = std::max(known, outcomes_.lower[some[j]].mass * found[j].lower);
    return known;
}

std::vector<Answer> GivenOutcomes::delta_curve(std::span<const double> epsilons,
                                               std::span<const double> about, const Rest& rest) const {
    std::vector<Answer> out;
    std::vector<Range> ranges;
    std::vector<double> arguments, nothing;
    double sum = infinity;
    const auto ask = [&] {
        std::vector<Answer> found;
        if (!arguments.empty()) found = rest.deltas(arguments, sum);
        auto next = found.begin();
        for (std::size_t at = 0; at < ranges.size(); ++at) {
            const auto [begin, end] = ranges[at];
            std::vector<Answer> deltas(2 * outcomes_.upper.size());
            for (std::size_t i = 0; i < outcomes_.upper.size(); ++i)
                deltas[2 * i + 1].upper = i < begin ? nothing[at] : 1;
            for (std::size_t i = 2 * begin; i < 2 * end; ++i) deltas[i] = *next++;
            out.push_back(mean(deltas));
        }
        ranges.clear();
        arguments.clear();
        nothing.clear();
        sum = infinity;
    };
    for (std::size_t at = 0; at < epsilons.size(); ++at) {
        const double known = about[at] > 0 ? about[at] : least(epsilons[at], rest);
        nothing.push_back(negligible * known);
        sum = std::min(sum, known);
        ranges.push_back(worth_asking(epsilons[at], nothing.back(), rest));
        for (std::size_t i = 2 * ranges.back().begin; i < 2 * ranges.back().end; ++i)
            arguments.push_back(argument(i, epsilons[at]));
        if (arguments.size() >= most_at_once) ask();
    }
    ask();
    return out;
}

std::vector<double> GivenOutcomes::shares(double epsilon, const Rest& rest) const {
    std::vector<double> arguments, shares;
    for (std::size_t i = 0; i < outcomes_.upper.size(); ++i)
        arguments.push_back(argument(2 * i + 1, epsilon));
    const std::vector<Answer> deltas = rest.deltas(arguments, 0);
    for (std::size_t i = 0; i < outcomes_.upper.size(); ++i)
        shares.push_back(outcomes_.upper[i].mass * deltas[i].upper);
    return shares;
}

Answer GivenOutcomes::epsilon_bounds(double delta, const Answer& about, const Rest& rest) const {
    Search search(delta, about.engine,
                  [&](double epsilon) { return delta_curve({&epsilon, 1}, {&delta, 1}, rest).front(); });
    if (!std::isfinite(about.upper) || !(infinite_.upper < delta)) return search.best;
    search.find(about.lower > 0 ? about.lower : near_chernoff * about.upper, about.upper);
    search.enclose();
    return search.best;
}

}  // namespace hockeystick
