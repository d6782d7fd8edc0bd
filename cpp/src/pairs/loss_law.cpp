#include "hockeystick/loss_law.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "numerics/constants.hpp"
#include "numerics/require.hpp"
#include "numerics/special.hpp"
#include "numerics/sums.hpp"

namespace hockeystick {
namespace {

// proof: in units of round-off, more than a product that underflows loses, of the least double or two.
constexpr double least_slack = 1e-307;

// q P + (1 - q) Q
std::vector<LossPiece::Term> blend(double q, const LossPiece& piece) {
    std::vector<LossPiece::Term> terms;
    for (const auto& term : piece.p) terms.push_back({term.log_weight + std::log(q), term.rate});
    for (const auto& term : piece.q) terms.push_back({term.log_weight + std::log1p(-q), term.rate});
    return terms;
}

double log_sum(const std::vector<LossPiece::Term>& terms, double t) {
    return log_sum_exp(terms.size(), [&](std::size_t i) { return terms[i].log_weight + terms[i].rate * t; });
}

// Where the loss of a piece changes its sign, as far as rounding shows, or an end if it does not; and whether
// it is positive above.
struct Sign {
    double zero;
    bool rises;
};
Sign sign_of(const LossPiece& piece) {
    const auto loss = [&](double t) { return log_sum(piece.p, t) - log_sum(piece.q, t); };
    double low = std::max(piece.low, -1e18), high = std::min(piece.high, 1e18);
    const double at_low = loss(low), at_high = loss(high);
    const bool rises = at_high > at_low;
    if ((at_low > 0) == (at_high > 0)) return {(at_low > 0) == rises ? piece.low : piece.high, rises};
    for (int i = 0; i < 300 && high - low > u * (std::abs(low) + std::abs(high)); ++i) {
        const double middle = 0.5 * (low + high);
        if (!(middle > low && middle < high)) break;
        ((loss(middle) > 0) == rises ? high : low) = middle;
    }
    return {0.5 * (low + high), rises};
}

// The two parts of a law, where the loss is positive and where it is negative, between which nothing is lost:
// where rounding hides the sign of losses, each of them is in one part.
struct Halves {
    LossLaw positive, negative;
};
Halves halves(const LossLaw& law) {
    Halves out;
    for (LossLaw* half : {&out.positive, &out.negative}) {
        half->group_weight = law.group_weight;
        half->missing_size = law.missing_size;
        half->of_all = law.of_all;
    }
    out.positive.missing_p = law.missing_p;
    out.negative.missing_q = law.missing_q;
    for (const LossAtom& atom : law.atoms)
        if (atom.loss != 0) (atom.loss > 0 ? out.positive : out.negative).atoms.push_back(atom);
    for (const LossPiece& piece : law.pieces) {
        const Sign sign = sign_of(piece);
        LossPiece below = piece, above = piece;
        below.high = above.low = sign.zero;
        if (below.low < below.high) (sign.rises ? out.negative : out.positive).pieces.push_back(below);
        if (above.low < above.high) (sign.rises ? out.positive : out.negative).pieces.push_back(above);
    }
    return out;
}

}  // namespace

LossPiece::Term gaussian_term(double log_weight, double shift) {
    return {log_weight - 0.5 * (shift * shift) - 0.5 * std::log(2 * std::numbers::pi), shift};
}

LossLaw LossLaw::swapped() const {
    LossLaw out;
    for (const LossAtom& atom : atoms)
        out.atoms.push_back({-atom.loss, atom.log_p - atom.loss, atom.loss_slack,
                             atom.log_p_slack + atom.loss_slack + std::abs(atom.log_p - atom.loss),
                             atom.group});
    std::reverse(out.atoms.begin(), out.atoms.end());
    for (const LossPiece& piece : pieces)
        out.pieces.push_back({piece.low, piece.high, piece.gaussian, piece.q, piece.p, piece.group});
    out.group_weight = group_weight;
    out.missing_p = missing_q;
    out.missing_q = missing_p;
    out.missing_size = missing_size;
    out.of_all = of_all;
    out.lacks_rounding = lacks_rounding;
    return out;
}

LossLaw LossLaw::sampled(double q) const {
    LossLaw out;
    if (missing_q > 0) {
        const double loss = std::log1p(-q);
        out.atoms.push_back({loss, loss + std::log(missing_q), 2 * std::abs(loss),
                             16 + 3 * std::abs(loss) + 64 * (missing_size / missing_q), LossAtom::of_all});
        out.of_all = missing_q;
    }
    for (const LossAtom& atom : atoms) {
        const double loss = log_blend(q, atom.loss);
        const double slope = slope_of_blend(q, atom.loss, loss);
        // Products with q may underflow.
        const double underflow = atom.loss == 0 && atom.loss_slack == 0 ? 0 : least_slack;
        out.atoms.push_back(
            {loss, atom.log_p - atom.loss + loss,
             8 * std::abs(loss) + slope * (atom.loss_slack + 2 * std::abs(atom.loss)) + underflow,
             atom.log_p_slack + atom.loss_slack + 2 * std::abs(atom.log_p) + 2 * std::abs(atom.loss) +
                 10 * std::abs(loss) + 2,
             atom.group});
    }
    for (const LossPiece& piece : pieces)
        out.pieces.push_back({piece.low, piece.high, piece.gaussian, blend(q, piece), piece.q, piece.group});
    out.group_weight = group_weight;
    out.missing_p = q * missing_p;
    out.missing_size = q * missing_size;
    out.of_all += of_all;
    // What is missing from Q is an atom now, whose slack has that rounding.
    out.lacks_rounding = lacks_rounding && !(missing_q > 0);
    return out;
}

LossLaw LossLaw::joined(double q, double total_variation, double error) const {
    const auto [positive, negative] = halves(*this);
    const LossLaw right = positive.sampled(q);
    // Under Q, with P in its place; swapped back, P stays and Q becomes the blend.
    const LossLaw left = negative.swapped().sampled(q).swapped();
    LossLaw out = left;
    double at_zero = (1 - q) * total_variation, units = 64 * (1 + missing_size) + (1 - q) * error / u;
    for (const LossAtom& atom : atoms) {
        if (atom.loss != 0) continue;
        // Of a loss that rounding hides no more is known than how little it is.
        if (atom.loss_slack > 0) {
            out.atoms.push_back(atom);
        } else {
            const double mass = std::exp(atom.log_p);
            at_zero += mass;
            units += mass * atom.log_p_slack;
        }
    }
    if (at_zero > 0)
        out.atoms.push_back(
            {0, std::log(at_zero), 0, 64 + 2 * std::abs(std::log(at_zero)) + units / at_zero});
    out.atoms.insert(out.atoms.end(), right.atoms.begin(), right.atoms.end());
    out.pieces.insert(out.pieces.end(), right.pieces.begin(), right.pieces.end());
    out.missing_p = right.missing_p;
    out.missing_q = left.missing_q;
    out.missing_size = left.missing_size + right.missing_size;
    out.of_all = left.of_all + right.of_all;
    // What is left at 0 is an atom, whose slack has that rounding, unless all of it was rounded away.
    out.lacks_rounding = lacks_rounding || (q < 1 && !(at_zero > 0));
    return out;
}

// proof: more than underflow takes from a mass. What is left out counts with it, as large losses may make all
// of a moment of it.
constexpr double least_double = 5e-324;

double LossLaw::drop_rare(double mass) {
    std::vector<std::size_t> order(group_weight.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return group_weight[a] < group_weight[b]; });
    std::vector<bool> dropped(group_weight.size());
    double sum = 0;
    // Groups of their own infinite losses would have less mass than their weight.
    for (std::size_t i = 0; i + 1 < order.size() && missing_p == 0 && missing_q == 0; ++i) {
        const double weight = group_weight[order[i]] + least_double;
        if (!(sum + weight <= mass)) break;
        sum += weight;
        dropped[order[i]] = true;
    }
    if (sum == 0) return 0;
    std::erase_if(atoms, [&](const LossAtom& atom) {
        return atom.loss != 0 && atom.group != LossAtom::of_all &&
               dropped[static_cast<std::size_t>(atom.group)];
    });
    std::erase_if(pieces,
                  [&](const LossPiece& piece) { return dropped[static_cast<std::size_t>(piece.group)]; });
    missing_p = missing_q = sum;
    // What is left of these groups in that atom is not missing: no more than it has, and no more than they
    // had. Its unit is 64 of round-off.
    missing_size += 2 * std::min(sum, of_all) / (64 * u);
    return sum;
}

// Atoms are dropped from the end, which the first one that is not to be, or would be too much, is.
template <class Drop>
double LossLaw::drop_last(double mass, Drop drop) {
    double sum = 0;
    for (; !atoms.empty() && drop(atoms.back()); atoms.pop_back()) {
        const LossAtom& atom = atoms.back();
        const double p = std::exp(atom.log_p) + least_double, q = std::exp(atom.log_p - atom.loss);
        if (!(sum + p <= mass)) break;
        sum += p;
        missing_p += p;
        missing_q += q;
        // Its unit is 64 of round-off.
        const double units =
            atom.log_p_slack + atom.loss_slack + std::abs(atom.log_p) + std::abs(atom.loss) + 8;
        missing_size += (p + q) * (1 + units / 64);
    }
    return sum;
}

double LossLaw::drop_largest(double mass) {
    std::ranges::sort(atoms, {}, &LossAtom::loss);
    return drop_last(mass, [](const LossAtom& atom) { return atom.loss > 0; });
}

double LossLaw::drop_least(double mass) {
    // Those at 0 first, and then the least likely last.
    const auto others =
        std::partition(atoms.begin(), atoms.end(), [](const LossAtom& atom) { return atom.loss == 0; });
    std::sort(others, atoms.end(), [](const LossAtom& a, const LossAtom& b) { return a.log_p > b.log_p; });
    return drop_last(mass, [](const LossAtom& atom) { return atom.loss != 0; });
}

namespace {

// speed: no comb is finer than its range over this.
constexpr double most_points = 1e6;
// proof: how far from the comb, beside its size, rounding may have put a loss; what it is moved by is added
// to its error (docs/accounting/bounds.md, "Exact inversion of losses with atoms").
constexpr double close = 64 * u;

// The step of sorted losses, which are multiples of `spacing` if that is not 0; +inf for a single loss,
// nothing where multiples are out of reach.
std::optional<double> step_of(const std::vector<LossAtom>& atoms, double spacing) {
    const double first = atoms.front().loss;
    double step = infinity;
    if (!(spacing > 0)) {
        for (std::size_t j = 1; j < atoms.size(); ++j)
            if (atoms[j].loss > atoms[j - 1].loss) step = std::min(step, atoms[j].loss - atoms[j - 1].loss);
        return step;
    }
    // Exact multiples; but perhaps of a larger step.
    if (!((atoms.back().loss - first) / spacing < 1e12)) return {};
    long long divisor = 0;
    for (const LossAtom& atom : atoms)
        divisor = std::gcd(divisor, std::llround((atom.loss - first) / spacing));
    return divisor > 0 ? static_cast<double>(divisor) * spacing : step;
}

// Whether losses of this step lie on offset + k h, up to rounding.
bool fits(const std::vector<LossAtom>& atoms, double step, double offset, double h) {
    const double first = atoms.front().loss, last = atoms.back().loss;
    const double size = std::max(std::abs(first), std::abs(last));
    if (!((last - first) / h < most_points)) return false;
    if (std::isfinite(step) && std::abs(step - std::rint(step / h) * h) > 4 * close * step) return false;
    return std::all_of(atoms.begin(), atoms.end(), [&](const LossAtom& atom) {
        const double distance = atom.loss - offset;
        return !(std::abs(distance - std::rint(distance / h) * h) > close * size);
    });
}

}  // namespace

std::optional<Comb> onto_lattice(std::vector<LossLaw>& laws, const std::vector<double>& spacings) {
    require(spacings.size() == laws.size(), "onto_lattice: one spacing for each law is needed");
    std::vector<double> steps;
    Comb comb{infinity, {}};
    for (std::size_t i = 0; i < laws.size(); ++i) {
        auto& atoms = laws[i].atoms;
        if (!laws[i].pieces.empty() || atoms.empty()) return {};
        std::sort(atoms.begin(), atoms.end(),
                  [](const LossAtom& a, const LossAtom& b) { return a.loss < b.loss; });
        const auto step = step_of(atoms, spacings[i]);
        if (!step) return {};
        const double first = atoms.front().loss;
        comb.offset.push_back(spacings[i] > 0 ? std::rint(first / spacings[i]) * spacings[i] : first);
        steps.push_back(*step);
        comb.spacing = std::min(comb.spacing, *step);
    }
    if (!std::isfinite(comb.spacing)) comb.spacing = 1;  // nothing but offsets
    const auto all_fit = [&](double h) {
        for (std::size_t i = 0; i < laws.size(); ++i)
            if (!fits(laws[i].atoms, steps[i], comb.offset[i], h)) return false;
        return true;
    };
    const double largest = comb.spacing;
    constexpr int most_parts = 60;  // speed
    int part = 1;
    while (part <= most_parts && !all_fit(comb.spacing = largest / part)) ++part;
    if (part > most_parts) return {};
    for (std::size_t i = 0; i < laws.size(); ++i)
        for (LossAtom& atom : laws[i].atoms) {
            const double offset = comb.offset[i];
            const double loss = offset + std::rint((atom.loss - offset) / comb.spacing) * comb.spacing;
            atom.loss_slack += std::abs(loss - atom.loss) / u * (1 + 8 * u);
            // The point itself is rounded.
            if (offset != 0) atom.loss_slack += std::abs(offset) + std::abs(loss);
            atom.loss = loss;
        }
    return comb;
}

}  // namespace hockeystick
