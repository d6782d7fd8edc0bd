// The outcomes of one random allocation in two parts, those without a large likelihood ratio W and some of
// the others: ln E[e^{s(V-1)}; the part] along a line, and how it falls there (docs/mechanisms/allocation.md,
// "One epoch in two parts" and "Epochs in three parts").
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "hockeystick/answer.hpp"
#include "hockeystick/pairs.hpp"
#include "inversion/allocation_large_ratios.hpp"
#include "inversion/allocation_step.hpp"
#include "inversion/contour.hpp"
#include "numerics/complex.hpp"

namespace hockeystick {

// speed: how many guesses have lines, and how near, as a share of eps up to a largest one and in ln delta,
// the last must be.
inline constexpr int most_rounds = 8;
inline constexpr double near_epsilon = 0.02, largest_near = 2.5, near_enough = 2.5, smallest_step = 1e-6;

// speed: how often panels are halved.
inline constexpr int most_halvings = 9;

// speed: the P-mass of the outcomes with a large W, where delta is about that: large beside it.
inline double mass_beyond_first_cut(double delta) { return std::min(0.1, 1e3 * delta); }

template <class Parts>
std::optional<Answer> answer_by(const Parts& parts, double epsilon) {
    const Inverted at = parts.at(epsilon);
    return delta_answer(parts.describe(at), at);
}

// Bounds of delta by lines for a guess of it, until that is near; parts: those of the last guess.
template <class Parts, class PartsAt>
std::optional<Answer> delta_in_rounds(double epsilon, double about, std::optional<Parts>& parts,
                                      PartsAt parts_at) {
    std::optional<Answer> best;
    for (int round = 0; round < most_rounds; ++round) {
        if (!(parts = parts_at(about))) break;
        const auto answer = answer_by(*parts, epsilon);
        if (!answer) break;
        if (!best || answer->upper - answer->lower < best->upper - best->lower) best = answer;
        if (std::abs(std::log(answer->upper / about)) < near_enough) break;
        about = answer->upper;
    }
    return best;
}

// Bounds of eps by lines for a guess of it, until that is near, or the bounds are: their relative gap.
template <class PartsAt>
std::optional<Answer> epsilon_in_rounds(double delta, double epsilon, PartsAt parts_at, double near = 0) {
    for (int round = 0; round < most_rounds; ++round) {
        const auto parts = parts_at(epsilon);
        if (!parts) return {};
        const InvertedAt inverted = [&](double e) { return parts->at(e); };
        const double before = epsilon;
        const Inverted at = newton(inverted, std::log(delta), epsilon);
        // The lines suit an epsilon at which delta is much the same.
        if (epsilon < smallest_step * before) epsilon = 0;
        Answer terms = parts->describe(at);
        if (epsilon == 0 && before == 0 && at.upper() <= delta) return terms;
        if (!(at.value > 0)) return {};
        const bool last = std::abs(epsilon - before) <= near_epsilon * std::min(epsilon, largest_near) ||
                          round + 1 == most_rounds;
        if (!last && !(at.upper() - at.lower() < near * epsilon * at.scaled(at.slope))) continue;
        return epsilon_answer(std::move(terms), inverted, at, epsilon, delta);
    }
    return {};
}

class AllocationPart {
public:
    virtual ~AllocationPart() = default;
    virtual CutStep::Log at(double s) const = 0;
    // speed: V is hardly ever more.
    virtual double about_largest() const = 0;
    // For what is left out and the integrand, at one s: beside the value at tau = 0, at tau and beyond.
    virtual std::function<double(double tau)> log_decay(double s) const = 0;
    std::vector<CutStep::Log> row(double s, double step, std::size_t size) const;

protected:
    // At s, s + i step, ..., with the same nodes for all of them.
    virtual std::vector<CutStep::Log> run(Complex s, double step, std::size_t size) const = 0;
};

// No W is large.
class Bulk final : public AllocationPart {
public:
    Bulk(const Allocation& law, const CutStep& step) : law_(law), step_(step) {}
    CutStep::Log at(double s) const override;
    double about_largest() const override { return largest_by(step_.largest()); }
    std::function<double(double)> log_decay(double s) const override;

    // |E[V^{power + i tau}; no W > c]| <= E[V^power] (turning e^{-tau^2 mu^2/(2T)} + edge) for every tau, by
    // e^{theta V} and log_moment, a lower bound of ln E[V^power] ("High frequencies with a cut").
    struct Edge {
        double turning, edge;
    };
    Edge edge(double power, double theta, double log_moment) const;
    double log_least_moment(double power) const;
    // Of the loss, by the mean of all normal variables: mu^2/T.
    double variance() const { return law_.mu * law_.mu / law_.steps; }

private:
    friend class Rest;
    std::vector<CutStep::Log> run(Complex s, double step, std::size_t size) const override;
    CutStep::Log with_more(const CutStep::Log& log, const CutStep::Log& beyond) const;
    // A few of these, and all others.
    double largest_by(double w) const { return 1.5 + 4 * w / law_.steps; }
    const Allocation& law_;
    const CutStep& step_;
    // Nodes for real s up to `most_`: not for several threads at once.
    mutable CutStep::Nodes known_;
    mutable double most_ = 0;
};

// Some W is large: (phi + r)^T - phi^T, phi below the cut and r beyond it, where s < 0, or up to another cut.
class Rest final : public AllocationPart {
public:
    Rest(const Allocation& law, const CutStep& step, double top = std::numeric_limits<double>::infinity())
        : law_(law), step_(step), bulk_(law, step), top_(top) {}
    CutStep::Log at(double s) const override;
    double about_largest() const override {
        return bulk_.largest_by(std::exp(law_.mu * (top_ - 0.5 * law_.mu)));
    }
    std::function<double(double)> log_decay(double s) const override;

private:
    std::vector<CutStep::Log> run(Complex s, double step, std::size_t size) const override;
    std::vector<CutStep::Log> run_beyond(Complex s, double step, std::size_t size) const;
    CutStep::Log join(const CutStep::Log& log, const CutStep::Log& beyond) const;

    const Allocation& law_;
    const CutStep& step_;
    Bulk bulk_;   // up to that cut
    double top_;  // of g
};

// The outcomes between two cuts, in parts by their largest W; the loss differs little within each.
class Ladder {
public:
    Ladder(const Allocation& law, const CutStep& first, double top);
    std::span<const Rest> parts() const { return parts_; }
    const CutStep& cut(std::size_t i) const { return cuts_[i]; }
    double top(std::size_t i) const { return i + 1 < cuts_.size() ? cuts_[i + 1].end() : top_; }

private:
    double top_;
    std::vector<CutStep> cuts_;
    std::vector<Rest> parts_;  // of these cuts
};

// The outcomes with some W beyond a cut g of its normal variable, in some of so many epochs: their masses.
class Decided {
public:
    Decided(const Allocation& law, double epochs, double g);
    // Masses from normal tails no farther out than g.
    Decided(double p, double q, double g);
    // With E[e^L - c; they] = p - c q, beside what was inverted.
    Inverted add_to(Inverted inverted, double c) const;

private:
    double p_, q_, rounding_;  // units of round-off
};

// What was inverted along lines, and what is known of the outcomes with a large W.
struct Split {
    std::vector<Contour> lines;
    std::variant<Decided, LargeRatios> others;

    // inverted: of the lines.
    Inverted with_others(const Inverted& inverted, double epsilon) const;
    Answer describe(const Inverted& at) const;
};

}  // namespace hockeystick
