// The likelihood of several examples of one user with independent chains: jointly by their states, as a
// product of powers, or as a bound by what one example does on average (docs/sampling/attribution.md,
// "Independent examples").
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "montecarlo/half_space.hpp"
#include "montecarlo/joint_states.hpp"
#include "montecarlo/mixture_forms.hpp"
#include "montecarlo/proposal.hpp"
#include "numerics/constants.hpp"
#include "numerics/require.hpp"

namespace hockeystick {
namespace {

using kernels::Factor;

struct JointParameters {
    JointParameters(const MatrixMechanism& mechanism, const IndependentBMinSep& scheme,
                    std::vector<double> norms)
        : half_norms(std::move(norms)), states(scheme, mechanism.steps()) {
        const auto& [strategy, whole, noise_multiplier] = mechanism;
        const std::size_t steps = strategy.steps();
        lags = std::min(strategy.bands(), steps) - 1;
        // Toeplitz: one row for all iterations whose column is whole, and one for each of the others.
        rows = strategy.is_toeplitz() && steps >= 2 * (lags + 1) ? lags + 1 : steps;
        for (std::size_t row = 0; row < rows; ++row) {
            const std::size_t i = rows == steps ? row : row == 0 ? lags : steps - rows + row;
            for (std::size_t d = 1; d <= lags; ++d) {
                const double product = d <= i ? strategy.inner_product(i - d, i) : 0;
                const double exponent = -product / noise_multiplier / noise_multiplier;
                couplings.push_back(factor(Extended::exponential(exponent)));
                plain_couplings.push_back(portable_exp(exponent));
            }
        }
    }
    // Where in the couplings e^{-<c_i, c_{i - d}>}, d = 1, ..., lags, are. All rows are alike where no column
    // that meets another is cut off.
    std::size_t coupling_row(std::size_t i) const {
        const std::size_t steps = half_norms.size();
        return lags * (rows == steps ? i : i + rows > steps ? i + rows - steps : 0);
    }

    std::vector<double> half_norms;
    JointStates states;
    std::size_t lags, rows;
    std::vector<Factor> couplings;
    std::vector<double> plain_couplings;
};

class JointState final : public Mixture::Evaluation {
public:
    explicit JointState(const JointParameters& form)
        : form_(form),
          ratios_(form.states.examples),
          scale_(1),
          slot_scale_(form.states.slots),
          relative_(form.states.slots),
          is_short_(form.states.range > 0),
          coupling_(form.states.slots, Factor{1.0, 0.0}),
          plain_coupling_(form.states.slots, 1.0),
          lag_(form.states.slots, std::numeric_limits<std::uint32_t>::max()) {
        const JointStates& states = form.states;
        if (is_short_) {
            weights_.mantissa = Rows(states.count);
        } else {
            weights_ = ExtendedRows(states.count);
        }
        for (std::size_t i = 0; i < states.count; ++i) {
            // In the short form, what is no double is negligible; see joint_lanes.hpp.
            if (is_short_) std::fill_n(weights_.mantissa[i], group_size, states.start[i].value());
            if (!is_short_) weights_.set(i, states.start[i]);
        }
        chain_ = {states.examples,
                  states.stride,
                  states.families.data(),
                  states.sizes.data(),
                  states.coefficients.data(),
                  weights_.view(),
                  ratios_.view(),
                  scale_[0],
                  slot_scale_[0],
                  relative_[0],
                  states.slots,
                  states.plain_coefficients.data(),
                  states.range};
    }

    void add(const double* products, std::size_t count, const double*) override {
        for (std::size_t row = 0; row < count; ++row, ++done_) advance(products + row * group_size);
    }

    void finish(double* out) override {
        if (is_short_) {
            // As in an iteration after the last one.
            const std::size_t b = form_.states.separation;
            for (std::size_t slot = 0; slot < b; ++slot) lag_[slot] = lag_[slot] == b ? 1 : lag_[slot] + 1;
            lengthen();
        }
        kernels::table().finish_joint(chain_, form_.states.count, out);
    }

private:
    void advance(const double* products) {
        const std::size_t b = form_.states.separation, slot = done_ % b, row = form_.coupling_row(done_);
        for (std::size_t d = 1; d < b; ++d) {
            // Whom the start has barred has no column.
            const std::size_t earlier = (slot + b - d) % b;
            const bool meets = d <= form_.lags && d <= done_;
            coupling_[earlier] = meets ? form_.couplings[row + d - 1] : Factor{1.0, 0.0};
            plain_coupling_[earlier] = meets ? form_.plain_couplings[row + d - 1] : 1.0;
            lag_[earlier] = static_cast<std::uint32_t>(d);
        }
        lag_[slot] = static_cast<std::uint32_t>(b);
        const auto& kernel = kernels::table();
        const double half_norm = form_.half_norms[done_];
        if (is_short_ && kernel.advance_joint_short(chain_, products, half_norm, slot, plain_coupling_.data(),
                                                    lag_.data())) {
            return;
        }
        if (is_short_) lengthen();
        kernel.advance_joint(chain_, products, half_norm, slot, coupling_.data());
    }

    // From the short form to the long one, which it keeps.
    void lengthen() {
        const JointStates& states = form_.states;
        Rows& exponents = weights_.exponent = Rows(states.count);
        chain_.weights = weights_.view();
        for (std::size_t i = 0; i < states.count; ++i) std::copy_n(scale_[0], group_size, exponents[i]);
        // Where all are barred: the last rows of the families.
        const std::uint32_t* entry = states.families.data();
        for (std::size_t slot = 0; slot < states.separation; ++slot) {
            for (std::size_t barred = 0; barred < states.examples; ++barred) {
                for (std::size_t family = 0; family < states.sizes[barred]; ++family) {
                    std::size_t latest = slot;
                    for (std::size_t i = 0; i < barred; ++i, ++entry) {
                        if (lag_[*entry] < lag_[latest]) latest = *entry;
                    }
                    std::copy_n(slot_scale_[latest], group_size, exponents[entry[states.examples - barred]]);
                    entry += states.examples - barred + 1;
                }
            }
        }
        // And the very last one, where all are barred for good, which is in no family.
        if (states.slots > states.separation) {
            std::copy_n(slot_scale_[states.separation], group_size, exponents[states.count - 1]);
        }
        for (std::size_t i = 0; i < states.count; ++i) {
            for (std::size_t s = 0; s < group_size; ++s) {
                double& mantissa = weights_.mantissa[i][s];
                if (std::isnan(mantissa)) continue;
                const Factor value = factor(Extended(mantissa));
                mantissa = value.mantissa;
                exponents[i][s] = mantissa == 0 ? zero_exponent : exponents[i][s] + value.exponent;
            }
        }
        is_short_ = false;
    }

    const JointParameters& form_;
    std::size_t done_ = 0;
    ExtendedRows weights_, ratios_;  // of the states; e^{j u - j^2 |c|^2/2}
    Rows scale_, slot_scale_, relative_;
    bool is_short_;
    // By slot, what whoever takes part in the iteration meets, and how long ago it was set free.
    std::vector<Factor> coupling_;
    std::vector<double> plain_coupling_;
    std::vector<std::uint32_t> lag_;
    kernels::JointChain chain_{};
};

// A product of powers.
using Powers = std::vector<std::pair<Mixture::Form, double>>;

class PowersState final : public Mixture::Evaluation {
public:
    explicit PowersState(const Powers& powers) {
        for (const auto& [part, times] : powers) parts_.emplace_back(part.start(), times);
    }
    void add(const double* products, std::size_t count, const double* survival) override {
        for (auto& [part, times] : parts_) part->add(products, count, survival);
    }
    void finish(double* out) override {
        std::fill_n(out, group_size, 0.0);
        for (auto& [part, times] : parts_) {
            alignas(64) double row[group_size];
            part->finish(row);
            for (std::size_t s = 0; s < group_size; ++s) out[s] += times * row[s];
        }
    }

private:
    std::vector<std::pair<std::unique_ptr<Mixture::Evaluation>, double>> parts_;
};

// A bound from below by what an output says about one example. ||C sum x^a||^2 has, besides the |C x^a|^2,
// the terms 2 <C x^a, C x^b>. Given the output, and without these terms, the x^a are independent: by Jensen's
// inequality
//     P/Q >= (P_1/Q)^k e^{-k (k-1)/2 |C m|^2/sigma^2},     m = E[x | output] of one example.
// Nor is it less than the probability that nobody takes part.
struct SharedParameters {
    // The logarithm of the larger one.
    double log_ratio(std::span<const double> products) const {
        const Posterior one = posterior(scheme.base, products, half_norms);
        std::vector<double> sums(products.size(), 0.0);
        for (std::size_t i = 0; i < sums.size(); ++i) {
            const auto column = mechanism.strategy.column(i);
            for (std::size_t k = 0; k < column.size(); ++k) sums[i + k] += column[k] * one.means[i];
        }
        const double sigma = mechanism.noise_multiplier;
        double square = 0;
        for (const double sum : sums) square += sum / sigma * (sum / sigma);
        const auto k = static_cast<double>(scheme.examples);
        return k * std::max(one.log_ratio - (k - 1) / 2 * square, log_none);
    }

    MatrixMechanism mechanism;
    IndependentBMinSep scheme;
    std::vector<double> half_norms;
    double log_none;  // ln of the probability that one example never takes part
};

class SharedState final : public Mixture::Evaluation {
public:
    explicit SharedState(const SharedParameters& form) : form_(form), products_(form.half_norms.size()) {}

    void add(const double* products, std::size_t count, const double*) override {
        std::copy_n(products, count * group_size, products_[done_]);
        done_ += count;
    }
    void finish(double* out) override {
        std::vector<double> products(products_.count());
        for (std::size_t s = 0; s < group_size; ++s) {
            for (std::size_t i = 0; i < products.size(); ++i) products[i] = products_[i][s];
            out[s] = form_.log_ratio(products);
        }
    }

private:
    const SharedParameters& form_;
    std::size_t done_ = 0;
    Rows products_;
};

}  // namespace

Mixture::Form joint_form(const MatrixMechanism& mechanism, const IndependentBMinSep& scheme,
                         std::vector<double> half_norms, bool lower) {
    require(mechanism.strategy.bands() <= scheme.base.separation,
            "several examples per user need bands <= separation");
    const std::size_t together = JointStates::affordable(scheme, mechanism.steps());
    if (together == scheme.examples) {
        JointParameters joint(mechanism, scheme, std::move(half_norms));
        double families = 0;
        for (const std::size_t size : joint.states.sizes) families += static_cast<double>(size);
        return form_of<JointState>(std::move(joint), families);
    }
    if (lower) {
        constexpr double families = 256;  // speed: about what a posterior takes
        // Products of so many factors, rounded down (proof).
        const double rounding = 8 * u * static_cast<double>(mechanism.steps() + scheme.base.separation),
                     log_none =
                         tilted_law(scheme.base, mechanism.steps(), {0, 0})->log_normaliser() - rounding;
        return form_of<SharedState>(SharedParameters{mechanism, scheme, std::move(half_norms), log_none},
                                    families);
    }
    Powers powers;
    double families = 0;
    const auto part = [&](std::size_t examples, std::size_t times) {
        if (examples == 0) return;
        const IndependentBMinSep some{scheme.base, examples};
        powers.emplace_back(joint_form(mechanism, some, half_norms, false), static_cast<double>(times));
        families += powers.back().first.families;
    };
    part(together, scheme.examples / together);
    part(scheme.examples % together, 1);
    return form_of<PowersState>(std::move(powers), families);
}

}  // namespace hockeystick
