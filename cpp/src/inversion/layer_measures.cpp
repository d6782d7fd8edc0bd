#include "inversion/layer_measures.hpp"

#include <algorithm>
#include <cmath>

#include "hockeystick/parallel.hpp"
#include "inversion/strip.hpp"
#include "numerics/complex.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// Speed: more nodes end the attempt.
constexpr double most_nodes = 1 << 15;
// Proof: what nodes below e^this add is in the sum's upper bound.
constexpr double negligible_exponent = -60, negligible_term = 1e-26;
// From a window's end, in its widths, there is hardly anything left of it; further out, large tilts may still
// see something. Speed: what lies beyond is bounded.
constexpr double inside = 10, outside = 40;

// How far from its centre a Gaussian has fallen to `least`.
double depth_for(double least) { return std::sqrt(-2 * std::log(least)) + 0.5; }

MixturePart with(const MixturePart& part, Window window) {
    MixturePart out = part;
    out.window = window;
    return out;
}

// A window as narrow as those of the cuts, which sets the nodes' distance.
MixturePart probe(const LayerPart& part, double width) {
    return with(part.mixture, part.cut ? Window(width, -1, 1) : Window());
}

}  // namespace

LayerMeasures::LayerMeasures(const std::vector<Kind>& kinds) {
    for (const Kind& kind : kinds) {
        for (const MixturePart& mixture : kind.parts)
            all_parts_.push_back({mixture, counts_.size(), !mixture.p.plain()});
        counts_.push_back(kind.count);
        steps_ += kind.count;
    }
    parts_ = all_parts_;
}

bool LayerMeasures::any_joined() const {
    return std::any_of(all_parts_.begin(), all_parts_.end(),
                       [](const LayerPart& part) { return part.mixture.joined.has_value(); });
}

// Joined parts come by the hundred, most of them too rare to count.
void LayerMeasures::choose_parts(double log_mass) {
    parts_.clear();
    dropped_ = 0;
    const double most = std::exp(log_mass) / static_cast<double>(all_parts_.size());
    for (const LayerPart& part : all_parts_) {
        const double mass = counts_[part.kind] * part.mixture.weight;
        if (part.mixture.joined && mass < most)
            dropped_ += mass * (1 + 1e-9);
        else
            parts_.push_back(part);
    }
}

bool LayerMeasures::cut(double log_mass, double epsilon, double sharpness, double tolerance) {
    tolerance_ = tolerance;
    choose_parts(log_mass);
    cuts_ = choose_cuts(parts_, counts_, log_mass, epsilon, sharpness, tolerance);
    if (cuts_.loss.empty()) return false;
    nodes_.clear();
    known_.clear();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        const LayerPart& part = parts_[i];
        const LayerCuts::Part& windows = cuts_.parts[i];
        // First: where windows are so narrow that there are too many nodes, sums over their points take
        // forever.
        if (!make_nodes(i)) return false;
        if (part.cut)
            dropped_ += counts_[part.kind] * part.mixture.weight *
                        with(part.mixture, Window(windows.width, -Window::unbounded, windows.edge.back()))
                            .missed(part.mixture.p) *
                        (1 + 1e-9);
    }
    return true;
}

// What the rule along the line aims at, beside the tilted sum, of which delta is a share.
double LayerMeasures::line_error() const {
    // Speed: of few digits lines move to where delta is a smaller share.
    const bool moves = tolerance_ > few_digits && !any_joined();
    const double share = moves ? 0.25 : std::min(1.0, std::sqrt(tolerance_ / 1e-7));
    return share * tolerance_ / steps_;
}

// Real tilts: K is to be known to about 1e-3.
bool LayerMeasures::make_nodes(std::size_t index) {
    const LayerPart& part = parts_[index];
    const MixturePart& mixture = part.mixture;
    const LayerCuts::Part& windows = cuts_.parts[index];
    Nodes& nodes = nodes_.emplace_back();
    nodes.below.resize(cuts_.loss.size());
    nodes.between.resize(cuts_.loss.size());
    const double wanted = 1e-3 / steps_, reach = depth_for(wanted / 16);
    double h = 0;
    for (const AnalyticityStrip& strip : AnalyticityStrip::simple(probe(part, windows.width), 0, wanted))
        h = std::max(h, strip.step(0, wanted));
    h = rounded_down(h);
    // The line's nodes lie above these.
    const double first =
        std::floor((mixture.q.low() - std::max(reach, depth_for(line_error() / 16)) - 1) / h) * h;
    const double last =
        part.cut ? static_cast<double>(windows.edge.back()) * (0.5 * windows.width) + outside * windows.width
                 : windows.end + 1 + reach;
    const double count = std::ceil((last - first) / h) + 1;
    if (!(count >= 1 && count <= most_nodes)) return false;
    nodes.real = mixture_nodes(mixture, h, first, static_cast<std::size_t>(count));
    for (std::size_t j = 0; j < nodes.real.loss.size(); ++j) {
        const double t = first + static_cast<double>(j) * h;
        nodes.p_mean.push_back(mixture.p.mean(t, mixture.p.log(t).value));
        nodes.q_mean.push_back(mixture.q.mean(t, mixture.q.log(t).value));
        nodes.rounding = std::max(nodes.rounding, nodes.real.log_p_slack[j]);
        nodes.loss_rounding =
            std::max(nodes.loss_rounding, nodes.real.loss_slack[j] + 2 * std::abs(nodes.real.loss[j]));
    }
    for (double ahead = 0.5; ahead < 2000; ahead *= 1.4)
        nodes.far.push_back(tilted_point(mixture, 0, nodes.real.last + ahead));
    if (!mixture.joined) return true;
    nodes.joined.emplace(mixture, windows.width, nodes.real.last, std::log(10 / line_error()));
    nodes.h = nodes.joined->pitch();
    return nodes.joined->usable();
}

LayerMeasures::Measure& LayerMeasures::measure(std::size_t index, Which which) {
    const LayerPart& part = parts_[index];
    const double width = cuts_.parts[index].width;
    Nodes& own = nodes_[index];
    std::optional<Measure>& found = (which.between ? own.between : own.below)[which.cut];
    if (found) return *found;
    found.emplace(Measure{part.mixture, {}, 0, 0, 0, {}});
    const MixtureNodes& nodes = own.real;
    const std::size_t n = nodes.loss.size();
    if (!part.cut) {
        found->end = which.between ? 0 : n;
        if (!which.between) found->log_share.assign(n, 0.0);
        return *found;
    }
    const std::vector<std::int64_t>& edge = cuts_.parts[index].edge;
    const std::int64_t from = which.between ? edge[which.cut - 1] : -Window::unbounded, to = edge[which.cut];
    if (which.between && from == to) return *found;
    const Window window(width, from, to);
    found->mixture.window = window;
    const auto node_at = [&](double t) {
        return static_cast<std::size_t>(
            std::clamp((t - nodes.first) / nodes.h, 0.0, static_cast<double>(n - 1)));
    };
    found->begin = which.between ? node_at(window.bottom() - inside * width) : 0;
    found->end = node_at(window.top() + outside * width) + 1;
    found->log_share.assign(n, -infinity);
    for (std::size_t i = found->begin; i < found->end; ++i)
        found->log_share[i] = window.log(nodes.first + static_cast<double>(i) * nodes.h);
    if (own.joined) found->joined = own.joined->share(window);
    return *found;
}

std::vector<MixturePart> LayerMeasures::mixtures(Which which) {
    std::vector<MixturePart> out;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        if (parts_[i].kind != which.kind) continue;
        if (parts_[i].mixture.joined) return {};
        out.push_back(measure(i, which).mixture);
    }
    return out;
}

// A bound on the integral of g = P^{1+s} Q^{-s} kappa beyond node i, relative to e^shift. As the mean shifts
// increase with t, the slope of ln g between two points is at most
//     (1+s) E_P[shift | right] - s E_Q[shift | left] - left - max(0, left - top)/width^2,
// and beyond the last of them that with the largest shift. Also bounds the trapezoidal sum but for node i.
double LayerMeasures::beyond(std::size_t index, const Measure& m, std::size_t i, double s,
                             double shift) const {
    const MixturePart& mixture = m.mixture;
    const Window& window = mixture.window;
    const double strength = window.to() ? window.strength() : 0, top = window.to() ? window.top() : 0;
    const Nodes& own = nodes_[index];
    const MixtureNodes& nodes = own.real;
    struct Point {
        double t, log_g, p_mean, q_mean;
    };
    const double constant = -0.5 * std::log(2 * pi) - shift, log_h = std::log(nodes.h) + shift;
    const auto point = [&](std::size_t k) -> Point {
        if (k >= nodes.loss.size()) {
            const TiltedPoint& far = own.far[std::min(k - nodes.loss.size(), own.far.size() - 1)];
            return {far.t, far.log_g + s * far.loss + constant, far.p_mean, far.q_mean};
        }
        return {nodes.first + static_cast<double>(k) * nodes.h, nodes.log_p[k] + s * nodes.loss[k] - log_h,
                own.p_mean[k], own.q_mean[k]};
    };
    const auto pull = [&](double t) { return strength * std::max(0.0, t - top); };
    Point left = point(i);
    // ln of the window, of which the slope is at most -pull.
    double kept = m.log_share[i], sum = 0;
    for (std::size_t stride = 1;;) {
        const double crude = left.t + pull(left.t) - (1 + s) * mixture.p.high() + s * mixture.q.low(),
                     size = std::exp(left.log_g + kept);
        if (crude > 1) return 1.001 * (sum + size / crude);
        const std::size_t next = i < nodes.loss.size() ? std::min(i + stride, nodes.loss.size()) : i + 1;
        if (next >= nodes.loss.size() + own.far.size()) return infinity;
        const Point right = point(next);
        const double rate = left.t + pull(left.t) - (1 + s) * right.p_mean + s * left.q_mean;
        if (rate > 0) {
            sum += size / rate;
            stride += stride;
        } else if (stride > 1) {
            stride = 1;
            continue;
        } else {
            // It may rise here.
            const double width = right.t - left.t;
            sum += size * std::exp(-rate * width) * (width + 2 * std::max(nodes.h, own.h));
        }
        if (!(sum < infinity)) return infinity;
        if (strength > 0)
            kept -= 0.5 * strength *
                    (std::pow(std::max(0.0, right.t - top), 2) - std::pow(std::max(0.0, left.t - top), 2));
        i = next;
        left = right;
    }
}

// What the sum over the nodes of a measure leaves out at both ends, relative to e^shift.
double LayerMeasures::omitted(std::size_t index, const Measure& m, double s, double shift) const {
    const MixtureNodes& nodes = nodes_[index].real;
    // Below the centre the integrand falls at least like e^{-rate x}.
    const double rate = centres(m.mixture, s).low - (nodes.first + static_cast<double>(m.begin) * nodes.h);
    const double below =
        rate > 0 ? std::exp(nodes.log_p[m.begin] + m.log_share[m.begin] + s * nodes.loss[m.begin] - shift) /
                       (rate * nodes.h)
                 : infinity;
    return below + beyond(index, m, m.end - 1, s, shift);
}

// ln of the largest term at s.
double LayerMeasures::peak(std::size_t index, const Measure& m, double s) const {
    const Nodes& own = nodes_[index];
    if (m.joined) return own.joined->peak(*m.joined, s);
    double out = -infinity;
    for (std::size_t i = m.begin; i < m.end; ++i)
        out = std::max(out, own.real.log_p[i] + m.log_share[i] + s * own.real.loss[i]);
    return out;
}

LayerMeasures::Total LayerMeasures::total(std::size_t index, Measure& m, double s, double shift) const {
    const Nodes& own = nodes_[index];
    const MixtureNodes& nodes = own.real;
    Total out;
    for (std::size_t i = m.begin; i < m.end; ++i) {
        const double x = nodes.loss[i], exponent = nodes.log_p[i] + m.log_share[i] + s * x - shift;
        if (exponent < negligible_exponent) continue;
        const double w = std::exp(exponent);
        out.value += w;
        out.first += w * x;
        out.second += w * x * x;
    }
    if (!(m.aliasing > 0) || !m.mixture.q.plain()) {
        double log_aliasing = infinity;
        for (const AnalyticityStrip& strip : AnalyticityStrip::simple(m.mixture, s, 1e-3 / steps_))
            log_aliasing = std::min(log_aliasing, strip.log_aliasing(nodes.h, 0));
        m.aliasing = std::exp(log_aliasing);
    }
    const double n = static_cast<double>(m.end - m.begin), weight = m.mixture.weight;
    const double rounding = u * (n + 4000 + 2 * (own.rounding + s * own.loss_rounding) + 4 * std::abs(shift));
    // The rule's error is a share of the integral, of which what is omitted is part.
    out.upper =
        m.aliasing < 0.1
            ? weight * (1 + 1.2 * m.aliasing) *
                  (out.value * (1 + 2 * rounding) + 1.001 * omitted(index, m, s, shift) + n * negligible_term)
            : infinity;
    out.value *= weight;
    out.first *= weight;
    out.second *= weight;
    return out;
}

// All that the rule lacks: a share of the integral, and what does not depend on it.
JoinedRule::Error LayerMeasures::joined_error(std::size_t index, const Measure& m, double s,
                                              double shift) const {
    const JoinedRule& rule = *nodes_[index].joined;
    const Window& window = m.mixture.window;
    JoinedRule::Error out = rule.error(*m.joined, window, s, shift);
    double above = light_above(index, m, s, rule.growth(window, s), shift, rule.last());
    if (out.beyond > 0) above += out.beyond * light_above(index, m, s, 0, shift, m.joined->reach);
    out.absolute += m.mixture.weight * above;
    return out;
}

// The rule's error is in part a share of the integral, which is what the sum and all errors add up to.
LayerMeasures::Total LayerMeasures::joined_total(std::size_t index, const Measure& m, double s,
                                                 double shift) const {
    const JoinedRule& rule = *nodes_[index].joined;
    const JoinedRule::Sums sums = rule.sums(*m.joined, s, shift, negligible_exponent);
    const JoinedRule::Error error = joined_error(index, m, s, shift);
    const double n = static_cast<double>(rule.terms());
    const double upper = error.relative < 0.1
                             ? (sums.value + 1.01 * (sums.rounding + error.absolute) + n * negligible_term) *
                                   (1 + 1.2 * error.relative)
                             : infinity;
    return {sums.value, sums.first, sums.second, upper};
}

LayerMeasures::Sums LayerMeasures::new_sums(Which which, double s) {
    interruption_point();
    double shift = -infinity;
    for (std::size_t index = 0; index < parts_.size(); ++index)
        if (parts_[index].kind == which.kind) shift = std::max(shift, peak(index, measure(index, which), s));
    Sums out{-infinity, 0, 0, -infinity};
    if (!(shift > -infinity)) return out;
    Total all;
    for (std::size_t index = 0; index < parts_.size(); ++index) {
        if (parts_[index].kind != which.kind) continue;
        Measure& m = measure(index, which);
        if (m.empty()) continue;
        const Total part = m.joined ? joined_total(index, m, s, shift) : total(index, m, s, shift);
        all.value += part.value;
        all.first += part.first;
        all.second += part.second;
        all.upper += part.upper;
    }
    const double mean = all.first / all.value;
    return {shift + std::log(all.value), mean, std::max(0.0, all.second / all.value - mean * mean),
            shift + std::log(all.upper) + 4 * u * (1 + std::abs(shift))};
}

const LayerMeasures::Sums& LayerMeasures::sums(Which which, double s) {
    auto [known, is_new] = known_.try_emplace({which, s});
    if (is_new) known->second = new_sums(which, s);
    return known->second;
}

void LayerMeasures::make_line(std::size_t index, double s) {
    const LayerPart& part = parts_[index];
    const LayerCuts::Part& windows = cuts_.parts[index];
    Nodes& nodes = nodes_[index];
    if (!nodes.line.log_p.empty()) return;
    const double wanted = line_error();
    const Line line =
        best_line(probe(part, windows.width), s, std::log(10 / wanted), tolerance_ < few_digits ? 1 : 4);
    const double h = rounded_down(line.h), reach = depth_for(wanted / 16);
    if (!(h > 0)) return;
    const double first = std::floor((part.mixture.q.low() - reach) / h) * h;
    const double last =
        part.cut ? 0.5 * windows.width * static_cast<double>(windows.edge.back()) + outside * windows.width
                 : (1 + s) * part.mixture.p.high() - s * part.mixture.q.low() + reach;
    const double count = std::ceil((last - first) / h) + 1;
    if (!(count >= 1 && count <= most_nodes)) return;
    nodes.h = h;
    nodes.line = line_nodes(part.mixture, {line.a, h}, first, static_cast<std::size_t>(count));
}

// What the rule along the line leaves out beyond its nodes [begin, end), relative to e^shift.
double LayerMeasures::light_ends(std::size_t index, const Measure& m, double s, double growth, double shift,
                                 std::size_t begin, std::size_t end) const {
    const LineNodes& nodes = nodes_[index].line;
    const TiltedPoint point = tilted_point(m.mixture, s, nodes.first + static_cast<double>(begin) * nodes.h);
    const double rate = centres(m.mixture, s).low - point.t;
    if (!(rate > 0)) return infinity;
    const double below =
        1.01 * std::exp(point.log_g + point.log_kept + growth - shift - 0.5 * std::log(2 * pi)) / rate;
    return below +
           light_above(index, m, s, growth, shift, nodes.first + static_cast<double>(end - 1) * nodes.h);
}

// Beyond the output `end`, from the last node of the real line before it.
double LayerMeasures::light_above(std::size_t index, const Measure& m, double s, double growth, double shift,
                                  double end) const {
    const Nodes& nodes = nodes_[index];
    const MixtureNodes& real = nodes.real;
    const auto before = static_cast<std::size_t>(
        std::clamp(std::floor((end - real.first) / real.h), 0.0, static_cast<double>(m.end - 1)));
    return 1.01 * std::exp(growth) *
           (beyond(index, m, before, s, shift) +
            std::exp(real.log_p[before] + m.log_share[before] + s * real.loss[before] - shift) * nodes.h /
                real.h);
}

void LayerMeasures::add_joined(std::size_t index, Which which, double s, double upper, double wanted,
                               FallingSum& sum) {
    const Measure& m = measure(index, which);
    if (m.empty()) return;
    const JoinedRule& rule = *nodes_[index].joined;
    const JoinedRule::Error error = joined_error(index, m, s, sum.shift);
    rule.add(*m.joined, s, std::log(wanted / static_cast<double>(rule.terms())) - 4, sum);
    sum.fixed_error += error.relative * upper + error.absolute;
}

// upper: a bound of the measure at s, relative to e^shift. Nodes that weigh less than `wanted` together are
// left out.
void LayerMeasures::add_line(std::size_t index, Which which, double s, double upper, double wanted,
                             FallingSum& sum) {
    const Measure& m = measure(index, which);
    if (m.empty()) return;
    make_line(index, s);
    const LineNodes& nodes = nodes_[index].line;
    const MixtureNodes& real = nodes_[index].real;
    if (nodes.log_p.empty()) {
        sum.fixed_error = infinity;
        return;
    }
    const MixturePart& mixture = m.mixture;
    const Window& window = mixture.window;
    const double a = nodes.a, h = nodes.h, weight = mixture.weight, growth = line_growth(mixture, s, a);
    const double n = static_cast<double>(nodes.log_p.size()), least = std::log(wanted / n),
                 log_weight = std::log(weight * h);
    // The nodes that count, as those on the real line tell.
    std::size_t first = m.begin, last = m.end - 1;
    const auto weighs = [&](std::size_t i) {
        return real.log_p[i] + m.log_share[i] + s * real.loss[i] + growth - sum.shift > least - 3;
    };
    while (first < last && !weighs(first + 1)) ++first;
    while (last > first && !weighs(last - 1)) --last;
    const auto node_at = [&](double t) { return std::clamp(t, 0.0, n - 1); };
    const double low = real.first + static_cast<double>(first) * real.h,
                 high = real.first + static_cast<double>(last) * real.h;
    const auto begin = static_cast<std::size_t>(node_at(std::floor((low - nodes.first) / h))),
               end = static_cast<std::size_t>(node_at(std::ceil((high - nodes.first) / h))) + 1;
    double light = light_ends(index, m, s, growth, sum.shift, begin, end);
    for (std::size_t i = begin; i < end; ++i) {
        const Complex loss = nodes.loss[i];
        const Complex exponent = nodes.log_p[i] + s * loss + (log_weight - sum.shift);
        const double t = nodes.first + static_cast<double>(i) * h;
        // What the window makes of the exponent at most: its values are at most 40 times their scales.
        const double away =
            std::max({0.0, window.from() ? window.bottom() - t : 0.0, window.to() ? t - window.top() : 0.0});
        const double most = exponent.real() + 0.5 * (a * a - away * away) * window.strength();
        if (most < least - 4) {
            light += 40 * std::exp(most) / weight;
            continue;
        }
        const Window::Complex kept = window.at(t, a);
        const double size = exponent.real() + kept.log_scale;
        if (size < least - 4) {
            light += 40 * std::exp(size) / weight;
            continue;
        }
        const Complex x = std::polar(std::exp(size), exponent.imag()) * kept.value;
        const double share = std::min(1.0, modulus_of(kept.value));
        sum.re.push_back(x.real());
        sum.im.push_back(x.imag());
        sum.turn.push_back(loss.real());
        sum.fall.push_back(loss.imag());
        sum.fixed.push_back(nodes.log_p_slack[i] + s * (nodes.loss_slack[i] + 3 * modulus_of(loss)) +
                            4 * std::abs(kept.log_scale) + 4 * std::abs(sum.shift) +
                            4 * std::abs(log_weight) + 260 + n + 60 / share);
        sum.turning.push_back(nodes.loss_slack[i] + 4 * modulus_of(loss));
    }
    const double aliasing =
        1.01 * upper * (1 + std::exp(integral_growth(mixture, s, 2 * a))) * std::exp(-2 * pi * a / h);
    sum.fixed_error += aliasing + 1.001 * weight * light;
}

FallingSum LayerMeasures::along(Which which, double s, double wanted) {
    FallingSum out;
    const Sums& whole = sums(which, s);
    if (!(whole.upper > -infinity)) return out;
    out.shift = whole.value;
    if (!std::isfinite(out.shift)) out.fixed_error = infinity;
    for (std::size_t i = 0; i < parts_.size(); ++i)
        if (parts_[i].kind == which.kind)
            (this->*(parts_[i].mixture.joined ? &LayerMeasures::add_joined : &LayerMeasures::add_line))(
                i, which, s, std::exp(whole.upper - whole.value), wanted, out);
    return out;
}

}  // namespace hockeystick
