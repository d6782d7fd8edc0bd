// Rows of one step's transforms on both sides of a cut, of which each value turns into the next, against the
// same sums over the same nodes in long double, whose logarithms and exponentials are not shared. What the
// rule leaves out is no part of the bounds here, so that rounding alone must account for what differs.
#include <cmath>
#include <complex>
#include <cstddef>
#include <random>

#include "check.hpp"
#include "hockeystick/pairs.hpp"
#include "inversion/allocation_step.hpp"

namespace hs = hockeystick;

namespace {

using Long = std::complex<long double>;
constexpr std::size_t size = 32;
constexpr double own = 1e-18;       // of long doubles' logarithms
constexpr double nothing = 1e-300;  // beside a mass; what underflows is less

double between(std::mt19937_64& random, double low, double high) {
    return low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
}

// e^v - 1 - v, by its series where that loses digits.
Long second_order(Long v) {
    if (std::abs(v) > 0.5L) return std::exp(v) - 1.0L - v;
    Long term = v, sum = 0;
    for (int k = 2; k < 24; ++k) sum += term *= v / static_cast<long double>(k);
    return sum;
}

Long exactly_below(const hs::CutStep& step, const hs::CutStep::Nodes& nodes, Long theta) {
    Long sum = theta * static_cast<long double>(step.beyond_q() - step.beyond_p()) -
               static_cast<long double>(step.beyond_q());
    for (std::size_t i = 0; i < nodes.weight.size(); ++i)
        sum += static_cast<long double>(nodes.weight[i]) *
               second_order(theta * static_cast<long double>(nodes.excess[i]));
    return 1.0L + sum;
}

Long exactly_beyond(const hs::CutStep::Nodes& nodes, Long theta) {
    Long sum = 0;
    for (std::size_t i = 0; i < nodes.weight.size(); ++i)
        sum += static_cast<long double>(nodes.weight[i]) *
               std::exp(theta * static_cast<long double>(nodes.excess[i]));
    return sum;
}

// Both as they are given: what a sum is away from the exact one beside what its error admits.
void rows_are_sums(double mu, double steps, double end, std::complex<double> s, double turn) {
    const auto step = hs::CutStep::at({mu, steps, false}, end, 9);
    const double top = end + 1.5;
    if (!(s.real() / steps * std::exp(mu * (top - 0.5 * mu)) < 600)) return;
    const std::complex<double> most(s.real(), s.imag() + turn * static_cast<double>(size));
    auto below = step.nodes_below(most), beyond = step.nodes_beyond(most, top);
    below.error = beyond.error = 0;
    const auto row = step.log_below(below, s, turn, size), far = step.beyond(beyond, s, turn, size);
    for (std::size_t j = 0; j < size; ++j) {
        const Long theta =
            Long(s.real(), s.imag() + turn * static_cast<double>(j)) / static_cast<long double>(steps);
        const Long value = std::exp(Long(row[j].value) / static_cast<long double>(steps)),
                   truth = exactly_below(step, below, theta);
        // An error of the logarithm of the T-th power.
        const long double share = std::abs(value / truth - 1.0L);
        if (row[j].error < 0.5) CHECK(steps * share <= row[j].error * (1 + 1e-6) + steps * own);
        const long double off = std::abs(Long(far[j].value) - exactly_beyond(beyond, theta));
        CHECK(off <= far[j].error + nothing);
    }
    // And not by much: a thousand units of round-off of what is added up.
    const long double first = std::abs(exactly_beyond(beyond, static_cast<long double>(s.real() / steps)));
    if (first > nothing)
        CHECK(far[size - 1].error < 1e-11 * (1 + std::abs(most) / steps * std::exp(mu * top)) * first);
}

}  // namespace

int main() {
    std::mt19937_64 random(17);
    for (int i = 0; i < 150; ++i) {
        const double mu = std::exp(between(random, -4, 1.2)),
                     steps = std::floor(std::exp(between(random, 2.3, 14))),
                     end = mu + between(random, 0.5, 7), s = std::exp(between(random, -3, 6)),
                     turn = std::exp(between(random, -3, 5));
        rows_are_sums(mu, steps, end, {s, turn * 32 * std::floor(between(random, 0, 30))}, turn);
        rows_are_sums(mu, steps, end, {-s, 0}, turn);
    }
    return check::summary();
}
