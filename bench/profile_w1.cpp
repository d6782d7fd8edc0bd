// W1 over and over, for a profiler: see docs/accounting/performance.md.
#include <chrono>
#include <cstdio>

#include "inversion/inversion.hpp"

int main() {
    constexpr int repeats = 5000;
    const auto start = std::chrono::steady_clock::now();
    double sum = 0;
    for (int i = 0; i < repeats; ++i) {
        const auto pair = hockeystick::sampled(hockeystick::gaussian(1), 0.01, hockeystick::Sampling::remove);
        sum += hockeystick::Inversion::of({{pair, 1000}})->epsilon_bounds(1e-5)->upper;
    }
    const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
    std::printf("epsilon %.10f, %.1f us each\n", sum / repeats, elapsed.count() / repeats);
}
