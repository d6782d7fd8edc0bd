// What is drawn for one sample: the iterations it takes part in, and the public counts of the truncated
// scheme (docs/montecarlo/estimates.md, "What is drawn").
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "hockeystick/random.hpp"
#include "hockeystick/schemes.hpp"

namespace hockeystick {

// The iterations one sample takes part in, in order.
class Participations {
public:
    Participations(const Scheme& scheme, std::size_t steps, Stream stream)
        : scheme_(scheme), steps_(steps), stream_(stream), log_failure_(log_failure(scheme)) {
        if (const auto* s = std::get_if<BallsInBins>(&scheme_)) {
            next_ = {static_cast<std::size_t>(stream_.below(s->bins)), 1};
            return;
        }
        if (const auto* s = std::get_if<MultiAttribution>(&scheme_); s && s->probability > 0) {
            // Cumulative binomial probabilities given at least one, up to a common factor.
            std::vector<double> logs(s->examples, 0.0);
            const double log_odds = portable_log(s->probability) - portable_log1p(-s->probability);
            for (std::size_t j = 1; j < s->examples; ++j) {
                const auto done = static_cast<double>(j), all = static_cast<double>(s->examples);
                logs[j] = s->probability < 1
                              ? logs[j - 1] + log_odds + portable_log((all - done) / (done + 1))
                              : done;
            }
            const double largest = *std::max_element(logs.begin(), logs.end());
            double sum = 0;
            for (const double x : logs) {
                if (s->probability < 1 || x == largest) sum += portable_exp(x - largest);
                counts_.push_back(sum);
            }
        }
        if (const auto* s = std::get_if<IndependentBMinSep>(&scheme_)) {
            for (std::size_t e = 0; e < s->examples; ++e) {
                sample(first_available(s->base, stream_));
                each_.push_back(next_.iteration);
            }
            soonest();
            return;
        }
        const BMinSep* const chain = chain_of(scheme_);
        sample(chain != nullptr ? first_available(*chain, stream_) : 0);
    }

    struct Next {
        std::size_t iteration;  // >= steps: none any more
        double multiplicity;
    };
    const Next& next() const noexcept { return next_; }
    void advance() {
        const std::size_t gap = separation(scheme_);
        if (next_.iteration >= steps_) return;
        if (std::holds_alternative<BallsInBins>(scheme_)) {
            next_.iteration += gap;
            return;
        }
        if (!each_.empty()) {
            const std::size_t now = next_.iteration;
            for (std::size_t& iteration : each_) {
                if (iteration != now) continue;
                sample(now + gap);
                iteration = next_.iteration;
            }
            soonest();
            return;
        }
        const auto* multi = std::get_if<MultiAttribution>(&scheme_);
        if (!multi || !multi->exact) {
            sample(next_.iteration + gap);
            return;
        }
        // Samples go on while the examples are barred; one counts if none came in the gap - 1 iterations
        // before.
        for (;;) {
            const std::size_t previous = next_.iteration;
            sample(previous + 1);
            if (next_.iteration >= steps_ || next_.iteration - previous >= gap) return;
        }
    }
    // For decisions about the current participation: survival of truncation.
    Stream& stream() noexcept { return stream_; }

private:
    static double log_failure(const Scheme& scheme) {
        if (const BMinSep* chain = chain_of(scheme)) return portable_log1p(-chain->probability);
        const auto* s = std::get_if<MultiAttribution>(&scheme);
        return s == nullptr ? 0 : static_cast<double>(s->examples) * portable_log1p(-s->probability);
    }

    // The first iteration in which a warm-started example is available.
    static std::size_t first_available(const BMinSep& scheme, Stream& stream) {
        if (!scheme.warm_start || scheme.separation == 1) return 0;
        if (stream.uniform() <= stationary_availability(scheme)) return 0;
        return 1 + static_cast<std::size_t>(stream.below(scheme.separation - 1));
    }
    void sample(std::size_t available) {
        const auto limit = static_cast<std::uint64_t>(available < steps_ ? steps_ - available : 0);
        const std::size_t iteration =
            available + static_cast<std::size_t>(geometric(stream_, log_failure_, limit));
        next_ = {iteration, 1};
        if (counts_.empty() || iteration >= steps_) return;
        const double u = stream_.uniform() * counts_.back();
        const auto found = std::lower_bound(counts_.begin(), counts_.end(), u);
        next_.multiplicity = static_cast<double>(found - counts_.begin()) + 1;
    }
    void soonest() {
        next_.iteration = *std::min_element(each_.begin(), each_.end());
        next_.multiplicity = static_cast<double>(std::count(each_.begin(), each_.end(), next_.iteration));
    }

    Scheme scheme_;
    std::size_t steps_;
    Stream stream_;
    double log_failure_;             // of being sampled, while available
    std::vector<double> counts_;     // Pr[at most j of the user's examples | at least one], j = 1, 2, ...
    std::vector<std::size_t> each_;  // IndependentBMinSep: the next iteration of each example
    Next next_{};
};

// Truncated b-min-sep: how many of the other examples are available in the first round, and how many were
// sampled in each of the min(separation - 1, steps) rounds before it, the oldest first, as far as that
// matters later.
struct OthersAtStart {
    OthersAtStart(const TruncatedBMinSep& scheme, std::size_t steps, Stream& stream)
        : available(scheme.dataset_size - 1),
          // Whoever is barred for longer than the run does not come back.
          barred(std::min(scheme.base.separation - 1, steps), 0) {
        const BMinSep& base = scheme.base;
        if (!base.warm_start) return;
        // The virtual rounds before the first: a multinomial draw, one conditional binomial after the other.
        double remaining = 1;
        const double each = base.probability * stationary_availability(base);
        for (auto& count : barred) {
            count = binomial(stream, available, std::min(1.0, each / remaining));
            available -= count;
            remaining -= each;
        }
        const auto others = static_cast<double>(base.separation - 1 - barred.size());
        available -= binomial(stream, available, std::min(1.0, others * each / remaining));
    }

    std::uint64_t available;
    std::vector<std::uint64_t> barred;
};

// Truncated b-min-sep: how many of the other dataset_size - 1 examples are sampled, round by round.
//
// Where truncation is rare, most samples need no counts: think of each count as the inverse distribution
// function of Binom(available, p) at a uniform number U. Whatever is available, at most dataset_size - 1 are,
// so there is no truncation unless U > 1 - T, T >= Pr[Binom(dataset_size - 1, p) >= max_batch]. The rounds
// with such a U, the candidates, are independent of everything else and can be drawn first. If there is one,
// the counts are drawn given which rounds are candidates.
class PublicCounts {
public:
    // A bound T on the probability that a round is truncated, given the past; 1 if candidates do not pay, and
    // every count is to be drawn (GroupCounts).
    static double candidate_probability(const TruncatedBMinSep& scheme, std::size_t steps) {
        const std::uint64_t others = scheme.dataset_size - 1;
        const double p = scheme.base.probability;
        if (others < scheme.max_batch || p == 0) return 0;
        if (p == 1 || static_cast<double>(others) * p >= static_cast<double>(scheme.max_batch)) return 1;
        // Proof: 1e-6 is more than the error of the computed tail; any T above the true one will do.
        const double tail = binomial_tail(others, p, scheme.max_batch) * (1 + 1e-6);
        // Speed: with a candidate in every second sample, most counts are needed anyway.
        return tail * static_cast<double>(steps) < 0.5 ? tail : 1;
    }

    // For the usual numbers of available examples; outlives every PublicCounts.
    static BinomialTable table(const TruncatedBMinSep& scheme) {
        const double p = scheme.base.probability;
        if (!(p > 0 && p < 1)) return {};
        // In the long run each of the others is available with this probability, independently of the rest.
        // Five standard deviations below the mean, hardly ever fewer are: speed.
        const double stationary = stationary_availability(scheme.base);
        const double expected = static_cast<double>(scheme.dataset_size - 1) * stationary;
        const double least = expected - 5 * std::sqrt(expected * (1 - stationary));
        return least < 1 ? BinomialTable() : BinomialTable(static_cast<std::uint64_t>(least), p);
    }

    // candidate_probability < 1.
    PublicCounts(const TruncatedBMinSep& scheme, std::size_t steps, double candidate_probability,
                 const BinomialTable& table, const BlockStream& block, std::size_t lane)
        : scheme_(scheme),
          steps_(steps),
          table_(&table),
          available_(scheme.dataset_size - 1),
          candidate_probability_(candidate_probability),
          stream_(block, lane, Purpose::public_counts) {
        if (candidate_probability == 0) return;
        Stream stream(block, lane, Purpose::candidates);
        const double log_failure = portable_log1p(-candidate_probability);
        for (std::size_t round = 0; round < steps; ++round) {
            round += static_cast<std::size_t>(geometric(stream, log_failure, steps - round));
            if (round < steps) candidates_.push_back(round);
        }
    }

    // No round is truncated; the counts need not be asked for.
    bool quiet() const noexcept { return candidates_.empty(); }
    // The same for the next round and all after it.
    bool settled() const noexcept { return candidate_ == candidates_.size(); }
    // The count of the next round.
    std::uint64_t next() {
        if (round_ == 0) start();
        const bool candidate = candidate_ < candidates_.size() && candidates_[candidate_] == round_;
        if (candidate) ++candidate_;
        const std::uint64_t count = candidate ? above_threshold()
                                    : candidate_probability_ == 0
                                        ? table_->draw(stream_, available_, scheme_.base.probability)
                                        : below_threshold();
        ++round_;
        if (barred_.empty()) return count;
        // Who was sampled separation - 1 rounds ago is available in the next round.
        available_ += std::exchange(barred_[oldest_], count) - count;
        if (++oldest_ == barred_.size()) oldest_ = 0;
        return count;
    }

private:
    void start() {
        const BMinSep& base = scheme_.base;
        const double stationary = stationary_availability(base);
        OthersAtStart others(scheme_, steps_, stream_);
        available_ = others.available;
        barred_ = std::move(others.barred);
        if (candidate_probability_ == 0) return;
        // Pr[Binom(available, p) > count] > T for all counts up to safe_count_, if so many are available.
        // Speed: the numbers of standard deviations; proof: twice T is more than the error of the computed
        // tail.
        const double expected = static_cast<double>(scheme_.dataset_size - 1) * stationary;
        const double fewest = std::floor(expected - 10 * std::sqrt(expected));
        if (fewest < 1) return;
        safe_available_ = static_cast<std::uint64_t>(fewest);
        const double mean = fewest * base.probability;
        const auto count = static_cast<std::uint64_t>(mean + 3 * std::sqrt(mean));
        if (count < safe_available_ &&
            binomial_tail(safe_available_, base.probability, count + 1) > 2 * candidate_probability_) {
            safe_count_ = count;
        }
    }
    // Binom(available, p) given U <= 1 - T. Given the count k, 1 - U is uniform between Pr[> k] and Pr[>= k].
    std::uint64_t below_threshold() {
        const double p = scheme_.base.probability;
        for (;;) {
            const std::uint64_t count = table_->draw(stream_, available_, p);
            if (count <= safe_count_ && available_ >= safe_available_) return count;
            const double more = count < available_ ? binomial_tail(available_, p, count + 1) : 0;
            if (more >= candidate_probability_) return count;
            const double here = binomial_probability(available_, p, count);
            if (more + here - candidate_probability_ > stream_.uniform() * here) return count;
        }
    }
    // The same given U > 1 - T: the largest k with Pr[>= k] > 1 - U.
    std::uint64_t above_threshold() {
        const double p = scheme_.base.probability;
        const double v = stream_.uniform() * candidate_probability_;
        std::uint64_t k = std::min(scheme_.max_batch, available_);
        while (k > 0 && binomial_tail(available_, p, k) <= v) --k;
        while (k < available_ && binomial_tail(available_, p, k + 1) > v) ++k;
        return k;
    }

    TruncatedBMinSep scheme_;
    std::size_t steps_;
    const BinomialTable* table_;
    std::uint64_t available_;
    std::vector<std::uint64_t> barred_;  // by round, modulo min(separation - 1, steps)
    std::size_t oldest_ = 0;
    double candidate_probability_;
    std::vector<std::size_t> candidates_;
    std::size_t round_ = 0, candidate_ = 0;
    // Counts up to safe_count_ are below the threshold whenever at least safe_available_ are available.
    std::uint64_t safe_available_ = 0, safe_count_ = 0;
    Stream stream_;
};

}  // namespace hockeystick
