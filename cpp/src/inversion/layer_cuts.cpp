#include "inversion/layer_cuts.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// All of these are for speed.
constexpr double least_ratio = 1.05;  // of neighbouring cuts
constexpr std::size_t most_close_cuts = 24;
constexpr double deepest = 6e-6;  // the lowest cut, beside those near epsilon
// How far apart cuts are, and how wide windows at least: few digits take fewer layers, and smoother ones, the
// more so where several factors fall together.
struct Spacing {
    double ratio, width;
};
constexpr Spacing coarse{10, 0.25}, of_few_steps{7, 0.2}, fine{3, 0.12};
constexpr double few_steps = 8;
// By so many nats a layer's density may lie below its chord: a tilt sees the chord.
constexpr double largest_gap = 3;
// The outputs that are looked at.
constexpr double furthest_output = 1e6;

// A width with few bits, so that the points of windows are exact.
double window_width(double width) {
    int exponent;
    const double mantissa = std::frexp(width, &exponent);
    return std::ldexp(std::floor(mantissa * 64) / 64, exponent);
}

// An output with a loss above this one.
double output_above(const MixturePart& part, double loss, double high) {
    while (high < furthest_output && loss_at(part, high) < loss) high += high;
    return high;
}

double output_of(const MixturePart& part, double loss) {
    return output_between(part, loss, least_output(part), output_above(part, loss, part.p.high() + 1), 1e-6);
}

// What ln P falls by with the loss, at output t: the tilt that makes such losses weigh.
double falling(const MixturePart& part, double t) {
    const double p_mean = part.p.mean(t, part.p.log(t).value), q_mean = part.q.mean(t, part.q.log(t).value);
    return (t - p_mean) / (p_mean - q_mean);
}

// Of a cut and the next one below it.
double ratio_below(const std::vector<LayerPart>& parts, double cut, double ratio) {
    for (const LayerPart& part : parts) {
        if (!part.cut) continue;
        const MixturePart& mixture = part.mixture;
        const auto slope = [&](double loss) { return falling(mixture, output_of(mixture, loss)); };
        const double at_cut = slope(cut);
        while (ratio > least_ratio) {
            const double below = cut / ratio;
            if (!((slope(below) - at_cut) * (cut - below) > 8 * largest_gap)) break;
            ratio = 1 + 0.7 * (ratio - 1);
        }
    }
    return std::max(ratio, least_ratio);
}

// The tilt about epsilon of all parts together, which is that of the part with most of the losses there.
double common_tilt(const std::vector<LayerPart>& parts, const std::vector<double>& counts, double epsilon) {
    double tilt = 0, log_most = -infinity;
    for (const LayerPart& part : parts) {
        if (!part.cut) continue;
        const MixturePart& mixture = part.mixture;
        const double t = output_of(mixture, epsilon), log_p = mixture.p.log(t).value,
                     slope = mixture.p.mean(t, log_p) - mixture.q.mean(t, mixture.q.log(t).value),
                     log_density = std::log(counts[part.kind] * mixture.weight / slope) + log_p - 0.5 * t * t;
        if (log_density > log_most) tilt = falling(mixture, t);
        log_most = std::max(log_most, log_density);
    }
    return tilt;
}

// Windows are to be narrow beside what the loss moves by, and wide to be smooth. common: the tilt that they
// are to bear, if the part's own is smaller.
double width_for(const LayerPart& part, double epsilon, double least, double common) {
    const MixturePart& mixture = part.mixture;
    double width = std::min(0.3, std::max(least, epsilon / 20) / (mixture.p.high() - mixture.q.low()));
    if (!part.cut) return width;
    // Beyond its top x, at x + d, a window falls by d^2/2 width^2, and is to fall thrice as much as the
    // tilted density may rise there.
    const double x = output_of(mixture, epsilon), tilt = std::max(common, falling(mixture, x)),
                 loss = loss_at(mixture, x);
    for (double d = 1; d < 2000; d *= 1.5) {
        const double rise = tilt * (loss_at(mixture, x + d) - loss) - x * d - 0.5 * d * d;
        if (rise > 0) width = std::min(width, d / std::sqrt(6 * rise));
    }
    return width;
}

// The output beyond which a window of this width leaves P-mass of about e^{log_mass}.
double end_for(const MixtureRatio& p, double width, double log_mass) {
    // Pr[N(0,1) > z] <= e^{-z^2/2}/2.
    double end = 0;
    for (std::size_t i = 0; i < p.shifts().size(); ++i) {
        const double mass = log_mass - std::log(p.weights()[i] * static_cast<double>(p.shifts().size()));
        end = std::max(end, p.shifts()[i] + std::sqrt(2 * std::max(-mass, 0.5) * (1 + width * width)));
    }
    return end;
}

std::vector<std::int64_t> edges_of(const LayerCuts::Part& windows, const MixturePart& mixture,
                                   const std::vector<double>& losses) {
    const double pitch = 0.5 * windows.width;
    std::vector<std::int64_t> edges(losses.size());
    // Other kinds may have far larger losses: of this one hardly anything lies beyond its end.
    const auto last = static_cast<std::int64_t>(std::ceil(windows.end / pitch)) + 1;
    double high = output_above(mixture, losses.back(), windows.end + 1);
    for (std::size_t k = losses.size(); k-- > 0;) {
        high = output_between(mixture, losses[k], least_output(mixture), high, 0.5 * pitch);
        edges[k] = std::min(static_cast<std::int64_t>(std::ceil(high / pitch)), last);
    }
    return edges;
}

}  // namespace

double loss_at(const MixturePart& part, double t) { return part.p.log(t).value - part.q.log(t).value; }

double output_between(const MixturePart& part, double loss, double low, double high, double precision) {
    for (int i = 0; i < 60 && high - low > precision; ++i) {
        const double t = 0.5 * (low + high);
        (loss_at(part, t) < loss ? low : high) = t;
    }
    return high;
}

double least_output(const MixturePart& part) { return part.q.low() - 40; }

LayerCuts choose_cuts(const std::vector<LayerPart>& parts, const std::vector<double>& counts, double log_mass,
                      double epsilon, double sharpness, double tolerance) {
    LayerCuts out;
    const double steps = std::accumulate(counts.begin(), counts.end(), 0.0);
    const Spacing spacing = tolerance <= few_digits ? fine : steps < few_steps ? of_few_steps : coarse;
    const double common = common_tilt(parts, counts, epsilon);
    double top = 0;
    for (const LayerPart& part : parts) {
        const MixturePart& mixture = part.mixture;
        LayerCuts::Part& windows = out.parts.emplace_back(LayerCuts::Part{
            window_width(sharpness * width_for(part, epsilon, spacing.width, common)), mixture.p.high(), {}});
        if (!part.cut) continue;
        const double each =
            log_mass - std::log(counts[part.kind] * static_cast<double>(parts.size()) * mixture.weight);
        windows.end = end_for(mixture.p, windows.width, each);
        top = std::max(top, loss_at(mixture, windows.end));
    }
    if (!(top > 0)) return out;
    // From above: epsilon, and a little below it, is where one step makes up the loss, and its density
    // counts.
    std::vector<double>& cuts = out.loss;
    cuts.push_back(top);
    while (cuts.size() < most_close_cuts && cuts.back() > 0.4 * epsilon)
        cuts.push_back(cuts.back() / ratio_below(parts, cuts.back(), spacing.ratio));
    const double least = deepest * cuts.back();
    while (cuts.back() > least) cuts.push_back(cuts.back() / spacing.ratio);
    std::reverse(cuts.begin(), cuts.end());
    for (std::size_t i = 0; i < parts.size(); ++i)
        if (parts[i].cut) out.parts[i].edge = edges_of(out.parts[i], parts[i].mixture, cuts);
    return out;
}

}  // namespace hockeystick
