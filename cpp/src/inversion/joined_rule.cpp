#include "inversion/joined_rule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "numerics/complex.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

using Complex = std::complex<double>;
constexpr double pi = std::numbers::pi;

// Proof: the path is x -> m/2 + c ln(1 + e^{x + iy}) at y = middle, the strip around it 0 < y < edge; on its
// upper edge |dt| <= steep d(Re t) from Re t = m/2 - 0.35 c on, but for a length of 2.2 c
// (docs/accounting/bounds.md, "Layers of losses").
constexpr double edge = 0.75 * pi, middle = 0.5 * edge, steep = 2.62, beside = 2.2, below = 0.35;

// Speed: the scales c that are tried, what terms may grow by, and how many nodes there may be.
constexpr double largest_scale = 2, next_scale = 0.85, most_growth = 3;
constexpr int scales = 60;
constexpr double most_nodes = 1 << 14;

double log_phi(double t) { return -0.5 * (t * t + std::log(2 * pi)); }

}  // namespace

JoinedRule::JoinedRule(const MixturePart& part, double width, double end, double log_wanted)
    : shift_(part.p.high()),
      q_(part.p.weights().back()),
      weight_(part.weight),
      start_(0.5 * shift_),
      log_atom_(std::log(weight_) + std::log1p(-q_) + std::log(std::erf(0.5 * start_ * std::numbers::sqrt2))),
      depth_(log_wanted + 2) {
    const double strength = 1 / (width * width), range = std::max(end - start_, 1.0);
    // Re R >= 1 - q up to the edge, so that its powers are analytic and R^{-s} is at most (1-q)^{-s}.
    const double widest = 0.5 * pi / (edge * shift_) * (1 - 1e-9);
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
    const double steps = std::ceil((std::max(range / scale_, 6.0) + depth_) / h_);
    const double constant = std::log(weight_ * h_ * scale_) - 0.5 * std::log(2 * pi);
    for (double j = 0; j <= steps; ++j) {
        const Complex w(-depth_ + j * h_, middle), way = w.real() < 40 ? log1p(std::exp(w)) : w,
                                                   ahead = scale_ * way, t = start_ + ahead,
                                                   b = shift_ * ahead;
        output_.push_back(t.real());
        height_.push_back(t.imag());
        log_p_.push_back(constant - 0.5 * t * t + (w - way));
        p_slack_.push_back(10 * std::norm(t) + 4 * std::abs(constant) + 8 * (std::abs(w) + std::abs(way)) +
                           32);
        if (b.real() < 30) {
            const Complex e = expm1(b), loss = log1p(q_ * e);
            const double rounding = 8 * std::abs(b) * (std::abs(e) + 1) + 12 * std::abs(e);
            loss_.push_back(loss);
            loss_slack_.push_back(8 * std::abs(loss) + q_ * rounding / std::abs(1.0 + q_ * e));
        } else {
            loss_.push_back(b + std::log(q_ + (1 - q_) * std::exp(-b)));
            loss_slack_.push_back(8 * std::abs(b) + 8 * std::abs(std::log(q_)) + 32);
        }
    }
    last_ = output_.back();
    usable_ = true;
}

double JoinedRule::growth(const Window& window) const noexcept {
    const double height = scale_ * middle * (1 + 1e-9);
    return 0.5 * height * height * (1 + window.strength());
}

JoinedRule::Share JoinedRule::share(const Window& window) const {
    Share out;
    out.rest = !window.from();
    // Below its bottom a window rises with the output, and it is never above 1 by more than rounding.
    const double just_above = start_ + 0.01 * scale_;
    out.first =
        window.from() && window.bottom() > just_above ? std::exp(window.log(just_above)) * 1.001 : 1.001;
    for (std::size_t j = 0; j < size(); ++j) {
        const Window::Complex kept = window.at(output_[j], height_[j]);
        out.log.push_back(kept.log_scale + std::log(kept.value));
        out.slack.push_back(4 * std::abs(kept.log_scale) + 60 / std::min(1.0, std::abs(kept.value)));
    }
    return out;
}

// visit(exponent, loss, slack of the weight, of the loss): the term is e^exponent at tilt s, its loss
// complex.
template <class Visit>
void JoinedRule::for_terms(const Share& share, double s, Visit visit) const {
    for (std::size_t j = 0; j < size(); ++j)
        visit(log_p_[j] + (1 + s) * loss_[j] + share.log[j], loss_[j],
              p_slack_[j] + share.slack[j] + loss_slack_[j] + std::abs(loss_[j]), loss_slack_[j]);
    if (!share.rest) return;
    // Mirrored in the real line, where e^{i tau L} falls.
    for (std::size_t j = 0; j < size(); ++j)
        visit(std::conj(log_p_[j] - s * loss_[j]), -std::conj(loss_[j]), p_slack_[j], loss_slack_[j]);
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
    const double n = 2 * static_cast<double>(size());
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
    const double a = scale_ * edge, nodes_below = 1.5 * scale_ * std::exp(-depth_),
                 log_unit = std::log(weight_) - shift,
                 grown = std::exp(0.5 * a * a * (1 + window.strength())),
                 phi = std::exp(log_phi(std::max(0.0, start_ - below * scale_)) + log_unit) * share.first,
                 risen = std::exp((1 + s) * shift_ * scale_ * std::exp(-depth_));
    Error out{aliasing() * (1 + steep * grown),
              aliasing() * beside * scale_ * grown * phi + nodes_below * phi * risen};
    if (!share.rest) return out;
    // Of the negative losses, each relative to the largest that R^{-s} can be.
    const double most = std::exp(-s * std::log1p(-q_) + log_unit), bell = std::exp(0.5 * a * a);
    out.absolute += most * (aliasing() * (4 + scale_) * bell + nodes_below +
                            1.1 * bell * std::exp(log_phi(last_)) / std::max(last_, 1.0));
    return out;
}

}  // namespace hockeystick
