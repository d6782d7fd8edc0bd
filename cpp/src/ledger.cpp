#include "hockeystick/ledger.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "hockeystick/parallel.hpp"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HOCKEYSTICK_HAS_AVX2
#endif

namespace hockeystick {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::size_t examples_per_task = 1 << 15;
constexpr std::size_t lanes = 256;  // examples that one pass of the kernel holds in the first-level cache

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

// a b - fl(a b), exactly (Dekker 1971, Veltkamp's splitting).
HOCKEYSTICK_INLINE double product_error(double a, double b, double p) {
    constexpr double splitter = 0x1p27 + 1;
    const double ca = splitter * a, cb = splitter * b;
    const double ah = ca - (ca - a), bh = cb - (cb - b);
    const double al = a - ah, bl = b - bh;
    return ((ah * bh - p) + ah * bl + al * bh) + al * bl;
}

// Rounded up; an infinite operand makes the error nan, and nothing is added to infinity.
HOCKEYSTICK_INLINE double product_up(double a, double b) {
    const double p = a * b;
    return next_if(p, product_error(a, b, p) > 0);
}

HOCKEYSTICK_INLINE double quotient_up(double a, double b) {
    const double q = a / b, p = q * b;
    // The remainder of a division is a double, and so is a - p.
    return next_if(q, (a - p) - product_error(q, b, p) > 0);
}

HOCKEYSTICK_INLINE double sum_up(double a, double b) {
    const double s = a + b, t = s - a;
    const double error = (a - (s - t)) + (b - t);  // Knuth's: exact
    return next_if(s, error > 0);
}

// Into the range where the above holds; 0 stays 0.
HOCKEYSTICK_INLINE double in_range(double x) {
    const double low = x < smallest_value ? (x > 0 ? smallest_value : 0.0) : x;
    return low > largest_value ? infinity : low;
}

// min(value, clip) / divisor, rounded up.
HOCKEYSTICK_INLINE double scaled(const Charge& how, double value) {
    const double x = in_range(value < how.clip ? value : how.clip);
    return how.divisor != 1 ? in_range(quotient_up(x, how.divisor)) : x;
}

HOCKEYSTICK_INLINE double cost_of(const Charge& how, double value) {
    double x = scaled(how, value);
    if (how.square) x = product_up(x, x);
    if (how.factor != 1) x = product_up(x, how.factor);
    return x;
}

HOCKEYSTICK_INLINE std::size_t kernel(const Charge& how, const double* values, const double* spent,
                                      double budget, double* after, std::uint8_t* active, std::size_t n) {
    std::array<std::int64_t, lanes> flags;
    std::int64_t total = 0;
    for (std::size_t begin = 0; begin < n; begin += lanes) {
        const std::size_t size = n - begin < lanes ? n - begin : lanes;
        for (std::size_t i = 0; i < size; ++i) {
            const double before = spent[begin + i];
            const double sum = sum_up(before, cost_of(how, values[begin + i]));
            const bool allowed = sum <= budget;
            after[begin + i] = allowed ? sum : before;
            flags[i] = allowed;
            total += allowed;
        }
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

// Constants instead of loads let the compiler drop the branches from the loop.
HOCKEYSTICK_INLINE std::size_t dispatch(const Charge& how, const double* values, const double* spent,
                                        double budget, double* after, std::uint8_t* active, std::size_t n) {
    if (how.square && how.factor == 1 && how.divisor == 1)
        return kernel({how.clip, 1, 1, true}, values, spent, budget, after, active, n);
    if (how.square && how.factor == 1)
        return kernel({how.clip, how.divisor, 1, true}, values, spent, budget, after, active, n);
    return kernel(how, values, spent, budget, after, active, n);
}

using Kernel = std::size_t (*)(const Charge&, const double*, const double*, double, double*, std::uint8_t*,
                               std::size_t);
using InvalidKernel = std::size_t (*)(const double*, std::size_t);

std::size_t charge_baseline(const Charge& how, const double* values, const double* spent, double budget,
                            double* after, std::uint8_t* active, std::size_t n) {
    return dispatch(how, values, spent, budget, after, active, n);
}
std::size_t invalid_baseline(const double* values, std::size_t n) { return invalid_kernel(values, n); }

#ifdef HOCKEYSTICK_HAS_AVX2
[[gnu::target("avx2")]] std::size_t charge_avx2(const Charge& how, const double* values, const double* spent,
                                                double budget, double* after, std::uint8_t* active,
                                                std::size_t n) {
    return dispatch(how, values, spent, budget, after, active, n);
}
[[gnu::target("avx2")]] std::size_t invalid_avx2(const double* values, std::size_t n) {
    return invalid_kernel(values, n);
}
bool has_avx2() {
    static const bool has = __builtin_cpu_supports("avx2");
    return has;
}
#endif

Kernel charge_kernel() {
#ifdef HOCKEYSTICK_HAS_AVX2
    if (has_avx2()) return charge_avx2;
#endif
    return charge_baseline;
}

InvalidKernel invalid_values_kernel() {
#ifdef HOCKEYSTICK_HAS_AVX2
    if (has_avx2()) return invalid_avx2;
#endif
    return invalid_baseline;
}

std::size_t tasks(std::size_t examples) { return (examples + examples_per_task - 1) / examples_per_task; }

}  // namespace

std::size_t first_invalid(std::span<const double> values) {
    const InvalidKernel invalid = invalid_values_kernel();
    std::vector<std::size_t> first(tasks(values.size()));
    parallel_for(first.size(), [&](std::size_t task) {
        const std::size_t begin = task * examples_per_task;
        const std::size_t size = std::min(examples_per_task, values.size() - begin);
        const std::size_t at = invalid(values.data() + begin, size);
        first[task] = at < size ? begin + at : values.size();
    });
    return first.empty() ? 0 : *std::min_element(first.begin(), first.end());
}

std::size_t charge(const Charge& how, std::span<const double> values, std::span<const double> spent,
                   double budget, std::span<double> after, std::span<std::uint8_t> active) {
    const Kernel run = charge_kernel();
    std::vector<std::size_t> counts(tasks(values.size()));
    parallel_for(counts.size(), [&](std::size_t task) {
        const std::size_t begin = task * examples_per_task;
        const std::size_t size = std::min(examples_per_task, values.size() - begin);
        counts[task] = run(how, values.data() + begin, spent.data() + begin, budget, after.data() + begin,
                           active.data() + begin, size);
    });
    std::size_t total = 0;
    for (std::size_t count : counts) total += count;
    return total;
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
    static constexpr int shift = 52 - 7;
    static std::uint64_t key(double value) { return std::bit_cast<std::uint64_t>(value) >> shift; }
    std::uint64_t first_;
    std::vector<std::uint16_t> cells_;
};

template <class Count>
void count_cells_as(std::span<const std::uint16_t> cells, std::size_t columns, std::span<Count> counts) {
    parallel_for(tasks(cells.size()), [&](std::size_t task) {
        const std::size_t begin = task * examples_per_task;
        const std::size_t end = std::min(begin + examples_per_task, cells.size());
        for (std::size_t i = begin; i < end; ++i)
            if (cells[i] > 0) ++counts[i * columns + cells[i] - 1];
    });
}

}  // namespace

void find_cells(const Charge& how, std::span<const double> values, std::span<const double> edges,
                std::span<std::uint16_t> cells) {
    const CellGuess guess(edges);
    const double last = edges.back();
    parallel_for(tasks(values.size()), [&](std::size_t task) {
        const std::size_t begin = task * examples_per_task;
        const std::size_t end = std::min(begin + examples_per_task, values.size());
        for (std::size_t i = begin; i < end; ++i) {
            const double x = scaled(how, values[i]);
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

void count_cells(std::span<const std::uint16_t> cells, std::size_t columns, std::span<std::uint16_t> counts) {
    count_cells_as(cells, columns, counts);
}
void count_cells(std::span<const std::uint16_t> cells, std::size_t columns, std::span<std::uint32_t> counts) {
    count_cells_as(cells, columns, counts);
}

}  // namespace hockeystick
