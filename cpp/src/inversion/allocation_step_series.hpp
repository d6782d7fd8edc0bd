// E[V^k e^{-sV}] of V, the mean of T independent lognormals W of mean 1, at points s of one ray in the right
// half-plane (docs/mechanisms/allocation.md, "Moments").
#pragma once

#include <vector>

#include "hockeystick/pairs.hpp"
#include "inversion/allocation_small_terms.hpp"
#include "numerics/complex.hpp"

namespace hockeystick {

// E[V^k e^{-sV}] = coefficient * e^{log}, |error of coefficient| <= error; bare: else times e^s.
struct SeriesValue {
    Complex log, coefficient;
    double error = 0;
    bool bare = false;
};

// With W/T = m the value is k! times a coefficient of the power series (sum_j E[m^j e^{-sm}] t^j/j!)^T. Every
// expectation is a trapezoidal sum over the normal variable g along a line Im g = turn, so that sW turns
// little.
class StepSeries {
public:
    // For |s| in [least, most] and arg s = angle. tolerance: about the relative error of the expectations'
    // sums; what they have is part of each value's error.
    StepSeries(const Allocation& law, int k, double angle, double least, double most,
               double tolerance = full_tolerance);
    // Whether there were too many nodes.
    bool empty() const { return ratio_.empty(); }
    SeriesValue at(double modulus) const;
    // At angle 0: ln of E[(W/T)^j e^{-sW/T}]/j!, j = 0..k, rounded up.
    std::vector<double> log_terms(double s) const;

    static constexpr double full_tolerance = 1e-13;  // speed

private:
    struct Sums;
    struct Point;
    struct Term;
    void gather(double least, double most);
    const SmallTerms* small_for(double modulus) const;
    Point point_at(double modulus) const;
    Term term_at(const Point& point, std::size_t i) const;
    double edges(std::size_t i) const;
    void add_node(const Point& point, std::size_t i, NodeSums& sums) const;
    void add_to_front(const Point& point, std::size_t i, const Term& term, NodeSums& sums) const;
    void add_powers(double ratio, double log_ratio);
    Sums sums(double modulus, double scale) const;
    SeriesValue power(const Sums& sums, double scale) const;

    Allocation law_;
    int k_;
    double angle_, turn_ = 0, h_ = 0, aliasing_, least_cosine_ = 0;
    // Weights' logarithm and phase; |W|, and that less 1; the errors of the latter, and of all, in units of
    // round-off; the weights' size and direction.
    std::vector<double> log_size_, phase_, ratio_, excess_, slack_of_ratio_, slack_, size_;
    std::vector<Complex> direction_;
    // |W|^j/j! for each node, but for a common factor, their errors in units of round-off, and the weights'
    // size with the factor, or infinity.
    std::vector<double> power_, log_power_, slack_of_powers_, size_of_powers_;
    std::vector<SmallTerms> small_;  // of the first nodes, for less and less |s|
};

}  // namespace hockeystick
