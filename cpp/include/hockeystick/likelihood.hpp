// The privacy loss ln P(y)/Q(y) of a matrix mechanism under a sampling scheme, for 16 outputs at a time.
//
// With y = C x + noise, everything depends on y through the sliding products u_i = <c_i, y_i, ...>/sigma^2:
// the ratio of N(m c_i, sigma^2) to N(0, sigma^2) is exp(m u_i - m^2 |c_i|^2/(2 sigma^2)). All outputs here
// are in units of sigma.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "hockeystick/schemes.hpp"
#include "hockeystick/strategy.hpp"

namespace hockeystick {

// C x + noise N(0, noise_multiplier^2) is released, x what the scheme draws.
struct MatrixMechanism {
    Strategy strategy;
    Scheme scheme;
    double noise_multiplier;

    std::size_t steps() const noexcept { return strategy.steps(); }
    bool operator==(const MatrixMechanism&) const = default;
};

// Samples computed side by side; one row of data holds one iteration of all of them.
inline constexpr std::size_t group_size = 16;

// Rows of group_size doubles, aligned for vector instructions.
class Rows {
public:
    Rows() = default;
    explicit Rows(std::size_t count, double value = 0.0) : Rows(scratch(count)) { fill(value); }
    // Of any numbers.
    static Rows scratch(std::size_t count);
    double* operator[](std::size_t row) noexcept { return data_.get() + row * group_size; }
    const double* operator[](std::size_t row) const noexcept { return data_.get() + row * group_size; }
    std::size_t count() const noexcept { return count_; }
    void fill(double value) noexcept;
    // The first `count` rows, sample by sample: number k of sample s goes to to[s * stride + k].
    void by_sample(std::size_t count, double* to, std::size_t stride) const noexcept;

private:
    struct Release {
        std::size_t bytes;
        void operator()(double* p) const noexcept;
    };
    std::unique_ptr<double, Release> data_;
    std::size_t count_ = 0;
};

// Throws std::invalid_argument unless it is positive and finite.
void check_noise_multiplier(double noise_multiplier);

// How u_i is computed: a sum, or Fourier transforms of blocks that overlap; the latter is faster for many
// bands, and its error is relative to the norm of a whole block.
enum class Products { direct, transform };

// Computes the sliding products of consecutive rows. Immutable, used by many threads.
class SlidingProducts {
public:
    // C / sigma. `transform` applies to Toeplitz matrices only, and where it pays.
    SlidingProducts(const MatrixMechanism& mechanism, Products method);

    // compute() turns rows() rows into outputs(); both do not change. outputs() is even, and rows() is at
    // least outputs() + bands - 1.
    std::size_t rows() const noexcept { return rows_; }
    std::size_t outputs() const noexcept { return outputs_; }
    // Rows that a later call reads again: rows() - outputs(), even.
    std::size_t overlap() const noexcept { return rows_ - outputs_; }
    // Iterations first, ..., first + outputs() - 1 (those from `steps` on are not used): in.count() >=
    // rows(); out.count() >= rows().
    void compute(const Rows& in, std::size_t first, Rows& out) const;

    // Column i, divided by sigma.
    std::span<const double> column(std::size_t i) const noexcept { return scaled_.column(i); }
    // Multiplications and additions per output, on average.
    double operations() const noexcept;
    bool uses_transform() const noexcept { return !transforms_.empty(); }

private:
    struct Transform {
        std::size_t size, twiddles;  // where in twiddles_ those of its first level are
        std::vector<double> spectrum;
    };
    void plan_transforms();
    Transform transform(std::size_t size) const;

    Strategy scaled_;
    std::size_t steps_, bands_;
    std::size_t rows_ = 0, outputs_ = 0;
    std::vector<double> twiddles_;
    std::vector<Transform> transforms_;  // of the blocks, and of the last one if that is shorter
};

// Which mixture stands above the line of the ratio.
enum class Numerator {
    present,  // P: the example takes part
    absent    // Q of the truncated scheme: it takes part with multiplicity -1 where truncation spares it
};

// Half the squared norm, over sigma^2, of each column, for balls-in-bins of each bin's sum of columns. If the
// columns are longer than the separation, those of the upper bound on P/Q, or with `lower` of the lower one.
std::vector<double> half_norms(const MatrixMechanism& mechanism, bool lower);

// What changes the law of x without changing its form, for importance sampling: Pr[x] times
// theta^(number of participations), and mean (1 + shift) C x.
struct Tilt {
    double theta = 1.0;
    double shift = 0.0;
};

// What turns P into its mirror image: every participation counts -1 times.
inline constexpr Tilt mirrored{1.0, -2.0};

// The mixture over all participations x, as a recursion; immutable, used by many threads.
class Mixture {
public:
    // If the columns are longer than the separation, or a user has more examples than joint_examples, the
    // value is a bound: an upper bound of ln P/Q, or with `lower` a lower bound. Throws std::invalid_argument
    // where sigma is so small that losses exceed 2^45. For a chain of participations, further mixtures that
    // differ in theta alone, `more` of them, cost little.
    explicit Mixture(const MatrixMechanism& mechanism, Numerator numerator = Numerator::present,
                     bool lower = false, const Tilt& tilt = {}, std::span<const double> more = {});
    // The sum of the weights of an envelope: no law, but as well over N(0, sigma^2).
    Mixture(const MatrixMechanism& mechanism, const Envelope& envelope);

    // The state of one group of outputs.
    class Evaluation {
    public:
        virtual ~Evaluation() = default;
        // The next `count` products; survival: the same rows of survival probabilities where the scheme is
        // truncated (1: no truncation), else nullptr.
        virtual void add(const double* products, std::size_t count, const double* survival) = 0;
        // ln of the sum over all x of Pr[x] times the likelihood ratio, one row for each theta, aligned as
        // Rows are.
        virtual void finish(double* out) = 0;
    };
    // The recursion of one kind of scheme.
    struct Form {
        std::function<std::unique_ptr<Evaluation>()> start;
        double families = 0;
        std::size_t rows = 1;
    };

    std::unique_ptr<Evaluation> start() const { return form_.start(); }
    // Several examples per user: what an iteration takes, in about an iteration of a single example's chain.
    double families() const noexcept { return form_.families; }
    // Of finish().
    std::size_t rows() const noexcept { return form_.rows; }

private:
    Form form_;
};

// How many examples of a user the likelihood is exact for; the value for more is a bound, as for long
// columns.
std::size_t joint_examples(const Scheme& scheme, std::size_t steps);

}  // namespace hockeystick
