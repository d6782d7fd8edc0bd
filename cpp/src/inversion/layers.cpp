#include "inversion/layers.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "numerics/complex.hpp"
#include "numerics/constants.hpp"
#include "numerics/powers.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

// All of these are for speed.
constexpr std::size_t most_frequencies = 4096, least_frequencies = 20;
// So many dear values of company are asked for in vain.
constexpr std::size_t most_in_vain = 1024;
constexpr int most_rounds = 5;      // of planning and solving
constexpr double few_steps = 8;     // so few powers of a measure do not make it fall
constexpr double few_factors = 16;  // whose terms' moduli, to that power, tell where a bottom has fallen
constexpr double most_lost = 1.5;   // by so much ln e^{K(s) - s eps} may grow for a shorter period
constexpr double near = 0.2;        // to ln delta an estimate may be
constexpr double too_far = 3;       // of bounds that lie so many nats above their values nothing is learnt
// Of the windows: narrow ones serve larger tilts, and need more nodes and frequencies; wide ones fewer.
constexpr double sharpest = 0.12, sharpnesses[] = {1, 0.35, sharpest, 2.5};
constexpr double wide = 1e-3;  // beside its upper end, an interval that calls for another attempt

}  // namespace

Layers::Layers(const std::vector<Kind>& kinds, Beside beside, double tolerance,
               std::shared_ptr<std::size_t> in_vain)
    : measures_(kinds), beside_(std::move(beside)), tolerance_(tolerance), in_vain_(std::move(in_vain)) {
    if (!measures_.any_joined()) return;
    most_at_bottom_ = most_frequencies;
    most_products_ = 1e8;
}

// The epsilon that cuts, windows and first tilts are chosen for: below the sum's deviation those for that do
// as well, and finer ones would be many.
double Layers::planned(double epsilon) const { return std::max(epsilon, beside_.deviation); }

bool Layers::prepare(double log_mass, double epsilon) {
    contours_.clear();
    if (!measures_.cut(log_mass, planned(epsilon), sharpness_, tolerance_)) return false;
    layer_tilt_.assign(measures_.cuts().loss.size(), 0);
    bottom_tilt_ = layer_tilt_;
    return true;
}

// The outputs that are A: of the bottom all of it, of a layer what lies below it.
LayerMeasures::Which Layers::below(Which which, std::size_t kind) const {
    return {kind, which.cut - (which.bottom ? 0 : 1), false};
}

Cumulant Layers::cumulant(Which which, double s) {
    Cumulant k = gaussian_steps(beside_.variance, s);
    for (const Company& other : beside_.company) k.add(other.transform->at(s), other.count);
    double y = 0, y1 = 0, y2 = 0, y_upper = 0;
    for (std::size_t kind = 0; kind < measures_.counts().size(); ++kind) {
        const double n = measures_.counts()[kind];
        const LayerMeasures::Sums a = measures_.sums(below(which, kind), s);
        k.value += n * a.value;
        k.first += n * a.mean;
        k.second += n * a.variance;
        k.upper += n * a.upper;
        if (which.bottom) continue;
        const LayerMeasures::Sums b = measures_.sums({kind, which.cut, true}, s);
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
    k.upper += 16 * u * (measures_.steps() + std::abs(k.upper));
    return k;
}

// The saddle at eps, or the best tilt that was tried; or where a bound of the layer is below e^enough.
Layers::Tilt Layers::tilt(Which which, double epsilon, double enough) {
    Tilt out;
    out.log_least = infinity;
    double& hint = (which.bottom ? bottom_tilt_ : layer_tilt_)[which.cut];
    search_tilt(hint > 0 ? hint : 1 / planned(epsilon), 1e-3, [&](double s) -> Judgement {
        const SaddlePoint point = SaddlePoint::at(s, cumulant(which, s));
        const double bound = log_chernoff(s) + point.k.upper, off = point.epsilon - epsilon;
        // Of tilts that are too large for the windows the bound tells nothing.
        const bool fine = std::isfinite(off) && point.k.upper < point.k.value + too_far;
        if (fine && bound - s * epsilon < out.log_least) {
            hint = s;
            out = {point, true, point.log_delta + s * off, bound, bound - s * epsilon};
        }
        const bool close = std::abs(off) * s < 0.3 * std::max(1.0, s * std::sqrt(point.curvature));
        return {fine, close || out.log_least < enough, off, s * point.curvature};
    });
    return out;
}

// Empty where a layer without nodes is not without mass.
std::optional<Layers::Ceiling> Layers::ceiling(Which which, double s, double wanted) {
    Ceiling out{s, beside_, measures_.counts(), {}, {}, {}, {}, {}, {}};
    for (const Company& other : beside_.company) {
        out.log_company.push_back(other.transform->at(s).upper);
        out.company_decays.push_back(other.transform->decay(s, out.log_company.back()));
    }
    for (std::size_t kind = 0; kind < out.counts.size(); ++kind) {
        out.log_a.push_back(measures_.sums(below(which, kind), s).upper);
        out.below.push_back(measures_.along(below(which, kind), s, wanted / out.counts[kind]));
        if (which.bottom) {
            const auto mixtures = measures_.mixtures(below(which, kind));
            out.decays.push_back(mixtures.empty() ||
                                         (tolerance_ > few_digits && measures_.counts()[kind] <= few_factors)
                                     ? nullptr
                                     : std::make_unique<Decay>(mixtures, s, out.log_a.back()));
            continue;
        }
        const FallingSum& b = out.between.emplace_back(measures_.along({kind, which.cut, true}, s, wanted));
        if (!(b.fixed_error < infinity) || (b.empty() && b.fixed_error > 0)) return {};
    }
    return out;
}

double Layers::Ceiling::log_at(double tau) const {
    const double variance = beside.variance;
    double sum = -0.5 * variance * tau * tau * (1 - 8 * u), y = 0;
    if (variance > 0) sum += 0.5 * variance * s * (s + 1) * (1 + 4 * u);
    for (std::size_t i = 0; i < log_company.size(); ++i)
        sum += beside.company[i].count * (log_company[i] + company_decays[i]->log_bound(tau) * (1 - 1e-12));
    for (std::size_t kind = 0; kind < counts.size(); ++kind) {
        double a = log_a[kind];
        if (!decays.empty() && decays[kind])
            a += decays[kind]->log_bound(tau) * (1 - 1e-12);
        else
            a = std::min(a, std::log(below[kind].bound(tau)) + below[kind].shift);
        sum += counts[kind] * a;
        if (!between.empty() && !between[kind].empty())
            y += counts[kind] *
                 std::log1p(between[kind].bound(tau) * std::exp(std::max(between[kind].shift - a, -690.0)));
    }
    return (between.empty() ? sum : sum + log_expm1(y)) + 1e-13 * (1 + std::abs(sum));
}

std::optional<Contour> Layers::contour(Which which, const Tilt& tilt, double epsilon, double log_wanted,
                                       std::size_t most) {
    SaddlePoint saddle = tilt.saddle;
    const double log_goal = std::min(log_wanted, saddle.k.value - saddle.s * epsilon - 1);
    // Its rule's error, which joined parts have more of, grows as well.
    const double lost = tolerance_ > few_digits && !measures_.any_joined() ? most_lost : 0;
    auto out = line_through(saddle, epsilon, tilt.log_delta, log_goal, lost,
                            [&](double at) { return cumulant(which, at); });
    if (!out) return {};
    const double s = saddle.s, log_enough = log_goal - (saddle.k.value - s * epsilon),
                 enough = std::exp(log_enough), negligible = 0.01 * enough;
    if (!(enough > 0)) return {};
    // A Gaussian would need so many frequencies; whatever falls more slowly needs more.
    if (which.bottom && std::sqrt(-2 * log_enough / std::max(saddle.k.second, 1e-300)) >
                            out->step * static_cast<double>(most))
        return {};
    const auto high = ceiling(which, s, negligible);
    if (!high) return {};
    const CutOff end = cut_off(least_frequencies, most, enough, [&](std::size_t size) {
        return tail_from(out->step, size,
                         [&](double tau) { return std::exp(high->log_at(tau) - out->scale); });
    });
    // A layer may do with less.
    if (!(end.tail <= enough) && (which.bottom || !(end.tail < 1e3 * enough))) return {};
    out->tail = end.tail;
    if (!fill(*out, end.size, high->below, high->between, negligible)) return {};
    return out;
}

// A^T and, of a layer, (A+B)^T in its place, at every frequency; false where a row is of no use.
bool Layers::add_rows(std::vector<DifferenceOfPowers>& sums, const FallingSum& a, const FallingSum* b,
                      double count, double step, double negligible) {
    const std::size_t size = sums.size();
    const FallingSum::Row a_row = a.row(step, size, negligible / count);
    const bool some = b && !b->empty();
    const FallingSum::Row b_row = some ? b->row(step, size, negligible) : FallingSum::Row{};
    // An infinite error would get lost among ratios.
    const auto infinite = [](double error) { return !(error < infinity); };
    if (std::any_of(a_row.error.begin(), a_row.error.end(), infinite) ||
        std::any_of(b_row.error.begin(), b_row.error.end(), infinite))
        return false;
    const double moved = some ? b->shift - a.shift : 0, unit = std::exp(moved);
    if (!(unit > 1e-280 && unit < infinity)) return false;
    // A modulus below which A to that power adds nothing; to whatever B is.
    const double least =
        (std::abs(a_row.value[0]) + (some ? unit * std::abs(b_row.value[0]) : 0)) / std::max(64.0, 4 * count);
    for (std::size_t j = 0; j < size; ++j) {
        const Complex m = a_row.value[j], log_m(std::log(modulus_of(m)), std::arg(m));
        const double units = 12 + 4 * (std::abs(log_m.real()) + std::abs(log_m.imag()) + std::abs(a.shift));
        const double most = sums[j].add_below(count, modulus_of(m), log_m, a.shift, units, a_row.error[j],
                                              some ? least : 0.0);
        if (some) sums[j].add_between(count, most, m, unit * b_row.value[j], unit * b_row.error[j], moved);
    }
    return true;
}

// Powers that multiply both of the others; false where their values are not known.
bool Layers::add_company(std::vector<DifferenceOfPowers>& sums, const Contour& contour, double negligible) {
    for (const auto& [transform, count] : beside_.company) {
        if (transform->dear_at(contour.s) && (*in_vain_ += sums.size()) > most_in_vain) return false;
        const Transform::Row row = transform->row(contour.s, contour.step, sums.size(), negligible / count);
        if (row.value.size() < sums.size()) return false;
        for (std::size_t j = 0; j < sums.size(); ++j) {
            const Transform::Row::Log at = row.log(j);
            if (!(at.slack < infinity)) return false;
            const double units = 12 + 4 * (std::abs(at.value.real()) + std::abs(at.value.imag()) + row.shift);
            sums[j].add_below(count, at.modulus, at.value, row.shift, units, at.slack, 0);
        }
    }
    return true;
}

// e^K for the bottom, e^K (e^y - 1) for a layer, along the contour, with their errors.
bool Layers::fill(Contour& contour, std::size_t size, const std::vector<FallingSum>& below,
                  const std::vector<FallingSum>& between, double negligible) {
    const bool bottom = between.empty();
    const std::vector<double>& counts = measures_.counts();
    double products = 0;
    for (const std::vector<FallingSum>* all : {&below, &between})
        for (const FallingSum& each : *all) products += static_cast<double>(each.re.size() * size);
    if (products > most_products_) return false;
    std::vector<DifferenceOfPowers> sums;
    for (std::size_t j = 0; j < size; ++j)
        sums.emplace_back(Complex(contour.s, contour.step * static_cast<double>(j)), beside_.variance,
                          static_cast<double>(counts.size() + beside_.company.size()));
    if (!add_company(sums, contour, negligible)) return false;
    for (std::size_t kind = 0; kind < counts.size(); ++kind)
        if (!add_rows(sums, below[kind], bottom ? nullptr : &between[kind], counts[kind], contour.step,
                      negligible))
            return false;
    contour.integrand.resize(size);
    contour.error.resize(size);
    for (std::size_t j = 0; j < size; ++j) {
        if (!bottom && !(sums[j].log_ratio > 0)) return false;
        const DifferenceOfPowers::Value at =
            bottom ? sums[j].all(contour.scale) : sums[j].difference(contour.scale);
        const Complex pole = contour.pole(j);
        contour.integrand[j] = at.value * pole;
        contour.error[j] = at.error * std::abs(pole);
        if (!std::isfinite(contour.error[j] + at.value.real() + at.value.imag())) return false;
    }
    return true;
}

void Layers::Visit::add(Which which, const Tilt& best) {
    found.push_back({which, best});
    log_delta = log_add(log_delta, best.log_delta);
    log_slope = log_add(log_slope, best.log_delta + std::log(best.saddle.s));
}

bool Layers::light(const Tilt& best, double log_limit) {
    if (!(best.log_least < log_limit)) return false;
    light_.push_back({best.saddle.s, best.log_bound});
    return true;
}

// Whether that deals with all below cut k: it hardly counts, has a contour of its own, or is estimated.
bool Layers::visit_bottom(std::size_t k, Visit& visit) {
    const Which all_below{k, true};
    const double log_share = std::log(tolerance_), cut = measures_.cuts().loss[k];
    if (!(cut < planned(visit.epsilon) || k == 0)) return false;
    const Tilt bottom = tilt(all_below, visit.epsilon, visit.log_delta + log_share);
    if (light(bottom, visit.log_delta + log_share)) return true;
    if (!bottom.found || (!(measures_.steps() > few_steps) && beside_.company.empty())) return false;
    if (!visit.make) {
        if (k > 0 && !(cut < planned(visit.epsilon) / 3 && bottom.log_delta < visit.log_delta)) return false;
        visit.add(all_below, bottom);
        return true;
    }
    const double all = log_add(visit.log_delta, bottom.log_delta);
    auto plain = contour(all_below, bottom, visit.epsilon, all + log_share - 1, most_at_bottom_);
    if (!plain) return false;
    contours_.push_back(std::move(*plain));
    visit.log_delta = all;
    return true;
}

std::optional<Layers::Estimate> Layers::visit(double epsilon, bool make) {
    contours_.clear();
    light_.clear();
    Visit visit{epsilon, make, {}};
    const double log_share = std::log(tolerance_);
    for (std::size_t k = measures_.cuts().loss.size() - 1; !visit_bottom(k, visit); --k) {
        if (k == 0) return {};
        const Tilt layer = tilt({k, false}, epsilon, visit.log_delta + log_share);
        if (light(layer, visit.log_delta + log_share)) continue;
        if (!layer.found) return {};
        visit.add({k, false}, layer);
    }
    if (!(visit.log_delta > -infinity)) return {};
    if (make) {
        const double log_wanted =
            visit.log_delta + log_share - std::log(1.0 + static_cast<double>(visit.found.size()));
        for (const auto& [which, best] : visit.found) {
            if (light(best, log_wanted)) continue;
            auto each = contour(which, best, epsilon, log_wanted, most_frequencies);
            if (!each) return {};
            contours_.push_back(std::move(*each));
        }
    }
    return Estimate{visit.log_delta, std::exp(visit.log_slope - visit.log_delta)};
}

double Layers::rest(double epsilon) const {
    double sum = 0;
    for (const Light& light : light_)
        sum += std::exp(light.log_bound - light.tilt * epsilon) *
               (1 + 8 * u * (1 + std::abs(light.log_bound) + light.tilt * std::abs(epsilon)));
    for (const Company& other : beside_.company) sum += other.count * other.transform->dropped() * (1 + 1e-9);
    return sum + measures_.dropped();
}

// Of the contours at one point, what they leave out included.
Answer Layers::describe(const Inverted& at, double left_out) const {
    double step = 0;
    std::size_t size = 0;
    for (const Contour& contour : contours_) {
        step = std::max(step, contour.step);
        size += contour.integrand.size();
    }
    return hockeystick::describe(at, step, size, left_out);
}

std::optional<Answer> Layers::delta_bounds(double epsilon) {
    if (!(epsilon >= 0)) return {};
    return best_of([&] { return delta_at(epsilon); });
}

std::vector<std::optional<Answer>> Layers::delta_curve(std::span<const double> epsilons, Sharing sharing) {
    // The lines are the contours of this object.
    return curve_by_lines<std::monostate>(
        epsilons, sharing,
        [&](double epsilon, std::optional<std::monostate>& lines) {
            lines.emplace();
            return delta_bounds(epsilon);
        },
        [&](std::monostate, double epsilon) { return as_laid(epsilon); });
}

std::optional<Answer> Layers::epsilon_bounds(double delta) {
    return best_of([&] { return epsilon_at(delta); });
}

template <class Try>
std::optional<Answer> Layers::best_of(const Try& attempt) {
    std::optional<Answer> best;
    for (const double sharpness : sharpnesses) {
        // In company it seldom helps.
        if (sharpness == sharpest && !beside_.company.empty()) continue;
        sharpness_ = sharpness;
        const auto answer = attempt();
        if (!answer) continue;
        if (!best || answer->upper - answer->lower < best->upper - best->lower) best = answer;
        if (best->upper - best->lower <= wide * best->upper) {
            *in_vain_ = 0;
            break;
        }
    }
    return best;
}

std::optional<Answer> Layers::delta_at(double epsilon) {
    // A lower estimate of delta: one step alone.
    const std::vector<double>& counts = measures_.counts();
    double log_one = -infinity;
    for (const LayerPart& part : measures_.parts()) {
        const MixtureRatio& p = part.mixture.p;
        const double high = output_between(part.mixture, 1.2 * planned(epsilon), least_output(part.mixture),
                                           p.high() + 60, 1e-3);
        for (std::size_t i = 0; i < p.shifts().size(); ++i) {
            const double z = std::max(0.0, high - p.shifts()[i]);
            log_one = log_add(log_one, std::log(counts[part.kind] * part.mixture.weight * p.weights()[i]) -
                                           0.5 * z * z - std::log(2 + z));
        }
    }
    if (!prepare(std::max(log_one, -650.0) + std::log(tolerance_), epsilon)) return {};
    if (!visit(epsilon, true)) contours_.clear();  // some of the layers would be too little
    return as_laid(epsilon);
}

std::optional<Answer> Layers::as_laid(double epsilon) const {
    if (!(epsilon >= 0) || contours_.empty()) return {};
    const Inverted at = invert(contours_, epsilon);
    const double left_out = rest(epsilon);
    return delta_answer(describe(at, left_out), at, beside_.least_infinite, beside_.most_infinite + left_out);
}

// About the epsilon at which the steps' deltas, one by one, add up to this.
double Layers::of_one_step(double delta) const {
    double high = 0;
    for (const LayerPart& part : measures_.parts())
        high = std::max(high, loss_at(part.mixture, part.mixture.p.high() + 40));
    double low = 1e-9 * high;
    // To 2 %, of losses that may be too small for a product of two.
    for (int halving = 0; halving < 11; ++halving) {
        const double epsilon = std::sqrt(low) * std::sqrt(high), y = std::exp(std::min(epsilon, 700.0));
        double sum = 0;
        for (const LayerPart& part : measures_.parts()) {
            const MixtureRatio &p = part.mixture.p, &q = part.mixture.q;
            const double t = output_between(part.mixture, epsilon, 0, p.high() + 40, 1e-3),
                         all = measures_.counts()[part.kind] * part.mixture.weight;
            for (std::size_t i = 0; i < p.shifts().size(); ++i)
                sum += all * p.weights()[i] * gaussian_tail(t - p.shifts()[i]);
            for (std::size_t i = 0; i < q.shifts().size(); ++i)
                sum -= all * y * q.weights()[i] * gaussian_tail(t - q.shifts()[i]);
        }
        (sum > delta ? low : high) = epsilon;
    }
    return high;
}

// About the epsilon of the steps that are not cut, or more.
double Layers::of_company(double delta) const {
    if (beside_.company.empty()) return 0;
    double least = infinity;
    for (double s = 1e-2; s < 1e4; s *= 2) {
        double k = log_chernoff(s) - std::log(delta);
        for (const Company& other : beside_.company) k += other.count * other.transform->at(s).value;
        if (std::isfinite(k)) least = std::min(least, k / s);
    }
    return least < infinity ? std::max(least, 0.0) : 0;
}

// Moves epsilon to where the estimate of ln delta is near the target.
bool Layers::approach(double target, double& epsilon) {
    for (int i = 0; i < 12; ++i) {
        const auto estimate = visit(epsilon, false);
        if (!estimate || !(estimate->slope > 0)) return false;
        const double off = estimate->log_delta - target;
        if (std::abs(off) < near) break;
        epsilon = std::clamp(epsilon + off / estimate->slope, epsilon / 3, epsilon * 3);
    }
    return true;
}

std::optional<Answer> Layers::epsilon_at(double delta) {
    const double finite = delta - beside_.most_infinite;
    if (!(finite > 0)) return {};
    const double target = std::log(finite);
    // Joined parts, hundreds of them, lose more together: their cuts are planned from above.
    double epsilon = of_one_step(finite) * (measures_.any_joined() ? 3 : 1) + of_company(finite);
    if (!(epsilon > 0) || !prepare(target + std::log(tolerance_), epsilon) || !approach(target, epsilon))
        return {};
    const InvertedAt inverted = [&](double e) { return invert(contours_, e); };
    for (int round = 1; round <= most_rounds; ++round) {
        const auto estimate = visit(epsilon, true);
        if (!estimate || contours_.empty()) return {};
        const double before = epsilon;
        const Inverted at = newton(inverted, target, epsilon);
        if (!(at.value > 0)) return {};
        // The estimates may be off, and so the lines chosen, and what was taken to be little.
        const double left_out = rest(epsilon);
        const bool off = std::abs(epsilon - before) * estimate->slope > 3 ||
                         std::max(left_out, at.scaled(at.aliasing)) > 10 * tolerance_ * delta;
        if (off && round < most_rounds) continue;
        return epsilon_answer(describe(at, left_out), inverted, at, epsilon, delta, beside_.least_infinite,
                              beside_.most_infinite + left_out);
    }
    return {};
}

}  // namespace hockeystick
