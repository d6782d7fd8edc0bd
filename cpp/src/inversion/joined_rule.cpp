#include "inversion/joined_rule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// Proof: the path is x -> start + c ln(1 + e^{x + iy}) at y = middle, the strip around it 0 < y < edge; on
// its upper edge |dt| <= steep d(Re t) from Re t = start - 0.35 c on, but for a length of 2.2 c
// (docs/accounting/bounds.md, "Layers of losses").
constexpr double edge = 0.75 * pi, middle = 0.5 * edge, steep = 2.62, beside = 2.2, below_start = 0.35;

// Speed: the scales c that are tried, what terms may grow by, and how many nodes there may be.
constexpr double largest_scale = 2, next_scale = 0.85, most_growth = 3;
constexpr int scales = 60;
constexpr double most_nodes = 1 << 14;
// Speed: so many widths beyond its top hardly anything is left of a window; into how many cells outputs are
// divided for bounds on a ratio's growth; and shifts are no larger, so that nothing overflows.
constexpr double reach_in_widths = 8;
constexpr int cells = 128;
constexpr double largest_exponent = 600;

double log_phi(double t) { return -0.5 * (t * t + std::log(2 * pi)); }

// The exponent of a half's larger shift where its loss is 0, e^{m t - m^2/2} being the ratio of N(m) to N(0).
double exponent_at_start(const JoinedHalf& half) { return 0.5 * half.p_shift * half.q_shift; }

// ln of 1 - q + q e^x, x = at_start + moved, and its error in units of round-off.
struct Side {
    Complex log;
    double slack;
};
Side side(double q, double at_start, Complex moved) {
    const Complex x = at_start + moved;
    const double size = at_start + std::abs(moved);
    if (x.real() < 30) {
        const Complex e = expm1(x), log = log1p(q * e);
        const double rounding = 8 * size * (std::abs(e) + 1) + 12 * std::abs(e);
        return {log, 8 * std::abs(log) + q * rounding / std::abs(1.0 + q * e)};
    }
    return {x + std::log(q + (1 - q) * std::exp(-x)), 8 * size + 8 * std::abs(std::log(q)) + 32};
}

// w (1 - w), w the share of the odds x.
double spread_of_odds(double x) { return x / ((1 + x) * (1 + x)); }

}  // namespace

JoinedRule::JoinedRule(const MixturePart& part, double width, double end, double log_wanted)
    : q_(part.p.weights().back()), weight_(part.weight), depth_(log_wanted + 2) {
    const JoinedHalf halves[] = {{part.p.high(), part.q.high()}, *part.joined};
    for (const JoinedHalf& half : halves)
        if (halves_.empty() || half != halves_.front().shifts)
            halves_.push_back({half, 0.5 * (half.p_shift + half.q_shift), {}, {}, {}, {}, {}, {}});
    // What the halves leave of the mass, divided by 1 - q: 1 - Pr[N(0, 1) > start] of either.
    const double left = 0.5 * (std::erf(0.5 * above().start * std::numbers::sqrt2) +
                               std::erf(0.5 * below().start * std::numbers::sqrt2));
    log_atom_ = std::log(weight_) + std::log1p(-q_) + std::log(left);
    double most_shift = 0;
    for (const Half& half : halves_) {
        most_shift = std::max(most_shift, half.shifts.p_shift);
        if (!(exponent_at_start(half.shifts) < largest_exponent)) return;
    }
    const double strength = 1 / (width * width), range = std::max(end - above().start, 1.0);
    // Re P >= 1 - q and Re Q >= 1 - q up to the edge, so that powers of R are analytic.
    const double widest = 0.5 * pi / (edge * most_shift) * (1 - 1e-9);
    double least = infinity, scale = std::min(largest_scale, widest);
    for (int i = 0; i < scales; ++i, scale *= next_scale) {
        const double a = scale * edge, wanted = log_wanted + 0.5 * a * a * (1 + strength);
        if (0.5 * scale * scale * middle * middle * (1 + strength) > most_growth) continue;
        const double count = (range / scale + depth_ + 6) * wanted / (2 * pi * middle);
        if (!(count < least)) continue;
        least = count;
        scale_ = scale;
        h_ = 2 * pi * middle / wanted;
    }
    if (!(least < most_nodes)) return;
    most_spread_ = -std::log(std::cos(0.5 * above().shifts.q_shift * scale_ * edge));
    spread_below_ = spread_below();
    const double steps = std::ceil((std::max(range / scale_, 6.0) + depth_) / h_),
                 constant = std::log(weight_ * h_ * scale_) - 0.5 * std::log(2 * pi);
    for (double j = 0; j <= steps; ++j) {
        const Complex w(-depth_ + j * h_, middle);
        for (Half& half : halves_) add_node(half, w, constant);
    }
    usable_ = true;
}

void JoinedRule::add_node(Half& half, Complex w, double constant) const {
    const Complex way = w.real() < 40 ? log1p(std::exp(w)) : w, ahead = scale_ * way, t = half.start + ahead;
    const double at_start = exponent_at_start(half.shifts);
    const Side p = side(q_, at_start, half.shifts.p_shift * ahead);
    half.output.push_back(t.real());
    half.height.push_back(t.imag());
    half.log_q.push_back(constant - 0.5 * t * t + (w - way));
    half.q_slack.push_back(10 * std::norm(t) + 4 * std::abs(constant) + 8 * (std::abs(w) + std::abs(way)) +
                           32);
    half.loss.push_back(p.log);
    half.loss_slack.push_back(p.slack);
    if (!(half.shifts.q_shift > 0)) return;
    const Side q = side(q_, at_start, half.shifts.q_shift * ahead);
    half.log_q.back() += q.log;
    half.q_slack.back() += q.slack + 2 * std::abs(q.log);
    half.loss.back() -= q.log;
    half.loss_slack.back() += q.slack + std::abs(half.loss.back());
}

// ln of what |R_+| grows by at most from an output that is not beyond this one. At odds r y of Q's larger
// shift, y = e^{q_shift ahead}, those of P's are r y^2, and with D = 1 - cos b, k = 2 (1 + cos b),
//     |R|^2 <= R^2 (1 - 2 k D v(r y^2))/(1 - 2 D v(r y)),  v(x) = x/(1+x)^2,
// increases or decreases with D, whatever angle up to b.
double JoinedRule::spread_up_to(double output) const {
    const JoinedHalf& half = above().shifts;
    if (!(half.q_shift > 0)) return 0;
    const double r = q_ / (1 - q_) * std::exp(exponent_at_start(half)), first = -below_start * scale_,
                 ahead = output - above().start;
    if (!(ahead > first)) return 0;
    // From odds of 1 on a cell would have to look for the largest v.
    if (!(r * std::exp(half.q_shift * ahead) < 1)) return most_spread_;
    const double angle = half.q_shift * scale_ * edge, turned = 2 * std::pow(std::sin(0.5 * angle), 2),
                 twice = 2 * (1 + std::cos(angle)), cell = half.q_shift * (ahead - first) / cells;
    double most = 0;
    for (int i = 0; i < cells; ++i) {
        const double low = half.q_shift * first + i * cell, high = low + cell;
        const double p =
            std::min(spread_of_odds(r * std::exp(2 * low)), spread_of_odds(r * std::exp(2 * high)));
        most = std::max(most, 0.5 * (std::log1p(-2 * twice * turned * p) -
                                     std::log1p(-2 * turned * spread_of_odds(r * std::exp(high)))));
    }
    return most * (1 + 1e-9) + 1e-14;
}

// ln of the largest |1/R_-|.
double JoinedRule::spread_below() const {
    const JoinedHalf& half = below().shifts;
    if (!(half.q_shift > 0)) return -std::log1p(-q_);
    // With r and y as above 1/R = (1 + r y)/(1 + r y^2), and |P|^2 = P^2 (1 - 2 v(r y^2) (1 - cos 2b)). From
    // y = 4 and r y^2 = 1 on the former outweighs the latter.
    const double r = q_ / (1 - q_) * std::exp(exponent_at_start(half)),
                 angle = 2 * half.q_shift * scale_ * edge, turned = 2 * std::pow(std::sin(0.5 * angle), 2),
                 first = -below_start * scale_ * half.q_shift,
                 cell = (std::max(std::log(4.0), -0.5 * std::log(r)) - first) / cells;
    double most = 0;
    for (int i = 0; i < cells; ++i) {
        const double low = first + i * cell, high = low + cell, odds = r * std::exp(2 * low),
                     more = r * std::exp(2 * high);
        const double p = odds < 1 && more > 1 ? 0.25 : std::max(spread_of_odds(odds), spread_of_odds(more));
        most = std::max(
            most, std::log1p(r * std::exp(high)) - std::log1p(odds) - 0.5 * std::log1p(-2 * turned * p));
    }
    return most * (1 + 1e-9) + 1e-14;
}

double JoinedRule::growth(const Window& window, double s) const noexcept {
    const double height = scale_ * middle * (1 + 1e-9);
    return 0.5 * height * height * (1 + window.strength()) + s * most_spread_;
}

JoinedRule::Share JoinedRule::share(const Window& window) const {
    Share out;
    const Half& half = above();
    out.rest = !window.from();
    // Below its bottom a window rises with the output, and it is never above 1 by more than rounding.
    const double just_above = half.start + 0.01 * scale_;
    out.first =
        window.from() && window.bottom() > just_above ? std::exp(window.log(just_above)) * 1.001 : 1.001;
    out.reach = window.top() + reach_in_widths * window.width();
    // Where the window ends below the start, what lies just below that counts beside it.
    out.spread = spread_up_to(std::max(out.reach, half.start));
    for (std::size_t j = 0; j < half.output.size(); ++j) {
        const Window::Complex kept = window.at(half.output[j], half.height[j]);
        out.log.push_back(kept.log_scale + std::log(kept.value));
        out.slack.push_back(4 * std::abs(kept.log_scale) + 60 / std::min(1.0, std::abs(kept.value)));
    }
    return out;
}

// visit(exponent, loss, slack of the weight, of the loss): the term is e^exponent at tilt s, its loss
// complex.
template <class Visit>
void JoinedRule::for_terms(const Share& share, double s, Visit visit) const {
    const Half &positive = above(), &negative = below();
    for (std::size_t j = 0; j < positive.loss.size(); ++j) {
        const Complex loss = positive.loss[j];
        visit(positive.log_q[j] + (1 + s) * loss + share.log[j], loss,
              positive.q_slack[j] + share.slack[j] + positive.loss_slack[j] + std::abs(loss),
              positive.loss_slack[j]);
    }
    if (!share.rest) return;
    // Mirrored in the real line, where e^{i tau L} falls.
    for (std::size_t j = 0; j < negative.loss.size(); ++j)
        visit(std::conj(negative.log_q[j] - s * negative.loss[j]), -std::conj(negative.loss[j]),
              negative.q_slack[j], negative.loss_slack[j]);
    visit(Complex(log_atom_), Complex(0.0), 32 + 2 * std::abs(log_atom_), 0.0);
}

double JoinedRule::peak(const Share& share, double s) const {
    double out = -infinity;
    for_terms(share, s,
              [&](Complex exponent, Complex, double, double) { out = std::max(out, exponent.real()); });
    return out;
}

JoinedRule::Sums JoinedRule::sums(const Share& share, double s, double shift, double least) const {
    Sums out{};
    for_terms(share, s, [&](Complex exponent, Complex loss, double p_slack, double loss_slack) {
        if (!(exponent.real() - shift > least)) return;
        const double size = std::exp(exponent.real() - shift);
        const Complex term = std::polar(size, exponent.imag());
        out.value += term.real();
        out.first += (term * loss).real();
        out.second += (term * loss * loss).real();
        out.rounding +=
            u * size * (p_slack + s * (loss_slack + 3 * std::abs(loss)) + 4 * std::abs(shift) + 3e3);
    });
    return out;
}

void JoinedRule::add(const Share& share, double s, double least, FallingSum& sum) const {
    const double n = static_cast<double>(terms());
    double light = 0;
    for_terms(share, s, [&](Complex exponent, Complex loss, double p_slack, double loss_slack) {
        const double size = std::exp(exponent.real() - sum.shift);
        if (!(exponent.real() - sum.shift > least)) {
            light += size;
            return;
        }
        sum.re.push_back(size * std::cos(exponent.imag()));
        sum.im.push_back(size * std::sin(exponent.imag()));
        sum.turn.push_back(loss.real());
        sum.fall.push_back(std::max(0.0, loss.imag()));
        sum.fixed.push_back(p_slack + s * (loss_slack + 3 * std::abs(loss)) + 4 * std::abs(sum.shift) + 260 +
                            n);
        sum.turning.push_back(loss_slack + 4 * std::abs(loss));
    });
    sum.fixed_error += 1.001 * light;
}

double JoinedRule::aliasing() const noexcept { return 1.01 * std::exp(-2 * pi * middle / h_); }

JoinedRule::Error JoinedRule::error(const Share& share, const Window& window, double s, double shift) const {
    const JoinedHalf& half = above().shifts;
    const double a = scale_ * edge, nodes_below = 1.5 * scale_ * std::exp(-depth_),
                 log_unit = std::log(weight_) - shift,
                 grown = std::exp(0.5 * a * a * (1 + window.strength()) + s * share.spread),
                 // P where the path begins, and the density there.
        log_p = side(q_, exponent_at_start(half), 0.0).log.real(),
                 phi = std::exp(log_phi(std::max(0.0, above().start - below_start * scale_)) + log_p +
                                log_unit) *
                       share.first,
                 risen = std::exp((1 + s) * (half.p_shift + half.q_shift) * scale_ * std::exp(-depth_));
    Error out{aliasing() * (1 + steep * grown), 0,
              aliasing() * beside * scale_ * grown * phi + nodes_below * phi * risen};
    if (half.q_shift > 0) out.beyond = aliasing() * steep * grown * std::exp(s * most_spread_);
    if (!share.rest) return out;
    // Of the negative losses, each relative to the largest that |R^{-s}| can be.
    const double most = std::exp(s * spread_below_ + log_unit), bell = std::exp(0.5 * a * a),
                 end = below().output.back() - below().shifts.q_shift;
    out.absolute += most * (aliasing() * (4 + scale_) * bell + nodes_below +
                            1.1 * bell * std::exp(log_phi(end)) / std::max(end, 1.0));
    return out;
}

}  // namespace hockeystick
