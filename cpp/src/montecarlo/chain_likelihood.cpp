// The recursion over participations of one chain, and the sum over balls-in-bins
// (docs/montecarlo/estimates.md, "Schemes and their recursions").
//
// Forward in time, so that outputs are read as they are generated. a_i is the total weight (probability times
// likelihood ratio) of all histories before iteration i after which the example is available in i; h_i that
// of those that take part in i. With s = Pr[stay out], b the separation:
//     a_i = s a_{i-1} + h_{i-b} + w_i,    h_i = sum_m p_m e^{m u_i - m^2 |c_i|^2/2} a_i,
// w_i the probability that a warm start makes the example available in i. The sum of all weights after the
// last iteration, s a_{n-1} plus every h and w that has not become available yet, is P(y)/Q(y). w_0, ...,
// w_{b-1} is what the ring of the last b values of h starts with.
#include <algorithm>
#include <optional>
#include <utility>

#include "montecarlo/mixture_forms.hpp"

namespace hockeystick {
namespace {

std::vector<kernels::Option> options(const ParticipationChain& chain, double multiplicity) {
    std::vector<kernels::Option> out;
    for (const Choice& choice : chain.choices) {
        out.push_back({factor(choice.weight), choice.multiplicity * multiplicity});
    }
    return out;
}

struct ChainParameters {
    // See kernels::Chain.
    bool allows_short_form() const {
        return chain.separation >= 8 && !chain.stay.is_zero() &&
               power(chain.stay, chain.separation).exponent >= -60 &&
               std::all_of(options.begin(), options.end(), [](const auto& option) {
                   return option.weight.exponent >= -100 && option.weight.exponent < 30;
               });
    }

    ParticipationChain chain;
    std::vector<kernels::Option> options;
    std::vector<double> half_norms;
    std::optional<CutMultiplicities> truncation;
};

class ChainState final : public Mixture::Evaluation {
public:
    explicit ChainState(const ChainParameters& form)
        : form_(form), free_(1), ring_(form.chain.separation), past_(1) {
        const ParticipationChain& chain = form.chain;
        for (std::size_t i = 0; i < chain.separation; ++i) ring_.set(i, chain.start[i]);
        chain_ = {chain.separation,
                  factor(chain.stay),
                  form.options.data(),
                  form.options.size(),
                  free_.view(),
                  ring_.view(),
                  factor(chain.outside),
                  0,
                  form.allows_short_form() ? past_[0] : nullptr,
                  false};
    }

    void add(const double* products, std::size_t count, const double* survival) override {
        const double* const half_norms = form_.half_norms.data() + done_;
        if (form_.truncation && survival != nullptr && !form_.options.empty()) {
            kernels::table().advance_truncated(chain_,
                                               {survival, form_.truncation->whole, form_.truncation->cut},
                                               products, half_norms, count);
        } else {
            kernels::table().advance(chain_, products, half_norms, count);
        }
        done_ += count;
    }
    void finish(double* out) override { kernels::table().finish(chain_, out); }

private:
    const ChainParameters& form_;
    std::size_t done_ = 0;
    ExtendedRows free_, ring_;
    Rows past_;
    kernels::Chain chain_{};
};

struct BlockedParameters {
    ParticipationChain chain;
    std::vector<kernels::Option> options;
    std::vector<double> half_norms;
    std::vector<kernels::Factor> powers;  // of `stay`, below the separation
};

class BlockedState final : public Mixture::Evaluation {
public:
    explicit BlockedState(const BlockedParameters& form)
        : form_(form),
          free_(1),
          front_(1),
          past_(form.chain.separation - 1),
          suffix_(form.chain.separation - 1),
          now_(form.chain.separation - 1) {
        free_.set(0, Extended(1.0));
        chain_ = {form.chain.separation - 1,
                  factor(form.chain.stay),
                  factor(form.chain.leave),
                  form.powers.data(),
                  form.options.data(),
                  form.options.size(),
                  free_.view(),
                  front_.view(),
                  past_.view(),
                  suffix_.view(),
                  now_.view(),
                  0};
    }

    void add(const double* products, std::size_t count, const double*) override {
        kernels::table().advance_blocked(chain_, products, form_.half_norms.data() + done_, count);
        done_ += count;
    }
    void finish(double* out) override { kernels::table().finish_blocked(chain_, out); }

private:
    const BlockedParameters& form_;
    std::size_t done_ = 0;
    ExtendedRows free_, front_, past_, suffix_, now_;
    kernels::BlockedChain chain_{};
};

struct BinsParameters {
    std::size_t bins;
    double multiplicity;
    std::vector<double> half_norms;  // by bin; with more bins than iterations, of those that are used
};

class BinsState final : public Mixture::Evaluation {
public:
    explicit BinsState(const BinsParameters& form) : form_(form), sums_(form.half_norms.size()) {}

    void add(const double* products, std::size_t count, const double*) override {
        const double multiplicity = form_.multiplicity;
        for (std::size_t i = 0; i < count; ++i, ++done_) {
            double* sum = sums_[done_ % form_.bins % sums_.count()];
            for (std::size_t s = 0; s < group_size; ++s) {
                sum[s] += multiplicity * products[i * group_size + s];
            }
        }
    }
    void finish(double* out) override {
        kernels::table().log_sum_exp(sums_[0], form_.half_norms.data(), sums_.count(),
                                     static_cast<double>(form_.bins - sums_.count()), out);
        const double log_bins = portable_log(static_cast<double>(form_.bins));
        for (std::size_t s = 0; s < group_size; ++s) out[s] -= log_bins;
    }

private:
    const BinsParameters& form_;
    std::size_t done_ = 0;
    Rows sums_;
};

}  // namespace

void ExtendedRows::set(std::size_t row, const Extended& value) {
    std::fill_n(mantissa[row], group_size, value.mantissa);
    std::fill_n(exponent[row], group_size, static_cast<double>(value.exponent));
}

Mixture::Form chain_form(const ParticipationChain& chain, double multiplicity, std::vector<double> half_norms,
                         std::optional<CutMultiplicities> truncation) {
    return form_of<ChainState>(
        ChainParameters{chain, options(chain, multiplicity), std::move(half_norms), truncation});
}

Mixture::Form blocked_form(const ParticipationChain& chain, double multiplicity,
                           std::vector<double> half_norms) {
    std::vector<kernels::Factor> powers;
    for (std::size_t k = 0; k < chain.separation; ++k) powers.push_back(factor(power(chain.stay, k)));
    return form_of<BlockedState>(
        BlockedParameters{chain, options(chain, multiplicity), std::move(half_norms), std::move(powers)});
}

Mixture::Form bins_form(std::size_t bins, double multiplicity, std::vector<double> half_norms) {
    for (double& norm : half_norms) norm *= multiplicity * multiplicity;
    return form_of<BinsState>(BinsParameters{bins, multiplicity, std::move(half_norms)});
}

}  // namespace hockeystick
