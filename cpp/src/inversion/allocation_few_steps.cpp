#include "inversion/allocation_few_steps.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>
#include <utility>
#include <vector>

#include "hockeystick/parallel.hpp"
#include "numerics/complex.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// speed: how small aliases, and nodes left out, are to be at most and at least beside the real moment; how
// many nodes there may be, and be visited, and shells; how much the normal law falls within one, as a
// logarithm; from how many orbits in the ball on it is looked which of them count; the heights of the strips
// that are tried, as shares of the tallest.
constexpr double least_share = 1e-16, most_share = 1e-6;
constexpr std::size_t most_nodes = 1000000, most_visits = 5000000;
constexpr double most_shells = 1e5, per_shell = 1.5, crowd = 1e5;
constexpr double shares[] = {0.98, 0.9, 0.8, 0.65, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05};
constexpr double tallest = 40;
// speed: the tolerance where there would be too many nodes otherwise.
constexpr double tolerance_of_many = 1e-8;
// proof: the logarithm of S rises by no more than this times mu kappa per unit of radius; and by how much the
// integrand's falls beyond the shells.
constexpr double steepest = 1.2, reach = 24;
// proof: the logarithm of the nearest alias's factor is below minus this.
constexpr double least_distance = 16;

// ln S of a node, S = mean of e^{mu x_t}; the integrand's logarithm; all permutations' weight.
struct Node {
    double log_s, log, weight;
};

// The measure of a ball, beside the normal density.
double ball(double dimensions, double r) {
    return std::exp2(-0.5 * dimensions) / std::tgamma(0.5 * dimensions + 1) * std::pow(r, dimensions);
}

// Bounds on the integrand e^{-r^2/2} |S^p| in shells of radii r.
class Shells {
public:
    Shells(const Allocation& law, double power);
    // Whether there are bounds at all.
    bool good() const { return peak_ < infinity; }
    // ln of the integral with x + i d (e_1 - e_2)/sqrt(2) in S^p, times e^{-mu^2 tau^2/2T}, is at most this
    // at all frequencies tau; and at most that, relatively to E S^power.
    double log_moved(double d) const;
    double log_turned(double d) const;
    // ln of what nodes beyond all shells come to: each has a cell to itself within `cell` of it.
    double log_outside(double cell) const;
    // A radius beyond which nodes come to at most e^log_most, if that can be, and ln of what they come to.
    std::pair<double, double> radius(double cell, double log_most) const;

private:
    // least, most: of two terms' share in S; tilt: of their difference beside their sum.
    struct Shell {
        double from, to, log, volume, least, most, tilt;
    };
    double mu_, steps_, power_, dimensions_, peak_ = infinity, end_, log_end_;
    std::vector<Shell> shells_;
};

// ln S is at most this at that radius.
double log_envelope(const Allocation& law, double r) {
    const double w = law.mu * std::sqrt((law.steps - 1) / law.steps) * r;
    return (w < 600 ? std::log1p(psi(w) / (law.steps - 1)) : w) * (1 + 8 * u);
}

Shells::Shells(const Allocation& law, double power)
    : mu_(law.mu), steps_(law.steps), power_(power), dimensions_(law.steps - 1) {
    const double rise = std::max(power, 0.0);
    end_ = steepest * rise * law.mu * std::sqrt((law.steps - 1) / law.steps) + reach;
    const double count = std::ceil(end_ * end_ / (2 * per_shell));
    if (!(count < most_shells)) return;
    log_end_ = rise * log_envelope(law, end_) - 0.5 * end_ * end_;
    double peak = log_end_, from = 0;
    for (double i = 1; i <= count; ++i) {
        const double to = end_ * std::sqrt(i / count), log = log_envelope(law, to);
        // Of two equal terms, if the others are equal; apart they gain by cosh.
        const double two = mu_ * to * std::sqrt(dimensions_ - 1) / std::sqrt(2 * steps_),
                     others = steps_ / (dimensions_ - 1), gain = two < 1 ? two : 0.5 + 0.5 * two * two,
                     most = 1 / (1 + 0.5 * (dimensions_ - 1) * std::exp(-others * gain));
        shells_.push_back({from, to, rise * log - 0.5 * from * from,
                           ball(dimensions_, to) - ball(dimensions_, from), 2 / steps_ * std::exp(-two - log),
                           most, std::tanh(mu_ * to / std::numbers::sqrt2)});
        peak = std::max(peak, shells_.back().log);
        from = to;
    }
    peak_ = peak;
}

// Each further unit of radius falls by e^-reach, and (1 + 2)^n e^-reach + ... is next to nothing.
double Shells::log_outside(double cell) const {
    return log_end_ + std::log(1.01 * ball(dimensions_, end_ + 1 + cell));
}

double Shells::log_turned(double d) const {
    return 0.5 * d * d * (1 + 0.5 * steps_) +
           std::min(power_, 0.0) * std::log(std::cos(mu_ * d / std::numbers::sqrt2));
}

double Shells::log_moved(double d) const {
    const double turn = mu_ * d / std::numbers::sqrt2, back = 2 * std::pow(std::sin(0.5 * turn), 2),
                 sine = std::sin(turn);
    double sum = std::exp(log_outside(0) + log_turned(d) - 0.5 * d * d - peak_);
    for (const Shell& shell : shells_) {
        const auto square = [&](double share) {
            return std::pow(1 - share * back, 2) + std::pow(share * shell.tilt * sine, 2);
        };
        const double left = 1 - shell.most * back,
                     angle = std::min(turn, shell.most * shell.tilt * sine / left),
                     size = power_ > 0 ? 0.5 * std::log(std::max(square(shell.least), square(shell.most)))
                                       : std::log(left);
        sum += shell.volume *
               std::exp(shell.log - peak_ + 0.5 * steps_ * std::pow(angle / mu_, 2) + power_ * size);
    }
    // At least what it is for p = 0, so that the aliases of 1 are bounded, too.
    return std::max(0.0, peak_ + std::log(1.01 * sum)) + 0.5 * d * d;
}

std::pair<double, double> Shells::radius(double cell, double log_most) const {
    const double enough = std::exp(log_most - peak_);
    double left = std::exp(log_outside(cell) - peak_), radius = end_;
    for (auto shell = shells_.rbegin(); shell != shells_.rend(); ++shell) {
        const double more = left + (ball(dimensions_, shell->to + cell) -
                                    ball(dimensions_, std::max(0.0, shell->from - cell))) *
                                       std::exp(shell->log - peak_);
        if (more > enough) break;
        left = more, radius = shell->from;
    }
    return {radius, peak_ + std::log(1.01 * left)};
}

// A guess at ln E S^power: ln S is about (mu r)^2/2T, or else S that of one term alone.
double log_guess(const Allocation& law, double power) {
    const double t = law.steps, shift = law.mu * law.mu * power,
                 together = -0.5 * (t - 1) * std::log(std::max(1 - shift / t, 0.1)),
                 alone = 0.5 * shift * power * (t - 1) / t - power * std::log(t);
    return power > 0 ? std::max(together, alone) : 0;
}

// The widest step whose aliases are about that share of a moment of that logarithm; ln of the nearest alias
// relatively to E S^power, and by itself.
struct Step {
    double h = 0, relative = infinity, absolute = infinity;
};
Step step_for(const Allocation& law, const Shells& shells, double log_share, double log_moment) {
    Step best;
    for (const double share : shares) {
        const double d = share * std::min(tallest, pi / std::numbers::sqrt2 / law.mu),
                     turned = shells.log_turned(d), moved = law.steps > 3 ? shells.log_moved(d) : infinity,
                     distance = std::max(least_distance, std::min(turned, moved - log_moment) - log_share),
                     h = 2 * pi * std::numbers::sqrt2 * d / distance;
        if (h > best.h) best = {h, turned - distance, moved - distance};
    }
    return best;
}

// Visits one of each orbit of integers 0 = k_1 <= ... <= k_T, T sum k^2 - (sum k)^2 <= most, under
// permutations, as long as it is told to go on, but for those of which it is told beforehand, by the numbers
// so far, that none of them matters.
template <class Matters, class Visit>
class Orbits {
public:
    Orbits(std::size_t steps, double most, Matters matters, Visit visit)
        : k_(steps, 0), most_(most), matters_(matters), visit_(visit) {
        place(1, 1, 1, 0, 0);
    }

private:
    // Of `placed` numbers the last has come `run` times, and they have `ways` permutations.
    void place(std::size_t placed, double run, double ways, double sum, double squares) {
        const double t = static_cast<double>(k_.size()), rest = t - static_cast<double>(placed);
        if (rest == 0) return void(going_ = visit_(k_, sum, t * squares - sum * sum, ways));
        for (double next = k_[placed - 1]; going_; ++next) {
            // The least there can be, as all others are at least this one, and the mean is at most that.
            const double all = sum + rest * next;
            if (t * (squares + rest * next * next) - all * all > most_) return;
            const double runs = next == k_[placed - 1] ? run + 1 : 1;
            k_[placed] = next;
            if (rest == 1 || matters_(std::span(k_).first(placed + 1), sum + next, squares + next * next))
                place(placed + 1, runs, ways * static_cast<double>(placed + 1) / runs, sum + next,
                      squares + next * next);
        }
    }

    std::vector<double> k_;
    double most_;
    Matters matters_;
    Visit visit_;
    bool going_ = true;
};

// The integrand's logarithm at nodes of a lattice of step h; spread: T sum k^2 - (sum k)^2.
struct Heights {
    double steps, power, unit, h;
    std::vector<double> falls;  // e^{-mu h k}

    double of(double log_s, double spread) const { return power * log_s - 0.5 * h * h * spread / steps; }
    // The largest of those all but one of whose numbers are alike.
    double of_alike(double most) const {
        double largest = -infinity;
        for (double k = 0; (steps - 1) * k * k <= most; ++k) {
            const double others = std::log1p((steps - 1) * falls[static_cast<std::size_t>(k)]);
            largest =
                std::max(largest, of(unit * (steps - 1) * k + others - std::log(steps), (steps - 1) * k * k));
        }
        return largest;
    }
    // No node whose first numbers are these has more ("Nodes that do not count").
    double of_begun(std::span<const double> k, double all, double squares) const {
        const double placed = static_cast<double>(k.size()), rest = steps - placed;
        double terms = rest * falls[static_cast<std::size_t>(k.back())];
        for (const double each : k) terms += falls[static_cast<std::size_t>(each)];
        const double same = std::max(k.back(), (power * unit * steps / (h * h) + all) / placed),
                     whole = all + rest * same;
        return of(unit * whole + std::log(terms / steps),
                  steps * (squares + rest * same * same) - whole * whole);
    }
};

// proof: sums in blocks, so that rounding adds up in as many terms as one has, and as there are blocks.
constexpr std::size_t block = 64, run = 16;
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

// E[S^p] for all p of one real part.
struct FewSteps::Rule {
    // tolerance: what aliases, and what nodes left out, may be beside the real moment; more where that would
    // take too many nodes.
    static Rule of(const Allocation& law, double power, double tolerance) {
        Rule rule(law, power, tolerance);
        if (rule.nodes.empty() && tolerance < tolerance_of_many) return Rule(law, power, tolerance_of_many);
        return rule;
    }
    Rule(const Allocation& law, double power, double tolerance);

    template <class Value>
    auto mean(Value value) const {
        return in_blocks(nodes, [&](const Node& node) { return node.weight * value(node); }) / sum;
    }
    // nothing: nodes e^-nothing below the largest are left out, and looked for if the ball is `crowded`.
    void fill(const Allocation& law, double power, double unit, double radius, double nothing, bool crowded);
    // E[w e^{i tau ln S}] - 1 with the weights w of the real power, of mean 1, at a run of frequencies.
    std::array<Complex, run> turned(double tau, double step) const;

    std::vector<Node> nodes;  // none where they would be too many
    double largest = -infinity, sum, first, second;
    double log_moment = infinity, log_units;  // ln E[V^power], and its error in units of round-off
    double missing;                           // aliases and nodes left out, beside it
    double turn_units;                        // the error of turned(), beside tau
};

// Nodes h (mean of k - k_t); unit: mu h/T. None where e^{mu x} would be no number.
void FewSteps::Rule::fill(const Allocation& law, double power, double unit, double radius, double nothing,
                          bool crowded) {
    const double t = law.steps, h = unit * t / law.mu, most = t * std::pow(radius / h, 2) * (1 + 1e-12),
                 middle = std::ceil(std::sqrt((t - 1) * most)) + 1;
    if (!(middle < most_visits && unit * middle < 700)) return;
    std::vector<double> psis(2 * static_cast<std::size_t>(middle) + 1);
    for (std::size_t i = 0; i < psis.size(); ++i) psis[i] = psi(unit * (static_cast<double>(i) - middle));
    Heights heights{t, power, unit, h, std::vector<double>(static_cast<std::size_t>(middle) + 1)};
    for (std::size_t k = 0; k < heights.falls.size(); ++k)
        heights.falls[k] = std::exp(-unit * t * static_cast<double>(k));
    largest = heights.of_alike(most);
    std::size_t visits = 0;
    const auto matters = [&](std::span<const double> k, double all, double squares) {
        return !crowded ||
               (++visits <= most_visits && heights.of_begun(k, all, squares) > largest - nothing - 1e-6);
    };
    const auto visit = [&](const auto& k, double all, double spread, double ways) {
        double s = 0;
        for (const double each : k) s += psis[static_cast<std::size_t>(all - t * each + middle)];
        const double log_s = std::log1p(s / t), log = heights.of(log_s, spread);
        largest = std::max(largest, log);
        if (log > largest - nothing) nodes.push_back({log_s, log, ways});
        return nodes.size() <= most_nodes && ++visits <= most_visits;
    };
    Orbits(static_cast<std::size_t>(t), most, matters, visit);
    if (nodes.size() > most_nodes || visits > most_visits) nodes.clear();
    for (Node& node : nodes) node.weight *= std::exp(node.log - largest);
}

FewSteps::Rule::Rule(const Allocation& law, double power, double tolerance) {
    const double mu = law.mu, t = law.steps, mu_kappa = mu * std::sqrt((t - 1) / t);
    const double log_share = std::log(std::clamp(tolerance, least_share, most_share)) - t * std::log(3.0),
                 log_about = log_guess(law, power);
    const Shells shells(law, power);
    if (!shells.good()) return;
    const Step step = step_for(law, shells, log_share, log_about);
    // mu h/T has so few digits that products with integers are exact.
    const double about = mu * step.h / t * (1 - 1e-6), split = 0x1p27 * about, unit = about + split - split,
                 h = unit * t / mu;
    const auto [radius, log_left] = shells.radius(0.5 * h * std::sqrt(t), log_share + log_about);
    // Each node within the radius has a cell to itself, so there are no more than that.
    const double cell = std::pow(h / std::sqrt(2 * pi), t - 1) / std::sqrt(t),
                 count = ball(t - 1, radius + 0.5 * h * std::sqrt(t)) / cell;
    fill(law, power, unit, radius, std::log(count) - log_share,
         power > 0 && count > crowd * std::tgamma(t + 1));
    if (nodes.empty()) return;
    sum = in_blocks(nodes, [](const Node& node) { return node.weight; });
    first = mean([](const Node& node) { return node.log_s; });
    second = mean([&](const Node& node) { return std::pow(node.log_s - first, 2); });
    // Weights are rounded like their logarithms, sums like their blocks.
    const auto rounded = [&](const Node& node) {
        return 24 + 26 * std::abs(power) * node.log_s + 10 * (std::abs(node.log) + std::abs(largest));
    };
    const double blocks = 2 * static_cast<double>(block + nodes.size() / block + 1), units = mean(rounded);
    turn_units = 2 * (mean([&](const Node& node) { return (rounded(node) + 4.0 * run) * node.log_s; }) +
                      (units + blocks) * first);
    // Near 1 a moment is known relatively to what it differs by.
    const bool near = std::abs(power) * std::log1p(psi(mu_kappa * radius) / (t - 1)) < 0.5;
    const auto above_one = [&](const Node& node) { return -node.weight * std::expm1(-power * node.log_s); };
    const double log_s = near ? std::log1p(cell * std::exp(largest) * in_blocks(nodes, above_one))
                              : std::log(sum * cell) + largest,
                 exponent = 0.5 * mu * mu * power * (power / t - 1);
    log_moment = exponent + log_s;
    log_units = 8 * (std::abs(exponent) + std::abs(log_s)) +
                (near ? 2 * std::abs(power) * turn_units : units + blocks + 8 * std::abs(largest));
    // Fewer than 3^(T-1) points of the dual lattice are nearest. proof: "Near 1" needs less than a tenth.
    missing = std::exp(log_left - log_s) + 1.01 * std::exp(log_share) / sum +
              1.01 * std::pow(3, t - 1) * std::exp(std::min(step.relative, step.absolute - log_s));
    if (!(missing < 0.1)) nodes.clear();
}

std::array<Complex, run> FewSteps::Rule::turned(double tau, double step) const {
    std::array<Complex, run> all{};
    for (std::size_t begin = 0; begin < nodes.size(); begin += block) {
        std::array<Complex, run> part{};
        for (std::size_t i = begin; i < std::min(begin + block, nodes.size()); ++i) {
            const Node& node = nodes[i];
            const Complex more = expm1(Complex(0, step * node.log_s));
            Complex at = expm1(Complex(0, tau * node.log_s));
            for (Complex& each : part) {
                each += node.weight * at;
                at += more + Complex(at.real() * more.real() - at.imag() * more.imag(),
                                     at.real() * more.imag() + at.imag() * more.real());
            }
        }
        for (std::size_t j = 0; j < run; ++j) all[j] += part[j];
    }
    for (Complex& each : all) each /= sum;
    return all;
}

Cumulant FewSteps::at(double s) const {
    const double power = law_.add ? -s : 1 + s;
    const Rule rule = Rule::of(law_, power, 0);
    if (rule.nodes.empty()) return {infinity, 0, 0, infinity};
    const double mu2 = law_.mu * law_.mu, slope = mu2 * (power / law_.steps - 0.5) + rule.first;
    return {rule.log_moment, law_.add ? -slope : slope, mu2 / law_.steps + rule.second,
            rule.log_moment + std::log1p(4 * rule.missing) + u * rule.log_units};
}

// e^{mu^2 p (p/T - 1)/2} E[S^p], p = power + i tau.
Transform::Row FewSteps::row(double s, double step, std::size_t size, double tolerance) const {
    const double power = law_.add ? -s : 1 + s, mu2 = law_.mu * law_.mu;
    const Rule rule = Rule::of(law_, power, tolerance);
    if (rule.nodes.empty()) return {};
    Row row{rule.log_moment > 1 ? rule.log_moment : 0.0, std::vector<Complex>(size),
            std::vector<double>(size)};
    const double real = std::expm1(rule.log_moment - row.shift);
    parallel_ranges((size + run - 1) / run, 1, [&](std::size_t begin, std::size_t end) {
        std::array<Complex, run> together{};
        for (std::size_t j = begin * run; j < std::min(size, end * run); ++j) {
            const double tau = step * static_cast<double>(j);
            if (j % run == 0) together = rule.turned(tau, step);
            const Complex turn(-0.5 * mu2 * tau * tau / law_.steps, mu2 * tau * (power / law_.steps - 0.5)),
                turned = together[j % run], by_mean = expm1(turn), both = turned + by_mean * (1.0 + turned);
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
