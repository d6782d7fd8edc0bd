#include "inversion/few_steps.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "hockeystick/parallel.hpp"
#include "numerics/complex.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

using Complex = std::complex<double>;
constexpr double pi = std::numbers::pi;

// speed: what aliases are beside the real moment, as a logarithm; how many nodes there may be; the heights of
// the strips that are tried, as shares of the tallest; and how far the noise reaches.
constexpr double log_alias = -39;
constexpr double most_nodes = 2e5;
constexpr double shares[] = {0.98, 0.9, 0.8, 0.65, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05};
constexpr double tallest = 40, reach = 11;
// proof: the logarithm of S rises by no more than this times mu kappa per unit of radius.
constexpr double steepest = 1.2;

// ln S of a node, S = mean of e^{mu h_t}, and of the integrand there; its weight.
struct Node {
    double log_s, log, weight;
};

// The widest step whose aliases are that small, at all frequencies up to tau.
double step_for(double mu_kappa, double power, double tau) {
    double best = 0;
    for (const double share : shares) {
        const double d = share * std::min(tallest, 0.5 * pi / mu_kappa), turn = mu_kappa * d,
                     grow = 0.5 * d * d + tau * turn + std::min(power, 0.0) * std::log(std::cos(turn));
        best = std::max(best, 2 * pi * d / (grow - log_alias));
    }
    return best;
}

// About what is left of the integrand's logarithm, radially: at most -r^2/2 + s ln(1 + psi(mu kappa
// r)/(T-1)).
double log_envelope(const Allocation& law, double mu_kappa, double power, double r) {
    return -0.5 * r * r +
           std::max(power, 0.0) * std::log1p(psi(mu_kappa * r) / (law.steps - 1)) * (1 + 8 * u);
}

// Sums in blocks, so that rounding adds up in as many terms as one has, and as there are blocks.
constexpr std::size_t block = 64;
template <class Term>
auto in_blocks(const std::vector<Node>& nodes, Term term) {
    decltype(term(nodes[0])) sum{};
    for (std::size_t begin = 0; begin < nodes.size(); begin += block) {
        decltype(sum) part{};
        for (std::size_t i = begin; i < std::min(begin + block, nodes.size()); ++i) part += term(nodes[i]);
        sum += part;
    }
    return sum;
}

// The mean of the T normal variables is one apart, of variance 1/T, and scales V.
class MeanDecay final : public DecayBound {
public:
    explicit MeanDecay(double variance) : variance_(variance) {}
    double log_bound(double tau) const override { return -0.5 * variance_ * tau * tau * (1 - 1e-12); }

private:
    double variance_;
};

}  // namespace

// E[S^p] for all p of one real part and imaginary parts up to `highest`, S = e^{mu (h_1 + ...)} without the
// mean.
struct FewSteps::Rule {
    Rule(const Allocation& law, double power, double highest);

    template <class Value>
    auto mean(Value value) const {
        return in_blocks(nodes, [&](const Node& node) { return node.weight * value(node); }) / sum;
    }
    // E[w e^{i tau ln S}] - 1 with the weights w of the real power, of mean 1.
    Complex turned(double tau) const {
        return mean([&](const Node& node) { return expm1(Complex(0, tau * node.log_s)); });
    }

    std::vector<Node> nodes;  // none where they would be too many
    double sum, first, second;
    double log_moment = infinity, log_units;  // ln E[V^power], and its error in units of round-off
    double missing;                           // aliases and nodes left out, beside it
    double turn_units;                        // the error of turned(), beside tau
};

FewSteps::Rule::Rule(const Allocation& law, double power, double highest) {
    const double mu = law.mu, t = law.steps, kappa = std::sqrt((t - 1) / t), mu_kappa = mu * kappa;
    const bool plane = t == 3;
    const double h = step_for(mu_kappa, power, highest),
                 radius = steepest * std::max(power, 0.0) * mu_kappa + reach, half = std::ceil(radius / h),
                 side = 2 * half + 1;
    if (!((plane ? side * side : side) < most_nodes)) return;
    double largest = -infinity;
    for (double i = -half; i <= half; ++i)
        for (double j = plane ? -half : 0; j <= (plane ? half : 0); ++j) {
            const double x = h * i, y = h * j, one = mu_kappa * x, rest = plane ? -0.5 * one : -one,
                         apart = plane ? mu * y / std::numbers::sqrt2 : 0.0;
            const double s =
                plane ? (psi(one) + psi(rest + apart) + psi(rest - apart)) / 3 : (psi(one) + psi(rest)) / 2;
            const double log_s = std::log1p(s), log = power * log_s - 0.5 * (x * x + y * y);
            nodes.push_back({log_s, log, 0});
            largest = std::max(largest, log);
        }
    for (Node& node : nodes) node.weight = std::exp(node.log - largest);
    sum = in_blocks(nodes, [](const Node& node) { return node.weight; });
    first = mean([](const Node& node) { return node.log_s; });
    second = mean([&](const Node& node) { return std::pow(node.log_s - first, 2); });
    // Weights are rounded like their logarithms, sums like their blocks.
    const auto rounded = [&](const Node& node) { return 16 + 8 * (std::abs(node.log) + std::abs(largest)); };
    const double blocks = 2 * static_cast<double>(block + nodes.size() / block + 1), units = mean(rounded);
    turn_units =
        2 * (mean([&](const Node& node) { return rounded(node) * node.log_s; }) + (units + blocks) * first);
    // Near 1 a moment is known relatively to what it differs by.
    const double cell = std::pow(h / std::sqrt(2 * pi), t - 1),
                 furthest = std::log1p(psi(mu_kappa * radius * std::numbers::sqrt2) / (t - 1));
    const auto above_one = [&](const Node& node) {
        return std::exp(node.log - power * node.log_s) * std::expm1(power * node.log_s);
    };
    const bool near = std::abs(power) * furthest < 0.5;
    const double log_s =
                     near ? std::log1p(cell * in_blocks(nodes, above_one)) : std::log(sum * cell) + largest,
                 exponent = 0.5 * mu * mu * power * (power / t - 1);
    log_moment = exponent + log_s;
    log_units = 8 * (std::abs(exponent) + std::abs(log_s)) +
                (near ? 2 * std::abs(power) * turn_units : units + blocks + 8 * std::abs(largest));
    // Outside the square log_envelope falls by `reach` per unit of radius at least. Of the dual lattice the
    // nearest points, two on a line and four in a plane; all others are nothing.
    missing = 2 * pi * (radius + 1) * std::exp(2 * reach * h) *
                  std::exp(log_envelope(law, mu_kappa, power, radius) - log_s) * 1.01 +
              (plane ? 4.01 : 2.01) * std::exp(log_alias);
}

Cumulant FewSteps::at(double s) const {
    const double power = law_.add ? -s : 1 + s;
    const Rule rule(law_, power, 0);
    if (rule.nodes.empty()) return {infinity, 0, 0, infinity};
    const double mu2 = law_.mu * law_.mu, slope = mu2 * (power / law_.steps - 0.5) + rule.first;
    return {rule.log_moment, law_.add ? -slope : slope, mu2 / law_.steps + rule.second,
            rule.log_moment + std::log1p(2 * rule.missing) + u * rule.log_units};
}

// e^{mu^2 p (p/T - 1)/2} E[S^p], p = power + i tau.
Transform::Row FewSteps::row(double s, double step, std::size_t size, double) const {
    const double power = law_.add ? -s : 1 + s, mu2 = law_.mu * law_.mu;
    const Rule rule(law_, power, step * static_cast<double>(size));
    if (rule.nodes.empty()) return {};
    Row row{rule.log_moment > 1 ? rule.log_moment : 0.0, std::vector<Complex>(size),
            std::vector<double>(size)};
    const double real = std::expm1(rule.log_moment - row.shift);
    parallel_ranges(size, 4, [&](std::size_t begin, std::size_t end) {
        for (std::size_t j = begin; j < end; ++j) {
            const double tau = step * static_cast<double>(j);
            const Complex turn(-0.5 * mu2 * tau * tau / law_.steps, mu2 * tau * (power / law_.steps - 0.5)),
                turned = rule.turned(tau), by_mean = expm1(turn), both = turned + by_mean * (1.0 + turned);
            row.value[j] = real + (1 + real) * both;
            if (law_.add) row.value[j] = std::conj(row.value[j]);
            row.error[j] = (1 + real) *
                           (4 * rule.missing + u * (rule.log_units + 8 * row.shift + rule.turn_units * tau +
                                                    8 * (std::abs(turn) + std::abs(both) + std::abs(real))));
        }
    });
    return row;
}

std::unique_ptr<DecayBound> FewSteps::decay(double, double) const {
    return std::make_unique<MeanDecay>(law_.mu * law_.mu / law_.steps);
}

}  // namespace hockeystick
