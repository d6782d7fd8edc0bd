// What is asked of many examples at once, their epsilon at one delta or delta at an epsilon of each, as the
// search for a tilt, lines and lattices need it; see individual.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "hockeystick/individual.hpp"
#include "individual/counts.hpp"
#include "inversion/contour.hpp"
#include "lattice/tail_table.hpp"

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

class EpsilonQuestion final : public Question {
public:
    explicit EpsilonQuestion(double delta) : delta_(delta) {}
    double score(double k, double s, std::size_t row) const override;
    double chernoff(double score) const override;
    double log_inverse_delta(double score) const override;
    Bracket solve(const Contour& contour, std::size_t row, double chernoff) const override;
    double read(const TailTable& table, std::size_t row, double chernoff, bool upper) const override;
    bool shares_lattices() const override { return true; }

private:
    double delta_;
};

class DeltaQuestion final : public Question {
public:
    explicit DeltaQuestion(std::span<const double> epsilons) : epsilons_(epsilons) {}
    double score(double k, double s, std::size_t row) const override;
    double chernoff(double score) const override;
    double log_inverse_delta(double score) const override;
    double point(std::size_t row) const override { return epsilons_[row]; }
    Bracket solve(const Contour& contour, std::size_t row, double chernoff) const override;
    double read(const TailTable& table, std::size_t row, double chernoff, bool upper) const override;
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
