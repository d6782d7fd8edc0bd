#include "inversion/allocation_small_terms.hpp"

#include <algorithm>
#include <cmath>

#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// proof: what is left out of a term's series beside its term of second order, in units of round-off.
constexpr double left_out = 1.0 / 16;
// proof: more than what a node's terms round by, in units, besides what the node is known to; each factor
// |s| zeta of a term, besides zeta, and with its place in the sum over powers of |s|.
constexpr double rounding_of_node = 6, rounding_of_factor = 20;

void add_to_all(std::vector<double>& sums, const std::vector<double>& more) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
}

}  // namespace

void NodeSums::add(const NodeSums& other) {
    front += other.front;
    front_error += other.front_error;
    add_to_all(real, other.real);
    add_to_all(imaginary, other.imaginary);
    add_to_all(modulus, other.modulus);
    add_to_all(error, other.error);
}

void NodeSums::clear() {
    front = front_error = 0;
    for (auto* values : {&real, &imaginary, &modulus, &error}) std::fill(values->begin(), values->end(), 0.0);
}

SmallTerms::SmallTerms(double reach, std::size_t size)
    : reach_(reach), size_(size), sums_(most_terms * size), error_(size) {}

// By powers of two, so that nothing rounds.
SmallTerms SmallTerms::closer() const {
    constexpr double share = 1.0 / 16;  // proof: a power of two
    SmallTerms out = *this;
    double power = 1;
    for (std::size_t m = 0; m < used_; ++m, power *= share) {
        out.sums_.front[m] *= power;
        if (m < 3) out.front_error_[m] *= power;
        for (auto* values : {&out.sums_.real, &out.sums_.imaginary, &out.sums_.modulus})
            for (std::size_t j = 0; j < size_; ++j) (*values)[m * size_ + j] *= power;
    }
    out.reach_ *= share;
    return out;
}

void SmallTerms::add(std::span<const Node> nodes) {
    Coefficients block(most_terms * size_);
    for (const Node& node : nodes) add_to(block, node);
    for (std::size_t m = 0; m < used_; ++m) sums_.front[m] += block.front[m];
    add_to_all(sums_.real, block.real);
    add_to_all(sums_.imaginary, block.imaginary);
    add_to_all(sums_.modulus, block.modulus);
    count_ += nodes.size();
}

// q^m/m! at m = most_terms and q = 1, which is where it is largest beside q^2.
template <std::size_t terms>
constexpr bool leaves_little() {
    double term = 1;
    for (std::size_t m = 1; m <= terms; ++m) term /= static_cast<double>(m);
    return term < u * left_out;
}

// With q = |reach zeta| <= 1 the terms of order m and more come to q^m/m! e^q at most, and each rounds as
// often as it has factors: sums of m q^m/m! are at most q e^q, from the second order on q^2 e^q.
void SmallTerms::add_to(Coefficients& block, const Node& node) {
    static_assert(leaves_little<most_terms>());
    const Complex step = -reach_ * node.zeta;
    const double q = std::abs(step);
    Complex turn = node.direction;
    double term = 1, modulus = 1;
    for (std::size_t m = 0; m < most_terms; ++m) {
        if (m > 0) {
            const double order = 1 / static_cast<double>(m);
            turn = times(turn, step * order);
            modulus *= step.real() * order;
            term *= q * order;
        }
        if (m > 2 && term < u * left_out * q * q) break;
        used_ = std::max(used_, m + 1);
        if (m > 1) block.front[m] += node.size * turn;
        const double right = node.size_of_powers * turn.real(), up = node.size_of_powers * turn.imag(),
                     size = node.size_of_powers * modulus;
        double *re = block.real.data() + m * size_, *im = block.imaginary.data() + m * size_,
               *moduli = block.modulus.data() + m * size_;
        for (std::size_t j = 1; j < node.powers.size(); ++j) {
            re[j] += node.powers[j] * right;
            im[j] += node.powers[j] * up;
            moduli[j] += node.powers[j] * size;
        }
    }
    const double grown = std::exp(q) * (1 + 1e-12), of_node = u * (node.slack + rounding_of_node),
                 of_factor = u * (node.slack + rounding_of_factor);
    front_error_[0] += node.size * node.aliasing;
    front_error_[1] += node.size * (node.aliasing_per_s * reach_ + 2.5 * grown * node.edges * q);
    front_error_[2] += node.size * grown * (0.5 * of_node + of_factor) * q * q;
    const double error =
        node.size_of_powers *
        (grown * (of_node + u * node.slack_of_powers + q * of_factor + node.edges) + node.aliasing);
    for (std::size_t j = 1; j < node.powers.size(); ++j) error_[j] += node.powers[j] * error;
}

NodeSums SmallTerms::at(double modulus) const {
    const double t = modulus / reach_;
    NodeSums out(size_);
    const auto to_next = [&](const std::vector<double>& from, std::size_t m, std::vector<double>& sums) {
        for (std::size_t j = 0; j < size_; ++j) sums[j] = sums[j] * t + from[m * size_ + j];
    };
    for (std::size_t m = used_; m-- > 0;) {
        out.front = out.front * t + sums_.front[m];
        to_next(sums_.real, m, out.real);
        to_next(sums_.imaginary, m, out.imaginary);
        to_next(sums_.modulus, m, out.modulus);
    }
    out.front_error = front_error_[0] + t * (front_error_[1] + t * front_error_[2]);
    out.error = error_;
    return out;
}

}  // namespace hockeystick
