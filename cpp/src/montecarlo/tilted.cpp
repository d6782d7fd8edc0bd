#include "hockeystick/tilted.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "hockeystick/estimate.hpp"
#include "montecarlo/group_counts.hpp"
#include "montecarlo/kernels.hpp"
#include "montecarlo/sample_blocks.hpp"

namespace hockeystick {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// ln sum_k e^{x_k}
double log_sum(const double* x, std::size_t count) {
    const double largest = *std::max_element(x, x + count);
    if (!(largest > -infinity) || largest == infinity) return largest;
    double sum = 0;
    for (std::size_t k = 0; k < count; ++k) sum += portable_exp(x[k] - largest);
    return largest + portable_log(sum);
}

bool is_identity(const Component& c) { return c.order == 0 && c.tilt.theta == 1 && c.tilt.shift == 0; }

}  // namespace

// Public counts, the mixture that P_r is compared with, Q_r, and the envelope of P_r (swapped: the reverse).
struct TiltedSampler::Truncation {
    Truncation(const Strategy& strategy, const TruncatedBMinSep& truncated, double noise_multiplier,
               std::uint64_t most, bool swapped)
        : scheme(truncated),
          most_others(most),
          weights(envelope(truncated, most, largest_half_norm(strategy, noise_multiplier), swapped)),
          table(PublicCounts::table(truncated)),
          other(strategy, truncated, noise_multiplier, swapped ? Numerator::present : Numerator::absent),
          sum(strategy, truncated.base, noise_multiplier, weights) {
        // Q_r contains R at least with the probability of no surviving participation if all rounds are
        // truncated, P_r with that of no participation.
        const auto places = static_cast<double>(truncated.max_batch);
        const Tilt none{swapped ? 0 : 1 / (places + 1) * (1 - 1e-15), 0};
        log_none = tilted_law(truncated.base, strategy.steps(), none)->log_normaliser();
    }

    static double largest_half_norm(const Strategy& strategy, double noise_multiplier) {
        const auto norms = strategy.squared_norms();
        return *std::max_element(norms.begin(), norms.end()) / noise_multiplier / noise_multiplier / 2;
    }

    // 16 lanes: the survival probabilities of all rounds, and whether no count is above the limit.
    void draw(const BlockStream& stream, std::size_t lane, std::size_t steps, Rows& survival, bool* allowed,
              Draws* record) const {
        GroupCounts counts(scheme, steps, table, stream, lane);
        constexpr std::size_t chunk = 64;
        Rows others(chunk);
        const auto limit = static_cast<double>(most_others);
        std::fill_n(allowed, group_size, true);
        for (std::size_t done = 0; done < steps; done += chunk) {
            const std::size_t count = std::min(chunk, steps - done);
            counts.next(count, others[0], survival[done]);
            for (std::size_t i = 0; i < count; ++i) {
                for (std::size_t s = 0; s < group_size; ++s) {
                    allowed[s] = allowed[s] && others[i][s] <= limit;
                    if (record != nullptr)
                        record->public_counts[(lane + s) * steps + done + i] = others[i][s];
                }
            }
        }
    }

    TruncatedBMinSep scheme;
    std::uint64_t most_others;
    Envelope weights;
    BinomialTable table;
    Mixture other, sum;
    double log_none = 0;
};

double tilted_value(double epsilon, double loss, double log_ratio, double log_scale) noexcept {
    if (loss <= epsilon) return 0;
    // What is not a number, or infinite on both sides, ends as 1.
    const double stick = 1 - portable_exp(epsilon - loss);
    const double value = portable_exp(loss - log_ratio - log_scale) * stick;
    // B is the largest value of all; what exceeds it by more than rounding is kept, and refused by who reads
    // it.
    return value <= 1 || (value > 1 + 1e-6 && value < infinity) ? value : 1;
}

TiltedSampler::TiltedSampler(Strategy strategy, Scheme scheme, double noise_multiplier,
                             std::vector<Component> components, std::uint64_t most_others,
                             Direction direction)
    : strategy_(std::move(strategy)),
      scheme_((check(scheme, strategy_.steps()), std::move(scheme))),
      components_(std::move(components)),
      products_(strategy_, noise_multiplier, Products::transform),
      swapped_(direction == Direction::add) {
    if (!(noise_multiplier > 0 && std::isfinite(noise_multiplier))) {
        throw std::invalid_argument("noise_multiplier must be positive and finite");
    }
    if (components_.empty()) throw std::invalid_argument("a proposal needs at least one component");
    if (std::holds_alternative<IndependentBMinSep>(scheme_)) {
        throw std::invalid_argument("no tables for several examples per user");
    }
    const auto* multi = std::get_if<MultiAttribution>(&scheme_);
    if (multi != nullptr && multi->exact && multi->separation > 1) {
        throw std::invalid_argument("no tables for the exact law of multi-attribution");
    }
    std::size_t separation = strategy_.bands();  // balls-in-bins: any number of bands
    const auto* truncated = std::get_if<TruncatedBMinSep>(&scheme_);
    if (const auto* s = std::get_if<BMinSep>(&scheme_)) separation = s->separation;
    if (truncated == nullptr && swapped_) {
        throw std::invalid_argument("importance sampling of direction add is for the truncated scheme");
    }
    if (truncated != nullptr) separation = truncated->base.separation;
    if (multi != nullptr) separation = multi->separation;
    if (strategy_.bands() > separation) {
        throw std::invalid_argument("importance sampling needs bands <= separation");
    }
    double total = 0;
    bool bounded = false;
    for (const Component& c : components_) {
        if (!(c.weight >= 0 && c.weight <= 1)) {
            throw std::invalid_argument("the weight of a component must be in [0, 1]");
        }
        if (c.order == 0 &&
            !(c.tilt.theta > 0 && std::isfinite(c.tilt.theta) && c.tilt.shift > -1 && c.tilt.shift <= 100)) {
            throw std::invalid_argument("theta must be positive and finite, shift in (-1, 100]");
        }
        total += c.weight;
        bounded = bounded || (c.weight > 0 && (c.order >= 2 || is_identity(c)));
    }
    if (!(std::abs(total - 1) < 1e-9) || !bounded) {
        throw std::invalid_argument("the weights must add up to 1, with a positive one for S or P");
    }
    const Numerator numerator = swapped_ ? Numerator::absent : Numerator::present;
    mixtures_.emplace_back(strategy_, scheme_, noise_multiplier, numerator);
    if (truncated != nullptr) {
        truncation_ =
            std::make_shared<Truncation>(strategy_, *truncated, noise_multiplier, most_others, swapped_);
    }
    const Scheme drawn = truncated == nullptr ? scheme_ : Scheme(truncated->base);
    const auto order_law = [&](int order) {
        if (truncated == nullptr) return moment_law(strategy_, scheme_, noise_multiplier, order);
        if (order != 2) throw std::invalid_argument("the truncated scheme has a table of order 2 only");
        return envelope_law(strategy_, truncated->base, noise_multiplier, truncation_->weights);
    };
    for (Component& c : components_) {
        c.weight /= total;
        laws_.push_back(c.order == 0 ? tilted_law(drawn, strategy_.steps(), c.tilt) : order_law(c.order));
        log_normalisers_.push_back(laws_.back()->log_normaliser());
        slots_.push_back(0);
        if (c.order == 0 && !is_identity(c)) {
            slots_.back() = mixtures_.size();
            // Bins have no theta, and their law no normaliser.
            mixtures_.emplace_back(strategy_, scheme_, noise_multiplier, numerator, false, c.tilt);
        }
    }
    block_size_ = samples_per_block(sample_work());
}

double TiltedSampler::sample_work() const noexcept {
    // Public counts cost as much as the noise and its products; two more mixtures.
    const double recursions = static_cast<double>(mixtures_.size()) / 3 + (truncation_ ? 5 : 0);
    return static_cast<double>(strategy_.steps()) * (1 + products_.operations() / 64 + recursions);
}

double TiltedSampler::work() const noexcept { return static_cast<double>(block_size_) * sample_work(); }

double TiltedSampler::log_normaliser(std::size_t k) const {
    const bool bounded = truncation_ && components_[k].order >= 2;
    return log_normalisers_[k] - (bounded ? truncation_->log_none : 0);
}

double TiltedSampler::log_bound(double epsilon) const {
    double bound = infinity;
    for (std::size_t k = 0; k < components_.size(); ++k) {
        const Component& c = components_[k];
        if (c.weight == 0) continue;
        const double log_weight = portable_log(c.weight);
        if (is_identity(c)) bound = std::min(bound, -log_weight);
        if (c.order < 2) continue;
        const double a = c.order;
        const double peak = (a - 1) * portable_log1p(-1 / a) - portable_log(a);
        bound = std::min(bound, log_normaliser(k) - log_weight - (a - 1) * epsilon + peak);
    }
    return bound;
}

// 16 samples: L, ln R/Q and the components' densities, 2 + components rows of 16.
void TiltedSampler::evaluate(const BlockStream& stream, std::size_t lane, double* rows, Draws* record) const {
    const std::size_t steps = strategy_.steps(), count = components_.size();
    struct Place {
        std::size_t lane, iteration;
        double multiplicity;
    };
    std::vector<Place> places, open;
    std::vector<Hit> hits;
    Rows survival;
    bool allowed[group_size];
    if (truncation_) {
        survival = Rows(steps);
        truncation_->draw(stream, lane, steps, survival, allowed, record);
    }
    for (std::size_t s = 0; s < group_size; ++s) {
        Stream choice(stream, lane + s, Purpose::proposal);
        double u = choice.uniform();
        // The last component of positive weight takes what rounding leaves.
        std::size_t k = count;
        for (std::size_t j = 0; j < count; ++j) {
            if (components_[j].weight == 0) continue;
            k = j;
            if (u <= components_[j].weight) break;
            u -= components_[j].weight;
        }
        laws_[k]->draw(choice, hits);
        for (const Hit& hit : hits) {
            double multiplicity = hit.multiplicity;
            if (truncation_ && components_[k].order >= 2) multiplicity *= truncation_->weights.sign;
            if (truncation_ && components_[k].order == 0) {
                // T given the public counts.
                const double kept = survival[hit.iteration][s];
                const double survives = kept == 1 || choice.uniform() <= kept ? 1 : 0;
                const double whole = swapped_ ? 0 : 1, cut = swapped_ ? -1 : 2;
                multiplicity *= survives * (kept < 1 ? cut : whole);
            }
            if (multiplicity != 0) places.push_back({s, hit.iteration, multiplicity});
        }
        if (record != nullptr) record->components[lane + s] = static_cast<int>(k);
    }
    std::stable_sort(places.begin(), places.end(),
                     [](const Place& a, const Place& b) { return a.iteration < b.iteration; });
    if (record != nullptr) {
        for (const Place& p : places) record->means[(lane + p.lane) * steps + p.iteration] += p.multiplicity;
    }

    Rows outputs(products_.rows()), products(products_.rows());
    std::vector<std::unique_ptr<Mixture::Evaluation>> evaluations;
    for (const Mixture& mixture : mixtures_) {
        evaluations.push_back(std::make_unique<Mixture::Evaluation>(mixture));
    }
    std::optional<Mixture::Evaluation> other, sum;
    if (truncation_) {
        other.emplace(truncation_->other);
        sum.emplace(truncation_->sum);
    }
    std::size_t next = 0;
    // The part of a column in iterations [from, from + live); `base` is the iteration of row 0.
    const auto add = [&](const Place& place, std::size_t base, std::size_t from, std::size_t live) {
        const auto column = products_.column(place.iteration);
        const std::size_t begin = std::max(from, place.iteration);
        const std::size_t end = std::min(from + live, place.iteration + column.size());
        for (std::size_t i = begin; i < end; ++i) {
            outputs[i - base][place.lane] += place.multiplicity * column[i - place.iteration];
        }
        return place.iteration + column.size() > from + live;
    };
    const auto generate = [&](std::size_t base, std::size_t row, std::size_t rows_count) {
        const std::size_t from = base + row;
        const std::size_t live = from < steps ? std::min(rows_count, steps - from) : 0;
        double* out = outputs[row];
        kernels::table().normals(
            out, from, (live + 1) / 2 * 2,
            {stream.lane_word(lane, Purpose::proposal_noise), static_cast<std::uint32_t>(stream.block),
             static_cast<std::uint32_t>(stream.block >> 32)},
            stream.key());
        std::fill(out + live * group_size, out + rows_count * group_size, 0.0);
        std::size_t kept = 0;
        for (std::size_t k = 0; k < open.size(); ++k) {
            if (add(open[k], base, from, live)) open[kept++] = open[k];
        }
        open.resize(kept);
        for (; next < places.size() && places[next].iteration < from + live; ++next) {
            if (add(places[next], base, from, live)) open.push_back(places[next]);
        }
    };
    const std::size_t overlap = products_.overlap(), stride = products_.outputs();
    generate(0, 0, overlap);
    for (std::size_t done = 0; done < steps; done += stride) {
        if (done > 0) {
            std::memmove(outputs[0], outputs[stride], overlap * group_size * sizeof(double));
        }
        generate(done, overlap, stride);
        products_.compute(outputs, done, products);
        const std::size_t used = std::min(stride, steps - done);
        const double* survives = truncation_ ? survival[done] : nullptr;
        for (auto& evaluation : evaluations) evaluation->add(products[0], used, survives);
        if (truncation_) {
            other->add(products[0], used, survives);
            sum->add(products[0], used, nullptr);
        }
        if (record != nullptr) {
            for (std::size_t i = 0; i < used; ++i) {
                for (std::size_t s = 0; s < group_size; ++s) {
                    record->outputs[(lane + s) * steps + done + i] = outputs[i][s];
                }
            }
        }
    }
    Rows densities(mixtures_.size());
    for (std::size_t j = 0; j < mixtures_.size(); ++j) evaluations[j]->finish(densities[j]);
    // Relative to Q_r, and for order 2 the density of the envelope.
    Rows reference(2);
    if (truncation_) {
        other->finish(reference[0]);
        sum->finish(reference[1]);
    }
    std::vector<double> terms;
    for (std::size_t s = 0; s < group_size; ++s) {
        terms.clear();
        const double below = reference[0][s], loss = densities[0][s] - below;
        for (std::size_t k = 0; k < count; ++k) {
            const Component& c = components_[k];
            double density = densities[slots_[k]][s] - below - log_normalisers_[k];
            if (c.order >= 2) {
                const double ratio = truncation_ ? reference[1][s] : loss;
                density = static_cast<double>(c.order) * ratio - below - log_normalisers_[k];
            }
            if (is_identity(c)) density = loss;
            rows[(2 + k) * group_size + s] = density;
            if (c.weight > 0) terms.push_back(portable_log(c.weight) + density);
        }
        rows[s] = truncation_ && !allowed[s] ? -infinity : loss;
        rows[group_size + s] = log_sum(terms.data(), terms.size());
    }
}

std::vector<double> TiltedSampler::samples(std::uint64_t seed, std::uint64_t first, std::size_t blocks,
                                           const Poll& poll) const {
    return all_samples(blocks, block_size_, 2 + components_.size(), work(), poll,
                       [&](std::size_t block, std::size_t lane, double* rows) {
                           evaluate({seed, first + block, swapped_}, lane, rows, nullptr);
                       });
}

std::vector<double> TiltedSampler::values(std::uint64_t seed, std::span<const double> epsilons,
                                          double log_scale, std::uint64_t first, std::size_t blocks,
                                          const Poll& poll) const {
    const std::size_t samples = blocks * block_size_;
    std::vector<double> out(epsilons.size() * samples);
    in_batches(blocks, work(), poll, [&](std::size_t block) {
        Rows rows(2 + components_.size());
        for (std::size_t lane = 0; lane < block_size_; lane += group_size) {
            evaluate({seed, first + block, swapped_}, lane, rows[0], nullptr);
            for (std::size_t e = 0; e < epsilons.size(); ++e) {
                double* to = out.data() + e * samples + block * block_size_ + lane;
                for (std::size_t s = 0; s < group_size; ++s) {
                    to[s] = tilted_value(epsilons[e], rows[0][s], rows[1][s], log_scale);
                }
            }
        }
    });
    return out;
}

TiltedSampler::Draws TiltedSampler::draws(std::uint64_t seed, std::uint64_t block) const {
    Draws draws;
    draws.means.assign(block_size_ * strategy_.steps(), 0.0);
    draws.outputs.assign(block_size_ * strategy_.steps(), 0.0);
    draws.components.assign(block_size_, 0);
    if (truncation_) draws.public_counts.assign(block_size_ * strategy_.steps(), 0.0);
    Rows rows(2 + components_.size());
    for (std::size_t lane = 0; lane < block_size_; lane += group_size) {
        evaluate({seed, block, swapped_}, lane, rows[0], &draws);
    }
    return draws;
}

}  // namespace hockeystick
