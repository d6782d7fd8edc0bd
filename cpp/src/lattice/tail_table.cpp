#include "lattice/tail_table.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// speed: where a search for eps ends, relatively; what it finds is on the safe side.
constexpr double close = 1e-14;

// speed: e^700 is nearly the largest double. Past `most_known` nothing is known but the trivial bounds.
constexpr double largest_exponent = 700, most_known = 690;

// Halves [low, high], where `holds` at low and not at high.
void halve(double& low, double& high, const std::function<bool(double)>& holds) {
    for (double middle = 0.5 * (low + high); middle > low && middle < high && high - low > close * high;
         middle = 0.5 * (low + high))
        (holds(middle) ? low : high) = middle;
}

}  // namespace

TailTable::TailTable(Composed composed) : c_(std::move(composed)) {
    // With r = e^{-tilt step} and s = e^{-step}, at point j:
    //   mass_[j]    = sum_{i>=j} m_i r^{i-j},
    //   benefit_[j] = sum_{i>=j} m_i r^{i-j} (1 - s^{i-j}); every term is positive.
    const std::size_t n = c_.mass.size();
    benefit_.assign(n, 0.0);
    const double r = std::exp(-c_.tilt * c_.step), s = std::exp(-c_.step),
                 one_minus_s = -std::expm1(-c_.step);
    for (std::size_t j = n - 1; j-- > 0;) {
        benefit_[j] = r * (s * benefit_[j + 1] + one_minus_s * c_.mass[j + 1]);
        c_.mass[j] += r * c_.mass[j + 1];
    }
    // Weights of the error terms at eps, relative to e^{log_scale - tilt eps}.
    const double one_minus_r = -std::expm1(-c_.tilt * c_.step);
    const double one_minus_rs = -std::expm1(-(c_.tilt + 1) * c_.step);
    round_off_weight_ = std::min(one_minus_s / (one_minus_r * one_minus_rs), static_cast<double>(n));
    // sup over d of e^{-tilt d} (1 - e^{-d})
    outside_weight_ = c_.tilt > 0 ? std::exp(-c_.tilt * std::log1p(1 / c_.tilt)) / (1 + c_.tilt) : 1.0;
}

Delta TailTable::at(double loss, bool upper) const {
    Delta out;
    // As the lattice sees it; the difference is rounded in the bound's direction.
    const double moved_by = c_.offset == 0 && c_.offset_error == 0
                                ? 0
                                : 4 * u * (std::abs(loss) + std::abs(c_.offset)) + 2 * c_.offset_error;
    const double epsilon = loss - c_.offset + (upper ? -moved_by : moved_by);
    const double unit = std::exp(std::min(c_.log_scale - c_.tilt * epsilon, largest_exponent));
    double outside = c_.outside_right;
    // Mass left of the window counts only where eps lies there; but it may be folded anywhere.
    if (!upper || epsilon < static_cast<double>(c_.first) * c_.step) outside += c_.outside_left;
    out.wrap_around = unit * outside * outside_weight_;
    out.round_off = unit * c_.round_off * round_off_weight_;
    out.truncation = upper ? unit * c_.beyond : 0.0;
    const double errors = out.wrap_around + out.round_off + out.truncation;
    // log_scale and tilt * loss nearly cancel; their rounding does not.
    const double largest = std::max(std::abs(epsilon), reach());
    const double relative = c_.relative_error + 8 * u * (std::abs(c_.log_scale) + c_.tilt * largest);
    // Far left of the window the unit overflows and nothing is known but the trivial bounds.
    const bool known = c_.log_scale - c_.tilt * epsilon < most_known;
    const double value = known ? visible(epsilon) : upper ? 1.0 : 0.0;
    out.value = upper ? (value + errors) * (1 + relative) + c_.infinity_mass
                      : value * (1 - relative) - errors * (1 + relative) -
                            std::min(c_.deficit, unit * std::expm1(c_.tilted_deficit)) + c_.infinity_mass;
    // A few roundings in the denormal range, none of which is relative.
    out.value += (upper ? 4 : -4) * std::numeric_limits<double>::denorm_min();
    if (std::isnan(out.value)) out.value = upper ? 1 : 0;
    // Whatever the lattice says, max(0, 1 - e^eps) <= delta <= 1; but a rounded loss may come with E[e^-L]
    // > 1.
    const double least =
        c_.bound == Bound::mean_preserving ? 0.0 : std::max(0.0, -std::expm1(loss) * (1 - 4 * u));
    out.value = std::clamp(out.value, least, 1.0);
    return out;
}

double TailTable::end() const {
    return (static_cast<double>(c_.first) + static_cast<double>(c_.mass.size())) * c_.step + c_.offset;
}

double TailTable::reach() const {
    return std::max(std::abs(end() - c_.offset), std::abs(static_cast<double>(c_.first) * c_.step));
}

double TailTable::visible(double epsilon) const {
    const auto n = static_cast<double>(c_.mass.size()), first = static_cast<double>(c_.first);
    double j = std::max(std::ceil(epsilon / c_.step) - first, 0.0);
    if (!(j < n)) return 0;
    // Rounding of the quotient must not skip a point, nor take one too many.
    while (j > 0 && (first + j - 1) * c_.step >= epsilon) j -= 1;
    while (j < n && (first + j) * c_.step < epsilon) j += 1;
    if (!(j < n)) return 0;
    const auto i = static_cast<std::size_t>(j);
    const double x = (first + j) * c_.step;
    const double sum = std::exp(epsilon - x) * benefit_[i] - std::expm1(epsilon - x) * c_.mass[i];
    return sum > 0 ? std::exp(std::min(std::log(sum) + c_.log_scale - c_.tilt * x, largest_exponent)) : 0.0;
}

double upper_epsilon(const std::function<double(double)>& upper, double delta, double start) {
    if (upper(0) <= delta) return 0;
    double low = 0, high = std::max(start, 1e-300);
    while (!(upper(high) <= delta)) {
        if (high > 1e300) return infinity;
        low = high;
        high *= 2;
    }
    halve(low, high, [&](double epsilon) { return !(upper(epsilon) <= delta); });
    return high;
}

double lower_epsilon(const std::function<double(double)>& lower, double delta, double above) {
    double high = above, low = above;
    for (double distance = std::max(1e-13 * above, 1e-320);; distance *= 4) {  // the share may underflow
        low = above - distance;
        if (!(low > 0)) return 0;
        if (lower(low) > delta) break;
        high = low;
    }
    halve(low, high, [&](double epsilon) { return lower(epsilon) > delta; });
    return low;
}

}  // namespace hockeystick
