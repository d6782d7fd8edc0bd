#include "inversion/one_epoch.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

#include "hockeystick/parallel.hpp"
#include "numerics/complex.hpp"
#include "numerics/constants.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

using Complex = std::complex<double>;
constexpr double pi = std::numbers::pi;

// All of these are for speed. Each source of error aims at this share of delta, and where the frequencies
// left out come to more than the second they are not worth computing the others.
constexpr double wanted_share = 1e-12, worst_share = 1e-3;
constexpr double nothing = 1e-10;
// The higher the frequency, the more nodes it takes: so many frequencies share theirs.
constexpr std::size_t block = 32;
constexpr std::size_t least_frequencies = 16;
// The P-mass of the outcomes with a large W, beside delta.
constexpr double mass_beside_delta = 1e3, most_mass = 0.1;
// Smaller deltas and larger losses are left to others, and so are laws without digits, or with too few
// frequencies. That layers' widths have their digits rests on the least mu, too: proof.
constexpr double least_delta = 1e-60, largest_loss = 50;
constexpr double least_mu = 1e-4, largest_mu = 5, least_steps = 8, most_steps = 1e9;
constexpr double largest_exponent = 700;
constexpr double least_log_wanted = -10;
constexpr int most_rounds = 8, most_halvings = 9;
constexpr double smallest_step = 1e-6, near_enough = 2.5;

// What line_through must count beside a payoff (1 - e^{-x})_+ for x_+, at most e^{sx}/(e s).
double beside_chernoff(double s) { return -1 - std::log(std::abs(s)) - log_chernoff(s); }

// ln E[e^{s(V-1)}; outcomes of one part] on a line, and how it falls there.
class Part {
public:
    virtual ~Part() = default;
    virtual CutStep::Log at(double s) const = 0;
    // For what is left out and the integrand, at one s.
    virtual std::function<double(double tau)> log_decay(double s) const = 0;
    virtual std::vector<CutStep::Log> row(double s, double step, std::size_t size) const = 0;
    virtual int sign() const = 0;  // of s
};

// No W is large.
class Bulk final : public Part {
public:
    Bulk(const Allocation& law, const CutStep& step) : law_(law), step_(step) {}
    int sign() const override { return 1; }
    CutStep::Log at(double s) const override {
        if (!(s / law_.steps * step_.largest() < largest_exponent)) return {0, infinity};
        return step_.log_below(step_.nodes_below(s), s);
    }
    std::function<double(double)> log_decay(double s) const override {
        const CutStep::Log log = at(s);
        const double one = std::exp((log.value.real() + log.error) / law_.steps) * (1 + 4 * u);
        return [this, one, layers = StepLayers(law_, step_.end(), s / law_.steps)](double tau) {
            return law_.steps * std::log1p(-std::min(1.0, layers.lost(tau / law_.steps) / one)) * (1 - 1e-12);
        };
    }
    std::vector<CutStep::Log> row(double s, double step, std::size_t size) const override {
        std::vector<CutStep::Log> out(size);
        parallel_ranges(size, block, [&](std::size_t begin, std::size_t end) {
            const CutStep::Nodes nodes = step_.nodes_below({s, step * static_cast<double>(end)});
            for (std::size_t j = begin; j < end; ++j)
                out[j] = step_.log_below(nodes, {s, step * static_cast<double>(j)});
        });
        return out;
    }

private:
    const Allocation& law_;
    const CutStep& step_;
};

// Some W is large: (phi + r)^T - phi^T, phi below the cut and r beyond it.
class Rest final : public Part {
public:
    Rest(const Allocation& law, const CutStep& step) : law_(law), step_(step) {}
    int sign() const override { return -1; }
    CutStep::Log at(double s) const override {
        return join(step_.log_below(step_.nodes_below(s), s), step_.beyond(step_.nodes_beyond(s), s));
    }
    // |(phi + r)^T - phi^T| <= T |r| (|phi| + |r|)^{T-1}
    std::function<double(double)> log_decay(double s) const override {
        const CutStep::Log log = step_.log_below(step_.nodes_below(s), s),
                           beyond = step_.beyond(step_.nodes_beyond(s), s), whole = join(log, beyond);
        const double one = std::exp((log.value.real() + log.error) / law_.steps) * (1 + 4 * u),
                     r = beyond.value.real() + beyond.error,
                     log_front = std::log(law_.steps * r) - whole.value.real() + whole.error + 1e-9;
        // The tilted density f of W falls from the cut on: |r| <= 2 f/|Im s/T| as well.
        const double g = step_.end(), mu = law_.mu, excess = std::expm1(mu * (g - 0.5 * mu)),
                     log_edge = std::log(2 * law_.steps / (mu * std::sqrt(2 * pi)) / r) - 0.5 * g * g -
                                std::log1p(excess) + s * excess / law_.steps + 1e-9;
        return [this, one, r, log_front, log_edge,
                layers = StepLayers(law_, step_.end(), s / law_.steps)](double tau) {
            const double left = one - layers.lost(tau / law_.steps) + r;
            return log_front + std::min(0.0, log_edge - std::log(tau)) +
                   (law_.steps - 1) * std::log(std::max(left, r));
        };
    }
    std::vector<CutStep::Log> row(double s, double step, std::size_t size) const override {
        std::vector<CutStep::Log> out(size);
        parallel_ranges(size, block, [&](std::size_t begin, std::size_t end) {
            const CutStep::Nodes below = step_.nodes_below({s, step * static_cast<double>(end)});
            const CutStep::Nodes beyond = step_.nodes_beyond({s, step * static_cast<double>(end)});
            for (std::size_t j = begin; j < end; ++j) {
                const Complex z(s, step * static_cast<double>(j));
                out[j] = join(step_.log_below(below, z), step_.beyond(beyond, z));
            }
        });
        return out;
    }

private:
    CutStep::Log join(const CutStep::Log& log, const CutStep::Log& beyond) const {
        const double t = law_.steps;
        // Hardly more than its size is known: |(phi + r)^T - phi^T| <= T |r| (|phi| + |r|)^{T-1}.
        if (!(log.error < 1)) {
            const double most = std::abs(beyond.value) + beyond.error;
            const double size = std::exp((log.value.real() + log.error) / t) * (1 + 4 * u) + most;
            return {std::log(t * most) + (t - 1) * std::log(size) * (1 + 8 * u), std::log(3.0) + 1e-9};
        }
        const Complex phi = std::exp(log.value / t), r = beyond.value / phi;
        // e^{x} - 1 moves by |dx| e^{|x| + |dx|}, and x by T |dr|/(1 - |r| - |dr|).
        const double dr = beyond.error / std::abs(phi) + std::abs(r) * (std::expm1(log.error / t) + 8 * u);
        if (!(std::abs(r) + dr < 0.5)) return {0, infinity};
        const Complex x = t * log1p(r), whole = expm1(x);
        const double dx = 2 * t * dr + 8 * u * std::abs(x),
                     error = dx * std::exp(std::min(std::abs(x) + dx, 700.0)) + 8 * u * std::abs(whole);
        const double size = std::abs(whole);
        if (!(error < 0.5 * size))
            return {log.value.real() + std::log(size + error), std::log(3.0) + 1e-9 + log.error};
        const Complex sum = log.value + std::log(whole);
        return {sum, log.error + 2 * error / size + 8 * u * std::abs(sum)};
    }
    const Allocation& law_;
    const CutStep& step_;
};

// The line where e^{K(s) - sx}/s^2 is least.
double best_tilt(const Part& part, double x, double spread) {
    const auto height = [&](double log_s) {
        const double s = part.sign() * std::exp(log_s);
        const CutStep::Log log = part.at(s);
        return std::isfinite(log.error) ? log.value.real() - s * x - 2 * log_s : infinity;
    };
    const double golden = 0.5 * (std::sqrt(5.0) - 1);
    double low = std::log(1e-3 / (std::abs(x) + spread)), high = std::log(std::max(1e7, 1e3 / spread)),
           a = high - golden * (high - low), b = low + golden * (high - low), at_a = height(a),
           at_b = height(b);
    while (high - low > 0.05) {
        if (at_a < at_b || !(at_b < infinity)) {
            high = b, b = a, at_b = at_a;
            at_a = height(a = high - golden * (high - low));
        } else {
            low = a, a = b, at_a = at_b;
            at_b = height(b = low + golden * (high - low));
        }
    }
    return part.sign() * std::exp(0.5 * (low + high));
}

// Of what is e^{sx}/(e s) at most the share of one: no more than that is known.
Contour next_to_nothing(double s, const CutStep::Log& log) {
    Contour out{};
    out.s = s;
    out.scale = log.value.real();
    out.tail = 1.01 * std::exp(log.error - 1) / std::abs(s);
    out.step = out.right_shift = out.left_shift = 1;
    out.log_right = out.log_left = -infinity;
    return out;
}

std::optional<Contour> contour_for(const Part& part, double x, double spread, double log_delta,
                                   std::size_t most) {
    const double s = best_tilt(part, x, spread), h = 0.02 * std::abs(s);
    const CutStep::Log middle = part.at(s), above = part.at(s + h), below = part.at(s - h);
    SaddlePoint saddle{};
    saddle.s = s;
    saddle.k.value = middle.value.real();
    saddle.k.second = (above.value.real() + below.value.real() - 2 * saddle.k.value) / (h * h);
    if (!std::isfinite(middle.error)) return {};
    const double log_scale = saddle.k.value - s * x;
    if (log_scale + middle.error + beside_chernoff(s) + log_chernoff(s) < log_delta + std::log(nothing))
        return next_to_nothing(s, middle);
    const double log_wanted = std::min(std::log(wanted_share) + log_delta - log_scale, least_log_wanted);
    const auto upper = [&](double other) {
        const CutStep::Log log = part.at(other);
        return Cumulant{0, 0, 0, log.value.real() + log.error + beside_chernoff(other)};
    };
    auto contour = line_through(saddle, x, log_delta, log_wanted + log_scale, 0, upper);
    if (!contour) return {};
    const auto decay = part.log_decay(s);
    const auto tail = [&](std::size_t size) {
        return tail_from(contour->step, size,
                         [&](double tau) { return std::exp(decay(tau) + middle.error); });
    };
    const CutOff end = cut_off(least_frequencies, most, std::exp(log_wanted), tail);
    contour->tail = end.tail;
    if (!(end.tail < std::exp(log_wanted) / wanted_share * worst_share)) return {};
    const auto row = part.row(s, contour->step, end.size);
    for (std::size_t j = 0; j < row.size(); ++j) {
        const Complex z(s, contour->step * static_cast<double>(j)),
            weight = (j == 0 ? 0.5 : 1.0) * contour->step / pi / (z * z);
        const double value = std::exp(row[j].value.real() - contour->scale);
        contour->integrand.push_back(std::polar(value, row[j].value.imag()) * weight);
        contour->error.push_back(
            value * std::abs(weight) *
            (std::expm1(row[j].error) + u * (16 + 4 * (std::abs(row[j].value) + std::abs(contour->scale)))));
        if (!std::isfinite(contour->error.back())) return {};
    }
    return contour;
}

}  // namespace

// Both lines, and what is known of the outcomes with a large W: E[V - e^eps; they] = p - e^eps q.
struct OneEpoch::Parts {
    std::array<Contour, 2> lines;
    double p, q, rounding;

    Inverted at(double epsilon) const {
        Inverted out = invert(lines, std::expm1(epsilon));
        const double c = std::exp(epsilon), log_scale = std::max(out.log_scale, std::log(p)),
                     scale = std::exp(out.log_scale - log_scale), unit = std::exp(-log_scale);
        const double size = std::abs(out.value) + out.aliasing + out.tail + out.quadrature,
                     others = (p + c * q) * unit;
        out.value = out.value * scale + (p - c * q) * unit;
        out.slope = (out.slope * scale + q * unit) * c;
        out.aliasing *= scale;
        out.tail *= scale;
        out.quadrature *= scale;
        out.round_off = out.round_off * scale +
                        u * (size * scale * (16 + 4 * (std::abs(log_scale) + std::abs(out.log_scale))) +
                             others * (rounding + 4 * std::abs(log_scale)));
        out.log_scale = log_scale;
        return out;
    }
    Answer describe(const Inverted& at) const {
        return hockeystick::describe(at, lines[0].step,
                                     lines[0].integrand.size() + lines[1].integrand.size());
    }
};

std::unique_ptr<OneEpoch> OneEpoch::of(const Composition& composition) {
    if (composition.size() != 1 || composition.front().second != 1) return nullptr;
    const auto law = composition.front().first->allocation();
    if (!law || law->add || !(law->mu >= least_mu && law->mu <= largest_mu) ||
        !(law->steps >= least_steps && law->steps <= most_steps))
        return nullptr;
    return std::unique_ptr<OneEpoch>(new OneEpoch(*law));
}

// delta: about that.
std::optional<OneEpoch::Parts> OneEpoch::parts_at(double epsilon, double delta, std::size_t most) const {
    if (!(delta > least_delta && epsilon < largest_loss)) return {};
    interruption_point();
    const CutStep step(law_, std::min(most_mass, mass_beside_delta * delta), most_halvings);
    const double x = std::expm1(epsilon), log_delta = std::log(delta);
    auto bulk = contour_for(Bulk(law_, step), x, spread(), log_delta, most);
    if (!bulk) return {};
    auto rest = contour_for(Rest(law_, step), x, spread(), log_delta, most);
    if (!rest) return {};
    const double others = (law_.steps - 1) * std::log1p(-step.beyond_q());
    return Parts{{std::move(*bulk), std::move(*rest)},
                 -std::expm1(std::log1p(-step.beyond_p()) + others),
                 -std::expm1(std::log1p(-step.beyond_q()) + others),
                 // Squares of the cut round, and so does its distance from mu.
                 64 + 8 * step.end() * step.end()};
}

// The standard deviation of V. First guesses are where V is a normal variable, or one W alone is that large.
double OneEpoch::spread() const {
    return std::sqrt(std::expm1(std::min(law_.mu * law_.mu, 50.0)) / law_.steps);
}

double OneEpoch::guess(double x) const {
    if (!(x > 0)) return 0.5;
    const double g = std::log(1 + law_.steps * x) / law_.mu + 0.5 * law_.mu;
    return std::min(0.5, gaussian_tail(x / spread()) + gaussian_tail(g - law_.mu));
}

std::optional<Answer> OneEpoch::delta_bounds(double epsilon, std::size_t most) const {
    std::optional<Answer> best;
    double about = guess(std::expm1(epsilon));
    for (int round = 0; round < most_rounds; ++round) {
        const auto parts = parts_at(epsilon, about, most);
        if (!parts) break;
        const Inverted at = parts->at(epsilon);
        const auto answer = delta_answer(parts->describe(at), at);
        if (!answer) break;
        if (!best || answer->upper - answer->lower < best->upper - best->lower) best = answer;
        if (std::abs(std::log(answer->upper / about)) < near_enough) break;
        about = answer->upper;
    }
    return best;
}

std::optional<Answer> OneEpoch::epsilon_bounds(double delta, std::size_t most) const {
    if (!(delta > least_delta)) return {};
    const double target = std::log(delta), mu = law_.mu,
                 jump = std::exp(mu * (CutStep(law_, delta, 0).end() - 0.5 * mu)) / law_.steps;
    double epsilon = std::log1p(std::max(spread() * std::sqrt(-2 * target), jump));
    for (int round = 0; round < most_rounds; ++round) {
        const auto parts = parts_at(epsilon, delta, most);
        if (!parts) return {};
        const InvertedAt inverted = [&](double e) { return parts->at(e); };
        const double before = epsilon;
        const Inverted at = newton(inverted, target, epsilon);
        // The lines suit an epsilon at which delta is much the same.
        if (epsilon < smallest_step * before) epsilon = 0;
        Answer terms = parts->describe(at);
        if (epsilon == 0 && before == 0 && at.upper() <= delta) return terms;
        if (!(at.value > 0)) return {};
        if (std::abs(epsilon - before) > 0.02 * epsilon && round + 1 < most_rounds) continue;
        return epsilon_answer(std::move(terms), inverted, at, epsilon, delta);
    }
    return {};
}

}  // namespace hockeystick
