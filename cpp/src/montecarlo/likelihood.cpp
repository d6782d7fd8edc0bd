// The privacy loss of 16 outputs at a time: which recursion a scheme has, and what it is given.
#include "hockeystick/likelihood.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <new>
#include <utility>

#include "montecarlo/joint_states.hpp"
#include "montecarlo/mixture_forms.hpp"
#include "numerics/require.hpp"

namespace hockeystick {

static_assert(group_size == kernels::group);

namespace {

// The kernels count binary exponents exactly up to 2^50. |u| <= (|c| + 40) |c| in units of sigma for every
// output that is ever drawn.
void check_range(const MatrixMechanism& mechanism, double most) {
    const double sigma = mechanism.noise_multiplier;
    const auto squares = mechanism.strategy.squared_norms();
    const double largest = *std::max_element(squares.begin(), squares.end());
    const double reach = most * std::sqrt(largest / sigma / sigma) + 40;
    require(static_cast<double>(mechanism.steps()) * reach * reach < 0x1p45,
            "noise_multiplier is too small for this strategy: the privacy loss exceeds 2^45");
}

// Of the recursion of each scheme, with multiplicities times `multiplicity`.
struct Making {
    const MatrixMechanism& mechanism;
    Numerator numerator;
    bool lower;
    std::vector<double> thetas;
    double multiplicity;
    std::vector<double> half_norms;

    std::vector<ParticipationChain> chains(const auto& s) const {
        std::vector<ParticipationChain> found;
        for (const double theta : thetas) found.emplace_back(s, mechanism.steps(), theta);
        return found;
    }
    Mixture::Form operator()(const BMinSep& s) { return chain_form(chains(s), multiplicity, half_norms); }
    Mixture::Form operator()(const TruncatedBMinSep& s) {
        const bool present = numerator == Numerator::present;
        const CutMultiplicities truncation{present ? multiplicity : 0,
                                           present ? 2 * multiplicity : -multiplicity};
        return chain_form(chains(s), truncation.whole, half_norms, truncation);
    }
    Mixture::Form operator()(const MultiAttribution& s) {
        auto found = chains(s);
        if (!s.exact || found[0].separation == 1)
            return chain_form(std::move(found), multiplicity, half_norms);
        require(thetas.size() == 1, "the exact law of multi-attribution has no table");
        return blocked_form(found[0], multiplicity, half_norms);
    }
    Mixture::Form operator()(const BallsInBins& s) { return bins_form(s.bins, multiplicity, half_norms); }
    Mixture::Form operator()(const IndependentBMinSep& s) {
        require(thetas == std::vector{1.0} && multiplicity == 1,
                "several examples per user cannot be tilted");
        return joint_form(mechanism, s, half_norms, lower);
    }
};

// How often a column counts at most, in units of the multiplicity.
double most_participations(const Scheme& scheme) {
    if (std::holds_alternative<TruncatedBMinSep>(scheme)) return 2;
    if (const auto* multi = std::get_if<MultiAttribution>(&scheme))
        return static_cast<double>(multi->examples);
    const auto* joint = std::get_if<IndependentBMinSep>(&scheme);
    return joint != nullptr ? static_cast<double>(joint->examples) : 1;
}

// The memory of a thread's last rows, for its next ones of the same length: every group of samples has the
// same, and the operating system would take large pieces back and clear them page by page.
struct Spare {
    struct Piece {
        std::size_t bytes = 0;
        double* data = nullptr;
    };
    ~Spare() {
        for (Piece& piece : pieces) std::free(std::exchange(piece, {1, nullptr}).data);
    }
    // Makes the first piece of `wanted` bytes, 0 for none, another one.
    double* exchange(std::size_t wanted, const Piece& piece, double* otherwise) noexcept {
        const auto found = std::find_if(pieces.begin(), pieces.end(),
                                        [wanted](const Piece& p) { return p.bytes == wanted; });
        return found == pieces.end() ? otherwise : std::exchange(*found, piece).data;
    }
    static constexpr std::size_t largest = std::size_t{1} << 19;  // speed
    std::array<Piece, 64> pieces;                                 // speed
};

thread_local Spare spare;

}  // namespace

void check_noise_multiplier(double noise_multiplier) {
    require(noise_multiplier > 0 && std::isfinite(noise_multiplier),
            "noise_multiplier must be positive and finite");
}

void Rows::Release::operator()(double* p) const noexcept {
    std::free(bytes <= Spare::largest ? spare.exchange(0, {bytes, p}, p) : p);
}

Rows Rows::scratch(std::size_t count) {
    constexpr std::size_t row = group_size * sizeof(double);
    if (count > std::numeric_limits<std::size_t>::max() / row) throw std::bad_alloc();
    const std::size_t bytes = std::max<std::size_t>(count, 1) * row;
    double* data = spare.exchange(bytes, {}, nullptr);
    if (data == nullptr) data = static_cast<double*>(std::aligned_alloc(64, bytes));
    if (data == nullptr) throw std::bad_alloc();
    Rows rows;
    rows.data_ = {data, Release{bytes}};
    rows.count_ = count;
    return rows;
}

void Rows::fill(double value) noexcept { std::fill_n(data_.get(), count_ * group_size, value); }

void Rows::by_sample(std::size_t count, double* to, std::size_t stride) const noexcept {
    for (std::size_t s = 0; s < group_size; ++s) {
        for (std::size_t k = 0; k < count; ++k) to[s * stride + k] = (*this)[k][s];
    }
}

std::vector<double> half_norms(const MatrixMechanism& mechanism, bool lower) {
    const Strategy& strategy = mechanism.strategy;
    const std::size_t steps = strategy.steps();
    const auto scaled = [sigma = mechanism.noise_multiplier](double x) { return x / sigma / sigma; };
    auto norms = strategy.squared_norms();
    for (double& norm : norms) norm = scaled(norm) / 2;
    if (const auto* scheme_bins = std::get_if<BallsInBins>(&mechanism.scheme)) {
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
    // lower one (docs/montecarlo/estimates.md, "Schemes and their recursions").
    if (lower) {
        const auto bounds = strategy.overlap_bounds(separation(mechanism.scheme));
        for (std::size_t i = 0; i < steps; ++i) norms[i] += scaled(bounds[i]);
    }
    return norms;
}

std::size_t joint_examples(const Scheme& scheme, std::size_t steps) {
    check(scheme, steps);
    const auto* joint = std::get_if<IndependentBMinSep>(&scheme);
    require(joint != nullptr, "only for several examples per user");
    return JointStates::affordable(*joint, steps);
}

Mixture::Mixture(const MatrixMechanism& mechanism, Numerator numerator, bool lower, const Tilt& tilt,
                 std::span<const double> more) {
    check(mechanism.scheme, mechanism.steps());
    const double multiplicity = 1 + tilt.shift;
    std::vector<double> thetas{tilt.theta};
    thetas.insert(thetas.end(), more.begin(), more.end());
    form_ = std::visit(
        Making{mechanism, numerator, lower, std::move(thetas), multiplicity, half_norms(mechanism, lower)},
        mechanism.scheme);
    check_range(mechanism, std::abs(multiplicity) * most_participations(mechanism.scheme));
}

Mixture::Mixture(const MatrixMechanism& mechanism, const Envelope& envelope) {
    const BMinSep& base = *chain_of(mechanism.scheme);
    check(base, mechanism.steps());
    form_ = chain_form({ParticipationChain(base, mechanism.steps(), envelope)}, envelope.sign,
                       half_norms(mechanism, false));
    check_range(mechanism, 2);
}

}  // namespace hockeystick
