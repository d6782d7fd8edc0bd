// The recursions behind Mixture, one for each kind of scheme, and what the kernels are given for them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hockeystick/likelihood.hpp"
#include "montecarlo/kernels.hpp"
#include "numerics/extended.hpp"

namespace hockeystick {

// What a mixture is over one group of outputs, and what is known of it before the outputs.
struct Mixture::Evaluation::State {
    virtual ~State() = default;
    virtual void add(const double* products, std::size_t count, const double* survival) = 0;
    virtual void finish(double* out) = 0;
};
struct Mixture::Form {
    std::function<std::unique_ptr<Evaluation::State>()> start;
    double families = 0;
};

// The form whose states are made from these parameters.
template <class State, class Parameters>
Mixture::Form form_of(Parameters parameters, double families = 0) {
    const auto shared = std::make_shared<const Parameters>(std::move(parameters));
    return {[shared] { return std::make_unique<State>(*shared); }, families};
}

constexpr double zero_exponent = static_cast<double>(Extended::none);  // of a zero; see lanes.hpp

// The same for all samples: what the kernels are given.
inline kernels::Factor factor(const Extended& x) { return {x.mantissa, static_cast<double>(x.exponent)}; }

// Rows of numbers in the extended range, 0 to begin with.
struct ExtendedRows {
    ExtendedRows() = default;
    explicit ExtendedRows(std::size_t count) : mantissa(count), exponent(count, zero_exponent) {}
    void set(std::size_t row, const Extended& value);
    kernels::ExtendedView view() noexcept { return {mantissa[0], exponent[0]}; }

    Rows mantissa, exponent;
};

// How one example, or a user, takes part: the chain of participations.
struct ParticipationChain {
    ParticipationChain(const BMinSep& scheme, std::size_t steps, double theta, double multiplicity);
    ParticipationChain(const MultiAttribution& scheme, std::size_t steps, double theta, double multiplicity);

    std::size_t
        separation;  // at most `steps`: whoever takes part once in so long a separation does not again
    Extended stay, leave;
    std::vector<Extended> start;  // by iteration, below `separation`
    Extended outside;             // the warm start makes it available after the last iteration
    std::vector<kernels::Option> options;
};

// The multiplicity of a participation that survives, in rounds that are whole and in those that are cut.
struct CutMultiplicities {
    double whole, cut;
};

Mixture::Form chain_form(ParticipationChain chain, std::vector<double> half_norms,
                         std::optional<CutMultiplicities> truncation = {});
// The exact law of multi-attribution.
Mixture::Form blocked_form(ParticipationChain chain, std::vector<double> half_norms);
Mixture::Form bins_form(std::size_t bins, double multiplicity, std::vector<double> half_norms);
// Several examples with independent chains, exactly or as a bound; see joint_examples.
Mixture::Form joint_form(const Strategy& strategy, const IndependentBMinSep& scheme, double noise_multiplier,
                         std::vector<double> half_norms, bool lower);

}  // namespace hockeystick
