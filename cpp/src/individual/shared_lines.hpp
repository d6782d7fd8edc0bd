// Lines Re z = s that all examples share, with the transforms' logarithms on them; see individual.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <map>
#include <vector>

#include "hockeystick/individual.hpp"
#include "individual/step_kinds.hpp"
#include "inversion/contour.hpp"
#include "inversion/decay.hpp"
#include "numerics/complex.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {

// Speed: each tier of lines leaves more room, a period of `room` (ln 1/delta + 16) / s, and goes through a
// smaller tilt: where rare large losses carry the tilted law, the transform hardly decays.
struct Tier {
    std::size_t size;
    double room;
    int lower;  // notches below the best tilt
    Path path;
};
inline constexpr Tier tiers[] = {{16, 1.5, 0, Path::short_line},
                                 {32, 3, 0, Path::medium_line},
                                 {96, 6, 1, Path::medium_line},
                                 {512, 12, 3, Path::long_line}};

// Any tilt near the best one will do; so fewer lines are needed.
inline int line_tilt(int index) {
    return std::clamp(3 * static_cast<int>(std::lround(index / 3.0)), lowest_tilt, highest_tilt);
}
// Examples whose ln 1/delta is about the same share their period.
inline int period_class(double log_inverse_delta) {
    return static_cast<int>(std::ceil((log_inverse_delta + 16) / 8));
}

class SharedLines {
public:
    explicit SharedLines(StepKinds& kinds) : kinds_(kinds) {}

    struct Key {
        int tilt, period;
        std::size_t tier;
        auto operator<=>(const Key&) const = default;
    };
    static Key key(int best_tilt, double log_inverse_delta, std::size_t tier) {
        return {line_tilt(best_tilt - tiers[tier].lower), period_class(log_inverse_delta), tier};
    }
    // Tabulates the kinds that are used on this line; not for several threads at once.
    void prepare(const Key& key, const std::vector<char>& used) {
        Line& line = lines_[key];
        if (line.table.empty()) {
            line.s = shared_tilt(key.tilt);
            line.size = tiers[key.tier].size;
            line.step = 2 * pi * line.s / (tiers[key.tier].room * 8 * key.period);
            line.table.assign(kinds_.size() * 2 * line.size, 0.0);
            line.base.assign(kinds_.size(), 0.0);
            line.error = line.magnitude = line.beyond = line.base;
            line.made.resize(kinds_.size());
        }
        parallel_for(kinds_.size(), [&](std::size_t i) {
            if (!used[i] || line.made[i]) return;
            tabulate(kinds_[i], line, i);
            line.made[i] = true;
        });
    }
    // The history's transform on a line that is prepared; false where it cannot be had. aliases: whether
    // there is a bound on those from the right (docs/individual/individual.md, "Individual ε of DP-SGD").
    bool make_contour(const Key& key, const History& history, Contour& contour, bool& aliases) const {
        const Line& line = lines_.at(key);
        const Sums sums = add_up(line, history);
        // Every sum has relative rounding errors of terms + 4 units in the sum of its absolute values.
        const double rounding = (static_cast<double>(history.size()) + 8) * u * (sums.magnitude + sums.base);
        const double relative = std::expm1(1.001 * sums.error + 4 * rounding);
        if (!(relative < 0.1)) return false;
        contour.s = line.s;
        contour.scale = sums.base;
        contour.step = line.step;
        contour.integrand.resize(line.size);
        contour.error.resize(line.size);
        for (std::size_t j = 0; j < line.size; ++j) {
            const double re = sums.row[j], im = sums.row[line.size + j], value = std::exp(re);
            const Complex pole = contour.pole(j);
            contour.integrand[j] = Complex(value * std::cos(im), value * std::sin(im)) * pole;
            contour.error[j] =
                1.001 * value * std::abs(pole) * (relative + u * (24 + 4 * (std::abs(re) + std::abs(im))));
        }
        const double end = line.step * static_cast<double>(line.size);
        // sum over j >= size of step/pi |integrand|, with 1/|z (z+1)| <= 1/tau^2.
        contour.tail = std::exp(std::min(0.0, sums.beyond * (1 - 1e-9)) + 4 * rounding) / pi *
                       (line.step / (end * end) + 1 / end) * (1 + 1e-9);
        aliases = add_aliases(key, history, contour);
        return true;
    }

private:
    // Speed: errors of one step's transform that are not round-off; 1e9 steps still leave 1e-11.
    static constexpr double transform_tolerance = 1e-20;

    // For each kind 2 * size entries of `table`: the real parts of K(z_j) - K(s), then the imaginary parts of
    // K(z_j).
    struct Line {
        double s, step;
        std::size_t size;
        std::vector<double> table;
        std::vector<double> base;       // K(s)
        std::vector<double> error;      // the transform's relative error is at most e^error - 1 everywhere
        std::vector<double> magnitude;  // the largest |real| + |imaginary part|
        std::vector<double> beyond;     // ln of a bound of |M(z)| e^{-K(s)} from frequency size * step on
        std::vector<char> made;
    };
    // The same of a history.
    struct Sums {
        std::vector<double> row;
        double base = 0, error = 0, magnitude = 0, beyond = 0;
    };
    static void tabulate(const StepKinds::Kind& kind, Line& line, std::size_t index) {
        double* const re = line.table.data() + index * 2 * line.size;
        double* const im = re + line.size;
        if (kind.mgf) {
            if (!tabulate_mixture(kind, line, index)) {
                line.error[index] = infinity;
                return;
            }
        } else {
            const double half = 0.5 * kind.mu * kind.mu, end = line.step * static_cast<double>(line.size);
            line.base[index] = half * line.s * (line.s + 1);
            for (std::size_t j = 0; j < line.size; ++j) {
                const double tau = line.step * static_cast<double>(j);
                re[j] = -half * tau * tau;
                im[j] = half * tau * (2 * line.s + 1);
            }
            line.beyond[index] = -half * end * end;
        }
        for (std::size_t j = 0; j < line.size; ++j)
            line.magnitude[index] = std::max(line.magnitude[index], std::abs(re[j]) + std::abs(im[j]));
    }
    static bool tabulate_mixture(const StepKinds::Kind& kind, Line& line, std::size_t index) {
        double* const re = line.table.data() + index * 2 * line.size;
        double* const im = re + line.size;
        if (kind.too_large(line.s)) return false;
        const Mgf::Row row = kind.mgf->row(line.s, line.step, line.size, transform_tolerance);
        if (row.value.empty()) return false;
        const double base = log1p(row.value[0]).real() + row.shift;
        line.base[index] = base;
        for (std::size_t j = 0; j < line.size; ++j) {
            const Complex f = row.value[j], k = log1p(f);
            const double size_f = std::abs(f), whole = std::abs(1.0 + f);
            // The logarithm rounds relatively to f, unless 1 + f nearly vanishes.
            const double slack = row.error[j] + u * 8 * (size_f + size_f * size_f) / whole;
            line.error[index] =
                std::max(line.error[index], whole > slack ? -std::log1p(-slack / whole) : infinity);
            re[j] = k.real() + row.shift - base;
            im[j] = k.imag();
        }
        const double top = kind.upper(line.s), end = line.step * static_cast<double>(line.size);
        // The bound is relative to `top`.
        line.beyond[index] = top - base + Decay(kind.mgf->parts(), line.s, top).log_bound(end);
        return true;
    }
    static Sums add_up(const Line& line, const History& history) {
        const std::size_t width = 2 * line.size;
        Sums sums;
        sums.row.assign(width, 0.0);
        for (const auto& [kind, times] : history) {
            const double count = static_cast<double>(times);
            sums.base += count * line.base[kind];
            sums.error += count * line.error[kind];
            sums.magnitude += count * line.magnitude[kind];
            sums.beyond += count * line.beyond[kind];
            const double* const from = line.table.data() + kind * width;
            double* const to = sums.row.data();
            for (std::size_t j = 0; j < width; ++j) to[j] += count * from[j];
        }
        return sums;
    }
    // From the left by delta <= 1, from the right by Chernoff's bound at a larger tilt.
    bool add_aliases(const Key& key, const History& history, Contour& contour) const {
        contour.left_shift = contour.right_shift = contour.s;
        contour.log_left = -contour.scale * (1 - 1e-12);
        contour.log_right = -infinity;
        double best = infinity;
        const double period = 2 * pi / contour.step;
        for (const int further : {1, 2, 4, 8}) {
            if (key.tilt + further > highest_tilt) break;
            const double s = shared_tilt(key.tilt + further), shift = s - contour.s;
            const double bound =
                log_chernoff(s) + kinds_.log_moment(history, key.tilt + further) - contour.scale;
            if (!(bound - shift * period < best)) continue;
            best = bound - shift * period;
            contour.right_shift = shift;
            contour.log_right = bound + 1e-12 * (std::abs(bound) + contour.scale);
        }
        // Without one, or a useful one, there is no lower bound, and its rounding must not spoil the upper
        // one.
        if (!(best < 0)) contour.log_right = -infinity;
        return best < 0;
    }

    StepKinds& kinds_;
    std::map<Key, Line> lines_;
};

}  // namespace hockeystick
