#include "hockeystick/layers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "hockeystick/complex.hpp"
#include "hockeystick/decay.hpp"
#include "hockeystick/line.hpp"
#include "hockeystick/mgf.hpp"
#include "hockeystick/special.hpp"
#include "hockeystick/strip.hpp"
#include "powers.hpp"

namespace hockeystick {
namespace {

using Complex = std::complex<double>;
constexpr double u = unit_roundoff;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double pi = std::numbers::pi;

constexpr double largest_ratio = 3, least_ratio = 1.05;  // of neighbouring cuts
constexpr std::size_t most_cuts = 12, most_close_cuts = 24;
// By so many nats a layer's density may lie below its chord: a tilt sees the chord.
constexpr double largest_gap = 3;
constexpr std::size_t most_frequencies = 4096, most_at_bottom = 300;
constexpr int most_rounds = 5;   // of planning and solving
constexpr double few_steps = 8;  // so few powers of a measure do not make it fall
constexpr double most_nodes = 1 << 15;
constexpr double most_products = 3e7;  // nodes times frequencies: some ten milliseconds
// From a window's end, in its widths, there is hardly anything left of it.
constexpr double inside = 10;
// Above it large tilts may still see something.
constexpr double outside = 40;
// Narrow windows serve larger tilts, and need more nodes and frequencies. Where an estimate of delta is far
// too large, its share is, too; and a wide interval is better than none.
struct Attempt {
    double sharpness, share;  // of the windows; of the tolerance
};
constexpr Attempt attempts[] = {{1, 1}, {0.35, 1}, {0.6, 1e-3}, {2.5, 1}, {0.35, 1e3}};
constexpr double wide = 1e-3;  // beside its upper end, an interval that calls for another attempt
constexpr double negligible_exponent = -60;

// How far from its centre a Gaussian has fallen to `least`.
double depth_for(double least) { return std::sqrt(-2 * std::log(least)) + 0.5; }

double log_add(double a, double b) {
    const double top = std::max(a, b);
    return top > -infinity ? top + std::log(std::exp(a - top) + std::exp(b - top)) : top;
}

// A width with few bits, so that the points of windows are exact.
double window_width(double width) {
    int exponent;
    const double mantissa = std::frexp(width, &exponent);
    return std::ldexp(std::floor(mantissa * 64) / 64, exponent);
}

double loss_at(const MixturePart& part, double t) { return part.p.log(t).value - part.q.log(t).value; }

// About where the loss is this one.
double output_of(const MixturePart& part, double loss) {
    double low = part.q.low() - 40, high = part.p.high() + 1;
    while (high < 1e6 && loss_at(part, high) < loss) high += high;
    for (int i = 0; i < 60 && high - low > 1e-6; ++i) {
        const double t = 0.5 * (low + high);
        (loss_at(part, t) < loss ? low : high) = t;
    }
    return high;
}

// What ln P falls by with the loss, at output t: the tilt that makes such losses weigh.
double falling(const MixturePart& part, double t) {
    const double p_mean = part.p.mean(t, part.p.log(t).value), q_mean = part.q.mean(t, part.q.log(t).value);
    return (t - p_mean) / (p_mean - q_mean);
}

MixturePart with(const MixturePart& part, Window window) {
    MixturePart out = part;
    out.window = window;
    return out;
}

}  // namespace

Layers::Layers(const std::vector<Kind>& kinds, double variance, double tolerance)
    : variance_(variance), tolerance_(tolerance) {
    for (const Kind& kind : kinds) {
        for (const MixturePart& mixture : kind.parts) {
            Part part(mixture, counts_.size());
            part.cut = !mixture.p.plain();
            parts_.push_back(std::move(part));
        }
        counts_.push_back(kind.count);
        steps_ += kind.count;
    }
}

// Of a cut and the next one below it.
double Layers::ratio_below(double cut) const {
    double ratio = largest_ratio;
    for (const Part& part : parts_) {
        if (!part.cut) continue;
        const MixturePart& mixture = part.mixture;
        const auto slope = [&](double loss) { return falling(mixture, output_of(mixture, loss)); };
        const double at_cut = slope(cut);
        while (ratio > least_ratio) {
            const double below = cut / ratio;
            if (!((slope(below) - at_cut) * (cut - below) > 8 * largest_gap)) break;
            ratio = 1 + 0.7 * (ratio - 1);
        }
    }
    return std::max(ratio, least_ratio);
}

// Puts the cuts, the last of which leaves out losses of about this P-mass in all, for epsilons near this one.
bool Layers::prepare(double log_mass, double epsilon) {
    cuts_.clear();
    double top = 0;
    std::vector<double> ends;
    for (Part& part : parts_) {
        part.edge.clear();
        part.below.clear();
        part.inside.clear();
        part.log_p.clear();
        // Windows are to be narrow beside what the loss moves by, and wide to be smooth.
        const double spread = part.mixture.p.high() - part.mixture.q.low();
        double width = std::min(0.3, std::max(0.12, epsilon / 20) / spread);
        ends.push_back(part.mixture.p.high());
        const MixtureRatio& p = part.mixture.p;
        if (part.cut) {
            // Beyond its top x, at x + d, a window falls by d^2/2 width^2, and is to fall thrice as much as
            // the tilted density may rise there.
            const double x = output_of(part.mixture, epsilon), tilt = falling(part.mixture, x),
                         loss = loss_at(part.mixture, x);
            for (double d = 1; d < 2000; d *= 1.5) {
                const double rise = tilt * (loss_at(part.mixture, x + d) - loss) - x * d - 0.5 * d * d;
                if (rise > 0) width = std::min(width, d / std::sqrt(6 * rise));
            }
        }
        part.width = window_width(sharpness_ * width);
        if (!part.cut) continue;
        const double each = log_mass - std::log(counts_[part.kind] * static_cast<double>(parts_.size()) *
                                                part.mixture.weight);
        // Pr[N(0,1) > z] <= e^{-z^2/2}/2.
        double end = 0;
        for (std::size_t i = 0; i < p.shifts().size(); ++i) {
            const double mass = each - std::log(p.weights()[i] * static_cast<double>(p.shifts().size()));
            end = std::max(
                end, p.shifts()[i] + std::sqrt(2 * std::max(-mass, 0.5) * (1 + part.width * part.width)));
        }
        ends.back() = end;
        top = std::max(top, p.log(end).value - part.mixture.q.log(end).value);
    }
    if (!(top > 0)) return false;
    cuts_.push_back(top);
    // Above epsilon, and a little below it, one step makes up the loss, and its density is what counts.
    while (cuts_.size() < most_close_cuts && cuts_.front() > 0.4 * epsilon)
        cuts_.insert(cuts_.begin(), cuts_.front() / ratio_below(cuts_.front()));
    for (std::size_t i = 1; i < most_cuts; ++i) cuts_.insert(cuts_.begin(), cuts_.front() / largest_ratio);
    dropped_ = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        Part& part = parts_[i];
        const MixturePart& mixture = part.mixture;
        part.below.resize(cuts_.size());
        part.inside.resize(cuts_.size());
        double last = ends[i];
        if (part.cut) {
            const double pitch = 0.5 * part.width;
            double high = ends[i] + 1;
            while (high < 1e6 && mixture.p.log(high).value - mixture.q.log(high).value < top) high += high;
            for (std::size_t k = cuts_.size(); k-- > 0;) {
                double low = mixture.q.low() - 40;
                double t = high;
                while (t - low > 0.5 * pitch) {
                    const double middle = 0.5 * (low + t);
                    (mixture.p.log(middle).value - mixture.q.log(middle).value < cuts_[k] ? low : t) = middle;
                }
                part.edge.insert(part.edge.begin(), static_cast<std::int64_t>(std::ceil(t / pitch)));
                high = t;
            }
            dropped_ +=
                counts_[part.kind] * mixture.weight *
                with(mixture, Window(part.width, -Window::unbounded, part.edge.back())).missed(mixture.p) *
                (1 + 1e-9);
            last = static_cast<double>(part.edge.back()) * pitch + outside * part.width;
        } else {
            last += 1;
        }
        // Real tilts: K is to be known to about 1e-3.
        const double wanted = 1e-3 / steps_;
        const double reach = depth_for(wanted / 16);
        const MixturePart probe =
            part.cut ? with(mixture, Window(part.width, -1, 1)) : with(mixture, Window());
        double h = 0;
        for (const Strip& strip : Strip::simple(probe, 0, wanted)) h = std::max(h, strip.step(0, wanted));
        h = rounded_down(h);
        // The line's nodes lie above these.
        const double first =
            std::floor((mixture.q.low() - std::max(reach, depth_for(line_error() / 16)) - 1) / h) * h;
        const double count = std::ceil((last + (part.cut ? 0 : reach) - first) / h) + 1;
        if (!(count <= most_nodes)) return false;
        part.real = mixture_nodes(mixture, h, first, static_cast<std::size_t>(count));
        part.p_mean.resize(part.real.loss.size());
        part.q_mean.resize(part.real.loss.size());
        for (std::size_t j = 0; j < part.real.loss.size(); ++j) {
            const double t = first + static_cast<double>(j) * h;
            part.p_mean[j] = mixture.p.mean(t, mixture.p.log(t).value);
            part.q_mean[j] = mixture.q.mean(t, mixture.q.log(t).value);
        }
        part.far.clear();
        for (double ahead = 0.5; ahead < 2000; ahead *= 1.4)
            part.far.push_back(tilted_point(mixture, 0, part.real.last + ahead));
        part.rounding = part.loss_rounding = 0;
        for (std::size_t j = 0; j < part.real.loss.size(); ++j) {
            part.rounding = std::max(part.rounding, part.real.log_p_slack[j]);
            part.loss_rounding =
                std::max(part.loss_rounding, part.real.loss_slack[j] + 2 * std::abs(part.real.loss[j]));
        }
    }
    layer_tilt_.assign(cuts_.size(), 0);
    bottom_tilt_.assign(cuts_.size(), 0);
    return true;
}

Layers::Measure& Layers::measure(Part& part, bool inside_layer, std::size_t cut) {
    std::optional<Measure>& found = (inside_layer ? part.inside : part.below)[cut];
    if (found) return *found;
    found.emplace(Measure{part.mixture, {}, 0, 0});
    const MixtureNodes& nodes = part.real;
    const std::size_t n = nodes.loss.size();
    if (!part.cut) {
        found->end = inside_layer ? 0 : n;
        if (!inside_layer) found->log_share.assign(n, 0.0);
        return *found;
    }
    const std::int64_t from = inside_layer ? part.edge[cut - 1] : -Window::unbounded, to = part.edge[cut];
    if (inside_layer && from == to) return *found;
    const Window window(part.width, from, to);
    found->mixture.window = window;
    const auto index = [&](double t) {
        return static_cast<std::size_t>(
            std::clamp((t - nodes.first) / nodes.h, 0.0, static_cast<double>(n - 1)));
    };
    found->begin = inside_layer ? index(window.bottom() - inside * part.width) : 0;
    found->end = index(window.top() + outside * part.width) + 1;
    found->log_share.assign(n, -infinity);
    for (std::size_t i = found->begin; i < found->end; ++i)
        found->log_share[i] = window.log(nodes.first + static_cast<double>(i) * nodes.h);
    return *found;
}

// A bound on the integral of g = P^{1+s} Q^{-s} kappa beyond node i, relative to e^shift. As the mean shifts
// increase with t, the slope of ln g between two points is at most
//     (1+s) E_P[shift | right] - s E_Q[shift | left] - left - max(0, left - top)/width^2,
// and beyond the last of them that with the largest shift. Also bounds the trapezoidal sum but for node i.
double Layers::beyond(const Part& part, const Measure& m, std::size_t i, double s, double shift) {
    const MixturePart& mixture = m.mixture;
    const Window& window = mixture.window;
    const double strength = window.to() ? window.strength() : 0, top = window.to() ? window.top() : 0;
    const MixtureNodes& nodes = part.real;
    struct Point {
        double t, log_g, p_mean, q_mean;
    };
    const double constant = -0.5 * std::log(2 * pi) - shift, log_h = std::log(nodes.h) + shift;
    const auto point = [&](std::size_t index) -> Point {
        if (index >= nodes.loss.size()) {
            const TiltedPoint& far = part.far[std::min(index - nodes.loss.size(), part.far.size() - 1)];
            return {far.t, far.log_g + s * far.loss + constant, far.p_mean, far.q_mean};
        }
        return {nodes.first + static_cast<double>(index) * nodes.h,
                nodes.log_p[index] + s * nodes.loss[index] - log_h, part.p_mean[index], part.q_mean[index]};
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
        if (next >= nodes.loss.size() + part.far.size()) return infinity;
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
            sum += size * std::exp(-rate * width) * (width + 2 * std::max(nodes.h, part.h));
        }
        if (!(sum < infinity)) return infinity;
        if (strength > 0)
            kept -= 0.5 * strength *
                    (std::pow(std::max(0.0, right.t - top), 2) - std::pow(std::max(0.0, left.t - top), 2));
        i = next;
        left = right;
    }
}

Layers::Sums Layers::sums(std::size_t kind, bool inside_layer, std::size_t cut, double s) {
    double shift = -infinity;
    for (Part& part : parts_) {
        if (part.kind != kind) continue;
        const Measure& m = measure(part, inside_layer, cut);
        for (std::size_t i = m.begin; i < m.end; ++i)
            shift = std::max(shift, part.real.log_p[i] + m.log_share[i] + s * part.real.loss[i]);
    }
    Sums out{-infinity, 0, 0, -infinity};
    if (!(shift > -infinity)) return out;
    double total = 0, mean = 0, square = 0, upper = 0;
    for (Part& part : parts_) {
        if (part.kind != kind) continue;
        Measure& m = measure(part, inside_layer, cut);
        if (m.begin == m.end) continue;
        const MixtureNodes& nodes = part.real;
        double value = 0, first = 0, second = 0;
        for (std::size_t i = m.begin; i < m.end; ++i) {
            const double x = nodes.loss[i], exponent = nodes.log_p[i] + m.log_share[i] + s * x - shift;
            if (exponent < negligible_exponent) continue;
            const double w = std::exp(exponent);
            value += w;
            first += w * x;
            second += w * x * x;
        }
        if (!(m.aliasing > 0) || !m.mixture.q.plain()) {
            double log_aliasing = infinity;
            for (const Strip& strip : Strip::simple(m.mixture, s, 1e-3 / steps_))
                log_aliasing = std::min(log_aliasing, strip.log_aliasing(nodes.h, 0));
            m.aliasing = std::exp(log_aliasing);
        }
        // Below the centre the integrand falls at least like e^{-rate x}.
        const double rate =
            centres(m.mixture, s).low - (nodes.first + static_cast<double>(m.begin) * nodes.h);
        const double omitted =
            (rate > 0
                 ? std::exp(nodes.log_p[m.begin] + m.log_share[m.begin] + s * nodes.loss[m.begin] - shift) /
                       (rate * nodes.h)
                 : infinity) +
            beyond(part, m, m.end - 1, s, shift);
        const double n = static_cast<double>(m.end - m.begin), weight = part.mixture.weight;
        const double rounding =
            u * (n + 4000 + 2 * (part.rounding + s * part.loss_rounding) + 4 * std::abs(shift));
        total += weight * value;
        mean += weight * first;
        square += weight * second;
        // The rule's error is a share of the integral, of which what is omitted is part.
        upper += m.aliasing < 0.1 ? weight * (1 + 1.2 * m.aliasing) *
                                        (value * (1 + 2 * rounding) + 1.001 * omitted + n * 1e-26)
                                  : infinity;
    }
    return {shift + std::log(total), mean / total,
            std::max(0.0, square / total - mean / total * (mean / total)),
            shift + std::log(upper) + 4 * u * (1 + std::abs(shift))};
}

Layers::Cumulant Layers::cumulant(Which which, double s) {
    Cumulant k{0.5 * variance_ * s * (s + 1), variance_ * (s + 0.5), variance_, 0};
    k.upper = k.value * (1 + 4 * u);
    double y = 0, y1 = 0, y2 = 0, y_upper = 0;
    for (std::size_t kind = 0; kind < counts_.size(); ++kind) {
        const double n = counts_[kind];
        const Sums a = sums(kind, false, which.cut - (which.bottom ? 0 : 1), s);
        k.value += n * a.value;
        k.first += n * a.mean;
        k.second += n * a.variance;
        k.upper += n * a.upper;
        if (which.bottom) continue;
        const Sums b = sums(kind, true, which.cut, s);
        if (!(b.value > -infinity)) continue;
        y_upper += n * std::log1p(std::exp(std::max(b.upper - a.upper, -690.0)) *
                                  (1 + 8 * u * (1 + std::abs(b.upper) + std::abs(a.upper))));
        const double r = std::exp(b.value - a.value), share = r / (1 + r), d = b.mean - a.mean;
        y += n * std::log1p(r);
        y1 += n * share * d;
        y2 += n * share * (d * d * (1 - share) + b.variance - a.variance);
    }
    if (!which.bottom) {
        // y may be so small that its square is zero.
        const double none = std::exp(-y), some = -std::expm1(-y), first = y1 / some;
        k.value += log_expm1(y);
        k.first += first;
        k.second = std::max(0.0, k.second + y2 / some - first * first * none);
        k.upper += log_expm1(y_upper);
    }
    k.upper += 16 * u * (steps_ + std::abs(k.upper));
    return k;
}

// The saddle of K(s) - s eps - ln s - ln(1+s), or the best tilt that was tried; or where a bound of the layer
// is below e^enough.
Layers::Saddle Layers::saddle(Which which, double epsilon, double enough) {
    Saddle out;
    double& hint = (which.bottom ? bottom_tilt_ : layer_tilt_)[which.cut];
    out.log_least = infinity;
    double low = -infinity, high = infinity, x = std::log(hint > 0 ? hint : 1 / epsilon);
    for (int i = 0, overflows = 0; i < 40 && overflows < 8; ++i) {
        const double s = std::exp(x);
        const Cumulant k = cumulant(which, s);
        const double bound = log_chernoff(s) + k.upper;
        const double off = k.first - epsilon - 1 / s - 1 / (1 + s);
        const double curvature = k.second + 1 / (s * s) + 1 / ((1 + s) * (1 + s));
        // Of tilts that are too large for the windows the bound tells nothing.
        const bool fine = std::isfinite(off) && k.upper < k.value + 3;
        if (fine && bound - s * epsilon < out.log_least) {
            out.found = true;
            out.log_least = bound - s * epsilon;
            out.log_bound = bound;
            out.s = hint = s;
            out.k = k;
            out.curvature = curvature;
            out.log_delta =
                k.value - s * epsilon - std::log(s) - std::log1p(s) - 0.5 * std::log(2 * pi * curvature);
            if (out.log_least < enough) return out;
        }
        if (fine && std::abs(off) * s < 0.3 * std::max(1.0, s * std::sqrt(curvature))) return out;
        overflows += !fine;
        (fine && off < 0 ? low : high) = x;
        double next = fine ? x - std::clamp(off / (s * curvature), -1.5, 1.5) : x - 0.5;
        if (!(next > low && next < high)) {
            if (!std::isfinite(low) || !std::isfinite(high)) return out;
            next = 0.5 * (low + high);
        }
        if (std::abs(next) > 60 || high - low < 1e-3) return out;
        x = next;
    }
    return out;
}

// What the rule along the line aims at, beside the tilted sum, of which delta is a share.
double Layers::line_error() const {
    return tolerance_ * std::min(1.0, std::sqrt(tolerance_ / 1e-7)) / steps_;
}

void Layers::make_line(Part& part, double s) {
    if (!part.log_p.empty()) return;
    const MixturePart probe = part.cut ? with(part.mixture, Window(part.width, -1, 1)) : part.mixture;
    const double wanted = line_error();
    const Line line = best_line(probe, s, std::log(10 / wanted), tolerance_ < 1e-8 ? 1 : 4);
    const double h = rounded_down(line.h), reach = depth_for(wanted / 16);
    if (!(h > 0)) return;
    part.line = line.a;
    part.h = h;
    part.first = std::floor((part.mixture.q.low() - reach) / h) * h;
    const double last = part.cut
                            ? 0.5 * part.width * static_cast<double>(part.edge.back()) + outside * part.width
                            : (1 + s) * part.mixture.p.high() - s * part.mixture.q.low() + reach;
    const double count = std::ceil((last - part.first) / h) + 1;
    if (!(count <= most_nodes)) return;
    const auto n = static_cast<std::size_t>(count);
    part.log_p.resize(n);
    part.loss.resize(n);
    part.p_slack.resize(n);
    part.loss_slack.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
        const double t = part.first + static_cast<double>(i) * h, a = part.line;
        const ComplexLog p = log_ratio(part.mixture.p, t, a), q = log_ratio(part.mixture.q, t, a);
        part.loss[i] = p.value - q.value;
        part.log_p[i] = p.value + Complex(0.5 * (a * a - t * t) - 0.5 * std::log(2 * pi), -a * t);
        part.p_slack[i] = p.slack + 2 * (a * a + t * t) + 4 * a * std::abs(t);
        part.loss_slack[i] = p.slack + q.slack + std::abs(part.loss[i]);
    }
}

// upper: a bound of the measure at s, relative to e^shift. Nodes that weigh less than `wanted` together are
// left out.
void Layers::add_terms(Part& part, bool inside_layer, std::size_t cut, double s, double upper, double wanted,
                       Terms& terms) {
    const Measure& m = measure(part, inside_layer, cut);
    if (m.begin == m.end) return;
    make_line(part, s);
    if (part.log_p.empty()) {
        terms.fixed_error = infinity;
        return;
    }
    const MixturePart& mixture = m.mixture;
    const Window& window = mixture.window;
    const double a = part.line, h = part.h, weight = mixture.weight, growth = line_growth(mixture, s, a);
    const double n = static_cast<double>(part.log_p.size()), least = std::log(wanted / n),
                 log_weight = std::log(weight * h);
    // The nodes that count, as those on the real line tell.
    std::size_t first = m.begin, last = m.end - 1;
    const auto weighs = [&](std::size_t i) {
        return part.real.log_p[i] + m.log_share[i] + s * part.real.loss[i] + growth - terms.shift > least - 3;
    };
    while (first < last && !weighs(first + 1)) ++first;
    while (last > first && !weighs(last - 1)) --last;
    const double low = part.real.first + static_cast<double>(first) * part.real.h,
                 high = part.real.first + static_cast<double>(last) * part.real.h;
    const auto begin = static_cast<std::size_t>(std::clamp(std::floor((low - part.first) / h), 0.0, n - 1));
    const auto end = static_cast<std::size_t>(std::clamp(std::ceil((high - part.first) / h), 0.0, n - 1)) + 1;
    // What the rule leaves out beyond the ends.
    double light = 0;
    {
        const TiltedPoint point = tilted_point(mixture, s, part.first + static_cast<double>(begin) * h);
        const double rate = centres(mixture, s).low - point.t;
        light +=
            rate > 0
                ? 1.01 *
                      std::exp(point.log_g + point.log_kept + growth - terms.shift - 0.5 * std::log(2 * pi)) /
                      rate
                : infinity;
        // From the last node of the real line before the end.
        const double end_t = part.first + static_cast<double>(end - 1) * h;
        const auto before = static_cast<std::size_t>(std::clamp(
            std::floor((end_t - part.real.first) / part.real.h), 0.0, static_cast<double>(m.end - 1)));
        light += 1.01 * std::exp(growth) *
                 (beyond(part, m, before, s, terms.shift) +
                  std::exp(part.real.log_p[before] + m.log_share[before] + s * part.real.loss[before] -
                           terms.shift) *
                      h / part.real.h);
    }
    for (std::size_t i = begin; i < end; ++i) {
        const Complex loss = part.loss[i];
        const Complex exponent = part.log_p[i] + s * loss + (log_weight - terms.shift);
        const double t = part.first + static_cast<double>(i) * h;
        Complex x;
        double kept_scale = 0, share = 1;
        if (window.whole()) {
            if (exponent.real() < least) {
                light += std::exp(exponent.real()) / weight;
                continue;
            }
            x = std::polar(std::exp(exponent.real()), exponent.imag());
        } else {
            const double outside = std::max(
                {0.0, window.from() ? window.bottom() - t : 0.0, window.to() ? t - window.top() : 0.0});
            const double most = exponent.real() + 0.5 * (a * a - outside * outside) * window.strength();
            if (most < least - 4) {
                light += 40 * std::exp(most) / weight;
                continue;
            }
            const Window::Complex kept = window.at(t, a);
            const double size = exponent.real() + kept.log_scale;
            // The windows' values are at most 40 times their scales.
            if (size < least - 4) {
                light += 40 * std::exp(size) / weight;
                continue;
            }
            x = std::polar(std::exp(size), exponent.imag()) * kept.value;
            kept_scale = std::abs(kept.log_scale);
            share = std::min(1.0, std::abs(kept.value));
        }
        terms.re.push_back(x.real());
        terms.im.push_back(x.imag());
        terms.turn.push_back(loss.real());
        terms.fall.push_back(loss.imag());
        terms.fixed.push_back(part.p_slack[i] + s * (part.loss_slack[i] + 3 * std::abs(loss)) +
                              4 * kept_scale + 4 * std::abs(terms.shift) + 4 * std::abs(log_weight) + 900 +
                              n + 60 / share);
        terms.turning.push_back(part.loss_slack[i] + 4 * std::abs(loss));
    }
    const double aliasing =
        1.01 * upper * (1 + std::exp(line_growth(mixture, s, 2 * a))) * std::exp(-2 * pi * a / h);
    terms.fixed_error += aliasing + 1.001 * weight * light;
}

Layers::Terms Layers::terms(std::size_t kind, bool inside_layer, std::size_t cut, double s, double wanted) {
    Terms out;
    const Sums whole = sums(kind, inside_layer, cut, s);
    if (!(whole.upper > -infinity)) return out;
    out.shift = whole.value;
    if (!std::isfinite(out.shift)) out.fixed_error = infinity;
    for (Part& part : parts_)
        if (part.kind == kind)
            add_terms(part, inside_layer, cut, s, std::exp(whole.upper - whole.value), wanted, out);
    return out;
}

double Layers::Terms::bound(double tau) const {
    double sum = 0;
    for (std::size_t i = 0; i < re.size(); ++i)
        sum += (std::abs(re[i]) + std::abs(im[i])) * std::exp(-tau * std::max(0.0, fall[i] - u * turning[i]));
    return 1.001 * sum + fixed_error;
}

// Terms are turned by one step at a time, and at every 64th by 64 at once. They fall with the frequency, at
// last below `negligible` together.
Layers::Row Layers::turned(const Terms& terms, double step, std::size_t size, double negligible) {
    constexpr std::size_t leap = 64, lanes = 4;
    Row row{std::vector<Complex>(size), std::vector<double>(size)};
    std::size_t n = terms.re.size();
    const std::size_t room = (n + lanes - 1) / lanes * lanes;
    std::vector<double> memory(8 * room);
    const auto at = [&](std::size_t i) { return memory.data() + i * room; };
    double *re = at(0), *im = at(1), *c = at(2), *d = at(3), *re_far = at(4), *im_far = at(5), *c_far = at(6),
           *d_far = at(7);
    std::vector<double> fixed = terms.fixed, turning = terms.turning;
    for (std::size_t i = 0; i < n; ++i) {
        re_far[i] = terms.re[i];
        im_far[i] = terms.im[i];
        const double fall = std::exp(-step * terms.fall[i]);
        c[i] = fall * std::cos(step * terms.turn[i]);
        d[i] = fall * std::sin(step * terms.turn[i]);
        if (size <= leap) continue;
        const double far = static_cast<double>(leap) * step, fall_far = std::exp(-far * terms.fall[i]);
        c_far[i] = fall_far * std::cos(far * terms.turn[i]);
        d_far[i] = fall_far * std::sin(far * terms.turn[i]);
    }
    const auto turn = [&](double* x, double* y, const double* cosine, const double* sine, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            const double z = x[i] * cosine[i] - y[i] * sine[i];
            y[i] = x[i] * sine[i] + y[i] * cosine[i];
            x[i] = z;
        }
    };
    double still = 0, turned = 0, left_out = terms.fixed_error;
    std::size_t padded = room;
    for (std::size_t j = 0; j < size; ++j) {
        if (j % leap == 0) {
            if (j > 0) turn(re_far, im_far, c_far, d_far, n);
            std::size_t kept = 0;
            still = turned = 0;
            for (std::size_t i = 0; i < n; ++i) {
                const double magnitude = std::abs(re_far[i]) + std::abs(im_far[i]);
                if (j > 0 && magnitude * static_cast<double>(n) < negligible) {
                    left_out += magnitude * (1 + 1e-9);
                    continue;
                }
                still += magnitude * fixed[i];
                turned += magnitude * turning[i];
                if (kept != i) {
                    for (double* values : {re_far, im_far, c, d, c_far, d_far}) values[kept] = values[i];
                    fixed[kept] = fixed[i];
                    turning[kept] = turning[i];
                }
                ++kept;
            }
            n = kept;
            padded = (n + lanes - 1) / lanes * lanes;
            for (std::size_t i = n; i < padded; ++i) re_far[i] = im_far[i] = c[i] = d[i] = 0;
            std::copy(re_far, re_far + padded, re);
            std::copy(im_far, im_far + padded, im);
        } else {
            turn(re, im, c, d, padded);
        }
        std::array<double, lanes> x{}, y{};
        for (std::size_t i = 0; i < padded; i += lanes)
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                x[lane] += re[i + lane];
                y[lane] += im[i + lane];
            }
        row.value[j] = Complex((x[0] + x[1]) + (x[2] + x[3]), (y[0] + y[1]) + (y[2] + y[3]));
        row.error[j] = left_out + 1.01 * u * (still + step * static_cast<double>(j) * turned);
    }
    return row;
}

// The period at which the aliases on one side are e^wanted of e^{K(s) - s eps}: see Inversion.
double Layers::alias(Which which, const Saddle& saddle, double epsilon, double wanted, int direction,
                     double& shift, double& offset) {
    const double unit = 1 / std::sqrt(std::max(saddle.k.second, 1e-300));
    double period = infinity, factor = std::sqrt(-2 * std::min(wanted, -1.0));
    for (int i = 0; i < 30; ++i, factor /= 1.6) {
        double further = factor * unit;
        if (direction < 0) further = std::min(further, saddle.s * (1 - 1e-3));
        const double s = saddle.s + direction * further;
        const double bound = log_chernoff(s) + cumulant(which, s).upper - saddle.k.value;
        const double needed = (bound - direction * further * epsilon - wanted) / further;
        if (std::isfinite(needed) && needed < period) {
            period = needed;
            shift = further;
            offset = bound;
        } else if (std::isfinite(period)) {
            break;
        }
    }
    return period;
}

std::optional<Contour> Layers::contour(Which which, const Saddle& saddle, double epsilon, double log_wanted,
                                       std::size_t most) {
    const double s = saddle.s;
    Contour out;
    out.s = s;
    out.scale = saddle.k.value;
    out.share = std::exp(std::min(0.0, saddle.log_delta - (out.scale - s * epsilon)));
    const double log_enough = std::min(log_wanted - (out.scale - s * epsilon), -1.0),
                 enough = std::exp(log_enough);
    const double right = alias(which, saddle, epsilon, log_enough, +1, out.right_shift, out.log_right);
    const double left = alias(which, saddle, epsilon, log_enough, -1, out.left_shift, out.log_left);
    const double period = std::max(right, left);
    if (!(period > 0 && std::isfinite(period) && enough > 0)) return {};
    out.step = 2 * pi / period;

    // A Gaussian would need so many frequencies; whatever falls more slowly needs more.
    if (which.bottom && period / (2 * pi) * std::sqrt(-2 * log_enough / std::max(saddle.k.second, 1e-300)) >
                            static_cast<double>(most))
        return {};

    // Bounds at all higher frequencies, relative to e^{K(s)}.
    std::vector<Terms> below, beyond;
    std::vector<std::optional<Decay>> decays(counts_.size());
    const std::size_t cut = which.cut - (which.bottom ? 0 : 1);
    std::vector<double> log_a;
    const double wanted = 0.01 * std::min(enough, 1.0);
    for (std::size_t kind = 0; kind < counts_.size(); ++kind) {
        log_a.push_back(sums(kind, false, cut, s).upper);
        if (which.bottom) {
            std::vector<MixturePart> parts;
            for (Part& part : parts_)
                if (part.kind == kind) parts.push_back(measure(part, false, cut).mixture);
            decays[kind].emplace(Mgf(std::move(parts), 1e-3), s, log_a.back());
        } else {
            beyond.push_back(terms(kind, true, which.cut, s, wanted));
            // Without nodes there must be nothing.
            if (!(beyond.back().fixed_error < infinity) ||
                (beyond.back().re.empty() && beyond.back().fixed_error > 0))
                return {};
        }
    }
    const auto log_bound = [&](double tau) {
        double sum = -0.5 * variance_ * tau * tau * (1 - 8 * u), y = 0;
        if (variance_ > 0) sum += 0.5 * variance_ * s * (s + 1) * (1 + 4 * u);
        for (std::size_t kind = 0; kind < counts_.size(); ++kind) {
            double a = log_a[kind];
            if (decays[kind]) a += decays[kind]->log_bound(tau) * (1 - 1e-12);
            sum += counts_[kind] * a;
            if (!which.bottom && !beyond[kind].re.empty())
                y += counts_[kind] *
                     std::log1p(beyond[kind].bound(tau) * std::exp(std::max(beyond[kind].shift - a, -690.0)));
        }
        return (which.bottom ? sum : sum + log_expm1(y)) - out.scale + 1e-13 * (1 + std::abs(sum));
    };
    const auto tail = [&](std::size_t size) {
        double sum = 0, tau = out.step * static_cast<double>(size);
        for (int block = 0; block < 60; ++block, tau *= 2) {
            const double bound = std::exp(log_bound(tau)) / pi;
            sum += bound * (out.step / (tau * tau) + 0.5 / tau);
            if (bound / tau < 0.1 * sum || bound / tau < 0.01 * enough || block == 59)
                return 1.01 * (sum + bound / tau);
        }
        return sum;
    };
    std::size_t size = most, low = 8;
    // The least size, to within a tenth; upwards, as most layers need few.
    bool good = false;
    for (std::size_t trial = 32; trial <= most; trial += trial / 2) {
        out.tail = tail(trial);
        if (!(out.tail < infinity)) return {};
        if (out.tail <= enough) {
            size = trial;
            good = true;
            break;
        }
        low = trial + 1;
    }
    if (!good) {
        out.tail = tail(most);
        if (which.bottom || !(out.tail < 1e3 * enough)) return {};
    }
    if (size > low + 8 + size / 8) {
        const std::size_t middle = (low + size) / 2;
        if (const double error = tail(middle); error <= enough) {
            size = middle;
            out.tail = error;
        }
    }
    for (std::size_t kind = 0; kind < counts_.size(); ++kind)
        below.push_back(terms(kind, false, cut, s, wanted / counts_[kind]));
    if (!fill(out, size, below, beyond, wanted)) return {};
    return out;
}

// e^K for the bottom, e^K (e^y - 1) for a layer, along the contour, with their errors.
bool Layers::fill(Contour& contour, std::size_t size, const std::vector<Terms>& below,
                  const std::vector<Terms>& inside_layer, double negligible) const {
    const bool bottom = inside_layer.empty();
    double products = 0;
    for (const std::vector<Terms>* terms : {&below, &inside_layer})
        for (const Terms& each : *terms) products += static_cast<double>(each.re.size() * size);
    if (products > most_products) return false;
    std::vector<Powers> sums;
    for (std::size_t j = 0; j < size; ++j) {
        sums.emplace_back(Complex(contour.s, contour.step * static_cast<double>(j)), variance_,
                          static_cast<double>(counts_.size()));
    }
    for (std::size_t kind = 0; kind < counts_.size(); ++kind) {
        const double n = counts_[kind];
        const Row a_row = turned(below[kind], contour.step, size, negligible / n);
        const bool some = !bottom && !inside_layer[kind].re.empty();
        const Row b_row = some ? turned(inside_layer[kind], contour.step, size, negligible) : Row{};
        // An infinite error would get lost among ratios.
        const auto infinite = [](double error) { return !(error < infinity); };
        if (std::any_of(a_row.error.begin(), a_row.error.end(), infinite) ||
            std::any_of(b_row.error.begin(), b_row.error.end(), infinite))
            return false;
        const double shift = below[kind].shift, moved = some ? inside_layer[kind].shift - shift : 0,
                     unit = std::exp(moved);
        if (!(unit > 1e-280 && unit < infinity)) return false;
        // A modulus below which A to that power adds nothing; to whatever B is.
        const double least =
            (std::abs(a_row.value[0]) + (some ? unit * std::abs(b_row.value[0]) : 0)) / std::max(64.0, 4 * n);
        for (std::size_t j = 0; j < size; ++j) {
            const Complex m = a_row.value[j], log_m(std::log(std::abs(m)), std::arg(m));
            const double units = 12 + 4 * (std::abs(log_m.real()) + std::abs(log_m.imag()) + std::abs(shift));
            const double a =
                sums[j].below(n, std::abs(m), log_m, shift, units, a_row.error[j], some ? least : 0.0);
            if (some) sums[j].beyond(n, a, m, unit * b_row.value[j], unit * b_row.error[j], moved);
        }
    }
    contour.integrand.resize(size);
    contour.error.resize(size);
    for (std::size_t j = 0; j < size; ++j) {
        const Powers& sum = sums[j];
        Powers::Value at;
        if (bottom) {
            const double none = std::exp(sum.modulus - contour.scale);
            const double exponents = std::abs(sum.modulus) + std::abs(contour.scale) + std::abs(sum.angle);
            at = {std::polar(none, sum.angle),
                  1.01 * (std::exp(sum.log_below - contour.scale) * std::expm1(sum.below_error) +
                          none * (std::expm1(sum.common) + u * (16 + 4 * exponents)))};
        } else {
            if (!(sum.log_ratio > 0)) return false;
            at = sum.difference(contour.scale);
        }
        const Complex pole = contour.pole(j);
        contour.integrand[j] = at.value * pole;
        contour.error[j] = at.error * std::abs(pole);
        if (!std::isfinite(contour.error[j]) || !std::isfinite(at.value.real()) ||
            !std::isfinite(at.value.imag()))
            return false;
    }
    return true;
}

std::optional<Layers::Estimate> Layers::visit(double epsilon, bool make) {
    struct Found {
        Which which;
        Saddle saddle;
    };
    std::vector<Found> found;
    Estimate out{-infinity, 0};
    double log_slope = -infinity;
    const auto add = [&](Which which, const Saddle& saddle) {
        found.push_back({which, saddle});
        out.log_delta = log_add(out.log_delta, saddle.log_delta);
        log_slope = log_add(log_slope, saddle.log_delta + std::log(saddle.s));
    };
    contours_.clear();
    light_.clear();
    const double log_share = std::log(tolerance_);
    const auto light = [&](const Saddle& saddle) { light_.push_back({saddle.s, saddle.log_bound}); };
    bool complete = false;
    for (std::size_t k = cuts_.size(); k-- > 0;) {
        if (cuts_[k] < epsilon || k == 0) {
            const Saddle bottom = saddle({k, true}, epsilon, out.log_delta + log_share);
            if (bottom.log_least < out.log_delta + log_share) {
                light(bottom);
                complete = true;
                break;
            }
            if (bottom.found && steps_ > few_steps) {
                if (make) {
                    const double all = log_add(out.log_delta, bottom.log_delta);
                    if (auto plain =
                            contour({k, true}, bottom, epsilon, all + log_share - 1, most_at_bottom)) {
                        contours_.push_back(std::move(*plain));
                        out.log_delta = all;
                        complete = true;
                        break;
                    }
                } else if (cuts_[k] < epsilon / 3 && bottom.log_delta < out.log_delta) {
                    add({k, true}, bottom);
                    complete = true;
                    break;
                }
            }
        }
        if (k == 0) break;
        const Saddle layer = saddle({k, false}, epsilon, out.log_delta + log_share);
        if (layer.log_least < out.log_delta + log_share) {
            light(layer);
        } else if (layer.found) {
            add({k, false}, layer);
        } else {
            return {};
        }
    }
    if (!complete || !(out.log_delta > -infinity)) return {};
    out.slope = std::exp(log_slope - out.log_delta);
    if (!make) return out;
    const double log_wanted = out.log_delta + log_share - std::log(1.0 + static_cast<double>(found.size()));
    for (const auto& [which, saddle] : found) {
        if (saddle.log_least < log_wanted) {
            light(saddle);
            continue;
        }
        auto each = contour(which, saddle, epsilon, log_wanted, most_frequencies);
        if (!each) return {};
        contours_.push_back(std::move(*each));
    }
    return out;
}

double Layers::rest(double epsilon) const {
    double sum = 0;
    for (const Light& light : light_)
        sum += std::exp(light.log_bound - light.tilt * epsilon) *
               (1 + 8 * u * (1 + std::abs(light.log_bound) + light.tilt * std::abs(epsilon)));
    return sum + dropped_;
}

Answer Layers::describe(const Inverted& at) const {
    Answer answer;
    answer.engine = "inversion";
    for (const Contour& contour : contours_) {
        answer.step = std::max(answer.step, contour.step);
        answer.size += contour.integrand.size();
    }
    answer.wrap_around = at.scaled(at.aliasing);
    answer.truncation = 2 * at.scaled(at.tail);
    answer.discretisation = 2 * at.scaled(at.quadrature);
    answer.round_off = 2 * at.scaled(at.round_off);
    return answer;
}

std::optional<Answer> Layers::delta_bounds(double epsilon) {
    if (!(epsilon > 0)) return {};
    return best_of([&] { return delta_at(epsilon); });
}

std::optional<Answer> Layers::epsilon_bounds(double delta) {
    return best_of([&] { return epsilon_at(delta); });
}

template <class Try>
std::optional<Answer> Layers::best_of(const Try& attempt) {
    std::optional<Answer> best;
    const double tolerance = tolerance_;
    for (const auto& [sharpness, share] : attempts) {
        sharpness_ = sharpness;
        tolerance_ = std::min(share * tolerance, std::max(tolerance, 1e-6));
        const auto answer = attempt();
        if (!answer) continue;
        if (!best || answer->upper - answer->lower < best->upper - best->lower) best = answer;
        if (best->upper - best->lower <= wide * best->upper) break;
    }
    tolerance_ = tolerance;
    return best;
}

std::optional<Answer> Layers::delta_at(double epsilon) {
    // A lower estimate of delta: one step alone.
    double log_one = -infinity;
    for (const Part& part : parts_) {
        double low = part.mixture.q.low() - 40, high = part.mixture.p.high() + 60;
        for (int i = 0; i < 40 && high - low > 1e-3; ++i) {
            const double t = 0.5 * (low + high);
            (part.mixture.p.log(t).value - part.mixture.q.log(t).value < 1.2 * epsilon ? low : high) = t;
        }
        const MixtureRatio& p = part.mixture.p;
        for (std::size_t i = 0; i < p.shifts().size(); ++i) {
            const double z = std::max(0.0, high - p.shifts()[i]);
            log_one = log_add(log_one,
                              std::log(counts_[part.kind] * p.weights()[i]) - 0.5 * z * z - std::log(2 + z));
        }
    }
    if (!prepare(std::max(log_one, -650.0) + std::log(tolerance_), epsilon)) return {};
    if (!visit(epsilon, true) || contours_.empty()) return {};
    const Inverted at = invert(contours_, epsilon);
    Answer answer = describe(at);
    const double left_out = rest(epsilon);
    answer.truncation += left_out;
    answer.lower = std::max(0.0, at.lower() - 5e-324);
    answer.upper = std::min(1.0, at.upper() + left_out + 5e-324);
    if (!(answer.lower <= answer.upper)) return {};
    return answer;
}

std::optional<Answer> Layers::epsilon_at(double delta) {
    const double target = std::log(delta);
    // About where one step alone has this delta.
    double epsilon = 0;
    for (const Part& part : parts_) {
        const MixtureRatio& p = part.mixture.p;
        for (std::size_t i = 0; i < p.shifts().size(); ++i) {
            const double mass = target - std::log(counts_[part.kind] * p.weights()[i]);
            const double t = p.shifts()[i] + std::sqrt(2 * std::max(-mass, 0.1));
            epsilon = std::max(epsilon, p.log(t).value - part.mixture.q.log(t).value);
        }
    }
    if (!(epsilon > 0) || !prepare(target + std::log(tolerance_), epsilon)) return {};
    for (int round = 0; round < most_rounds; ++round) {
        for (int i = 0; i < 12 && round == 0; ++i) {
            const auto estimate = visit(epsilon, false);
            if (!estimate || !(estimate->slope > 0)) return {};
            const double off = estimate->log_delta - target;
            if (std::abs(off) < 0.2) break;
            epsilon = std::clamp(epsilon + off / estimate->slope, epsilon / 3, epsilon * 3);
        }
        const auto estimate = visit(epsilon, true);
        if (!estimate || contours_.empty()) return {};
        const double planned = epsilon;
        const Inverted at = newton(contours_, target, epsilon);
        if (!(at.value > 0)) return {};
        // The estimates may be off, and so the lines chosen, and what was taken to be little.
        const double left_out = rest(epsilon);
        if (round + 1 < most_rounds &&
            (std::abs(epsilon - planned) * estimate->slope > 3 || left_out > 100 * tolerance_ * delta))
            continue;
        Answer answer = describe(at);
        answer.truncation += left_out;
        const auto [lower, upper] = bracket(contours_, at, epsilon, delta, 0, left_out);
        if (!(upper < infinity)) return {};
        answer.lower = lower;
        answer.upper = upper;
        return answer;
    }
    return {};
}

}  // namespace hockeystick
