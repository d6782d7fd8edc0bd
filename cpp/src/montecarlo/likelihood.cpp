#include "hockeystick/likelihood.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "montecarlo/factors.hpp"
#include "montecarlo/joint_states.hpp"
#include "montecarlo/kernels.hpp"
#include "montecarlo/posterior.hpp"
#include "numerics/polynomials.hpp"

namespace hockeystick {

static_assert(group_size == kernels::group);

namespace {

using kernels::Factor;
using kernels::Option;

constexpr double zero_exponent = -0x1p50;  // of a zero; see lanes.hpp

// Pr[Binom(examples, p) = j], j = 0, ..., examples.
std::vector<Factor> binomial_weights(std::size_t examples, double p) {
    std::vector<Factor> weights(examples + 1, Factor{0.0, zero_exponent});
    if (p == 1) {
        weights[examples] = {1.0, 0.0};
        return weights;
    }
    const Factor odds = factor(p / (1 - p));
    weights[0] = power(factor(1 - p), examples);
    for (std::size_t j = 1; j <= examples; ++j) {
        const double ways = static_cast<double>(examples - j + 1) / static_cast<double>(j);
        weights[j] = weights[j - 1] * odds * factor(ways);
    }
    return weights;
}

// e^{-2 pi i k/n}, from the same polynomials on every machine.
std::pair<double, double> unit_root(std::size_t k, std::size_t n) {
    const std::size_t eighths = 8 * k / n;  // k < n
    // The angle's distance from the nearest multiple of a quarter turn, exact: n is a power of two.
    const std::size_t quarters = (eighths + 1) / 2 % 4;
    const double turn =
        static_cast<double>(k) / static_cast<double>(n) - 0.25 * static_cast<double>((eighths + 1) / 2);
    const auto at = [](const auto& coefficients, double x) {
        double sum = 0;
        for (std::size_t j = std::size(coefficients); j-- > 0;) sum = sum * x + coefficients[j];
        return sum;
    };
    const double square = turn * turn;
    const double sine = turn * at(polynomial::sine, square), cosine = at(polynomial::cosine, square);
    switch (quarters) {
        case 0:
            return {cosine, -sine};
        case 1:
            return {-sine, -cosine};
        case 2:
            return {-cosine, sine};
        default:
            return {sine, cosine};
    }
}

constexpr std::size_t shortest_transform = 16, longest_block = 4096;

// Outputs of a transform of n rows, and its multiplications and additions per sample.
std::size_t transform_outputs(std::size_t n, std::size_t bands) { return (n - bands + 1) / 2 * 2; }

double transform_operations(std::size_t n) {
    const auto size = static_cast<double>(n);
    return (4.25 * std::log2(size) + 3) * size;
}

// The shortest transform with so many outputs, of n, n/4, n/16, ... rows, whose roots of unity are among
// those of n rows.
std::size_t shortened_transform(std::size_t n, std::size_t bands, std::size_t outputs) {
    while (n / 4 >= std::max(shortest_transform, bands) && transform_outputs(n / 4, bands) >= outputs) n /= 4;
    return n;
}

// Operations for all outputs: the last block is as short as it can be.
double total_operations(std::size_t n, std::size_t bands, std::size_t steps) {
    const std::size_t outputs = transform_outputs(n, bands), rest = steps % outputs;
    return static_cast<double>(steps / outputs) * transform_operations(n) +
           (rest == 0 ? 0 : transform_operations(shortened_transform(n, bands, rest)));
}

std::size_t separation_of(const Scheme& scheme) {
    struct Visitor {
        std::size_t operator()(const BMinSep& s) const { return s.separation; }
        std::size_t operator()(const BallsInBins& s) const { return s.bins; }
        std::size_t operator()(const MultiAttribution& s) const { return s.separation; }
        std::size_t operator()(const TruncatedBMinSep& s) const { return s.base.separation; }
        std::size_t operator()(const IndependentBMinSep& s) const { return s.base.separation; }
    };
    return std::visit(Visitor{}, scheme);
}

}  // namespace

// ---- Rows -----------------------------------------------------------------------------------------

void Rows::Free::operator()(double* p) const noexcept { std::free(p); }

Rows::Rows(std::size_t count, double value) : count_(count) {
    const std::size_t bytes = std::max<std::size_t>(count, 1) * group_size * sizeof(double);
    auto* data = static_cast<double*>(std::aligned_alloc(64, bytes));
    if (data == nullptr) throw std::bad_alloc();
    data_.reset(data);
    fill(value);
}

void Rows::fill(double value) noexcept { std::fill_n(data_.get(), count_ * group_size, value); }

// ---- Sliding products -----------------------------------------------------------------------------

SlidingProducts::SlidingProducts(const Strategy& strategy, double noise_multiplier, Products method)
    : steps_(strategy.steps()), bands_(strategy.bands()), toeplitz_(strategy.is_toeplitz()) {
    for (std::size_t i = 0; i < (toeplitz_ ? 1 : steps_); ++i) {
        const auto column = strategy.column(i);
        for (const double x : column) columns_.push_back(x / noise_multiplier);
        columns_.resize((i + 1) * bands_, 0.0);
    }
    // A sum: blocks about as long as the bands, so that little is read twice; few enough for the cache.
    const std::size_t even_bands = bands_ + bands_ % 2;  // >= bands - 1
    outputs_ = std::max<std::size_t>(128, std::min(even_bands, longest_block));
    outputs_ = std::min(outputs_, steps_ + steps_ % 2);
    rows_ = outputs_ + (even_bands - (bands_ % 2 != 0 ? 2 : 0));
    if (bands_ == 1) rows_ = outputs_;
    if (method == Products::direct || !toeplitz_) return;

    std::size_t best = 0;
    double cheapest = static_cast<double>(2 * bands_ * steps_);
    for (std::size_t n = std::bit_ceil(std::max(shortest_transform, bands_ + 1));; n *= 2) {
        if (transform_outputs(n, bands_) > 0) {
            const double cost = total_operations(n, bands_, steps_);
            if (cost < cheapest) {
                cheapest = cost;
                best = n;
            }
        }
        if (n >= std::max(longest_block / 2, 4 * std::bit_ceil(bands_)) || n >= 2 * (steps_ + bands_)) break;
    }
    if (best == 0) return;
    rows_ = best;
    outputs_ = transform_outputs(best, bands_);
    for (std::size_t size = best; size > 4; size /= 4) {
        for (std::size_t k = 0; k < size / 4; ++k) {
            for (std::size_t j = 1; j < 4; ++j) {
                const auto [cosine, sine] = unit_root(j * k, size);
                twiddles_.push_back(cosine);
                twiddles_.push_back(sine);
            }
        }
    }
    transforms_.push_back(transform(best));
    const std::size_t rest = steps_ % outputs_;
    const std::size_t last = shortened_transform(best, bands_, rest);
    if (rest > 0 && last < best) transforms_.push_back(transform(last));
}

SlidingProducts::Transform SlidingProducts::transform(std::size_t size) const {
    Transform result{size, twiddles_.size(), {}};
    for (std::size_t level = size; level > 4; level /= 4) result.twiddles -= level / 4 * 6;
    Rows work(size);
    for (std::size_t k = 0; k < bands_; ++k) work[k][0] = columns_[k];
    kernels::table().transform(size, twiddles_.data() + result.twiddles, work[0]);
    // The conjugate correlates instead of convolving; 1/size belongs to the transform back, and is exact.
    for (std::size_t k = 0; k < size; ++k) {
        result.spectrum.push_back(work[k][0] / static_cast<double>(size));
        result.spectrum.push_back(-work[k][group_size / 2] / static_cast<double>(size));
    }
    return result;
}

std::span<const double> SlidingProducts::column(std::size_t i) const noexcept {
    return {columns_.data() + (toeplitz_ ? 0 : i * bands_), std::min(bands_, steps_ - i)};
}

double SlidingProducts::operations() const noexcept {
    return uses_transform() ? total_operations(rows_, bands_, steps_) / static_cast<double>(steps_)
                            : static_cast<double>(2 * bands_);
}

void SlidingProducts::compute(const Rows& in, std::size_t first, Rows& out) const {
    const std::size_t count = std::min(outputs_, steps_ - first);
    const auto& kernel = kernels::table();
    if (uses_transform()) {
        // The last block may be a shorter one.
        const Transform& plan =
            count <= transform_outputs(transforms_.back().size, bands_) ? transforms_.back() : transforms_[0];
        kernel.convolve(in[0], plan.size, twiddles_.data() + plan.twiddles, plan.spectrum.data(), out[0]);
    } else if (toeplitz_) {
        kernel.correlate(in[0], columns_.data(), bands_, count, out[0]);
    } else {
        kernel.correlate_columns(in[0], columns_.data() + first * bands_, bands_, count, out[0]);
    }
}

// ---- The recursion over participations --------------------------------------------------------------
//
// Forward in time, so that outputs are read as they are generated. a_i is the total weight (probability times
// likelihood ratio) of all histories before iteration i after which the example is available in i; h_i that
// of those that take part in i. With s = Pr[stay out], b the separation:
//     a_i = s a_{i-1} + h_{i-b} + w_i,    h_i = sum_m p_m e^{m u_i - m^2 |c_i|^2/2} a_i,
// w_i the probability that a warm start makes the example available in i. The sum of all weights after the
// last iteration, s a_{n-1} plus every h and w that has not become available yet, is P(y)/Q(y). w_0, ...,
// w_{b-1} is what the ring of the last b values of h starts with.

std::vector<double> half_norms(const Strategy& strategy, const Scheme& scheme, double noise_multiplier,
                               bool lower) {
    const std::size_t steps = strategy.steps();
    const auto scaled = [&](double square) { return square / noise_multiplier / noise_multiplier; };
    auto norms = strategy.squared_norms();
    for (double& norm : norms) norm = scaled(norm) / 2;
    if (const auto* scheme_bins = std::get_if<BallsInBins>(&scheme)) {
        const std::size_t bins = scheme_bins->bins;
        std::vector<double> sums(std::min(bins, steps), 0.0);
        for (std::size_t i = 0; i < steps; ++i) {
            double& sum = sums[i % bins];
            sum += norms[i];
            for (std::size_t j = i + bins; j < steps && j - i < strategy.bands(); j += bins) {
                sum += scaled(strategy.inner_product(i, j));
            }
        }
        return sums;
    }
    // Longer columns than the separation: the mean of several participations has a larger norm than the sum
    // of theirs. Without the inner products (all >= 0) the value is an upper bound, with their maximum a
    // lower one.
    if (lower) {
        const auto bounds = strategy.overlap_bounds(separation_of(scheme));
        for (std::size_t i = 0; i < steps; ++i) norms[i] += scaled(bounds[i]);
    }
    return norms;
}

std::size_t joint_examples(const Scheme& scheme, std::size_t steps) {
    check(scheme, steps);
    const auto* joint = std::get_if<IndependentBMinSep>(&scheme);
    if (joint == nullptr) throw std::invalid_argument("only for several examples per user");
    return JointStates::affordable(*joint, steps);
}

struct Mixture::Parameters {
    enum class Kind { chain, blocked, bins, joint, parts, mean };

    Kind kind = Kind::chain;
    std::size_t separation = 1;
    std::vector<double> half_norms;  // per iteration; for bins, per bin
    Factor stay{}, leave{};
    std::vector<Option> options;
    std::vector<Factor> start, powers;
    Factor outside{0.0, zero_exponent};  // the warm start makes it available after the last iteration
    bool truncated = false;
    double whole = 1, cut = 1;
    double scale = 1;                   // bins: factor of the products
    std::optional<JointStates> states;  // joint
    std::vector<Factor> couplings;      // joint: see coupling_row
    std::vector<double> plain_couplings;
    std::size_t lags = 0, rows = 0;
    std::vector<std::pair<std::shared_ptr<const Mixture>, double>> parts;  // a product of powers
    std::optional<SharedExample> shared;                                   // mean
    // e^{-<c_i, c_{i - d}>}, d = 1, ..., lags. All rows are alike where no column that meets another is cut
    // off.
    const Factor* coupling_row(std::size_t iteration, std::size_t steps) const {
        const std::size_t row = rows == steps              ? iteration
                                : iteration + rows > steps ? iteration + rows - steps
                                                           : 0;
        return couplings.data() + row * lags;
    }

    // See kernels::Chain.
    bool allows_short_form() const {
        return separation >= 8 && stay.mantissa > 0 && power(stay, separation).exponent >= -60 &&
               std::all_of(options.begin(), options.end(), [](const Option& option) {
                   return option.weight.exponent >= -100 && option.weight.exponent < 30;
               });
    }
};

void Mixture::couple(Parameters& p, const Strategy& strategy, double noise_multiplier) {
    const std::size_t steps = strategy.steps();
    p.lags = std::min(strategy.bands(), steps) - 1;
    // Toeplitz: one row for all iterations whose column is whole, and one for each of the others.
    p.rows = strategy.is_toeplitz() && steps >= 2 * (p.lags + 1) ? p.lags + 1 : steps;
    for (std::size_t row = 0; row < p.rows; ++row) {
        const std::size_t i = p.rows == steps ? row : row == 0 ? p.lags : steps - p.rows + row;
        for (std::size_t d = 1; d <= p.lags; ++d) {
            const double product = d <= i ? strategy.inner_product(i - d, i) : 0;
            const double exponent = -product / noise_multiplier / noise_multiplier;
            p.couplings.push_back(exponential_factor(exponent));
            p.plain_couplings.push_back(portable_exp(exponent));
        }
    }
}

Mixture::Mixture(const Strategy& strategy, const Scheme& scheme, double noise_multiplier, Numerator numerator,
                 bool lower, const Tilt& tilt)
    : parameters_(nullptr) {
    check(scheme, strategy.steps());
    auto p = std::make_unique<Parameters>();
    const std::size_t steps = strategy.steps();
    const double multiplicity = 1 + tilt.shift;
    const auto scaled = [&](double square) { return square / noise_multiplier / noise_multiplier; };
    const auto squares = strategy.squared_norms();
    const double largest = scaled(*std::max_element(squares.begin(), squares.end()));
    p->half_norms = half_norms(strategy, scheme, noise_multiplier, lower);

    // Whoever takes part once in so long a separation does not do so again.
    p->separation = std::min(separation_of(scheme), steps);
    const auto single = [&](const BMinSep& s, double m) {
        p->stay = factor(1 - s.probability);
        const double available = s.warm_start ? stationary_availability(s) : 1;
        const double later = s.warm_start ? s.probability * available : 0;
        p->start.assign(p->separation, factor(later));
        p->start[0] = factor(available);
        p->outside = factor(later * static_cast<double>(s.separation - p->separation));
        const Factor weight = factor(s.probability) * factor(tilt.theta);
        if (weight.mantissa > 0) p->options.push_back({weight, m});
    };
    double most = std::abs(multiplicity);
    if (const auto* s = std::get_if<BMinSep>(&scheme)) {
        single(*s, multiplicity);
    } else if (const auto* t = std::get_if<TruncatedBMinSep>(&scheme)) {
        p->truncated = true;
        p->whole = numerator == Numerator::present ? multiplicity : 0;
        single(t->base, p->whole);
        p->cut = numerator == Numerator::present ? 2 * multiplicity : -multiplicity;
        most *= 2;
    } else if (const auto* m = std::get_if<MultiAttribution>(&scheme)) {
        const auto weights = binomial_weights(m->examples, m->probability);
        p->stay = weights[0];
        Factor raised{1.0, 0.0};
        for (std::size_t j = 1; j <= m->examples; ++j) {
            p->leave = j == 1 ? weights[1] : p->leave + weights[j];
            raised = raised * factor(tilt.theta);
            const Factor weight = weights[j] * raised;
            if (weight.mantissa > 0) p->options.push_back({weight, static_cast<double>(j) * multiplicity});
        }
        p->start.assign(p->separation, factor(0));
        p->start[0] = factor(1);
        most *= static_cast<double>(m->examples);
        if (m->exact && p->separation > 1) {
            p->kind = Parameters::Kind::blocked;
            for (std::size_t k = 0; k < p->separation; ++k) p->powers.push_back(power(p->stay, k));
        }
    } else if (const auto* joint = std::get_if<IndependentBMinSep>(&scheme)) {
        if (strategy.bands() > joint->base.separation) {
            throw std::invalid_argument("several examples per user need bands <= separation");
        }
        if (tilt.theta != 1 || tilt.shift != 0) {
            throw std::invalid_argument("several examples per user cannot be tilted");
        }
        most *= static_cast<double>(joint->examples);
        const std::size_t together = JointStates::affordable(*joint, steps);
        if (together == joint->examples) {
            p->kind = Parameters::Kind::joint;
            p->states.emplace(*joint, steps);
            couple(*p, strategy, noise_multiplier);
        } else if (lower) {
            p->kind = Parameters::Kind::mean;
            p->shared.emplace(SharedExample{strategy, joint->base, noise_multiplier, joint->examples});
        } else {
            p->kind = Parameters::Kind::parts;
            const auto part = [&](std::size_t examples, std::size_t times) {
                if (examples > 0) {
                    p->parts.emplace_back(
                        std::make_shared<const Mixture>(strategy, IndependentBMinSep{joint->base, examples},
                                                        noise_multiplier),
                        static_cast<double>(times));
                }
            };
            part(together, joint->examples / together);
            part(joint->examples % together, 1);
        }
    } else {
        p->kind = Parameters::Kind::bins;
        p->scale = multiplicity;
        p->separation = std::get<BallsInBins>(scheme).bins;
        for (double& norm : p->half_norms) norm *= multiplicity * multiplicity;
    }
    // The kernels count binary exponents exactly up to 2^50. |u| <= (|c| + 40) |c| in units of sigma for
    // every output that is ever drawn.
    const double reach = most * std::sqrt(largest) + 40;
    if (!(static_cast<double>(steps) * reach * reach < 0x1p45)) {
        throw std::invalid_argument(
            "noise_multiplier is too small for this strategy: the privacy loss exceeds 2^45");
    }
    parameters_ = std::move(p);
}

Mixture::Mixture(const Strategy& strategy, const BMinSep& scheme, double noise_multiplier,
                 const Envelope& envelope)
    : Mixture(strategy, TruncatedBMinSep{scheme, 1, 1}, noise_multiplier) {
    // Losses are in range with multiplicity 2, and the rest is that of the scheme.
    auto p = std::make_unique<Parameters>(*parameters_);
    p->truncated = false;
    p->options.clear();
    const std::pair<double, double> choices[] = {
        {envelope.never, 0}, {envelope.once, 1}, {envelope.twice, 2}};
    for (const auto& [weight, multiplicity] : choices) {
        const Factor product = factor(scheme.probability) * factor(weight);
        if (product.mantissa > 0) p->options.push_back({product, envelope.sign * multiplicity});
    }
    parameters_ = std::move(p);
}

double Mixture::families() const noexcept {
    const Parameters& p = *parameters_;
    double sum = 0;
    if (p.states) {
        for (const std::size_t size : p.states->sizes) sum += static_cast<double>(size);
    }
    for (const auto& [part, times] : p.parts) sum += part->families();
    return p.shared ? 256 : sum;
}

Mixture::~Mixture() = default;
Mixture::Mixture(Mixture&&) noexcept = default;

struct Mixture::Evaluation::State {
    explicit State(const Parameters& p) : parameters(p) {
        const auto zeros = [](std::size_t count) { return Rows(count, zero_exponent); };
        if (p.kind == Parameters::Kind::bins) {
            ring_mantissa = Rows(p.half_norms.size());
            return;
        }
        if (p.kind == Parameters::Kind::mean) {
            ring_mantissa = Rows(p.half_norms.size());  // all products
            return;
        }
        if (p.kind == Parameters::Kind::parts) {
            for (const auto& [part, times] : p.parts) parts.emplace_back(*part);
            return;
        }
        if (p.kind == Parameters::Kind::joint) {
            const JointStates& states = *p.states;
            ring_mantissa = Rows(states.count);
            is_short = states.range > 0;
            for (std::size_t i = 0; i < states.count; ++i) {
                // What is no double is negligible; see kernels.cpp.
                const Factor& weight = states.start[i];
                const double plain = weight.exponent < -1100
                                         ? 0.0
                                         : std::ldexp(weight.mantissa, static_cast<int>(weight.exponent));
                std::fill_n(ring_mantissa[i], group_size, is_short ? plain : weight.mantissa);
            }
            for (Rows* rows : {&now_mantissa, &now_exponent}) *rows = Rows(states.examples);
            free_exponent = Rows(1);
            for (Rows* rows : {&suffix_exponent, &suffix_mantissa}) *rows = Rows(states.slots);
            coupling.assign(states.slots, {1.0, 0.0});
            plain_coupling.assign(states.slots, 1.0);
            lag.assign(states.slots, std::numeric_limits<std::uint32_t>::max());
            joint = {states.examples,
                     states.stride,
                     states.families.data(),
                     states.sizes.data(),
                     states.coefficients.data(),
                     ring_mantissa[0],
                     nullptr,
                     now_mantissa[0],
                     now_exponent[0],
                     free_exponent[0],
                     suffix_exponent[0],
                     suffix_mantissa[0],
                     states.slots,
                     states.plain_coefficients.data(),
                     states.range};
            if (!is_short) {
                ring_exponent = Rows(states.count);
                joint.exponent = ring_exponent[0];
                for (std::size_t i = 0; i < states.count; ++i) {
                    std::fill_n(ring_exponent[i], group_size, states.start[i].exponent);
                }
            }
            return;
        }
        free_mantissa = Rows(1);
        free_exponent = zeros(1);
        const std::size_t window = p.separation - 1;
        if (p.kind == Parameters::Kind::blocked) {
            for (Rows* rows : {&ring_mantissa, &suffix_mantissa, &now_mantissa}) *rows = Rows(window);
            for (Rows* rows : {&ring_exponent, &suffix_exponent, &now_exponent}) *rows = zeros(window);
            front_mantissa = Rows(1);
            front_exponent = zeros(1);
            std::fill_n(free_mantissa[0], group_size, 1.0);
            std::fill_n(free_exponent[0], group_size, 0.0);
            blocked = {window,
                       p.stay,
                       p.leave,
                       p.powers.data(),
                       p.options.data(),
                       p.options.size(),
                       free_mantissa[0],
                       free_exponent[0],
                       front_mantissa[0],
                       front_exponent[0],
                       ring_mantissa[0],
                       ring_exponent[0],
                       suffix_mantissa[0],
                       suffix_exponent[0],
                       now_mantissa[0],
                       now_exponent[0],
                       0};
            return;
        }
        ring_mantissa = Rows(p.separation);
        ring_exponent = zeros(p.separation);
        for (std::size_t i = 0; i < p.separation; ++i) {
            std::fill_n(ring_mantissa[i], group_size, p.start[i].mantissa);
            std::fill_n(ring_exponent[i], group_size, p.start[i].exponent);
        }
        if (p.allows_short_form()) past_exponent = Rows(1);
        chain = {p.separation,     p.stay,
                 p.options.data(), p.options.size(),
                 free_mantissa[0], free_exponent[0],
                 ring_mantissa[0], ring_exponent[0],
                 p.outside,        0,
                 past_exponent[0], false};
    }

    const Parameters& parameters;
    std::size_t done = 0;
    Rows free_mantissa, free_exponent, ring_mantissa, ring_exponent, past_exponent;
    Rows front_mantissa, front_exponent, suffix_mantissa, suffix_exponent, now_mantissa, now_exponent;
    kernels::Chain chain{};
    kernels::BlockedChain blocked{};
    kernels::JointChain joint{};
    // From the short form of the joint chain to the long one, which it keeps.
    void lengthen() {
        const JointStates& states = *parameters.states;
        ring_exponent = Rows(states.count);
        joint.exponent = ring_exponent[0];
        for (std::size_t i = 0; i < states.count; ++i) {
            std::copy_n(free_exponent[0], group_size, ring_exponent[i]);
        }
        // Where all are barred: the last rows of the families.
        const std::uint32_t* entry = states.families.data();
        for (std::size_t slot = 0; slot < states.separation; ++slot) {
            for (std::size_t barred = 0; barred < states.examples; ++barred) {
                for (std::size_t family = 0; family < states.sizes[barred]; ++family) {
                    std::size_t latest = slot;
                    for (std::size_t i = 0; i < barred; ++i, ++entry) {
                        if (lag[*entry] < lag[latest]) latest = *entry;
                    }
                    const std::size_t last = entry[states.examples - barred];
                    std::copy_n(suffix_exponent[latest], group_size, ring_exponent[last]);
                    entry += states.examples - barred + 1;
                }
            }
        }
        // And the very last one, where all are barred for good, which is in no family.
        if (states.slots > states.separation) {
            std::copy_n(suffix_exponent[states.separation], group_size, ring_exponent[states.count - 1]);
        }
        for (std::size_t i = 0; i < states.count; ++i) {
            for (std::size_t s = 0; s < group_size; ++s) {
                double& mantissa = ring_mantissa[i][s];
                if (std::isnan(mantissa)) continue;
                const Factor value = factor(mantissa);
                mantissa = value.mantissa;
                ring_exponent[i][s] = mantissa == 0 ? zero_exponent : ring_exponent[i][s] + value.exponent;
            }
        }
        is_short = false;
    }

    // joint: by slot, what whoever takes part in the iteration meets, and how long ago it was set free.
    std::vector<Factor> coupling;
    std::vector<double> plain_coupling;
    std::vector<std::uint32_t> lag;
    bool is_short = false;
    std::vector<Evaluation> parts;
};

Mixture::Evaluation::Evaluation(const Mixture& mixture)
    : state_(std::make_unique<State>(*mixture.parameters_)) {}

Mixture::Evaluation::~Evaluation() = default;
Mixture::Evaluation::Evaluation(Evaluation&&) noexcept = default;

void Mixture::Evaluation::add(const double* products, std::size_t count, const double* survival) {
    State& state = *state_;
    const Parameters& p = state.parameters;
    const auto& kernel = kernels::table();
    if (p.kind == Parameters::Kind::parts) {
        for (Evaluation& part : state.parts) part.add(products, count, survival);
    } else if (p.kind == Parameters::Kind::mean) {
        std::copy_n(products, count * group_size, state.ring_mantissa[state.done]);
    } else if (p.kind == Parameters::Kind::joint) {
        const std::size_t b = p.states->separation, steps = p.half_norms.size();
        for (std::size_t row = 0; row < count; ++row) {
            const std::size_t i = state.done + row, slot = i % b;
            const Factor* const met = p.coupling_row(i, steps);
            const double* const plain_met = p.plain_couplings.data() + (met - p.couplings.data());
            for (std::size_t d = 1; d < b; ++d) {
                // Whom the start has barred has no column.
                const std::size_t earlier = (slot + b - d) % b;
                const bool meets = d <= p.lags && d <= i;
                state.coupling[earlier] = meets ? met[d - 1] : Factor{1.0, 0.0};
                state.plain_coupling[earlier] = meets ? plain_met[d - 1] : 1.0;
                state.lag[earlier] = static_cast<std::uint32_t>(d);
            }
            state.lag[slot] = static_cast<std::uint32_t>(b);
            const double* const now = products + row * group_size;
            if (state.is_short && kernel.advance_joint_short(state.joint, now, p.half_norms[i], slot,
                                                             state.plain_coupling.data(), state.lag.data())) {
                continue;
            }
            if (state.is_short) state.lengthen();
            kernel.advance_joint(state.joint, now, p.half_norms[i], slot, state.coupling.data());
        }
    } else if (p.kind == Parameters::Kind::bins) {
        const std::size_t bins = state.ring_mantissa.count();
        for (std::size_t i = 0; i < count; ++i) {
            // More bins than iterations: the rest stays empty.
            double* sum = state.ring_mantissa[(state.done + i) % p.separation % bins];
            for (std::size_t s = 0; s < group_size; ++s) sum[s] += p.scale * products[i * group_size + s];
        }
    } else {
        const double* half_norms = p.half_norms.data() + state.done;
        if (p.kind == Parameters::Kind::blocked) {
            kernel.advance_blocked(state.blocked, products, half_norms, count);
        } else if (p.truncated && survival != nullptr && !p.options.empty()) {
            kernel.advance_truncated(state.chain, {survival, p.whole, p.cut}, products, half_norms, count);
        } else {
            kernel.advance(state.chain, products, half_norms, count);
        }
    }
    state.done += count;
}

void Mixture::Evaluation::finish(double* out) const {
    State& state = *state_;
    const Parameters& p = state.parameters;
    const auto& kernel = kernels::table();
    alignas(64) double row[group_size];
    switch (p.kind) {
        case Parameters::Kind::chain:
            kernel.finish(state.chain, row);
            break;
        case Parameters::Kind::blocked:
            kernel.finish_blocked(state.blocked, row);
            break;
        case Parameters::Kind::joint:
            if (state.is_short) {
                // As in an iteration after the last one.
                for (std::size_t slot = 0; slot < p.states->separation; ++slot) {
                    std::uint32_t& age = state.lag[slot];
                    age = age == p.states->separation ? 1 : age + 1;
                }
                state.lengthen();
            }
            kernel.finish_joint(state.joint, p.states->count, row);
            break;
        case Parameters::Kind::parts:
            std::fill_n(row, group_size, 0.0);
            for (std::size_t k = 0; k < p.parts.size(); ++k) {
                double part[group_size];
                state.parts[k].finish(part);
                for (std::size_t s = 0; s < group_size; ++s) row[s] += p.parts[k].second * part[s];
            }
            break;
        case Parameters::Kind::mean: {
            std::vector<double> products(p.half_norms.size());
            for (std::size_t s = 0; s < group_size; ++s) {
                for (std::size_t i = 0; i < products.size(); ++i) products[i] = state.ring_mantissa[i][s];
                row[s] = p.shared->log_ratio(products, p.half_norms);
            }
            break;
        }
        case Parameters::Kind::bins: {
            const std::size_t bins = p.half_norms.size();
            kernel.log_sum_exp(state.ring_mantissa[0], p.half_norms.data(), bins,
                               static_cast<double>(p.separation - bins), row);
            const double log_bins = portable_log(static_cast<double>(p.separation));
            for (double& x : row) x -= log_bins;
            break;
        }
    }
    std::copy_n(row, group_size, out);
}

}  // namespace hockeystick
