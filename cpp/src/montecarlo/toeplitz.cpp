#include "hockeystick/toeplitz.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "hockeystick/arithmetic.hpp"
#include "hockeystick/parallel.hpp"
#include "hockeystick/random.hpp"
#include "numerics/constants.hpp"
#include "numerics/require.hpp"

namespace hockeystick {
namespace {

// Only speed rests on the constants of the search: any coefficients are a strategy.
constexpr std::size_t remembered = 30;  // pairs of the approximate Hessian
constexpr std::size_t most_steps = 1000;
constexpr double flat = 1e-10;            // largest projected slope at a minimum
constexpr double least_progress = 1e-15;  // of ln(loss), in one step
constexpr double enough = 1e-4;           // share of the promised decrease (Armijo)
constexpr int most_halvings = 60;

constexpr std::size_t rows_between_interruptions = 256;  // speed

double dot(std::span<const double> a, std::span<const double> b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

// What is still missing to each of the next quotients is kept, and not their history: the inner loop's sums
// are independent of each other, and the compiler may do several at a time.
void divide(std::span<const double> c, std::span<const double> values, std::span<double> out) {
    const std::size_t n = values.size(), b = c.size();
    std::vector<double> pending(b + 1, 0.0);
    double* const p = pending.data();
    for (std::size_t i = 0; i < n; ++i) {
        if (i % rows_between_interruptions == 0) interruption_point();
        const double quotient = (values[i] + p[0]) / c[0];
        out[i] = quotient;
        for (std::size_t k = 1; k < b; ++k) p[k - 1] = p[k] - c[k] * quotient;
    }
}

class Objective {
public:
    Objective(std::span<const double> kept, const ToeplitzErrors& errors)
        : kept_(kept.begin(), kept.end()),
          errors_(errors),
          row_(errors.response.size()),
          weighted_(row_.size()),
          second_(row_.size()) {}

    // ln(sum kept c^2) + ln(steps * mean squared error), and its slopes; infinite where that overflows.
    double operator()(std::span<const double> c, std::span<double> slopes) {
        const std::size_t n = row_.size(), b = kept_.size();
        divide(c, errors_.response, row_);  // w = A(x)/C(x)
        weigh();
        double error = 0, squares = 0;
        for (std::size_t i = 0; i < n; ++i) error += weighted_[i] * row_[i];
        for (std::size_t j = 0; j < b; ++j) squares += kept_[j] * c[j] * c[j];
        if (!std::isfinite(error)) return infinity;
        // dw/dc_j = -x^j w/C(x).
        divide(c, row_, second_);
        std::fill(slopes.begin(), slopes.end(), 0.0);
        double* const s = slopes.data();
        for (std::size_t i = 0; i < n; ++i) {
            if (i % rows_between_interruptions == 0) interruption_point();
            const double factor = second_[i];
            const double* const w = weighted_.data() + i;
            const std::size_t size = std::min(b, n - i);
            for (std::size_t j = 0; j < size; ++j) s[j] += w[j] * factor;
        }
        for (std::size_t j = 0; j < b; ++j) s[j] = 2 * kept_[j] * c[j] / squares - 2 * s[j] / error;
        return portable_log(squares) + portable_log(error);
    }

private:
    void weigh() {
        const std::size_t n = row_.size();
        if (errors_.gram.empty()) {
            for (std::size_t i = 0; i < n; ++i) weighted_[i] = static_cast<double>(n - i) * row_[i];
            return;
        }
        std::fill(weighted_.begin(), weighted_.end(), 0.0);
        for (std::size_t i = 0; i < n; ++i) {
            if (i % rows_between_interruptions == 0) interruption_point();
            // Symmetric: its rows are its columns, and sums of different entries are independent of each
            // other.
            const double* const g = errors_.gram.data() + i * n;
            for (std::size_t k = 0; k < n; ++k) weighted_[k] += g[k] * row_[i];
        }
    }

    std::vector<double> kept_;
    ToeplitzErrors errors_;
    std::vector<double> row_, weighted_, second_;
};

// Projected L-BFGS: variables at 0 whose slope is positive stay there, the others follow the quasi-Newton
// direction (Nocedal 1980), cut off at 0. The first coefficient stays 1: the objective does not depend on
// scale.
class Search {
public:
    Search(Objective& objective, std::vector<double> start)
        : objective_(objective), c_(std::move(start)), slopes_(c_.size()), value_(objective(c_, slopes_)) {}

    std::vector<double> run() {
        for (std::size_t step = 0; step < most_steps && value_ < infinity; ++step) {
            const std::vector<double> downhill = free_slopes();
            if (largest(downhill) <= flat) break;
            const double before = value_;
            if (!advance(direction(downhill))) {
                if (pairs_.empty()) break;
                pairs_.clear();
                continue;
            }
            if (before - value_ <= least_progress * std::max(1.0, std::fabs(before))) break;
        }
        return c_;
    }

private:
    struct Pair {
        std::vector<double> move, change;
        double inner;  // <move, change> > 0
    };

    bool held(std::size_t i) const { return i == 0 || (c_[i] == 0 && slopes_[i] > 0); }

    std::vector<double> free_slopes() const {
        std::vector<double> out(slopes_);
        for (std::size_t i = 0; i < out.size(); ++i) {
            if (held(i)) out[i] = 0;
        }
        return out;
    }

    static double largest(const std::vector<double>& values) {
        double most = 0;
        for (const double x : values) most = std::max(most, std::fabs(x));
        return most;
    }

    std::vector<double> direction(const std::vector<double>& downhill) const {
        std::vector<double> d(downhill);
        // Nothing is known of the curvature at first: a tenth of the first coefficient.
        const double first = pairs_.empty() ? 0.1 / largest(downhill) : 1.0;
        for (double& x : d) x *= -first;
        if (pairs_.empty()) return d;
        std::vector<double> shares(pairs_.size());
        for (std::size_t k = pairs_.size(); k-- > 0;) {
            shares[k] = dot(pairs_[k].move, d) / pairs_[k].inner;
            for (std::size_t i = 0; i < d.size(); ++i) d[i] -= shares[k] * pairs_[k].change[i];
        }
        const Pair& last = pairs_.back();
        const double scale = last.inner / dot(last.change, last.change);
        for (double& x : d) x *= scale;
        for (std::size_t k = 0; k < pairs_.size(); ++k) {
            const double share = shares[k] - dot(pairs_[k].change, d) / pairs_[k].inner;
            for (std::size_t i = 0; i < d.size(); ++i) d[i] += share * pairs_[k].move[i];
        }
        for (std::size_t i = 0; i < d.size(); ++i) {
            if (held(i)) d[i] = 0;
        }
        return d;
    }

    // Goes along `d`, not below 0, until the objective falls by a share of what its slopes promise.
    bool advance(const std::vector<double>& d) {
        const std::size_t b = c_.size();
        std::vector<double> there(b), slopes(b), move(b);
        double length = 1;
        for (int halving = 0; halving < most_halvings; ++halving, length *= 0.5) {
            for (std::size_t i = 0; i < b; ++i) {
                there[i] = std::max(0.0, c_[i] + length * d[i]);
                move[i] = there[i] - c_[i];
            }
            const double promised = dot(slopes_, move);
            if (!(promised < 0)) return false;
            const double value = objective_(there, slopes);
            if (!(value <= value_ + enough * promised)) continue;
            for (std::size_t i = 0; i < b; ++i) slopes_[i] = slopes[i] - slopes_[i];  // the change
            const double inner = dot(move, slopes_);
            if (inner > 1e-16 * dot(slopes_, slopes_)) {
                if (pairs_.size() == remembered) pairs_.erase(pairs_.begin());
                pairs_.push_back({move, slopes_, inner});
            }
            c_ = there;
            slopes_ = slopes;
            value_ = value;
            return true;
        }
        return false;
    }

    Objective& objective_;
    std::vector<double> c_, slopes_;
    double value_;
    std::vector<Pair> pairs_;
};

}  // namespace

std::vector<double> divide_by_toeplitz(std::span<const double> coefficients, std::span<const double> values) {
    const StandardArithmetic standard;
    require(!coefficients.empty() && coefficients[0] > 0, "the first coefficient must be positive");
    std::vector<double> out(values.size());
    divide(coefficients.first(std::min(coefficients.size(), std::max<std::size_t>(values.size(), 1))), values,
           out);
    return out;
}

std::vector<double> optimal_toeplitz(std::span<const double> kept, const ToeplitzErrors& errors) {
    const StandardArithmetic standard;
    const std::size_t bands = kept.size(), steps = errors.response.size();
    require(bands >= 1 && bands <= steps, "bands must be in [1, steps]");
    require(std::ranges::all_of(kept, [](double x) { return x > 0 && std::isfinite(x); }),
            "kept must be positive");
    require(errors.gram.empty() || errors.gram.size() / steps == steps,
            "gram must be empty or have steps * steps entries");
    // Of 1/sqrt(1 - x).
    std::vector<double> start(bands, 1.0);
    for (std::size_t k = 1; k < bands; ++k) {
        const double twice = 2 * static_cast<double>(k);
        start[k] = start[k - 1] * ((twice - 1) / twice);
    }
    Objective objective(kept, errors);
    std::vector<double> found = Search(objective, std::move(start)).run();
    const double norm = std::sqrt(dot(found, found));
    for (double& x : found) x /= norm;
    return found;
}

}  // namespace hockeystick
