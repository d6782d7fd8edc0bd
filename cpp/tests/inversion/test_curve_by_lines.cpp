// How the lines of one point serve its neighbours, on answers that are made up: which are asked for, and what
// each of them gets.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include "check.hpp"
#include "inversion/contour.hpp"

namespace hs = hockeystick;

namespace {

hs::Answer answer_of_gap(double gap) {
    hs::Answer answer;
    answer.upper = 1;
    answer.lower = 1 - gap;
    return answer;
}

using Line = std::vector<double>;

struct Asked {
    std::vector<std::optional<hs::Answer>> curve;
    std::vector<double> points;  // that had lines laid for them, or were to have
};

// Points are answered from `first` on alone, to `near`; and their lines twice as badly for each unit of
// distance.
Asked ask(std::size_t size, double first, double near, hs::Sharing sharing) {
    Asked out;
    std::vector<double> epsilons;
    for (std::size_t i = 0; i < size; ++i) epsilons.push_back(static_cast<double>(i));
    out.curve = hs::curve_by_lines<Line>(
        epsilons, sharing,
        [&](double epsilon, std::optional<Line>& line) -> std::optional<hs::Answer> {
            out.points.push_back(epsilon);
            if (epsilon < first) return {};
            line = Line{epsilon};
            return answer_of_gap(near);
        },
        [&](const Line& line, double epsilon) {
            return std::optional(
                answer_of_gap(std::min(0.9, near * std::exp2(std::abs(epsilon - line.front())))));
        });
    return out;
}

double gap_at(const Asked& asked, std::size_t i) { return hs::relative_gap(asked.curve[i]); }

void lines_serve_as_far_as_they_are_good() {
    const Asked asked = ask(100, 0, 1e-9, {1e-6});
    // 2^9 < 1e-6/1e-9 < 2^10: ten points each.
    CHECK(asked.points.size() == 10);
    for (std::size_t i = 0; i < 100; ++i) CHECK(gap_at(asked, i) < 1e-6);
    // Without room to share each has its own.
    CHECK(ask(100, 0, 1e-9, {0}).points.size() == 100);
}

// Hard ones at the beginning do not keep the rest from being asked, and do not cost much: ever more of them
// are left out, of which the next lines serve those that are near.
void those_without_an_answer_are_left_out() {
    constexpr std::size_t size = 1000, hard = 500;
    CHECK(ask(size, 1e9, 1e-9, {1e-6}).points.size() <= 14);
    const Asked asked = ask(size, hard, 1e-9, {1e-6});
    const auto found = std::find_if(asked.points.begin(), asked.points.end(),
                                    [](double point) { return point >= static_cast<double>(hard); });
    CHECK(found != asked.points.end() && found - asked.points.begin() <= 12);
    for (auto i = static_cast<std::size_t>(*found) - 9; i < size; ++i) CHECK(gap_at(asked, i) < 1e-6);
}

// A wide answer is kept, and a wider one of a neighbour's lines does not take its place.
void the_narrowest_is_kept() {
    const Asked asked = ask(20, 0, 0.6, {1e-6});
    for (const double point : asked.points) CHECK(gap_at(asked, static_cast<std::size_t>(point)) < 0.61);
    CHECK(asked.points.size() < 12);
}

}  // namespace

int main() {
    lines_serve_as_far_as_they_are_good();
    those_without_an_answer_are_left_out();
    the_narrowest_is_kept();
    return check::summary();
}
