#include "individual/ledger.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "hockeystick/arithmetic.hpp"
#include "hockeystick/parallel.hpp"
#include "numerics/constants.hpp"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HOCKEYSTICK_VECTOR_KERNELS
#endif

namespace hockeystick {
namespace {

// Speed: examples of one task, and those that one pass of the kernel holds in the first-level cache.
constexpr std::size_t examples_per_task = 1 << 15, lanes = 256;

// The kernels are one body, compiled for several instruction sets. Each operation is the same IEEE one in
// all of them, so the results are the same bits.
#if defined(__GNUC__) || defined(__clang__)
#define HOCKEYSTICK_INLINE [[gnu::always_inline]] inline
#else
#define HOCKEYSTICK_INLINE inline
#endif

// The next double above x >= 0 if `up`, else x. Not for infinity.
HOCKEYSTICK_INLINE double next_if(double x, bool up) {
    return std::bit_cast<double>(std::bit_cast<std::int64_t>(x) + static_cast<std::int64_t>(up));
}

// a b - fl(a b), exactly: by a fused multiply-add, or by Dekker's products of Veltkamp's halves (1971). Both
// give the same number.
template <bool fused>
HOCKEYSTICK_INLINE double product_error(double a, double b, double p) {
    if constexpr (fused) return std::fma(a, b, -p);
    constexpr double splitter = 0x1p27 + 1;  // proof: halves of 26 bits
    const double ca = splitter * a, cb = splitter * b;
    const double ah = ca - (ca - a), bh = cb - (cb - b);
    const double al = a - ah, bl = b - bh;
    return ((ah * bh - p) + ah * bl + al * bh) + al * bl;
}

// Rounded up; an infinite operand makes the error nan, and nothing is added to infinity.
template <bool fused>
HOCKEYSTICK_INLINE double product_up(double a, double b) {
    const double p = a * b;
    return next_if(p, product_error<fused>(a, b, p) > 0);
}

template <bool fused>
HOCKEYSTICK_INLINE double quotient_up(double a, double b) {
    const double q = a / b, p = q * b;
    // The remainder of a division is a double, and so is a - p.
    return next_if(q, (a - p) - product_error<fused>(q, b, p) > 0);
}

// For a, b >= 0.
HOCKEYSTICK_INLINE double sum_up(double a, double b) {
    const double large = a < b ? b : a, small = a < b ? a : b;
    const double s = large + small;
    return next_if(s, small - (s - large) > 0);  // Dekker's: the error is exact
}

// Into the range where the above holds; 0 stays 0.
HOCKEYSTICK_INLINE double in_range(double x) {
    const double raised = x < smallest_value ? smallest_value : x;
    const double low = x > 0 ? raised : 0.0;
    return low > largest_value ? infinity : low;
}

// min(value, clip) / divisor, rounded up.
template <bool fused, bool divide>
HOCKEYSTICK_INLINE double scaled(const Charge& how, double value) {
    const double x = in_range(value < how.clip ? value : how.clip);
    if constexpr (divide) return quotient_up<fused>(x, how.divisor);
    return x;
}

// `n` examples; see charge().
struct Task {
    Charge how;
    const double *values, *spent;
    double budget;
    double* after;
    std::uint8_t* active;
    std::size_t n;
};

// The loops below have no branches: the compiler turns them into vector instructions.
template <bool fused, bool divide, bool square, bool multiply>
HOCKEYSTICK_INLINE std::size_t kernel(const Task& task) {
    const auto [how, values, spent, budget, after, active, n] = task;
    std::array<std::int64_t, lanes> flags;
    std::array<double, lanes>
        results;  // `after` may be `spent`: written where the compiler knows nothing is read
    std::int64_t total = 0;
    for (std::size_t begin = 0; begin < n; begin += lanes) {
        const std::size_t size = n - begin < lanes ? n - begin : lanes;
        const double* const v = values + begin;
        const double* const s = spent + begin;
        for (std::size_t i = 0; i < size; ++i) {
            double cost = scaled<fused, divide>(how, v[i]);
            if constexpr (square) cost = product_up<fused>(cost, cost);
            if constexpr (multiply) cost = product_up<fused>(cost, how.factor);
            const double before = s[i], sum = sum_up(before, cost);
            results[i] = sum <= budget ? sum : before;
            flags[i] = sum <= budget ? 1 : 0;
        }
        std::memcpy(after + begin, results.data(), size * sizeof(double));
        for (std::size_t i = 0; i < size; ++i) total += flags[i];
        for (std::size_t i = 0; i < size; ++i) active[begin + i] = static_cast<std::uint8_t>(flags[i]);
    }
    return static_cast<std::size_t>(total);
}

HOCKEYSTICK_INLINE std::size_t invalid_kernel(const double* values, std::size_t n) {
    std::int64_t bad = 0;
    for (std::size_t i = 0; i < n; ++i) bad += !(values[i] >= 0);
    if (bad == 0) return n;
    std::size_t i = 0;
    while (values[i] >= 0) ++i;
    return i;
}

template <bool fused>
HOCKEYSTICK_INLINE std::size_t dispatch(const Task& task) {
    if (!task.how.square) return kernel<fused, true, false, true>(task);
    if (task.how.factor != 1) return kernel<fused, true, true, true>(task);
    if (task.how.divisor != 1) return kernel<fused, true, true, false>(task);
    return kernel<fused, false, true, false>(task);
}

using Kernel = std::size_t (*)(const Task&);
using InvalidKernel = std::size_t (*)(const double*, std::size_t);

std::size_t charge_baseline(const Task& task) { return dispatch<false>(task); }
std::size_t invalid_baseline(const double* values, std::size_t n) { return invalid_kernel(values, n); }

#ifdef HOCKEYSTICK_VECTOR_KERNELS
#define HOCKEYSTICK_AVX2 [[gnu::target("avx2,fma")]]
#ifdef __clang__
#define HOCKEYSTICK_AVX512 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")]]
#else
#define HOCKEYSTICK_AVX512 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512")]]
#endif

HOCKEYSTICK_AVX2 std::size_t charge_avx2(const Task& task) { return dispatch<true>(task); }
HOCKEYSTICK_AVX2 std::size_t invalid_avx2(const double* values, std::size_t n) {
    return invalid_kernel(values, n);
}
HOCKEYSTICK_AVX512 std::size_t charge_avx512(const Task& task) { return dispatch<true>(task); }

bool has_avx2() {
    static const bool has = std::strcmp(instruction_set(), "baseline") != 0 &&
                            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return has;
}
bool has_avx512() {
    static const bool has = std::strcmp(instruction_set(), "avx512") == 0 && has_avx2() &&
                            __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return has;
}
#endif

Kernel charge_kernel() {
#ifdef HOCKEYSTICK_VECTOR_KERNELS
    if (has_avx512()) return charge_avx512;
    if (has_avx2()) return charge_avx2;
#endif
    return charge_baseline;
}

InvalidKernel invalid_values_kernel() {
#ifdef HOCKEYSTICK_VECTOR_KERNELS
    if (has_avx2()) return invalid_avx2;
#endif
    return invalid_baseline;
}

// The sum of part(begin, end) over all tasks, or what else they are folded to, beginning with `start`.
template <class Part, class Fold = std::plus<>>
std::uint64_t over_tasks(std::size_t size, const Part& part, std::uint64_t start = 0, Fold fold = {}) {
    std::vector<std::uint64_t> found((size + examples_per_task - 1) / examples_per_task);
    parallel_ranges(size, examples_per_task, [&](std::size_t begin, std::size_t end) {
        found[begin / examples_per_task] = part(begin, end);
    });
    return std::accumulate(found.begin(), found.end(), start, fold);
}

}  // namespace

std::size_t first_invalid(std::span<const double> values) {
    const InvalidKernel invalid = invalid_values_kernel();
    const auto first = [&](std::size_t begin, std::size_t end) {
        const std::size_t at = begin + invalid(values.data() + begin, end - begin);
        return at < end ? at : values.size();
    };
    return over_tasks(values.size(), first, values.size(), std::ranges::min);
}

std::size_t charge(const Charge& how, std::span<const double> values, std::span<const double> spent,
                   double budget, std::span<double> after, std::span<std::uint8_t> active) {
    const Kernel run = charge_kernel();
    const Uninterrupted whole;  // `after` may be what was spent before
    return over_tasks(values.size(), [&](std::size_t begin, std::size_t end) {
        return run({how, values.data() + begin, spent.data() + begin, budget, after.data() + begin,
                    active.data() + begin, end - begin});
    });
}

namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014), at the state that its place gives: all steps are
// bijections.
std::uint64_t mixed(std::uint64_t place, std::uint64_t word) {
    std::uint64_t z = word + (place + 1) * 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
}

}  // namespace

std::uint64_t checksum(std::span<const std::byte> memory, std::uint64_t first) {
    constexpr std::size_t width = sizeof(std::uint64_t);
    const std::size_t whole = memory.size() / width;
    std::uint64_t sum = over_tasks(whole, [&](std::size_t begin, std::size_t end) {
        std::uint64_t part = 0;
        for (std::size_t i = begin; i < end; ++i) {
            std::uint64_t word = 0;
            std::memcpy(&word, memory.data() + i * width, width);
            part += mixed(first + i, word);
        }
        return part;
    });
    if (const std::size_t rest = memory.size() - whole * width; rest > 0) {
        std::uint64_t word = 0;
        std::memcpy(&word, memory.data() + whole * width, rest);
        sum += mixed(first + whole, word);
    }
    return sum;
}

std::uint64_t checksum_at(std::span<const std::int64_t> places, std::span<const double> values) {
    return over_tasks(places.size(), [&](std::size_t begin, std::size_t end) {
        std::uint64_t part = 0;
        for (std::size_t i = begin; i < end; ++i)
            part += mixed(static_cast<std::uint64_t>(places[i]), std::bit_cast<std::uint64_t>(values[i]));
        return part;
    });
}

namespace {

// Where the search for a value's cell begins, by the first bits of the value: for each range of doubles with
// the same exponent and first 7 bits of the mantissa, the first cell that reaches into it.
class CellGuess {
public:
    explicit CellGuess(std::span<const double> edges) : first_(key(edges.front())) {
        std::uint16_t cell = 0;
        for (std::uint64_t k = first_; k <= key(edges.back()); ++k) {
            while (edges[cell] < std::bit_cast<double>(k << shift)) ++cell;
            cells_.push_back(cell);
        }
    }
    std::size_t operator()(double value) const {
        const std::uint64_t k = key(value);
        if (k < first_) return 0;
        return cells_[std::min<std::uint64_t>(k - first_, cells_.size() - 1)];
    }

private:
    static constexpr int shift = 52 - 7;  // speed: cells of 1/128 of an octave
    static std::uint64_t key(double value) { return std::bit_cast<std::uint64_t>(value) >> shift; }
    std::uint64_t first_;
    std::vector<std::uint16_t> cells_;
};

}  // namespace

void find_cells(const Charge& how, std::span<const double> values, std::span<const double> edges,
                std::span<std::uint16_t> cells) {
    const CellGuess guess(edges);
    const double last = edges.back();
    parallel_ranges(values.size(), examples_per_task, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            const double x = scaled<false, true>(how, values[i]);
            std::size_t cell = 0;
            if (x > last) {
                cell = edges.size() + 1;
            } else if (x > 0) {
                cell = guess(x);
                while (edges[cell] < x) ++cell;
                ++cell;
            }
            cells[i] = static_cast<std::uint16_t>(cell);
        }
    });
}

template <class Count>
void count_cells(std::span<const std::uint16_t> cells, Count times, std::size_t columns,
                 std::span<Count> counts) {
    const Uninterrupted whole;
    parallel_ranges(cells.size(), examples_per_task, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i)
            if (cells[i] > 0) {
                Count& count = counts[i * columns + cells[i] - 1];
                // Never from the beginning again: that would forget all steps.
                if (count > std::numeric_limits<Count>::max() - times)
                    throw std::overflow_error("a counter is full");
                count = static_cast<Count>(count + times);
            }
    });
}
template void count_cells(std::span<const std::uint16_t>, std::uint16_t, std::size_t,
                          std::span<std::uint16_t>);
template void count_cells(std::span<const std::uint16_t>, std::uint32_t, std::size_t,
                          std::span<std::uint32_t>);

}  // namespace hockeystick
