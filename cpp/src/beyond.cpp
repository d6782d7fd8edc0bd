#include "hockeystick/beyond.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "hockeystick/complex.hpp"
#include "hockeystick/line.hpp"
#include "hockeystick/special.hpp"
#include "hockeystick/strip.hpp"

namespace hockeystick {
namespace {

using Complex = std::complex<double>;
constexpr double u = unit_roundoff;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double pi = std::numbers::pi;
constexpr double rough = 1e-8;  // tolerance of at()
constexpr double most_nodes = 1 << 14;
constexpr double most_products = 4e6;  // nodes times frequencies: some milliseconds

double log_aliasing(const std::vector<Strip>& strips, double h, double tau) {
    double least = infinity;
    for (const Strip& strip : strips) least = std::min(least, strip.log_aliasing(h, tau));
    return least;
}

double best_step(const std::vector<Strip>& strips, double tau, double tolerance) {
    double best = 0;
    for (const Strip& strip : strips) best = std::max(best, strip.step(tau, tolerance));
    return best;
}

// How fast B decays, by moving the integral over t to t + ia, where |e^{i tau L}| = e^{-tau angle}.
//
// Either everywhere, where with shifts of P in [0, e] of mean m, given t, and a e <= pi/2
//     Im E[e^{ia shift}] >= m sin(ae)/e,   Re E[e^{ia shift}] <= cos(am)
// (the sine lies above its chord, the cosine is concave), and likewise for Q. Or from t0 on, where P's
// largest shift has more than half of the weight: then the others, of share r relative to it, turn P by at
// most asin r, and a may be large.
class BeyondDecay final : public DecayBound {
public:
    BeyondDecay(const std::vector<MixturePart>& parts, double s, double log_b) {
        double extreme = 0, narrowest = infinity, narrow = infinity;
        for (const MixturePart& part : parts) {
            extreme = std::max({extreme, part.p.high(), -part.q.low()});
            narrow = std::min(narrow, part.window.width());
            narrowest = std::min(narrowest, 1 / part.p.high());
        }
        std::vector<std::vector<TiltedPoint>> grids;
        for (const MixturePart& part : parts) grids.push_back(grid(part, s));
        double a = 0.5 * pi / extreme;
        if (a > 12 * narrow) a = 12 * narrow;
        for (int i = 0; i < 7; ++i, a *= 0.6) add(parts, grids, s, log_b, a, false);
        // Beyond that everywhere is not possible.
        if (0.5 * pi / extreme < 6 * narrow)
            for (a = 12 * narrow; a > 0.7 / extreme; a *= 0.6) add(parts, grids, s, log_b, a, true);
    }

    double log_bound(double tau) const override {
        // The best of the lines: they go from the steepest to the least steep, mostly unimodal; any will do.
        double best = value(best_, tau);
        for (const int direction : {-1, 1})
            for (std::size_t i = best_;;) {
                if (direction < 0 ? i == 0 : i + 1 == lines_.size()) break;
                i += static_cast<std::size_t>(direction);
                const double other = value(i, tau);
                if (!(other < best)) break;
                best = other;
                best_ = i;
            }
        return std::min(best, 0.0);
    }

private:
    struct Slice {
        double log_mass, angle;
    };
    struct Line {
        double log_growth;
        std::vector<Slice> slices;
    };

    static std::vector<TiltedPoint> grid(const MixturePart& part, double s) {
        const Centres centre = centres(part, s);
        const double first = std::min(centre.low - 9.5 / std::sqrt(1 + part.window.strength()),
                                      centre.low > part.window.bottom() ? centre.low - 9.5 : infinity);
        const double last = centre.high + 9.5;
        std::vector<TiltedPoint> points;
        for (double t = first; t < last;) {
            points.push_back(tilted_point(part, s, t));
            // Narrow where the window rises, and where the loss is bent.
            double width = 0.3;
            if (t < part.window.bottom() + 3 * part.window.width())
                width = 0.35 * part.window.width();
            else if (t < part.window.bottom() + 6 * part.window.width() + 3)
                width = std::max(0.35 * part.window.width(), 0.1);
            t += std::max(std::min(width, 0.3), (last - first) / 2000);
        }
        points.push_back(tilted_point(part, s, last));
        return points;
    }

    void add(const std::vector<MixturePart>& parts, const std::vector<std::vector<TiltedPoint>>& grids,
             double s, double log_b, double a, bool far) {
        Line line{0, {}};
        double light = 0;
        for (const MixturePart& part : parts)
            line.log_growth = std::max(line.log_growth, 0.5 * a * a * part.growth());
        for (std::size_t k = 0; k < parts.size(); ++k) {
            const MixturePart& part = parts[k];
            const std::vector<TiltedPoint>& points = grids[k];
            const double constant = std::log(part.weight) - log_b - 0.5 * std::log(2 * pi) + 1e-7;
            const double top = part.p.high(), bottom = -part.q.low(), q_spread = part.q.high() - part.q.low();
            const double log_modulus = q_spread > 0 ? s * std::log(std::cos(0.5 * a * q_spread)) : 0;
            const auto put = [&](double log_mass, double angle) {
                log_mass += constant - log_modulus;
                if (log_mass < -45)
                    light += std::exp(log_mass);
                else
                    line.slices.push_back({log_mass, angle});
            };
            const Centres centre = centres(part, s);
            put(points.front().log_g + points.front().log_kept - std::log(centre.low - points.front().t), 0);
            put(points.back().log_g + points.back().log_kept - std::log(points.back().t - centre.high), 0);
            bool moved = !far;
            if (far && !part.q.plain()) return;
            const auto turn = [&](double mean, double end) {
                return std::atan2(mean * std::sin(a * end) / end, std::cos(a * mean));
            };
            for (std::size_t i = 0; i + 1 < points.size(); ++i) {
                const TiltedPoint &l = points[i], &r = points[i + 1];
                const double log_mass = log_most(l, r, s) + std::log(r.t - l.t);
                if (!far) {
                    double angle = 0;
                    if (l.p_mean > 0) angle += turn(std::min(l.p_mean, top), top);
                    if (bottom > 0 && r.q_mean < 0) angle += turn(std::min(-r.q_mean, bottom), bottom);
                    put(log_mass, angle);
                    continue;
                }
                // The others' share of P beside the largest shift's, which decreases with t.
                const double share = part.p.top_share(l.t), others = (1 - share) / share + 1e-12;
                if (others > 0.7) {
                    put(log_mass - line.log_growth, 0);
                    continue;
                }
                if (!moved) {
                    // Up to the line.
                    put(l.log_g + l.log_kept + std::log(a), 0);
                    moved = true;
                }
                put(log_mass, std::max(0.0, a * (top + bottom) - std::asin(others)));
            }
            if (!moved) return;
        }
        if (light > 0) line.slices.push_back({std::log(light), 0});
        lines_.push_back(std::move(line));
    }

    double value(std::size_t i, double tau) const {
        double sum = 0;
        for (const Slice& slice : lines_[i].slices) sum += std::exp(slice.log_mass - tau * slice.angle);
        return lines_[i].log_growth + std::log(sum);
    }

    std::vector<Line> lines_;
    mutable std::size_t best_ = 0;
};

}  // namespace

MixtureNodes Beyond::make_nodes(const MixturePart& part, double h, double low, double high,
                                double tolerance) {
    h = rounded_down(h);
    const Centres at_low = centres(part, low), at_high = centres(part, high);
    const double left = std::min(at_low.low, at_high.low), right = std::max(at_low.high, at_high.high);
    const double depth = std::sqrt(2 * std::log(16 / tolerance)) + 0.5;
    // Below the cut, the window falls faster than the noise.
    const double reach = left > part.window.bottom() ? depth : depth / std::sqrt(1 + part.window.strength());
    const double first = std::floor((left - reach) / h) * h;
    const double count = std::ceil((right + depth - first) / h) + 1;
    if (!(h > 0) || !(count <= most_nodes)) return {};
    return mixture_nodes(part, h, first, static_cast<std::size_t>(count));
}

double Beyond::omitted(const MixturePart& part, const MixtureNodes& nodes, double s, double shift) {
    const Centres centre = centres(part, s);
    const auto end = [&](std::size_t i, double rate) {
        return rate > 0 ? std::exp(nodes.log_p[i] + s * nodes.loss[i] - shift) / (rate * nodes.h) : infinity;
    };
    return 1.001 * (end(0, centre.low - nodes.first) + end(nodes.loss.size() - 1, nodes.last - centre.high));
}

const std::vector<MixtureNodes>& Beyond::nodes_up_to(int k) const {
    std::vector<MixtureNodes>& nodes = cache_[k];
    if (nodes.empty())
        for (const MixturePart& part : parts_) {
            const double high = std::ldexp(1.0, k);
            nodes.push_back(make_nodes(part, best_step(Strip::simple(part, high, rough), 0, rough),
                                       k > -10 ? 0.5 * high : 0, high, rough));
        }
    return nodes;
}

Beyond::Real Beyond::at(double s) const {
    int power;
    std::frexp(s, &power);
    const std::vector<MixtureNodes>& all = nodes_up_to(std::max(power, -10));
    double shift = -infinity;
    for (std::size_t k = 0; k < parts_.size(); ++k) {
        if (all[k].loss.empty()) return {0, 0, 0, -infinity, infinity};
        for (std::size_t i = 0; i < all[k].loss.size(); ++i)
            shift = std::max(shift, all[k].log_p[i] + s * all[k].loss[i]);
    }
    double total = 0, first = 0, second = 0, error = 0;
    for (std::size_t k = 0; k < parts_.size(); ++k) {
        const MixtureNodes& nodes = all[k];
        double value = 0, mean = 0, square = 0, slack = 0;
        for (std::size_t i = 0; i < nodes.loss.size(); ++i) {
            const double loss = nodes.loss[i], exponent = nodes.log_p[i] + s * loss - shift;
            if (exponent < -50) continue;  // e^-50 < 2e-22
            const double w = std::exp(exponent);
            value += w;
            mean += w * loss;
            square += w * loss * loss;
            slack += w * (nodes.log_p_slack[i] + s * (nodes.loss_slack[i] + 2 * std::abs(loss)) +
                          std::abs(nodes.log_p[i]) + std::abs(shift) + 16);
        }
        const double weight = parts_[k].weight, n = static_cast<double>(nodes.loss.size());
        const double aliasing = std::exp(log_aliasing(Strip::simple(parts_[k], s, rough), nodes.h, 0));
        if (!(aliasing < 0.1)) return {0, 0, 0, -infinity, infinity};
        total += weight * value;
        first += weight * mean;
        second += weight * square;
        error += weight * (1.2 * aliasing * value + omitted(parts_[k], nodes, s, shift) +
                           2 * u * (slack + n * value) + 2e-22 * n);
    }
    const double mean = first / total, log_total = shift + std::log(total), relative = error / total;
    if (!(relative < 0.5)) return {0, 0, 0, -infinity, infinity};
    const double rounding = 1e-15 * (4 + std::abs(log_total));
    return {log_total, mean, std::max(0.0, second / total - mean * mean),
            log_total + std::log1p(-relative) - rounding, log_total + std::log1p(relative) + rounding};
}

Transform::Row Beyond::row(double s, double step, std::size_t size, double tolerance) const {
    Transform::Row row;
    const Real whole = at(s);
    if (!std::isfinite(whole.upper)) return row;
    row.shift = whole.value;
    const double upper = std::exp(whole.upper - whole.value), log_density = -0.5 * std::log(2 * pi);
    row.value.assign(size, 0.0);
    row.error.assign(size, 0.0);
    double products = 0;
    for (const MixturePart& part : parts_) {
        // Along Im t = a the rule is off by e^{-2 pi a/h} times the integrals of moduli along 0 and along 2a.
        const auto [a, wide] = best_line(part, s, std::log(3 / tolerance));
        const double h = rounded_down(wide);
        const MixtureNodes nodes = make_nodes(part, h, s, s, tolerance);
        if (nodes.loss.empty()) return {};
        const double growth = line_growth(part, s, a), n = static_cast<double>(nodes.loss.size());
        const double aliasing =
            1.01 * upper * (1 + std::exp(line_growth(part, s, 2 * a))) * std::exp(-2 * pi * a / h);
        std::vector<Term> terms;
        double light = omitted(part, nodes, s, row.shift - growth);
        const double least = std::log(1e-3 * tolerance / n);
        for (std::size_t i = 0; i < nodes.loss.size(); ++i) {
            const double t = nodes.first + static_cast<double>(i) * h;
            const double log_size = nodes.log_p[i] + s * nodes.loss[i] + growth - row.shift;
            if (log_size < least) {
                light += std::exp(log_size);
                continue;
            }
            const ComplexLog p = log_ratio(part.p, t, a), q = log_ratio(part.q, t, a);
            const Window::Complex kept = part.window.at(t, a);
            Term term;
            term.loss = p.value - q.value;
            const Complex exponent = p.value + s * term.loss + 0.5 * (a * a - t * t) + kept.log_scale +
                                     log_density - row.shift + Complex(0, -a * t);
            term.weight = part.weight * h * std::exp(exponent) * kept.value;
            // The window's value may be less than its scale, and so may its error be beside it.
            const double loss_slack = p.slack + q.slack + std::abs(term.loss),
                         share = std::min(1.0, std::abs(kept.value));
            term.fixed = p.slack + s * (loss_slack + 3 * std::abs(term.loss)) + 2 * (a * a + t * t) +
                         4 * a * std::abs(t) + 4 * std::abs(kept.log_scale) + 4 * std::abs(row.shift) + 250 +
                         n + 60 / share;
            term.turning = loss_slack + 4 * std::abs(term.loss);
            terms.push_back(term);
        }
        products += static_cast<double>(terms.size()) * static_cast<double>(size);
        if (products > most_products) return {};
        add(terms, step, 1e-3 * tolerance, row);
        const double fixed = aliasing + part.weight * light + 2e-3 * tolerance;
        for (double& error : row.error) error += fixed;
    }
    return row;
}

// sum of weight e^{i tau loss}; the terms fall with the frequency, at last below `negligible` together.
void Beyond::add(const std::vector<Term>& terms, double step, double negligible, Transform::Row& row) {
    constexpr std::size_t block = 32;
    const std::size_t count = terms.size();
    std::vector<double> re(count), im(count), cosine(count), sine(count);
    std::vector<std::size_t> index;
    for (std::size_t i = 0; i < count; ++i) index.push_back(i);
    double still = 0, turned = 0, left_out = 0;
    for (std::size_t j = 0; j < row.value.size(); ++j) {
        const double tau = step * static_cast<double>(j);
        if (j % block == 0) {
            // Afresh, before errors add up.
            still = turned = 0;
            std::size_t kept = 0;
            for (const std::size_t i : index) {
                const Term& term = terms[i];
                const Complex x =
                    term.weight * std::polar(std::exp(-tau * term.loss.imag()), tau * term.loss.real());
                const double size = std::abs(x);
                if (size * static_cast<double>(count) < negligible) {
                    left_out += size;
                    continue;
                }
                const Complex turn = std::polar(std::exp(-step * term.loss.imag()), step * term.loss.real());
                re[kept] = x.real();
                im[kept] = x.imag();
                cosine[kept] = turn.real();
                sine[kept] = turn.imag();
                index[kept++] = i;
                still += size * term.fixed;
                turned += size * term.turning;
            }
            index.resize(kept);
        } else {
            for (std::size_t i = 0; i < index.size(); ++i) {
                const double x = re[i] * cosine[i] - im[i] * sine[i];
                im[i] = re[i] * sine[i] + im[i] * cosine[i];
                re[i] = x;
            }
        }
        double x0 = 0, x1 = 0, y0 = 0, y1 = 0;
        std::size_t i = 0;
        for (; i + 1 < index.size(); i += 2) {
            x0 += re[i];
            x1 += re[i + 1];
            y0 += im[i];
            y1 += im[i + 1];
        }
        if (i < index.size()) {
            x0 += re[i];
            y0 += im[i];
        }
        row.value[j] += Complex(x0 + x1, y0 + y1);
        row.error[j] += left_out + u * (still + tau * turned);
    }
}

std::unique_ptr<DecayBound> Beyond::decay(double s, double log_b) const {
    return std::make_unique<BeyondDecay>(parts_, s, log_b);
}

}  // namespace hockeystick
