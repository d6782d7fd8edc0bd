#include "inversion/laplace_steps.hpp"

#include <algorithm>
#include <cmath>

#include "hockeystick/parallel.hpp"
#include "numerics/constants.hpp"
#include "numerics/gauss_legendre.hpp"

namespace hockeystick {
namespace {

constexpr double wanted = 1e-13;  // Speed: of delta, for each source of error.
constexpr int most_panels = 200;  // Speed: of a ray.
// proof: of the rules, and of the ellipses that bound their errors.
constexpr int order = 20;
constexpr double rho = 3;
const double wide = 0.5 * (rho + 1 / rho), tall = 0.5 * (rho - 1 / rho);
// The rule's error is at most this times the half length and the largest modulus on the ellipse.
const double factor = 8 * std::pow(rho, 1 - 2 * order) / (rho - 1);

Complex sinh(Complex w) {
    return {std::sinh(w.real()) * std::cos(w.imag()), std::cosh(w.real()) * std::sin(w.imag())};
}

// ln n! - ((n + 1/2) ln n - n + ln(2 pi)/2), off by a few units of round-off of 1.
double stirling(double n) {
    if (n < 16) {
        double product = 1;
        for (int i = 2; i <= static_cast<int>(n); ++i) product *= i;
        return n == 0 ? 0 : std::log(product) - ((n + 0.5) * std::log(n) - n + 0.5 * std::log(2 * pi));
    }
    const double x = 1 / n, y = x * x;
    return x * (1.0 / 12 - y * (1.0 / 360 - y * (1.0 / 1260 - y * (1.0 / 1680 - y / 1188))));
}

// ln(binom(n, j) / 2^n) and a bound on its error in units of round-off: as minus n times the divergence of
// j/n from 1/2, whose terms are small where they count.
struct LogBinomial {
    double value, slack;
};
LogBinomial log_binomial(double n, double j) {
    if (j == 0 || j == n) return {-n * std::log(2), 2 * n};
    const double x = (2 * j - n) / n, left = std::log1p(x), right = std::log1p(-x);
    const double value = -j * left - (n - j) * right - 0.5 * std::log(2 * pi * j * (n - j) / n) +
                         stirling(n) - stirling(j) - stirling(n - j);
    return {value, 4 * (j * std::abs(left) + (n - j) * std::abs(right)) + 200};
}

}  // namespace

LaplaceSteps::LaplaceSteps(double epsilon, double steps) : a_(epsilon), steps_(steps) {}

// e^{-a/2} (cosh wa - cosh a/2 + sinh(wa)/(2w) - sinh a/2), exact for small z or a.
LaplaceSteps::Excess LaplaceSteps::excess(Complex z) const {
    const Complex w = z + 0.5;
    Complex second;
    double size;
    if (std::abs(w) * a_ < 1 && a_ < 2) {
        // sum over k >= 1 of a^{2k+1} (w^{2k} - 4^{-k}) / (2 (2k+1)!)
        Complex quotient = 1, sum = 0;
        double power = 0.5 * a_, quarter = 1;
        for (int k = 1; k <= 14; ++k) {
            power *= a_ * a_ / ((2 * k) * (2 * k + 1));
            sum += power * quotient;
            quarter *= 0.25;
            quotient = quotient * w * w + quarter;
        }
        second = z * (z + 1.0) * sum;
        size = std::abs(second);
    } else {
        const Complex first = sinh(w * a_) / (2.0 * w);
        second = first - std::sinh(0.5 * a_);
        size = std::abs(first) + std::sinh(0.5 * a_);
    }
    const double unit = std::exp(-0.5 * a_);
    const Complex first = 2.0 * sinh(0.5 * a_ * (z + 1.0)) * sinh(0.5 * a_ * z);
    return {unit * (first + second), unit * (std::abs(first) + size)};
}

double LaplaceSteps::log_mgf(double s) const { return steps_ * std::log1p(excess(s).value.real()); }

bool LaplaceSteps::needed_at(double s) const {
    const double w = s + 0.5;
    // Otherwise the atoms' power is below all digits. Beyond these sizes, exponentials overflow.
    return a_ < 100 && a_ * w < 300 && steps_ * std::log1p(std::tanh(w * a_) / (2 * w)) < 45;
}

std::optional<LaplaceSteps::Line> LaplaceSteps::make_line(double s, double epsilon, double log_share) const {
    Line line{};
    line.s = s;
    line.log_scale = log_mgf(s);
    line.log_tolerance = std::log(wanted) + log_share;
    // From there on the terms' moduli do not add up to much more than the atoms' share.
    line.top = std::max({0.5 * std::sqrt(steps_), 2 * (s + 0.5), 2.0});
    static const GaussLegendre<order> rule;
    double low = 0, half = line.top;
    while (low < line.top) {
        half = std::min({2 * half, 0.4 * std::hypot(s, low), 0.5 * (line.top - low)});
        const bool last = half >= 0.5 * (line.top - low);
        Panel panel{};
        for (;; half *= 0.7) {
            if (!(half > 1e-6 * line.top)) return {};
            panel.b = tall * half;
            if (!(panel.b < 0.9 * s)) continue;
            panel.below = log_mgf(s - panel.b) - line.log_scale;
            panel.above = log_mgf(s + panel.b) - line.log_scale;
            const double height = std::max(0.0, low + half - wide * half), left = s - panel.b;
            panel.log_rest =
                std::log(factor * half / pi / (std::hypot(left, height) * std::hypot(left + 1, height)));
            const double log_error =
                panel.log_rest + std::max(panel.below + panel.b * epsilon, panel.above - panel.b * epsilon);
            if (log_error < line.log_tolerance - 3) break;
        }
        line.panels.push_back(panel);
        const double high = last && half >= 0.5 * (line.top - low) ? line.top : low + 2 * half;
        for (std::size_t k = 0; k < order; ++k) {
            const Complex z(s, 0.5 * (low + high) + 0.5 * (high - low) * rule.node[k]);
            const Excess m = excess(z);
            const Complex log_m = steps_ * log1p(m.value);
            // Errors relative to M; the logarithm's are relative to its argument, unless that nearly
            // vanishes.
            const double whole = std::abs(1.0 + m.value);
            const double each =
                u * (24 + 4 * a_ * std::abs(z)) * (m.size + m.size * m.size) / (whole * whole);
            const double exponent = steps_ * (std::log1p(std::min(each, 1e300)));
            const Complex weight = 0.5 * (high - low) * rule.weight[k] / pi / (z * (z + 1.0));
            const double size = std::exp(log_m.real() - line.log_scale) * std::abs(weight);
            line.z.push_back(z);
            line.value.push_back(std::polar(1.0, log_m.imag()) * std::exp(log_m.real() - line.log_scale) *
                                 weight);
            line.error.push_back(
                size * (std::expm1(exponent) + u * (200 + 4 * (std::abs(line.log_scale) + std::abs(log_m)))));
        }
        low = high;
    }
    return line;
}

Inverted LaplaceSteps::along(const Line& line, double epsilon) {
    Inverted out{};
    double sum = 0;
    for (std::size_t i = 0; i < line.z.size(); ++i) {
        const double tau = line.z[i].imag();
        const Complex f = line.value[i] * std::polar(1.0, -tau * epsilon);
        out.value += f.real();
        out.slope += (f * line.z[i]).real();
        sum += std::abs(f) * (1 + tau * std::abs(epsilon));
        out.round_off += line.error[i];
    }
    out.round_off += u * (static_cast<double>(line.z.size()) + 16) * sum;
    for (const Panel& panel : line.panels)
        out.quadrature += 1.01 * std::exp(panel.log_rest + std::max(panel.below + panel.b * epsilon,
                                                                    panel.above - panel.b * epsilon));
    return out;
}

// |1 +- 1/(2w)| <= exp(+-Re 1/(2w) + 1/(8 |w|^2)), and |Re 1/(2w)| <= turn.
double LaplaceSteps::log_bound(const Ray& ray, double real, double w, double turn) const {
    const auto& [line, epsilon, first, direction, gap, constant, slack] = ray;
    double largest = constant + real * gap + std::abs(steps_ - 2 * first) * turn + steps_ / (8 * w * w);
    // Relative to the first term, in logarithms where terms grow.
    const double growth = -direction * a_ * (2 * real + 1) + 2 * turn;
    double sum = 1, term = 1;
    for (double j = first; direction < 0 ? j > 0 : j < steps_; j += direction) {
        const double ratio =
            std::exp(growth) * (direction < 0 ? j / (steps_ - j + 1) : (steps_ - j) / (j + 1));
        term *= ratio;
        sum += term;
        if (ratio < 0.9 && term * ratio < 1e-3 * sum * (1 - ratio)) {
            // Ratios only fall from here on.
            sum += term * ratio / (1 - ratio);
            break;
        }
        if (sum > 1e200) {
            largest += std::log(1e200);
            sum *= 1e-200;
            term *= 1e-200;
        }
        if (!std::isfinite(sum)) return infinity;
    }
    return largest + std::log(sum) + 1e-6 + 1e-12 * std::abs(largest);
}

double LaplaceSteps::panel(const Ray& ray, double begin, double half, double& error) const {
    const double top = ray.line.top;
    for (; half > 1e-4 * top; half *= 0.7) {
        const double centre = begin + ray.direction * half;
        const double near_end = centre - ray.direction * wide * half;
        const double w = std::hypot(centre + 0.5, top) - wide * half;
        const double z0 = std::hypot(centre, top) - wide * half,
                     z1 = std::hypot(centre + 1, top) - wide * half;
        const double most = std::abs(centre + 0.5) + wide * half;
        const double log_error = log_bound(ray, near_end, w, std::min(0.5 / w, 0.5 * most / (w * w))) +
                                 std::log(factor * half / pi / (z0 * z1));
        if (log_error < ray.line.log_tolerance - 4) {
            error += std::exp(log_error);
            return half;
        }
    }
    return 0;
}

void LaplaceSteps::add_panel(const Ray& ray, double begin, double half, Inverted& sum) const {
    static const GaussLegendre<order> rule;
    const auto& [line, epsilon, first, direction, gap, constant, constant_slack] = ray;
    for (std::size_t k = 0; k < order; ++k) {
        const Complex z(begin + direction * half * (1 + rule.node[k]), line.top), w = z + 0.5;
        const Complex plus = log1p(0.5 / w), minus = log1p(-0.5 / w);
        const Complex exponent = constant + z * gap + (steps_ - first) * plus + first * minus;
        Complex term = std::exp(exponent), all = term;
        Complex ratio = std::exp(2.0 * a_ * w) * (z + 1.0) / z;
        if (direction > 0) ratio = 1.0 / ratio;
        const double ratio_size = std::abs(ratio);
        double size = std::abs(term), terms = 1, weighted = 0, last = size;
        for (double j = first; direction < 0 ? j > 0 : j < steps_; j += direction) {
            const double share = direction < 0 ? j / (steps_ - j + 1) : (steps_ - j) / (j + 1);
            term *= ratio * share;
            last *= ratio_size * share;
            all += term;
            size += last;
            terms += 1;
            weighted += last * terms;
            const double next = ratio_size * share;
            if (next < 0.9 && last * next < 1e-18 * size * (1 - next)) break;
        }
        const Complex weight = half * rule.weight[k] / pi / (z * (z + 1.0));
        const Complex f = all * weight * static_cast<double>(direction);
        sum.value += f.imag();
        sum.slope += (f * z).imag();
        const double slack = constant_slack + 2 * std::abs(z * gap) +
                             6 * ((steps_ - first) * std::abs(plus) + first * std::abs(minus)) + 3 * terms +
                             300;
        sum.round_off += u * std::abs(weight) * (slack * size + (12 + 4 * a_ * std::abs(w)) * weighted);
    }
}

// False where no panels will do.
bool LaplaceSteps::add_ray(const Line& line, double epsilon, double first, int direction,
                           Inverted& sum) const {
    const LogBinomial binomial = log_binomial(steps_, first);
    const double log_unit = line.log_scale - line.s * epsilon;
    const Ray ray{
        line,
        epsilon,
        first,
        direction,
        a_ * (steps_ - 2 * first) - epsilon,
        binomial.value - a_ * first - log_unit,
        binomial.slack + 4 * a_ * first + 8 * std::abs(line.log_scale) + 4 * std::abs(line.s * epsilon) + 64};
    double from = 0, half = 0.25 * line.top;
    for (int count = 0; count <= most_panels; ++count) {
        interruption_point();
        const double begin = line.s + direction * from;
        // Beyond this point, |z (z+1)| is at least the square of the distance to the nearer pole.
        const double distance = direction > 0 ? begin : -1 - begin;
        if (distance > 0) {
            const double w = std::hypot(begin + 0.5, line.top);
            const double bound = log_bound(ray, begin, w, 0.5 / w) - std::log(pi);
            const double length = std::min(1 / distance, 1 / (std::abs(ray.gap) * distance * distance));
            if (bound + std::log(length) < line.log_tolerance - 2) {
                sum.tail += std::exp(bound) * length;
                return true;
            }
        }
        const double nearest = std::hypot(std::max(distance, 0.0), line.top);
        half = panel(ray, begin, std::min(2 * half, 0.3 * nearest), sum.quadrature);
        if (!(half > 0)) return false;
        add_panel(ray, begin, half, sum);
        from += 2 * half;
    }
    return false;
}

Inverted LaplaceSteps::all(const Line& line, double epsilon) const {
    Inverted out = along(line, epsilon);
    out.log_scale = line.log_scale - line.s * epsilon;
    // The last term above eps, as its point rounds.
    double last = std::clamp(std::ceil(0.5 * (steps_ - epsilon / a_)) - 1, -1.0, steps_);
    while (last >= 0 && !(a_ * (steps_ - 2 * last) - epsilon > 0)) --last;
    while (last < steps_ && a_ * (steps_ - 2 * (last + 1)) - epsilon > 0) ++last;
    const bool good = (last < 0 || add_ray(line, epsilon, last, -1, out)) &&
                      (last >= steps_ || add_ray(line, epsilon, last + 1, 1, out));
    // A point that is off by x moves delta by at most x P(L > eps) <= x e^{K(s) - s eps}.
    out.round_off += u * (8 * (a_ * steps_ + std::abs(epsilon)) + 64 * std::abs(out.value) +
                          16 * std::abs(out.value) * (std::abs(line.log_scale) + line.s * std::abs(epsilon)));
    if (!good) out.round_off = infinity;
    if (!(out.slope > 0)) out.slope = line.s * std::abs(out.value);
    return out;
}

std::optional<Answer> LaplaceSteps::delta_bounds(double epsilon, double s, double log_share) const {
    const auto line = make_line(s, epsilon, log_share);
    if (!line) return {};
    const Inverted at = all(*line, epsilon);
    if (!(at.upper() < infinity)) return {};
    return delta_answer(describe(at, 0, line->z.size()), at);
}

std::optional<Answer> LaplaceSteps::epsilon_bounds(double delta, double guess, double s,
                                                   double log_share) const {
    const auto line = make_line(s, guess, log_share);
    if (!line) return {};
    const InvertedAt inverted = [&](double e) { return all(*line, e); };
    double epsilon = guess;
    const Inverted at = newton(inverted, std::log(delta), epsilon, 1e-13);
    if (!(at.value > 0) || !(at.upper() < infinity)) return {};
    return epsilon_answer(describe(at, 0, line->z.size()), inverted, at, epsilon, delta);
}

}  // namespace hockeystick
