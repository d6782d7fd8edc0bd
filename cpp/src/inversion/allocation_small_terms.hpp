// Sums over nodes of weights times e^{-|s| zeta}, where all |s zeta| are at most 1: power series in |s|, so
// that the nodes are met once for many s (docs/mechanisms/allocation.md, "Moments").
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "numerics/complex.hpp"

namespace hockeystick {

// Sums of w psi(-v), and of w_j e^{-v} and its modulus, j = 1, 2, ..., v = |s| zeta; bounds of their errors.
struct NodeSums {
    Complex front = 0;
    double front_error = 0;
    std::vector<double> real, imaginary, modulus, error;

    explicit NodeSums(std::size_t size) : real(size), imaginary(size), modulus(size), error(size) {}
    void add(const NodeSums& other);
    void clear();
};

class SmallTerms {
public:
    // w = size direction, and w_j = size_of_powers powers[j] direction.
    struct Node {
        Complex zeta, direction;
        double size, size_of_powers;
        std::span<const double> powers;
        // What each rounds by, in units of round-off; the share of the node that the nodes left out come to;
        // aliases' weights beside these, and beside |s| w.
        double slack, slack_of_powers, edges, aliasing, aliasing_per_s;
    };
    // For |s| up to reach.
    SmallTerms(double reach, std::size_t size);
    // The same nodes for a sixteenth of that.
    SmallTerms closer() const;

    double reach() const { return reach_; }
    std::size_t count() const { return count_; }
    bool fits(Complex zeta) const { return std::abs(zeta) * reach_ <= 1; }
    // Nodes are added up in such blocks, and these to one another.
    void add(std::span<const Node> block);
    NodeSums at(double modulus) const;

private:
    // proof: where q <= 1, the first term that is left out is so small (allocation_small_terms.cpp,
    // static_assert).
    static constexpr std::size_t most_terms = 20;
    // Of (|s|/reach)^m: in psi's sum, and in the others at m size + j.
    struct Coefficients {
        Complex front[most_terms] = {};
        std::vector<double> real, imaginary, modulus;

        explicit Coefficients(std::size_t size) : real(size), imaginary(size), modulus(size) {}
    };
    void add_to(Coefficients& block, const Node& node);

    double reach_;
    std::size_t size_, count_ = 0, used_ = 0;  // terms that are not 0
    Coefficients sums_;
    double front_error_[3] = {};
    std::vector<double> error_;
};

}  // namespace hockeystick
