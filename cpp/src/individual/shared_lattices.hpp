// Bounds by rounding losses to lattices that many examples share, for those whose transform decays too slowly
// for a line; see lattice_bank.hpp.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "individual/lattice_bank.hpp"
#include "individual/question.hpp"
#include "individual/step_kinds.hpp"

namespace hockeystick {

class SharedLattices {
public:
    explicit SharedLattices(const StepKinds& kinds) : kinds_(kinds) {}

    // Narrows the answers of some rows from above or below; few: their histories have few steps.
    void narrow(Asked& asked, const std::vector<std::uint32_t>& some, bool upper, bool few);

private:
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

    Key key_for(const Asked& asked, std::size_t row, bool upper, bool few);
    int window_length(const History& history, int period, bool few);
    double reach(std::size_t kind, int period);
    LatticeBank& prepare_bank(const Key& key, const CountTable& table,
                              const std::vector<std::uint32_t>& rows);
    Wanted narrow_row(Asked& asked, const LatticeBank& bank, const Key& key, std::size_t row) const;

    const StepKinds& kinds_;
    std::mutex mutex_;  // of the reaches
    std::map<std::pair<std::size_t, int>, double> reaches_;
    std::map<Key, LatticeBank> banks_;
};

}  // namespace hockeystick
