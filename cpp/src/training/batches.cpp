// The batches of a training run, step by step (docs/sampling/batches.md, "How exact the law is").
#include "hockeystick/batches.hpp"

#include <algorithm>
#include <stdexcept>
#include <type_traits>

#include "hockeystick/parallel.hpp"
#include "numerics/require.hpp"
#include "training/coins.hpp"

namespace hockeystick {
namespace {

// What numbers of 32 bits hold, and what fits into memory.
constexpr std::uint64_t most_listed = std::uint64_t{1} << 32;
constexpr std::uint64_t most_groups = std::uint64_t{1} << 27;
constexpr std::uint64_t most_steps = std::uint64_t{1} << 31;

enum Purpose : std::uint32_t { purpose_batch = 0, purpose_start = 1, purpose_ahead = 2 };

// Members by group, in the order they come. `assign` calls its argument with (group, member), and the same
// pairs each time: once to count, once to place them, so that nothing but the result is ever in memory.
template <typename Assign>
Groups grouped(std::uint64_t count, const Assign& assign) {
    Groups groups;
    groups.offsets.assign(count + 1, 0);
    assign([&](std::uint64_t group, std::uint64_t) { ++groups.offsets[group + 1]; });
    for (std::uint64_t g = 0; g < count; ++g) groups.offsets[g + 1] += groups.offsets[g];
    groups.members.resize(groups.offsets[count]);
    // offsets[g] moves from the start of group g to its end, which is the start of the next.
    assign([&](std::uint64_t group, std::uint64_t member) {
        groups.members[groups.offsets[group]++] = static_cast<std::uint32_t>(member);
    });
    for (std::uint64_t g = count; g > 0; --g) groups.offsets[g] = groups.offsets[g - 1];
    groups.offsets[0] = 0;
    return groups;
}

double probability_of(const BatchLaw& law) {
    return std::visit(
        [](const auto& l) {
            if constexpr (requires { l.probability; }) {
                return l.probability;
            } else {
                return 0.0;
            }
        },
        law);
}

void check_separation(std::uint64_t separation) {
    require(separation >= 1 && separation <= std::uint64_t{1} << 53, "separation must be in [1, 2^53]");
}

std::uint64_t coins_at_a_time(const BatchLaw& law, std::uint64_t population) {
    const auto* poisson = std::get_if<PoissonBatches>(&law);
    if (poisson == nullptr) return population;
    require(poisson->groups >= 1, "groups must be at least 1");
    return population / poisson->groups + 1;
}

}  // namespace

BatchSampler::BatchSampler(const BatchLaw& law, std::uint64_t population, std::uint64_t steps,
                           std::optional<std::uint64_t> max_batch, const ChaChaKey& key)
    : law_(law),
      population_(population),
      steps_(steps),
      max_batch_(max_batch),
      key_(key),
      coins_(std::make_unique<const Coins>(probability_of(law), coins_at_a_time(law, population))) {
    require(population >= 1 && population <= std::uint64_t{1} << 53, "population must be in [1, 2^53]");
    require(steps <= most_steps, "steps must be at most 2^31");
    require(!max_batch || *max_batch >= 1, "max_batch must be at least 1");
    if (const auto* fixed = std::get_if<FixedBatches>(&law)) {
        require(fixed->size <= (fixed->replacement ? most_listed : population),
                "size must be at most population, or 2^32 with replacement");
    } else if (const auto* bins = std::get_if<BallsInBinsBatches>(&law)) {
        require(bins->bins >= 1, "bins must be at least 1");
        require(population <= most_listed, "population must be at most 2^32 for balls in bins");
        require(std::min(bins->bins, steps) <= most_groups, "bins (or steps) must be at most 2^27");
    } else if (const auto* min_sep = std::get_if<MinSepBatches>(&law)) {
        check_separation(min_sep->separation);
        require(population <= most_listed, "population must be at most 2^32 for min-sep sampling");
        require(!min_sep->warm_start || std::min(min_sep->separation, steps) <= most_groups,
                "separation (or steps) must be at most 2^27 with a warm start");
    } else if (const auto* multi = std::get_if<MultiAttributionBatches>(&law)) {
        check_separation(multi->separation);
        check(multi->graph);
        require(multi->graph.num_examples() == population, "the graph must have population examples");
        require(multi->ahead <= most_steps - steps, "steps + ahead must be at most 2^31");
    }
    start();
}
BatchSampler::~BatchSampler() = default;

void BatchSampler::start() {
    before_cut_.clear();
    std::visit([&](const auto& law) { start(law); }, law_);
}

void BatchSampler::start(const BallsInBinsBatches& law) { place(law, 0); }

void BatchSampler::place(const BallsInBinsBatches& law, std::uint64_t epoch) {
    // Places that never have their turn are not kept.
    const std::uint64_t count = std::min(law.bins, steps_);
    groups_ = grouped(count, [&](const auto& emit) {
        KeyedStream stream(key_, static_cast<std::uint32_t>(epoch), purpose_start);
        for (std::uint64_t e = 0; e < population_; ++e) {
            const std::uint64_t place = stream.below(law.bins);
            if (place < count) emit(place, e);
        }
    });
    epoch_ = epoch;
}

void BatchSampler::start(const MinSepBatches& law) {
    const std::uint64_t window = law.separation - 1;
    recent_.clear();
    recent_sizes_.clear();
    // Barred examples are (b - 1) p / (1 + (b - 1) p) of all: where they are more than half, drawing from
    // all would mostly draw barred ones.
    listed_ = static_cast<double>(window) * law.probability > 1.0;
    barred_.assign(listed_ ? 0 : (population_ + 63) / 64, 0);
    available_.clear();
    groups_ = Groups{};
    std::uint64_t next = 0;  // examples below it are listed, or barred
    const auto list_up_to = [&](std::uint64_t end) {
        for (; next < end; ++next) available_.push_back(static_cast<std::uint32_t>(next));
    };
    if (law.warm_start && window > 0) {
        // Algorithm 2: barred with probability w p / (1 + w p), w = b - 1, for 1, ..., w steps alike.
        const Coins barred = Coins::stationary(law.probability, window, population_);
        const auto toss = [&](const auto& found) {  // the same each time
            KeyedStream stream(key_, 0, purpose_start);
            barred.toss(stream, population_, [&](std::uint64_t e) { found(e, 1 + stream.below(window)); });
        };
        const std::uint64_t count = std::min(law.separation, steps_);
        groups_ = grouped(count, [&](const auto& emit) {
            toss([&](std::uint64_t e, std::uint64_t until) {
                if (until < count) emit(until, e);
            });
        });
        toss([&](std::uint64_t e, std::uint64_t) {
            if (listed_) {
                list_up_to(e);
                next = e + 1;
            } else {
                barred_[e / 64] |= std::uint64_t{1} << e % 64;
            }
        });
    } else if (listed_) {
        available_.reserve(population_);
    }
    if (listed_) list_up_to(population_);
}

void BatchSampler::start(const MultiAttributionBatches& law) {
    free_from_.assign(law.graph.num_users, 0);
    for (std::uint64_t i = 0; i < law.ahead; ++i) {
        KeyedStream stream(key_, static_cast<std::uint32_t>(i), purpose_ahead);
        static_cast<void>(draw(law, stream, i));
    }
}

std::size_t BatchSampler::state_bytes() const {
    const std::lock_guard lock(mutex_);
    return 8 * groups_.offsets.capacity() + 4 * groups_.members.capacity() + 8 * barred_.capacity() +
           4 * available_.capacity() + 4 * recent_.size() + 8 * recent_sizes_.size() +
           4 * free_from_.capacity();
}

BatchSampler::Batch BatchSampler::draw(const PoissonBatches& law, KeyedStream& stream,
                                       std::uint64_t step) const {
    const std::uint64_t group = step % law.groups;
    Batch batch;
    if (group >= population_) return batch;
    coins_->toss(stream, (population_ - group - 1) / law.groups + 1, [&](std::uint64_t rank) {
        batch.push_back(static_cast<std::int64_t>(group + rank * law.groups));
    });
    return batch;
}

BatchSampler::Batch BatchSampler::draw(const FixedBatches& law, KeyedStream& stream, std::uint64_t) const {
    Batch batch;
    if (!law.replacement) {
        const auto chosen = random_subset(stream, population_, law.size);
        batch.assign(chosen.begin(), chosen.end());
        return batch;
    }
    for (std::uint64_t i = 0; i < law.size; ++i) {
        batch.push_back(static_cast<std::int64_t>(stream.below(population_)));
    }
    std::sort(batch.begin(), batch.end());
    return batch;
}

BatchSampler::Batch BatchSampler::draw(const BallsInBinsBatches& law, KeyedStream&, std::uint64_t step) {
    if (law.redrawn && step / law.bins != epoch_) place(law, step / law.bins);
    const std::uint64_t turn = step % law.bins;
    const auto at = [&](std::uint64_t g) {
        return groups_.members.begin() + static_cast<std::ptrdiff_t>(groups_.offsets[g]);
    };
    return {at(turn), at(turn + 1)};
}

void BatchSampler::release(std::uint32_t example) {
    if (listed_) {
        available_.push_back(example);
    } else {
        barred_[example / 64] &= ~(std::uint64_t{1} << example % 64);
    }
}

// Coins of barred examples are tossed and ignored.
BatchSampler::Batch BatchSampler::draw_from_all(KeyedStream& stream) {
    Batch batch;
    coins_->toss(stream, population_, [&](std::uint64_t e) {
        std::uint64_t& word = barred_[e / 64];
        const std::uint64_t bit = std::uint64_t{1} << e % 64;
        if ((word & bit) == 0) {
            batch.push_back(static_cast<std::int64_t>(e));
            word |= bit;
        }
    });
    return batch;
}

BatchSampler::Batch BatchSampler::draw_from_available(KeyedStream& stream) {
    std::vector<std::uint64_t> places;
    coins_->toss(stream, available_.size(), [&](std::uint64_t place) { places.push_back(place); });
    Batch batch;
    batch.reserve(places.size());
    // From the last on: what takes a place comes from behind it, and its coin has been tossed.
    for (auto place = places.rbegin(); place != places.rend(); ++place) {
        batch.push_back(static_cast<std::int64_t>(available_[*place]));
        available_[*place] = available_.back();
        available_.pop_back();
    }
    std::sort(batch.begin(), batch.end());
    return batch;
}

BatchSampler::Batch BatchSampler::draw(const MinSepBatches& law, KeyedStream& stream, std::uint64_t step) {
    if (!groups_.offsets.empty()) {
        if (step + 1 < groups_.offsets.size()) {
            for (std::uint64_t i = groups_.offsets[step]; i < groups_.offsets[step + 1]; ++i) {
                release(groups_.members[i]);
            }
        } else {
            groups_ = Groups{};
        }
    }
    if (recent_sizes_.size() == law.separation) {
        for (; recent_sizes_.front() > 0; --recent_sizes_.front()) {
            release(recent_.front());
            recent_.pop_front();
        }
        recent_sizes_.pop_front();
    }
    Batch batch = listed_ ? draw_from_available(stream) : draw_from_all(stream);
    for (const std::int64_t e : batch) recent_.push_back(static_cast<std::uint32_t>(e));
    recent_sizes_.push_back(batch.size());
    return batch;
}

BatchSampler::Batch BatchSampler::draw(const MultiAttributionBatches& law, KeyedStream& stream,
                                       std::uint64_t step) {
    Batch drawn, batch;
    coins_->toss(stream, population_,
                 [&](std::uint64_t e) { drawn.push_back(static_cast<std::int64_t>(e)); });
    const auto now = static_cast<std::uint32_t>(step);
    for (const std::int64_t e : drawn) {
        const auto users = law.graph.of(static_cast<std::size_t>(e));
        const bool barred = std::any_of(users.begin(), users.end(), [&](std::int32_t user) {
            return free_from_[static_cast<std::size_t>(user)] > now;
        });
        if (!barred) batch.push_back(e);
    }
    // After all of them: examples of one step do not bar each other.
    const std::uint64_t until = step + std::min(law.separation, most_steps);
    for (const std::int64_t e : law.by_participation ? batch : drawn) {
        for (const std::int32_t user : law.graph.of(static_cast<std::size_t>(e))) {
            free_from_[static_cast<std::size_t>(user)] = static_cast<std::uint32_t>(until);
        }
    }
    return batch;
}

BatchSampler::Batch BatchSampler::draw(std::uint64_t step) {
    interruption_point();
    KeyedStream stream(key_, static_cast<std::uint32_t>(step), purpose_batch);
    Batch batch = std::visit(
        [&](const auto& law) {
            using Law = std::decay_t<decltype(law)>;
            std::uint64_t at = step;
            if constexpr (std::is_same_v<Law, MultiAttributionBatches>) at += law.ahead;
            return draw(law, stream, at);
        },
        law_);
    if (max_batch_) {
        before_cut_ = batch;
        if (batch.size() > *max_batch_) {
            const auto kept = random_subset(stream, batch.size(), *max_batch_);
            for (std::size_t i = 0; i < kept.size(); ++i) batch[i] = batch[kept[i]];
            batch.resize(kept.size());
        }
    }
    return batch;
}

// Where this is interrupted as well, `step_` still says how far to go the next time.
void BatchSampler::recover() {
    if (!interrupted_) return;
    start();
    for (std::uint64_t step = 0; step < step_; ++step) static_cast<void>(draw(step));
    interrupted_ = false;
}

std::vector<std::int64_t> BatchSampler::next() {
    const std::lock_guard lock(mutex_);
    if (step_ == steps_) throw std::out_of_range("all steps have had their batch");
    recover();
    interrupted_ = remembers();
    Batch batch = draw(step_);
    interrupted_ = false;
    ++step_;
    return batch;
}

bool BatchSampler::remembers() const noexcept {
    return std::holds_alternative<MinSepBatches>(law_) ||
           std::holds_alternative<MultiAttributionBatches>(law_);
}

bool BatchSampler::seek(std::uint64_t step, std::uint64_t most) {
    const std::lock_guard lock(mutex_);
    require(step <= steps_, "step must be at most the number of steps");
    if (!remembers()) {
        step_ = step;
        return true;
    }
    recover();
    interrupted_ = true;
    if (step < step_) {
        step_ = 0;
        start();
    }
    for (; step_ < step && most > 0; ++step_, --most) static_cast<void>(draw(step_));
    interrupted_ = false;
    return step_ == step;
}

std::vector<std::int64_t> BatchSampler::sampled() const {
    const std::lock_guard lock(mutex_);
    return before_cut_;
}

}  // namespace hockeystick
