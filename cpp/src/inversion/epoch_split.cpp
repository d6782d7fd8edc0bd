#include "inversion/epoch_split.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "inversion/epoch_line.hpp"
#include "inversion/saddle.hpp"
#include "numerics/constants.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

// All of these are for speed. Laws without digits are left to others; that layers' widths have their digits
// rests on the least mu, too: proof.
constexpr double least_mu = 1e-2, largest_mu = 5, least_steps = 9, most_steps = 1e9, most_count = 1e6;
constexpr double least_tilt = 0.1, largest_tilt = 40, largest_tilt_of_bulk = 1e6;
// The largest loss by one large ratio in the bulk.
constexpr double largest_ratio = 0.5;
// How far the other steps may move the loss down where a ratio decides alone, in standard deviations at
// least; in which steps it is looked for; what of delta is left to that.
constexpr double least_margin = 6, most_margin = 4, margin_step = 0.08, largest_put_tilt = 5e3;
constexpr double share_of_put = 1e-12;
// What of delta large ratios of all kinds may come to that are left out; how small they are beside the loss
// where none is kept apart.
constexpr double share_left_out = 1e-14, light = 0.1;

bool splits(const Allocation& law) {
    return !law.add && law.mu >= least_mu && law.mu <= largest_mu && law.steps >= least_steps &&
           law.steps <= most_steps;
}

}  // namespace

Inverted SplitWithMore::at(double epsilon) const {
    Inverted out = with_others(invert(lines, epsilon), epsilon);
    const double half = 0.5 * more(epsilon) * std::exp(-out.log_scale);
    out.value += half;
    out.tail += 1.01 * half;
    return out;
}

std::unique_ptr<EpochSplit> EpochSplit::of(const Composition& composition) {
    std::unique_ptr<EpochSplit> out(new EpochSplit);
    bool any = false;
    for (const auto& [pair, steps] : composition) {
        const double k = static_cast<double>(steps);
        const auto law = pair->allocation();
        if (law && (law->add || !(k <= most_count))) return nullptr;
        any = any || (law && splits(*law));
    }
    if (!any) return nullptr;
    for (const auto& [pair, steps] : composition) {
        const double k = static_cast<double>(steps), mu = plain_gaussian_mu(*pair);
        const auto law = pair->allocation();
        if (mu != 0) {
            out->variance_ += k * mu * mu;
            continue;
        }
        out->kinds_.push_back(law && splits(*law) ? EpochKind::of_allocation(*law, k)
                                                  : EpochKind::of(*pair, k));
        if (!out->kinds_.back()) return nullptr;
    }
    return out;
}

double EpochSplit::spread() const {
    double sum = variance_;
    for (const auto& kind : kinds_) sum += kind->count * kind->variance();
    return std::sqrt(sum);
}

double EpochSplit::jump(double delta) const {
    double most = 0;
    for (const auto& kind : kinds_)
        if (kind->can_split())
            most = std::max(most, kind->beyond(kind->place_of_mass(delta / kind->count)).loss);
    return most;
}

// As if the loss were normal, and what one large ratio alone adds.
double EpochSplit::guess(double epsilon) const {
    if (!(epsilon > 0)) return 0.5;
    const double x = epsilon / spread(), half = 0.5 * spread(), c = std::exp(epsilon);
    double sum = std::max(0.0, gaussian_tail(x - half) - c * gaussian_tail(x + half));
    for (const auto& kind : kinds_) {
        if (!kind->can_split()) continue;
        const EpochKind::Beyond beyond = kind->beyond(kind->place_of(epsilon));
        sum += kind->count * std::max(0.0, beyond.p - c * beyond.q);
    }
    return std::min(0.5, sum);
}

// Where each kind is cut, up to where a ratio decides alone or hardly any is larger.
struct EpochSplit::Cuts {
    struct Of {
        double first, second, far;
        bool decided;
    };
    std::vector<Of> kinds;
    double left_out = 0;                                            // P-mass beyond where nothing is decided
    double log_put = -infinity, tilt = 1, most_epsilon = infinity;  // the remainder where something is
};

// Each of the ratios that one beyond its place may be among is independent of all other steps.
double EpochSplit::log_put(const std::vector<double>& places, double tilt) const {
    std::vector<double> inverse;
    double all = 0.5 * variance_ * tilt * (tilt + 1), sum = -infinity;
    for (const auto& kind : kinds_) {
        inverse.push_back(kind->log_inverse(tilt));
        all += kind->count * inverse.back();
    }
    if (!std::isfinite(all)) return infinity;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
        if (places[k] == infinity) continue;
        const EpochKind::Beyond beyond = kinds_[k]->beyond(places[k]);
        sum = log_add(sum, std::log(kinds_[k]->count * beyond.q) - tilt * beyond.least_loss - inverse[k]);
    }
    return log_chernoff(tilt) + all + sum + 1e-9 + 1e-12 * std::abs(all);
}

// The second cuts: beyond them a ratio alone is worth that loss, or hardly any is so large. Where something
// is decided.
std::vector<double> EpochSplit::places(Cuts& cuts, double loss) const {
    std::vector<double> out(kinds_.size(), infinity);
    cuts.left_out = 0;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
        const EpochKind& kind = *kinds_[k];
        if (!kind.can_split()) continue;
        const double far = cuts.kinds[k].far, g = std::max(cuts.kinds[k].first, kind.place_alone(loss));
        cuts.kinds[k].decided = g <= far || kinds_.size() == 1;
        cuts.kinds[k].second = cuts.kinds[k].decided ? g : far;
        if (cuts.kinds[k].decided)
            out[k] = g;
        else
            cuts.left_out += kind.count * kind.beyond(far).p;
    }
    return out;
}

bool EpochSplit::decide(Cuts& cuts, double epsilon, double delta) const {
    if (alone()) {
        const double g = places(cuts, epsilon + 1.5 * near_epsilon * epsilon + 1e-9)[0];
        cuts.most_epsilon = kinds_[0]->beyond(g).least_loss;
        return true;
    }
    double least = infinity;
    for (const auto& kind : kinds_)
        if (kind->can_split()) least = std::min(least, kind->variance());
    const double others = std::sqrt(std::max(0.0, spread() * spread() - least));
    for (double margin = least_margin * others; margin < most_margin + 20 * others;
         margin += margin_step + others) {
        const std::vector<double> decided = places(cuts, epsilon + margin);
        const double tilt = std::clamp(0.7 * margin / (others * others), 1.0, largest_put_tilt);
        cuts.log_put = log_put(decided, tilt), cuts.tilt = tilt;
        if (cuts.log_put + (1 + tilt) * epsilon < std::log(delta) + std::log(share_of_put)) return true;
    }
    return false;
}

EpochSplit::Cuts EpochSplit::cuts(double delta) const {
    Cuts cuts;
    const double scale = light * spread() * std::sqrt(-2 * std::log(delta));
    for (const auto& kind : kinds_) {
        auto& cut = cuts.kinds.emplace_back(Cuts::Of{infinity, infinity, infinity, false});
        if (!kind->can_split()) continue;
        // Beyond that place hardly any ratio is.
        const double n = kind->count;
        cut.far = kind->place_of_mass(delta * share_left_out / n);
        if (kinds_.size() > 1 && kind->beyond(cut.far).loss < scale) {
            cut.first = cut.far;
            continue;
        }
        cut.first = std::min(kind->place_of_mass(mass_beyond_first_cut(delta) / n),
                             kind->place_of(std::log1p(largest_ratio)));
    }
    return cuts;
}

std::optional<SplitWithMore> EpochSplit::in_three(double epsilon, double delta) const {
    const double log_delta = std::log(delta);
    Cuts cut = cuts(delta);
    if (!decide(cut, epsilon, delta)) return {};
    std::vector<std::unique_ptr<KindParts>> parts;
    std::vector<EpochLine::Kind> kinds;
    bool split = false;
    double log_kept_p = 0, log_kept_q = 0, farthest = 0, left_out = cut.left_out, impossible = 0;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
        const auto& [first, second, far, decided] = cut.kinds[k];
        const EpochKind& kind = *kinds_[k];
        parts.push_back(kind.parts(first, second));
        kinds.push_back({parts.back().get(), kind.count});
        split = split || parts.back()->split();
        left_out += kind.count * kind.dropped();
        impossible += kind.count * kind.impossible();
        if (!decided) continue;
        const EpochKind::Beyond beyond = kind.beyond(second);
        log_kept_p += kind.count * beyond.log_kept_p;
        log_kept_q += kind.count * beyond.log_kept_q;
        farthest = std::max(farthest, beyond.farthest);
    }
    std::vector<Contour> lines;
    for (const bool rest : {false, true}) {
        if (rest && !split) break;
        auto line = EpochLine(kinds, variance_, rest)
                        .contour(epsilon, log_delta, least_tilt, rest ? largest_tilt : largest_tilt_of_bulk);
        if (!line) return {};
        lines.push_back(std::move(*line));
    }
    // What is impossible for P is so in steps of which no ratio decides.
    const double decided_q = -std::expm1(log_kept_q);
    impossible *= decided_q;
    return SplitWithMore{
        {std::move(lines), Decided(-std::expm1(log_kept_p), decided_q, farthest)},
        [left_out, impossible, log_put = cut.log_put, tilt = cut.tilt, most = cut.most_epsilon](double e) {
            if (e > most) return infinity;
            return 1.001 * (left_out + impossible * std::exp(e)) + std::exp(log_put + (1 + tilt) * e);
        }};
}

}  // namespace hockeystick
