#include "montecarlo/empirical.hpp"

#include <bit>
#include <cmath>

#include "numerics/require.hpp"

namespace hockeystick {
namespace {

// Proof: a double in [2^-40, 1) has its cell in the bits from 48 on, and its place in the cell in those
// below.
constexpr int place_bits = 48, kept_bits = 32;
constexpr std::uint64_t least = std::uint64_t{1023 - empirical_octaves} << (52 - place_bits);
static_assert(empirical_cells == 1 << (52 - place_bits));

}  // namespace

double empirical_point(std::size_t index) noexcept {
    return index == 0 ? 0.0 : std::bit_cast<double>((index - 1 + least) << place_bits);
}

std::size_t spread_values(std::span<const double> values, std::span<std::uint64_t> masses) {
    require(masses.size() == empirical_points, "masses must have empirical_points");
    std::size_t refused = 0;
    for (const double value : values) {
        if (!(value >= 0 && value <= 1)) {
            ++refused;
            continue;
        }
        std::size_t cell = 0;
        std::uint64_t upper = 0;
        if (value >= 0x1p-40) {
            const auto bits = std::bit_cast<std::uint64_t>(value);
            cell = static_cast<std::size_t>((bits >> place_bits) - least) + 1;
            constexpr std::uint64_t place = (std::uint64_t{1} << place_bits) - 1;
            constexpr std::uint64_t half = std::uint64_t{1} << (place_bits - kept_bits - 1);
            upper = ((bits & place) + half) >> (place_bits - kept_bits);
        } else {
            upper = static_cast<std::uint64_t>(std::floor(value * 0x1p72 + 0.5));
        }
        masses[cell] += empirical_unit - upper;
        if (upper != 0) masses[cell + 1] += upper;
    }
    return refused;
}

}  // namespace hockeystick
