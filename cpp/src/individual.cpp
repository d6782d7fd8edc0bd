#include "hockeystick/individual.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <map>
#include <mutex>
#include <numbers>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "hockeystick/complex.hpp"
#include "hockeystick/contour.hpp"
#include "hockeystick/decay.hpp"
#include "hockeystick/mgf.hpp"
#include "hockeystick/parallel.hpp"
#include "hockeystick/special.hpp"

namespace hockeystick {
namespace {

using Complex = std::complex<double>;
constexpr double u = unit_roundoff;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double pi = std::numbers::pi;

// The tilts that all examples share are the powers of this ratio.
constexpr double tilt_ratio = 1.1;
constexpr int lowest_tilt = -450, highest_tilt = 450;  // 2e-19 to 4e18

// How far a tilt may move the noise, in its standard deviations.
constexpr double most_shift = 1e4;

// Errors of one step's transform that are not round-off; 1e9 steps still leave 1e-11.
constexpr double transform_tolerance = 1e-20;

// Each kind of line leaves more room, a period of `room` (ln 1/delta + 16) / s, and goes through a smaller
// tilt: where rare large losses carry the tilted law, the transform hardly decays.
struct Tier {
    std::size_t size;
    double room;
    int lower;  // notches below the best tilt
    Path path;
};
constexpr Tier tiers[] = {{16, 1.5, 0, Path::short_line},
                          {32, 3, 0, Path::medium_line},
                          {96, 6, 1, Path::medium_line},
                          {512, 12, 3, Path::long_line}};
// A gap this small is good enough not to try the next tier.
constexpr double narrow = 1e-4;
constexpr std::size_t examples_per_task = 64;

double tilt(int index) { return std::pow(tilt_ratio, index); }

// K = ln M of the kinds at one real tilt, rounded up. Kinds that no example has had so far are left out:
// `version` counts the times that there were new ones.
struct RealColumn {
    std::vector<double> upper;
    std::vector<char> made;
    std::size_t version = 0;
};

// One line, for all kinds. For each kind 2 * size entries of `table`: the real parts of K(z_j) - K(s), then
// the imaginary parts of K(z_j).
struct Line {
    double s, step;
    std::size_t size;
    std::vector<double> table;
    std::vector<double> base;       // K(s)
    std::vector<double> error;      // the transform's relative error is at most e^error - 1 at each frequency
    std::vector<double> magnitude;  // the largest |real| + |imaginary part|
    std::vector<char> made;
    std::size_t version = 0;
    std::vector<double> beyond;  // ln of a bound of |M(z)| e^{-K(s)} from the frequency size * step on
};

// What an example sums up along a line.
struct Sums {
    std::vector<double> row;
    double base = 0, error = 0, magnitude = 0, beyond = 0, terms = 0;
};

// 0 times infinity is 0 here: a kind that did not occur does not count.
template <class Count>
double counted(Count count, double value) {
    return count == 0 ? 0.0 : static_cast<double>(count) * value;
}

// The order of the additions is fixed, so that results do not depend on the machine.
template <class Count>
double dot(const Count* counts, const double* values, std::size_t n) {
    double sum[4] = {0, 0, 0, 0};
    std::size_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (std::size_t k = 0; k < 4; ++k) sum[k] += counted(counts[i + k], values[i + k]);
    for (; i < n; ++i) sum[0] += counted(counts[i], values[i]);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

void add_multiple(double factor, const double* from, double* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

}  // namespace

class IndividualProfiles::Impl {
public:
    explicit Impl(std::vector<PairPtr> pairs) {
        for (const auto& pair : pairs) {
            double mu = 0;
            std::optional<Mgf> mgf;
            if (pair) {
                mu = plain_gaussian_mu(*pair);
                const auto mixtures = pair->gaussian_mixtures();
                if (mixtures.empty())
                    throw std::invalid_argument("pairs must be mixtures of Gaussians, or null");
                if (mu == 0) mgf.emplace(mixtures, 1e-14);
            }
            double shift = mu;
            if (mgf)
                for (const auto& part : mgf->parts()) shift = std::max(shift, part.p.high() - part.q.low());
            variance_.push_back(mgf ? mgf->at(0).second : mu * mu);
            kinds_.push_back({shift, mu, std::move(mgf)});
        }
    }

    std::size_t kinds() const noexcept { return kinds_.size(); }

    std::vector<double> log_moments(double s) const {
        std::vector<double> out;
        for (const Kind& kind : kinds_) out.push_back(upper(kind, s));
        return out;
    }

    template <class Count>
    IndividualAnswers epsilon(std::span<const Count> counts, double delta) {
        const std::size_t rows = counts.size() / std::max<std::size_t>(1, kinds());
        const auto tilt_score = [&](double k, double s, std::size_t) {
            const double log_factor = log_chernoff(s), log_delta = std::log(delta);
            return (k + log_factor - log_delta + 16 * u * (k - log_factor - log_delta)) / s;
        };
        const auto log_inverse_delta = [&](std::size_t, double) { return -std::log(delta); };
        const auto solve = [&](const Contour& contour, std::size_t, double chernoff) -> Bracket {
            double start = std::max(0.0, chernoff);
            const Inverted at = newton(contour, std::log(delta), start, 1e-9);
            if (!(at.value > 0)) return {0, infinity};
            if (invert(contour, 0).upper() <= delta) return {0, 0};
            return bracket(contour, at, start, delta);
        };
        const auto fall_back = [](double chernoff) { return std::max(0.0, chernoff); };
        if (delta >= 1 || !(delta > 0)) return limits(counts, rows, delta >= 1 ? 0 : infinity);
        return answer(counts, rows, tilt_score, log_inverse_delta, solve, fall_back);
    }

    template <class Count>
    IndividualAnswers delta(std::span<const Count> counts, std::span<const double> epsilons) {
        const auto tilt_score = [&](double k, double s, std::size_t row) {
            const double log_factor = log_chernoff(s), exponent = s * epsilons[row];
            return k + log_factor - exponent + 16 * u * (k - log_factor + exponent);
        };
        const auto log_inverse_delta = [](std::size_t, double log_delta) {
            return std::max(0.0, -log_delta);
        };
        const auto solve = [&](const Contour& contour, std::size_t row, double) -> Bracket {
            const Inverted at = invert(contour, epsilons[row]);
            return {std::max(0.0, at.lower() - 5e-324), std::min(1.0, at.upper() + 5e-324)};
        };
        const auto fall_back = [](double log_delta) {
            return std::min(1.0, std::exp(log_delta) * (1 + 1e-12));
        };
        return answer(counts, epsilons.size(), tilt_score, log_inverse_delta, solve, fall_back);
    }

private:
    struct Kind {
        double shift;            // the largest distance of P's and Q's centres
        double mu;               // of a plain Gaussian: K = mu^2 s (s+1) / 2
        std::optional<Mgf> mgf;  // of anything else that reveals something
    };

    template <class Count>
    IndividualAnswers limits(std::span<const Count> counts, std::size_t rows, double value) const {
        IndividualAnswers out;
        for (std::size_t row = 0; row < rows; ++row) {
            const bool spent = dot(counts.data() + row * kinds(), variance_.data(), kinds()) > 0;
            out.lower.push_back(spent ? value : 0);
            out.upper.push_back(out.lower.back());
            out.path.push_back(Path::nothing);
        }
        return out;
    }

    // Chernoff's bound at the best of the shared tilts. score(K, s, row): what is least there.
    struct Start {
        int tilt;
        double score;
    };

    template <class Count, class Score, class LogInverse, class Solve, class FallBack>
    IndividualAnswers answer(std::span<const Count> counts, std::size_t rows, Score score,
                             LogInverse log_inverse_delta, Solve solve, FallBack fall_back) {
        IndividualAnswers out{std::vector<double>(rows, 0.0), std::vector<double>(rows, 0.0),
                              std::vector<Path>(rows, Path::nothing)};
        find_used(counts);
        const std::vector<Start> starts = best_tilts(counts, rows, score);
        std::vector<std::uint32_t> open;
        open.reserve(rows);
        for (std::size_t row = 0; row < rows; ++row) {
            if (starts[row].tilt == nowhere) continue;
            open.push_back(static_cast<std::uint32_t>(row));
            out.upper[row] = fall_back(starts[row].score);
            out.path[row] = Path::chernoff;
        }
        for (std::size_t tier = 0; tier < std::size(tiers) && !open.empty(); ++tier) {
            const auto key = [&](std::size_t row) {
                return Key{line_tilt(starts[row].tilt - tiers[tier].lower),
                           period_class(log_inverse_delta(row, starts[row].score)), tier};
            };
            for (const auto row : open) prepare(key(row));
            const std::size_t tasks = (open.size() + examples_per_task - 1) / examples_per_task;
            std::vector<std::vector<std::uint32_t>> still_open(tasks);
            parallel_for(tasks, [&](std::size_t task) {
                Contour contour{};
                Sums sums;
                const std::size_t begin = task * examples_per_task;
                const std::size_t end = std::min(begin + examples_per_task, open.size());
                for (std::size_t i = begin; i < end; ++i) {
                    const std::size_t row = open[i];
                    const Count* const c = counts.data() + row * kinds();
                    const Key where = key(row);
                    Bracket found{0, infinity};
                    bool aliases = false;
                    if (make_contour(lines_.at(where), c, where.tilt, contour, sums, aliases))
                        found = solve(contour, row, fall_back(starts[row].score));
                    if (found.upper <= out.upper[row]) {
                        out.upper[row] = found.upper;
                        out.path[row] = tiers[tier].path;
                    }
                    // Aliases make the result too large; without a bound on them, nothing is known below.
                    if (aliases && found.lower <= out.upper[row])
                        out.lower[row] = std::max(out.lower[row], found.lower);
                    if (!(out.upper[row] - out.lower[row] <= narrow * out.upper[row]))
                        still_open[task].push_back(static_cast<std::uint32_t>(row));
                }
            });
            open.clear();
            for (const auto& part : still_open) open.insert(open.end(), part.begin(), part.end());
        }
        return out;
    }

    static constexpr int nowhere = std::numeric_limits<int>::min();

    // Downhill from the tilt that would be right for a Gaussian; rounds until all columns needed are there.
    template <class Count, class Score>
    std::vector<Start> best_tilts(std::span<const Count> counts, std::size_t rows, Score score) {
        std::vector<Start> out(rows, {nowhere, infinity});
        const std::size_t tasks = (rows + examples_per_task - 1) / examples_per_task;
        const auto each = [&](const auto& body) {
            parallel_for(tasks, [&](std::size_t task) {
                const std::size_t begin = task * examples_per_task;
                const std::size_t end = std::min(begin + examples_per_task, rows);
                for (std::size_t row = begin; row < end; ++row) body(row, counts.data() + row * kinds());
            });
        };
        // That of a Gaussian of the same variance; where losses are rare, one that moves the noise enough.
        const auto guess = [&](const Count* c, double variance) {
            double shift = std::sqrt(variance);
            for (std::size_t i = kinds(); i-- > 0;)
                if (c[i] != 0) shift = std::max(shift, 0.125 * kinds_[i].shift);
            const double index = std::log(5 / shift) / std::log(tilt_ratio);
            return static_cast<int>(std::clamp(std::round(index), 1.0 * lowest_tilt, 1.0 * highest_tilt));
        };
        each([&](std::size_t row, const Count* c) {
            const double variance = dot(c, variance_.data(), kinds());
            if (!(variance > 0)) return;
            const auto at = [&](int t) {
                return score(dot(c, column(t).data(), kinds()) * (1 + 1e-12), tilt(t), row);
            };
            int best = guess(c, variance);
            double value = at(best);
            while (!(value < infinity) && best > lowest_tilt) value = at(--best);
            for (const int direction : {-1, 1}) {
                bool moved = false;
                while (best + direction >= lowest_tilt && best + direction <= highest_tilt) {
                    const double next = at(best + direction);
                    if (!(next < value)) break;
                    best += direction;
                    value = next;
                    moved = true;
                }
                if (moved) break;
            }
            // The score's own rounding.
            out[row] = {best, value + 1e-12 * std::abs(value)};
        });
        return out;
    }

    // Any tilt near the best one will do; so fewer lines are needed.
    static int line_tilt(int index) {
        return std::clamp(3 * static_cast<int>(std::lround(index / 3.0)), lowest_tilt, highest_tilt);
    }

    static int period_class(double log_inverse_delta) {
        return static_cast<int>(std::ceil((log_inverse_delta + 16) / 8));
    }

    const std::vector<double>& column(int index) {
        const std::lock_guard lock(mutex_);
        RealColumn& out = columns_[index];
        if (out.version != version_) {
            const double s = tilt(index);
            out.upper.resize(kinds());
            out.made.resize(kinds());
            for (std::size_t i = 0; i < kinds(); ++i) {
                if (!used_[i] || out.made[i]) continue;
                out.upper[i] = upper(kinds_[i], s);
                out.made[i] = true;
            }
            out.version = version_;
        }
        return out.upper;
    }

    // Takes note of kinds that occur here for the first time.
    template <class Count>
    void find_used(std::span<const Count> counts) {
        used_.resize(kinds());
        const std::size_t rows = counts.size() / kinds();
        const std::vector<char> before = used_;
        for (std::size_t row = 0; row < rows; ++row) {
            const Count* const c = counts.data() + row * kinds();
            for (std::size_t i = 0; i < kinds(); ++i) used_[i] = static_cast<char>(used_[i] | (c[i] != 0));
        }
        version_ += version_ == 0 || used_ != before;
    }

    static double upper(const Kind& kind, double s) {
        // No example with this kind in its history wants such a tilt, and it would take very many nodes.
        if (kind.mgf && s * kind.shift > most_shift) return infinity;
        if (kind.mgf) return kind.mgf->at(s).upper * (1 + 4 * u);
        return 0.5 * kind.mu * kind.mu * s * (s + 1) * (1 + 8 * u);
    }

    struct Key {
        int tilt, period;
        std::size_t tier;
        bool operator<(const Key& other) const {
            return std::tie(tilt, period, tier) < std::tie(other.tilt, other.period, other.tier);
        }
    };

    void prepare(const Key& key) {
        Line& line = lines_[key];
        if (line.version == version_) return;
        if (line.table.empty()) {
            line.s = tilt(key.tilt);
            line.size = tiers[key.tier].size;
            line.step = 2 * pi * line.s / (tiers[key.tier].room * 8 * key.period);
            line.table.assign(kinds() * 2 * line.size, 0.0);
            line.base.assign(kinds(), 0.0);
            line.error = line.magnitude = line.beyond = line.base;
            line.made.resize(kinds());
        }
        parallel_for(kinds(), [&](std::size_t i) {
            if (!used_[i] || line.made[i]) return;
            tabulate(kinds_[i], line, i);
            line.made[i] = true;
        });
        line.version = version_;
    }

    static void tabulate(const Kind& kind, Line& line, std::size_t index) {
        double* const re = line.table.data() + index * 2 * line.size;
        double* const im = re + line.size;
        const double end = line.step * static_cast<double>(line.size);
        double& error = line.error[index];
        if (kind.mgf && line.s * kind.shift > most_shift) {
            error = infinity;
            return;
        }
        if (!kind.mgf) {
            const double half = 0.5 * kind.mu * kind.mu;
            line.base[index] = half * line.s * (line.s + 1);
            for (std::size_t j = 0; j < line.size; ++j) {
                const double tau = line.step * static_cast<double>(j);
                re[j] = -half * tau * tau;
                im[j] = half * tau * (2 * line.s + 1);
            }
            line.beyond[index] = -half * end * end;
        } else {
            const Mgf::Row row = kind.mgf->row(line.s, line.step, line.size, end, transform_tolerance);
            if (row.value.empty()) {
                error = infinity;
                return;
            }
            const double base = log1p(row.value[0]).real() + row.shift;
            line.base[index] = base;
            for (std::size_t j = 0; j < line.size; ++j) {
                const Complex f = row.value[j], k = log1p(f);
                const double size_f = std::abs(f), whole = std::abs(1.0 + f);
                // The logarithm rounds relatively to f, unless 1 + f nearly vanishes.
                const double slack = row.error[j] + u * 8 * (size_f + size_f * size_f) / whole;
                error = std::max(error, whole > slack ? -std::log1p(-slack / whole) : infinity);
                re[j] = k.real() + row.shift - base;
                im[j] = k.imag();
            }
            const double top = upper(kind, line.s);
            // The bound is relative to `top`.
            line.beyond[index] = top - base + Decay(*kind.mgf, line.s, top).log_bound(end);
        }
        for (std::size_t j = 0; j < line.size; ++j)
            line.magnitude[index] = std::max(line.magnitude[index], std::abs(re[j]) + std::abs(im[j]));
    }

    // The example's transform along a line; false where it cannot be had.
    template <class Count>
    bool make_contour(const Line& line, const Count* c, int tilt_index, Contour& contour, Sums& sums,
                      bool& aliases) {
        add_up(line, c, sums);
        // Every sum has relative rounding errors of terms + 4 units in the sum of its absolute values.
        const double rounding = (sums.terms + 8) * u * (sums.magnitude + sums.base);
        const double relative = std::expm1(1.001 * sums.error + 4 * rounding);
        if (!(relative < 0.1)) return false;
        contour.s = line.s;
        contour.scale = sums.base;
        contour.step = line.step;
        contour.integrand.resize(line.size);
        contour.error.resize(line.size);
        for (std::size_t j = 0; j < line.size; ++j) {
            const double tau = line.step * static_cast<double>(j);
            const double re = sums.row[j], im = sums.row[line.size + j];
            const double weight = (j == 0 ? 0.5 : 1.0) * line.step / pi;
            const Complex z(line.s, tau), pole = weight / (z * (z + 1.0));
            const double value = std::exp(re);
            contour.integrand[j] = Complex(value * std::cos(im), value * std::sin(im)) * pole;
            contour.error[j] =
                1.001 * value * std::abs(pole) * (relative + u * (24 + 4 * (std::abs(re) + std::abs(im))));
        }
        const double end = line.step * static_cast<double>(line.size);
        // sum over j >= size of step/pi |integrand|, with 1/|z (z+1)| <= 1/tau^2.
        contour.tail = std::exp(std::min(0.0, sums.beyond * (1 - 1e-9)) + 4 * rounding) / pi *
                       (line.step / (end * end) + 1 / end) * (1 + 1e-9);
        // Aliases: from the left by delta <= 1, from the right by Chernoff's bound at a larger tilt.
        contour.left_shift = line.s;
        contour.log_left = -sums.base * (1 - 1e-12);
        contour.right_shift = line.s;
        contour.log_right = -infinity;
        double best = infinity;
        const double period = 2 * pi / line.step;
        for (const int further : {1, 2, 4, 8}) {
            if (tilt_index + further > highest_tilt) break;
            const double s = tilt(tilt_index + further), shift = s - line.s;
            const double bound = log_chernoff(s) +
                                 dot(c, column(tilt_index + further).data(), kinds()) * (1 + 1e-12) -
                                 sums.base;
            if (!(bound - shift * period < best)) continue;
            best = bound - shift * period;
            contour.right_shift = shift;
            contour.log_right = bound + 1e-12 * (std::abs(bound) + sums.base);
        }
        // Without one, or a useful one, there is no lower bound, and its rounding must not spoil the upper
        // one.
        aliases = best < 0;
        if (!aliases) contour.log_right = -infinity;
        return true;
    }

    template <class Count>
    void add_up(const Line& line, const Count* c, Sums& sums) const {
        const std::size_t width = 2 * line.size;
        sums.row.assign(width, 0.0);
        sums.base = sums.error = sums.magnitude = sums.beyond = sums.terms = 0;
        for (std::size_t i = 0; i < kinds(); ++i) {
            if (c[i] == 0) continue;
            const double count = static_cast<double>(c[i]);
            sums.terms += 1;
            sums.base += count * line.base[i];
            sums.error += count * line.error[i];
            sums.magnitude += count * line.magnitude[i];
            sums.beyond += count * line.beyond[i];
            add_multiple(count, line.table.data() + i * width, sums.row.data(), width);
        }
    }

    std::vector<Kind> kinds_;
    std::vector<double> variance_;
    std::vector<char> used_;
    std::size_t version_ = 0;
    std::mutex mutex_;  // of the columns
    std::map<int, RealColumn> columns_;
    std::map<Key, Line> lines_;
};

IndividualProfiles::IndividualProfiles(std::vector<PairPtr> pairs)
    : impl_(std::make_unique<Impl>(std::move(pairs))) {}
IndividualProfiles::~IndividualProfiles() = default;

std::size_t IndividualProfiles::kinds() const noexcept { return impl_->kinds(); }
std::vector<double> IndividualProfiles::log_moments(double s) const { return impl_->log_moments(s); }

IndividualAnswers IndividualProfiles::epsilon(std::span<const std::uint16_t> counts, double delta) {
    return impl_->epsilon(counts, delta);
}
IndividualAnswers IndividualProfiles::epsilon(std::span<const std::uint32_t> counts, double delta) {
    return impl_->epsilon(counts, delta);
}
IndividualAnswers IndividualProfiles::delta(std::span<const std::uint16_t> counts,
                                            std::span<const double> epsilons) {
    return impl_->delta(counts, epsilons);
}
IndividualAnswers IndividualProfiles::delta(std::span<const std::uint32_t> counts,
                                            std::span<const double> epsilons) {
    return impl_->delta(counts, epsilons);
}

}  // namespace hockeystick
