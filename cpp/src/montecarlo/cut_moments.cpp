// Bounds on the second moment of the truncated scheme over all patterns of truncated rounds.
#include <algorithm>

#include "hockeystick/parallel.hpp"
#include "montecarlo/law_tables.hpp"
#include "numerics/require.hpp"

namespace hockeystick {

namespace {

Extended larger(const Extended& x, const Extended& y) { return x < y ? y : x; }

// The recursion of PairLaw where the rounds that are truncated are chosen against us: cell(e, d, class, k) as
// there, with at most k of them to come; class: how the copy that waits took part. Only the rows e, ...,
// e + b are kept (docs/montecarlo/tilted.md, section 8, Lemma 5).
class CutMoments {
public:
    CutMoments(const MatrixMechanism& mechanism, std::size_t most)
        : chain_(mechanism.scheme, mechanism.steps()),
          couplings_(mechanism),
          layers_(most + 1),
          row_size_(chain_.separation * classes * layers_),
          ring_((chain_.separation + 1) * row_size_, Extended(1.0)),
          start_(layers_, std::vector<Extended>(chain_.separation * chain_.separation)),
          stay_(chain_.stay),
          take_(chain_.leave) {
        // The survival of a truncated round is at most max_batch / (max_batch + 1). Proof: 1e-15 is more than
        // rounding takes away.
        const auto& scheme = std::get<TruncatedBMinSep>(mechanism.scheme);
        const auto places = static_cast<double>(scheme.max_batch);
        const double survival = std::min(1.0, places / (places + 1) * (1 + 1e-15)),
                     p = scheme.base.probability;
        kept_ = Extended(p * survival);
        lost_ = Extended(p * (1 - survival));
        const std::size_t b = chain_.separation;
        for (std::size_t e = chain_.steps + b; e-- > 0;) {
            interruption_point();
            std::fill_n(ring_.begin() + static_cast<std::ptrdiff_t>(e % (b + 1) * row_size_), row_size_,
                        Extended(1.0));
            if (e < chain_.steps) both_available(e);
            one_available(e);
            for (std::size_t d = 0; e < b && d <= e; ++d) {
                for (std::size_t k = 0; k < layers_; ++k) start_[k][e * b + d] = cell(e, d, whole, k);
            }
        }
    }

    double log_moment(std::size_t k) const {
        const std::size_t b = chain_.separation;
        Extended total = chain_.outside * chain_.outside;
        for (std::size_t f = 0; f < b; ++f) {
            for (std::size_t g = f; g < b; ++g) {
                const Extended ways(f == g ? 1.0 : 2.0);
                total = total + ways * chain_.start[f] * chain_.start[g] * start_[k][g * b + (g - f)];
            }
            // One copy alone has nobody to meet.
            total = total + Extended(2.0) * chain_.start[f] * chain_.outside;
        }
        return total.log();
    }

private:
    enum { whole, twice, nothing, classes };
    static constexpr double multiplicities[] = {1, 2, 0};  // proof: how often each class counts

    Extended& cell(std::size_t e, std::size_t d, std::size_t c, std::size_t k) {
        return ring_[(e % (chain_.separation + 1)) * row_size_ + (d * classes + c) * layers_ + k];
    }

    void both_available(std::size_t e) {
        const std::size_t b = chain_.separation;
        const Extended once = couplings_.between(e, e, 1), four = couplings_.between(e, e, 4);
        const Extended pairs = kept_ * kept_ * four + Extended(2.0) * kept_ * lost_ + lost_ * lost_;
        for (std::size_t k = 0; k < layers_; ++k) {
            Extended value = stay_ * stay_ * cell(e + 1, 0, 0, k) +
                             Extended(2.0) * stay_ * take_ * cell(e + b, b - 1, whole, k) +
                             take_ * take_ * once * cell(e + b, 0, 0, k);
            if (k > 0) {
                const Extended one =
                    kept_ * cell(e + b, b - 1, twice, k - 1) + lost_ * cell(e + b, b - 1, nothing, k - 1);
                value = larger(value, stay_ * stay_ * cell(e + 1, 0, 0, k - 1) + Extended(2.0) * stay_ * one +
                                          pairs * cell(e + b, 0, 0, k - 1));
            }
            for (std::size_t c = 0; c < classes; ++c) cell(e, 0, c, k) = value;
        }
    }

    void one_available(std::size_t e) {
        const std::size_t n = chain_.steps, b = chain_.separation;
        std::vector<Extended> coupled[5];  // by the product of multiplicities; with b = 1 nobody ever waits
        for (const std::size_t factor : {1U, 2U, 4U}) {
            if (e >= b && e - b < n) couplings_.row(e - b, b, static_cast<double>(factor), coupled[factor]);
        }
        for (std::size_t d = 1; d < b && d <= e; ++d) {
            const std::size_t i = e - d;
            if (i >= n) continue;
            for (std::size_t c = 0; c < classes; ++c) {
                // Barred since before the first iteration: without a column.
                const double own = e < b ? 0 : multiplicities[c];
                const auto coupling = [&](double factor) {
                    return factor == 0 ? Extended(1.0) : coupled[static_cast<std::size_t>(factor)][b - d];
                };
                for (std::size_t k = 0; k < layers_; ++k) {
                    Extended value =
                        stay_ * cell(e, d - 1, c, k) + take_ * coupling(own) * cell(i + b, b - d, whole, k);
                    if (k > 0) {
                        value =
                            larger(value, stay_ * cell(e, d - 1, c, k - 1) +
                                              kept_ * coupling(2 * own) * cell(i + b, b - d, twice, k - 1) +
                                              lost_ * cell(i + b, b - d, nothing, k - 1));
                    }
                    cell(e, d, c, k) = value;
                }
            }
        }
    }

    ParticipationChain chain_;
    Couplings couplings_;
    std::size_t layers_, row_size_;
    std::vector<Extended> ring_;
    std::vector<std::vector<Extended>> start_;
    Extended stay_, take_, kept_, lost_;
};

}  // namespace

std::vector<double> log_moments_of_cuts(const MatrixMechanism& mechanism, std::size_t most) {
    check(mechanism.scheme, mechanism.steps());
    require(std::holds_alternative<TruncatedBMinSep>(mechanism.scheme), "scheme must be truncated");
    require(mechanism.strategy.bands() <= separation(mechanism.scheme),
            "truncated sampling needs bands <= separation");
    const CutMoments moments(mechanism, most);
    std::vector<double> result;
    for (std::size_t k = 0; k <= most; ++k) result.push_back(moments.log_moment(k));
    return result;
}

}  // namespace hockeystick
