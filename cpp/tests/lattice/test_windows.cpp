// Whatever window is composed in, and wherever lattices end: bounds hold, as what is folded in, missing or
// cut is counted.
#include <algorithm>
#include <cmath>
#include <random>

#include "check.hpp"
#include "lattice/compose.hpp"
#include "lattice/discretise.hpp"
#include "lattice/sketch.hpp"
#include "lattice/tail_table.hpp"

namespace hs = hockeystick;

namespace {

double gaussian_delta(double mu, double epsilon) {
    return 0.5 * std::erfc((epsilon / mu - 0.5 * mu) / std::sqrt(2.0)) -
           std::exp(epsilon) * 0.5 * std::erfc((epsilon / mu + 0.5 * mu) / std::sqrt(2.0));
}

}  // namespace

int main() {
    std::mt19937_64 random(3);
    const auto uniform = [&](double low, double high) {
        return std::uniform_real_distribution<double>(low, high)(random);
    };
    const double step = 0.125, mu = 1;
    double closest[2] = {1, 1};
    for (int repeat = 0; repeat < 400; ++repeat) {
        const auto count = static_cast<std::uint64_t>(uniform(1, 9));
        const double k = static_cast<double>(count), tilt = repeat % 3 == 0 ? 0 : uniform(0, 2);
        const auto points = hs::all_points(static_cast<std::int64_t>(uniform(-60, -8)),
                                           static_cast<std::int64_t>(uniform(8, 60)));
        const auto first = static_cast<std::int64_t>(8 * k * 0.5 + uniform(-100, 10));
        const std::size_t size = std::size_t{1} << static_cast<int>(uniform(4, 9));
        const double rare = repeat % 2 == 0 ? 0 : std::exp(uniform(-20, -3));
        for (const bool upper : {false, true}) {
            const hs::Lattice lattice =
                hs::discretise(*hs::gaussian(mu), points, step, tilt,
                               upper ? hs::Bound::upper : hs::Bound::lower, upper ? rare : 0);
            const hs::TailTable table(
                hs::compose({{lattice, count}}, first, size, uniform(0, 2), uniform(0, 2)));
            for (int i = 0; i <= 60; ++i) {
                const double epsilon = -2 + 0.2 * i, truth = gaussian_delta(mu * std::sqrt(k), epsilon),
                             found = table.at(epsilon, upper).value;
                const double ratio = upper ? truth / found : found / truth;
                CHECK(ratio <= 1 + 1e-9 || std::abs(found - truth) < 1e-14);
                closest[upper] = std::min(closest[upper], std::abs(1 - ratio));
            }
        }
    }
    CHECK(closest[0] < 0.02 && closest[1] < 0.02);
    return check::summary();
}
