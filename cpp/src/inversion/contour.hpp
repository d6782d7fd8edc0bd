// delta(eps) from the values of the transform on one line Re z = s, with its errors; see inversion.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hockeystick/answer.hpp"
#include "inversion/saddle.hpp"
#include "numerics/complex.hpp"

namespace hockeystick {

// All losses are offset + k spacing, if that is positive. offset_size: the sum of the moduli that add up to
// it.
struct LossLattice {
    double spacing = 0, offset = 0, offset_size = 0;
};

// Everything about one line Re z = s that does not depend on eps. Values are relative to e^{K(s) - s eps}.
struct Contour {
    double s, scale, step;           // scale: K(s), step in Im z
    std::vector<Complex> integrand;  // e^{K(z) - K(s)} times pole(), for each frequency
    std::vector<double> error;       // of each
    double share;                    // about what delta will be
    double tail = 0;                 // error from the frequencies left out
    double right_shift = 0, log_right = 0, left_shift = 0;
    double log_left = -std::numeric_limits<double>::infinity();  // aliases
    LossLattice lattice;
    double points = 0;  // frequencies in a period, on a lattice
    // If positive, the sum of the losses has a Gaussian step of that mu^2 more than delta's, and the density
    // of that sum has this error from the frequencies left out (docs/accounting/bounds.md, "A pinch of
    // noise").
    double pinch = 0, density_tail = 0;

    // What e^{K(z)} is multiplied by at frequency j, its weight in the rule included: 1/(z (z+1)), and on a
    // lattice, whose transform is periodic, 1/((1 - e^{-zh}) (1 - e^{-(z+1)h})).
    Complex pole(std::size_t j) const;

    // Of a part that is not computed, at most `tail`.
    static Contour of_nothing(double s, double scale, double tail);
};

// The line through the saddle of eps, or a lesser tilt, to which `saddle` then moves: where a shorter period
// makes the aliases on either side, by Chernoff's bound at other tilts, less than e^{log_goal}; empty where
// there is none. log_delta: about what ln delta will be. most_lost: by how much ln e^{K(s) - s eps}, and with
// it rounding, may grow.
std::optional<Contour> line_through(SaddlePoint& saddle, double epsilon, double log_delta, double log_goal,
                                    double most_lost, const CumulantOf& cumulant);

// Of a transform whose logarithm is only bounded at real tilts: the tilt from `least` to `most` where
// e^{K(s) - s eps}/(s (s + 1)) is least, found as closely as that in ln s; and the line there, where that
// bound is `log_here`, as line_through.
using LogBound = std::function<double(double s)>;
double best_tilt(const LogBound& log_upper, double epsilon, double least, double most, double close);
std::optional<Contour> line_at(double s, double log_here, const LogBound& log_upper, double epsilon,
                               double log_delta, double log_goal);

// sum over j >= first of step/pi |integrand|: 1/|z (z+1)| <= 1/tau^2, in blocks of doubling tau. bound(tau):
// of |e^{K(z)}| beside e^{K(s)} at all frequencies from tau on: docs/accounting/bounds.md, "Exact inversion".
double tail_from(double step, std::size_t first, const std::function<double(double tau)>& bound);

// About the least number of frequencies, from `first` to `limit`, beyond which the tail is at most `wanted`.
// If not even the most are enough, they will have to do.
struct CutOff {
    std::size_t size;
    double tail;
};
CutOff cut_off(std::size_t first, std::size_t limit, double wanted,
               const std::function<double(std::size_t size)>& tail);

// delta(eps) on a contour, and -d delta / d eps. noise: by how much a pinch of noise may have raised it.
struct Inverted {
    double value, slope, aliasing, noise, tail, quadrature, round_off, log_scale;
    double lower() const { return scaled(value - aliasing - noise - tail - quadrature - round_off); }
    double upper() const { return scaled(value + tail + quadrature + round_off); }
    // In two steps, so that only the last of them can be denormal.
    double scaled(double relative) const {
        const double half = std::exp(0.5 * log_scale);
        return relative * half * half;
    }
};

Inverted invert(const Contour& contour, double epsilon);
// The sum of two parts of delta, relative to the larger scale.
Inverted together(const Inverted& a, const Inverted& b);
// Of several transforms, each on a line of its own.
Inverted invert(std::span<const Contour> contours, double epsilon);

// delta and its slope at any eps, as a contour, several of them or another engine has them.
using InvertedAt = std::function<Inverted(double epsilon)>;

// Moves epsilon to where ln delta is `target`: Newton, as ln delta is nearly straight, in a bracket. Stops
// where a step moves it by less than `still`, relatively.
Inverted newton(const InvertedAt& inverted, double target, double& epsilon, double still = 1e-14);

// Certified bounds of eps(delta) around the point that Newton's method found; upper is infinite where none
// was. What the transform leaves out of delta lies between `least` and `most`.
struct Bracket {
    double lower, upper;
};
Bracket bracket(const InvertedAt& inverted, const Inverted& at, double epsilon, double delta,
                double least = 0, double most = 0);

// The terms of an answer, in units of delta; its bounds are not set. step: in Im z, of so many frequencies.
// left_out: of delta, by the transform.
Answer describe(const Inverted& at, double step, std::size_t size, double left_out = 0);
// The same with its bounds, of delta or of eps(delta), where what the transform leaves out of delta lies
// between `least` and `most`; empty where there are none.
std::optional<Answer> delta_answer(Answer terms, const Inverted& at, double least = 0, double most = 0);
std::optional<Answer> epsilon_answer(Answer terms, const InvertedAt& inverted, const Inverted& at,
                                     double epsilon, double delta, double least = 0, double most = 0);

// 1 - lower/upper, infinite where there is no answer.
double relative_gap(const std::optional<Answer>& answer);

// speed: which neighbours the lines of one eps serve: as long as the gap is below `enough`, or hardly more
// than where they were laid; and the next `run` of them in any case, if the gap is not beyond what may be
// shared. Where no more than `slack` is open nothing is laid.
struct Sharing {
    double enough;
    std::size_t run = 0;
    double slack = 0;
};

inline bool answered(const std::optional<Answer>& answer, double enough, double slack) {
    return relative_gap(answer) < enough || (answer && answer->upper - answer->lower <= slack);
}

// Where asking came to nothing several times in a row, ever more points are left out before the next.
class Patience {
public:
    bool leaves_out() {
        const bool enough = misses_ < most_misses || left_out_ + 1 == std::size_t{1}
                                                                          << (misses_ - most_misses);
        left_out_ += enough ? 0 : 1;
        return !enough;
    }
    // How many were left out before the one that was asked for now.
    std::size_t asked(bool in_vain) {
        misses_ = in_vain ? misses_ + 1 : 0;
        return std::exchange(left_out_, 0);
    }

private:
    static constexpr int most_misses = 3;  // speed
    int misses_ = 0;
    std::size_t left_out_ = 0;
};

// Lines that serve the points that are asked about next, from one curve of a question to another.
template <class Lines>
class KeptLines {
public:
    // From now on, or no longer: an answer may not depend on what was asked before its question.
    void keep(bool whether) {
        keeps_ = whether;
        lines_.clear();
    }
    void add(double epsilon, const Lines& lines) {
        if (keeps_ && lines_.size() < most_kept) lines_.insert_or_assign(epsilon, lines);
    }
    // By the nearest on either side, until that is good enough.
    template <class AnswerBy>
    void serve(double epsilon, AnswerBy answer_by, double enough, std::optional<Answer>& best) const {
        const auto next = lines_.lower_bound(epsilon);
        const auto ask = [&](auto at) {
            if (at == lines_.end() || relative_gap(best) < enough) return;
            const auto answer = answer_by(at->second, epsilon);
            if (relative_gap(answer) < relative_gap(best)) best = answer;
        };
        const auto before = next == lines_.begin() ? lines_.end() : std::prev(next);
        const bool first = before == lines_.end() ||
                           (next != lines_.end() && next->first - epsilon < epsilon - before->first);
        ask(first ? next : before);
        ask(first ? before : next);
    }

private:
    // speed: some hundred kilobytes each.
    static constexpr std::size_t most_kept = 256;
    bool keeps_ = false;
    std::map<double, Lines> lines_;
};

// delta at many eps. ask(eps, lines) lays lines for one of them and answers there; answer(lines, eps) serves
// its neighbours.
template <class Lines, class Ask, class AnswerBy>
std::vector<std::optional<Answer>> curve_by_lines(std::span<const double> epsilons, Sharing sharing, Ask ask,
                                                  AnswerBy answer_by, KeptLines<Lines>* kept = nullptr) {
    // speed: an answer with a gap of so much of it comes to nothing; no gap is shared that says next to
    // nothing.
    constexpr double miss = 0.5, largest_shared = 0.1;
    std::vector<std::optional<Answer>> curve(epsilons.size());
    std::optional<Lines> lines;
    Patience patience;
    double gap = 0;
    std::size_t served = 0;
    const auto keep = [&](std::size_t i, std::optional<Answer> answer) {
        if (relative_gap(answer) < relative_gap(curve[i])) curve[i] = std::move(answer);
    };
    for (std::size_t i = 0; i < epsilons.size(); ++i) {
        if (kept) kept->serve(epsilons[i], answer_by, sharing.enough, curve[i]);
        if (lines && !(relative_gap(curve[i]) < sharing.enough)) keep(i, answer_by(*lines, epsilons[i]));
        const double shared = served++ < sharing.run ? largest_shared : std::max(gap, sharing.enough);
        if (answered(curve[i], shared, sharing.slack)) continue;
        if (patience.leaves_out()) continue;
        std::optional<Answer> own = ask(epsilons[i], lines);
        if (!own) lines.reset();
        if (kept && lines) kept->add(epsilons[i], *lines);
        gap = std::min(std::max(sharing.enough, 2 * relative_gap(own)), largest_shared);
        served = 0;
        // Those that were left out on the way here may be near enough.
        std::size_t left_out = patience.asked(!(relative_gap(own) < miss));
        keep(i, std::move(own));
        for (; lines && left_out > 0; --left_out)
            keep(i - left_out, answer_by(*lines, epsilons[i - left_out]));
    }
    return curve;
}

// sup over x >= 0 of e^{-s x} (1 - e^{-x}): delta(eps) <= chernoff(s) e^{K(s) - s eps}.
double log_chernoff(double s);

}  // namespace hockeystick
