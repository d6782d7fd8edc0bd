// Samples of the privacy loss of a matrix mechanism (docs/montecarlo/estimates.md, "The mechanism").
#include "hockeystick/estimate.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "hockeystick/parallel.hpp"
#include "montecarlo/group_counts.hpp"
#include "montecarlo/output_window.hpp"
#include "montecarlo/scheme_draws.hpp"
#include "numerics/require.hpp"

namespace hockeystick {

double survival_probability(const TruncatedBMinSep& scheme, double others) noexcept {
    const auto places = static_cast<double>(scheme.max_batch);
    return others < places ? 1.0 : places / (others + 1);
}

double hockey_stick(double epsilon, double loss) noexcept {
    if (loss <= epsilon) return 0;
    return loss > epsilon ? 1 - portable_exp(epsilon - loss) : 1;
}

// The outputs of one group of samples, generated block by block of iterations.
class LossSampler::Group {
public:
    Group(const LossSampler& sampler, const BlockStream& block, std::size_t first_lane, Draws* record)
        : sampler_(sampler),
          record_(record),
          truncated_(std::get_if<TruncatedBMinSep>(&sampler.mechanism_.scheme)),
          window_(sampler.products_, sampler.steps(), {block, first_lane, Purpose::noise}, record) {
        // Under Q nobody takes part, unless Q is the mixture of the truncated scheme.
        const bool participates = sampler.direction_ != Direction::add || truncated_ != nullptr;
        for (std::size_t s = 0; participates && s < group_size; ++s) {
            lanes_.emplace_back(sampler.mechanism_.scheme, sampler.steps(),
                                Stream(block, first_lane + s, Purpose::participation));
        }
        if (truncated_ == nullptr) return;
        survival_ = Rows(sampler.products_.rows(), 1.0);
        for (std::size_t s = 0; sampler.candidate_probability_ < 1 && s < group_size; ++s) {
            counts_.emplace_back(*truncated_, sampler.steps(), sampler.candidate_probability_,
                                 sampler.counts_table_, block, first_lane + s);
            quiet_ = quiet_ && counts_.back().quiet();
        }
        if (counts_.empty()) {
            quiet_ = false;
            others_ = Rows::scratch(survival_.count());
            all_counts_.emplace(*truncated_, sampler.steps(), sampler.counts_table_, block, first_lane);
        }
    }

    // use(products, first, count) for one block of iterations after the other.
    template <class Use>
    void run(const Use& use) {
        window_.run(
            [&](std::size_t row, std::size_t from, std::size_t live) {
                if (all_counts_) {
                    count_others(row, from, live);
                } else if (truncated_ != nullptr) {
                    count_candidates(row, from, live);
                }
                take_part(row, from, live);
            },
            use,
            [&] {
                if (truncated_ != nullptr) window_.move_to_front(survival_);
            });
    }

    // nullptr if nothing is truncated, in any round of any sample of the group.
    const double* survival() const noexcept { return quiet_ ? nullptr : survival_[0]; }
    bool quiet() const noexcept { return quiet_; }

private:
    // The survival probabilities of iterations [from, from + live), where all public counts are needed.
    void count_others(std::size_t row, std::size_t from, std::size_t live) {
        all_counts_->next(live, others_[0], survival_[row]);
        if (record_ != nullptr) {
            others_.by_sample(live, record_->public_counts.data() + place(0, from), sampler_.steps());
        }
    }

    // The same where candidates say which are needed.
    void count_candidates(std::size_t row, std::size_t from, std::size_t live) {
        for (std::size_t s = 0; s < group_size; ++s) {
            // Rows were 1 to begin with.
            if (counts_[s].quiet() && record_ == nullptr) continue;
            const bool settled = counts_[s].settled() && record_ == nullptr;
            for (std::size_t i = 0; i < live; ++i) {
                const double others = settled ? 0 : static_cast<double>(counts_[s].next());
                survival_[row + i][s] = settled ? 1 : survival_probability(*truncated_, others);
                if (record_ != nullptr) record_->public_counts[place(s, from + i)] = others;
            }
        }
    }

    void take_part(std::size_t row, std::size_t from, std::size_t live) {
        window_.continue_columns(from, live);
        for (std::size_t s = 0; s < lanes_.size(); ++s) {
            Participations& lane = lanes_[s];
            for (; lane.next().iteration < from + live; lane.advance()) {
                OutputWindow::Column now{s, lane.next().iteration, lane.next().multiplicity};
                if (truncated_ != nullptr) {
                    now.multiplicity =
                        truncated_multiplicity(survival_[row + (now.iteration - from)][s], lane.stream());
                }
                if (record_ != nullptr) record_->means[place(s, now.iteration)] = now.multiplicity;
                if (now.multiplicity != 0) window_.begin_column(now, from, live);
            }
        }
    }

    std::size_t place(std::size_t lane, std::size_t iteration) const {
        return lane * sampler_.steps() + iteration;
    }

    double truncated_multiplicity(double survival, Stream& stream) const {
        const bool present = sampler_.direction_ != Direction::add;
        if (survival == 1) return present ? 1 : 0;
        if (stream.uniform() > survival) return 0;
        return present ? 2 : -1;
    }

    const LossSampler& sampler_;
    Draws* record_;
    const TruncatedBMinSep* truncated_;
    bool quiet_ = true;
    Rows survival_, others_;
    OutputWindow window_;
    std::vector<Participations> lanes_;
    std::vector<PublicCounts> counts_;       // where candidates say which are needed
    std::optional<GroupCounts> all_counts_;  // where all are
};

LossSampler::LossSampler(MatrixMechanism mechanism, Direction direction)
    : BlockSampler(std::move(mechanism), direction),
      direct_(mechanism_, Products::direct),
      // An upper bound on ln P/Q is a lower one on ln Q/P: that direction takes the other bound.
      mixture_(mechanism_, Numerator::present, direction == Direction::add) {
    if (const auto* truncated = std::get_if<TruncatedBMinSep>(&mechanism_.scheme)) {
        require(mechanism_.strategy.bands() <= truncated->base.separation,
                "truncated sampling needs bands <= separation");
        if (direction != Direction::replace_one) {
            denominator_.emplace(mechanism_, Numerator::absent);
        }
        candidate_probability_ = PublicCounts::candidate_probability(*truncated, steps());
        counts_table_ = PublicCounts::table(*truncated);
    }
    if (const auto* multi = std::get_if<MultiAttribution>(&mechanism_.scheme)) {
        require(mechanism_.strategy.bands() <= multi->separation,
                "multi-attribution sampling needs bands <= separation");
    }
    if (direction == Direction::replace_one) {
        denominator_.emplace(mechanism_, Numerator::present, true, mirrored);
    }
    set_size(1, 1 + mixture_.families());
}

// The losses of 16 outputs, by what stands above the line of the ratio and, where Q is a mixture too, below.
class LossSampler::Ratio {
public:
    Ratio(const LossSampler& sampler, bool quiet)
        : above_(sampler.mixture_.start()), sign_(sampler.direction_ == Direction::add ? -1 : 1) {
        const bool replaced = sampler.direction_ == Direction::replace_one;
        // Otherwise Q is R.
        if (sampler.denominator_ && (replaced || !quiet)) below_ = sampler.denominator_->start();
    }

    void add(const double* products, std::size_t count, const double* survival) {
        above_->add(products, count, survival);
        if (below_) below_->add(products, count, survival);
    }
    void finish(double* losses) {
        Rows above(1), below(1);
        above_->finish(above[0]);
        if (below_) below_->finish(below[0]);
        for (std::size_t s = 0; s < group_size; ++s) losses[s] = sign_ * (above[0][s] - below[0][s]);
    }

private:
    std::unique_ptr<Mixture::Evaluation> above_, below_;
    double sign_;
};

void LossSampler::sample_group(const BlockStream& stream, std::size_t lane, double* rows,
                               Draws* record) const {
    Group group(*this, stream, lane, record);
    Ratio ratio(*this, group.quiet());
    group.run([&](const double* products, std::size_t, std::size_t count) {
        ratio.add(products, count, group.survival());
    });
    ratio.finish(rows);
}

LossSampler::Sums LossSampler::delta_sums(std::uint64_t seed, std::span<const double> epsilons,
                                          std::uint64_t first, std::size_t blocks) const {
    Sums sums{std::vector<double>(epsilons.size() * blocks), std::vector<double>(epsilons.size() * blocks),
              0};
    std::vector<std::size_t> failures(blocks, 0);
    each_group({seed, first, blocks}, [&](std::size_t sample, const Rows& rows) {
        const std::size_t block = sample / block_size();
        const std::span losses(rows[0], group_size);
        failures[block] +=
            static_cast<std::size_t>(std::ranges::count_if(losses, [](double x) { return std::isnan(x); }));
        for (std::size_t e = 0; e < epsilons.size(); ++e) {
            double sum = sums.values[e * blocks + block], squares = sums.squares[e * blocks + block];
            for (const double loss : losses) {
                const double value = hockey_stick(epsilons[e], loss);
                sum += value;
                squares += value * value;
            }
            sums.values[e * blocks + block] = sum;
            sums.squares[e * blocks + block] = squares;
        }
    });
    for (const std::size_t count : failures) sums.not_a_number += count;
    return sums;
}

std::vector<double> LossSampler::evaluate(std::span<const double> outputs,
                                          std::span<const double> public_counts) const {
    require(outputs.size() % steps() == 0, "outputs must be rows of `steps` values");
    const bool truncated = std::holds_alternative<TruncatedBMinSep>(mechanism_.scheme);
    require(!truncated || public_counts.size() == outputs.size(),
            "the truncated scheme needs a public count for every output");
    const std::size_t count = outputs.size() / steps();
    std::vector<double> losses(count);
    parallel_ranges(count, group_size, [&](std::size_t first, std::size_t end) {
        double found[group_size];
        evaluate_group(outputs.subspan(first * steps(), (end - first) * steps()),
                       truncated ? public_counts.subspan(first * steps()) : public_counts, found);
        std::copy_n(found, end - first, losses.data() + first);
    });
    return losses;
}

void LossSampler::evaluate_group(std::span<const double> outputs, std::span<const double> public_counts,
                                 double* losses) const {
    const std::size_t samples = outputs.size() / steps();
    const auto* truncated = std::get_if<TruncatedBMinSep>(&mechanism_.scheme);
    Rows rows(direct_.rows()), products(direct_.rows()), survival;
    if (truncated != nullptr) survival = Rows(direct_.outputs(), 1.0);
    Ratio ratio(*this, false);
    for (std::size_t done = 0; done < steps(); done += direct_.outputs()) {
        rows.fill(0.0);
        const std::size_t there = std::min(direct_.rows(), steps() - done);
        const std::size_t used = std::min(direct_.outputs(), steps() - done);
        for (std::size_t s = 0; s < samples; ++s) {
            const std::size_t at = s * steps() + done;
            for (std::size_t i = 0; i < there; ++i)
                rows[i][s] = outputs[at + i] / mechanism_.noise_multiplier;
            for (std::size_t i = 0; truncated != nullptr && i < used; ++i) {
                survival[i][s] = survival_probability(*truncated, public_counts[at + i]);
            }
        }
        direct_.compute(rows, done, products);
        ratio.add(products[0], used, truncated != nullptr ? survival[0] : nullptr);
    }
    ratio.finish(losses);
}

}  // namespace hockeystick
