#include "inversion/direct_inversion.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "hockeystick/parallel.hpp"
#include "inversion/loss_transform.hpp"
#include "numerics/complex.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// All of these are for speed. So many kinds, or so few steps, make frequencies dear.
constexpr std::size_t few_kinds = 8;
constexpr double few_steps = 100;
// A line may be moved for a shorter period although ln e^{K(s) - s eps} grows by this, or where frequencies
// are dear by that. Of many kinds of steps such a gap is narrow enough.
constexpr double lost_to_period = 0.5, most_lost_to_period = 1.5, small_gap = 1e-8;
// Fewer factors do not let the transform fall fast enough, nor a few of records that are hardly ever hit.
constexpr double fewest_factors = 8, few_factors = 16, few_hits = 0.2;
// Where a first attempt leaves out more, or delta is less of e^{K(s) - s eps}, a coarse one does not pay.
constexpr double hopeless = 1e-3, least_share = 1e-5, fair_share = 1e-3;
// Rows may aim at so many times the error, as far as that is a share of delta.
constexpr double coarser = 100, coarsest_share = 1e-2;
// What rounding costs at least, beside e^{K(s) - s eps}.
constexpr double lost_to_rounding = 1e-15;
// The shares of the saddle that are tried where the transform hardly decays: where more than so many times
// the error wanted is left out.
constexpr double tilts[] = {1, 0.85, 0.7, 0.5}, hardly = 1000;
// Of more plain Laplace steps, exact sums take as many terms as the deviation of a binomial: too many.
constexpr double most_laplace_steps = 1e7;
// -ln of the least double.
constexpr double nothing_left = 745;
// So many of dear values are worth a steep bound.
constexpr std::size_t dear_frequencies = 500;
// A quick attempt takes at most so many frequencies, or at coarse accuracy, or of few steps for a shorter
// period; one beside an atom takes so many, and then twice as many.
constexpr std::size_t few_frequencies = 1300, coarse_frequencies = 800, fewer_frequencies = 520,
                      most_beside_atom = 512;

// How far a line may move for a shorter period; delta itself is wanted to more digits.
double most_lost(std::size_t kinds, double steps, double log_share, const DirectInversion::Budget& budget) {
    if (kinds > few_kinds) return most_lost_to_period;
    if (budget.quick && budget.coarse == 0) return 0;
    const double most = steps <= few_steps ? most_lost_to_period : lost_to_period;
    return std::clamp(log_share - std::log(fair_share), 0.0, most);
}

// What LaplaceSteps is told of delta beside e^{K(s) - s eps}: the logarithm, by the saddle's estimate.
double share_of(const SaddlePoint& saddle) {
    return std::min(0.0, saddle.log_delta - (saddle.k.value - saddle.s * saddle.epsilon));
}

// Visits tilts around this one, from its e^-12 to its e^12 fold.
template <class Visit>
void for_tilts(double middle, Visit visit) {
    for (int i = 0; i < 48; ++i) visit(std::exp(std::log(middle) - 12 + 0.5 * (i + 0.5)));
}

// Of e^{K(z)} along a contour: ln of the modulus, of an upper bound of it, and the angle; and what their sums
// over the kinds added up, without signs.
struct Sums {
    std::vector<double> modulus, upper, angle, size;
};

// Adds count * ln of one kind's M along the contour.
void add_row(const Transform::Row& row, double count, Sums& sums) {
    for (std::size_t j = 0; j < row.value.size(); ++j) {
        const auto [k, whole, slack] = row.log(j);
        const double log_upper =
            whole > slack ? k.real() + std::log1p(slack / whole) : std::log(whole + slack);
        sums.modulus[j] += count * (k.real() + row.shift);
        sums.angle[j] += count * k.imag();
        sums.upper[j] += count * (row.shift + log_upper) + 4 * u * count * (std::abs(k.real()) + row.shift);
        sums.size[j] += count * (std::abs(k.real()) + row.shift + std::abs(k.imag()));
    }
}

}  // namespace

bool has_allocation(const Composition& composition) {
    return std::any_of(composition.begin(), composition.end(),
                       [](const auto& step) { return step.first->allocation().has_value(); });
}

DirectInversion::DirectInversion(const Composition& composition, double cut_mass) {
    const double kinds = static_cast<double>(composition.size());
    double log_finite = 0;
    for (const auto& [pair, count] : composition) {
        const double k = static_cast<double>(count), share = 1 / (k * kinds);
        steps_ += k;
        ++composed_;
        if (const double mu = plain_gaussian_mu(*pair); mu != 0) {
            variance_ += k * mu * mu;
        } else {
            kinds_.push_back(
                {Transform::of(*pair, 1e-3 * share, cut_mass * share), k, share, pair->max_loss()});
            if (!kinds_.back().transform) return;
            if (kinds_.back().transform->dear()) wanted_share_ = dear_share;
            dropped_ += k * kinds_.back().transform->dropped() * (1 + 1e-9);
            log_finite += k * std::log1p(-pair->infinity_mass());
        }
    }
    infinite_ = -std::expm1(log_finite);
    known_ = true;
    if (kinds_.size() == composed_) {
        log_atom_ = 0;
        for (const auto& kind : kinds_)
            log_atom_ += kind.count * std::log(std::min(1.0, kind.transform->zero_mass()));
        log_atom_ = (1 + 1e-12) * log_atom_ - 1e-12;
    }
    answers_ = variance_ > 0 || std::any_of(kinds_.begin(), kinds_.end(),
                                            [](const Kind& kind) { return kind.transform->can_decay(); });
    if (!answers_) {
        answers_ = find_lattice(composition);
        log_atom_ = -infinity;
    }
    const double a = plain_laplace_epsilon(*composition.front().first);
    if (a > 0 && steps_ <= most_laplace_steps &&
        std::all_of(composition.begin(), composition.end(),
                    [&](const auto& each) { return plain_laplace_epsilon(*each.first) == a; }))
        laplace_.emplace(a, steps_);
    if (answers_) find_layers();
}

// The P-mass at +inf of all steps together, rounded down or up.
double DirectInversion::infinite(int direction) const {
    return infinite_ * (1 + direction * (1e-12 + 4 * u * static_cast<double>(composed_)));
}

// Where all kinds are atoms, whether their losses lie on one lattice; then they are put there.
bool DirectInversion::find_lattice(const Composition& composition) {
    std::vector<LossLaw> laws;
    std::vector<double> spacings;
    for (const auto& [pair, count] : composition) {
        laws.push_back(*pair->loss_law());
        spacings.push_back(pair->spacing());
    }
    const auto comb = onto_lattice(laws, spacings);
    if (!comb) return false;
    lattice_.spacing = comb->spacing;
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
        lattice_.offset += kinds_[i].count * comb->offset[i];
        lattice_.offset_size += kinds_[i].count * std::abs(comb->offset[i]);
        kinds_[i].transform =
            std::make_unique<LossTransform>(std::move(laws[i]), 1e-3 * kinds_[i].share, 0, lattice_.spacing);
    }
    return true;
}

bool DirectInversion::can_cut() const {
    return std::any_of(kinds_.begin(), kinds_.end(),
                       [](const Kind& kind) { return kind.transform->can_cut(); });
}

bool DirectInversion::can_drop() const {
    return std::any_of(kinds_.begin(), kinds_.end(),
                       [](const Kind& kind) { return kind.transform->can_drop(); });
}

// Rare large losses of Gaussian mixtures. Lattices have ways of their own.
void DirectInversion::find_layers() {
    if (lattice_.spacing > 0 || laplace_ || kinds_.size() > few_kinds) return;
    double hits = 0;
    for (const auto& kind : kinds_) {
        const std::vector<MixturePart> parts = kind.transform->mixtures();
        company_ = company_ || parts.empty();
        if (parts.empty()) continue;
        for (const MixturePart& part : parts) {
            has_layers_ = has_layers_ || !part.p.plain();
            hits += kind.count * part.weight * (1 - part.p.weights().front());
            joined_ = joined_ || part.joined.has_value();
        }
    }
    slow_ = variance_ == 0 && (steps_ < fewest_factors || (steps_ < few_factors && hits < few_hits));
}

Layers DirectInversion::layers(double tolerance) const {
    std::vector<Layers::Kind> kinds;
    Layers::Beside beside{
        variance_, {}, infinite(-1), infinite(+1), std::sqrt(std::max(0.0, cumulant(0).second))};
    for (const auto& kind : kinds_)
        if (auto parts = kind.transform->mixtures(); !parts.empty())
            kinds.push_back({std::move(parts), kind.count});
        else
            beside.company.push_back({kind.transform.get(), kind.count});
    return Layers(kinds, std::move(beside), tolerance, in_vain_);
}

Cumulant DirectInversion::cumulant(double s, std::optional<double> line) const {
    interruption_point();
    Cumulant k = gaussian_steps(variance_, s);
    for (const Kind& kind : kinds_)
        k.add(line ? kind.transform->for_line(s, *line) : kind.transform->at(s), kind.count);
    return k;
}

// A first guess: that of a Gaussian of the same variance.
double DirectInversion::start(double epsilon, double log_inverse_delta) const {
    const Cumulant k = cumulant(0);
    const double deviation = std::sqrt(std::max(k.second, 1e-300));
    const double z = std::max({1.0, (epsilon - k.first) / deviation, std::sqrt(2 * log_inverse_delta)});
    // Rare large losses: the tilt that moves the noise by z.
    double shift = deviation;
    for (const auto& kind : kinds_) shift = std::max(shift, kind.transform->rare_shift());
    return std::clamp(z / shift, 1e-12, 1e12);
}

// Where search_tilt() ends, judging saddles; empty where it finds none.
template <class Judge>
std::optional<SaddlePoint> DirectInversion::saddle(double start, Judge judge) const {
    SaddlePoint found{};
    const bool good = search_tilt(start, 1e-12, [&](double s) -> Judgement {
        found = saddle_at(s);
        const auto [off, slope, close] = judge(found);
        const bool fine = std::isfinite(off) && std::isfinite(found.k.upper) && found.curvature > 0;
        return {fine, fine && std::abs(off) <= close, off, slope};
    });
    return good ? std::optional(found) : std::nullopt;
}

// The saddle at eps, close to `share` of the scale on which e^{-s eps} changes.
std::optional<SaddlePoint> DirectInversion::saddle_for(double epsilon, double share) const {
    return saddle(start(epsilon, 1), [&](const SaddlePoint& p) {
        return std::array{p.epsilon - epsilon, p.s * p.curvature, share / p.s};
    });
}

// The saddle of the epsilon that has this delta, by the saddle's estimate.
std::optional<SaddlePoint> DirectInversion::saddle_of(double log_delta) const {
    return saddle(start(0, -log_delta), [&](const SaddlePoint& p) {
        return std::array{log_delta - p.log_delta, p.s * p.s * p.curvature, 0.05};
    });
}

DirectInversion::Decays DirectInversion::decays_at(double s) const {
    Decays decays;
    for (const auto& kind : kinds_)
        decays.push_back(kind.transform->decay(s, kind.transform->for_line(s, s).upper));
    return decays;
}

double DirectInversion::log_decay(const Decays& decays, double tau, Bound bound) const {
    interruption_point();
    double sum = -0.5 * variance_ * tau * tau * (1 - 8 * u);
    for (std::size_t i = 0; i < kinds_.size(); ++i)
        sum += kinds_[i].count * (1 - 1e-12) *
               (bound == Bound::steep     ? decays[i]->steep_log_bound(tau)
                : bound == Bound::falling ? decays[i]->log_falling(tau)
                                          : decays[i]->log_bound(tau));
    return sum;
}

// The frequencies left out. log_atom: ln of what is subtracted from the integrand.
double DirectInversion::tail(const Decays& decays, double step, std::size_t first, Bound bound,
                             double log_atom) const {
    if (lattice_.spacing > 0) return lattice_tail(decays, step, first);
    return tail_from(step, first, [&](double tau) {
        const double log_bound = log_decay(decays, tau, bound);
        // |prod M_i - prod a_i| <= prod |M_i|' - prod a_i, |M_i|' a bound that counts a_i in full.
        const double excess = log_atom > -infinity ? log_bound - log_atom : infinity;
        if (excess > 1) return std::exp(log_bound);
        return std::exp(log_atom) * (std::expm1(std::max(excess, 0.0)) + 1e-12 * (1 + std::abs(log_bound)));
    });
}

// How many frequencies there are in half a period.
std::size_t DirectInversion::frequencies_in(double step) const {
    return static_cast<std::size_t>(
               std::min(1e9, std::floor(std::rint(2 * pi / (step * lattice_.spacing)) / 2))) +
           1;
}

// |1 - e^{-w}| >= sin(Im w/2) where Re w >= 0, and the numerator is at most 1.
double DirectInversion::lattice_tail(const Decays& decays, double step, std::size_t first) const {
    if (first >= frequencies_in(step)) return 0;
    const double tau = step * static_cast<double>(first), sine = std::sin(0.5 * tau * lattice_.spacing);
    return 1.01 * std::exp(log_decay(decays, tau, Bound::whole)) / (sine * sine);
}

// The line, and where to cut it. quick: few frequencies, no dear bounds. share: an error's, of delta.
std::optional<DirectInversion::Plan> DirectInversion::make_plan(SaddlePoint saddle, double epsilon,
                                                                double log_delta, const Budget& budget,
                                                                double most_lost, double share) const {
    const bool quick = budget.quick;
    const double log_goal = std::min(saddle.k.value - saddle.s * epsilon, log_delta) + std::log(share);
    // The line may move.
    auto line = line_through(saddle, epsilon, log_delta, log_goal, most_lost,
                             [&](double s) { return cumulant(s, saddle.s); });
    if (!line) return {};
    saddle.k.upper = cumulant(saddle.s, saddle.s).upper;
    Plan plan{std::move(*line), 0};
    Contour& contour = plan.contour;
    const std::size_t few = most_lost > 0 && steps_ <= few_steps ? fewer_frequencies : few_frequencies;
    std::size_t most = budget.frequencies;
    if (quick) most = std::min(most, share > wanted_share_ ? coarse_frequencies : few);
    if (const double spacing = lattice_.spacing; spacing > 0) {
        contour.lattice = lattice_;
        contour.points = std::max(1.0, std::ceil(2 * pi / contour.step / spacing));
        contour.step = 2 * pi / (contour.points * spacing);
        most = std::min(most, frequencies_in(contour.step));
    }
    // A Gaussian would need so many frequencies; what falls more slowly needs more.
    const double wanted = log_goal - (saddle.k.value - saddle.s * epsilon);
    if (quick &&
        std::sqrt(-2 * wanted / std::max(saddle.k.second, 1e-300)) > contour.step * static_cast<double>(most))
        return {};
    if (!cut_plan(plan, saddle, most, quick, share)) return {};
    return plan;
}

// Beside an atom that is subtracted the rest falls slowly: the last digits are not worth their frequencies,
// and where there are no five digits for a few of them the lattice is quicker: false.
bool DirectInversion::cut_plan(Plan& plan, const SaddlePoint& saddle, std::size_t most, bool quick,
                               double goal) const {
    Contour& contour = plan.contour;
    const Decays decays = decays_at(saddle.s);
    const double log_atom = log_atom_ - saddle.k.upper, enough = contour.share * goal;
    const auto first = static_cast<std::size_t>(
        std::min(std::max(7 / (contour.step * std::sqrt(saddle.curvature)), 4.0), static_cast<double>(most)));
    const auto cut = [&](double wanted, std::size_t limit, bool steep) {
        const auto tail_at = [&](Bound bound) {
            return [&, bound](std::size_t size) { return tail(decays, contour.step, size, bound, log_atom); };
        };
        // A bound that stops falling does not say where to stop.
        const CutOff end = cut_off(first, limit, wanted, tail_at(steep ? Bound::steep : Bound::falling));
        plan.size = end.size;
        contour.tail = steep ? end.tail : tail_at(Bound::whole)(end.size);
        return end.tail <= wanted;
    };
    bool good = false;
    if (log_atom_ > -infinity) {
        for (const std::size_t limit : {most_beside_atom, 2 * most_beside_atom})
            for (const double share : {full_share, 1e-11, 1e-9, 1e-7, 1e-5})
                good = good || cut(contour.share * share, std::min(most, limit), false);
        if (!good && log_atom > std::log(enough)) return false;
    }
    good = good || cut(enough, most, false);
    // Little effort, and very many frequencies, go without: each steep bound takes long.
    if (most == Budget{}.frequencies && worth_steep(good, plan.size, quick))
        cut(enough, good ? plan.size : most, true);
    contour.pinch = pinch_;
    contour.density_tail = density_tail(contour, plan.size);
    // The decay is relative to K's upper bound, everything else to its value.
    for (double* tail : {&contour.tail, &contour.density_tail})
        *tail *= std::exp(saddle.k.upper - saddle.k.value);
    return true;
}

// Many steps make up for the coarser bound, unless nothing would help.
bool DirectInversion::worth_steep(bool good, std::size_t size, bool quick) const {
    if (quick || steps_ > few_steps) return false;
    return !good || (size > dear_frequencies && wanted_share_ > full_share);
}

// About what filling it takes: over some 17 units of the noise, nodes as close as the frequency asks for.
double DirectInversion::products(const Plan& plan) const {
    const double n = static_cast<double>(plan.size);
    double shift = 0;
    for (const auto& kind : kinds_) shift = std::max(shift, kind.transform->rare_shift());
    return n * 17 * std::max(2.0, n * plan.contour.step * shift / (2 * pi));
}

// log_delta: what ln delta will be, if that is known.
std::optional<Contour> DirectInversion::contour_at(double epsilon, std::optional<double> log_delta,
                                                   Budget budget) const {
    const auto saddle = saddle_for(epsilon, 0.1);
    if (!saddle) return {};
    return make_contour(*saddle, epsilon, log_delta.value_or(std::min(saddle->log_delta, 0.0)), budget);
}

// The line through the saddle, where errors are smallest beside delta. But there rare huge losses may
// carry much of the tilted mass, and the transform then hardly decays: a smaller tilt may do.
std::optional<Contour> DirectInversion::make_contour(const SaddlePoint& saddle, double epsilon,
                                                     double log_delta, Budget budget) const {
    const auto error = [](const std::optional<Plan>& p) {
        return p ? (p->contour.tail + lost_to_rounding) / p->contour.share : infinity;
    };
    const double log_share = log_delta - (saddle.k.value - saddle.s * epsilon),
                 lost = most_lost(kinds_.size(), steps_, log_share, budget);
    auto best = make_plan(saddle, epsilon, log_delta, budget, lost, wanted_share_);
    if (budget.coarse > 0 && steps_ <= few_steps && error(best) > budget.worst && error(best) < hopeless &&
        best->contour.share > least_share) {
        best = make_plan(saddle, epsilon, log_delta, budget, most_lost_to_period, budget.coarse);
        budget.worst = 10 * budget.coarse;
    }
    // The first is known already if its line did not move.
    for (const double share : std::span(tilts).subspan(static_cast<std::size_t>(lost == 0))) {
        if (budget.quick || (best && best->contour.tail <= hardly * wanted_share_ * best->contour.share))
            break;
        auto plan = make_plan(saddle_at(share * saddle.s), epsilon, log_delta, budget, 0, wanted_share_);
        if (error(plan) < error(best)) best = std::move(plan);
    }
    const bool good = error(best) < budget.worst && products(*best) <= budget.products;
    if (!good || !fill(best->contour, best->size)) return {};
    return std::move(best->contour);
}

// The values along the contour; false where they cannot be had.
bool DirectInversion::fill(Contour& contour, std::size_t size) const {
    const double s = contour.s;
    Sums sums;
    for (auto* each : {&sums.modulus, &sums.upper, &sums.angle, &sums.size}) each->resize(size);
    for (std::size_t j = 0; j < size; ++j) {
        const Complex z(s, contour.step * static_cast<double>(j));
        const Complex k = 0.5 * variance_ * z * (z + 1.0);
        sums.modulus[j] = k.real();
        sums.angle[j] = k.imag();
        sums.size[j] = std::abs(k.real()) + std::abs(k.imag());
        sums.upper[j] =
            k.real() + (12 + static_cast<double>(composed_)) * u * 0.5 * variance_ * std::norm(z + 1.0);
    }
    // A few kinds at a time, so that memory stays bounded; added up in order, whatever the threads.
    constexpr std::size_t chunk = 32;
    std::vector<Transform::Row> rows(std::min(chunk, kinds_.size()));
    for (std::size_t begin = 0; begin < kinds_.size(); begin += chunk) {
        const std::size_t count = std::min(chunk, kinds_.size() - begin);
        const auto lay_row = [&](std::size_t i, bool dear) {
            const Kind& kind = kinds_[begin + i];
            if (kind.transform->dear() != dear) return;
            // Where that takes too many nodes, fewer digits do.
            const double first = std::max(full_share, wanted_share_ * contour.share);
            for (double share = first; share < std::max(2 * first, coarsest_share * contour.share);
                 share *= coarser) {
                rows[i] = kind.transform->row(s, contour.step, size, 0.3 * share * kind.share);
                if (!rows[i].value.empty()) break;
            }
        };
        parallel_for_light(count, [&](std::size_t i) { lay_row(i, false); });
        // Dear ones have loops of their own for all threads.
        for (std::size_t i = 0; i < count; ++i) lay_row(i, true);
        for (std::size_t i = 0; i < count; ++i) {
            if (rows[i].value.empty()) return false;
            add_row(rows[i], kinds_[begin + i].count, sums);
        }
    }
    contour.integrand.resize(size);
    contour.error.resize(size);
    const double atom = std::exp(log_atom_ - contour.scale);
    for (std::size_t j = 0; j < size; ++j) {
        const Complex z(s, contour.step * static_cast<double>(j));
        const double low = sums.modulus[j] - contour.scale, high = sums.upper[j] - contour.scale;
        const Complex pole = contour.pole(j);
        const double value = std::exp(low);
        const double between = high - low < 1 ? value * std::expm1(high - low) : std::exp(high);
        // Each partial sum over the kinds rounds, of the moduli, their bounds and the angles.
        const double rounding =
            (value + atom) * u *
            (16 + 4 * std::abs(contour.scale) + (4 + 2 * static_cast<double>(kinds_.size())) * sums.size[j]);
        contour.integrand[j] = (std::polar(value, sums.angle[j]) - atom) * pole;
        contour.error[j] = (between + rounding) * std::abs(pole);
        if (!std::isfinite(contour.error[j]) || !std::isfinite(value)) return false;
    }
    return true;
}

std::optional<Answer> DirectInversion::on_contour(const Contour& contour, double epsilon) const {
    const Inverted at = invert(contour, epsilon);
    const double still = epsilon < 0 ? std::exp(log_atom_) * -std::expm1(epsilon) : 0;
    return delta_answer(describe(at, contour.step, contour.integrand.size(), dropped_), at,
                        still * (1 - 1e-13) + infinite(-1), still * (1 + 1e-13) + infinite(+1) + dropped_);
}

std::optional<Answer> DirectInversion::delta_bounds(double epsilon, Budget budget) const {
    if (laplace_) {
        const auto saddle = saddle_for(epsilon, 0.3);
        if (saddle && laplace_->needed_at(saddle->s))
            return laplace_->delta_bounds(epsilon, saddle->s, share_of(*saddle));
    }
    const auto contour = contour_at(epsilon, std::nullopt, budget);
    return contour ? on_contour(*contour, epsilon) : std::nullopt;
}

std::vector<std::optional<Answer>> DirectInversion::delta_curve(std::span<const double> epsilons,
                                                                Budget budget, Sharing sharing) const {
    // Plain Laplace noise has lines of its own.
    return curve_by_lines<Contour>(
        epsilons, laplace_ ? Sharing{0} : sharing,
        [&](double epsilon, std::optional<Contour>& contour) {
            if (laplace_) return delta_bounds(epsilon, budget);
            contour = contour_at(epsilon, std::nullopt, budget);
            return contour ? on_contour(*contour, epsilon) : std::nullopt;
        },
        [&](const Contour& contour, double epsilon) { return on_contour(contour, epsilon); });
}

std::optional<Answer> DirectInversion::epsilon_bounds(double delta, Budget budget) const {
    const double finite = delta - infinite(+1);
    if (!(finite > 0)) return {};
    const double target = std::log(finite);
    const auto saddle = saddle_of(target);
    if (!saddle) return {};
    if (!(saddle->epsilon > 0)) {
        // Perhaps nothing is spent at all.
        auto zero = delta_bounds(0, budget);
        if (zero && zero->upper <= delta) {
            zero->lower = zero->upper = 0;
            return zero;
        }
    }
    double epsilon = std::max(0.0, saddle->epsilon);
    if (laplace_ && laplace_->needed_at(saddle->s))
        return laplace_->epsilon_bounds(delta, epsilon, saddle->s, share_of(*saddle));
    auto contour = make_contour(*saddle, epsilon, target, budget);
    const InvertedAt inverted = [&](double e) { return invert(*contour, e); };
    const double enough =
        std::max(kinds_.size() > few_kinds ? small_gap : 0, 10 * std::max(wanted_share_, budget.coarse));
    std::optional<Answer> best;
    for (int round = 0; contour; ++round) {
        const Inverted at = newton(inverted, target, epsilon);
        if (!(at.value > 0)) break;
        auto answer = epsilon_answer(describe(at, contour->step, contour->integrand.size(), dropped_),
                                     inverted, at, epsilon, delta, infinite(-1), infinite(+1) + dropped_);
        if (relative_gap(answer) < relative_gap(best)) best = std::move(answer);
        // Where the tilted loss has two humps, the estimate of delta is poor, and so the line chosen.
        if (at.value > 0.2 * contour->share || relative_gap(best) < enough || round == 2) break;
        contour = contour_at(epsilon, target, budget);
    }
    return best;
}

// The best tilt lies near the saddle.
double DirectInversion::chernoff_epsilon(double delta) const {
    double best = infinity;
    const double finite = delta - dropped_ - infinite(+1);
    if (!(finite > 0)) return best;
    const double target = std::log(finite) - 1e-15;
    for_tilts(start(0, -target), [&](double s) {
        const double k = cumulant(s).upper;
        const double epsilon = (k + log_chernoff(s) - target) / s;
        best = std::min(best, epsilon + 16 * u * (std::abs(k) - target) / s);
    });
    return std::max(0.0, best);
}
double DirectInversion::chernoff_delta(double epsilon) const {
    double best = 0;  // delta <= 1
    const double nothing = std::log(dropped_ + 5e-324);
    const auto visit = [&](double s) {
        if (best < nothing) return;  // what was left out is more
        const double k = cumulant(s).upper;
        const double rounding = 16 * u * (1 + std::abs(k) + s * std::abs(epsilon));
        if (std::isfinite(k)) best = std::min(best, k - s * epsilon + log_chernoff(s) + rounding);
    };
    // Near the saddle, where sums may be inexact; without one, everywhere.
    if (const auto saddle = saddle_for(epsilon, 0.3)) {
        for (double share = 1; share > 0.2; share *= 0.7) {
            visit(share * saddle->s);
            if (best < saddle->log_delta + 10) break;
        }
    } else {
        for_tilts(start(epsilon, 1), visit);
    }
    return std::min(1.0, std::exp(best) * (1 + 4 * u) + dropped_ + infinite(+1) + 5e-324);
}

// An estimate of ln delta, too large where rare losses rule.
double DirectInversion::log_delta(double epsilon) const {
    const auto saddle = saddle_for(epsilon, 0.3);
    return saddle ? std::min(saddle->log_delta, 0.0) : 0.0;
}

bool DirectInversion::far(double epsilon) const {
    const auto nothing = [&](double mean, double variance) {
        const double beyond = epsilon - mean;
        return beyond > 0 && 0.5 * beyond * beyond > nothing_left * variance;
    };
    double mean = 0.5 * variance_, least_variance = variance_, variance = variance_, most = 0.5 * variance_;
    for (const Kind& kind : kinds_) {
        const Cumulant k = kind.transform->at(0);
        mean += kind.count * k.first;
        variance += kind.count * k.second;
        const bool bounded = std::isfinite(kind.largest);
        most += kind.count * (bounded ? kind.largest : k.first);
        if (!bounded) least_variance += kind.count * k.second;
    }
    return nothing(mean, variance) || nothing(most, least_variance);
}

// Chernoff's bound at any tilt on the way to the saddle; mostly the first, which does for Gaussians.
bool DirectInversion::surely_below(double epsilon, double delta) const {
    const double finite = delta - infinite(+1) - dropped_;
    if (!(finite > 0)) return false;
    const double enough = std::log(finite) - 1e-6;
    bool below = false;
    saddle(std::min(start(epsilon, 1), 2.2 * std::abs(enough / epsilon)), [&](const SaddlePoint& p) {
        const double rounding = 16 * u * (std::abs(p.k.upper) + p.s * std::abs(epsilon));
        below = p.k.upper - p.s * epsilon + log_chernoff(p.s) + rounding < enough;
        return std::array{p.epsilon - epsilon, p.s * p.curvature, below ? infinity : 0.3 / p.s};
    });
    return below;
}

}  // namespace hockeystick
