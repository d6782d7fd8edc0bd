#include "inversion/one_epoch.hpp"

#include <algorithm>
#include <cmath>

#include "hockeystick/parallel.hpp"
#include "inversion/allocation_few_steps.hpp"
#include "inversion/allocation_parts.hpp"
#include "inversion/direct_inversion.hpp"
#include "numerics/complex.hpp"
#include "numerics/constants.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

// All of these are for speed. Each source of error aims at this share of delta, and where the frequencies
// left out come to more than the second they are not worth computing the others.
constexpr double wanted_share = 1e-12, worst_share = 1e-6, nothing = 1e-10;
constexpr std::size_t least_frequencies = 16;
constexpr int most_retreats = 12;
// Which s x is hardly ever exceeded, where exponentials of far more take many nodes; how closely ln s is
// found.
constexpr double most_exponent = 1e3, close_tilt = 0.05;
// Smaller deltas and larger losses are left to others, and so are laws without digits, or with too few
// frequencies. That layers' widths have their digits rests on the least mu, too: proof.
constexpr double least_delta = 1e-60, largest_loss = 100;
constexpr double least_mu = 1e-4, largest_mu = 5, least_steps = 6, most_steps = 1e9;
constexpr double least_log_wanted = -10;
// Less mu T than that makes few nodes of few steps.
constexpr double much_noise = 0.4;
// In direction add the whole transform falls fast enough where mu^2 T is less.
constexpr double few_for_put = 2000;
// One W may decide alone where x is so large, and so many standard deviations of V more than that; and it
// does where the series' error is at most this share, for one of these cuts, as shares of it.
constexpr double least_jump = 0.3, least_deviations = 4, good_series = 3e-9, poor_series = 1e-6;
constexpr double many_steps = 1e4;
// Beyond the lowest cut that has all digits least is left of two.
constexpr double cuts_alone[] = {0.15, 0.25, 0.35, 0.4, 0.45, 0.5}, all_digits = 1e-13;
// (c - V)_+ has digits enough beside c where delta is no less, and is asked first where V is that wide, as
// the whole transform falls too slowly then. How much larger than c the ratio alone is that ends the nodes:
// proof, as no larger c is asked there.
constexpr double least_beside_put = 1e-6, wide_spread = 0.5, beyond_put = 3;
// How closely a first guess in direction add is looked for.
constexpr int halvings = 10;
// By so many nats more than for its own point a curve's line has aliases fall.
constexpr double room_for_neighbours = 20;

// What line_through must count beside a payoff (1 - e^{-x})_+ for x_+, at most e^{sx}/(e s).
double beside_chernoff(double s) { return -1 - std::log(std::abs(s)) - log_chernoff(s); }

// The line where e^{K(s) - sx}/s^2 is least, s of that sign.
double best_tilt(const AllocationPart& part, int sign, double x, double spread) {
    const auto height = [&](double log_s) {
        const double s = sign * std::exp(log_s);
        const CutStep::Log log = part.at(s);
        return std::isfinite(log.error) ? log.value.real() - s * x - 2 * log_s : infinity;
    };
    const double first = std::log(1e-3 / (std::abs(x) + spread)),
                 last = std::log(std::max(1e7, 1e3 / spread)),
                 likely = x > 0 ? std::min(std::log(most_exponent / x), last) : last;
    double log_s = lowest(first, likely, close_tilt, height);
    if (likely < last && log_s > likely - 2 * close_tilt) log_s = lowest(likely, last, close_tilt, height);
    double s = sign * std::exp(log_s);
    // The least may lie where there is hardly any more.
    for (int i = 0; i < most_retreats && !std::isfinite(part.at(1.1 * s).error); ++i) s *= 0.9;
    return s;
}

std::optional<Contour> contour_for(const AllocationPart& part, int sign, double x, double spread,
                                   double log_delta, std::size_t most, double room) {
    const double s = best_tilt(part, sign, x, spread), h = 0.02 * std::abs(s);
    const CutStep::Log middle = part.at(s), above = part.at(s + h), below = part.at(s - h);
    SaddlePoint saddle{};
    saddle.s = s;
    saddle.k.value = middle.value.real();
    saddle.k.second = (above.value.real() + below.value.real() - 2 * saddle.k.value) / (h * h);
    if (!std::isfinite(middle.error)) return {};
    const double log_scale = saddle.k.value - s * x;
    if (log_scale + middle.error + beside_chernoff(s) + log_chernoff(s) < log_delta + std::log(nothing))
        // Of what is e^{sx}/(e s) at most.
        return Contour::of_nothing(s, saddle.k.value, 1.01 * std::exp(middle.error - 1) / std::abs(s));
    if (most == 0) return {};
    const double log_wanted = std::min(std::log(wanted_share) + log_delta - log_scale, least_log_wanted);
    const auto upper = [&](double other) {
        const CutStep::Log log = part.at(other);
        return Cumulant{0, 0, 0, log.value.real() + log.error + beside_chernoff(other)};
    };
    auto contour = line_through(saddle, x, log_delta, log_wanted + log_scale - room, 0, upper);
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

struct OneEpoch::Parts : Split {
    bool add = false;
    double most_x = infinity;  // of V - 1
    Inverted at(double epsilon) const {
        const double x = std::expm1(add ? -epsilon : epsilon);
        Inverted out = invert(lines, x);
        if (!(x <= most_x)) out.tail = infinity;
        if (!add) {
            out.slope *= std::exp(epsilon);
            return with_others(out, epsilon);
        }
        // e^eps E[(e^-eps - V)_+]
        out.slope = -out.value - std::exp(-epsilon) * out.slope;
        out.log_scale += epsilon;
        out.round_off += u * std::abs(out.value) * (4 + 2 * (std::abs(epsilon) + std::abs(out.log_scale)));
        return out;
    }
};

OneEpoch::OneEpoch(const Allocation& law) : law_(law), kept_(std::make_unique<KeptLines<Parts>>()) {}
OneEpoch::~OneEpoch() = default;

void OneEpoch::keep_lines(bool whether) const { kept_->keep(whether); }

std::unique_ptr<OneEpoch> OneEpoch::of(const Composition& composition) {
    if (composition.size() != 1 || composition.front().second != 1) return nullptr;
    const auto law = composition.front().first->allocation();
    if (!law || !(law->mu >= least_mu && law->mu <= largest_mu) ||
        !(law->steps > 1 && law->steps <= most_steps) ||
        (FewSteps::serves(*law) && (law->steps < least_steps || law->mu * law->steps < much_noise)))
        return nullptr;
    std::unique_ptr<OneEpoch> out(new OneEpoch(*law));
    const bool direct = out->spread() < wide_spread || law->mu * law->mu * law->steps < few_for_put;
    return law->add && direct ? nullptr : std::move(out);
}

// No ratio alone exceeds c + beyond_put where V does not.
CutStep OneEpoch::step_of_put(double x) const {
    return CutStep::at(law_, std::log(law_.steps * (1 + x + beyond_put)) / law_.mu + 0.5 * law_.mu,
                       most_halvings);
}

// E[(c - V)_+], and 1 - c in direction remove.
std::optional<OneEpoch::Parts> OneEpoch::by_put(double epsilon, double delta, LineBudget budget) const {
    const double x = std::expm1(law_.add ? -epsilon : epsilon),
                 log_delta = std::log(delta) - (law_.add ? epsilon : 0);
    const CutStep step = step_of_put(x);
    auto line = contour_for(Bulk(law_, step), -1, x, spread(), log_delta, budget.most, budget.room);
    if (!line) return {};
    return Parts{{{std::move(*line)}, Decided(1, 1, 1)}, law_.add, x + beyond_put};
}

std::optional<OneEpoch::Parts> OneEpoch::in_two(double x, double delta, LineBudget budget) const {
    const double log_delta = std::log(delta);
    const CutStep step(law_, mass_beyond_first_cut(delta), most_halvings);
    auto bulk = contour_for(Bulk(law_, step), +1, x, spread(), log_delta, budget.most, budget.room);
    auto rest = bulk ? contour_for(Rest(law_, step), -1, x, spread(), log_delta, budget.most, budget.room)
                     : std::nullopt;
    if (!rest) return {};
    return Parts{{{std::move(*bulk), std::move(*rest)}, Decided(law_, 1, step.end())}};
}

std::optional<OneEpoch::Parts> OneEpoch::by_series(double x, double delta, double worst,
                                                   LineBudget budget) const {
    auto large = alone(x, worst);
    if (!large) return {};
    auto bulk =
        contour_for(Bulk(law_, large->first), +1, x, spread(), std::log(delta), budget.most, budget.room);
    if (!bulk) return {};
    return Parts{{{std::move(*bulk)}, std::move(large->second)}};
}

// In two parts, or by one ratio alone where that is closer.
std::optional<OneEpoch::Parts> OneEpoch::in_parts(double epsilon, double delta, LineBudget budget) const {
    const double x = std::expm1(epsilon);
    if (auto alone = by_series(x, delta, good_series, {0})) return alone;
    auto parts = law_.steps >= least_steps ? in_two(x, delta, budget) : std::nullopt;
    const auto gap_of = [&](const std::optional<Parts>& which) {
        return which ? relative_gap(answer_by(*which, epsilon)) : infinity;
    };
    const double gap = gap_of(parts);
    if (gap <= good_series) return parts;
    const LineBudget beside = law_.steps >= many_steps ? budget : LineBudget{0};
    auto alone = by_series(x, delta, std::min(gap, poor_series), beside);
    return gap_of(alone) < gap ? std::move(alone) : std::move(parts);
}

// delta: about that.
std::optional<OneEpoch::Parts> OneEpoch::parts_at(double epsilon, double delta, LineBudget budget) const {
    if (!(delta > least_delta && epsilon < largest_loss)) return {};
    interruption_point();
    if (law_.add) return by_put(epsilon, delta, budget);
    const bool put = law_.steps >= least_steps && delta > least_beside_put, first = spread() > wide_spread;
    std::optional<Parts> parts;
    if (put && first) parts = by_put(epsilon, delta, budget);
    if (!parts) parts = in_parts(epsilon, delta, budget);
    if (!parts && put && !first) parts = by_put(epsilon, delta, budget);
    return parts;
}

// The outcomes with a W beyond a cut, and that, where there is one that suits the series.
std::optional<std::pair<CutStep, LargeRatios>> OneEpoch::alone(double x, double worst) const {
    std::optional<std::pair<CutStep, LargeRatios>> best;
    double least = worst;
    for (const double share : cuts_alone) {
        if (!(x > least_jump + least_deviations * spread())) break;
        const CutStep cut =
            CutStep::at(law_, std::log(law_.steps * x * share) / law_.mu + 0.5 * law_.mu, most_halvings);
        if (!(cut.end() > law_.mu)) break;
        LargeRatios large(law_, cut);
        const Inverted at = large.at(std::log1p(x));
        const double error = std::max((at.quadrature + at.round_off) / at.value, all_digits);
        if (!(at.value > 0 && error < least)) continue;
        least = error;
        best.emplace(cut, std::move(large));
    }
    return best;
}

// The standard deviation of V.
double OneEpoch::spread() const {
    return std::sqrt(std::expm1(std::min(law_.mu * law_.mu, 50.0)) / law_.steps);
}

// By Chernoff's bound; in direction remove of what is left where V is a normal variable or one W alone is
// that large, as far as that is likelier.
double OneEpoch::guess(double epsilon) const {
    const double x = std::expm1(law_.add ? -epsilon : epsilon);
    if (!law_.add && !(x > 0)) return 0.5;
    const double g = std::log(1 + law_.steps * std::abs(x)) / law_.mu + 0.5 * law_.mu,
                 least = law_.add ? 0 : gaussian_tail(x / spread()) + gaussian_tail(g - law_.mu);
    const CutStep step =
        law_.add ? step_of_put(x)
                 : CutStep(law_, mass_beyond_first_cut(std::max(least, least_delta)), most_halvings);
    const Bulk part(law_, step);
    const double s = best_tilt(part, law_.add ? -1 : +1, x, spread()),
                 log = part.at(s).value.real() - s * x - 1 + (law_.add ? epsilon : 0);
    return std::min(0.5, std::max(least, std::exp(log) / std::abs(s)));
}

std::optional<Answer> OneEpoch::delta_bounds(double epsilon, std::size_t most) const {
    std::optional<Parts> parts;
    return delta_bounds(epsilon, {most}, parts);
}

std::vector<std::optional<Answer>> OneEpoch::delta_curve(std::span<const double> epsilons, std::size_t most,
                                                         Sharing sharing) const {
    return curve_by_lines<Parts>(
        epsilons, sharing,
        [&](double epsilon, std::optional<Parts>& parts) {
            return delta_bounds(epsilon, {most, room_for_neighbours}, parts);
        },
        answer_by<Parts>, kept_.get());
}

// parts: of the last guess.
std::optional<Answer> OneEpoch::delta_bounds(double epsilon, LineBudget budget,
                                             std::optional<Parts>& parts) const {
    return delta_in_rounds(epsilon, guess(epsilon), parts,
                           [&](double about) { return parts_at(epsilon, about, budget); });
}

std::optional<Answer> OneEpoch::epsilon_bounds(double delta, std::size_t most) const {
    if (!(delta > least_delta)) return {};
    const double target = std::log(delta), mu = law_.mu,
                 jump = std::exp(mu * (CutStep(law_, delta, 0).end() - 0.5 * mu)) / law_.steps;
    double first = std::log1p(std::max(spread() * std::sqrt(-2 * target), jump));
    if (law_.add) {
        double low = 0, high = 0.5 * first + mu * mu;
        for (int i = 0; i < halvings; ++i) {
            first = 0.5 * (low + high);
            (guess(first) < delta ? high : low) = first;
        }
    }
    return epsilon_in_rounds(delta, first, [&](double epsilon) { return parts_at(epsilon, delta, {most}); });
}

}  // namespace hockeystick
