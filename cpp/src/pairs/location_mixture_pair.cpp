// Noise about a random shift on both sides, whose loss increases with the output and is inverted numerically:
// an inexact inversion costs tightness only (docs/accounting/bounds.md, "One step on a lattice").

#include <cstddef>
#include <utility>

#include "pairs/tangents.hpp"

namespace hockeystick {
namespace {

// proof: no square of a shift overflows, nor does any loss.
constexpr double most_shift = 1e100;
// proof: what weights may lack to 1, which is counted nowhere.
constexpr double most_missing = 1e-12;
// proof: more than a product with a weight loses below the normal doubles.
constexpr double lost_to_underflow = 1e-323;

class LocationMixturePair final : public Pair {
public:
    LocationMixturePair(Noise noise, double scale, std::vector<double> p_shifts,
                        std::vector<double> p_weights, std::vector<double> q_shifts,
                        std::vector<double> q_weights)
        : noise_(noise), p_(make(p_shifts, p_weights, scale)), q_(make(q_shifts, q_weights, scale)) {
        high_ = *std::max_element(p_.shift.begin(), p_.shift.end());
        low_ = *std::min_element(q_.shift.begin(), q_.shift.end());
        mirrored_ = mirrored();
        if (noise_ == Noise::laplace) {
            // The loss is constant outside [low, high].
            max_ = log_mean_exp(p_, 1) - log_mean_exp(q_, 1);
            min_ = log_mean_exp(p_, -1) - log_mean_exp(q_, -1);
        } else {
            // It levels off where both sides end at the same shift, which is 0.
            if (*std::min_element(p_.shift.begin(), p_.shift.end()) == low_) min_ = end_ratio(low_);
            if (*std::max_element(q_.shift.begin(), q_.shift.end()) == high_) max_ = end_ratio(high_);
            if (high_ > low_) farthest_ = gaussian(high_ - low_);
            largest_ = loss(high_ + far).value;
            least_ = loss(low_ - far).value;
        }
    }

    Tangent above(double at) const override {
        // Where the loss levels off, rounding decides on which side of its end it is seen: the profile is at
        // most what is left of the loss.
        const double unsure = 16 * u * (1 + std::abs(max_));
        if (at >= max_)
            return {0, 0, 0, at < max_ + unsure ? unsure : 0.0, 0, at < max_ + unsure ? unsure : 0.0};
        if (at < min_) return nothing_below(at);
        if (far_out(at, +1)) return nothing;
        Tangent out = tangent(at, +1);
        // By joint convexity the profile is at most that of the shifts that are farthest apart.
        if (farthest_ && out.error > 0.1 * std::abs(out.value)) {
            const Tangent most = farthest_->above(at);
            const double bound = (most.value + most.error) * std::exp(most.exponent - out.exponent);
            if (out.value + out.error > bound) {
                out.value = std::clamp(out.value, 0.0, bound);
                out.error = std::min(out.error, bound);
            }
        }
        if (at > max_ - unsure) {
            if (!(out.exponent > -700)) return {0, 0, 0, 2 * unsure, 0, 2 * unsure};
            out.error += 2 * unsure * std::exp(-out.exponent);
        }
        return out;
    }
    Tangent below(double at) const override {
        if (at < min_) return {0, 0, 0, 0, 0, 0};
        if (at >= max_) return everything_below(at);
        return far_out(at, -1) ? nothing : tangent(at, -1);
    }
    // Rounded up: the weights are kept as logarithms, and products with them may underflow.
    double max_loss() const override {
        double largest = 0;
        for (const Side* side : {&p_, &q_})
            for (const double log_weight : side->log_weight)
                largest = std::max(largest, std::abs(log_weight));
        const double products = static_cast<double>(p_.shift.size() + q_.shift.size()),
                     lost = high_ > low_ ? lost_to_underflow * products : 0;
        return max_ + u * (16 + 2 * largest) * std::abs(max_) + lost;
    }
    std::vector<GaussianMixtures> gaussian_mixtures() const override {
        if (noise_ != Noise::gaussian) return {};
        return {{1, p_.shift, weights(p_), q_.shift, weights(q_)}};
    }
    // Laplace: between two shifts every density is a sum of e^t and e^-t; beyond the outermost the loss is
    // constant.
    std::optional<LossLaw> loss_law() const override {
        if (noise_ == Noise::gaussian) {
            const auto terms = [](const Side& side) {
                std::vector<LossPiece::Term> out;
                for (std::size_t i = 0; i < side.shift.size(); ++i)
                    out.push_back(gaussian_term(side.log_weight[i], side.shift[i]));
                return out;
            };
            LossLaw law;
            law.pieces = {{-infinity, infinity, true, terms(p_), terms(q_)}};
            return law;
        }
        std::vector<double> ends = p_.shift;
        ends.insert(ends.end(), q_.shift.begin(), q_.shift.end());
        std::sort(ends.begin(), ends.end());
        ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
        const auto terms = [](const Side& side, double low) {
            std::vector<LossPiece::Term> out;
            for (std::size_t i = 0; i < side.shift.size(); ++i)
                out.push_back(side.shift[i] <= low
                                  ? LossPiece::Term{side.log_weight[i] + side.shift[i] - std::log(2), -1}
                                  : LossPiece::Term{side.log_weight[i] - side.shift[i] - std::log(2), 1});
            return out;
        };
        const auto log_tail = [](const Side& side, double t) {
            double sum = 0;
            for (std::size_t i = 0; i < side.shift.size(); ++i)
                sum += std::exp(side.log_weight[i] - std::abs(t - side.shift[i]));
            return std::log(0.5 * sum);
        };
        LossLaw law;
        for (const double end : {ends.front(), ends.back()}) {
            const double at = loss(end).value, log_p = log_tail(p_, end);
            law.atoms.push_back({at, log_p, 16 + 16 * std::abs(end), 32 + 8 * std::abs(log_p)});
        }
        for (std::size_t i = 0; i + 1 < ends.size(); ++i)
            law.pieces.push_back({ends[i], ends[i + 1], false, terms(p_, ends[i]), terms(q_, ends[i])});
        return law;
    }

private:
    // Proof: a Gaussian tail beyond is less than e^-840, and 0 in every double.
    static constexpr double far = 41;
    // Speed: of the way to a place beyond a root; any place is sound.
    static constexpr int most_halvings = 60;
    static constexpr Tangent nothing{0, 0, -840, 1, 1, 0};
    // Whether the loss so far out, and with it every one that has any mass, is surely on this side of x: then
    // no root need be looked for, which would be as far as x is.
    bool far_out(double x, int direction) const {
        if (noise_ != Noise::gaussian) return false;
        const double end = direction > 0 ? high_ + far : low_ - far;
        return direction * (x - (direction > 0 ? largest_ : least_)) > unsure(end, x);
    }

    // Shifts and log weights in units of the noise scale.
    struct Side {
        std::vector<double> shift, log_weight;
    };
    static Side make(const std::vector<double>& shifts, const std::vector<double>& weights, double scale) {
        Side side;
        for (std::size_t i = 0; i < shifts.size(); ++i) {
            if (weights[i] <= 0) continue;
            side.shift.push_back(shifts[i] / scale);
            side.log_weight.push_back(std::log(weights[i]));
        }
        return side;
    }

    static std::vector<double> weights(const Side& side) {
        std::vector<double> out;
        for (double log_weight : side.log_weight) out.push_back(std::exp(log_weight));
        return out;
    }

    // ln of the ratio of the weights at one shift, from the weights elsewhere: near 0 nothing is lost.
    double end_ratio(double shift) const {
        const auto log_rest = [shift](const Side& side) {
            double here = 0, elsewhere = 0;
            for (std::size_t i = 0; i < side.shift.size(); ++i)
                (side.shift[i] == shift ? here : elsewhere) += std::exp(side.log_weight[i]);
            return std::log1p(elsewhere / here);
        };
        return log_rest(q_) - log_rest(p_);
    }

    // ln of the mean of e^{+-shift}: near 0 nothing is lost, as the weights sum to 1 and all shifts of a side
    // have the same sign.
    static double log_mean_exp(const Side& side, double sign) {
        double excess = 0, largest = 0;
        for (std::size_t i = 0; i < side.shift.size(); ++i) {
            excess += std::exp(side.log_weight[i]) * std::expm1(sign * side.shift[i]);
            largest = std::max(largest, sign * side.shift[i]);
        }
        if (excess > -0.5 && std::isfinite(excess)) return std::log1p(excess);
        double sum = 0;
        for (std::size_t i = 0; i < side.shift.size(); ++i)
            sum += std::exp(side.log_weight[i] + sign * side.shift[i] - largest);
        return largest + std::log(sum);
    }

    // (1-q) N(0) + q N(s) against (1-q) N(0) + q N(-s): e^{s t} solves a quadratic equation, and
    //     s t = x/2 + arsinh(sinh(x/2) (1-q)/q e^{s^2/2}).
    bool mirrored() const {
        return noise_ == Noise::gaussian && p_.shift.size() == 2 && q_.shift.size() == 2 &&
               p_.shift[0] == 0 && q_.shift[0] == 0 && p_.shift[1] == -q_.shift[1] &&
               p_.log_weight == q_.log_weight && p_.shift[1] > 0;
    }
    double mirrored_root(double x) const {
        const double s = p_.shift[1], half = 0.5 * std::abs(x);
        const double log_odds = p_.log_weight[0] - p_.log_weight[1] + 0.5 * s * s;
        const double log_twice = log_odds + half + std::log(-std::expm1(-2 * half));
        const double turn = log_twice > 40 ? log_twice : std::asinh(0.5 * std::exp(log_twice));
        return std::copysign((half + turn) / s, x);
    }

    // ln of a side's density and its slope, up to what cancels between P and Q: for Gaussian noise t^2/2.
    struct Value {
        double value, slope;
    };
    Value log_density(const Side& side, double t) const {
        const bool plain = noise_ == Noise::gaussian;
        const auto exponent = [&](std::size_t i) {
            const double shift = side.shift[i];
            return side.log_weight[i] + (plain ? shift * (t - 0.5 * shift) : -std::abs(t - shift));
        };
        double largest = -infinity;
        for (std::size_t i = 0; i < side.shift.size(); ++i) largest = std::max(largest, exponent(i));
        double sum = 0, slope = 0;
        for (std::size_t i = 0; i < side.shift.size(); ++i) {
            const double term = std::exp(exponent(i) - largest);
            sum += term;
            slope += term * (plain ? side.shift[i] : t < side.shift[i] ? 1 : -1);
        }
        return {largest + std::log(sum), slope / sum};
    }
    Value loss(double t) const {
        const Value p = log_density(p_, t), q = log_density(q_, t);
        return {p.value - q.value, p.slope - q.slope};
    }

    // Ends between which the loss passes x: beyond them all of Laplace noise's losses are the same.
    std::pair<double, double> enclose(double x) const {
        double a = low_, b = high_;
        if (noise_ == Noise::laplace) return {a, b};
        double step = 1 + (b - a);
        while (loss(a).value > x && step < 1e18) a -= step, step *= 2;
        step = 1 + (b - a);
        while (loss(b).value < x && step < 1e18) b += step, step *= 2;
        return {a, b};
    }
    // The loss increases with t: Newton's method in a bracket that halves at least every third step.
    double invert(double x) const {
        if (mirrored_) return x == 0 ? 0 : mirrored_root(x);
        auto [a, b] = enclose(x);
        double t = 0.5 * (a + b), before = infinity;
        for (int i = 0; i < 200 && b - a > 2 * u * (std::abs(a) + std::abs(b)); ++i) {
            const Value at = loss(t);
            const double f = at.value - x;
            if (std::abs(f) <= 2 * u * (1 + std::abs(x))) return t;
            (f < 0 ? a : b) = t;
            t -= f / at.slope;
            const bool slow = i % 3 == 2 && b - a > 0.5 * before;
            if (i % 3 == 2) before = b - a;
            if (slow || !(t > a && t < b)) t = 0.5 * (a + b);
        }
        return 0.5 * (a + b);
    }

    // More than the rounding of the loss at t, a difference of logarithms of sums of exponentials.
    double unsure(double t, double x) const {
        const double widest = std::max(high_, -low_), moved = std::abs(t) + widest;
        const double exponents = noise_ == Noise::gaussian ? widest * moved : moved;
        const double terms = static_cast<double>(p_.shift.size() + q_.shift.size());
        return 8 * u + 4 * u * std::abs(x) + 8 * u * exponents + 2 * u * terms;
    }
    // A place on the tail's far side of the root, where the loss is below x (above it for direction -1) by
    // more than its rounding: between the two the loss is near x, and they are part of the tail. Where the
    // loss hardly moves they may be far apart, and beyond a root that was missed there would be too little to
    // measure an error by.
    double beyond_root(double x, int direction) const {
        double t = invert(x);
        if (mirrored_) return t;  // known to some units of itself
        // Nothing lies further out that a double holds.
        const double most = noise_ == Noise::gaussian ? far : 800;
        const double end = direction > 0 ? low_ - most : high_ + most;
        double before = t;
        for (double step = 0; direction * (t - end) > 0;) {
            const Value at = loss(t);
            const double wanted = unsure(t, x);
            if (direction * (x - at.value) >= wanted) break;
            step = std::max(2 * step, 2 * wanted / at.slope);
            before = std::exchange(t, direction > 0 ? std::max(t - step, end) : std::min(t + step, end));
        }
        // Where little noise makes the loss level off, its slope there says nothing about where it moves on.
        for (int i = 0; i < most_halvings && direction * (x - loss(t).value) > 4 * unsure(t, x); ++i) {
            const double between = 0.5 * (before + t);
            (direction * (x - loss(between).value) >= unsure(between, x) ? t : before) = between;
        }
        return t;
    }

    // ln Pr[side*(T - shift) > side*t] split into a mantissa and an exponent.
    void tail(double z, double& mantissa, double& exponent) const {
        if (noise_ == Noise::gaussian) {
            exponent = z >= 0 ? -0.5 * z * z : 0;
            mantissa = z >= 0 ? scaled_normal_tail(z) : 1 - std::exp(-0.5 * z * z) * scaled_normal_tail(-z);
        } else {
            exponent = z >= 0 ? -z : 0;
            mantissa = z >= 0 ? 0.5 : 1 - 0.5 * std::exp(z);
        }
    }
    // Sum of a side's tails times e^offset; the largest exponent is taken out.
    double side_tail(const Side& side, double t, int direction, double offset, double& exponent) const {
        std::vector<double> mantissas(side.shift.size()), exponents(side.shift.size());
        double largest = -infinity;
        for (std::size_t i = 0; i < side.shift.size(); ++i) {
            tail(direction * (t - side.shift[i]), mantissas[i], exponents[i]);
            exponents[i] += side.log_weight[i] + offset;
            largest = std::max(largest, exponents[i]);
        }
        double sum = 0;
        for (std::size_t i = 0; i < mantissas.size(); ++i)
            sum += mantissas[i] * std::exp(exponents[i] - largest);
        exponent = largest;
        return sum;
    }

    Tangent tangent(double x, int direction) const {
        if (std::isnan(x)) return {x, x, x, x, x, x};
        const double t = beyond_root(x, direction);
        double p_exponent, q_exponent;
        double p = side_tail(p_, t, direction, 0, p_exponent);
        double q = side_tail(q_, t, direction, x, q_exponent);
        const double exponent = std::max(p_exponent, q_exponent);
        p *= std::exp(p_exponent - exponent);
        q *= std::exp(q_exponent - exponent);
        const double reach = std::max(std::abs(t - high_), std::abs(t - low_));
        const double relative =
            u * (64 + 4 * reach * reach + 4 * std::abs(x) + 4 * static_cast<double>(p_.shift.size()));
        const double value = direction > 0 ? p - q : q - p;
        // Between t and the root |p - e^x q| is at most this much of the larger one.
        const double moved = 2 * std::abs(loss(t).value - x) + unsure(t, x);
        return {value, q, exponent, (relative + std::min(1.0, moved)) * std::max(p, q), relative, moved};
    }

    Noise noise_;
    Side p_, q_;
    double low_ = 0, high_ = 0, min_ = -infinity, max_ = infinity;
    double least_ = -infinity, largest_ = infinity;  // losses as far out as tails are looked at
    bool mirrored_ = false;
    PairPtr farthest_;  // of Gaussian noise
};

}  // namespace

PairPtr location_mixture(Noise noise, double scale, std::vector<double> p_shifts,
                         std::vector<double> p_weights, std::vector<double> q_shifts,
                         std::vector<double> q_weights) {
    require(std::isfinite(scale) && scale > 0, "location_mixture: scale must be finite and positive");
    const auto check = [scale](const std::vector<double>& shifts, const std::vector<double>& weights,
                               double sign) {
        require(!shifts.empty() && shifts.size() == weights.size(),
                "location_mixture: one weight for each shift is needed");
        double total = 0;
        for (std::size_t i = 0; i < shifts.size(); ++i) {
            require(std::isfinite(shifts[i]) && sign * shifts[i] >= 0,
                    "location_mixture: P-shifts must be >= 0 and Q-shifts <= 0");
            require(std::abs(shifts[i]) / scale <= most_shift,
                    "location_mixture: shifts must be at most 1e100 scales");
            require(weights[i] >= 0, "location_mixture: weights must not be negative");
            total += weights[i];
        }
        require(std::abs(total - 1) < most_missing, "location_mixture: weights must sum to 1");
    };
    check(p_shifts, p_weights, +1);
    check(q_shifts, q_weights, -1);
    return std::make_shared<LocationMixturePair>(noise, scale, std::move(p_shifts), std::move(p_weights),
                                                 std::move(q_shifts), std::move(q_weights));
}

}  // namespace hockeystick
