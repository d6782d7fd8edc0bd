#include "inversion/allocation_step_series.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "inversion/allocation_gamma_kernel.hpp"
#include "numerics/constants.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

// speed: how far nodes go beside the tilted normal variable's mean; their line, and the strip around it; how
// many nodes there may be.
constexpr double reach = 10.5, widest_strip = 2, widest_turn = 2;
constexpr double most_nodes = 6e3;
// proof: what a normal variable has beyond `reach`, on both sides and with a mean absolute value to spare.
constexpr double beyond_reach = 1e-24;
// proof: e^-this is less than any double, so that what is smaller is nothing.
constexpr double vanished = 745;
// proof: e^-this is nothing beside it.
constexpr double far = 45;
// proof: the k-th power of a coefficient's scale is at least e^-this, so that none underflows.
constexpr double largest_log = 600;

// speed: an exponent so near 0 needs no exp(), where the strip's edges have so little more of it; products
// that are larger are computed from their logarithms.
constexpr double small_exponent = 0.5, small_more = 0.1, large_size = 1e290;
// proof: e^small_more is less; more than e times that, and once more.
constexpr double most_more = 1.106, aliasing_of_small = 1 + 2.72 * most_more;
// proof: sums over nodes are added up in such blocks. speed: for how many |s| nodes are gathered.
constexpr std::size_t block = 16, most_reaches = 12;

// proof: up to this relative error of c_0, quotients by it are bounded as such ("Moments").
constexpr double small_error = 0.01;

// No less than the modulus, and quicker.
double size_of(Complex w) { return std::abs(w.real()) + std::abs(w.imag()); }

}  // namespace

// c_0, for e^{-s(m - 1/T)} unless bare; S_j = E[(scale m)^j e^{..}]/j!, sums of moduli, errors.
struct StepSeries::Sums {
    bool bare;
    Complex log_front;  // ln of c_0, plus s/T unless bare
    double relative;    // error of c_0 beside |c_0|
    std::vector<Complex> value;
    std::vector<double> modulus, error;  // all three beside c_0
};

StepSeries::StepSeries(const Allocation& law, int k, double angle, double least, double most,
                       double tolerance)
    : law_(law), k_(k), angle_(angle) {
    // The line and the strip around it with the widest step: sW must stay in the right half-plane on the
    // strip, where e^{-sW} falls less than on the line, which k powers of W make k times as bad; turning
    // costs, too. What matters has fallen by e^-40 at most.
    const double mu = law.mu,
                 wanted = 12 + std::log(law.steps) - std::log(std::max(tolerance, full_tolerance)),
                 farthest = std::min(widest_turn, std::sqrt(8.0 / std::max(k, 1)));
    double exponent = 0;
    h_ = 0;
    for (int i = 0; i <= 8; ++i)
        for (int j = 1; j <= 12; ++j) {
            const double turn = -std::min(angle / mu, farthest) * i / 8, centre = angle + mu * turn;
            const double strip = std::min(widest_strip, (0.5 * pi - centre) / mu) * j / 12.5;
            const double cosine = std::cos(centre + mu * strip), growth = 0.5 * std::pow(strip - turn, 2);
            const double less = cosine / std::cos(centre);
            const double turns = wanted + growth - k * std::log(less) + 40 / law.steps * (1 - less),
                         h = 2 * pi * strip / turns;
            if (centre - mu * strip < -0.5 * pi || !(h > 0) ||
                !(h / (1 + 0.05 * (k + 2) * turn * turn) > h_ / (1 + 0.05 * (k + 2) * turn_ * turn_)))
                continue;
            h_ = h;
            turn_ = turn;
            least_cosine_ = std::min(cosine, std::cos(centre - mu * strip));
            exponent = growth - 0.5 * turn * turn - turns;
        }
    // A step of few bits, so that its multiples are exact; "2.1" allows for what that is more.
    h_ = static_cast<float>(h_);
    // Of the integrals along both edges of the strip, whose weights are e^{-growth} those that are summed
    // below.
    aliasing_ = 2.1 * std::exp(exponent);
    const double tilted = reach + std::max(k, 1) * mu;
    const double vanishing =
        (std::log((vanished + 55) * law.steps / (least * std::max(least_cosine_, 1e-300)))) / mu + 0.5 * mu;
    // Large s tilts W down, until sW/T is about 1 or, where W hardly moves, as it tilts a normal variable.
    const double pull = std::max(0.0, std::min(most / law.steps * mu, std::log(most / law.steps) / mu));
    const double first = std::floor((-reach - pull) / h_);
    const double last = std::ceil(std::min(tilted, std::max(reach + mu, vanishing)) / h_);
    if (!(last - first < most_nodes) || !(k * std::log(2 * law.steps / std::max(k, 1)) < largest_log)) return;
    const double additions = static_cast<double>(block) + (last - first + 1) / static_cast<double>(block) + 2;
    for (double i = first; i <= last; ++i) {
        const double x = i * h_;
        log_size_.push_back(std::log(h_ / std::sqrt(2 * pi)) + 0.5 * (turn_ - x) * (turn_ + x));
        phase_.push_back(-x * turn_);
        size_.push_back(exp_or_0(log_size_.back()));
        direction_.push_back(std::polar(1.0, phase_.back()));
        ratio_.push_back(std::exp(mu * (x - 0.5 * mu)));
        excess_.push_back(std::expm1(mu * (x - 0.5 * mu)));
        slack_of_ratio_.push_back(8 + 2 * mu * (std::abs(x) + mu));
        slack_.push_back(slack_of_ratio_.back() + std::abs(x * turn_) + 3 * x * x + additions);
        if (k > 0) {
            add_powers(ratio_.back(), mu * (x - 0.5 * mu));
            size_of_powers_.push_back(std::exp(log_size_.back() + log_power_.back()));
        }
    }
    gather(least, most);
}

// Of psi's sum, too, what lies beyond the first and the last node is counted beside them.
double StepSeries::edges(std::size_t i) const {
    return i == 0 || i + 1 == ratio_.size() ? 2 / std::min(1.0, h_ * reach) : 0.0;
}

// The nodes whose e^{-s(W-1)/T} is a power series in s up to the largest |s|, and to lesser ones.
void StepSeries::gather(double least, double most) {
    const Complex direction = std::polar(1 / law_.steps, angle_),
                  turned_less_one = expm1(Complex(0, law_.mu * turn_));
    const double cosine = std::cos(angle_ + law_.mu * turn_);
    const std::size_t width = k_ > 0 ? static_cast<std::size_t>(k_) + 1 : 0;
    SmallTerms terms(most, width);
    std::vector<SmallTerms::Node> nodes;
    const auto add_next = [&] {
        nodes.clear();
        for (std::size_t i = terms.count(); i < terms.count() + block; ++i) {
            const Complex zeta = direction * (excess_[i] + ratio_[i] * turned_less_one);
            const double per_s = ratio_[i] / law_.steps, size_of_powers = k_ > 0 ? size_of_powers_[i] : 0;
            if (!terms.fits(zeta) || !(terms.reach() * per_s * (cosine - least_cosine_) < small_more) ||
                !(size_of_powers < large_size))
                return false;
            const double slack_of_powers = k_ > 0 ? slack_of_powers_[i] : 0;
            nodes.push_back({zeta, direction_[i], size_[i], size_of_powers,
                             std::span(power_).subspan(i * width, width), slack_[i], slack_of_powers,
                             edges(i), aliasing_of_small * aliasing_, aliasing_ * (per_s + 1 / law_.steps)});
        }
        terms.add(nodes);
        return true;
    };
    for (std::size_t i = 0; i < most_reaches && terms.reach() > least; ++i, terms = terms.closer()) {
        while (terms.count() + block < ratio_.size() && add_next()) {
        }
        if (terms.count() > 0) small_.push_back(terms);
    }
}

const SmallTerms* StepSeries::small_for(double modulus) const {
    const SmallTerms* out = nullptr;
    for (const SmallTerms& each : small_)
        if (modulus <= each.reach()) out = &each;
    return out;
}

// |W|^j/j! beside the largest of them, for j = 0..k: those that underflow count for nothing. Each follows
// from its neighbour on the way from the largest by a quotient and a product, which all round by u; ln W is
// known to 2 u ln W, and W no better.
void StepSeries::add_powers(double ratio, double log_ratio) {
    const double most = k_, largest = std::clamp(std::floor(ratio), 0.0, most),
                 log_of_largest = log_factorial(largest), log_power = largest * log_ratio;
    const std::size_t first = power_.size(), peak = first + static_cast<std::size_t>(largest);
    power_.resize(first + static_cast<std::size_t>(k_) + 1);
    power_[peak] = 1;
    for (double j = largest; j < most; ++j) {
        const std::size_t i = first + static_cast<std::size_t>(j);
        power_[i + 1] = power_[i] * (ratio / (j + 1));
    }
    for (double j = largest; j > 0; --j) {
        const std::size_t i = first + static_cast<std::size_t>(j);
        power_[i - 1] = power_[i] * (j / ratio);
    }
    log_power_.push_back(log_power - log_of_largest);
    slack_of_powers_.push_back(8 + most * (2 * std::abs(log_ratio) + 3) + 2 * std::abs(log_power) +
                               4 * log_of_largest);
}

// What all nodes share at one s.
struct StepSeries::Point {
    double per_step, cosine, sine;           // |s|/T; of the angle of sW
    Complex theta, turned, turned_less_one;  // s/T; the angle of W
    bool bare;
    double log_unit;  // what all terms are multiplied by: e^{s/T}, or one over the largest
    Complex unit_turn;
};

StepSeries::Point StepSeries::point_at(double modulus) const {
    const double per_step = modulus / law_.steps, phase = angle_ + law_.mu * turn_;
    Point out{per_step,
              std::cos(phase),
              std::sin(phase),
              std::polar(per_step, angle_),
              std::polar(1.0, law_.mu * turn_),
              expm1(Complex(0, law_.mu * turn_)),
              per_step * std::min(1.0, law_.mu) > 1,
              0,
              1.0};
    if (out.bare) {
        double largest = -infinity;
        for (std::size_t i = 0; i < ratio_.size(); ++i)
            largest = std::max(largest, log_size_[i] - per_step * ratio_[i] * out.cosine);
        out.log_unit = -largest;
    } else {
        out.log_unit = out.theta.real();
        out.unit_turn = std::polar(1.0, out.theta.imag());
    }
    return out;
}

// One node's e^{-sW/T}, times the unit: logarithms of its weight there and on the strip's edges, its
// direction. Where v = s(W - 1)/T is so small that neither needs an exponential, `modulus` is e^{-Re v}.
struct StepSeries::Term {
    double log_size, log_on_edge, rounding, edges, modulus = 0;
    Complex turn = 0.0, v = 0.0, psi = 0.0;  // psi(-v)
};

StepSeries::Term StepSeries::term_at(const Point& point, std::size_t i) const {
    const double y = point.per_step * ratio_[i], log_size = log_size_[i] + point.log_unit;
    Term out{log_size - y * point.cosine, log_size - y * least_cosine_,
             u * (slack_[i] + 4 + (slack_of_ratio_[i] + 4) * y) + edges(i), edges(i)};
    // Neither on the line nor on the edges is anything left of it, of no power.
    const bool gone = out.log_on_edge + (k_ > 0 ? log_power_[i] : 0) < -(vanished + 1);
    if (!point.bare) {
        out.v = point.theta * (excess_[i] + ratio_[i] * point.turned_less_one);
        out.psi = gone && out.v.real() > far ? out.v - 1.0 : psi(-out.v);
    }
    if (gone) return out;
    if (point.bare || !(std::norm(out.v) < small_exponent * small_exponent) ||
        !(y * (point.cosine - least_cosine_) < small_more)) {
        out.turn = std::polar(1.0, phase_[i] - y * point.sine) * point.unit_turn;
        return out;
    }
    const Complex whole = 1.0 - out.v + out.psi;
    out.modulus = std::sqrt(std::norm(whole));
    out.turn = direction_[i] * whole / out.modulus;
    return out;
}

void StepSeries::add_to_front(const Point& point, std::size_t i, const Term& term, NodeSums& sums) const {
    sums.front_error +=
        aliasing_ * (term.modulus > 0 ? most_more * size_[i] * term.modulus : exp_or_0(term.log_on_edge));
    if (point.bare) {
        const double size = exp_or_0(term.log_size);
        sums.front += size * term.turn;
        sums.front_error += size * term.rounding;
        return;
    }
    const double of_p = size_of(term.psi), of_v = size_of(term.v);
    sums.front += size_[i] * direction_[i] * term.psi;
    sums.front_error +=
        size_[i] * (u * (slack_[i] + 8) * (of_p + of_v * (of_p + of_v)) + term.edges * (of_v + of_p) +
                    aliasing_ * (1 + point.per_step * (ratio_[i] + 1)));
}

void StepSeries::add_node(const Point& point, std::size_t i, NodeSums& sums) const {
    const Term term = term_at(point, i);
    add_to_front(point, i, term, sums);
    if (k_ == 0) return;
    const bool quick = term.modulus > 0 && size_of_powers_[i] < large_size;
    const double size = quick ? size_of_powers_[i] * term.modulus : exp_or_0(term.log_size + log_power_[i]),
                 loose = aliasing_ * (quick ? most_more * size : exp_or_0(term.log_on_edge + log_power_[i]));
    if (!(size > 0 || loose > 0)) return;
    const double right = size * term.turn.real(), up = size * term.turn.imag(),
                 error = size * (term.rounding + u * slack_of_powers_[i]) + loose;
    const double* powers = &power_[i * sums.real.size()];
    for (std::size_t j = 1; j < sums.real.size(); ++j) {
        sums.real[j] += powers[j] * right;
        sums.imaginary[j] += powers[j] * up;
        sums.modulus[j] += powers[j] * size;
        sums.error[j] += powers[j] * error;
    }
}

StepSeries::Sums StepSeries::sums(double modulus, double scale) const {
    const Point point = point_at(modulus);
    const auto k = static_cast<std::size_t>(k_);
    const SmallTerms* small = point.bare ? nullptr : small_for(modulus);
    NodeSums all = small ? small->at(modulus) : NodeSums(k > 0 ? k + 1 : 0);
    NodeSums some(all.real.size());
    for (std::size_t i = small ? small->count() : 0; i < ratio_.size();) {
        some.clear();
        for (const std::size_t end = std::min(i + block, ratio_.size()); i < end; ++i)
            add_node(point, i, some);
        all.add(some);
    }
    Sums out{point.bare,
             0,
             0,
             std::vector<Complex>(k + 1),
             std::vector<double>(k + 1),
             std::vector<double>(k + 1)};
    Complex front = all.front;
    double front_error = all.front_error;
    const Complex excess = front;  // over 1, which it must not be rounded to
    if (!out.bare) {
        front += 1.0;
        front_error += beyond_reach * (1 + 2 * point.per_step);
    }
    const double whole = std::abs(front);
    out.relative = whole > 0 ? front_error / whole : infinity;
    out.log_front = out.bare ? std::log(front) - point.log_unit : log1p(excess);
    // 1/(1 - relative); where that is more, `power` counts moduli.
    const double of_quotient = out.relative < small_error ? 1 / (1 - small_error) : 1;
    double power = 1;
    Complex turns = 1.0;
    for (std::size_t j = 1; j <= k; ++j) {
        power *= scale / law_.steps;
        turns *= point.turned;
        const double modulus_here = all.modulus[j] * power,
                     rounding = out.relative + u * (10 * static_cast<double>(j) + 4);
        out.value[j] = power * Complex(all.real[j], all.imaginary[j]) * turns / front;
        out.error[j] = (all.error[j] * power + modulus_here * rounding) * of_quotient / whole;
        out.modulus[j] = modulus_here / whole;
    }
    return out;
}

namespace {

// A power series with bounds of its coefficients' moduli and errors. Real and imaginary parts lie apart, and
// products add up one coefficient of a factor at a time, so that the loops are of vectors.
struct BoundedSeries {
    std::vector<double> real, imaginary, modulus, error;

    explicit BoundedSeries(std::size_t size) : real(size), imaginary(size), modulus(size), error(size) {}
    static BoundedSeries one(std::size_t size) {
        BoundedSeries out(size);
        out.real[0] = out.modulus[0] = 1;
        return out;
    }
    // The rounding of a coefficient that is a sum of `terms` products.
    void round(std::size_t n, double terms) { error[n] += u * (12 + terms) * modulus[n]; }
};

// The coefficients from `first` on.
BoundedSeries times(const BoundedSeries& a, const BoundedSeries& b, std::size_t first = 0) {
    const std::size_t size = a.real.size();
    BoundedSeries out(size);
    for (std::size_t j = 0; j < size; ++j) {
        const double right = a.real[j], up = a.imaginary[j], modulus = a.modulus[j], error = a.error[j];
        for (std::size_t n = std::max(j, first); n < size; ++n) {
            const std::size_t i = n - j;
            out.real[n] += right * b.real[i] - up * b.imaginary[i];
            out.imaginary[n] += right * b.imaginary[i] + up * b.real[i];
            out.modulus[n] += modulus * b.modulus[i];
            out.error[n] += error * (b.modulus[i] + b.error[i]) + modulus * b.error[i];
        }
    }
    for (std::size_t n = first; n < size; ++n) out.round(n, static_cast<double>(n));
    return out;
}

// By squaring: for few factors nothing cancels. Of the last product the last coefficient alone.
BoundedSeries power_by_squaring(BoundedSeries base, double steps) {
    const std::size_t size = base.real.size();
    BoundedSeries out = BoundedSeries::one(size);
    for (auto left = static_cast<unsigned long long>(steps); left > 0; left >>= 1) {
        if (left & 1) out = times(out, base, left == 1 ? size - 1 : 0);
        if (left > 1) base = times(base, base);
    }
    return out;
}

// (1 + sum_j d_j t^j)^T by n b_n = sum_j (j(T+1) - n) d_j b_{n-j}: positive factors where T is large.
BoundedSeries power_by_recurrence(const BoundedSeries& d, double steps) {
    const std::size_t size = d.real.size();
    BoundedSeries b = BoundedSeries::one(size);
    for (std::size_t i = 0; i < size; ++i) {
        if (i > 0) b.round(i, static_cast<double>(i));
        const double right = b.real[i], up = b.imaginary[i], modulus = b.modulus[i], error = b.error[i];
        for (std::size_t n = i + 1; n < size; ++n) {
            const std::size_t j = n - i;
            const double order = static_cast<double>(n),
                         factor = (static_cast<double>(j) * (steps + 1) - order) / order,
                         size_of_it = std::abs(factor);
            b.real[n] += factor * (d.real[j] * right - d.imaginary[j] * up);
            b.imaginary[n] += factor * (d.real[j] * up + d.imaginary[j] * right);
            b.modulus[n] += size_of_it * (d.modulus[j] * modulus);
            b.error[n] += size_of_it * ((d.modulus[j] + d.error[j]) * error + d.error[j] * modulus);
        }
    }
    return b;
}

}  // namespace

SeriesValue StepSeries::power(const Sums& c, double scale) const {
    const auto k = static_cast<std::size_t>(k_);
    BoundedSeries series = BoundedSeries::one(k + 1);
    for (std::size_t j = 1; j <= k; ++j) {
        series.real[j] = c.value[j].real();
        series.imaginary[j] = c.value[j].imag();
        series.modulus[j] = c.modulus[j];
        series.error[j] = c.error[j];
    }
    const BoundedSeries b = law_.steps < 2 * k_ ? power_by_squaring(std::move(series), law_.steps)
                                                : power_by_recurrence(series, law_.steps);
    SeriesValue out;
    out.bare = c.bare;
    out.log = law_.steps * c.log_front + log_factorial(k_) - k_ * std::log(scale);
    out.coefficient = {b.real[k], b.imaginary[k]};
    const double front = std::expm1(law_.steps * std::log1p(c.relative) * (1 + 8 * u)) +
                         u * (8 * std::abs(law_.steps * c.log_front) + 16 +
                              4 * k_ * (1 + std::abs(std::log(scale)) + k_ * 0.1));
    // c_0^T times a series of quotients; or where c_0 is hardly known, all that moduli allow for.
    const double size = c.relative < small_error ? std::abs(out.coefficient) : b.modulus[k];
    out.error = b.error[k] + (size + b.error[k]) * front;
    return out;
}

SeriesValue StepSeries::at(double modulus) const {
    // Neither the coefficients nor their factorials under- or overflow.
    const double scale = std::max(modulus, 0.5 * k_);
    return power(sums(modulus, scale), scale);
}

std::vector<double> StepSeries::log_terms(double s) const {
    const double scale = std::max(s, 0.5 * k_);
    const Sums c = sums(s, scale);
    std::vector<double> out(c.value.size(), infinity);
    if (!(c.relative < small_error)) return out;
    const double per_step = c.bare ? 0 : s / law_.steps, front = c.log_front.real() - per_step,
                 rounding = 16 * u * (1 + std::abs(c.log_front.real()) + per_step);
    out[0] = front + std::log1p(c.relative) + rounding;
    for (std::size_t j = 1; j < out.size(); ++j) {
        const double k = static_cast<double>(j), size = c.value[j].real() + c.error[j];
        if (size < infinity)
            out[j] = out[0] + std::log(std::max(size, 1e-300)) - k * std::log(scale) +
                     16 * u * k * (1 + std::abs(std::log(scale)));
    }
    return out;
}

}  // namespace hockeystick
