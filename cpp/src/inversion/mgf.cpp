#include "inversion/mgf.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "hockeystick/parallel.hpp"
#include "inversion/decay.hpp"
#include "inversion/line.hpp"
#include "inversion/loss_sum.hpp"
#include "inversion/strip.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// Speed: of nodes, and of nodes times frequencies, about a tenth of a second.
constexpr double most_nodes = 1 << 15, most_products = 1e8;
// Speed: a line's terms may be e to this larger, and its step is to be so many times as wide.
constexpr double most_growth = 2, worth_a_line = 2.5;
// Speed: the first frequencies, on the real line, and how many nodes for one of a line they are worth;
// tolerances below the last are those of many steps.
constexpr std::size_t few_frequencies = 8;
constexpr double most_real_nodes = 16, many_steps = 1e-18;
// Speed: parts of at most this weight may be left out, where their losses may be larger than all others.
constexpr double most_rare = 1e-3;

double best_step(const std::vector<AnalyticityStrip>& strips, double tau, double tolerance) {
    double best = 0;
    for (const AnalyticityStrip& strip : strips) best = std::max(best, strip.step(tau, tolerance));
    return best;
}

// What the Gaussians P and Q themselves alias by along Im t = a, where it is below 2, and the step at which
// it is half of the tolerance.
double gaussian_aliasing(const MixturePart& part, double h, double modulus, double a = 0) {
    return 4 * (1 + 2 * modulus) * std::exp(2 * pi * a / h - 2 * pi * pi / (h * h * part.growth()));
}
double gaussian_step(const MixturePart& part, double modulus, double tolerance, double a = 0) {
    const double b = a * part.growth();
    return 2 * pi / (b + std::sqrt(b * b + 2 * part.growth() * std::log(8 * (1 + 2 * modulus) / tolerance)));
}

// Where the angles of P and 1/Q have one sign above the real line.
bool apart(const MixturePart& part) { return part.window.whole() && part.p.low() >= 0 && part.q.high() <= 0; }

// How many frequencies come before those of a line. The first count most, and on the real line little cancels
// there (of many silent steps nowhere), but it asks for nodes in proportion to the last of them.
std::size_t before_line(const MixturePart& part, double line_step, double s, double step, std::size_t size,
                        double tolerance) {
    const auto strips = AnalyticityStrip::simple(part, s, tolerance);
    std::size_t first = size / 8;
    while (first >= 2 * few_frequencies &&
           most_real_nodes * best_step(strips, step * static_cast<double>(first), tolerance) < line_step)
        first /= 2;
    return first;
}

// How far out the nodes must go for Gaussian tails of mass `tolerance`.
double far(double modulus, double tolerance) {
    return std::sqrt(2 * std::log(16 * (1 + modulus) / tolerance)) + 0.5;
}

// Without the largest losses, of at most this P-mass: that rare, they are not worth a tilt that they would
// dominate.
Window without_largest(const MixturePart& part, double mass) {
    // Proof: of few bits, so that the points are exact.
    constexpr double width = 0.15625, pitch = 0.5 * width;
    MixturePart cut = part;
    auto low = static_cast<std::int64_t>(part.p.low() / pitch),
         high = static_cast<std::int64_t>((part.p.high() + 60) / pitch);
    while (high - low > 1) {
        const std::int64_t middle = low + (high - low) / 2;
        cut.window = Window(width, -Window::unbounded, middle);
        (cut.missed(part.p) > mass ? low : high) = middle;
    }
    if (!(static_cast<double>(high) * pitch > part.p.low() + 5)) high = Window::unbounded;
    return Window(width, -Window::unbounded, high);
}

}  // namespace

Mgf::Mgf(const std::vector<GaussianMixtures>& mixtures, double tolerance, double cut_mass)
    : tolerance_(tolerance) {
    double total = 0;
    for (const auto& m : mixtures) total += m.weight;
    for (const auto& m : mixtures) {
        MixturePart part{m.weight / total, {m.p_shift, m.p_weight}, {m.q_shift, m.q_weight}, {}};
        if (rare_ + part.weight <= std::min(cut_mass, most_rare)) {
            rare_ += part.weight;
            continue;
        }
        if (cut_mass > 0 && !part.p.plain()) part.window = without_largest(part, cut_mass);
        dropped_ += part.weight * part.missed(part.p);
        parts_.push_back(part);
    }
    dropped_ += rare_ * (1 + 1e-12);
}

std::vector<MixturePart> Mgf::mixtures() const {
    if (rare_ > 0) return {};
    return std::all_of(parts_.begin(), parts_.end(), apart) ? parts_ : std::vector<MixturePart>();
}

bool Mgf::can_cut() const {
    return std::any_of(parts_.begin(), parts_.end(),
                       [](const MixturePart& part) { return !part.p.plain() || part.weight <= most_rare; });
}

std::unique_ptr<DecayBound> Mgf::decay(double s, double log_mgf) const {
    return std::make_unique<Decay>(parts_, s, log_mgf);
}

double Mgf::rare_shift() const {
    double shift = 0;
    for (const MixturePart& part : parts_)
        if (!part.p.plain()) shift = std::max(shift, part.p.high() - part.q.low());
    return shift;
}

Mgf::Nodes Mgf::make_nodes(const MixturePart& part, double h, double low, double high, double reach) {
    const Centres at_low = centres(part, low), at_high = centres(part, high);
    const double first =
        std::floor((std::min({at_low.low, at_high.low, part.q.low(), part.p.low()}) - reach) / h) * h;
    const double last = std::max({at_low.high, at_high.high, part.q.high(), part.p.high()}) + reach;
    const double count = std::ceil((last - first) / h) + 1;
    if (!(h > 0) || !(count >= 1 && count <= most_nodes)) return {};
    return mixture_nodes(part, h, first, static_cast<std::size_t>(count));
}

double Mgf::omitted(const MixturePart& part, const End& low, const End& high, double s, double modulus,
                    double shift) {
    // Beyond the centres every factor falls at least like e^{-rate x} with its distance `rate` from
    // them, so the rest of the integral, and of the sum, is at most the integrand over the rate.
    const Centres g = centres(part, s);
    const auto beyond = [&](const End& end, double g_rate, double p_rate, double q_rate) {
        if (!(g_rate > 0 && p_rate > 0 && q_rate > 0)) return infinity;
        const double log_p = end.log_p - shift;
        return std::exp(log_p + s * end.loss) / g_rate + (1 + modulus) * std::exp(log_p) / p_rate +
               modulus * std::exp(log_p - end.loss) / q_rate;
    };
    return 1.001 * (beyond(low, g.low - low.t, part.p.low() - low.t, part.q.low() - low.t) +
                    beyond(high, high.t - g.high, high.t - part.p.high(), high.t - part.q.high()));
}

double Mgf::omitted(const MixturePart& part, const Nodes& nodes, double s, double modulus, double shift) {
    const double log_h = std::log(nodes.h);
    return omitted(part, {nodes.first, nodes.log_p.front() - log_h, nodes.loss.front()},
                   {nodes.last, nodes.log_p.back() - log_h, nodes.loss.back()}, s, modulus, shift);
}

// The nodes that serve every s in (2^(k-1), 2^k], k = 2 all below: which ones a query gets does not depend
// on those before.
const std::vector<Mgf::Nodes>& Mgf::nodes_up_to(int k) const {
    const auto found = cache_.find(k);
    if (found != cache_.end()) return found->second;
    // Complete or not there: an exception leaves nothing half done.
    std::vector<Nodes> nodes;
    for (const MixturePart& part : parts_) {
        interruption_point();
        const double high = std::ldexp(1.0, k), modulus = std::max(1.0, high);
        const double h = std::min(best_step(AnalyticityStrip::simple(part, high, tolerance_), 0, tolerance_),
                                  gaussian_step(part, modulus, tolerance_));
        nodes.push_back(make_nodes(part, rounded_down(h), 0, high, far(modulus, tolerance_)));
        weigh(nodes.back());
    }
    return cache_.emplace(k, std::move(nodes)).first->second;
}

// The nodes for at(s) and log_moment(s).
const std::vector<Mgf::Nodes>& Mgf::nodes_for(double s) const {
    int power;
    std::frexp(s, &power);
    return nodes_up_to(std::max(power, 2));
}

Mgf::Moments Mgf::moments(const MixturePart& part, const Nodes& nodes, double s, double shift) const {
    const double modulus = std::abs(s);
    const TiltedSums sums = tilted_sums(nodes, shift, s, 0);
    // E[L] = E[psi(-L)] + E[1] - E[e^{-L}]: what is cut is missing from both.
    const double unit = std::exp(-shift), p_cut = part.missed(part.p), q_cut = part.missed(part.q),
                 slope = sums.slope + (q_cut - p_cut) * unit, value = sums.value + (s * slope - p_cut * unit);
    double aliasing = infinity;
    for (const AnalyticityStrip& strip : AnalyticityStrip::simple(part, s, tolerance_))
        aliasing = std::min(aliasing, std::exp(strip.log_aliasing(nodes.h, 0)));
    // Steers the contour and bounds what is far out; the sum at full precision is in row().
    const double n = static_cast<double>(nodes.loss.size());
    const double error =
        1.01 * aliasing * (1 + std::abs(value)) + gaussian_aliasing(part, nodes.h, modulus) +
        omitted(part, nodes, s, modulus, shift) + n * (1 + modulus) * 1e-290 +
        u * (2 * sums.exponent + 2 * shift + n + 16) * (sums.size + modulus * (slope + sums.size));
    return {value, sums.first + slope, sums.second, error};
}

Cumulant Mgf::at(double s) const {
    // Where outputs with a P-mass below e^{-1800} rule the tilted law, it is of no use.
    for (const MixturePart& part : parts_)
        if (!part.p.plain() && !part.window.to() && s * part.p.high() > 60 &&
            part.p.log(s * part.p.high()).value > 0.5 * s * part.p.high() * part.p.high())
            return {infinity, 0, 0, infinity};
    const std::vector<Nodes>& all_nodes = nodes_for(s);
    std::vector<const LossNodes*> all;
    for (const Nodes& nodes : all_nodes) {
        if (nodes.loss.empty()) return {infinity, 0, 0, infinity};
        all.push_back(&nodes);
    }
    const double shift = peak(all, s);
    Moments sum{};
    for (std::size_t k = 0; k < parts_.size(); ++k) {
        const double weight = parts_[k].weight;
        const Moments part = moments(parts_[k], all_nodes[k], s, shift);
        sum.value += weight * part.value;
        sum.first += weight * part.first;
        sum.second += weight * part.second;
        sum.error += weight * part.error;
    }
    sum.value -= rare_ * std::exp(-shift);
    return cumulant_of(shift, sum.value, sum.error, sum.first, sum.second);
}

// ln M(s) of one part, as at() has it for all, where that is known as well as detailed strips ask.
std::optional<double> Mgf::log_moment(std::size_t part, double s) const {
    const Nodes& nodes = nodes_for(s)[part];
    if (nodes.loss.empty()) return {};
    const double shift = peak({&nodes}, s);
    const Moments own = moments(parts_[part], nodes, s, shift);
    if (!(own.error < 0.02 * (std::exp(-shift) + own.value))) return {};
    return cumulant_of(shift, own.value, own.error, own.first, own.second).value;
}

// The rule for one part: on the real line, or along another.
struct Mgf::Rule {
    Nodes real;
    LineNodes line;
    std::vector<AnalyticityStrip> widths;

    std::size_t size() const { return std::max(real.loss.size(), line.loss.size()); }
    void add(LossSum& sum, double shift) const {
        for (std::size_t i = 0; i < real.loss.size(); ++i)
            sum.add(real.log_p[i] - shift, real.loss[i], real.log_p_slack[i] + 2 * shift, real.loss_slack[i]);
        const double log_h = line.loss.empty() ? 0 : std::log(line.h);
        for (std::size_t i = 0; i < line.loss.size(); ++i)
            sum.add(line.log_p[i] + (log_h - shift), line.loss[i],
                    line.log_p_slack[i] + 5 * std::abs(log_h) + 2 * shift + 16, line.loss_slack[i]);
    }
    // Of the tilted integral, beside M(s).
    double aliasing(const MixturePart& part, double s, double tau) const {
        if (!line.loss.empty())
            return 1.01 * (1 + std::exp(integral_growth(part, s, 2 * line.a))) *
                   std::exp(-2 * pi * line.a / line.h);
        double least = infinity;
        for (const AnalyticityStrip& strip : widths) least = std::min(least, strip.log_aliasing(real.h, tau));
        return std::exp(least);
    }
    // Of P and Q themselves, and beyond the ends.
    double edge(const MixturePart& part, double s, double modulus, double shift) const {
        if (line.loss.empty())
            return omitted(part, real, s, modulus, shift) + gaussian_aliasing(part, real.h, modulus);
        const auto end = [&](double t) -> End {
            const TiltedPoint point = tilted_point(part, 0, t);
            return {t, point.log_g - 0.5 * std::log(2 * pi), point.loss};
        };
        const double last = line.first + static_cast<double>(line.loss.size() - 1) * line.h;
        return std::exp(line_growth(part, s, line.a)) *
                   omitted(part, end(line.first), end(last), s, modulus, shift) +
               gaussian_aliasing(part, line.h, modulus, line.a);
    }
};

// Along a line, if that pays.
std::optional<Mgf::Rule> Mgf::line_rule(const MixturePart& part, double s, double end, double tolerance) {
    if (!apart(part)) return {};
    const double modulus = std::hypot(s, end), reach = far(modulus, tolerance);
    Line line = best_line(part, s, std::log(4 / tolerance), most_growth);
    line.h = rounded_down(std::min(line.h, gaussian_step(part, modulus, tolerance, line.a)));
    if (!(line.h > worth_a_line * best_step(AnalyticityStrip::simple(part, s, tolerance), end, tolerance)))
        return {};
    const Centres g = centres(part, s);
    const double first = std::floor((std::min(g.low, part.q.low()) - reach) / line.h) * line.h;
    const double count = std::ceil((std::max(g.high, part.p.high()) + reach - first) / line.h) + 1;
    if (!(count <= most_nodes)) return {};
    return Rule{{}, line_nodes(part, line, first, static_cast<std::size_t>(count)), {}};
}

std::optional<Mgf::Rule> Mgf::real_rule(std::size_t index, double s, double end, std::size_t size,
                                        double tolerance) const {
    const MixturePart& part = parts_[index];
    Rule rule;
    const double modulus = std::hypot(s, end);
    rule.widths = AnalyticityStrip::simple(part, s, tolerance);
    double h = best_step(rule.widths, end, tolerance);
    // Dearer strips pay where they save many products.
    const bool dear = h < 0.01 || 20 / h * static_cast<double>(size) > 5e5;
    if (const auto log_mgf = dear ? log_moment(index, s) : std::nullopt) {
        auto detailed = AnalyticityStrip::detailed(part, s, *log_mgf, end, tolerance);
        if (best_step(detailed, end, tolerance) > h) rule.widths = std::move(detailed);
        h = best_step(rule.widths, end, tolerance);
    }
    h = rounded_down(std::min(h, gaussian_step(part, modulus, tolerance)));
    rule.real = make_nodes(part, h, s, s, far(modulus, tolerance));
    if (rule.real.loss.empty() || static_cast<double>(rule.size() * size) > most_products) return {};
    return rule;
}

double Mgf::add_band(const MixturePart& part, const Rule& rule, double s, double step, std::size_t first,
                     std::size_t last, double tolerance, Row& row) {
    LossSum sum(s, step, first, last - first, rule.size(), 1e-2 * tolerance);
    rule.add(sum, row.shift);
    const double unit = std::exp(-row.shift), p = part.missed(part.p) * unit, q = part.missed(part.q) * unit,
                 modulus = std::hypot(s, step * static_cast<double>(last));
    sum.leave_out(p, q, 2000 * (p + q));
    const FallingSum::Row own = sum.values();
    const double edge = rule.edge(part, s, modulus, row.shift) + tolerance * 1e-2;
    for (std::size_t j = first; j < last; ++j) {
        row.value[j] += part.weight * own.value[j - first];
        row.error[j] += part.weight * (edge + own.error[j - first]);
    }
    return std::abs(own.value[0]);
}

Mgf::Row Mgf::row(double s, double step, std::size_t size, double tolerance) const {
    Row row;
    row.value.assign(size, 0.0);
    row.error.assign(size, 0.0);
    struct Both {
        std::optional<Rule> real, line;
        std::size_t first;  // on the real line: so many frequencies
    };
    std::vector<Both> rules;
    std::vector<const LossNodes*> nodes;
    for (std::size_t k = 0; k < parts_.size(); ++k) {
        const MixturePart& part = parts_[k];
        auto& [real, line, first] = rules.emplace_back(Both{{}, {}, size});
        if (size >= 8 * few_frequencies && tolerance > many_steps)
            line = line_rule(part, s, step * static_cast<double>(size), tolerance);
        if (line) first = before_line(part, line->line.h, s, step, size, tolerance);
        real = real_rule(k, s, step * static_cast<double>(first), first, tolerance);
        if (!real) return {};
    }
    for (const Both& rule : rules) nodes.push_back(&rule.real->real);
    row.shift = peak(nodes, s);
    for (std::size_t k = 0; k < parts_.size(); ++k) {
        const MixturePart& part = parts_[k];
        const auto& [real, line, first] = rules[k];
        // M(s) itself, with room for the aliasing it is used to bound.
        const double whole = 1.02 * (1 + add_band(part, *real, s, step, 0, first, tolerance, row)),
                     of_line = line ? line->aliasing(part, s, 0) : 0;
        if (line) add_band(part, *line, s, step, first, size, tolerance, row);
        for (std::size_t j = 0; j < size; ++j)
            row.error[j] += part.weight * whole *
                            (j < first ? real->aliasing(part, s, step * static_cast<double>(j)) : of_line);
    }
    // P and Q lack as much of what is left out altogether.
    for (Complex& value : row.value) value -= rare_ * std::exp(-row.shift);
    subtract_one(row);
    return row;
}

}  // namespace hockeystick
