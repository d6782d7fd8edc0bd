#include "inversion/allocation_turned_ratios.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include "hockeystick/parallel.hpp"
#include "inversion/allocation_mean_moments.hpp"
#include "inversion/saddle.hpp"
#include "numerics/constants.hpp"
#include "numerics/lane_sum.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

// All of these are for speed. The grid of frequencies, and the turns that are tried beside the one that suits
// V = 1.
constexpr double first_frequency = 8, next_frequency = 1.2, most_frequencies = 40;
constexpr double shares_of_turn[] = {1.0, 0.5, 0.25};
// Cells of g, those of ln V, which become ever wider, and the powers of V that bound how rare these are.
constexpr double first_g = -6, width_of_g = 0.02;
constexpr double first_cell = 0.1, next_cell = 1.1;
constexpr std::size_t most_cells = 56, more_powers = 16;
// proof: more than what these sums and logarithms round by.
constexpr double rounding = 1e-11;
// proof: from there on w^k e^{-exponent} falls with w, for k up to that, and so for these powers.
constexpr double far_exponent = 200, largest_power = far_exponent - more_powers - 1;
// proof: cells end where no tail is less, so that no weight underflows at first.
constexpr double least_tail = 1e-200;

// Of each cell of g, the first of which is all that lies before, its mass and that of all after it, w = W/T
// at its right end, the least that w turns by at its left end, and ln of the most that the density grows by.
struct Cell {
    double mass, w, turned, grown, beyond;
};

// w turns by psi(w) = min(largest, rate w); the normal density grows by e^{psi^2/2 mu^2}, and its argument
// moves psi' times as fast aside.
struct Turn {
    std::vector<Cell> cells;
    double most_grown, end;

    Turn(const Allocation& law, double tau, double share) {
        const double mu = law.mu, largest = std::min(1.0, mu), sine = std::sin(largest),
                     slope = tau * std::atan(sine) / sine, rate = share * slope * mu * mu / (1 + mu * mu);
        const auto ratio = [&](double g) { return std::exp(mu * (g - 0.5 * mu)) / law.steps; };
        const auto grown = [&](double psi, bool turns) {
            return 0.5 * psi * psi / (mu * mu) + (turns ? 0.5 * std::log1p(psi * psi) : 0);
        };
        most_grown = grown(largest, true) + rounding;
        double g = first_g, w = ratio(g);
        cells.push_back({gaussian_tail(-g), w * (1 + rounding), 0,
                         grown(std::min(largest, rate * w), true) + rounding, gaussian_tail(g)});
        for (int i = 1; gaussian_tail(g) > least_tail; ++i) {
            const double next = first_g + width_of_g * i, w_next = ratio(next),
                         mass = next <= 0 ? gaussian_tail(-next) - gaussian_tail(-g)
                                          : gaussian_tail(g) - gaussian_tail(next);
            cells.push_back({mass, w_next * (1 + rounding),
                             w * slope * std::sin(std::min(largest, rate * w)) * (1 - rounding),
                             grown(std::min(largest, rate * w_next), rate * w < largest) + rounding,
                             gaussian_tail(next)});
            g = next, w = w_next;
        }
        end = g;
    }
};

// ln of a bound on e^{most_grown} E[w^j; g > first], without a turn.
double log_far(const Allocation& law, const Turn& turn, double j, double first) {
    const double log_moment = 0.5 * j * (j - 1) * law.mu * law.mu - j * std::log(law.steps);
    return turn.most_grown + log_moment + rounding * (1 + std::abs(log_moment)) +
           std::log(std::max(gaussian_tail(first - j * law.mu), least_tail));
}

// The sum of all weights, each of which is multiplied by its w and the unit first; their number is one of
// whole lanes (speed: so many).
constexpr std::size_t lanes = 4;
double next_sum(std::vector<double>& weight, const std::vector<double>& w, double unit) {
    std::array<double, lanes> sum{};
    for (std::size_t i = 0; i < weight.size(); i += lanes)
        for (std::size_t lane = 0; lane < lanes; ++lane) sum[lane] += weight[i + lane] *= w[i + lane] * unit;
    return sum_of(sum);
}

// ln of bounds on E[prod_t e^{grown - turned/c} V^m] for m up to `most`.
std::vector<double> log_turned_moments(const Allocation& law, const Turn& turn, double log_c,
                                       std::size_t most) {
    const double inverse = std::exp(-log_c);
    double less_one = 0, size = 0;
    std::vector<double> weight, w;
    bool ended = false;
    for (std::size_t i = 0; i < turn.cells.size() && !ended; ++i) {
        const Cell& cell = turn.cells[i];
        const double exponent = cell.grown - cell.turned * inverse, more = std::expm1(exponent),
                     change = cell.mass * more;
        less_one += change;
        size += std::abs(change);
        weight.push_back(cell.mass * (more > -0.5 ? 1 + more : std::exp(exponent)));
        w.push_back(cell.w);
        // Those beyond come to less than their mass, and no power is larger than here.
        if ((ended = exponent < -far_exponent - turn.most_grown))
            weight.back() += cell.beyond * std::exp(turn.most_grown + exponent);
    }
    weight.resize((weight.size() + lanes - 1) / lanes * lanes);
    w.resize(weight.size());
    // Beside the sum of all, weights that fall from one power to the next fall ever after: what underflows
    // does not count any more.
    std::vector<double> log_h(most + 1);
    double unit = 1, log_power = 0, log_factorial = 0;
    for (std::size_t j = 1; j <= most; ++j) {
        const double sum = next_sum(weight, w, unit);
        unit = 1 / sum;
        const double k = static_cast<double>(j);
        log_power += std::log(sum);
        log_factorial += std::log(k);
        log_h[j] = log_power;
        if (!ended) log_h[j] = log_add(log_h[j], log_far(law, turn, k, turn.end));
        log_h[j] += rounding * (10 + k) - log_factorial;
    }
    return log_mean_moments(law.steps, less_one + rounding * size, log_h);
}

// V in cells (c', c]: what turns does so by turned/V >= turned/c, and V^p is at most V^m c'^{p-m}, m >= p.
double log_bound_by(const Allocation& law, const Turn& turn, double power) {
    const auto least = static_cast<std::size_t>(std::ceil(power)), most = least + more_powers;
    const auto log_end = [](std::size_t cell) {
        return first_cell * (std::pow(next_cell, static_cast<double>(cell) + 1) - 1) / (next_cell - 1);
    };
    std::array<double, most_cells> logs{};
    parallel_for_light(most_cells, [&](std::size_t i) {
        const double log_c = log_end(i), log_before = i > 0 ? log_end(i - 1) : 0;
        const auto moments = log_turned_moments(law, turn, log_c, i > 0 ? most : 0);
        logs[i] = power * log_c + moments[0];
        for (std::size_t m = std::max<std::size_t>(least, 1); m < moments.size(); ++m)
            logs[i] = std::min(logs[i], moments[m] + (power - static_cast<double>(m)) * log_before);
    });
    double sum = -infinity;
    for (const double log : logs) sum = log_add(sum, log);
    // Beyond them all, without a turn.
    double less_one = 0;
    std::vector<double> log_h = {0.0};
    for (const Cell& cell : turn.cells) less_one += cell.mass * std::expm1(cell.grown);
    for (std::size_t j = 1; j <= most; ++j)
        log_h.push_back(log_far(law, turn, static_cast<double>(j), -infinity) -
                        log_factorial(static_cast<double>(j)));
    const double log_last = log_mean_moments(law.steps, less_one * (1 + rounding), log_h).back() +
                            (power - static_cast<double>(most)) * log_end(most_cells - 1);
    return log_add(sum, log_last) + 1e-9;
}

}  // namespace

double TurnedRatios::log_bound(double tau) const {
    if (!(tau >= first_frequency && power_ <= largest_power)) return infinity;
    const double index = std::floor(std::log(tau / first_frequency) / std::log(next_frequency)),
                 k = std::min(index, most_frequencies),
                 frequency = first_frequency * std::pow(next_frequency, k) * (1 - rounding);
    auto [known, is_new] = known_.try_emplace(k, infinity);
    if (is_new)
        for (const double share : shares_of_turn)
            known->second = std::min(known->second, log_bound_by(law_, Turn(law_, frequency, share), power_));
    return known->second;
}

}  // namespace hockeystick
