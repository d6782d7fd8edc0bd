// Losses with atoms, whose transform hardly falls, by that of a sum with a pinch of noise more
// (docs/accounting/bounds.md, "A pinch of noise").
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "inversion/direct_inversion.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// All of these are for speed. The gap that is aimed at, and at first, as next to no sums mean none; how many
// terms the sums at all frequencies take together, at first and where their gap is not enough, and how many
// more a frequency is worth; how many frequencies there are, and at first; how often the noise is changed,
// and how much at most; by how many nats more than is wanted the transform falls.
constexpr double gap_with_noise = 1e-9, first_gap = 1e-6, few_terms = 1.5e7, most_terms = 6e7,
                 beside_terms = 30, least_frequencies = 4096, most_frequencies = 1 << 20,
                 few_frequencies = 1 << 18;
constexpr int most_noises = 4;
constexpr double least_change = 0.03, spare_nats = 4;
// Of a curve, how small a delta may be to have a say in the noise.
constexpr double least_log_delta = -50;

}  // namespace

double DirectInversion::atoms() const {
    double sum = 0;
    for (const Kind& kind : kinds_) sum += kind.transform->atoms();
    return sum;
}

bool DirectInversion::noise_helps() const {
    return atoms() > 0 && !(lattice_.spacing > 0) && !laplace_ && (!has_layers_ || company_);
}

DirectInversion DirectInversion::with_noise(double mu) const {
    DirectInversion out = *this;
    out.pinch_ = mu * mu;
    out.variance_ += out.pinch_;
    out.log_atom_ = -infinity;
    return out;
}

// So much noise that bounds are as close as wanted, or more where that takes too many frequencies. The first
// guess takes the density for s (s + 1) delta; the answer says better.
template <class Ask>
std::optional<Answer> DirectInversion::with_less_noise(const std::optional<SaddlePoint>& saddle,
                                                       double log_delta, double enough, std::size_t limit,
                                                       Ask ask) const {
    if (!saddle || !noise_helps()) return {};
    SaddlePoint moved = *saddle;
    const auto line = line_through(moved, saddle->epsilon, log_delta, log_delta + std::log(wanted_share_), 0,
                                   [&](double s) { return cumulant(s, moved.s); });
    if (!line) return {};
    // Beyond the last frequency the noise leaves no more than is wanted.
    const double reach = std::sqrt(2 * (spare_nats - std::log(wanted_share_ * line->share)));
    const auto frequencies = [&](double terms) {
        return std::clamp(std::floor(terms / (atoms() + beside_terms)), least_frequencies,
                          std::clamp(static_cast<double>(limit), least_frequencies, most_frequencies));
    };
    double mu = std::sqrt(first_gap / (saddle->s * (1 + saddle->s))),
           most = std::min(frequencies(few_terms), few_frequencies);
    std::optional<Answer> best;
    for (int round = 0; round < most_noises; ++round) {
        const double least = reach / (line->step * most);
        mu = std::max(mu, least);
        const auto answer = ask(with_noise(mu), Budget{.frequencies = static_cast<std::size_t>(most)});
        const double gap = relative_gap(answer);
        if (gap < relative_gap(best)) best = answer;
        if (!(gap > gap_with_noise)) break;
        if (mu == least) {
            if (!(gap > enough) || !(most < frequencies(most_terms))) break;
            most = frequencies(most_terms);
        }
        mu *=
            std::isfinite(gap) ? std::max(0.7 * std::sqrt(gap_with_noise / gap), least_change) : least_change;
    }
    return best;
}

std::optional<Answer> DirectInversion::delta_with_noise(double epsilon, double enough,
                                                        std::size_t most) const {
    const auto saddle = saddle_for(epsilon, 0.1);
    return with_less_noise(saddle, saddle ? std::min(saddle->log_delta, 0.0) : 0, enough, most,
                           [&](const DirectInversion& noisy, const Budget& budget) {
                               return noisy.delta_bounds(epsilon, budget);
                           });
}

std::optional<Answer> DirectInversion::epsilon_with_noise(double delta, double enough,
                                                          std::size_t most) const {
    const double finite = delta - infinite(+1);
    if (!(finite > 0)) return {};
    const double target = std::log(finite);
    return with_less_noise(saddle_of(target), target, enough, most,
                           [&](const DirectInversion& noisy, const Budget& budget) {
                               return noisy.epsilon_bounds(delta, budget);
                           });
}

// One noise serves all points: the least that one of them asks for.
std::vector<std::optional<Answer>> DirectInversion::curve_with_noise(std::span<const double> epsilons,
                                                                     double gap, std::size_t most) const {
    std::optional<SaddlePoint> last;
    for (std::size_t i = epsilons.size(); i-- > 0 && !(last && last->log_delta > least_log_delta);)
        last = saddle_for(epsilons[i], 0.3);
    if (!last) return std::vector<std::optional<Answer>>(epsilons.size());
    const double frequencies = std::min(static_cast<double>(most),
                                        std::max(least_frequencies, few_terms / (atoms() + beside_terms)));
    return with_noise(std::sqrt(gap / (last->s * (1 + last->s))))
        .delta_curve(epsilons, {.frequencies = static_cast<std::size_t>(frequencies)}, {gap});
}

// The frequencies left out of the density of the sum, by the Gaussian steps' decay.
double DirectInversion::density_tail(const Contour& contour, std::size_t size) const {
    const double tau = contour.step * static_cast<double>(size), fall = variance_ * (1 - 8 * u);
    return pinch_ > 0 ? 1.01 / pi * std::exp(-0.5 * fall * tau * tau) * (contour.step + 1 / (fall * tau)) : 0;
}

}  // namespace hockeystick
