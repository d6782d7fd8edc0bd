// Lines Re z = s that all examples share, with the transforms' logarithms on them; see individual.hpp.
#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <vector>

#include "hockeystick/individual.hpp"
#include "individual/step_kinds.hpp"
#include "inversion/contour.hpp"

namespace hockeystick {

// Speed: each tier of lines leaves more room, a period of `room` (ln 1/delta + 16) / s, and goes through a
// smaller tilt: where rare large losses carry the tilted law, the transform hardly decays.
struct Tier {
    std::size_t size;
    double room;
    int lower;  // notches below the best tilt
    Path path;
};
inline constexpr Tier tiers[] = {{16, 1.5, 0, Path::short_line},
                                 {32, 3, 0, Path::medium_line},
                                 {96, 6, 1, Path::medium_line},
                                 {512, 12, 3, Path::long_line}};

// Any tilt near the best one will do; so fewer lines are needed.
int line_tilt(int index);
// Examples whose ln 1/delta is about the same share their period.
int period_class(double log_inverse_delta);

class SharedLines {
public:
    explicit SharedLines(StepKinds& kinds) : kinds_(kinds) {}

    struct Key {
        int tilt, period;
        std::size_t tier;
        auto operator<=>(const Key&) const = default;
    };
    static Key key(int best_tilt, double log_inverse_delta, std::size_t tier);
    // Tabulates the kinds that are used on this line; not for several threads at once.
    void prepare(const Key& key, const std::vector<char>& used);
    // The history's transform on a line that is prepared; false where it cannot be had. aliases: whether
    // there is a bound on those from the right.
    bool make_contour(const Key& key, const History& history, Contour& contour, bool& aliases) const;

private:
    // For each kind 2 * size entries of `table`: the real parts of K(z_j) - K(s), then the imaginary parts of
    // K(z_j).
    struct Line {
        double s, step;
        std::size_t size;
        std::vector<double> table;
        std::vector<double> base;       // K(s)
        std::vector<double> error;      // the transform's relative error is at most e^error - 1 everywhere
        std::vector<double> magnitude;  // the largest |real| + |imaginary part|
        std::vector<double> beyond;     // ln of a bound of |M(z)| e^{-K(s)} from frequency size * step on
        std::vector<char> made;
    };
    // The same of a history.
    struct Sums {
        std::vector<double> row;
        double base = 0, error = 0, magnitude = 0, beyond = 0;
    };
    static void tabulate(const StepKinds::Kind& kind, Line& line, std::size_t index);
    static bool tabulate_mixture(const StepKinds::Kind& kind, Line& line, std::size_t index);
    static Sums add_up(const Line& line, const History& history);
    // From the left by delta <= 1, from the right by Chernoff's bound at a larger tilt.
    bool add_aliases(const Key& key, const History& history, Contour& contour) const;

    StepKinds& kinds_;
    std::map<Key, Line> lines_;
};

}  // namespace hockeystick
