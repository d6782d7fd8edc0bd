// Very many compositions of the same few pairs on one lattice: spectra made once, a product for each.
//
// For histories whose transform decays too slowly for a short line: few steps, or rarely hit ones. Their
// discretisation costs little, since few losses add up.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "hockeystick/parallel.hpp"
#include "individual/counts.hpp"
#include "inversion/transform.hpp"
#include "lattice/discretise.hpp"
#include "lattice/lattice.hpp"
#include "lattice/shifted_pair.hpp"
#include "lattice/tail_table.hpp"
#include "numerics/complex.hpp"
#include "numerics/constants.hpp"
#include "numerics/fft.hpp"

namespace hockeystick {

class LatticeBank {
public:
    // One lattice, tilted by e^{tilt L}; the window has `size` points, a size that the transform likes.
    // reference: the tilt of Chernoff's bound at the eps in question. tail_mass: P-mass in the right tail
    // that does not matter. from_below: no kind has losses below its offset, and the window begins there.
    // few: at most few_steps steps make a history.
    struct Shape {
        Bound bound;
        double tilt, reference, step;
        std::size_t size;
        double tail_mass;
        bool from_below, few;
    };
    // Speed: what `few` means.
    static constexpr std::uint64_t few_steps = 32;

    LatticeBank(const Shape& shape, std::size_t kinds) : shape_(shape), entries_(kinds) {}

    bool made(std::size_t kind) const { return entries_[kind].made; }
    // Different kinds may be made by several threads at once. offset: a loss that had better lie on a
    // lattice point. at: K and its derivatives at the tilt.
    void make(std::size_t kind, const Pair& pair, double offset, const Cumulant& at) {
        Entry& entry = entries_[kind];
        entry.made = true;
        entry.failed = true;
        if (!std::isfinite(at.value) || !std::isfinite(at.first) || !std::isfinite(at.second)) return;
        const std::optional<Lattice> lattice = discretised(ShiftedPair(pair, offset), offset, at);
        if (!lattice || !std::isfinite(lattice->log_scale) || !(lattice->infinity_mass < 1) ||
            !std::isfinite(lattice->beyond))
            return;
        entry.failed = false;
        entry.terms = *lattice;
        entry.terms.offset += offset;
        add_moments(*lattice, at, entry);

        const RealFft fft(shape_.size);
        const std::size_t half = fft.spectrum_size();
        std::vector<double> folded(shape_.size);
        std::vector<Complex> spectrum(half);
        entry.error = transform(*lattice, fft, folded, spectrum);
        entry.spectrum.resize(2 * half);
        for (std::size_t j = 0; j < half; ++j) {
            // A logarithm of nothing would be infinite: what is that small is negligible, and below the
            // error.
            Complex z = spectrum[j];
            if (!shape_.few) z = std::abs(z) > 1e-30 ? std::log(z) : -70;
            entry.spectrum[j] = z.real();
            entry.spectrum[half + j] = z.imag();
        }
    }

    // About how much rounding to the lattice adds to the variance of the tilted loss.
    double added_variance(const History& history) const {
        double sum = 0;
        for (const auto& [kind, count] : history)
            sum +=
                entries_[kind].failed ? infinity : static_cast<double>(count) * entries_[kind].added_variance;
        return sum;
    }
    // The history's profile, above or below the true one; empty where some kind does not fit the lattice, or
    // the history the window: `too_short` (docs/individual/individual.md, "Individual ε of DP-SGD").
    std::optional<TailTable> compose(const History& history, bool& too_short) const {
        too_short = false;
        StepSums sums;
        double steps = 0, spectral = 0, log_moment[further_tilts] = {};
        for (const auto& [kind, count] : history) {
            const Entry& entry = entries_[kind];
            if (entry.failed) return {};
            const double k = static_cast<double>(count);
            sums.add(entry.terms, count);
            for (std::size_t i = 0; i < further_tilts; ++i) log_moment[i] += k * entry.log_moment[i];
            spectral += k * entry.error;
            steps += k;
        }
        Composed out = sums.composed(shape_.bound, shape_.step, shape_.tilt);
        out.beyond *= 1 + 1e-12;
        if (!place(log_moment, out, too_short)) return {};
        // A spectrum's modulus is at most 1, so factors' errors add up. A factor's product rounds by 4 units;
        // in logarithms its phase, at most pi, by a few units times the number of terms.
        const double terms = static_cast<double>(history.size());
        const double rounding = shape_.few ? 8 * u * steps : 16 * u * (terms + 8) * (steps + 1);
        const double error = std::expm1(1.01 * (spectral + rounding));
        if (!(error < 0.1)) return {};
        const RealFft fft(shape_.size);
        read_masses(fft, product(history), out.first, out);
        // Left out below e^-60: far below the error.
        out.round_off = (1 + error) * (error + 1.01 * fft_error_bound(shape_.size)) + 1e-25;
        return TailTable(std::move(out));
    }
    // About where P(L > x) falls to e^log_mass, from a middle and a width of the loss.
    static double reach(const Pair& pair, double middle, double width, double log_mass) {
        return tail_end(middle, width, 1, pair.max_loss(),
                        [&](double x) { return !(log_tail(pair, x) > log_mass); });
    }

    std::size_t bytes() const {
        std::size_t sum = 0;
        for (const Entry& entry : entries_) sum += entry.spectrum.size() * sizeof(double);
        return sum;
    }

private:
    // Speed: tilted mass that may be moved to the ends of a step's lattice: e^-this.
    static constexpr double depth = 38;
    // Speed: a step's lattice may be longer than the window, but not by much.
    static constexpr double most_windows = 32;

    // The first point of a search by doubling, then halving, from `middle` on in this direction where
    // `rare(x)` holds.
    template <class Rare>
    static double tail_end(double middle, double width, double direction, double limit, Rare rare) {
        double near = middle, far = middle;
        for (int i = 0; i < 80; ++i) {
            far = middle + direction * std::ldexp(width, i);
            if (direction * (limit - far) <= 0) return limit;
            if (rare(far)) break;
            near = far;
        }
        for (int i = 0; i < 6; ++i) {
            const double half = 0.5 * (near + far);
            (rare(half) ? far : near) = half;
        }
        return far;
    }

    static double log_tail(const Pair& pair, double x) {
        const Tangent t = pair.above(x);
        return std::log(t.value + t.slope) + t.exponent;
    }

    // Speed: tilts that are tried beside the best one known.
    static constexpr std::size_t further_tilts = 6;
    struct Entry {
        bool made = false, failed = false;
        LatticeTerms terms;
        double error = 0, added_variance = 0;
        double log_moment[further_tilts] = {};  // of the tilted masses, at further tilts
        // The masses' transform at the frequencies 0, ..., size/2, or its logarithm: first all real parts.
        std::vector<double> spectrum;
    };
    // Larger tilts for Chernoff's bound, less the lattice's own.
    double further(std::size_t i) const {
        constexpr double share[further_tilts] = {0.3, 0.55, 0.8, 1.05, 1.5, 2.5};
        return shape_.reference * share[i] - shape_.tilt;
    }
    // On all lattice points between the ends of what counts; empty where those are too many.
    std::optional<Lattice> discretised(const Pair& shifted, double offset, const Cumulant& at) const {
        const double s = shape_.tilt, h = shape_.step;
        const double log_moment = at.value - s * offset,
                     log_rare = std::log(shape_.tail_mass) - (shape_.few ? 4 : 14);
        const double middle = at.first - offset, width = std::max(std::sqrt(std::max(at.second, 0.0)), h);
        const double high = tail_end(middle, width, 1, shifted.max_loss(), [&](double x) {
            const double log_p = log_tail(shifted, x);
            return !(log_p > log_rare) || log_p + s * x < log_moment - depth;
        });
        const double low =
            shape_.from_below ? 0.0 : tail_end(middle, width, -1, (log_moment - depth) / s, [&](double x) {
                const Tangent t = shifted.below(x);
                return !(std::log(t.slope - t.value) + t.exponent + s * x > log_moment - depth);
            });
        const double first = std::floor(low / h), last = std::max(std::ceil(high / h), first + 1);
        if (!(last - first < most_windows * static_cast<double>(shape_.size)) ||
            !(std::abs(first) + std::abs(last) < 1e15))
            return {};
        return discretise(shifted,
                          all_points(static_cast<std::int64_t>(first), static_cast<std::int64_t>(last)), h, s,
                          shape_.bound, shape_.bound == Bound::upper ? std::exp(log_rare) : 0);
    }
    void add_moments(const Lattice& lattice, const Cumulant& at, Entry& entry) const {
        const double h = shape_.step, largest = static_cast<double>(lattice.index.back());
        double mean = 0, second = 0, moments[further_tilts] = {};
        for (std::size_t i = 0; i < lattice.mass.size(); ++i) {
            const double m = lattice.mass[i], x = static_cast<double>(lattice.index[i]);
            mean += m * x;
            second += m * x * x;
            if (m > 0)
                for (std::size_t k = 0; k < further_tilts; ++k)
                    moments[k] += m * std::exp(further(k) * h * (x - largest));
        }
        for (std::size_t k = 0; k < further_tilts; ++k)
            entry.log_moment[k] = std::log(moments[k]) + further(k) * h * largest;
        entry.added_variance = std::max(0.0, (second - mean * mean) * h * h - at.second);
    }
    // Places the window: it ends where hardly any tilted mass is left; what lies beyond is folded into it.
    // False where that is too much.
    bool place(const double (&log_moment)[further_tilts], Composed& out, bool& too_short) const {
        const double s = shape_.tilt, h = shape_.step, n = static_cast<double>(shape_.size);
        double top = infinity;
        for (std::size_t i = 0; i < further_tilts; ++i)
            if (further(i) > 0) top = std::min(top, (log_moment[i] + 32) / further(i));
        const double last = shape_.from_below ? n - 1 : std::ceil(top / h);
        if (!(std::abs(last) + n < 1e15)) return false;
        out.first = static_cast<std::int64_t>(last - n) + 1;
        const double bottom = static_cast<double>(out.first) * h, end = last * h;
        // Chernoff's bound on the tilted mass beyond, and on P's; on the left, by E_P[1] = 1.
        double log_right = 0, log_beyond_end = 0;
        for (std::size_t i = 0; i < further_tilts; ++i) {
            if (!(further(i) > 0)) continue;
            const double slack = 1e-9 * (1 + std::abs(log_moment[i]) + std::abs(out.log_scale));
            const double log_tilted = log_moment[i] - further(i) * end + slack;
            log_right = std::min(log_right, log_tilted);
            log_beyond_end = std::min(log_beyond_end, log_tilted + out.log_scale - s * end);
        }
        // Folded to the window's beginning, it would count e^{s end} times.
        too_short = log_beyond_end + (shape_.from_below ? s * end : 0) > std::log(shape_.tail_mass) + 2;
        const double log_left = s * bottom - out.log_scale;
        if (!shape_.from_below)
            out.outside_left = std::exp(std::min(0.0, log_left + 1e-9 * (1 + std::abs(out.log_scale))));
        // An upper bound only misses P's mass beyond: wherever that is folded to, it adds.
        if (shape_.bound == Bound::upper)
            out.infinity_mass = std::min(1.0, out.infinity_mass + std::exp(log_beyond_end) * (1 + 1e-9));
        else
            out.outside_right = std::exp(log_right);
        return !too_short;
    }
    std::vector<Complex> product(const History& history) const {
        const std::size_t half = shape_.size / 2 + 1;
        std::vector<double> out(2 * half, 0.0);
        double* const re = out.data();
        double* const im = re + half;
        if (shape_.few) std::fill(re, im, 1.0);
        for (const auto& [kind, count] : history) {
            interruption_point();
            const double* const a = entries_[kind].spectrum.data();
            const double* const b = a + half;
            if (shape_.few) {
                for (std::uint64_t k = 0; k < count; ++k)
                    for (std::size_t j = 0; j < half; ++j) {
                        const double x = re[j] * a[j] - im[j] * b[j];
                        im[j] = re[j] * b[j] + im[j] * a[j];
                        re[j] = x;
                    }
            } else {
                const double k = static_cast<double>(count);
                for (std::size_t j = 0; j < 2 * half; ++j) out[j] += k * a[j];
            }
        }
        std::vector<Complex> product(half);
        for (std::size_t j = 0; j < half; ++j) {
            if (shape_.few)
                product[j] = {re[j], im[j]};
            else if (re[j] > -60)
                product[j] = std::polar(std::exp(re[j]), im[j]);
        }
        return product;
    }

    Shape shape_;
    std::vector<Entry> entries_;
};

}  // namespace hockeystick
