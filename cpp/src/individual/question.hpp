// What is asked of many examples at once, their epsilon at one delta or delta at an epsilon of each, as the
// search for a tilt, lines and lattices need it (docs/individual/individual.md, "Individual ε of DP-SGD").
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "hockeystick/individual.hpp"
#include "individual/counts.hpp"
#include "inversion/contour.hpp"
#include "lattice/tail_table.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {

class Question {
public:
    virtual ~Question() = default;
    // By Chernoff's inequality, where the history's K(s) is k: what is least at the best tilt.
    virtual double score(double k, double s, std::size_t row) const = 0;
    // The bound itself, and about ln 1/delta, where the score is this.
    virtual double chernoff(double score) const = 0;
    virtual double log_inverse_delta(double score) const = 0;
    // Where the row is asked, for those that ask at points of their own.
    virtual double point(std::size_t) const { return 0; }
    virtual Bracket solve(const Contour& contour, std::size_t row, double chernoff) const = 0;
    virtual double read(const TailTable& table, std::size_t row, double chernoff, bool upper) const = 0;
    // A delta is asked for at very many points, each of which would want lattices of its own.
    virtual bool shares_lattices() const = 0;
};

// At one delta.
class EpsilonQuestion final : public Question {
public:
    explicit EpsilonQuestion(double delta) : delta_(delta) {}
    double score(double k, double s, std::size_t) const override {
        const double log_factor = log_chernoff(s), log_delta = std::log(delta_);
        return (k + log_factor - log_delta + 16 * u * (k - log_factor - log_delta)) / s;
    }
    double chernoff(double score) const override { return std::max(0.0, score); }
    double log_inverse_delta(double) const override { return -std::log(delta_); }
    Bracket solve(const Contour& contour, std::size_t, double chernoff) const override {
        const InvertedAt inverted = [&](double e) { return invert(contour, e); };
        double epsilon = chernoff;
        const Inverted at = newton(inverted, std::log(delta_), epsilon, 1e-9);
        if (!(at.value > 0)) return {0, infinity};
        if (invert(contour, 0).upper() <= delta_) return {0, 0};
        return bracket(inverted, at, epsilon, delta_);
    }
    double read(const TailTable& table, std::size_t, double chernoff, bool upper) const override {
        const auto at = [&](double e) { return table.at(e).value; };
        const double start = std::isfinite(chernoff) ? chernoff : 1e3;
        return upper ? upper_epsilon(at, delta_, start) : lower_epsilon(at, delta_, start);
    }
    bool shares_lattices() const override { return true; }

private:
    double delta_;
};

// At each row's own epsilon; they must outlive the question.
class DeltaQuestion final : public Question {
public:
    explicit DeltaQuestion(std::span<const double> epsilons) : epsilons_(epsilons) {}
    double score(double k, double s, std::size_t row) const override {
        const double log_factor = log_chernoff(s), exponent = s * epsilons_[row];
        return k + log_factor - exponent + 16 * u * (k - log_factor + exponent);
    }
    double chernoff(double score) const override {
        return std::min(1.0, std::exp(score) * (1 + 1e-12) + 5e-324);
    }
    double log_inverse_delta(double score) const override { return std::max(0.0, -score); }
    double point(std::size_t row) const override { return epsilons_[row]; }
    Bracket solve(const Contour& contour, std::size_t row, double) const override {
        const Inverted at = invert(contour, epsilons_[row]);
        return {std::max(0.0, at.lower() - 5e-324), std::min(1.0, at.upper() + 5e-324)};
    }
    double read(const TailTable& table, std::size_t row, double, bool upper) const override {
        return table.at(epsilons_[row]).value + (upper ? 5e-324 : 0);
    }
    bool shares_lattices() const override { return false; }

private:
    std::span<const double> epsilons_;
};

// The best of the shared tilts, and its score.
struct Start {
    static constexpr int nowhere = std::numeric_limits<int>::min();
    int tilt = nowhere;  // nothing was spent
    double score = std::numeric_limits<double>::infinity();
    bool few = false;  // few steps, sampled ones among them
};

// The examples, what is asked of them, where each begins, and the answers so far.
struct Asked {
    const CountTable& table;
    const Question& question;
    std::vector<Start> starts;
    IndividualAnswers answers;
};

}  // namespace hockeystick
