#include "hockeystick/inversion.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>
#include <utility>

#include "hockeystick/beyond.hpp"
#include "hockeystick/complex.hpp"
#include "hockeystick/contour.hpp"
#include "hockeystick/laplace_steps.hpp"
#include "hockeystick/layers.hpp"
#include "hockeystick/loss_transform.hpp"
#include "hockeystick/parallel.hpp"
#include "hockeystick/special.hpp"
#include "hockeystick/transform.hpp"
#include "powers.hpp"

namespace hockeystick {
namespace {

using Complex = std::complex<double>;
constexpr double u = unit_roundoff;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double pi = std::numbers::pi;

// Each source of error aims at this share of delta.
constexpr double tolerance = 1e-13;
// What rounding costs at least, beside e^{K(s) - s eps}.
constexpr double lost_to_rounding = 1e-15;
constexpr std::size_t most_frequencies = 4096, most_beside_atom = 512;
// What the first attempt may take where layers may do better, in nodes times frequencies and in frequencies,
// and what it then must leave out less than.
constexpr double few_products = 1e5, some_products = 2e6;
constexpr std::size_t few_frequencies = 400;
constexpr double near_exact = 1e-10;
// A cut is to leave out e^{-cut_depth} of delta, by Chernoff's bounds, which are a few factors off.
constexpr double cut_depth = 30;
// Narrower intervals are not worth another cut.
constexpr double closest_gap = 1e-10;

// K and its derivatives, and an upper bound of K.
struct Cumulant {
    double value, first, second, upper;
};

// The saddle point of K(s) - s eps - ln s - ln(1+s).
struct SaddlePoint {
    double s, epsilon, log_delta, curvature;
    Cumulant k;
};

double relative_gap(const std::optional<Answer>& answer) {
    if (!answer) return infinity;
    return answer->upper > 0 ? (answer->upper - answer->lower) / answer->upper : 0;
}

}  // namespace

struct Inversion::Halves {
    std::unique_ptr<Impl> beyond, below;
};

class Inversion::Impl {
public:
    // cut_mass: see Transform; of all steps together.
    explicit Impl(const Composition& composition, double cut_mass = 0) {
        const double kinds = static_cast<double>(composition.size());
        double log_finite = 0;
        for (const auto& [pair, count] : composition) {
            const double k = static_cast<double>(count), share = 1 / (k * kinds);
            steps_ += k;
            ++composed_;
            if (const double mu = plain_gaussian_mu(*pair); mu != 0) {
                variance_ += k * mu * mu;
            } else {
                kinds_.push_back({Transform::of(*pair, 1e-3 * share, cut_mass * share), nullptr, k, share});
                if (!kinds_.back().transform) return;
                dropped_ += k * kinds_.back().transform->dropped() * (1 + 1e-9);
                log_finite += k * std::log1p(-pair->infinity_mass());
            }
        }
        infinite_ = -std::expm1(log_finite);
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
        if (a > 0 && std::all_of(composition.begin(), composition.end(),
                                 [&](const auto& each) { return plain_laplace_epsilon(*each.first) == a; }))
            laplace_.emplace(a, steps_);
    }

    // Cut at a loss: the outcomes of which some step lies beyond it, and the others, whose transforms add up
    // to the whole, but for the largest losses, of this mass in all. Null where nothing can be cut.
    using Halves = Inversion::Halves;
    Halves split(double loss, double mass) const {
        if (!can_split()) return {};
        Halves halves{std::unique_ptr<Impl>(new Impl), std::unique_ptr<Impl>(new Impl)};
        for (Impl* half : {halves.beyond.get(), halves.below.get()}) {
            half->composed_ = composed_;
            half->steps_ = steps_;
            half->variance_ = variance_;
            half->answers_ = true;
        }
        for (const auto& kind : kinds_) {
            const Split parts = kind.transform->split(loss, mass * kind.share, 1e-3 * kind.share);
            const std::shared_ptr<const Transform> below = parts.beyond ? parts.below : kind.transform;
            halves.below->kinds_.push_back({below, nullptr, kind.count, kind.share});
            halves.beyond->kinds_.push_back({below, parts.beyond, kind.count, kind.share});
            halves.beyond->layered_ |= parts.beyond != nullptr;
            // can_split() is of whole transforms: otherwise their dropped() would count, too.
            halves.beyond->dropped_ += kind.count * parts.dropped * (1 + 1e-9);
        }
        if (!halves.beyond->layered_) return {};
        return halves;
    }

    // Whether the transform decays, or is periodic.
    bool answers() const { return answers_; }

    // Whether there are losses that a cut could leave out.
    bool can_cut() const {
        return std::any_of(kinds_.begin(), kinds_.end(),
                           [](const Kind& kind) { return kind.transform->can_cut(); });
    }

    // Whether cuts of the steps may help: rare large losses of Gaussian mixtures. Infinite losses and
    // lattices have ways of their own.
    bool can_split() const {
        return !(infinite_ > 0) && !(lattice_.spacing > 0) && !laplace_ && !kinds_.empty() &&
               kinds_.size() <= 8 && can_cut() &&
               std::all_of(kinds_.begin(), kinds_.end(),
                           [](const Kind& kind) { return kind.transform->can_split(); });
    }

    double dropped() const { return dropped_; }

    // What an attempt may cost: empty where the frequencies left out would take more than a share `worst` of
    // delta, or where there were more than about this many products of frequencies and nodes.
    struct Budget {
        double worst = 0.5;
        double products = infinity;
        std::size_t frequencies = most_frequencies;  // more are not even looked for, nor are dear bounds
    };
    // most: what ln delta is known to be at most, about.
    std::optional<Answer> delta_bounds(double epsilon, Budget budget, double most = 0) const {
        if (laplace_) {
            const auto saddle = saddle_for(epsilon, 0.3);
            if (saddle && laplace_->needed_at(saddle->s))
                return laplace_->delta_bounds(epsilon, saddle->s, share_of(*saddle));
        }
        const auto contour = contour_at(epsilon, std::nullopt, budget, most);
        return contour ? on_contour(*contour, epsilon) : std::nullopt;
    }

    // As delta_bounds; a contour also serves the next points, as long as it is hardly worse there.
    std::vector<std::optional<Answer>> delta_curve(std::span<const double> epsilons, Budget budget) const {
        std::vector<std::optional<Answer>> curve;
        std::optional<Contour> contour;
        double gap = 0;
        for (const double epsilon : epsilons) {
            std::optional<Answer> answer;
            if (contour) answer = on_contour(*contour, epsilon);
            if (!laplace_ && !(relative_gap(answer) < gap)) {
                contour = contour_at(epsilon, std::nullopt, budget);
                answer = contour ? on_contour(*contour, epsilon) : std::nullopt;
                gap = std::max(1e-9, 2 * relative_gap(answer));
            }
            curve.push_back(laplace_ ? delta_bounds(epsilon, budget) : answer);
        }
        return curve;
    }

    // guess: of epsilon, if positive. rest: an upper bound of delta of outcomes that are not counted.
    template <class Rest>
    std::optional<Answer> epsilon_bounds(double delta, Budget budget, double guess, Rest rest) const {
        const double finite = delta - infinite(+1);
        if (!(finite > 0)) return {};
        const double target = std::log(finite);
        const auto near = guess > 0 ? saddle_for(guess, 0.3) : std::nullopt;
        auto saddle = solve([&](const SaddlePoint& p) { return target - p.log_delta; },
                            [](const SaddlePoint& p) { return p.s * p.s * p.curvature; },
                            [](const SaddlePoint&) { return 0.05; }, near ? near->s : start(0, -target));
        // Of two estimates, mostly too large, the lesser.
        if (guess > 0 && !(saddle && saddle->epsilon > 0.1 * guess && saddle->epsilon < guess)) saddle = near;
        if (!saddle) return {};
        if (!(saddle->epsilon > 0) && !layered_) {
            // Perhaps nothing is spent at all.
            const auto zero = delta_bounds(0, budget);
            if (zero && zero->upper <= delta) {
                Answer answer = *zero;
                answer.lower = answer.upper = 0;
                return answer;
            }
        }
        double epsilon = std::max(0.0, saddle->epsilon);
        if (laplace_ && laplace_->needed_at(saddle->s))
            return laplace_->epsilon_bounds(delta, epsilon, saddle->s, share_of(*saddle));
        auto contour = make_contour(*saddle, epsilon, target, budget);
        Inverted at{};
        for (int round = 0; contour; ++round) {
            at = newton({&*contour, 1}, target, epsilon);
            if (!(at.value > 0)) return {};
            // Where the tilted loss has two humps, the estimate of delta is poor, and so the line chosen.
            if (at.value > 0.2 * contour->share || round == 2) break;
            contour = contour_at(epsilon, target, budget);
        }
        if (!contour) return {};
        Answer answer = describe(*contour, at);
        const double left_out = dropped_ + rest(epsilon);
        answer.truncation += left_out - dropped_;
        const auto [lower, upper] =
            bracket({&*contour, 1}, at, epsilon, delta, infinite(-1), infinite(+1) + left_out);
        if (!(upper < infinity)) return {};
        answer.lower = lower;
        answer.upper = upper;
        return answer;
    }

    std::optional<Answer> epsilon_bounds(double delta, Budget budget) const {
        return epsilon_bounds(delta, budget, 0, [](double) { return 0.0; });
    }

    // The same by layers of losses.
    Layers layers(double share) const {
        std::vector<Layers::Kind> kinds;
        for (const auto& kind : kinds_) kinds.push_back({kind.transform->mixtures(), kind.count});
        return Layers(kinds, variance_, share);
    }

    // Chooses where to cut.
    CutSearch cut_search() const {
        CutSearch search(variance_);
        for (const auto& kind : kinds_) search.add(kind.transform->coarse(), kind.count);
        return search;
    }

    // Chernoff's bounds: never tight, never vague. The best tilt lies near the saddle.
    double chernoff_epsilon(double delta) const {
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
    double chernoff_delta(double epsilon) const {
        double best = 0;  // delta <= 1
        const auto visit = [&](double s) {
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
    double log_delta(double epsilon) const {
        const auto saddle = saddle_for(epsilon, 0.3);
        return saddle ? std::min(saddle->log_delta, 0.0) : 0.0;
    }

    // Chernoff's bound at the saddle of K(s) - s eps.
    bool surely_below(double epsilon, double delta) const {
        const auto saddle = saddle_for(epsilon, 0.3);
        const double finite = delta - infinite(+1) - dropped_;
        return saddle && finite > 0 &&
               saddle->k.upper - saddle->s * epsilon + log_chernoff(saddle->s) < std::log(finite) - 1e-6;
    }

private:
    template <class Visit>
    static void for_tilts(double middle, Visit visit) {
        for (int i = 0; i < 48; ++i) visit(std::exp(std::log(middle) - 12 + 0.5 * (i + 0.5)));
    }

    std::optional<Answer> on_contour(const Contour& contour, double epsilon) const {
        const Inverted at = invert(contour, epsilon);
        Answer answer = describe(contour, at);
        // Where delta is denormal, products round by a unit of the last place.
        const double still = epsilon < 0 ? std::exp(log_atom_) * -std::expm1(epsilon) : 0;
        answer.lower = std::max(0.0, at.lower() + still * (1 - 1e-13) + infinite(-1) - 5e-324);
        answer.upper = std::min(1.0, at.upper() + still * (1 + 1e-13) + infinite(+1) + dropped_ + 5e-324);
        if (!(answer.lower <= answer.upper)) return {};
        return answer;
    }

    // ln of what delta is beside e^{K(s) - s eps}, by the saddle's estimate.
    static double share_of(const SaddlePoint& saddle) {
        return std::min(0.0, saddle.log_delta - (saddle.k.value - saddle.s * saddle.epsilon));
    }

    // The P-mass at +inf of all steps together, rounded down or up.
    double infinite(int direction) const {
        return infinite_ * (1 + direction * (1e-12 + 4 * u * static_cast<double>(composed_)));
    }

    // Where all kinds are atoms, whether their losses lie on one lattice; then they are put there.
    bool find_lattice(const Composition& composition) {
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
            kinds_[i].transform = std::make_unique<LossTransform>(std::move(laws[i]), 1e-3 * kinds_[i].share,
                                                                  0, lattice_.spacing);
        }
        return true;
    }

    // The saddle at eps, close to `share` of the scale on which e^{-s eps} changes.
    std::optional<SaddlePoint> saddle_for(double epsilon, double share) const {
        return solve([&](const SaddlePoint& p) { return p.epsilon - epsilon; },
                     [](const SaddlePoint& p) { return p.s * p.curvature; },
                     [&](const SaddlePoint& p) { return share / p.s; }, start(epsilon, 1));
    }

    // log_delta: what ln delta will be, if that is known.
    std::optional<Contour> contour_at(double epsilon, std::optional<double> log_delta, Budget budget,
                                      double most = 0) const {
        const auto saddle = saddle_for(epsilon, 0.1);
        if (!saddle) return {};
        return make_contour(*saddle, epsilon, log_delta.value_or(std::min(saddle->log_delta, most)), budget);
    }

    struct Kind {
        std::shared_ptr<const Transform> transform;
        std::shared_ptr<const Beyond> beyond;  // null: nothing
        double count, share;                   // share: of the error that each of its steps may make
    };

    Impl() = default;

    Cumulant cumulant(double s) const {
        Cumulant k{0.5 * variance_ * s * (s + 1), variance_ * (s + 0.5), variance_, 0};
        k.upper = k.value * (1 + 4 * u);
        // y = sum of counts * ln(1 + B/A); in layers, e^K (e^y - 1) is the transform.
        double y = 0, y1 = 0, y2 = 0, y_upper = 0;
        for (const auto& kind : kinds_) {
            const Transform::Real m = kind.transform->at(s);
            k.value += kind.count * m.value;
            k.upper += kind.count * m.upper;
            k.first += kind.count * m.first;
            k.second += kind.count * m.second;
            if (!kind.beyond) continue;
            const Beyond::Real b = kind.beyond->at(s);
            const double r = std::exp(b.value - m.value), share = r / (1 + r), d = b.first - m.first;
            y += kind.count * std::log1p(r);
            y1 += kind.count * share * d;
            y2 += kind.count * share * (d * d * (1 - share) + b.second - m.second);
            // (A+B)^T - A^T increases with A and with B: A's upper bound is in k.upper, B's is relative to
            // it.
            // Denormal ratios would be rounded down.
            y_upper += kind.count * std::log1p(std::exp(std::max(b.upper - m.upper, -690.0)) *
                                               (1 + 8 * u * (1 + std::abs(b.upper) + std::abs(m.upper))));
        }
        if (layered_) {
            const double none = std::exp(-y), some = -std::expm1(-y);
            k.value += log_expm1(y);
            k.first += y1 / some;
            k.second = std::max(0.0, k.second + (y2 - y1 * y1 * none / some) / some);
            const double log_some = log_expm1(y_upper);
            k.upper += log_some + 1e-14 * (1 + std::abs(log_some));
        }
        return k;
    }

    SaddlePoint saddle_at(double s) const {
        const Cumulant k = cumulant(s);
        const double epsilon = k.first - 1 / s - 1 / (1 + s);
        const double curvature = k.second + 1 / (s * s) + 1 / ((1 + s) * (1 + s));
        const double log_delta =
            k.value - s * epsilon - std::log(s) - std::log1p(s) - 0.5 * std::log(2 * pi * curvature);
        return {s, epsilon, log_delta, curvature, k};
    }

    // A first guess: that of a Gaussian of the same variance.
    double start(double epsilon, double log_inverse_delta) const {
        const Cumulant k = cumulant(0);
        const double deviation = std::sqrt(std::max(k.second, 1e-300));
        const double z = std::max({1.0, (epsilon - k.first) / deviation, std::sqrt(2 * log_inverse_delta)});
        // Rare large losses: the tilt that moves the noise by z.
        double shift = deviation;
        for (const auto& kind : kinds_) shift = std::max(shift, kind.transform->rare_shift());
        return std::clamp(z / shift, 1e-12, 1e12);
    }

    // The s where `excess`, which increases with s, vanishes: Newton in ln s, kept in a bracket that
    // halves at worst. `close` is how near is near enough: any s > 0 gives the same delta.
    template <class Excess, class Slope, class Close>
    std::optional<SaddlePoint> solve(Excess excess, Slope slope, Close close, double s) const {
        double low = -infinity, high = infinity, x = std::log(s);
        for (int i = 0, overflows = 0; i < 100 && overflows < 5; ++i) {
            const SaddlePoint point = saddle_at(std::exp(x));
            const double off = excess(point);
            const bool fine = std::isfinite(off) && std::isfinite(point.k.upper) && point.curvature > 0;
            if (fine && std::abs(off) <= close(point)) return point;
            // Where the sums overflow, s is too large.
            overflows += !fine;
            (fine && off < 0 ? low : high) = x;
            double next = fine ? x - std::clamp(off / slope(point), -1.5, 1.5) : x - 1;
            if (!(next > low && next < high)) {
                if (!std::isfinite(low) || !std::isfinite(high)) return {};
                next = 0.5 * (low + high);
            }
            if (std::abs(next) > 100) return {};
            if (high - low < 1e-12) return {};
            x = next;
        }
        return {};
    }

    // ln of the sum over m >= 1 of the aliases on one side, as a line in eps and in the period:
    //     offset + shift * (-direction * eps - period), for the shift that needs the least period.
    void choose_aliases(const SaddlePoint& saddle, double epsilon, double wanted, int direction,
                        double& shift, double& offset, double& period) const {
        const double unit = 1 / std::sqrt(std::max(saddle.k.second, 1e-300));
        period = infinity;
        // From the best one for a Gaussian downwards: past a tilt where rare losses take over, K explodes.
        double factor = 7.5;
        for (int i = 0; i < 30; ++i, factor /= 1.5) {
            double further = factor * unit;
            if (direction < 0) further = std::min(further, saddle.s * (1 - 1e-3));
            const double s = saddle.s + direction * further;
            const double log_bound = log_chernoff(s) + cumulant(s).upper - saddle.k.value;
            const double needed = (log_bound - direction * further * epsilon - wanted) / further;
            if (std::isfinite(needed) && needed < period) {
                period = needed;
                shift = further;
                offset = log_bound;
            } else if (std::isfinite(period)) {
                break;
            }
        }
    }

    // How the transform decays along Re z = s; in layers, with bounds there of A and B, relative to `scale`.
    struct Decays {
        struct Kind {
            std::unique_ptr<DecayBound> bound, beyond;
            double log_scale = 0, log_beyond = 0;
        };
        std::vector<Kind> kinds;
        double scale = 0;  // upper bound of K(s)
    };
    Decays decays_at(double s) const {
        Decays decays;
        if (layered_) decays.scale = cumulant(s).upper;
        for (const auto& kind : kinds_) {
            Decays::Kind each;
            each.log_scale = kind.transform->at(s).upper;
            // A handful of powers would gain little.
            if (!kind.beyond || kind.count > 8) each.bound = kind.transform->decay(s, each.log_scale);
            if (kind.beyond) {
                each.log_beyond = kind.beyond->at(s).upper;
                each.beyond = kind.beyond->decay(s, each.log_beyond);
            }
            decays.kinds.push_back(std::move(each));
        }
        return decays;
    }

    double log_decay(const Decays& decays, double tau, bool steep) const {
        double sum = -0.5 * variance_ * tau * tau * (1 - 8 * u);
        if (!layered_) {
            for (std::size_t i = 0; i < kinds_.size(); ++i) {
                const DecayBound& bound = *decays.kinds[i].bound;
                sum += kinds_[i].count * (steep ? bound.steep_log_bound(tau) : bound.log_bound(tau)) *
                       (1 - 1e-12);
            }
            return sum;
        }
        // |(A+B)^T - A^T| <= (a+b)^T - a^T where |A| <= a, |B| <= b.
        double y = 0;
        for (std::size_t i = 0; i < kinds_.size(); ++i) {
            const auto& each = decays.kinds[i];
            const double count = kinds_[i].count,
                         a = each.log_scale + (each.bound ? each.bound->log_bound(tau) : 0) * (1 - 1e-12);
            sum += count * a;
            if (each.beyond)
                y +=
                    count *
                    std::log1p(std::exp(std::max(each.log_beyond + each.beyond->log_bound(tau) - a, -690.0)));
        }
        return sum + log_expm1(y) - decays.scale + 1e-14 * (steps_ + std::abs(sum) + std::abs(y));
    }

    // sum over j >= first of step/pi |integrand|: 1/|z (z+1)| <= 1/tau^2, in blocks of doubling tau.
    // log_atom: ln of what is subtracted from the integrand.
    double tail(const Decays& decays, double step, std::size_t first, bool steep, double log_atom) const {
        if (lattice_.spacing > 0) return lattice_tail(decays, step, first);
        double sum = 0, tau = step * static_cast<double>(first);
        for (int block = 0; block < 60; ++block, tau *= 2) {
            const double log_bound = log_decay(decays, tau, steep);
            // |prod M_i - prod a_i| <= prod |M_i|' - prod a_i, |M_i|' a bound that counts a_i in full.
            const double excess = log_atom > -infinity ? log_bound - log_atom : infinity;
            const double left = excess > 1 ? std::exp(log_bound)
                                           : std::exp(log_atom) * (std::expm1(std::max(excess, 0.0)) +
                                                                   1e-12 * (1 + std::abs(log_bound)));
            const double bound = left / pi;
            sum += bound * (step / (tau * tau) + 0.5 / tau);
            if (bound / tau < 1e-4 * sum || block == 59) return 1.01 * (sum + bound / tau);
        }
        return sum;
    }

    // A contour but for its values.
    struct Plan {
        Contour contour;
        std::size_t size;
    };
    std::optional<Plan> make_plan(const SaddlePoint& saddle, double epsilon, double log_delta,
                                  std::size_t at_most) const {
        const double s = saddle.s;
        Plan plan{};
        Contour& contour = plan.contour;
        contour.s = s;
        contour.scale = saddle.k.value;
        const double log_share = std::min(0.0, log_delta - (contour.scale - s * epsilon));
        contour.share = std::exp(log_share);
        const double wanted = log_share + std::log(tolerance);
        double right, left;
        choose_aliases(saddle, epsilon, wanted, +1, contour.right_shift, contour.log_right, right);
        choose_aliases(saddle, epsilon, wanted, -1, contour.left_shift, contour.log_left, left);
        const double period = std::max(right, left);
        if (!(period > 0 && std::isfinite(period) && contour.share > 0)) return {};
        contour.step = 2 * pi / period;
        std::size_t most = at_most;
        if (const double spacing = lattice_.spacing; spacing > 0) {
            contour.lattice = lattice_;
            contour.points = std::max(1.0, std::ceil(period / spacing));
            contour.step = 2 * pi / (contour.points * spacing);
            most = std::min(most, frequencies_in(contour.step));
        }

        // A Gaussian would need so many frequencies; what falls more slowly needs more.
        if (at_most < most_frequencies && std::sqrt(-2 * wanted / std::max(saddle.k.second, 1e-300)) >
                                              contour.step * static_cast<double>(at_most))
            return {};
        const Decays decays = decays_at(s);
        const double log_atom = log_atom_ - saddle.k.upper, enough = contour.share * tolerance;
        const auto first = static_cast<std::size_t>(
            std::clamp(7 / (contour.step * std::sqrt(saddle.curvature)), 4.0, 1.0 * most_frequencies));
        // About the least number of frequencies for such a tail; if not even the most are enough, they will
        // have to do.
        const auto cut_off = [&](double wanted_tail, std::size_t limit, bool steep) {
            plan.size = limit;
            contour.tail = tail(decays, contour.step, plan.size, steep, log_atom);
            if (!(contour.tail <= wanted_tail)) return false;
            // The tail falls with the size: halved in ratio until close.
            for (std::size_t low = std::min(first, limit); 10 * plan.size > 11 * low + 10;) {
                const auto size = static_cast<std::size_t>(
                    std::sqrt(static_cast<double>(low) * static_cast<double>(plan.size)));
                const double error = tail(decays, contour.step, size, steep, log_atom);
                if (error <= wanted_tail) {
                    plan.size = size;
                    contour.tail = error;
                } else {
                    low = size + 1;
                }
            }
            return true;
        };
        bool good = false;
        // Beside an atom that is subtracted the rest falls slowly: the last digits are not worth their
        // frequencies, and where there are no five digits for a few of them the lattice is quicker.
        if (log_atom_ > -infinity) {
            for (const std::size_t limit : {most_beside_atom, 2 * most_beside_atom})
                for (const double share : {tolerance, 1e-11, 1e-9, 1e-7, 1e-5})
                    good = good || cut_off(contour.share * share, std::min(most, limit), false);
            if (!good && log_atom > std::log(enough)) return {};
        }
        // Many steps make up for the coarser bound, unless nothing would help.
        for (const bool steep : {false, true})
            good = good || ((!steep || (!layered_ && steps_ <= 100 && at_most == most_frequencies)) &&
                            cut_off(enough, most, steep));
        // The decay is relative to K's upper bound, everything else to its value.
        contour.tail *= std::exp(saddle.k.upper - saddle.k.value);
        return plan;
    }

    // About what filling it takes: over some 17 units of the noise, nodes as close as the frequency asks for.
    double products(const Plan& plan) const {
        const double n = static_cast<double>(plan.size);
        double shift = 0;
        for (const auto& kind : kinds_) shift = std::max(shift, kind.transform->rare_shift());
        return n * 17 * std::max(2.0, n * plan.contour.step * shift / (2 * pi));
    }

    // The line through the saddle, where errors are smallest beside delta. But there rare huge losses may
    // carry much of the tilted mass, and the transform then hardly decays: a smaller tilt may do.
    std::optional<Contour> make_contour(const SaddlePoint& saddle, double epsilon, double log_delta,
                                        Budget budget) const {
        std::optional<Plan> best;
        for (double share : {1.0, 0.85, 0.7, 0.5}) {
            if (share < 1 && budget.frequencies < most_frequencies) break;
            const SaddlePoint point = share == 1 ? saddle : saddle_at(share * saddle.s);
            auto plan = make_plan(point, epsilon, log_delta, budget.frequencies);
            const auto error = [](const Plan& p) {
                return (p.contour.tail + lost_to_rounding) / p.contour.share;
            };
            if (plan && (!best || error(*plan) < error(*best))) best = std::move(plan);
            if (best && best->contour.tail <= tolerance * best->contour.share) break;
        }
        if (!best || !(best->contour.tail + lost_to_rounding < budget.worst * best->contour.share) ||
            products(*best) > budget.products)
            return {};
        Contour& contour = best->contour;
        const std::size_t size = best->size;
        const double enough = tolerance * contour.share;
        if (layered_) {
            if (!fill_layer(contour, size)) return {};
            return contour;
        }
        // Rows good to 0.8 of the way mostly do, as powers of M are small further out.
        const double end = contour.step * static_cast<double>(size);
        if (contour.tail <= enough && (!(log_atom_ > -infinity) || size <= most_beside_atom) &&
            fill(contour, size, 0.8 * end)) {
            double error = 0;
            for (double e : contour.error) error += e;
            if (error < 1000 * enough) return contour;
        }
        if (!fill(contour, size, end)) return {};
        return contour;
    }

    // Adds count * ln of one kind's M along the contour.
    static void add_row(const Transform::Row& row, double count, std::vector<double>& modulus,
                        std::vector<double>& angle, std::vector<double>& upper) {
        for (std::size_t j = 0; j < row.value.size(); ++j) {
            const Complex f = row.value[j], k = log1p(f);
            const double size_f = std::abs(f), whole = std::abs(1.0 + f);
            // The logarithm rounds relatively to f; where 1 + f nearly vanishes, that is rounded once.
            const double rounding =
                whole < 0.5 ? whole * (1 + std::abs(k.real())) : (size_f + size_f * size_f) / whole;
            const double slack = row.error[j] + u * 8 * rounding;
            const double log_upper =
                whole > slack ? k.real() + std::log1p(slack / whole) : std::log(whole + slack);
            modulus[j] += count * (k.real() + row.shift);
            angle[j] += count * k.imag();
            upper[j] += count * (row.shift + log_upper) + 4 * u * count * (std::abs(k.real()) + row.shift);
        }
    }

    // The values along the contour; false where they cannot be had.
    bool fill(Contour& contour, std::size_t size, double reach) const {
        const double s = contour.s;
        // ln of the modulus, of an upper bound of it, and the angle of e^{K(z)}.
        std::vector<double> modulus(size), upper(size), angle(size);
        for (std::size_t j = 0; j < size; ++j) {
            const Complex z(s, contour.step * static_cast<double>(j));
            const Complex k = 0.5 * variance_ * z * (z + 1.0);
            modulus[j] = k.real();
            angle[j] = k.imag();
            upper[j] =
                k.real() + (12 + static_cast<double>(composed_)) * u * 0.5 * variance_ * std::norm(z + 1.0);
        }
        // A few kinds at a time, so that memory stays bounded; added up in order, whatever the threads.
        constexpr std::size_t chunk = 32;
        std::vector<Transform::Row> rows(std::min(chunk, kinds_.size()));
        for (std::size_t begin = 0; begin < kinds_.size(); begin += chunk) {
            const std::size_t count = std::min(chunk, kinds_.size() - begin);
            parallel_for(count, [&](std::size_t i) {
                const Kind& kind = kinds_[begin + i];
                rows[i] = kind.transform->row(s, contour.step, size, reach, 0.3 * tolerance * kind.share);
            });
            for (std::size_t i = 0; i < count; ++i) {
                if (rows[i].value.empty()) return false;
                add_row(rows[i], kinds_[begin + i].count, modulus, angle, upper);
            }
        }
        contour.integrand.resize(size);
        contour.error.resize(size);
        const double atom = std::exp(log_atom_ - contour.scale);
        for (std::size_t j = 0; j < size; ++j) {
            const Complex z(s, contour.step * static_cast<double>(j));
            const double low = modulus[j] - contour.scale, high = upper[j] - contour.scale;
            const Complex pole = contour.pole(j);
            const double value = std::exp(low);
            const double between = high - low < 1 ? value * std::expm1(high - low) : std::exp(high);
            const double rounding =
                (value + atom) * u *
                (16 + 4 * (std::abs(modulus[j]) + std::abs(contour.scale) + std::abs(angle[j])));
            contour.integrand[j] = (std::polar(value, angle[j]) - atom) * pole;
            contour.error[j] = (between + rounding) * std::abs(pole);
            if (!std::isfinite(contour.error[j]) || !std::isfinite(value)) return false;
        }
        return true;
    }

    // The same for prod (A + B)^k - prod A^k.
    bool fill_layer(Contour& contour, std::size_t size) const {
        const double s = contour.s, reach = contour.step * static_cast<double>(size);
        std::vector<Powers> sums;
        for (std::size_t j = 0; j < size; ++j) {
            sums.emplace_back(Complex(s, contour.step * static_cast<double>(j)), variance_,
                              static_cast<double>(composed_));
        }
        for (const auto& kind : kinds_) {
            const double n = kind.count;
            const Transform::Row below =
                kind.transform->row(s, contour.step, size, reach, 0.3 * tolerance * kind.share);
            if (below.value.empty()) return false;
            Transform::Row beyond;
            if (kind.beyond) {
                beyond = kind.beyond->row(s, contour.step, size, 0.1 * tolerance);
                if (beyond.value.empty()) return false;
            }
            const double moved = beyond.shift - below.shift, unit = kind.beyond ? std::exp(moved) : 0;
            if (kind.beyond && !(unit > 1e-280 && unit < infinity)) return false;
            // A modulus below which A to that power adds nothing; to whatever B is.
            const double all = std::abs(1.0 + below.value[0]) +
                               unit * std::abs(kind.beyond ? beyond.value[0] : 0),
                         least = all / std::max(64.0, 4 * n);
            for (std::size_t j = 0; j < size; ++j) {
                const Complex f = below.value[j], k = log1p(f), m = 1.0 + f;
                const double size_f = std::abs(f), size_m = std::abs(m);
                const double units = 8 * (size_m < 0.5 ? 1 + std::abs(k.real())
                                                       : (size_f + size_f * size_f) / (size_m * size_m)) +
                                     4 * (std::abs(k.real()) + below.shift);
                const double a = sums[j].below(n, size_m, k, below.shift, units, below.error[j],
                                               kind.beyond ? least : 0.0);
                if (kind.beyond)
                    sums[j].beyond(n, a, m, unit * beyond.value[j], unit * beyond.error[j], moved);
            }
        }
        contour.integrand.resize(size);
        contour.error.resize(size);
        for (std::size_t j = 0; j < size; ++j) {
            const auto [value, error] = sums[j].difference(contour.scale);
            const Complex pole = contour.pole(j);
            contour.integrand[j] = value * pole;
            contour.error[j] = error * std::abs(pole);
            if (!std::isfinite(contour.error[j]) || !std::isfinite(value.real()) ||
                !std::isfinite(value.imag()))
                return false;
        }
        return true;
    }

    // How many frequencies there are in half a period.
    std::size_t frequencies_in(double step) const {
        return static_cast<std::size_t>(
                   std::min(1e9, std::floor(std::rint(2 * pi / (step * lattice_.spacing)) / 2))) +
               1;
    }

    // |1 - e^{-w}| >= sin(Im w/2) where Re w >= 0, and the numerator is at most 1.
    double lattice_tail(const Decays& decays, double step, std::size_t first) const {
        if (first >= frequencies_in(step)) return 0;
        const double tau = step * static_cast<double>(first), sine = std::sin(0.5 * tau * lattice_.spacing);
        return 1.01 * std::exp(log_decay(decays, tau, false)) / (sine * sine);
    }

    Answer describe(const Contour& contour, const Inverted& at) const {
        Answer answer;
        answer.engine = "inversion";
        answer.step = contour.step;
        answer.size = contour.integrand.size();
        answer.wrap_around = at.scaled(at.aliasing);
        answer.truncation = 2 * at.scaled(at.tail) + dropped_;
        answer.discretisation = 2 * at.scaled(at.quadrature);
        answer.round_off = 2 * at.scaled(at.round_off);
        return answer;
    }

    std::size_t composed_ = 0;
    double steps_ = 0, dropped_ = 0;  // dropped: P-mass that the transforms leave out
    double infinite_ = 0;             // P-mass at +inf, as the pairs have it
    // ln of a lower bound on the atom A of the sum at 0. At any eps >= 0 it adds nothing to delta, below it
    // adds A (1 - e^eps); without it e^K falls at high frequencies.
    double log_atom_ = -infinity;
    bool answers_ = false;
    bool layered_ = false;  // only outcomes with some step beyond its cut
    LossLattice lattice_;
    double variance_ = 0;  // of the plain Gaussian steps: K = variance s (s+1) / 2
    std::vector<Kind> kinds_;
    std::optional<LaplaceSteps> laplace_;  // where there is nothing else
};

Inversion::Inversion(const Composition& composition, double accuracy)
    : composition_(composition),
      impl_(std::make_unique<Impl>(composition)),
      narrow_gap_(0.1 * accuracy),
      layer_tolerance_(std::clamp(3e-3 * narrow_gap_, 1e-11, 1e-6)) {}
Inversion::~Inversion() = default;

std::unique_ptr<Inversion> Inversion::of(const Composition& composition, double accuracy) {
    std::unique_ptr<Inversion> inversion(new Inversion(composition, accuracy));
    return inversion->impl_->answers() ? std::move(inversion) : nullptr;
}

// Where the outcomes without any step beyond the cut hardly add to delta(epsilon), about e^{log_delta}, of
// which a better estimate may be found.
Inversion::Halves Inversion::cut(const Impl& impl, CutSearch& search, double epsilon, double& log_delta) {
    search.focus(epsilon);
    const auto found = search.cut_at(epsilon, cut_depth);
    if (!found) return {};
    log_delta = std::min(log_delta, found->log_delta);
    double loss = found->loss;
    // The estimate is of a sharp cut.
    for (int i = 0; i < 4; ++i, loss *= 0.6) {
        Halves halves = impl.split(loss, std::exp(log_delta - cut_depth));
        if (!halves.beyond) return {};
        const double rest = halves.below->chernoff_delta(epsilon);
        if (rest < std::exp(log_delta - cut_depth + 4)) return halves;
    }
    return {};
}

std::optional<Answer> Inversion::epsilon_bounds(double delta) const {
    const bool layers = impl_->can_split();
    const Impl::Budget first =
        layers ? Impl::Budget{near_exact, few_products, few_frequencies} : Impl::Budget{};
    std::optional<Answer> best;
    // It leaves out what is not worth its nodes, unless delta is that small.
    const bool whole = impl_->dropped() <= 1e-9 * delta;
    if (whole) best = impl_->epsilon_bounds(delta, first);
    if (!impl_->can_cut() || relative_gap(best) < narrow_gap_) return best;
    const auto keep = [&](const std::optional<Answer>& answer) {
        if (relative_gap(answer) < relative_gap(best)) best = answer;
    };
    if (layers) {
        keep(impl_->layers(layer_tolerance_).epsilon_bounds(delta));
        if (relative_gap(best) < narrow_gap_) return best;
        CutSearch search = impl_->cut_search();
        search.leave_out(std::log(delta) - cut_depth);
        double epsilon = search.epsilon_at(std::log(delta)), log_delta = std::log(delta);
        for (int round = 0; round < 3 && epsilon > 0; ++round) {
            const Halves halves = cut(*impl_, search, epsilon, log_delta);
            if (!halves.beyond) break;
            const auto answer = halves.beyond->epsilon_bounds(
                delta, {narrow_gap_}, epsilon,
                [&](double found) { return halves.below->chernoff_delta(0.999 * found); });
            keep(answer);
            if (!answer || relative_gap(best) < narrow_gap_) break;
            epsilon = answer->lower;
        }
        if (relative_gap(best) < narrow_gap_) return best;
        if (whole) keep(impl_->epsilon_bounds(delta, {}));
    }
    double dropped = impl_->dropped();
    for (double share : {1e-12, 1e-9, 1e-6, 1e-4}) {
        if (relative_gap(best) < narrow_gap_ || !(delta * share > 0)) break;
        const Impl cut(composition_, delta * share);
        if (cut.dropped() == std::exchange(dropped, cut.dropped())) continue;  // nothing new
        keep(cut.epsilon_bounds(delta, {}));
    }
    return best;
}

std::optional<Answer> Inversion::delta_bounds(double epsilon) const {
    const bool layers = impl_->can_split();
    const Impl::Budget first =
        layers ? Impl::Budget{near_exact, few_products, few_frequencies} : Impl::Budget{};
    std::optional<Answer> best = impl_->delta_bounds(epsilon, first);
    if (!impl_->can_cut() || relative_gap(best) < narrow_gap_) return best;
    double log_delta = 0;
    if (layers) {
        const auto keep = [&](const std::optional<Answer>& answer) {
            if (relative_gap(answer) < relative_gap(best)) best = answer;
        };
        // delta is wanted to ten digits.
        keep(impl_->layers(std::min(layer_tolerance_, 1e-12)).delta_bounds(epsilon));
        if (relative_gap(best) >= near_exact)
            keep(impl_->delta_bounds(epsilon, {std::min(narrow_gap_, relative_gap(best)), some_products}));
        if (relative_gap(best) < narrow_gap_) return best;
        CutSearch search = impl_->cut_search();
        log_delta = search.leave_out_at(epsilon, cut_depth + 4);
        // What is left out is little beside an estimate of delta; where that was too large, beside the
        // answer.
        for (int round = 0; round < 2; ++round) {
            const Halves halves = cut(*impl_, search, epsilon, log_delta);
            if (!halves.beyond) break;
            auto answer = halves.beyond->delta_bounds(epsilon, {narrow_gap_}, log_delta);
            if (!answer) break;
            const double rest = halves.below->chernoff_delta(epsilon);
            answer->upper = std::min(1.0, answer->upper + rest);
            answer->truncation += rest;
            if (relative_gap(answer) < relative_gap(best)) best = answer;
            const double better = std::log(answer->upper);
            if (relative_gap(best) < closest_gap || !(better < log_delta - 2)) break;
            log_delta = better;
            search = impl_->cut_search();
            search.leave_out(log_delta - cut_depth);
        }
        if (relative_gap(best) < narrow_gap_) return best;
        if (const auto answer = impl_->delta_bounds(epsilon, {}); relative_gap(answer) < relative_gap(best))
            best = answer;
    }
    // What is cut must be little beside a delta that is not known yet.
    double delta = std::min(best ? best->upper : std::exp(impl_->log_delta(epsilon)), std::exp(log_delta)),
           dropped = impl_->dropped();
    for (int round = 0; round < 12 && relative_gap(best) >= narrow_gap_ && delta > 0; ++round) {
        std::optional<Answer> found;
        for (double share : {1e-12, 1e-9, 1e-6, 1e-4}) {
            if (!(delta * share > 0)) break;
            const Impl cut(composition_, delta * share);
            if (cut.dropped() == std::exchange(dropped, cut.dropped())) continue;
            const auto answer = cut.delta_bounds(epsilon, {});
            if (relative_gap(answer) < relative_gap(found)) found = answer;
            if (relative_gap(found) < narrow_gap_) break;
        }
        if (!found) break;
        if (relative_gap(found) < relative_gap(best)) best = found;
        if (found->upper > 0.1 * delta) break;
        delta = found->upper;
    }
    return best;
}

std::vector<std::optional<Answer>> Inversion::delta_curve(std::span<const double> epsilons) const {
    const Impl::Budget budget = impl_->can_split() ? Impl::Budget{narrow_gap_} : Impl::Budget{};
    auto curve = impl_->delta_curve(epsilons, budget);
    for (std::size_t i = 0; i < curve.size(); ++i)
        if (!(relative_gap(curve[i]) < narrow_gap_)) curve[i] = delta_bounds(epsilons[i]);
    return curve;
}

double Inversion::chernoff_epsilon(double delta) const {
    double best = impl_->chernoff_epsilon(delta);
    if (delta * 0.1 > 0) best = std::min(best, Impl(composition_, 0.1 * delta).chernoff_epsilon(delta));
    return best;
}

double Inversion::chernoff_delta(double epsilon) const { return impl_->chernoff_delta(epsilon); }

bool Inversion::surely_below(double epsilon, double delta) const {
    return impl_->surely_below(epsilon, delta);
}

}  // namespace hockeystick
