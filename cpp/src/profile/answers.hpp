// How answers to one question are made and put together.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "hockeystick/answer.hpp"
#include "numerics/special.hpp"

namespace hockeystick {

inline Answer exact(double value) {
    Answer answer;
    answer.lower = answer.upper = value;
    answer.engine = "closed form";
    return answer;
}

inline bool close(const Answer& answer, double accuracy) {
    return answer.upper - answer.lower <= accuracy * answer.upper;
}

inline Answer unknown(double most) {
    Answer answer;
    answer.upper = most;
    return answer;
}

// The same of an upper bound that may not be known at all.
inline bool known_closely(const Answer& answer, double accuracy) {
    return std::isfinite(answer.upper) && close(answer, accuracy);
}

// Both bounds hold, and so does the better one on either side.
inline Answer both(const Answer& a, const Answer& b) {
    const double gap_a = a.upper - a.lower, gap_b = b.upper - b.lower;
    const bool first = !a.engine.empty() && (gap_a < gap_b || !std::isfinite(b.upper));
    Answer answer = first ? a : b;
    answer.lower = std::max(a.lower, b.lower);
    answer.upper = std::min(a.upper, b.upper);
    return answer;
}

inline Answer with_lower(Answer answer, const Answer& less) {
    answer.lower = std::min(answer.upper, less.lower);
    return answer;
}

inline Answer with_upper(Answer answer, const Answer& more) {
    if (more.upper < answer.upper) answer = with_lower(more, answer);
    return answer;
}

inline Answer upper_of(Answer answer) {
    answer.lower = 0;
    return answer;
}

// Less than any double: nothing more can be known, though engines would look for it beside the largest
// loss.
inline Answer less_than_any_double() {
    Answer answer;
    answer.upper = 5e-324;
    answer.engine = "inversion";
    return answer;
}

// Those of the points that are open are asked about together; what is found is taken one by one.
template <class Open, class Ask, class Take>
void ask_together(std::span<const double> epsilons, Open open, Ask ask, Take take) {
    std::vector<double> asked;
    std::vector<std::size_t> place;
    for (std::size_t i = 0; i < epsilons.size(); ++i) {
        if (!open(i)) continue;
        asked.push_back(epsilons[i]);
        place.push_back(i);
    }
    if (asked.empty()) return;
    const auto found = ask(asked);
    for (std::size_t j = 0; j < place.size(); ++j) take(place[j], found[j]);
}

// Asks in increasing order, in which neighbours share most.
template <class Ask>
std::vector<Answer> ask_in_order(std::span<const double> epsilons, Ask ask) {
    std::vector<std::size_t> place(epsilons.size());
    std::iota(place.begin(), place.end(), std::size_t{0});
    std::ranges::sort(place, {}, [&](std::size_t i) { return epsilons[i]; });
    std::vector<double> sorted;
    for (const std::size_t i : place) sorted.push_back(epsilons[i]);
    const std::vector<Answer> found = ask(sorted);
    std::vector<Answer> out(epsilons.size());
    for (std::size_t j = 0; j < place.size(); ++j) out[place[j]] = found[j];
    return out;
}

inline std::uint64_t total_steps(const Composition& composition) {
    std::uint64_t total = 0;
    for (const auto& [pair, count] : composition) total += count;
    return total;
}

}  // namespace hockeystick
