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

struct WeighedChain {
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
};

struct ChainParameters {
    std::vector<WeighedChain> chains;
    std::vector<double> half_norms;
    std::optional<CutMultiplicities> truncation;
    bool allows_short_form = true;
};

class ChainState final : public Mixture::Evaluation {
public:
    explicit ChainState(const ChainParameters& form) : form_(form) {
        for (const auto& [chain, options] : form.chains) {
            Memory& own = memory_.emplace_back(chain.separation);
            for (std::size_t i = 0; i < chain.separation; ++i) own.ring.set(i, chain.start[i]);
            chains_.push_back({chain.separation, factor(chain.stay), options.data(), options.size(),
                               own.free.view(), own.ring.view(), factor(chain.outside), 0,
                               form.allows_short_form ? own.past[0] : nullptr, false});
        }
    }

    void add(const double* products, std::size_t count, const double* survival) override {
        const double* const half_norms = form_.half_norms.data() + done_;
        if (form_.truncation && survival != nullptr && chains_[0].option_count > 0) {
            kernels::table().advance_truncated(chains_.data(), chains_.size(),
                                               {survival, form_.truncation->whole, form_.truncation->cut},
                                               products, half_norms, count);
        } else {
            kernels::table().advance(chains_.data(), chains_.size(), products, half_norms, count);
        }
        done_ += count;
    }
    void finish(double* out) override {
        for (const auto& chain : chains_) {
            kernels::table().finish(chain, out);
            out += group_size;
        }
    }

private:
    struct Memory {
        explicit Memory(std::size_t separation) : free(1), ring(separation), past(1) {}
        ExtendedRows free, ring;
        Rows past;
    };
    const ChainParameters& form_;
    std::size_t done_ = 0;
    std::vector<Memory> memory_;
    std::vector<kernels::Chain> chains_;
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

Mixture::Form chain_form(std::vector<ParticipationChain> chains, double multiplicity,
                         std::vector<double> half_norms, std::optional<CutMultiplicities> truncation) {
    ChainParameters parameters{{}, std::move(half_norms), truncation};
    const std::size_t rows = chains.size();
    for (auto& chain : chains) {
        auto own = options(chain, multiplicity);
        const auto& added = parameters.chains.emplace_back(WeighedChain{std::move(chain), std::move(own)});
        parameters.allows_short_form = parameters.allows_short_form && added.allows_short_form();
    }
    return form_of<ChainState>(std::move(parameters), 0, rows);
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
