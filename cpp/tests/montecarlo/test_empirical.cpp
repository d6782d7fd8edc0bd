// Values spread onto the grid: exact masses, kept means, and nothing outside [0, 1].
#include "montecarlo/empirical.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "check.hpp"

namespace hs = hockeystick;

namespace {

std::vector<std::uint64_t> spread(const std::vector<double>& values) {
    std::vector<std::uint64_t> masses(hs::empirical_points);
    CHECK(hs::spread_values(values, masses) == 0);
    return masses;
}

void points() {
    CHECK(hs::empirical_point(0) == 0);
    CHECK(hs::empirical_point(1) == 0x1p-40);
    CHECK(hs::empirical_point(2) == 0x1.1p-40);
    CHECK(hs::empirical_point(17) == 0x1p-39);
    CHECK(hs::empirical_point(hs::empirical_points - 1) == 1);
    for (std::size_t i = 1; i < hs::empirical_points; ++i) {
        CHECK(hs::empirical_point(i - 1) < hs::empirical_point(i));
        // A point keeps all of its mass.
        CHECK(spread({hs::empirical_point(i)})[i] == hs::empirical_unit);
    }
    CHECK(spread({0.0})[0] == hs::empirical_unit);
    CHECK(spread({-0.0})[0] == hs::empirical_unit);
}

// The mean of one value's masses, exactly but for one rounding per product.
double mean(const std::vector<std::uint64_t>& masses) {
    double sum = 0;
    for (std::size_t i = 0; i < masses.size(); ++i) {
        sum += static_cast<double>(masses[i]) * 0x1p-32 * hs::empirical_point(i);
    }
    return sum;
}

void one_value() {
    std::vector<double> values{std::numeric_limits<double>::denorm_min(),
                               1e-300,
                               1e-13,
                               0x1p-41,
                               std::nextafter(0x1p-40, 0.0),
                               std::nextafter(1.0, 0.0),
                               1.0};
    for (double value = 1e-14; value < 1; value *= 1.0137) values.push_back(value);
    for (const double value : values) {
        const auto masses = spread({value});
        std::uint64_t total = 0;
        std::size_t used = 0, first = masses.size();
        for (std::size_t i = 0; i < masses.size(); ++i) {
            total += masses[i];
            used += masses[i] != 0;
            if (masses[i] != 0 && first == masses.size()) first = i;
        }
        CHECK(total == hs::empirical_unit);
        CHECK(used <= 2);
        // Neighbours, around the value up to the rounding of masses.
        CHECK(used == 1 || masses[first + 1] != 0);
        CHECK(hs::empirical_point(first) <= value * (1 + 0x1p-36) + 0x1p-72);
        CHECK(std::fabs(mean(masses) - value) <= value * (0x1p-37 + 0x1p-50) + 0x1p-73);
    }
}

void sums() {
    // Adding in parts, in another order, is the same.
    std::vector<double> values, backwards;
    for (int i = 0; i < 1000; ++i) values.push_back(std::fmod(i * 0.6180339887498949, 1.0));
    backwards.assign(values.rbegin(), values.rend());
    CHECK(spread(values) == spread(backwards));
    std::vector<std::uint64_t> parts = spread({values.begin(), values.begin() + 300});
    CHECK(hs::spread_values(std::vector<double>(values.begin() + 300, values.end()), parts) == 0);
    CHECK(parts == spread(values));
}

void refusals() {
    std::vector<std::uint64_t> masses(hs::empirical_points);
    const double infinity = std::numeric_limits<double>::infinity();
    const std::vector<double> bad{std::nan(""), -1e-300, std::nextafter(1.0, 2.0), infinity, -infinity};
    CHECK(hs::spread_values(bad, masses) == bad.size());
    for (const std::uint64_t mass : masses) CHECK(mass == 0);
    std::vector<std::uint64_t> few(3);
    CHECK_THROWS(std::invalid_argument, hs::spread_values(bad, few));
}

}  // namespace

int main() {
    points();
    one_value();
    sums();
    refusals();
    return check::summary();
}
