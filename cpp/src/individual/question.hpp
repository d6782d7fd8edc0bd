// What is asked of many examples at once, their epsilon at one delta or delta at an epsilon of each, as the
// search for a tilt, lines and lattices need it; see individual.hpp.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
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

std::unique_ptr<Question> epsilon_at(double delta);
// Each row's own epsilon; they must outlive the question.
std::unique_ptr<Question> delta_at(std::span<const double> epsilons);

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
