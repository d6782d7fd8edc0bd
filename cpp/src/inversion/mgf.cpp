#include "inversion/mgf.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "hockeystick/parallel.hpp"
#include "inversion/decay.hpp"
#include "inversion/loss_sum.hpp"
#include "inversion/strip.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

constexpr double pi = std::numbers::pi;
constexpr double most_nodes = 1 << 15;
constexpr double most_products = 1e8;  // nodes times frequencies: about a tenth of a second

double best_step(const std::vector<AnalyticityStrip>& strips, double tau, double tolerance) {
    double best = 0;
    for (const AnalyticityStrip& strip : strips) best = std::max(best, strip.step(tau, tolerance));
    return best;
}

// The Gaussians P and Q themselves alias by 4 (1 + 2|z|) e^{-2 pi^2/(h^2 growth)}.
double gaussian_step(const MixturePart& part, double modulus, double tolerance) {
    return 2 * pi / std::sqrt(2 * part.growth() * std::log(8 * (1 + 2 * modulus) / tolerance));
}

double gaussian_aliasing(const MixturePart& part, double h, double modulus) {
    return 4 * (1 + 2 * modulus) * std::exp(-2 * pi * pi / (h * h * part.growth()));
}

// How far out the nodes must go for Gaussian tails of mass `tolerance`.
double far(double modulus, double tolerance) {
    return std::sqrt(2 * std::log(16 * (1 + modulus) / tolerance)) + 0.5;
}

// Without the largest losses, of at most this P-mass: that rare, they are not worth a tilt that they would
// dominate.
Window without_largest(const MixturePart& part, double mass) {
    constexpr double width = 0.15625, pitch = 0.5 * width;  // few bits, so that the points are exact
    MixturePart cut = part;
    auto low = static_cast<std::int64_t>(part.p.low() / pitch),
         high = static_cast<std::int64_t>((part.p.high() + 60) / pitch);
    while (high - low > 1) {
        const std::int64_t middle = low + (high - low) / 2;
        cut.window = Window(width, -Window::unbounded, middle);
        (cut.missed(part.p) > mass ? low : high) = middle;
    }
    if (!(static_cast<double>(high) * pitch > part.p.low() + 5)) high = Window::unbounded;
    return Window(width, -Window::unbounded, high);
}

}  // namespace

Mgf::Mgf(const std::vector<GaussianMixtures>& mixtures, double tolerance, double cut_mass)
    : tolerance_(tolerance) {
    double total = 0;
    for (const auto& m : mixtures) total += m.weight;
    for (const auto& m : mixtures) {
        MixturePart part{m.weight / total, {m.p_shift, m.p_weight}, {m.q_shift, m.q_weight}, {}};
        if (cut_mass > 0 && !part.p.plain()) part.window = without_largest(part, cut_mass);
        dropped_ += part.weight * part.missed(part.p);
        parts_.push_back(part);
    }
}

std::vector<MixturePart> Mgf::mixtures() const {
    const bool apart = std::all_of(parts_.begin(), parts_.end(), [](const MixturePart& part) {
        return part.window.whole() && part.p.low() >= 0 && part.q.high() <= 0;
    });
    return apart ? parts_ : std::vector<MixturePart>();
}

bool Mgf::can_cut() const {
    return std::any_of(parts_.begin(), parts_.end(), [](const MixturePart& part) { return !part.p.plain(); });
}

std::unique_ptr<DecayBound> Mgf::decay(double s, double log_mgf) const {
    return std::make_unique<Decay>(parts_, s, log_mgf);
}

double Mgf::rare_shift() const {
    double shift = 0;
    for (const MixturePart& part : parts_)
        if (!part.p.plain()) shift = std::max(shift, part.p.high() - part.q.low());
    return shift;
}

Mgf::Nodes Mgf::make_nodes(const MixturePart& part, double h, double low, double high, double reach) {
    const Centres at_low = centres(part, low), at_high = centres(part, high);
    const double first =
        std::floor((std::min({at_low.low, at_high.low, part.q.low(), part.p.low()}) - reach) / h) * h;
    const double last = std::max({at_low.high, at_high.high, part.q.high(), part.p.high()}) + reach;
    const double count = std::ceil((last - first) / h) + 1;
    if (!(h > 0) || !(count >= 1 && count <= most_nodes)) return {};
    return mixture_nodes(part, h, first, static_cast<std::size_t>(count));
}

double Mgf::omitted(const MixturePart& part, const Nodes& nodes, double s, double modulus, double shift) {
    // Beyond the centres every factor falls at least like e^{-rate x} with its distance `rate` from
    // them, so the rest of the sum is at most the last term over rate h.
    const Centres g = centres(part, s);
    const auto end = [&](std::size_t i, double g_rate, double p_rate, double q_rate) {
        if (!(g_rate > 0 && p_rate > 0 && q_rate > 0)) return infinity;
        const double log_p = nodes.log_p[i] - shift, loss = nodes.loss[i];
        return (std::exp(log_p + s * loss) / g_rate + (1 + modulus) * std::exp(log_p) / p_rate +
                modulus * std::exp(log_p - loss) / q_rate) /
               nodes.h;
    };
    return 1.001 * (end(0, g.low - nodes.first, part.p.low() - nodes.first, part.q.low() - nodes.first) +
                    end(nodes.loss.size() - 1, nodes.last - g.high, nodes.last - part.p.high(),
                        nodes.last - part.q.high()));
}

// The nodes that serve every s in (2^(k-1), 2^k]: which ones a query gets does not depend on those before.
const std::vector<Mgf::Nodes>& Mgf::nodes_up_to(int k) const {
    const auto found = cache_.find(k);
    if (found != cache_.end()) return found->second;
    // Complete or not there: an exception leaves nothing half done.
    std::vector<Nodes> nodes;
    for (const MixturePart& part : parts_) {
        interruption_point();
        const double high = std::ldexp(1.0, k), modulus = std::max(1.0, high);
        const double h = std::min(best_step(AnalyticityStrip::simple(part, high, tolerance_), 0, tolerance_),
                                  gaussian_step(part, modulus, tolerance_));
        nodes.push_back(make_nodes(part, rounded_down(h), 0, high, far(modulus, tolerance_)));
    }
    return cache_.emplace(k, std::move(nodes)).first->second;
}

Cumulant Mgf::at(double s) const {
    // Where outputs with a P-mass below e^{-1800} rule the tilted law, it is of no use.
    for (const MixturePart& part : parts_)
        if (!part.p.plain() && !part.window.to() && s * part.p.high() > 60 &&
            part.p.log(s * part.p.high()).value > 0.5 * s * part.p.high() * part.p.high())
            return {infinity, 0, 0, infinity};
    int power;
    std::frexp(s, &power);
    const std::vector<Nodes>& all_nodes = nodes_up_to(std::max(power, -10));
    std::vector<const LossNodes*> all;
    for (const Nodes& nodes : all_nodes) {
        if (nodes.loss.empty()) return {infinity, 0, 0, infinity};
        all.push_back(&nodes);
    }
    const double shift = peak(all, s), modulus = std::abs(s);
    double value = 0, first = 0, second = 0, error = 0;
    for (std::size_t k = 0; k < parts_.size(); ++k) {
        const MixturePart& part = parts_[k];
        const Nodes& nodes = all_nodes[k];
        const TiltedSums sums = tilted_sums(nodes, shift, s, 0);
        // E[L] = E[psi(-L)] + E[1] - E[e^{-L}]: what is cut is missing from both.
        const double unit = std::exp(-shift), p_cut = part.missed(part.p), q_cut = part.missed(part.q),
                     slope = sums.slope + (q_cut - p_cut) * unit,
                     of_part = sums.value + (s * slope - p_cut * unit);
        double aliasing = infinity;
        for (const AnalyticityStrip& strip : AnalyticityStrip::simple(part, s, tolerance_))
            aliasing = std::min(aliasing, std::exp(strip.log_aliasing(nodes.h, 0)));
        // Steers the contour and bounds what is far out; the sum at full precision is in row().
        const double n = static_cast<double>(nodes.loss.size());
        value += part.weight * of_part;
        first += part.weight * (sums.first + slope);
        second += part.weight * sums.second;
        error += part.weight *
                 (1.01 * aliasing * (1 + std::abs(of_part)) + gaussian_aliasing(part, nodes.h, modulus) +
                  omitted(part, nodes, s, modulus, shift) + n * (1 + modulus) * 1e-290 +
                  u * (2 * sums.exponent + 2 * shift + n + 16) * (sums.size + modulus * (slope + sums.size)));
    }
    return cumulant_of(shift, value, error, first, second);
}

Mgf::Row Mgf::row(double s, double step, std::size_t size, double tolerance) const {
    Row row;
    row.value.assign(size, 0.0);
    row.error.assign(size, 0.0);
    const double end = step * static_cast<double>(size), modulus = std::hypot(s, end);
    std::vector<std::complex<double>> value(size);
    std::vector<Nodes> all;
    std::vector<std::vector<AnalyticityStrip>> widths;
    for (const MixturePart& part : parts_) {
        widths.push_back(AnalyticityStrip::simple(part, s, tolerance));
        double h = best_step(widths.back(), end, tolerance);
        // Dearer strips pay where they save many products.
        if (parts_.size() == 1 && (h < 0.01 || 20 / h * static_cast<double>(size) > 5e5)) {
            const std::vector<AnalyticityStrip> detailed =
                AnalyticityStrip::detailed(part, s, at(s).value, end, tolerance);
            if (best_step(detailed, end, tolerance) > h) widths.back() = detailed;
            h = best_step(widths.back(), end, tolerance);
        }
        h = rounded_down(std::min(h, gaussian_step(part, modulus, tolerance)));
        all.push_back(make_nodes(part, h, s, s, far(modulus, tolerance)));
        const double n = static_cast<double>(all.back().loss.size());
        if (all.back().loss.empty() || n * static_cast<double>(size) > most_products) return {};
    }
    std::vector<const LossNodes*> pointers;
    for (const Nodes& nodes : all) pointers.push_back(&nodes);
    row.shift = peak(pointers, s);
    for (std::size_t part_index = 0; part_index < parts_.size(); ++part_index) {
        const MixturePart& part = parts_[part_index];
        const Nodes& nodes = all[part_index];
        LossSum sum(nodes, row.shift, s, modulus, 1e-2 * tolerance);
        const double unit = std::exp(-row.shift);
        const double p = part.missed(part.p) * unit, q = part.missed(part.q) * unit;
        sum.leave_out(p, q, 2000 * (p + q));
        sum.values(step, value);

        const double edge = omitted(part, nodes, s, modulus, row.shift) +
                            gaussian_aliasing(part, nodes.h, modulus) + tolerance * 1e-2;
        const auto aliasing = [&](double tau) {
            double least = infinity;
            for (const AnalyticityStrip& strip : widths[part_index])
                least = std::min(least, strip.log_aliasing(nodes.h, tau));
            return std::exp(least);
        };
        // M(s) itself, with room for the aliasing it is used to bound.
        const double whole = 1.02 * (1 + std::abs(value[0]));
        for (std::size_t j = 0; j < size; ++j) {
            const double tau = step * static_cast<double>(j);
            row.value[j] += part.weight * value[j];
            row.error[j] += part.weight * (whole * aliasing(tau) + edge + u * sum.round_off(tau, value[j]));
        }
    }
    subtract_one(row);
    return row;
}

}  // namespace hockeystick
