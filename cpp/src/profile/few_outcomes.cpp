#include "profile/few_outcomes.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "numerics/constants.hpp"
#include "profile/answers.hpp"
#include "profile/support_end.hpp"

namespace hockeystick {
namespace {

// speed: fewer outcomes than that are worth it; the share of delta below which nobody looks for it.
constexpr std::size_t most_outcomes = 9;
constexpr double negligible = 1e-14;
// speed: how near ln delta is brought to what was asked for, beside how closely it is known; how much wider
// the interval is made each time until both of its ends are proven; when to stop.
constexpr double near_enough = 1e-10, wider = 8, widest = 0.1;
constexpr int most_rounds = 40;

// Looks for the eps at which a delta that falls is the one asked for. Nothing but what an evaluation shows is
// relied on.
class Search {
public:
    Search(double delta, const std::string& engine, std::function<Answer(double)> at)
        : delta_(delta), at_(std::move(at)) {
        best.upper = infinity;
        best.engine = engine;
    }

    // By secants in ln delta, which hardly bends.
    void find(double low, double high) {
        double last = low, at_last = ask(low);
        if (best.upper == 0) return;
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

FewOutcomes::FewOutcomes(const Composition& part, Composition rest)
    : rest_(std::move(rest)),
      lower_(Outcomes::terms(part, most_outcomes, false)),
      upper_(Outcomes::terms(part, most_outcomes, true)),
      infinite_(SupportEnd(part).infinity_mass()) {}

// speed: one epoch alone has ways of its own; of several the whole transform mostly knows as much, sooner.
// Most compositions have none, and to ask for the law of a pair may take long.
std::optional<FewOutcomes> FewOutcomes::of(const Composition& composition) {
    Composition part, rest;
    for (const auto& step : composition) (step.first->allocation() ? rest : part).push_back(step);
    if (part.empty() || rest.size() != 1 || rest.front().second != 1) return {};
    FewOutcomes few(part, std::move(rest));
    return few.upper_.empty() ? std::nullopt : std::optional(std::move(few));
}

// Of the rest's deltas, one from below and one from above for each outcome.
Answer FewOutcomes::mean(std::span<const Answer> deltas) const {
    Answer out = deltas.back();
    out.discretisation = out.truncation = out.wrap_around = out.round_off = 0;
    double lower = 0, upper = 0, largest = 0;
    for (std::size_t i = 0; i < upper_.size(); ++i) {
        const Answer &below = deltas[2 * i], &above = deltas[2 * i + 1];
        const double mass = upper_[i].mass;
        lower += lower_[i].mass * below.lower;
        upper += mass * above.upper;
        largest = std::max(largest, above.upper);
        out.discretisation += mass * above.discretisation;
        out.truncation += mass * above.truncation;
        out.wrap_around += mass * above.wrap_around;
        out.round_off += mass * above.round_off;
    }
    // Sums of positive terms, of which each may have lost what is below the normal doubles.
    const double terms = static_cast<double>(upper_.size()) + 4, lost = terms * 5e-324;
    out.lower = std::max(0.0, (lower + infinite_.lower) * (1 - terms * u) - lost);
    out.upper = std::min(1.0, (upper + infinite_.upper) * (1 + terms * u) + lost);
    // No mean is above the largest, which may be the least double.
    if (!(infinite_.upper > 0)) out.upper = std::min(out.upper, largest);
    return out;
}

// What outcome i / 2 leaves of epsilon, rounded up for the lower bound, i even, or down.
double FewOutcomes::argument(std::size_t i, double epsilon) const {
    return i % 2 == 0 ? std::nextafter(epsilon - lower_[i / 2].loss, infinity)
                      : std::nextafter(epsilon - upper_[i / 2].loss, -infinity);
}

// The largest loss leaves the rest the largest delta. Beside that many are nothing, which may take long to
// know.
std::vector<Answer> FewOutcomes::delta_curve(std::span<const double> epsilons, const Rest& rest) const {
    const std::size_t each = 2 * upper_.size();
    std::vector<Answer> deltas(each * epsilons.size());
    std::vector<double> asked;
    std::vector<std::size_t> place;
    const auto ask = [&] {
        const std::vector<Answer> found = rest.deltas(asked);
        for (std::size_t j = 0; j < place.size(); ++j) deltas[place[j]] = found[j];
        asked.clear();
        place.clear();
    };
    const auto want = [&](std::size_t at, std::size_t i) {
        asked.push_back(argument(i, epsilons[at]));
        place.push_back(each * at + i);
    };
    for (std::size_t at = 0; at < epsilons.size(); ++at)
        for (const std::size_t i : {each - 2, each - 1}) want(at, i);
    ask();
    for (std::size_t at = 0; at < epsilons.size(); ++at) {
        const double nothing = negligible * lower_.back().mass * deltas[each * at + each - 2].lower;
        for (std::size_t i = 0; i < each - 2; i += 2) {
            const bool known = nothing > 0 && rest.surely_below(argument(i + 1, epsilons[at]), nothing);
            if (known) {
                deltas[each * at + i].upper = deltas[each * at + i + 1].upper = nothing;
                continue;
            }
            want(at, i);
            want(at, i + 1);
        }
    }
    if (!asked.empty()) ask();
    std::vector<Answer> out;
    for (std::size_t at = 0; at < epsilons.size(); ++at)
        out.push_back(mean(std::span(deltas).subspan(each * at, each)));
    return out;
}

Answer FewOutcomes::epsilon_bounds(double delta, const Answer& about, const Rest& rest) const {
    Search search(delta, about.engine,
                  [&](double epsilon) { return delta_curve({&epsilon, 1}, rest).front(); });
    if (!std::isfinite(about.upper) || !(infinite_.upper < delta)) return search.best;
    search.find(std::max(0.0, about.lower + lower_.front().loss),
                about.upper + std::max(0.0, upper_.back().loss) + near_enough);
    search.enclose();
    return search.best;
}

}  // namespace hockeystick
