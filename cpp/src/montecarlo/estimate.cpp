#include "hockeystick/estimate.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "montecarlo/group_counts.hpp"
#include "montecarlo/kernels.hpp"
#include "montecarlo/sample_blocks.hpp"

namespace hockeystick {
namespace {

double checked(double noise_multiplier) {
    if (!(noise_multiplier > 0 && std::isfinite(noise_multiplier))) {
        throw std::invalid_argument("noise_multiplier must be positive and finite");
    }
    return noise_multiplier;
}

}  // namespace

double survival_probability(const TruncatedBMinSep& scheme, double others) noexcept {
    const auto places = static_cast<double>(scheme.max_batch);
    return others < places ? 1.0 : places / (others + 1);
}

double hockey_stick(double epsilon, double loss) noexcept {
    if (loss <= epsilon) return 0;
    return loss > epsilon ? 1 - portable_exp(epsilon - loss) : 1;
}

// Memory for one group of samples after the other.
struct LossSampler::Buffers {
    explicit Buffers(const LossSampler& sampler)
        : outputs(sampler.sampling_.rows()), products(sampler.sampling_.rows()) {
        if (!sampler.denominator_) return;
        survival = Rows(sampler.sampling_.rows());
        if (sampler.candidate_probability_ == 1) others = Rows(sampler.sampling_.rows());
    }

    Rows outputs, products, survival, others;
};

// The outputs of one group of samples, generated block by block of iterations.
class LossSampler::Group {
public:
    // record: where participations and public counts go, too, those of the group's first sample to `sample`.
    Group(const LossSampler& sampler, Buffers& buffers, const BlockStream& block, std::size_t first_lane,
          Draws* record = nullptr, std::size_t sample = 0)
        : sampler_(sampler),
          products_(sampler.sampling_),
          block_(block),
          first_lane_(first_lane),
          record_(record),
          sample_(sample),
          truncated_(std::get_if<TruncatedBMinSep>(&sampler.scheme_)),
          outputs_(buffers.outputs),
          survival_(buffers.survival),
          others_(buffers.others) {
        // Under Q nobody takes part, unless Q is the mixture of the truncated scheme.
        participates_ = sampler.direction_ == Direction::remove || truncated_ != nullptr;
        for (std::size_t s = 0; s < group_size; ++s) {
            if (participates_) {
                lanes_.emplace_back(sampler.scheme_, sampler.steps(),
                                    Stream(block, first_lane + s, Purpose::participation));
            }
            if (truncated_ != nullptr && sampler.candidate_probability_ < 1) {
                counts_.emplace_back(*truncated_, sampler.steps(), sampler.candidate_probability_,
                                     sampler.counts_table_, block, first_lane + s);
                quiet_ = quiet_ && counts_.back().quiet();
            }
        }
        if (truncated_ != nullptr) survival_.fill(1.0);
        if (truncated_ != nullptr && counts_.empty()) {
            quiet_ = false;
            all_counts_.emplace(*truncated_, sampler.steps(), sampler.counts_table_, block, first_lane);
        }
        generate(0, products_.overlap());
    }

    // The next products().outputs() iterations, and as many after them as their products need.
    void advance() {
        const std::size_t overlap = products_.overlap(), outputs = products_.outputs();
        if (started_) {
            std::memmove(outputs_[0], outputs_[outputs], overlap * group_size * sizeof(double));
            if (truncated_ != nullptr) {
                std::memmove(survival_[0], survival_[outputs], overlap * group_size * sizeof(double));
            }
            first_ += outputs;
        }
        started_ = true;
        generate(overlap, outputs);
    }

    std::size_t first() const noexcept { return first_; }
    const Rows& outputs() const noexcept { return outputs_; }
    // nullptr if nothing is truncated, in any round of any sample of the group.
    const double* survival() const noexcept { return quiet_ ? nullptr : survival_[0]; }
    bool quiet() const noexcept { return quiet_; }

private:
    struct Open {
        std::size_t lane, iteration;
        double multiplicity;
    };

    // Fills `count` rows from `row` on.
    void generate(std::size_t row, std::size_t count) {
        const std::size_t steps = sampler_.steps(), from = first_ + row;
        const std::size_t live = from < steps ? std::min(count, steps - from) : 0;
        double* out = outputs_[row];
        kernels::table().normals(
            out, from, (live + 1) / 2 * 2,
            {block_.lane_word(first_lane_, Purpose::noise), static_cast<std::uint32_t>(block_.block),
             static_cast<std::uint32_t>(block_.block >> 32)},
            block_.key());
        // Past the last iteration there is no output: the last columns of C are cut off there.
        std::fill(out + live * group_size, out + count * group_size, 0.0);
        if (live == 0) return;
        if (all_counts_) {
            all_counts_->next(live, others_[0], survival_[row]);
            if (record_ != nullptr) {
                for (std::size_t i = 0; i < live; ++i) {
                    for (std::size_t s = 0; s < group_size; ++s) {
                        record_->public_counts[place(s, from + i)] = others_[i][s];
                    }
                }
            }
        } else if (truncated_ != nullptr) {
            for (std::size_t s = 0; s < group_size; ++s) {
                // Rows were 1 to begin with.
                if (counts_[s].quiet() && record_ == nullptr) continue;
                if (counts_[s].settled() && record_ == nullptr) {
                    for (std::size_t i = 0; i < live; ++i) survival_[row + i][s] = 1;
                    continue;
                }
                for (std::size_t i = 0; i < live; ++i) {
                    const auto others = static_cast<double>(counts_[s].next());
                    survival_[row + i][s] = survival_probability(*truncated_, others);
                    if (record_ != nullptr) record_->public_counts[place(s, from + i)] = others;
                }
            }
        }
        // Columns that began earlier, then those that begin here.
        std::size_t kept = 0;
        for (std::size_t k = 0; k < open_.size(); ++k) {
            if (add(open_[k], from, live)) open_[kept++] = open_[k];
        }
        open_.resize(kept);
        for (std::size_t s = 0; s < lanes_.size(); ++s) {
            Participations& lane = lanes_[s];
            for (; lane.next().iteration < from + live; lane.advance()) {
                const std::size_t iteration = lane.next().iteration;
                Open now{s, iteration, lane.next().multiplicity};
                if (truncated_ != nullptr) {
                    now.multiplicity =
                        truncated_multiplicity(survival_[row + (iteration - from)][s], lane.stream());
                }
                if (record_ != nullptr) record_->participations[place(s, iteration)] = now.multiplicity;
                if (now.multiplicity != 0 && add(now, from, live)) open_.push_back(now);
            }
        }
    }

    std::size_t place(std::size_t lane, std::size_t iteration) const {
        return (sample_ + lane) * sampler_.steps() + iteration;
    }

    double truncated_multiplicity(double survival, Stream& stream) const {
        const bool present = sampler_.direction_ == Direction::remove;
        if (survival == 1) return present ? 1 : 0;
        if (stream.uniform() > survival) return 0;
        return present ? 2 : -1;
    }

    // Adds the part of a column in iterations [from, from + live); whether there is more of it later.
    bool add(const Open& open, std::size_t from, std::size_t live) {
        const auto column = products_.column(open.iteration);
        const std::size_t begin = std::max(from, open.iteration);
        const std::size_t end = std::min(from + live, open.iteration + column.size());
        for (std::size_t i = begin; i < end; ++i) {
            outputs_[i - first_][open.lane] += open.multiplicity * column[i - open.iteration];
        }
        return open.iteration + column.size() > from + live;
    }

    const LossSampler& sampler_;
    const SlidingProducts& products_;
    BlockStream block_;
    std::size_t first_lane_;
    Draws* record_;
    std::size_t sample_;
    const TruncatedBMinSep* truncated_;
    bool participates_ = true, started_ = false, quiet_ = true;
    std::size_t first_ = 0;  // iteration of row 0
    Rows &outputs_, &survival_, &others_;
    std::vector<Participations> lanes_;
    std::vector<PublicCounts> counts_;       // where candidates say which are needed
    std::optional<GroupCounts> all_counts_;  // where all are
    std::vector<Open> open_;
};

LossSampler::LossSampler(Strategy strategy, Scheme scheme, double noise_multiplier, Direction direction)
    : strategy_(std::move(strategy)),
      scheme_((check(scheme, strategy_.steps()), std::move(scheme))),
      noise_multiplier_(checked(noise_multiplier)),
      direction_(direction),
      sampling_(strategy_, noise_multiplier, Products::transform),
      direct_(strategy_, noise_multiplier, Products::direct),
      // An upper bound on ln P/Q is a lower one on ln Q/P: that direction takes the other bound.
      mixture_(strategy_, scheme_, noise_multiplier, Numerator::present, direction == Direction::add) {
    if (const auto* truncated = std::get_if<TruncatedBMinSep>(&scheme_)) {
        if (strategy_.bands() > truncated->base.separation) {
            throw std::invalid_argument("truncated sampling needs bands <= separation");
        }
        denominator_.emplace(strategy_, scheme_, noise_multiplier, Numerator::absent);
        candidate_probability_ = PublicCounts::candidate_probability(*truncated, strategy_.steps());
        counts_table_ = PublicCounts::table(*truncated);
    }
    if (const auto* multi = std::get_if<MultiAttribution>(&scheme_)) {
        if (strategy_.bands() > multi->separation) {
            throw std::invalid_argument("multi-attribution sampling needs bands <= separation");
        }
    }
    block_size_ = samples_per_block(sample_work(sampling_));
}

// Iterations, counted more where their sliding products cost more than all the rest.
double LossSampler::sample_work(const SlidingProducts& products) const noexcept {
    return static_cast<double>(steps()) * (1 + products.operations() / 64 + mixture_.families());
}

double LossSampler::work() const noexcept {
    return static_cast<double>(block_size_) * sample_work(sampling_);
}

void LossSampler::block_losses(const BlockStream& stream, double* out) const {
    Buffers buffers(*this);
    Rows& products = buffers.products;
    const double sign = direction_ == Direction::remove ? 1 : -1;
    for (std::size_t lane = 0; lane < block_size_; lane += group_size) {
        Group group(*this, buffers, stream, lane);
        Mixture::Evaluation above(mixture_);
        std::optional<Mixture::Evaluation> below;
        if (denominator_ && !group.quiet()) below.emplace(*denominator_);  // otherwise Q is R
        for (std::size_t done = 0; done < steps(); done += sampling_.outputs()) {
            group.advance();
            sampling_.compute(group.outputs(), done, products);
            const std::size_t count = std::min(sampling_.outputs(), steps() - done);
            above.add(products[0], count, group.survival());
            if (below) below->add(products[0], count, group.survival());
        }
        double* losses = out + lane;
        above.finish(losses);
        if (below) {
            double ratio[group_size];
            below->finish(ratio);
            for (std::size_t s = 0; s < group_size; ++s) losses[s] -= ratio[s];
        }
        for (std::size_t s = 0; s < group_size; ++s) losses[s] *= sign;
    }
}

std::vector<double> LossSampler::losses(std::uint64_t seed, std::uint64_t first, std::size_t blocks,
                                        const Poll& poll) const {
    std::vector<double> out(blocks * block_size_);
    in_batches(blocks, work(), poll, [&](std::size_t block) {
        block_losses({seed, first + block, direction_ == Direction::add}, out.data() + block * block_size_);
    });
    return out;
}

LossSampler::Sums LossSampler::delta_sums(std::uint64_t seed, std::span<const double> epsilons,
                                          std::uint64_t first, std::size_t blocks, const Poll& poll) const {
    Sums sums{std::vector<double>(epsilons.size() * blocks), std::vector<double>(epsilons.size() * blocks),
              0};
    std::vector<std::size_t> failures(blocks, 0);
    in_batches(blocks, work(), poll, [&](std::size_t block) {
        std::vector<double> losses(block_size_);
        block_losses({seed, first + block, direction_ == Direction::add}, losses.data());
        failures[block] = static_cast<std::size_t>(
            std::count_if(losses.begin(), losses.end(), [](double x) { return std::isnan(x); }));
        for (std::size_t e = 0; e < epsilons.size(); ++e) {
            double sum = 0, squares = 0;
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

LossSampler::Draws LossSampler::draws(std::uint64_t seed, std::uint64_t first, std::size_t blocks) const {
    Draws draws;
    const std::size_t values = blocks * block_size_ * steps();
    draws.participations.assign(values, 0.0);
    draws.outputs.assign(values, 0.0);
    const bool truncated = std::holds_alternative<TruncatedBMinSep>(scheme_);
    if (truncated) draws.public_counts.assign(values, 0.0);
    Buffers buffers(*this);
    for (std::size_t block = 0; block < blocks; ++block) {
        for (std::size_t lane = 0; lane < block_size_; lane += group_size) {
            const std::size_t sample = block * block_size_ + lane;
            const BlockStream stream{seed, first + block, direction_ == Direction::add};
            Group group(*this, buffers, stream, lane, &draws, sample);
            for (std::size_t done = 0; done < steps(); done += sampling_.outputs()) {
                group.advance();
                const std::size_t count = std::min(sampling_.outputs(), steps() - done);
                for (std::size_t i = 0; i < count; ++i) {
                    for (std::size_t s = 0; s < group_size; ++s) {
                        draws.outputs[(sample + s) * steps() + done + i] = group.outputs()[i][s];
                    }
                }
            }
        }
    }
    return draws;
}

std::vector<double> LossSampler::evaluate(std::span<const double> outputs,
                                          std::span<const double> public_counts, const Poll& poll) const {
    const auto* truncated = std::get_if<TruncatedBMinSep>(&scheme_);
    if (outputs.size() % steps() != 0) throw std::invalid_argument("outputs must be rows of `steps` values");
    if (truncated != nullptr && public_counts.size() != outputs.size()) {
        throw std::invalid_argument("the truncated scheme needs a public count for every output");
    }
    const std::size_t count = outputs.size() / steps();
    std::vector<double> losses(count);
    const double sign = direction_ == Direction::remove ? 1 : -1;
    in_batches((count + group_size - 1) / group_size, static_cast<double>(group_size) * sample_work(direct_),
               poll, [&](std::size_t index) {
                   const std::size_t first = index * group_size,
                                     samples = std::min(group_size, count - first);
                   Rows rows(direct_.rows()), products(direct_.rows()), survival;
                   if (truncated != nullptr) survival = Rows(direct_.outputs(), 1.0);
                   Mixture::Evaluation above(mixture_);
                   std::optional<Mixture::Evaluation> below;
                   if (denominator_) below.emplace(*denominator_);
                   for (std::size_t done = 0; done < steps(); done += direct_.outputs()) {
                       rows.fill(0.0);
                       const std::size_t there = std::min(direct_.rows(), steps() - done);
                       const std::size_t used = std::min(direct_.outputs(), steps() - done);
                       for (std::size_t s = 0; s < samples; ++s) {
                           const std::size_t at = (first + s) * steps() + done;
                           for (std::size_t i = 0; i < there; ++i)
                               rows[i][s] = outputs[at + i] / noise_multiplier_;
                           for (std::size_t i = 0; truncated != nullptr && i < used; ++i) {
                               survival[i][s] = survival_probability(*truncated, public_counts[at + i]);
                           }
                       }
                       direct_.compute(rows, done, products);
                       above.add(products[0], used, truncated != nullptr ? survival[0] : nullptr);
                       if (below) below->add(products[0], used, survival[0]);
                   }
                   double row[group_size], ratio[group_size] = {};
                   above.finish(row);
                   if (below) below->finish(ratio);
                   for (std::size_t s = 0; s < samples; ++s) losses[first + s] = sign * (row[s] - ratio[s]);
               });
    return losses;
}

}  // namespace hockeystick
