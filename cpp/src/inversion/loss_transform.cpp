#include "inversion/loss_transform.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "hockeystick/parallel.hpp"
#include "inversion/decay.hpp"
#include "numerics/constants.hpp"
#include "numerics/gauss_legendre.hpp"

namespace hockeystick {
namespace {

// speed: of rules, and of those that searches use.
constexpr double most_panels = 1 << 11, most_panels_of_searches = 1 << 8;
// speed: what is rarer is not worth its nodes, but for a delta as small.
constexpr double always_cut = 1e-30;
// speed: nodes times frequencies; frequencies that are turned from one to the next.
constexpr double most_products = 3e8;
constexpr std::size_t block = 4096;

// ---- Gauss-Legendre ------------------------------------------------------------------------------------

// proof: of the rule, whose error is bounded for it, and of its weights, in units of round-off.
constexpr int order = 32;
constexpr double rule_slack = 200;

// ---- a piece -------------------------------------------------------------------------------------------

using Terms = std::vector<LossPiece::Term>;

// ln of a sum of exponentials, its slack, and its derivative, which increases with t.
struct Density {
    double log_value, slack, mean;
};
Density density(const Terms& terms, double t) {
    double largest = -infinity;
    for (const auto& term : terms) largest = std::max(largest, term.log_weight + term.rate * t);
    double sum = 0, first = 0, slack = 0;
    for (const auto& term : terms) {
        const double x = term.log_weight + term.rate * t, e = std::exp(x - largest);
        sum += e;
        first += e * term.rate;
        slack += e * (2 * std::abs(term.log_weight) + 2 * std::abs(term.rate * t) + std::abs(largest) + 4);
    }
    return {largest + std::log(sum), slack / sum + std::abs(largest) + 4, first / sum};
}

struct Rates {
    double low, high;
    double spread() const { return high - low; }
};
Rates rates(const Terms& terms) {
    Rates out{infinity, -infinity};
    for (const auto& term : terms) {
        out.low = std::min(out.low, term.rate);
        out.high = std::max(out.high, term.rate);
    }
    return out;
}

// By how much the angle of a sum of exponentials is at most off its height times `rate`, per unit of the
// height, between two ends: that of 1 - share + share e^{i y}, y the height times the largest other rate's
// distance, whose real part is positive. The logarithm of the share of `rate` is concave, and least at an
// end.
double turned(const Terms& terms, double rate, Rates ends, double height) {
    double farthest = 0, share = 0;
    for (const auto& term : terms) farthest = std::max(farthest, std::abs(term.rate - rate));
    if (farthest == 0) return 0;
    if (!(farthest * height < 0.5 * pi)) return infinity;
    for (const double t : {ends.low, ends.high}) {
        double largest = -infinity, others = 0, all = 0;
        for (const auto& term : terms) largest = std::max(largest, term.log_weight + term.rate * t);
        for (const auto& term : terms) {
            const double e = std::exp(term.log_weight + term.rate * t - largest);
            all += e;
            if (term.rate != rate) others += e;
        }
        share = std::max(share, others / all);
    }
    return share * farthest / (1 - share * (1 - std::cos(farthest * height))) * (1 + 1e-9);
}

// The same of the loss: by the rates, or, as a rare sample hardly turns it, by what turns beside one of Q's.
double turn_of(const LossPiece& piece, Rates ends, double height) {
    const Rates p = rates(piece.p), q = rates(piece.q);
    double turn = std::max(p.high - q.low, q.high - p.low);
    for (const double rate : {q.low, q.high})
        turn = std::min(turn, turned(piece.p, rate, ends, height) + turned(piece.q, rate, ends, height));
    return turn;
}

// Where g = p^{1+s} q^{-s} has its bulk: to the right of `high` the slope of ln g is at most high - t, to the
// left of `low` at least low - t, and the same for p and q.
Rates bulk(const LossPiece& piece, double s) {
    const Rates p = rates(piece.p), q = rates(piece.q);
    return {std::min({(1 + s) * p.low - s * q.high, p.low, q.low}),
            std::max({(1 + s) * p.high - s * q.low, p.high, q.high})};
}

// The part of a piece that counts.
Rates range_of(const LossPiece& piece, double s, double far) {
    if (!piece.gaussian) return {piece.low, piece.high};
    const Rates centre = bulk(piece, s);
    Rates out{std::max(piece.low, centre.low - far), std::min(piece.high, centre.high + far)};
    if (!(out.low < out.high)) {
        // The bulk lies outside: what is inside begins at an end.
        out = piece.low > centre.high ? Rates{piece.low, std::min(piece.high, piece.low + far)}
                                      : Rates{std::max(piece.low, piece.high - far), piece.high};
    }
    return out;
}

// The best polynomial of degree 2 order - 1 is within 2 M rho^{1 - 2 order}/(rho - 1) of a function bounded
// by M on the ellipse with foci +-1 and half axes (rho +- 1/rho)/2; the rule's error is at most 4 times that.
struct Ellipse {
    double rho, wide, tall, log_factor;
};
const std::array<Ellipse, 4>& ellipses() {
    static const std::array<Ellipse, 4> all = [] {
        std::array<Ellipse, 4> out{};
        std::size_t i = 0;
        for (const double rho : {2.2, 3.0, 4.5, 8.0})
            out[i++] = {rho, 0.5 * (rho + 1 / rho), 0.5 * (rho - 1 / rho),
                        std::log(8 / (rho - 1)) + (1 - 2 * order) * std::log(rho)};
        return out;
    }();
    return all;
}

// ---- decay ---------------------------------------------------------------------------------------------

// The atoms need not turn.
class SmoothDecay final : public StepDecay {
public:
    SmoothDecay(const LossLaw& law, double s, double log_mgf) {
        for (const LossPiece& piece : law.pieces)
            add_cells(grid(piece, s), depth, [&](const TiltedPoint& a, const TiltedPoint& b) {
                return least_density(a, b, piece.gaussian, s, log_mgf);
            });
    }

private:
    static constexpr int cells = 256;    // speed
    static constexpr double depth = 12;  // speed

    static std::vector<TiltedPoint> grid(const LossPiece& piece, double s) {
        const Rates range = range_of(piece, s, 5);
        const double width = (range.high - range.low) / cells;
        std::vector<TiltedPoint> out;
        for (int i = 0; i <= cells; ++i) {
            const double t = i < cells ? range.low + i * width : range.high;
            const Density p = density(piece.p, t), q = density(piece.q, t);
            const double bell = piece.gaussian ? 0.5 * t * t : 0;
            out.push_back({t, (1 + s) * p.log_value - s * q.log_value - bell, 0, p.log_value - q.log_value,
                           p.mean, q.mean});
        }
        return out;
    }

    // Below the density of the tilted loss between two points.
    static double least_density(const TiltedPoint& a, const TiltedPoint& b, bool gaussian, double s,
                                double log_mgf) {
        const double speed =
            std::max(std::abs(b.p_mean - a.q_mean), std::abs(a.p_mean - b.q_mean)) * (1 + 1e-12);
        // The slope of ln g lies between `down` and `up`.
        const double left = gaussian ? a.t : 0, right = gaussian ? b.t : 0, h = b.t - a.t;
        const double down = (1 + s) * a.p_mean - s * b.q_mean - right;
        const double up = (1 + s) * b.p_mean - s * a.q_mean - left;
        const double rounding =
            1e-14 * (1 + s) * (a.t * a.t + b.t * b.t + std::abs(a.loss) + std::abs(b.loss) + 10);
        const double log_least = std::max(a.log_g + std::min(0.0, down) * h, b.log_g - std::max(0.0, up) * h);
        return std::exp(log_least - rounding - log_mgf) / speed;
    }
};

// Equal masses on neighbouring points of the lattice turn against each other.
class LatticeDecay final : public DecayBound {
public:
    LatticeDecay(const LossLaw& law, double s, double log_mgf, double spacing) : spacing_(spacing) {
        double next = 0;
        for (const LossAtom& atom : law.atoms) {
            const double log_mass = atom.log_p + s * atom.loss - log_mgf;
            const double mass = std::exp(log_mass - 1e-12 * (1 + std::abs(log_mass)));
            const double index = std::rint((atom.loss - law.atoms.front().loss) / spacing);
            if (!(mass > 1e-12) || index != next) rectangles_.close();
            if (mass > 1e-12) rectangles_.extend(index, index + 1, mass);
            next = index + 1;
        }
        rectangles_.close();
    }
    double log_bound(double tau) const override {
        const double angle = std::min(tau * spacing_, pi) * (1 - 1e-9);
        return std::log1p(
            -std::clamp(rectangles_.lattice_deficit(angle) * (1 - 1e-7) - 1e-13, 0.0, 1 - 1e-7));
    }

private:
    double spacing_;
    Rectangles rectangles_;
};

}  // namespace

LossTransform::LossTransform(LossLaw law, double tolerance, double cut_mass, double spacing,
                             const std::vector<GaussianMixtures>& joined)
    : law_(std::move(law)),
      tolerance_(tolerance),
      spacing_(spacing),
      dropped_(law_.drop_rare(cut_mass > 0 ? cut_mass : always_cut)) {
    if (cut_mass > 0 && !(spacing > 0)) dropped_ += law_.drop_largest(cut_mass) + law_.drop_least(cut_mass);
    for (const GaussianMixtures& m : joined)
        joined_.push_back({m.weight, {m.p_shift, m.p_weight}, {m.q_shift, m.q_weight}, {}, m.joined});
}

double LossTransform::atoms() const {
    const double terms_of_pieces = most_panels_of_searches * order * static_cast<double>(law_.pieces.size());
    return law_.atoms.empty() ? 0 : static_cast<double>(law_.atoms.size()) + terms_of_pieces;
}

double LossTransform::zero_mass() const {
    double sum = 0;
    for (const LossAtom& atom : law_.atoms)
        if (atom.loss == 0 && atom.loss_slack == 0)
            sum +=
                std::exp(atom.log_p) * std::max(0.0, 1 - u * (atom.log_p_slack + 4 + std::abs(atom.log_p)));
    return sum * (1 - u * static_cast<double>(law_.atoms.size()));
}

// ln of the largest |p^{1+z} q^{-z}| on an ellipse is at most that on the real axis, grown by what the sums
// lose off the axis, and by what they turn: tau times `turns` times the height.
std::vector<LossTransform::Panels::Line> LossTransform::Panels::errors(double s) const {
    std::vector<Line> lines;
    for (std::size_t e = 0; e < ellipses().size(); ++e) {
        const Ellipse& ellipse = ellipses()[e];
        const double reach = ellipse.wide * half, height = ellipse.tall * half;
        // Neither sum may vanish, as their powers must be analytic.
        if (!(p_spread * height < 0.99 * pi && q_spread * height < 0.98 * pi)) continue;
        double sum = -infinity;
        for (const Around& at : around[e]) {
            double up = (1 + s) * at.p_right, down = (1 + s) * at.p_left;
            up -= s * (s > 0 ? at.q_left : at.q_right);
            down -= s * (s > 0 ? at.q_right : at.q_left);
            double value = (1 + s) * at.p - s * at.q;
            if (piece->gaussian) {
                value -= 0.5 * at.centre * at.centre;
                up -= at.centre - reach;
                down -= at.centre + reach;
            }
            value += reach * std::max({up, -down, 0.0});
            // Room for the rounding of all this.
            sum = log_add(sum, value + 1e-6 + 1e-12 * std::abs(value));
        }
        if (piece->gaussian) sum += 0.5 * height * height;
        if (s > 0 && q_spread > 0) sum -= s * std::log(std::cos(0.5 * q_spread * height));
        lines.push_back({sum + ellipse.log_factor + std::log(half), turns[e] * height});
    }
    return lines;
}

double LossTransform::Panels::least(const std::vector<Line>& errors, double tau) {
    double out = infinity;
    for (const Line& line : errors) out = std::min(out, line.offset + line.slope * tau);
    return out;
}

double LossTransform::Panels::omitted(double s) const {
    if (!piece->gaussian) return 0;
    const Rates p_rates = rates(piece->p), q_rates = rates(piece->q);
    // At the end t the logarithm falls outwards at least at this rate, and faster beyond.
    const auto tail = [&](double t, double fall) {
        const double log_value =
            (1 + s) * density(piece->p, t).log_value - s * density(piece->q, t).log_value - 0.5 * t * t;
        return fall > 0 ? 1.001 * std::exp(log_value) / fall : infinity;
    };
    const double q_least = s > 0 ? q_rates.high : q_rates.low, q_most = s > 0 ? q_rates.low : q_rates.high;
    double sum = 0;
    if (low > piece->low) sum += tail(low, (1 + s) * p_rates.low - s * q_least - low);
    if (high < piece->high) sum += tail(high, high - ((1 + s) * p_rates.high - s * q_most));
    return sum;
}

std::optional<LossTransform::Panels> LossTransform::make_panels(const LossPiece& piece,
                                                                const std::vector<Tilt>& tilts, double tau,
                                                                double tolerance, double most) {
    const Rates p_rates = rates(piece.p), q_rates = rates(piece.q);
    const double largest_tilt = tilts.back().s;
    const double modulus = std::hypot(largest_tilt, tau);
    const double far = std::sqrt(2 * std::log(16 * (1 + modulus) / tolerance)) + 0.5;
    Panels panels{&piece, infinity, -infinity, 0, 0, p_rates.spread(), q_rates.spread(), {}, {}};
    for (const Tilt& tilt : tilts) {
        const Rates range = range_of(piece, tilt.s, far);
        panels.low = std::min(panels.low, range.low);
        panels.high = std::max(panels.high, range.high);
    }
    const double length = panels.high - panels.low;
    panels.turn = turn_of(piece, {panels.low, panels.high}, 0);
    double count = std::max(1.0, std::ceil(length * panels.turn * tau / 60));
    for (;; count = std::ceil(1.4 * count)) {
        if (!(count <= most)) return {};
        panels.half = 0.5 * length / count;
        panels.around.clear();
        panels.turns.clear();
        for (const Ellipse& ellipse : ellipses()) {
            auto& all = panels.around.emplace_back();
            double& turn = panels.turns.emplace_back(0);
            const double reach = ellipse.wide * panels.half, height = ellipse.tall * panels.half;
            for (int i = 0; i < static_cast<int>(count); ++i) {
                const double centre = panels.low + (2 * i + 1) * panels.half;
                const double left = centre - reach, right = centre + reach;
                turn = std::max(turn, turn_of(piece, {left, right}, height));
                all.push_back({centre, density(piece.p, centre).log_value, density(piece.q, centre).log_value,
                               density(piece.p, left).mean, density(piece.p, right).mean,
                               density(piece.q, left).mean, density(piece.q, right).mean});
            }
        }
        const double wanted = std::log(tolerance),
                     rest = wanted - std::log1p(modulus) + tilts.front().log_scale;
        bool good = panels.log_error(0, 0) < rest && panels.log_error(-1, 0) < rest;
        for (const Tilt& tilt : tilts) good = good && panels.log_error(tilt.s, tau) < wanted + tilt.log_scale;
        if (good) return panels;
    }
}

void LossTransform::add_nodes(const Panels& panels, Nodes& nodes) {
    static const GaussLegendre<order> rule;
    const LossPiece& piece = *panels.piece;
    const Rates p_rates = rates(piece.p), q_rates = rates(piece.q);
    const double largest_rate = std::max(
        {std::abs(p_rates.low), std::abs(p_rates.high), std::abs(q_rates.low), std::abs(q_rates.high)});
    for (const Around& panel : panels.around.front())
        for (std::size_t k = 0; k < order; ++k) {
            const double t = panel.centre + panels.half * rule.node[k], weight = panels.half * rule.weight[k];
            const Density p = density(piece.p, t), q = density(piece.q, t);
            const double bell = piece.gaussian ? 0.5 * t * t : 0;
            // Of two single exponentials the small difference is known as closely as the two constants are.
            const bool plain = piece.p.size() == 1 && piece.q.size() == 1;
            const double offset = piece.p[0].log_weight - piece.q[0].log_weight;
            const double turn = (piece.p[0].rate - piece.q[0].rate) * t;
            const double loss = plain ? offset + turn : p.log_value - q.log_value;
            const double constants = std::abs(piece.p[0].log_weight) + std::abs(piece.q[0].log_weight);
            const double slack =
                plain ? 2 * (std::abs(offset) + std::abs(turn) + constants) : p.slack + q.slack;
            // A misplaced node moves the integrand by its slopes.
            const double moved = std::abs(panels.low) + std::abs(panel.centre) + 8 * panels.half;
            nodes.loss.push_back(loss);
            nodes.loss_slack.push_back(slack + std::abs(loss) + 2 * panels.turn * moved);
            nodes.log_p.push_back(p.log_value - bell + std::log(weight));
            nodes.log_p_slack.push_back(p.slack + 4 * bell + std::abs(p.log_value) + 4 + rule_slack +
                                        2 * std::abs(std::log(weight)) +
                                        (2 * largest_rate + (piece.gaussian ? std::abs(t) : 0)) * moved);
        }
}

LossTransform::Nodes LossTransform::make_nodes(const std::vector<double>& all_tilts, double tau,
                                               double tolerance, double most) const {
    Nodes nodes;
    for (const LossAtom& atom : law_.atoms) {
        nodes.loss.push_back(atom.loss);
        nodes.log_p.push_back(atom.log_p);
        nodes.loss_slack.push_back(atom.loss_slack);
        nodes.log_p_slack.push_back(atom.log_p_slack);
    }
    std::vector<Tilt> tilts;
    for (const double s : all_tilts) tilts.push_back({s, log_scale(s)});
    double left = most;
    for (const LossPiece& piece : law_.pieces) {
        auto panels =
            make_panels(piece, tilts, tau, tolerance / static_cast<double>(law_.pieces.size()), left);
        if (!panels) {
            nodes.failed = true;
            return nodes;
        }
        left -= static_cast<double>(panels->around.front().size());
        add_nodes(*panels, nodes);
        nodes.plain += std::exp(panels->log_error(0, 0)) + std::exp(panels->log_error(-1, 0)) +
                       panels->omitted(0) + panels->omitted(-1);
        nodes.panels.push_back(std::move(*panels));
    }
    return nodes;
}

// About K(s): where the integrands are large, relative errors are what counts.
double LossTransform::log_scale(double s) const {
    double largest = 0;
    for (const LossAtom& atom : law_.atoms) largest = std::max(largest, atom.log_p + s * atom.loss);
    for (const LossPiece& piece : law_.pieces) {
        constexpr int cells = 32;  // speed
        const Rates range = range_of(piece, s, 4);
        const double width = (range.high - range.low) / cells;
        for (int i = 0; i <= cells; ++i) {
            const double t = range.low + i * width;
            largest = std::max(largest, (1 + s) * density(piece.p, t).log_value -
                                            s * density(piece.q, t).log_value -
                                            (piece.gaussian ? 0.5 * t * t : 0) + std::log(width));
        }
    }
    return largest;
}

// The nodes that serve every s in (2^(k-1), 2^k]: which ones a query gets does not depend on those before.
const LossTransform::Nodes& LossTransform::nodes_up_to(int k) const {
    const auto found = cache_.find(k);
    if (found != cache_.end()) return found->second;
    Nodes nodes;
    const double high = std::ldexp(1.0, k), low = k <= -10 ? 0 : 0.5 * high;
    if (k < first_failure_)
        nodes = make_nodes({low, high}, 0, tolerance_, most_panels_of_searches);
    else
        nodes.failed = true;
    if (nodes.failed) first_failure_ = std::min(first_failure_, k);
    weigh(nodes);
    return cache_.emplace(k, std::move(nodes)).first->second;
}

Cumulant LossTransform::at(double s) const {
    int power = -10;
    if (s > 0) std::frexp(s, &power);
    const Nodes& nodes = nodes_up_to(std::max(power, -10));
    if (nodes.failed) return {infinity, 0, 0, infinity};
    const double shift = peak({&nodes}, s), modulus = std::abs(s), unit = std::exp(-shift);
    const TiltedSums sums = tilted_sums(nodes, shift, s, modulus);
    const double slope = sums.slope + (law_.missing_q - law_.missing_p) * unit,
                 value = sums.value + (s * slope - law_.missing_p * unit);
    // Steers the contour and bounds what is far out; the sum at full precision is in row().
    const double n = static_cast<double>(nodes.loss.size());
    double rules = (1 + modulus) * nodes.plain * unit;
    for (const Panels& panels : nodes.panels)
        rules += std::exp(panels.log_error(s, 0) - shift) + panels.omitted(s) * unit;
    const double error = rules + u * (sums.rounding + (2 * shift + n + 32) * sums.size) +
                         64 * u * (1 + modulus) * law_.missing_size * unit;
    return cumulant_of(shift, value, error, sums.first + slope, sums.second);
}

LossTransform::Row LossTransform::row(double s, double step, std::size_t size, double tolerance) const {
    Row row;
    const double end = step * static_cast<double>(size);
    const Nodes nodes = make_nodes({s}, end, tolerance, most_panels);
    if (nodes.failed) return {};
    row.shift = peak({&nodes}, s);
    if (static_cast<double>(nodes.loss.size()) * static_cast<double>(size) > most_products) return {};
    const double unit = std::exp(-row.shift);
    row.value.resize(size);
    row.error.resize(size);
    // Afresh in each block, so that turns do not add up.
    parallel_ranges(size, block, [&](std::size_t begin, std::size_t stop) {
        LossSum sum(s, step, begin, stop - begin, nodes.loss.size(), 1e-2 * tolerance);
        for (std::size_t i = 0; i < nodes.loss.size(); ++i)
            sum.add(nodes.log_p[i] - row.shift, nodes.loss[i], nodes.log_p_slack[i] + 2 * row.shift,
                    nodes.loss_slack[i]);
        sum.leave_out(law_.missing_p * unit, law_.missing_q * unit, 64 * law_.missing_size * unit);
        const FallingSum::Row own = sum.values();
        std::ranges::copy(own.value, row.value.begin() + static_cast<std::ptrdiff_t>(begin));
        std::ranges::copy(own.error, row.error.begin() + static_cast<std::ptrdiff_t>(begin));
    });
    double omitted = 0;
    std::vector<std::vector<Panels::Line>> lines;
    for (const Panels& panels : nodes.panels) {
        omitted += panels.omitted(s) * unit;
        lines.push_back(panels.errors(s));
    }
    for (std::size_t j = 0; j < size; ++j) {
        const double tau = step * static_cast<double>(j);
        double rules = omitted + (1 + std::hypot(s, tau)) * nodes.plain * unit;
        for (const auto& piece : lines) rules += std::exp(Panels::least(piece, tau) - row.shift);
        row.error[j] += 1.001 * rules + 1e-2 * tolerance;
    }
    subtract_one(row);
    return row;
}

std::unique_ptr<DecayBound> LossTransform::decay(double s, double log_mgf) const {
    if (spacing_ > 0) return std::make_unique<LatticeDecay>(law_, s, log_mgf, spacing_);
    return std::make_unique<SmoothDecay>(law_, s, log_mgf);
}

}  // namespace hockeystick
