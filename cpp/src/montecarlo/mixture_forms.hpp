// The recursions behind Mixture, one for each kind of scheme, and what the kernels are given for them.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hockeystick/likelihood.hpp"
#include "montecarlo/kernels.hpp"
#include "montecarlo/participation_chain.hpp"

namespace hockeystick {

// The form whose states are made from these parameters.
template <class State, class Parameters>
Mixture::Form form_of(Parameters parameters, double families = 0, std::size_t rows = 1) {
    const auto shared = std::make_shared<const Parameters>(std::move(parameters));
    return {[shared] { return std::make_unique<State>(*shared); }, families, rows};
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

// The multiplicity of a participation that survives, in rounds that are whole and in those that are cut.
struct CutMultiplicities {
    double whole, cut;
};

// Chains that differ in their weights alone; their multiplicities are taken so many times.
Mixture::Form chain_form(std::vector<ParticipationChain> chains, double multiplicity,
                         std::vector<double> half_norms, std::optional<CutMultiplicities> truncation = {});
// The exact law of multi-attribution.
Mixture::Form blocked_form(const ParticipationChain& chain, double multiplicity,
                           std::vector<double> half_norms);
Mixture::Form bins_form(std::size_t bins, double multiplicity, std::vector<double> half_norms);
// Several examples with independent chains, exactly or as a bound; see joint_examples.
Mixture::Form joint_form(const MatrixMechanism& mechanism, const IndependentBMinSep& scheme,
                         std::vector<double> half_norms, bool lower);

}  // namespace hockeystick
