// Samples of the direction P against Q from a mixture of laws with known densities
// (docs/montecarlo/tilted.md, sections 1 to 8).
#include "montecarlo/tilted.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "montecarlo/group_counts.hpp"
#include "montecarlo/output_window.hpp"
#include "montecarlo/participation_chain.hpp"
#include "montecarlo/weights.hpp"
#include "numerics/constants.hpp"
#include "numerics/require.hpp"

namespace hockeystick {
namespace {

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

// Public counts, the mixture that P_r is compared with, Q_r, and the envelope of P_r (add: the reverse).
struct TiltedSampler::Truncation {
    Truncation(const MatrixMechanism& mechanism, std::uint64_t most, Direction direction)
        : scheme(std::get<TruncatedBMinSep>(mechanism.scheme)),
          most_others(most),
          weights(envelope(scheme, most, std::ranges::max(half_norms(mechanism, false)),
                           direction == Direction::add)),
          table(PublicCounts::table(scheme)),
          other(mechanism, direction == Direction::remove ? Numerator::absent : Numerator::present, false,
                direction == Direction::replace_one ? mirrored : Tilt{}),
          sum(mechanism, weights) {
        // Q_r contains R at least with the probability of no surviving participation if all rounds are
        // truncated; P_r and its mirror image with that of no participation. Proof: 1e-15 is more than
        // rounding adds.
        const auto places = static_cast<double>(scheme.max_batch);
        const Tilt none{direction == Direction::remove ? 1 / (places + 1) * (1 - 1e-15) : 0, 0};
        log_none = tilted_law(scheme.base, mechanism.steps(), none)->log_normaliser();
    }

    // 16 lanes: the survival probabilities of all rounds, and whether no count is above the limit.
    void draw(const BlockStream& stream, std::size_t lane, std::size_t steps, Rows& survival, bool* allowed,
              Draws* record) const {
        GroupCounts counts(scheme, steps, table, stream, lane);
        constexpr std::size_t chunk = 64;  // speed
        Rows others(chunk);
        const auto limit = static_cast<double>(most_others);
        std::fill_n(allowed, group_size, true);
        for (std::size_t done = 0; done < steps; done += chunk) {
            const std::size_t count = std::min(chunk, steps - done);
            counts.next(count, others[0], survival[done]);
            for (std::size_t i = 0; i < count; ++i) {
                for (std::size_t s = 0; s < group_size; ++s) {
                    allowed[s] = allowed[s] && others[i][s] <= limit;
                }
            }
            if (record != nullptr) {
                others.by_sample(count, record->public_counts.data() + done, steps);
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
    // B is the largest value of all; what exceeds it by more than rounding (1e-6: proof) is kept, and refused
    // by who reads it.
    return value <= 1 || (value > 1 + 1e-6 && value < infinity) ? value : 1;
}

TiltedSampler::TiltedSampler(MatrixMechanism mechanism, std::vector<Component> components,
                             std::uint64_t most_others, Direction direction, const TiltedSampler* like)
    : BlockSampler(std::move(mechanism), direction), components_(std::move(components)) {
    require(!components_.empty(), "a proposal needs at least one component");
    require(like == nullptr || (like->direction_ == direction_ && like->mechanism_ == mechanism_ &&
                                (!like->truncation_ || like->truncation_->most_others == most_others)),
            "the sampler whose tables are to be used is one of something else");
    if (like != nullptr) tables_ = like->tables_;
    check_scheme();
    check_components();
    const Numerator numerator = direction_ == Direction::add ? Numerator::absent : Numerator::present;
    mixtures_.emplace_back(mechanism_, numerator);
    const auto* truncated = std::get_if<TruncatedBMinSep>(&mechanism_.scheme);
    if (truncated != nullptr) {
        truncation_ = like != nullptr
                          ? like->truncation_
                          : std::make_shared<const Truncation>(mechanism_, most_others, direction_);
        log_none_ = truncation_->log_none;
    } else if (direction_ == Direction::replace_one) {
        mirror_ = std::make_shared<Mixture>(mechanism_, numerator, false, mirrored);
        log_none_ = tilted_law(mechanism_.scheme, steps(), {0, 0})->log_normaliser();
    }
    const Scheme drawn = truncated == nullptr ? mechanism_.scheme : Scheme(truncated->base);
    for (const Component& c : components_) {
        laws_.push_back(c.order == 0 ? tilted_law(drawn, steps(), c.tilt) : order_law(c.order));
        log_normalisers_.push_back(laws_.back()->log_normaliser());
    }
    add_tilted_mixtures(numerator);
    // Public counts cost as much as the noise and its products; two more mixtures.
    const auto tilted = std::count_if(slots_.begin(), slots_.end(), [](std::size_t row) { return row > 0; });
    const double recursions =
        static_cast<double>(1 + tilted) / 3 + (truncation_ ? 5 : 0) + (mirror_ ? 0.33 : 0);  // speed
    set_size(2 + components_.size(), 1 + recursions);
}

std::shared_ptr<const MeanLaw> TiltedSampler::order_law(int order) {
    // Speed: of higher orders there may be many, and their tables are soon made.
    constexpr int most_kept = 3;
    if (const auto found = tables_.find(order); found != tables_.end()) return found->second;
    require(!truncation_ || order == 2, "the truncated scheme has a table of order 2 only");
    std::shared_ptr<const MeanLaw> law =
        truncation_ ? envelope_law(mechanism_, truncation_->weights) : moment_law(mechanism_, order);
    if (order <= most_kept) tables_.emplace(order, law);
    return law;
}

void TiltedSampler::add_tilted_mixtures(Numerator numerator) {
    slots_.assign(components_.size(), 0);
    const bool bins = std::holds_alternative<BallsInBins>(mechanism_.scheme);
    for (std::size_t k = 0; k < components_.size(); ++k) {
        const Component& c = components_[k];
        if (c.order != 0 || is_identity(c) || slots_[k] != 0) continue;
        // This one, and the later ones of the same shift. Bins have no theta, and their law no normaliser.
        std::vector<double> more;
        for (std::size_t j = k; j < components_.size(); ++j) {
            const Component& other = components_[j];
            if (other.order != 0 || is_identity(other) || other.tilt.shift != c.tilt.shift) continue;
            slots_[j] = densities_ + (bins || j == k ? 0 : more.size() + 1);
            if (slots_[j] > densities_) more.push_back(other.tilt.theta);
        }
        mixtures_.emplace_back(mechanism_, numerator, false, c.tilt, more);
        densities_ += mixtures_.back().rows();
    }
}

void TiltedSampler::check_scheme() const {
    const bool bins = std::holds_alternative<BallsInBins>(mechanism_.scheme);
    require(bins || is_chain(mechanism_.scheme),
            "no tables for several examples per user, nor for the exact law of multi-attribution");
    require(direction_ != Direction::add || std::holds_alternative<TruncatedBMinSep>(mechanism_.scheme),
            "importance sampling of direction add is for the truncated scheme");
    require(direction_ != Direction::replace_one || !bins,
            "importance sampling of replace_one needs outputs without the example");
    // Balls-in-bins: any number of bands.
    require(bins || mechanism_.strategy.bands() <= separation(mechanism_.scheme),
            "importance sampling needs bands <= separation");
}

void TiltedSampler::check_components() {
    bool bounded = false;
    for (const Component& c : components_) {
        require(c.order != 0 || (c.tilt.theta > 0 && std::isfinite(c.tilt.theta) && c.tilt.shift > -1 &&
                                 c.tilt.shift <= 100),
                "theta must be positive and finite, shift in (-1, 100]");
        bounded = bounded || (c.weight > 0 && (c.order >= 2 || is_identity(c)));
    }
    require(normalise_weights(components_) && bounded,
            "the weights must be in [0, 1] and add up to 1, with a positive one for S or P");
}

double TiltedSampler::log_normaliser(std::size_t k) const {
    const int order = components_.at(k).order;
    return log_normalisers_[k] - (order >= 2 ? (order - 1) * log_none_ : 0);
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

// 16 samples: their means, outputs and densities.
class TiltedSampler::Group {
public:
    Group(const TiltedSampler& sampler, const BlockStream& stream, std::size_t lane, Draws* record)
        : sampler_(sampler), stream_(stream), lane_(lane), record_(record) {
        if (sampler.truncation_) {
            survival_ = Rows(sampler.steps());
            sampler.truncation_->draw(stream, lane, sampler.steps(), survival_, allowed_, record);
        }
        for (std::size_t s = 0; s < group_size; ++s) draw_mean(s);
        std::stable_sort(columns_.begin(), columns_.end(),
                         [](const Column& a, const Column& b) { return a.iteration < b.iteration; });
        if (record != nullptr) {
            for (const Column& c : columns_) record->means[place(c.lane, c.iteration)] += c.multiplicity;
        }
    }

    // L, ln R/Q and the components' densities, 2 + components rows of 16.
    void evaluate(double* rows) const {
        std::vector<std::unique_ptr<Mixture::Evaluation>> above;
        for (const Mixture& mixture : sampler_.mixtures_) above.push_back(mixture.start());
        const Truncation* const truncation = sampler_.truncation_.get();
        std::unique_ptr<Mixture::Evaluation> other, sum;
        if (truncation != nullptr) {
            other = truncation->other.start();
            sum = truncation->sum.start();
        } else if (sampler_.mirror_ != nullptr) {
            other = sampler_.mirror_->start();
        }
        run([&](const double* products, std::size_t done, std::size_t count) {
            const double* survives = truncation != nullptr ? survival_[done] : nullptr;
            for (auto& evaluation : above) evaluation->add(products, count, survives);
            if (other) other->add(products, count, survives);
            if (sum) sum->add(products, count, nullptr);
        });
        // Of the mixtures, of Q where that is one too, and of what S_a is made of: P, or the envelope.
        Rows densities(sampler_.densities_), below(1), bound(1);
        for (std::size_t j = 0, row = 0; j < above.size(); row += sampler_.mixtures_[j++].rows()) {
            above[j]->finish(densities[row]);
        }
        if (other) other->finish(below[0]);
        if (sum) sum->finish(bound[0]);
        for (std::size_t s = 0; s < group_size; ++s) {
            sampler_.weigh(densities, s, below[0][s], sum ? bound[0][s] : densities[0][s], rows + s);
            if (truncation != nullptr && !allowed_[s]) rows[s] = -infinity;
        }
    }

private:
    using Column = OutputWindow::Column;

    void draw_mean(std::size_t s) {
        Stream choice(stream_, lane_ + s, Purpose::proposal);
        const Truncation* const truncation = sampler_.truncation_.get();
        const std::size_t k = chosen(choice.uniform(), sampler_.components_);
        const int order = sampler_.components_[k].order;
        std::vector<Hit> hits;
        sampler_.laws_[k]->draw(choice, hits);
        for (const Hit& hit : hits) {
            double multiplicity = hit.multiplicity;
            if (truncation != nullptr && order >= 2) multiplicity *= truncation->weights.sign;
            if (truncation != nullptr && order == 0) {
                // T given the public counts.
                const double kept = survival_[hit.iteration][s];
                const double survives = kept == 1 || choice.uniform() <= kept ? 1 : 0;
                const bool absent = sampler_.direction_ == Direction::add;
                const double whole = absent ? 0 : 1, cut = absent ? -1 : 2;
                multiplicity *= survives * (kept < 1 ? cut : whole);
            }
            if (multiplicity != 0) columns_.push_back({s, hit.iteration, multiplicity});
        }
        if (record_ != nullptr) record_->components[s] = static_cast<int>(k);
    }

    // use(products, first, count) for one block of iterations after the other.
    template <class Use>
    void run(const Use& use) const {
        OutputWindow window(sampler_.products_, sampler_.steps(), {stream_, lane_, Purpose::proposal_noise},
                            record_);
        auto next = columns_.begin();
        window.run(
            [&](std::size_t, std::size_t from, std::size_t live) {
                window.continue_columns(from, live);
                for (; next != columns_.end() && next->iteration < from + live; ++next) {
                    window.begin_column(*next, from, live);
                }
            },
            use);
    }

    std::size_t place(std::size_t s, std::size_t iteration) const { return s * sampler_.steps() + iteration; }

    const TiltedSampler& sampler_;
    BlockStream stream_;
    std::size_t lane_;
    Draws* record_;
    Rows survival_;
    bool allowed_[group_size];
    std::vector<Column> columns_;  // of all samples, by iteration
};

// One sample's column of the rows: L, ln R/Q and the components' densities over Q.
void TiltedSampler::weigh(const Rows& densities, std::size_t s, double below, double bound,
                          double* rows) const {
    const double loss = densities[0][s] - below;
    std::vector<double> terms;
    for (std::size_t k = 0; k < components_.size(); ++k) {
        const Component& c = components_[k];
        double density = densities[slots_[k]][s] - below - log_normalisers_[k];
        if (c.order >= 2) density = c.order * bound - below - log_normalisers_[k];
        if (is_identity(c)) density = loss;
        rows[(2 + k) * group_size] = density;
        if (c.weight > 0) terms.push_back(portable_log(c.weight) + density);
    }
    rows[0] = loss;
    rows[group_size] = log_sum(terms.data(), terms.size());
}

void TiltedSampler::sample_group(const BlockStream& stream, std::size_t lane, double* rows,
                                 Draws* record) const {
    Group(*this, stream, lane, record).evaluate(rows);
}

std::vector<double> TiltedSampler::values(std::uint64_t seed, std::span<const double> epsilons,
                                          double log_scale, std::uint64_t first, std::size_t blocks) const {
    return values_of({seed, first, blocks}, epsilons, [&](double epsilon, const Rows& rows, std::size_t s) {
        return tilted_value(epsilon, rows[0][s], rows[1][s], log_scale);
    });
}

}  // namespace hockeystick
