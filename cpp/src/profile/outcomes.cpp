#include "profile/outcomes.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "numerics/constants.hpp"
#include "numerics/sums.hpp"

namespace hockeystick {
namespace {

// proof: what one step of the recurrence for delta rounds by, relatively, in units; what products of errors
// add to them; and the mass and delta that an outcome may lose below the normal doubles.
constexpr double rounding_of_step = 16, products = 1 + 1e-9, lost_below = 16 * 5e-324;

// speed: from what relative error of a mass on its two sides are told apart.
constexpr double unsure = 1e-9;

// What the logarithm of an atom's mass may lack on either side, beside an error in units of round-off. Where
// the slack is large it is that of a tiny mass, which absolute errors (of what is left of 1, of what has lost
// digits to underflow) may make any larger or nothing at all; proof: 64 is more than the roundings of
// logarithms alone count (hockeystick/loss_law.hpp).
struct Unsure {
    double below = 0, above = 0, error = 0;
    explicit Unsure(const LossAtom& atom) : error(atom.log_p_slack) {
        const double share = u * atom.log_p_slack;
        if (share < unsure) return;
        below = share < 1 ? std::log1p(-share) : -infinity;
        above = std::log1p(share);
        error = std::min(error, 64 * (64 + std::abs(atom.log_p) + std::abs(atom.loss) + atom.loss_slack)) +
                4 * above;
    }
};

// proof: no multiple of a smaller error overflows.
constexpr double most_error = 1e306;

// ln k! for k = 0, ..., n.
std::vector<double> log_factorials(std::size_t n) {
    std::vector<double> out{0};
    CompensatedSum sum;
    for (std::size_t k = 1; k <= n; ++k) {
        sum.add(std::log(static_cast<double>(k)));
        out.push_back(sum.value());
    }
    return out;
}

// How many multisets of so many steps there are; perhaps rounded.
double multisets(std::size_t atoms, double steps) {
    double out = 1;
    for (std::size_t i = 1; i < atoms; ++i) out *= (steps + static_cast<double>(i)) / static_cast<double>(i);
    return out;
}

}  // namespace

std::vector<Outcomes::Outcome> Outcomes::of_kind(const std::vector<LossAtom>& atoms, std::size_t steps) {
    const bool several = atoms.size() > 1;
    const std::vector<double> log_factorial = log_factorials(several ? steps : 0);
    const double all = log_factorial.back();
    std::vector<Outcome> done;
    // Those of which some steps have no loss yet, none that came before this atom.
    std::vector<std::pair<std::size_t, Outcome>> open{{steps, {0, all, 0, 4 * all, 0, 0}}};
    for (std::size_t j = 0; j < atoms.size(); ++j) {
        const LossAtom& atom = atoms[j];
        const Unsure mass(atom);
        std::vector<std::pair<std::size_t, Outcome>> more;
        for (const auto& [left, before] : open) {
            for (std::size_t k = j + 1 < atoms.size() ? 0 : left; k <= left; ++k) {
                Outcome at = before;
                if (k > 0) {
                    const double times = static_cast<double>(k), ways = several ? log_factorial[k] : 0;
                    at.loss += times * atom.loss;
                    // Multiples of a step are rounded, too, though they count as exact.
                    at.loss_error += times * (atom.loss_slack + 2 * std::abs(atom.loss)) + std::abs(at.loss);
                    at.log_p += times * atom.log_p - ways;
                    at.log_p_error +=
                        times * (mass.error + 2 * std::abs(atom.log_p)) + 6 * ways + std::abs(at.log_p);
                    at.below += times * mass.below;
                    at.above += times * mass.above;
                }
                if (k == left)
                    done.push_back(at);
                else
                    more.emplace_back(left - k, at);
            }
        }
        open = std::move(more);
    }
    return done;
}

// Empty where there is no such list.
std::vector<Outcomes::Outcome> Outcomes::all(const Composition& composition, std::size_t most) {
    std::vector<std::vector<LossAtom>> kinds;
    double size = 1;
    for (const auto& [pair, count] : composition) {
        auto law = pair->loss_law();
        if (!law || !law->pieces.empty() || law->atoms.empty() || law->lacks_rounding) return {};
        size *= multisets(law->atoms.size(), static_cast<double>(count));
        if (!(size < static_cast<double>(most))) return {};
        kinds.push_back(std::move(law->atoms));
    }
    std::vector<Outcome> known{Outcome{}};
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        std::vector<Outcome> more;
        for (const Outcome& b : of_kind(kinds[i], static_cast<std::size_t>(composition[i].second)))
            for (const Outcome& a : known)
                more.push_back({a.loss + b.loss, a.log_p + b.log_p,
                                a.loss_error + b.loss_error + std::abs(a.loss + b.loss),
                                a.log_p_error + b.log_p_error + std::abs(a.log_p + b.log_p),
                                a.below + b.below, a.above + b.above});
        known = std::move(more);
    }
    const auto overflows = [](const Outcome& o) { return !(std::abs(o.loss) + o.loss_error < most_error); };
    if (std::ranges::any_of(known, overflows)) return {};
    return known;
}

std::shared_ptr<const Outcomes> Outcomes::of(const Composition& composition, std::size_t most) {
    const std::vector<Outcome> outcomes = all(composition, most);
    if (outcomes.empty()) return nullptr;
    return std::make_shared<const Outcomes>(bounded(outcomes, false), bounded(outcomes, true));
}

std::vector<Outcomes::Term> Outcomes::terms(const Composition& composition, std::size_t most, bool upper) {
    return bounded(all(composition, most), upper);
}

std::vector<Outcomes::Term> Outcomes::bounded(const std::vector<Outcome>& outcomes, bool upper) {
    const double sign = upper ? 1 : -1;
    std::vector<Term> at;
    for (const Outcome& o : outcomes) {
        const double loss = o.loss + sign * u * products * (o.loss_error + std::abs(o.loss) + 1e-290);
        const double log_p = o.log_p + (upper ? o.above : o.below) +
                             sign * u * products * (o.log_p_error + 2 * std::abs(o.log_p) + 4 * o.above + 4);
        at.push_back({loss, std::exp(std::min(0.0, log_p))});
    }
    std::ranges::sort(at, {}, [](const Term& term) { return std::pair(term.loss, term.mass); });
    return at;
}

Outcomes::Side Outcomes::side(const std::vector<Term>& at) {
    Side out{std::vector<double>(at.size()), std::vector<double>(at.size()), std::vector<double>(at.size())};
    double delta = 0, mass = 0;
    for (std::size_t i = at.size(); i-- > 0;) {
        // From the loss above down to this one; only positive terms.
        const double gap = i + 1 < at.size() ? at[i + 1].loss - at[i].loss : 0;
        delta = delta * std::exp(-gap) - mass * std::expm1(-gap);
        mass += at[i].mass;
        out.loss[i] = at[i].loss;
        out.delta[i] = delta;
        out.mass[i] = mass;
    }
    return out;
}

double Outcomes::delta(double epsilon, bool upper) const {
    const Side& side = upper ? upper_ : lower_;
    const auto next = std::upper_bound(side.loss.begin(), side.loss.end(), epsilon);
    const double size = static_cast<double>(side.loss.size());
    double value = 0;
    if (next != side.loss.end()) {
        const auto i = static_cast<std::size_t>(next - side.loss.begin());
        const double gap = side.loss[i] - epsilon;
        value = side.delta[i] * std::exp(-gap) - side.mass[i] * std::expm1(-gap);
    }
    const double rounding = (size + 16) * (rounding_of_step * u * value + lost_below);
    return std::max(0.0, upper ? value + rounding : value - rounding);
}

}  // namespace hockeystick
