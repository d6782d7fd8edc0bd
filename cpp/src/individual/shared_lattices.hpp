// Bounds by rounding losses to lattices that many examples share, for those whose transform decays too slowly
// for a line; see lattice_bank.hpp (docs/individual/individual.md, "Individual ε of DP-SGD").
#pragma once

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "hockeystick/mutex.hpp"
#include "individual/lattice_bank.hpp"
#include "individual/question.hpp"
#include "individual/shared_lines.hpp"
#include "individual/step_kinds.hpp"

namespace hockeystick {

class SharedLattices {
public:
    explicit SharedLattices(const StepKinds& kinds) : kinds_(kinds) {}

    // Narrows the answers of some rows from above or below; few: their histories have few steps.
    // Rows with the same lattice go together, so that few of them are in memory; larger lattices for those
    // rows that need them.
    void narrow(Asked& asked, const std::vector<std::uint32_t>& some, bool upper, bool few) {
        std::map<Key, std::vector<std::uint32_t>> groups;
        std::vector<Key> keys(some.size());
        in_tasks(some.size(), [&](std::size_t i) { keys[i] = key_for(asked, some[i], upper, few); });
        for (std::size_t i = 0; i < some.size(); ++i) groups[keys[i]].push_back(some[i]);
        while (!groups.empty()) {
            const auto group = groups.extract(groups.begin());
            const std::vector<std::uint32_t>& rows = group.mapped();
            const LatticeBank& bank = prepare_bank(group.key(), asked.table, rows);
            std::vector<Wanted> wanted(rows.size());
            in_tasks(rows.size(),
                     [&](std::size_t i) { wanted[i] = narrow_row(asked, bank, group.key(), rows[i]); });
            for (std::size_t i = 0; i < rows.size(); ++i) {
                if (!wanted[i].larger && !wanted[i].longer) continue;
                Key next = group.key();
                next.size += wanted[i].larger;
                next.length += wanted[i].longer ? (few ? 1 : 2) : 0;
                groups[next].push_back(rows[i]);
            }
        }
    }

private:
    // All of these are for speed. The points of a lattice: a larger one is tried where rounding to it would
    // cost this much of delta.
    static constexpr std::size_t lattice_sizes[] = {1024, 4096, 16384, 65536};
    static constexpr double lattice_cost = 5e-3;
    static constexpr double lattice_room = 1.5;
    static constexpr int longest_window = 64;
    static constexpr std::size_t bank_bytes = std::size_t{1} << 28;

    // P-mass that does not matter, for all delta of this class.
    static double tail_mass(int period) { return std::max(1e-280, 1e-3 * std::exp(16 - 8.0 * period)); }

    static constexpr int unbounded = std::numeric_limits<int>::min();
    struct Key {
        int tilt, period;
        int length;  // of the window; unbounded: losses are not bounded from below
        std::size_t size;
        bool upper, few;
        auto operator<=>(const Key&) const = default;
    };
    // Whether a larger lattice, or a longer window, is wanted.
    struct Wanted {
        bool larger = false, longer = false;
    };

    Key key_for(const Asked& asked, std::size_t row, bool upper, bool few) {
        const Start& start = asked.starts[row];
        const int period = period_class(asked.question.log_inverse_delta(start.score));
        const int length = window_length(asked.table.history(row), period, few);
        return {line_tilt(start.tilt), period, length, 0, upper, few};
    }
    // How long the window must be at least, in steps of sqrt 2: from the least possible loss to what the
    // largest step hardly ever exceeds.
    int window_length(const History& history, int period, bool few) {
        double length = 0;
        for (const Counted& each : history) {
            if (!kinds_[each.kind].pair) continue;
            if (!(kinds_[each.kind].without < 0)) return unbounded;
            length = std::max(length, reach(each.kind, period));
        }
        // After many steps the tilt is larger, and the window longer.
        return static_cast<int>(std::clamp(std::ceil(2 * std::log2(length)) + (few ? 0 : 4), -400.0, 60.0));
    }
    double reach(std::size_t kind, int period) {
        const std::lock_guard lock(mutex_);
        const auto [at, added] = reaches_.try_emplace({kind, period}, 0);
        if (added)
            at->second = LatticeBank::reach(*kinds_[kind].pair, 0, kinds_.deviation(kind),
                                            std::log(tail_mass(period))) -
                         kinds_[kind].without;
        return at->second;
    }
    // The table of a lattice, with all kinds that these rows have.
    LatticeBank& prepare_bank(const Key& key, const CountTable& table,
                              const std::vector<std::uint32_t>& rows) {
        std::size_t bytes = 0;
        for (const auto& [other, bank] : banks_) bytes += bank.bytes();
        if (bytes > bank_bytes) banks_.clear();
        const double log_inverse = 8.0 * key.period, reference = shared_tilt(key.tilt);
        const std::size_t size = lattice_sizes[key.size];
        const bool bounded = key.length != unbounded;
        // Rare large losses dominate a law that is tilted as much as Chernoff's bound wants. All that the
        // tilt is for is rounding, at a delta far below round-off or after many steps. For a lower bound none
        // at all: what is folded into the window must not count for more than it is.
        const bool plain = key.few && key.period <= 4;
        const double s = !bounded ? reference
                         : plain  ? (key.upper ? 0.125 * reference : 0.0)
                                  : 0.5 * reference;
        const double length = bounded ? std::exp2(0.5 * key.length)
                                      : lattice_room * (key.upper ? 1 : 2) * log_inverse / reference;
        const LatticeBank::Shape shape{key.upper ? Bound::upper : Bound::lower,
                                       s,
                                       reference,
                                       length / static_cast<double>(size),
                                       size,
                                       tail_mass(key.period),
                                       bounded,
                                       key.few};
        LatticeBank& bank = banks_.try_emplace(key, shape, kinds_.size()).first->second;
        std::vector<char> here(kinds_.size());
        for (const auto row : rows)
            for (const Counted& each : table.history(row)) here[each.kind] = true;
        parallel_for(kinds_.size(), [&](std::size_t i) {
            const StepKinds::Kind& kind = kinds_[i];
            if (here[i] && kind.pair && !bank.made(i)) bank.make(i, *kind.pair, kind.without, kind.moment(s));
        });
        return bank;
    }
    Wanted narrow_row(Asked& asked, const LatticeBank& bank, const Key& key, std::size_t row) const {
        History history = asked.table.history(row);
        std::erase_if(history, [&](const Counted& each) { return !kinds_[each.kind].pair; });
        // A larger variance v moves ln delta by about s^2 v / 2.
        const double s = shared_tilt(key.tilt);
        if (key.size + 1 < std::size(lattice_sizes) &&
            !(0.5 * s * s * bank.added_variance(history) <= lattice_cost))
            return {true, false};
        bool too_short = false;
        const auto table = bank.compose(history, too_short);
        if (table) {
            auto& [lower, upper, path] = asked.answers;
            const double found =
                asked.question.read(*table, row, asked.question.chernoff(asked.starts[row].score), key.upper);
            if (!key.upper && found <= upper[row]) lower[row] = std::max(lower[row], found);
            if (key.upper && found < upper[row]) {
                upper[row] = std::max(found, lower[row]);
                path[row] = Path::lattice;
            }
        }
        return {false, too_short && key.length != unbounded && key.length < longest_window};
    }

    const StepKinds& kinds_;
    Mutex mutex_;  // of the reaches
    std::map<std::pair<std::size_t, int>, double> reaches_;
    std::map<Key, LatticeBank> banks_;
};

}  // namespace hockeystick
