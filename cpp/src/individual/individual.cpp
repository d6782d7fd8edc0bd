#include "hockeystick/individual.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <numbers>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "hockeystick/parallel.hpp"
#include "individual/lattice_bank.hpp"
#include "inversion/contour.hpp"
#include "inversion/decay.hpp"
#include "inversion/mgf.hpp"
#include "numerics/complex.hpp"
#include "numerics/fft.hpp"
#include "numerics/special.hpp"

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

// Where lines leave a gap above this, and for few steps without trying them, the history is composed on a
// lattice of so many points. A larger one is tried where rounding to it would cost this much of delta.
constexpr std::size_t lattice_sizes[] = {1024, 4096, 16384, 65536};
constexpr double lattice_narrow = 2e-3, lattice_cost = 5e-3;
constexpr double lattice_room = 1.5;
constexpr std::size_t bank_bytes = std::size_t{1} << 28;
constexpr std::size_t examples_per_task = 64;

double tilt(int index) { return std::pow(tilt_ratio, index); }

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
            max_loss_.push_back(pair ? std::max(0.0, pair->max_loss()) : 0.0);
            kinds_.push_back({pair, shift, mu, pair ? loss_without(*pair) : 0.0, std::move(mgf)});
        }
        kind_mutex_ = std::vector<std::mutex>(kinds());
        for (int i = lowest_tilt; i <= highest_tilt; ++i) {
            columns_.emplace_back(kinds());
            for (auto& value : columns_.back()) value = std::numeric_limits<double>::quiet_NaN();
        }
    }

    std::mutex calls;  // Lines and transforms are made on the way: one caller at a time.

    std::size_t kinds() const noexcept { return kinds_.size(); }

    std::vector<double> log_moments(double s) const {
        std::vector<double> out;
        for (const Kind& kind : kinds_) out.push_back(upper(kind, s));
        return out;
    }

    template <class Count>
    IndividualAnswers epsilon(std::span<const Count> counts, double delta, const IndividualWish& wish) {
        const std::size_t rows = counts.size() / std::max<std::size_t>(1, kinds());
        const auto tilt_score = [&](double k, double s, std::size_t) {
            const double log_factor = log_chernoff(s), log_delta = std::log(delta);
            return (k + log_factor - log_delta + 16 * u * (k - log_factor - log_delta)) / s;
        };
        const auto log_inverse_delta = [&](std::size_t, double) { return -std::log(delta); };
        const auto solve = [&](const Contour& contour, std::size_t, double chernoff) -> Bracket {
            double start = std::max(0.0, chernoff);
            const Inverted at =
                newton([&](double e) { return invert(contour, e); }, std::log(delta), start, 1e-9);
            if (!(at.value > 0)) return {0, infinity};
            if (invert(contour, 0).upper() <= delta) return {0, 0};
            return bracket([&](double e) { return invert(contour, e); }, at, start, delta);
        };
        const auto read = [&](const TailTable& table, std::size_t, double chernoff, bool upper) {
            const auto at = [&](double e) { return table.at(e).value; };
            const double start = std::isfinite(chernoff) ? chernoff : 1e3;
            return upper ? upper_epsilon(at, delta, start) : lower_epsilon(at, delta, start);
        };
        const auto fall_back = [](double chernoff) { return std::max(0.0, chernoff); };
        const auto same = [](std::size_t) { return 0.0; };
        if (delta >= 1 || !(delta > 0)) return limits(counts, rows, delta >= 1 ? 0 : infinity);
        IndividualAnswers out =
            answer(counts, rows, wish, tilt_score, log_inverse_delta, solve, read, fall_back, same, true);
        // Nor is eps above the sum of the largest losses.
        in_tasks(rows, [&](std::size_t row) {
            const double most = dot(counts.data() + row * kinds(), max_loss_.data(), kinds());
            out.upper[row] = std::min(out.upper[row], std::max(out.lower[row], most * (1 + 1e-12)));
        });
        return out;
    }

    template <class Count>
    IndividualAnswers delta(std::span<const Count> counts, std::span<const double> epsilons,
                            const IndividualWish& wish) {
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
        const auto read = [&](const TailTable& table, std::size_t row, double, bool) {
            return table.at(epsilons[row]).value;
        };
        const auto fall_back = [](double log_delta) {
            return std::min(1.0, std::exp(log_delta) * (1 + 1e-12));
        };
        const auto point = [&](std::size_t row) { return epsilons[row]; };
        return answer(counts, epsilons.size(), wish, tilt_score, log_inverse_delta, solve, read, fall_back,
                      point, false);
    }

private:
    struct Kind {
        PairPtr pair;
        double shift;            // the largest distance of P's and Q's centres
        double mu;               // of a plain Gaussian: K = mu^2 s (s+1) / 2
        double without;          // the loss far from the record's contribution, where many losses lie; or 0
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
        bool few;  // few steps, sampled ones among them
    };

    // Rows that are alike, `point` included, are answered once: the first of each kind, and for every row
    // which one that is.
    struct Distinct {
        std::vector<std::uint32_t> rows, first;
    };
    template <class Count, class Point>
    Distinct distinct_rows(std::span<const Count> counts, std::size_t rows, Point point) const {
        const std::size_t bytes = kinds() * sizeof(Count);
        std::vector<std::uint64_t> hash(rows);
        in_tasks(rows, [&](std::size_t row) {
            std::uint64_t h = std::bit_cast<std::uint64_t>(point(row));
            const auto* const at = reinterpret_cast<const unsigned char*>(counts.data() + row * kinds());
            for (std::size_t i = 0; i < bytes; i += 8) {
                std::uint64_t word = 0;
                std::memcpy(&word, at + i, std::min<std::size_t>(8, bytes - i));
                h = (h ^ word) * 0x9e3779b97f4a7c15;
                h ^= h >> 29;
            }
            hash[row] = h;
        });
        Distinct out;
        out.first.resize(rows);
        std::unordered_map<std::uint64_t, std::uint32_t> seen;
        seen.reserve(rows);
        for (std::size_t row = 0; row < rows; ++row) {
            const auto [at, added] = seen.try_emplace(hash[row], static_cast<std::uint32_t>(row));
            const std::size_t other = at->second;
            const bool same =
                !added && point(row) == point(other) &&
                std::memcmp(counts.data() + row * kinds(), counts.data() + other * kinds(), bytes) == 0;
            out.first[row] = static_cast<std::uint32_t>(same ? other : row);
            if (!same) out.rows.push_back(static_cast<std::uint32_t>(row));
        }
        return out;
    }

    template <class Body>
    static void in_tasks(std::size_t rows, const Body& body) {
        parallel_for((rows + examples_per_task - 1) / examples_per_task, [&](std::size_t task) {
            const std::size_t end = std::min((task + 1) * examples_per_task, rows);
            for (std::size_t i = task * examples_per_task; i < end; ++i) body(i);
        });
    }

    // score, log_inverse_delta and fall_back as functions of the row; solve(contour, row, Chernoff's bound)
    // and read(table, row, Chernoff's bound, upper) find the answer. point: what is asked of each row.
    template <class Count, class Score, class LogInverse, class Solve, class Read, class FallBack,
              class Point>
    IndividualAnswers answer(std::span<const Count> counts, std::size_t rows, const IndividualWish& wish,
                             Score score, LogInverse log_inverse_delta, Solve solve, Read read,
                             FallBack fall_back, Point point, bool many_lattices) {
        IndividualAnswers out{std::vector<double>(rows, 0.0), std::vector<double>(rows, 0.0),
                              std::vector<Path>(rows, Path::nothing)};
        find_used(counts);
        const Distinct distinct = distinct_rows(counts, rows, point);
        const std::vector<Start> starts = best_tilts(counts, distinct.rows, rows, score);
        const auto wanted = [&](std::size_t row) {
            return (wish.floor.empty() || out.upper[row] > wish.floor[row]) &&
                   !(out.upper[row] - out.lower[row] <= narrow * out.upper[row]);
        };
        // Few steps: their transform hardly decays, unless they are Gaussian.
        std::vector<std::uint32_t> open, few;
        for (const auto row : distinct.rows) {
            if (starts[row].tilt == nowhere) continue;
            out.upper[row] = fall_back(starts[row].score);
            out.path[row] = Path::chernoff;
            if (wanted(row)) (starts[row].few ? few : open).push_back(row);
        }
        for (std::size_t tier = 0; tier < std::size(tiers) && !open.empty(); ++tier) {
            const auto key = [&](std::size_t row) {
                return Key{line_tilt(starts[row].tilt - tiers[tier].lower),
                           period_class(log_inverse_delta(row, starts[row].score)), tier};
            };
            for (const auto row : open) prepare(key(row));
            std::vector<char> still_open(open.size());
            parallel_for((open.size() + examples_per_task - 1) / examples_per_task, [&](std::size_t task) {
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
                    still_open[i] = wanted(row);
                }
            });
            std::size_t left = 0;
            for (std::size_t i = 0; i < open.size(); ++i)
                if (still_open[i]) open[left++] = open[i];
            open.resize(left);
        }
        std::erase_if(open, [&](std::size_t row) {
            return out.upper[row] - out.lower[row] <= lattice_narrow * out.upper[row];
        });
        const auto compose = [&](const std::vector<std::uint32_t>& some, bool are_few) {
            for (const bool upper : {true, false})
                if (upper || wish.lower)
                    on_lattices(counts, some, upper, are_few, starts, log_inverse_delta, fall_back, read,
                                out);
        };
        compose(few, true);
        // A delta is asked for at very many points, each of which would want lattices of its own.
        if (many_lattices) compose(open, false);
        for (std::size_t row = 0; row < rows; ++row) {
            const std::size_t same = distinct.first[row];
            out.lower[row] = out.lower[same];
            out.upper[row] = out.upper[same];
            out.path[row] = out.path[same];
        }
        return out;
    }

    struct BankKey {
        int tilt, period;
        int length;  // of the window; unbounded: losses are not bounded from below
        std::size_t size;
        bool upper, few;
        bool operator<(const BankKey& other) const {
            return std::tie(tilt, period, length, size, upper, few) <
                   std::tie(other.tilt, other.period, other.length, other.size, other.upper, other.few);
        }
    };

    // Bounds by rounding losses to lattices. Rows with the same lattice go together, so that few of them are
    // in memory; larger lattices for those rows that need them.
    template <class Count, class LogInverse, class FallBack, class Read>
    void on_lattices(std::span<const Count> counts, const std::vector<std::uint32_t>& some, bool upper,
                     bool few, const std::vector<Start>& starts, LogInverse log_inverse_delta,
                     FallBack fall_back, Read read, IndividualAnswers& out) {
        std::map<BankKey, std::vector<std::uint32_t>> groups;
        std::vector<BankKey> keys(some.size());
        in_tasks(some.size(), [&](std::size_t i) {
            const std::size_t row = some[i];
            const int period = period_class(log_inverse_delta(row, starts[row].score));
            keys[i] = {line_tilt(starts[row].tilt),
                       period,
                       window_length(counts.data() + row * kinds(), period, few),
                       0,
                       upper,
                       few};
        });
        for (std::size_t i = 0; i < some.size(); ++i) groups[keys[i]].push_back(some[i]);
        while (!groups.empty()) {
            const auto group = groups.extract(groups.begin());
            const BankKey& key = group.key();
            const std::vector<std::uint32_t>& rows = group.mapped();
            LatticeBank& bank = prepare_bank(key, counts, rows);
            std::vector<char> larger(rows.size()), longer(rows.size());
            const double s = tilt(key.tilt);
            const bool last = key.size + 1 == std::size(lattice_sizes);
            in_tasks(rows.size(), [&](std::size_t i) {
                const std::size_t row = rows[i];
                std::vector<LatticeBank::Counted> history;
                const Count* const c = counts.data() + row * kinds();
                for (std::size_t k = 0; k < kinds(); ++k)
                    if (c[k] != 0 && kinds_[k].pair) history.push_back({k, c[k]});
                const double chernoff = fall_back(starts[row].score);
                // A larger variance v moves ln delta by about s^2 v / 2.
                larger[i] = !last && !(0.5 * s * s * bank.added_variance(history) <= lattice_cost);
                if (larger[i]) return;
                bool too_short = false;
                const auto table = bank.compose(history, too_short);
                longer[i] = too_short && key.length != unbounded && key.length < 64;
                if (!table) return;
                const double found = read(*table, row, chernoff, upper);
                if (!upper && found <= out.upper[row]) out.lower[row] = std::max(out.lower[row], found);
                if (upper && found < out.upper[row]) {
                    out.upper[row] = std::max(found, out.lower[row]);
                    out.path[row] = Path::lattice;
                }
            });
            for (std::size_t i = 0; i < rows.size(); ++i) {
                if (!larger[i] && !longer[i]) continue;
                BankKey next = key;
                next.size += larger[i] != 0;
                next.length += longer[i] ? (few ? 1 : 2) : 0;
                groups[next].push_back(rows[i]);
            }
        }
    }

    static constexpr int unbounded = std::numeric_limits<int>::min();

    // How long the window must be at least, in steps of sqrt 2: from the least possible loss to what the
    // largest step hardly ever exceeds.
    template <class Count>
    int window_length(const Count* c, int period, bool few) {
        double length = 0;
        const std::vector<double>& reach = reaches(period);
        for (std::size_t k = 0; k < kinds(); ++k) {
            if (c[k] == 0 || !kinds_[k].pair) continue;
            if (!(kinds_[k].without < 0)) return unbounded;
            length = std::max(length, reach[k]);
        }
        // After many steps the tilt is larger, and the window longer.
        return static_cast<int>(std::clamp(std::ceil(2 * std::log2(length)) + (few ? 0 : 4), -400.0, 60.0));
    }

    // For the kinds that are bounded from below, the length of their own.
    const std::vector<double>& reaches(int period) {
        const std::lock_guard lock(mutex_);
        std::vector<double>& out = reaches_[period];
        out.resize(kinds(), -1);
        for (std::size_t k = 0; k < kinds(); ++k) {
            const Kind& kind = kinds_[k];
            if (out[k] >= 0 || !used_[k] || !(kind.without < 0)) continue;
            out[k] = LatticeBank::reach(*kind.pair, 0, std::sqrt(variance_[k]), std::log(tail_mass(period))) -
                     kind.without;
        }
        return out;
    }

    // P-mass that does not matter, for all delta of this class.
    static double tail_mass(int period) { return std::max(1e-280, 1e-3 * std::exp(16 - 8.0 * period)); }

    // The table of a lattice, with all kinds that these rows have.
    template <class Count>
    LatticeBank& prepare_bank(const BankKey& key, std::span<const Count> counts,
                              const std::vector<std::uint32_t>& rows) {
        std::size_t bytes = 0;
        for (const auto& [other, bank] : banks_) bytes += bank.bytes();
        if (bytes > bank_bytes) banks_.clear();
        const double log_inverse = 8.0 * key.period, reference = tilt(key.tilt);
        const std::size_t size = lattice_sizes[key.size];
        const bool bounded = key.length != unbounded;
        // Rare large losses dominate a law that is tilted as much as Chernoff's bound wants. All that the
        // tilt is for is rounding, at a delta far below round-off or after many steps.
        // For a lower bound none at all: what is folded into the window must not count for more than it is.
        const bool plain = key.few && key.period <= 4;
        const double s = !bounded ? reference
                         : plain  ? (key.upper ? 0.125 * reference : 0.0)
                                  : 0.5 * reference;
        const double length = bounded ? std::exp2(0.5 * key.length)
                                      : lattice_room * (key.upper ? 1 : 2) * log_inverse / reference;
        const LatticeBank::Shape shape{key.upper ? Bound::upper : Bound::lower,
                                       s,
                                       reference,
                                       length / static_cast<double>(size),
                                       size,
                                       tail_mass(key.period),
                                       bounded,
                                       key.few};
        LatticeBank& bank = banks_.try_emplace(key, shape, kinds()).first->second;
        std::vector<char> here(kinds());
        for (const auto row : rows)
            for (std::size_t i = 0; i < kinds(); ++i) here[i] |= counts[row * kinds() + i] != 0;
        parallel_for(kinds(), [&](std::size_t i) {
            const Kind& kind = kinds_[i];
            if (here[i] && kind.pair && !bank.made(i))
                bank.make(i, *kind.pair, kind.without, moment(kind, s));
        });
        return bank;
    }

    static Cumulant moment(const Kind& kind, double s) {
        const double variance = kind.mu * kind.mu;
        if (!kind.mgf) return {0.5 * variance * s * (s + 1), variance * (s + 0.5), variance, infinity};
        if (s * kind.shift > most_shift) return {infinity, infinity, infinity, infinity};
        return kind.mgf->at(s);
    }

    // A sampled pair's loss where the record leaves no trace: ln(1-q), or -ln(1-q) for "add".
    static double loss_without(const Pair& pair) {
        const auto mixtures = pair.gaussian_mixtures();
        if (mixtures.size() != 1) return 0;
        const auto weight_at_0 = [](const std::vector<double>& shift, const std::vector<double>& weight) {
            return shift.size() == 2 && shift.front() == 0 ? std::log(weight.front()) : 0.0;
        };
        const GaussianMixtures& m = mixtures.front();
        return weight_at_0(m.p_shift, m.p_weight) - weight_at_0(m.q_shift, m.q_weight);
    }

    static constexpr int nowhere = std::numeric_limits<int>::min();

    // Downhill from the tilt that would be right for a Gaussian; rounds until all columns needed are there.
    template <class Count, class Score>
    std::vector<Start> best_tilts(std::span<const Count> counts, const std::vector<std::uint32_t>& rows,
                                  std::size_t all, Score score) {
        std::vector<Start> out(all, {nowhere, infinity, false});
        // That of a Gaussian of the same variance; where losses are rare, one that moves the noise enough.
        const auto guess = [&](const Count* c, double variance) {
            double shift = std::sqrt(variance);
            for (std::size_t i = kinds(); i-- > 0;)
                if (c[i] != 0) shift = std::max(shift, 0.125 * kinds_[i].shift);
            const double index = std::log(5 / shift) / std::log(tilt_ratio);
            return static_cast<int>(std::clamp(std::round(index), 1.0 * lowest_tilt, 1.0 * highest_tilt));
        };
        in_tasks(rows.size(), [&](std::size_t i) {
            const std::size_t row = rows[i];
            const Count* const c = counts.data() + row * kinds();
            const double variance = dot(c, variance_.data(), kinds());
            if (!(variance > 0)) return;
            const auto at = [&](int t) { return score(log_moment(c, t), tilt(t), row); };
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
            std::uint64_t steps = 0;
            bool sampled = false;
            for (std::size_t k = 0; k < kinds(); ++k) {
                steps += c[k];
                sampled = sampled || (c[k] != 0 && kinds_[k].mgf);
            }
            // The score's own rounding.
            out[row] = {best, value + 1e-12 * std::abs(value), sampled && steps <= LatticeBank::few_steps};
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

    // The history's K = ln M at a tilt, rounded up. What it needs is computed once, by whoever comes first.
    template <class Count>
    double log_moment(const Count* c, int index) {
        std::vector<std::atomic<double>>& column = columns_[static_cast<std::size_t>(index - lowest_tilt)];
        double sum[4] = {0, 0, 0, 0};
        for (std::size_t i = 0; i < kinds(); ++i) {
            if (c[i] == 0) continue;
            double value = column[i].load(std::memory_order_relaxed);
            if (std::isnan(value)) {
                const std::lock_guard lock(kind_mutex_[i]);  // the transform's own tables
                value = upper(kinds_[i], tilt(index));
                column[i].store(value, std::memory_order_relaxed);
            }
            sum[i % 4] += static_cast<double>(c[i]) * value;
        }
        return ((sum[0] + sum[1]) + (sum[2] + sum[3])) * (1 + 1e-12);
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
            const Mgf::Row row = kind.mgf->row(line.s, line.step, line.size, transform_tolerance);
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
            const double bound = log_chernoff(s) + log_moment(c, tilt_index + further) - sums.base;
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
    std::vector<double> variance_, max_loss_;
    std::vector<char> used_;
    std::size_t version_ = 0;
    std::mutex mutex_;                                       // of the reaches
    std::vector<std::vector<std::atomic<double>>> columns_;  // nan: not computed yet
    std::vector<std::mutex> kind_mutex_;
    std::map<Key, Line> lines_;
    std::map<BankKey, LatticeBank> banks_;
    std::map<int, std::vector<double>> reaches_;
};

IndividualProfiles::IndividualProfiles(std::vector<PairPtr> pairs)
    : impl_(std::make_unique<Impl>(std::move(pairs))) {}
IndividualProfiles::~IndividualProfiles() = default;

std::size_t IndividualProfiles::kinds() const noexcept { return impl_->kinds(); }
std::vector<double> IndividualProfiles::log_moments(double s) const {
    const std::lock_guard lock(impl_->calls);
    return impl_->log_moments(s);
}

IndividualAnswers IndividualProfiles::epsilon(std::span<const std::uint16_t> counts, double delta,
                                              const IndividualWish& wish) {
    const std::lock_guard lock(impl_->calls);
    return impl_->epsilon(counts, delta, wish);
}
IndividualAnswers IndividualProfiles::epsilon(std::span<const std::uint32_t> counts, double delta,
                                              const IndividualWish& wish) {
    const std::lock_guard lock(impl_->calls);
    return impl_->epsilon(counts, delta, wish);
}
IndividualAnswers IndividualProfiles::delta(std::span<const std::uint16_t> counts,
                                            std::span<const double> epsilons, const IndividualWish& wish) {
    const std::lock_guard lock(impl_->calls);
    return impl_->delta(counts, epsilons, wish);
}
IndividualAnswers IndividualProfiles::delta(std::span<const std::uint32_t> counts,
                                            std::span<const double> epsilons, const IndividualWish& wish) {
    const std::lock_guard lock(impl_->calls);
    return impl_->delta(counts, epsilons, wish);
}

}  // namespace hockeystick
