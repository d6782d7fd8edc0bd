#include "inversion/contour.hpp"

#include "numerics/constants.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

// speed: sums of so many terms are added up by themselves, so that rounding hardly does.
constexpr std::size_t block_of_terms = 1024;
// speed: a step of Newton's that leaves more than this share of its error was not his kind of step.
constexpr double poor_step = 0.3;
// speed: so many times what the most frequencies leave out is as good, where fewer do.
constexpr double hardly_more = 2;
// proof: positive terms, of a million frequencies and more, add up to no more than this many times their sum.
constexpr double rounding_of_sums = 1 + 1e-9;

// The sum along the contour at eps, and its derivative.
Inverted sum(const Contour& contour, double epsilon) {
    Inverted out{};
    double value = 0, slope = 0, sum = 0, turned = 0, density = 0, density_error = contour.density_tail;
    Complex turn;
    const Complex one_turn = std::polar(1.0, -contour.step * epsilon);
    const std::size_t size = contour.integrand.size();
    const double additions = static_cast<double>(block_of_terms + size / block_of_terms + 100);
    for (std::size_t j = 0; j < size; ++j) {
        const double tau = contour.step * static_cast<double>(j);
        // e^{-i tau eps}, turned on by one step at a time and started afresh before errors add up.
        turn = j % 16 == 0 ? std::polar(1.0, -tau * epsilon) : turn * one_turn;
        const Complex f = contour.integrand[j] * turn;
        value += f.real();
        slope += contour.s * f.real() - tau * f.imag();
        if ((j + 1) % block_of_terms == 0 || j + 1 == size) {
            out.value += std::exchange(value, 0.0);
            out.slope += std::exchange(slope, 0.0);
        }
        const double magnitude = std::abs(f.real()) + std::abs(f.imag());
        sum += magnitude;
        turned += magnitude * tau;
        out.quadrature += contour.error[j];
        if (!(contour.pinch > 0)) continue;
        const Complex z(contour.s, tau), back = z * (z + 1.0);
        density += (f * back).real();
        density_error += std::abs(back) *
                         (contour.error[j] +
                          u * magnitude * (static_cast<double>(size) + 100 + 4 * std::abs(epsilon) * tau));
    }
    out.quadrature *= rounding_of_sums;
    out.round_off = u * (additions * sum + 4 * std::abs(epsilon) * turned) * rounding_of_sums;
    // Aliases are densities, too, and make this larger only.
    out.noise = contour.pinch * std::exp(0.125 * contour.pinch) * (std::max(density, 0.0) + density_error) *
                rounding_of_sums;
    return out;
}

// On a lattice o + kh, with d the distance from eps up to the next point, the sum over the points x from
// there on of e^{z (eps - x)} (1 - e^{eps - x}) is a difference of geometric series,
//     e^{-zd}/(1 - e^{-zh}) - e^{-(z+1)d}/(1 - e^{-(z+1)h})
//         = e^{-zd} (1 - e^{-d} + e^{-zh} (e^{-d} - e^{-h})) / ((1 - e^{-zh}) (1 - e^{-(z+1)h})).
// pole() is 1 over its denominator.
Inverted sum_on_lattice(const Contour& contour, double epsilon) {
    const auto [h, offset, offset_size] = contour.lattice;
    Inverted out{};
    const double index = std::ceil((epsilon - offset) / h);
    const double d = std::clamp(offset + index * h - epsilon, 0.0, h), damped = std::exp(-contour.s * d);
    const double near = -std::expm1(-d), far = std::exp(-h) * std::expm1(h - d);
    double sum = 0, turned = 0, steepest = 0;
    for (std::size_t j = 0; j < contour.integrand.size(); ++j) {
        const double tau = contour.step * static_cast<double>(j);
        // index h tau is 2 pi index j / points, of which whole turns do not count.
        const double turns = std::fmod(index * static_cast<double>(j), contour.points) / contour.points;
        const Complex fall = one_minus_exp(Complex(contour.s, tau) * h);
        const Complex f = contour.integrand[j] * std::polar(damped, -2 * pi * turns - tau * offset);
        const Complex whole = f * (near + far * (1.0 - fall));
        out.value += whole.real();
        out.slope += (f * fall).real();
        const double magnitude = std::abs(f) * (near + far);
        sum += magnitude;
        turned += magnitude * tau;
        steepest += std::abs(contour.integrand[j]) * std::abs(fall);
        out.quadrature += contour.error[j] * damped * (near + far);
    }
    out.slope *= std::exp(-d);
    const double n = static_cast<double>(contour.integrand.size());
    // Rounding of the point moves eps, perhaps into the next cell.
    const double moved = 4 * (std::abs(epsilon) + offset_size + std::abs(index) * h);
    out.round_off = u * ((n + 100) * sum + 8 * offset_size * turned + moved * steepest);
    return out;
}

// ln of the sum over m >= 1 of the aliases on one side, as a line in eps and in the period:
//     offset + shift * (-direction * eps - period), for the shift that needs the least period.
struct Aliases {
    double shift = 0, offset = -infinity, period = infinity;
};
Aliases least_aliases(const SaddlePoint& at, double epsilon, double log_goal, int direction, double first,
                      const CumulantOf& cumulant) {
    Aliases best;
    // Downwards: past a tilt where rare losses take over, K explodes.
    for (int i = 0; i < 30; ++i, first /= 1.5) {
        double further = first;
        if (direction * at.s < 0) further = std::min(further, std::abs(at.s) * (1 - 1e-3));
        const double s = at.s + direction * further;
        const double bound = log_chernoff(s) + cumulant(s).upper;
        const double needed = (bound - s * epsilon - log_goal) / further;
        if (std::isfinite(needed) && needed < best.period) {
            best = {further, bound - at.k.value, needed};
        } else if (std::isfinite(best.period)) {
            break;
        }
    }
    return best;
}

// Speed: a line moves where aliases on the right need a period so many times as long as those on the left.
constexpr double lopsided = 2;

// Rare large losses make K explode beyond the saddle, and aliases on the right then ask for a long period.
// With e^A and e^B what those at the tilts a < s < b must fall by, the line at s = (A b + B a)/(A + B) asks
// for the same period on either side, (A + B)/(b - a).
SaddlePoint balanced(const SaddlePoint& saddle, const Aliases& left, const Aliases& right, double epsilon,
                     double log_goal, double most_lost, const CumulantOf& cumulant) {
    const double b = saddle.s + right.shift, fall_b = right.period * right.shift;
    double a = saddle.s - left.shift, fall_a = left.period * left.shift;
    if ((b - a) / (fall_a + fall_b) < b / (fall_b - log_goal)) {
        a = 0;  // M(0) is at most 1
        fall_a = -log_goal;
    }
    double s = (fall_a * b + fall_b * a) / (fall_a + fall_b);
    const auto height = [&](const SaddlePoint& at) { return at.k.value - at.s * epsilon; };
    for (int i = 0;; ++i) {
        const SaddlePoint moved = SaddlePoint::at(s, cumulant(s));
        const double lost = height(moved) - height(saddle);
        if (!(lost > 1.1 * most_lost) || i == 4) return moved;
        s = saddle.s + (s - saddle.s) * std::sqrt(most_lost / lost);
    }
}

}  // namespace

double relative_gap(const std::optional<Answer>& answer) {
    if (!answer) return infinity;
    return answer->upper > 0 ? (answer->upper - answer->lower) / answer->upper : 0;
}

double log_chernoff(double s) { return s > 0 ? -s * std::log1p(1 / s) - std::log1p(s) : 0; }

Complex Contour::pole(std::size_t j) const {
    const Complex z(s, step * static_cast<double>(j));
    if (!(lattice.spacing > 0)) return (j == 0 ? 0.5 : 1.0) * step / pi / (z * (z + 1.0));
    // All but the ends of half a period stand for two frequencies.
    const bool twice = j > 0 && 2 * static_cast<double>(j) != points;
    return (twice ? 2.0 : 1.0) /
           (points * one_minus_exp(z * lattice.spacing) * one_minus_exp((z + 1.0) * lattice.spacing));
}

Contour Contour::of_nothing(double s, double scale, double tail) {
    Contour out{};
    out.s = s;
    out.scale = scale;
    out.tail = tail;
    out.step = out.right_shift = out.left_shift = 1;
    out.log_right = out.log_left = -infinity;
    return out;
}

std::optional<Contour> line_through(SaddlePoint& saddle, double epsilon, double log_delta, double log_goal,
                                    double most_lost, const CumulantOf& cumulant) {
    const auto aliases = [&](int direction, double first) {
        return least_aliases(saddle, epsilon, log_goal, direction, first, cumulant);
    };
    // The best shift for a Gaussian.
    const double best = 7.5 / std::sqrt(std::max(saddle.k.second, 1e-300));
    Aliases right = aliases(+1, best), left = aliases(-1, best);
    if (most_lost > 0 && right.period < infinity && right.period > lopsided * left.period) {
        const double s = saddle.s;
        saddle = balanced(saddle, left, right, epsilon, log_goal, most_lost, cumulant);
        right = aliases(+1, 1.2 * (s + right.shift - saddle.s));
        left = aliases(-1, 2 * saddle.s);
    }
    Contour out{};
    out.s = saddle.s;
    out.scale = saddle.k.value;
    out.share = std::exp(std::min(0.0, log_delta - (out.scale - out.s * epsilon)));
    out.right_shift = right.shift;
    out.log_right = right.offset;
    out.left_shift = left.shift;
    out.log_left = left.offset;
    const double period = std::max(right.period, left.period);
    if (!(period > 0 && std::isfinite(period) && out.share > 0)) return {};
    out.step = 2 * pi / period;
    return out;
}

double best_tilt(const LogBound& log_upper, double epsilon, double least, double most, double close) {
    return std::exp(lowest(std::log(least), std::log(most), close, [&](double log_s) {
        const double s = std::exp(log_s), log = log_upper(s);
        return std::isfinite(log) ? log - s * epsilon - log_s - std::log1p(s) : infinity;
    }));
}

std::optional<Contour> line_at(double s, double log_here, const LogBound& log_upper, double epsilon,
                               double log_delta, double log_goal) {
    const double h = 0.02 * s;
    SaddlePoint saddle{};
    saddle.s = s;
    saddle.k = {log_here, 0, (log_upper(s + h) + log_upper(s - h) - 2 * log_here) / (h * h), log_here};
    return line_through(saddle, epsilon, log_delta, log_goal, 0, [&](double other) {
        const double log = log_upper(other);
        return Cumulant{log, 0, 0, log};
    });
}

double tail_from(double step, std::size_t first, const std::function<double(double)>& bound) {
    double sum = 0, tau = step * static_cast<double>(first);
    for (int block = 0;; ++block, tau *= 2) {
        const double most = bound(tau) / pi;
        sum += most * (step / (tau * tau) + 0.5 / tau);
        if (most / tau < 0.05 * sum || block == 59) return 1.01 * (sum + most / tau);
    }
}

CutOff cut_off(std::size_t first, std::size_t limit, double wanted,
               const std::function<double(std::size_t)>& tail) {
    CutOff out{limit, tail(limit)};
    // Where hardly anything falls any more, fewer frequencies leave out as little.
    wanted = std::max(wanted, hardly_more * out.tail);
    // The tail falls with the size: doubled until it is small, then halved in ratio until close.
    std::size_t low = std::min(first, limit);
    for (std::size_t size = 2 * low; 10 * out.size > 11 * low + 10; size *= 2) {
        if (size >= out.size)
            size =
                static_cast<std::size_t>(std::sqrt(static_cast<double>(low) * static_cast<double>(out.size)));
        if (const double error = tail(size); error <= wanted) {
            out = {size, error};
        } else {
            low = size + 1;
        }
    }
    return out;
}

Inverted invert(const Contour& contour, double epsilon) {
    const bool on_lattice = contour.lattice.spacing > 0;
    Inverted out = on_lattice ? sum_on_lattice(contour, epsilon) : sum(contour, epsilon);
    // The derivative converges more slowly; delta falls about like e^{-s eps}.
    if (contour.s > 0 && !(out.slope > (on_lattice ? 0 : 0.25 * contour.s * out.value)))
        out.slope = contour.s * std::abs(out.value);
    out.tail = contour.tail;
    const double period = 2 * pi / contour.step;
    const auto aliases = [&](double log_bound, double shift, double direction) {
        return std::exp(log_bound - shift * (direction * epsilon + period)) / -std::expm1(-shift * period);
    };
    out.aliasing = 1.001 * (aliases(contour.log_right, contour.right_shift, 1) +
                            aliases(contour.log_left, contour.left_shift, -1));
    out.log_scale = contour.scale - contour.s * epsilon;
    out.round_off += (std::abs(out.value) + out.aliasing + out.noise + out.tail + out.quadrature) * u *
                     (8 + 4 * (std::abs(contour.scale) + std::abs(contour.s * epsilon)));
    return out;
}

Inverted together(const Inverted& a, const Inverted& b) {
    Inverted out{};
    out.log_scale = std::max(a.log_scale, b.log_scale);
    for (const Inverted* part : {&a, &b}) {
        const double scale = std::exp(part->log_scale - out.log_scale);
        out.value += scale * part->value;
        out.slope += scale * part->slope;
        out.aliasing += scale * part->aliasing;
        out.noise += scale * part->noise;
        out.tail += scale * part->tail;
        out.quadrature += scale * part->quadrature;
        // Their scales are rounded, too.
        out.round_off +=
            scale *
            (part->round_off +
             u * (std::abs(part->value) + part->aliasing + part->noise + part->tail + part->quadrature) *
                 (10 + 2 * (std::abs(part->log_scale) + std::abs(out.log_scale))));
    }
    return out;
}

Inverted invert(std::span<const Contour> contours, double epsilon) {
    Inverted out = invert(contours[0], epsilon);
    for (const Contour& contour : contours.subspan(1)) out = together(out, invert(contour, epsilon));
    return out;
}

Inverted newton(const InvertedAt& inverted, double target, double& epsilon, double still) {
    double low = 0, high = infinity, before = 0, moved = 0;
    Inverted at = inverted(epsilon);
    for (int i = 0; i < 60; ++i) {
        const double excess = at.value > 0 ? std::log(at.value) + at.log_scale - target : -infinity;
        (excess > 0 ? low : high) = epsilon;
        double step = excess * at.value / at.slope;
        // Between atoms delta hardly falls, and its slope may be lost: then the last two points tell it.
        const double secant = moved * excess / (before - excess);
        if (i > 0 && std::abs(excess) > poor_step * std::abs(before) && std::isfinite(secant)) step = secant;
        double next = epsilon + step;
        // A step lost to rounding would not lie inside the bracket, whose one end is epsilon.
        if (std::abs(next - epsilon) <= still * epsilon) break;
        if (!(next > low && next < high)) next = std::isfinite(high) ? 0.5 * (low + high) : 2 * low;
        if (excess < 0 && epsilon == 0) break;
        const bool close = std::abs(next - epsilon) <= still * next;
        before = excess;
        moved = next - epsilon;
        epsilon = next;
        at = inverted(epsilon);
        if (close) break;
    }
    return at;
}

Bracket bracket(const InvertedAt& inverted, const Inverted& at, double epsilon, double delta, double least,
                double most) {
    Bracket out{0, infinity};
    // Whatever is known of the slope, the margins must be positive to grow into bounds.
    const double smallest = 4 * u * epsilon + 1e-300, aside = most - least,
                 slope = std::abs(at.scaled(at.slope));
    double margin = 1.5 * (at.upper() + aside - at.scaled(at.value)) / slope + smallest;
    int tries = 0;
    while (!(inverted(epsilon + margin).upper() + most + 5e-324 <= delta)) {
        margin *= 2;
        if (++tries > 60 || !std::isfinite(margin)) return out;
    }
    out.upper = epsilon + margin;
    margin = 1.5 * (at.scaled(at.value) - at.lower()) / slope + smallest;
    while (epsilon - margin > 0 && !(inverted(epsilon - margin).lower() + least - 5e-324 > delta))
        margin *= 2;
    out.lower = std::max(0.0, epsilon - margin);
    return out;
}

Answer describe(const Inverted& at, double step, std::size_t size, double left_out) {
    Answer answer;
    answer.engine = "inversion";
    answer.step = step;
    answer.size = size;
    answer.wrap_around = at.scaled(at.aliasing);
    answer.truncation = 2 * at.scaled(at.tail) + left_out;
    answer.discretisation = 2 * at.scaled(at.quadrature) + at.scaled(at.noise);
    answer.round_off = 2 * at.scaled(at.round_off);
    return answer;
}

std::optional<Answer> delta_answer(Answer terms, const Inverted& at, double least, double most) {
    // Where delta is denormal, products round by a unit of the last place.
    terms.lower = std::max(0.0, at.lower() + least - 5e-324);
    terms.upper = std::min(1.0, at.upper() + most + 5e-324);
    return terms.lower <= terms.upper ? std::optional(terms) : std::nullopt;
}

std::optional<Answer> epsilon_answer(Answer terms, const InvertedAt& inverted, const Inverted& at,
                                     double epsilon, double delta, double least, double most) {
    const auto [lower, upper] = bracket(inverted, at, epsilon, delta, least, most);
    terms.lower = lower;
    terms.upper = upper;
    return upper < infinity ? std::optional(terms) : std::nullopt;
}

}  // namespace hockeystick
