// Bounds for many examples: a tilt for each, then shared lines, then shared lattices
// (docs/individual/individual.md, "Individual ε of DP-SGD").
#include "hockeystick/individual.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <mutex>
#include <set>
#include <utility>

#include "hockeystick/arithmetic.hpp"
#include "hockeystick/mutex.hpp"
#include "individual/counts.hpp"
#include "individual/question.hpp"
#include "individual/shared_lattices.hpp"
#include "individual/shared_lines.hpp"
#include "individual/step_kinds.hpp"
#include "numerics/constants.hpp"
#include "numerics/require.hpp"

namespace hockeystick {
namespace {

// Speed: gaps that are small enough not to try the next line, and not to try lattices after them.
constexpr double narrow = 1e-4, lattice_narrow = 2e-3;
// Proof: more than what 2^53 losses below the normal doubles may be off by, each by some units of the
// smallest.
constexpr double lost_to_underflow = 1e-290;

// Downhill from the tilt that would be right for a Gaussian of the same variance; where losses are rare, from
// one that moves the noise enough.
Start best_tilt(StepKinds& kinds, const History& history, const Question& question, std::size_t row) {
    if (!(kinds.variance(history) > 0)) return {};
    const auto at = [&](int t) { return question.score(kinds.log_moment(history, t), shared_tilt(t), row); };
    const double index = std::log(5 / kinds.shift(history)) / std::log(shared_tilt(1));
    int best = static_cast<int>(std::clamp(std::round(index), 1.0 * lowest_tilt, 1.0 * highest_tilt));
    double value = at(best);
    while (!(value < infinity) && best > lowest_tilt) value = at(--best);
    bool moved = false;
    for (const int direction : {-1, 1}) {
        for (;;) {
            const int next = best + direction;
            if (next < lowest_tilt || next > highest_tilt) break;
            const double there = at(next);
            if (!(there < value)) break;
            best = next;
            value = there;
            moved = true;
        }
        if (moved) break;
    }
    std::uint64_t steps = 0;
    bool sampled = false;
    for (const auto& [kind, count] : history) {
        steps += count;
        sampled = sampled || kinds[kind].mgf;
    }
    // The score's own rounding.
    return {best, value + 1e-12 * std::abs(value), sampled && steps <= LatticeBank::few_steps};
}

bool gap_within(const Asked& asked, std::size_t row, double share) {
    const IndividualAnswers& answers = asked.answers;
    return answers.upper[row] - answers.lower[row] <= share * answers.upper[row];
}

bool is_open(const Asked& asked, const IndividualWish& wish, std::size_t row) {
    const bool wanted = wish.floor.empty() || asked.answers.upper[row] > wish.floor[row];
    return wanted && !gap_within(asked, row, narrow);
}

}  // namespace

class IndividualProfiles::Impl {
public:
    explicit Impl(const std::vector<PairPtr>& pairs) : kinds(pairs), lines(kinds), lattices(kinds) {}

    CountTable checked(const IndividualCounts& counts, const IndividualWish& wish) const;
    IndividualAnswers answer(const CountTable& table, const IndividualWish& wish, const Question& question);
    // Where delta says enough: `value` for all that spent something.
    IndividualAnswers limits(const CountTable& table, double value) const;

    Mutex calls;  // Lines and transforms are made on the way: one caller at a time.
    StepKinds kinds;

private:
    // Tries the lines of a tier; what is open afterwards stays in `open`.
    void try_lines(Asked& asked, const IndividualWish& wish, std::size_t tier, const std::vector<char>& used,
                   std::vector<std::uint32_t>& open);
    void narrow_answers(Asked& asked, const IndividualWish& wish, std::vector<std::uint32_t> open,
                        const std::vector<std::uint32_t>& few);

    SharedLines lines;
    SharedLattices lattices;
};

CountTable IndividualProfiles::Impl::checked(const IndividualCounts& counts,
                                             const IndividualWish& wish) const {
    CountTable table(counts, kinds.size());
    const std::size_t size = std::visit([](const auto& all) { return all.size(); }, counts);
    require(size == table.rows() * kinds.size(),
            "counts: as many for each example as there are kinds are needed");
    require(wish.floor.empty() || wish.floor.size() == table.rows(), "floor: one for each example is needed");
    return table;
}

IndividualAnswers IndividualProfiles::Impl::limits(const CountTable& table, double value) const {
    IndividualAnswers out;
    for (std::size_t row = 0; row < table.rows(); ++row) {
        out.lower.push_back(kinds.variance(table.history(row)) > 0 ? value : 0);
        out.path.push_back(Path::nothing);
    }
    out.upper = out.lower;
    return out;
}

void IndividualProfiles::Impl::try_lines(Asked& asked, const IndividualWish& wish, std::size_t tier,
                                         const std::vector<char>& used, std::vector<std::uint32_t>& open) {
    const auto key = [&](std::size_t row) {
        const Start& start = asked.starts[row];
        return SharedLines::key(start.tilt, asked.question.log_inverse_delta(start.score), tier);
    };
    std::set<SharedLines::Key> keys;
    for (const auto row : open) keys.insert(key(row));
    for (const SharedLines::Key& each : keys) lines.prepare(each, used);
    std::vector<char> still_open(open.size());
    in_tasks(open.size(), [&](std::size_t i) {
        const std::size_t row = open[i];
        auto& [lower, upper, path] = asked.answers;
        Contour contour{};
        Bracket found{0, infinity};
        bool aliases = false;
        if (lines.make_contour(key(row), asked.table.history(row), contour, aliases))
            found = asked.question.solve(contour, row, asked.question.chernoff(asked.starts[row].score));
        if (found.upper <= upper[row]) {
            upper[row] = found.upper;
            path[row] = tiers[tier].path;
        }
        // Aliases make the result too large; without a bound on them, nothing is known below.
        if (aliases && found.lower <= upper[row]) lower[row] = std::max(lower[row], found.lower);
        still_open[i] = is_open(asked, wish, row);
    });
    std::size_t left = 0;
    for (std::size_t i = 0; i < open.size(); ++i)
        if (still_open[i]) open[left++] = open[i];
    open.resize(left);
}

// By lines, then by lattices; few: those of few steps, for which lines are no use.
void IndividualProfiles::Impl::narrow_answers(Asked& asked, const IndividualWish& wish,
                                              std::vector<std::uint32_t> open,
                                              const std::vector<std::uint32_t>& few) {
    const std::vector<char> used = asked.table.used();
    for (std::size_t tier = 0; tier < std::size(tiers) && !open.empty(); ++tier)
        try_lines(asked, wish, tier, used, open);
    std::erase_if(open, [&](std::size_t row) { return gap_within(asked, row, lattice_narrow); });
    if (!asked.question.shares_lattices()) open.clear();
    for (const auto* some : {&few, &std::as_const(open)})
        for (const bool above : {true, false})
            if (above || wish.lower) lattices.narrow(asked, *some, above, some == &few);
}

IndividualAnswers IndividualProfiles::Impl::answer(const CountTable& table, const IndividualWish& wish,
                                                   const Question& question) {
    const std::size_t rows = table.rows();
    std::vector<double> points(rows);
    for (std::size_t row = 0; row < rows; ++row) points[row] = question.point(row);
    const CountTable::Distinct distinct = table.distinct(points);
    Asked asked{table,
                question,
                std::vector<Start>(rows),
                {std::vector<double>(rows, 0.0), std::vector<double>(rows, 0.0),
                 std::vector<Path>(rows, Path::nothing)}};
    auto& [lower, upper, path] = asked.answers;
    in_tasks(distinct.rows.size(), [&](std::size_t i) {
        const std::size_t row = distinct.rows[i];
        asked.starts[row] = best_tilt(kinds, table.history(row), question, row);
    });
    // Few steps: their transform hardly decays, unless they are Gaussian.
    std::vector<std::uint32_t> open, few;
    for (const auto row : distinct.rows) {
        const Start& start = asked.starts[row];
        if (start.tilt == Start::nowhere) continue;
        upper[row] = question.chernoff(start.score);
        path[row] = Path::chernoff;
        if (is_open(asked, wish, row)) (start.few ? few : open).push_back(row);
    }
    narrow_answers(asked, wish, std::move(open), few);
    for (std::size_t row = 0; row < rows; ++row) {
        const std::size_t same = distinct.first[row];
        lower[row] = lower[same];
        upper[row] = upper[same];
        path[row] = path[same];
    }
    return std::move(asked.answers);
}

IndividualProfiles::IndividualProfiles(const std::vector<PairPtr>& pairs)
    : impl_([&] {
          const StandardArithmetic standard;
          return std::make_unique<Impl>(pairs);
      }()) {}
IndividualProfiles::~IndividualProfiles() = default;

std::size_t IndividualProfiles::kinds() const noexcept { return impl_->kinds.size(); }

std::vector<double> IndividualProfiles::log_moments(double s) const {
    require(s > 0 && std::isfinite(s), "log_moments: s must be finite and positive");
    const StandardArithmetic standard;
    const std::lock_guard lock(impl_->calls);
    std::vector<double> out;
    for (std::size_t kind = 0; kind < kinds(); ++kind) out.push_back(impl_->kinds[kind].upper(s));
    return out;
}

IndividualAnswers IndividualProfiles::epsilon(const IndividualCounts& counts, double delta,
                                              const IndividualWish& wish) {
    require(delta >= 0 && delta <= 1, "epsilon: delta must lie in [0, 1]");
    const StandardArithmetic standard;
    const std::lock_guard lock(impl_->calls);
    const CountTable table = impl_->checked(counts, wish);
    if (delta >= 1) return impl_->limits(table, 0);
    IndividualAnswers out =
        delta > 0 ? impl_->answer(table, wish, EpsilonQuestion(delta)) : impl_->limits(table, infinity);
    // Nor is eps above the sum of the largest losses, which it is at delta = 0.
    in_tasks(table.rows(), [&](std::size_t row) {
        const double most = impl_->kinds.max_loss(table.history(row));
        out.lower[row] = std::min(out.lower[row], std::max(0.0, most * (1 - 1e-12) - lost_to_underflow));
        out.upper[row] = std::min(out.upper[row], most * (1 + 1e-12) + 5e-324);
    });
    return out;
}

IndividualAnswers IndividualProfiles::delta(const IndividualCounts& counts, std::span<const double> epsilons,
                                            const IndividualWish& wish) {
    const StandardArithmetic standard;
    const std::lock_guard lock(impl_->calls);
    const CountTable table = impl_->checked(counts, wish);
    require(epsilons.size() == table.rows(), "delta: one epsilon for each example is needed");
    require(std::ranges::all_of(epsilons, [](double epsilon) { return epsilon >= 0; }),
            "delta: each epsilon must be at least 0");
    IndividualAnswers out = impl_->answer(table, wish, DeltaQuestion(epsilons));
    // No loss of a mixture of Gaussians is infinite.
    for (std::size_t row = 0; row < table.rows(); ++row)
        if (epsilons[row] == infinity) out.lower[row] = out.upper[row] = 0;
    return out;
}

}  // namespace hockeystick
