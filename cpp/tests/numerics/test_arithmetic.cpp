// Standard arithmetic: set where a host has changed it, on every thread, and restored.
#include "hockeystick/arithmetic.hpp"

#include <cfenv>
#include <cmath>
#include <limits>
#include <vector>

#include "check.hpp"
#include "hockeystick/individual.hpp"
#include "hockeystick/parallel.hpp"
#include "hockeystick/profile.hpp"

using namespace hockeystick;

namespace {

// Read at run time, so that the compiler does not compute with them.
volatile double smallest = std::numeric_limits<double>::min(), one = 1, three = 3, ten = 10;

bool keeps_subnormals() { return smallest / 4 * 4 == smallest; }
// 1/3 is rounded down, 1/10 up.
bool rounds_to_nearest() { return one / three == 1.0 / 3.0 && one / ten == 1.0 / 10.0; }

// What hosts do: rounding modes through <cfenv>, subnormal numbers through the processor's own register.
std::vector<ArithmeticMode> disturbed() {
    std::vector<ArithmeticMode> modes;
    const ArithmeticMode before = arithmetic_mode();
    for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
        std::fesetround(mode);
        modes.push_back(arithmetic_mode());
    }
    std::fesetround(FE_TONEAREST);
    set_arithmetic_mode(before);
#if defined(__SSE2__)
    for (const ArithmeticMode bits : {0x8000U, 0x0040U, 0x8040U}) modes.push_back(before | bits);
#elif defined(__aarch64__)
    modes.push_back(before | ArithmeticMode{1} << 24);
#endif
    return modes;
}

void guards() {
    const ArithmeticMode before = arithmetic_mode();
    CHECK(is_standard(before) && is_standard(standard_arithmetic()));
    for (const ArithmeticMode mode : disturbed()) {
        set_arithmetic_mode(mode);
        const bool disturbs = !(keeps_subnormals() && rounds_to_nearest());
        const bool noticed = !is_standard(arithmetic_mode());
        bool inside = false, again = false;
        {
            const StandardArithmetic standard;
            inside = keeps_subnormals() && rounds_to_nearest();
            const StandardArithmetic nested;
            again = keeps_subnormals() && rounds_to_nearest();
        }
        const bool restored = (arithmetic_mode() & ~ArithmeticMode{0x3F}) == (mode & ~ArithmeticMode{0x3F});
        set_arithmetic_mode(before);
        CHECK(disturbs && noticed);
        CHECK(inside && again);
        CHECK(restored);
    }
}

void threads() {
    const ArithmeticMode before = arithmetic_mode();
    for (const ArithmeticMode mode : disturbed()) {
        std::vector<char> kept(64, 0);
        set_arithmetic_mode(mode);
        parallel_for(kept.size(),
                     [&](std::size_t i) { kept[i] = keeps_subnormals() && rounds_to_nearest(); });
        parallel_for(1, [&](std::size_t) { kept[0] = kept[0] && keeps_subnormals(); });
        set_arithmetic_mode(before);
        bool all = true;
        for (const char k : kept) all = all && k;
        CHECK(all);
    }
}

// Whoever uses the C++ library alone is served as well, also where a profile is made: what it knows of
// infinite losses may be a subnormal number.
void profiles() {
    const Profile profile({{{gaussian(1), 3}}}, 1e-3);
    const PairPtr shown = discrete({0}, {1}, {1}, 1e-310), rare = sampled(gaussian(1), 0.5, Sampling::remove);
    const std::vector<std::uint16_t> counts{3, 40};
    const auto ask = [&] {
        const Answer delta = profile.delta_bounds(64.0), epsilon = profile.epsilon_bounds(1e-5);
        const Answer infinite = Profile({{{shown, 1}}}).delta_bounds(3);
        IndividualProfiles each({rare});
        const IndividualAnswers own = each.epsilon(std::span(counts), 1e-5),
                                deltas = each.delta(std::span(counts), std::vector<double>{30.0, 90.0});
        return std::vector<double>{delta.lower,     delta.upper,           epsilon.lower, epsilon.upper,
                                   infinite.upper,  own.lower[0],          own.upper[1],  deltas.lower[0],
                                   deltas.upper[1], each.log_moments(2)[0]};
    };
    const auto expected = ask();
    CHECK(expected[4] >= 1e-310);
    const ArithmeticMode before = arithmetic_mode();
    for (const ArithmeticMode mode : disturbed()) {
        set_arithmetic_mode(mode);
        const auto found = ask();
        set_arithmetic_mode(before);
        CHECK(found == expected);
    }
}

}  // namespace

int main() {
    guards();
    threads();
    profiles();
    return check::summary();
}
