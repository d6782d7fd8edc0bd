// Sums that are never too small, against exact cases; cells that never round down.
#include "individual/ledger.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "check.hpp"
#include "hockeystick/parallel.hpp"
#include "pairs/gdp.hpp"

namespace hs = hockeystick;
constexpr double infinity = std::numeric_limits<double>::infinity();

namespace {

double cost(double value, const hs::Charge& how) {
    const std::vector<double> values{value}, spent{0};
    std::vector<double> after(1);
    std::vector<std::uint8_t> active(1);
    hs::charge(how, values, spent, infinity, after, active);
    return after[0];
}

void costs() {
    CHECK(cost(0, {}) == 0);
    CHECK(cost(3, {}) == 9);
    CHECK(cost(5, {5, 10}) == 0.25);
    CHECK(cost(infinity, {}) == infinity);
    CHECK(cost(infinity, {2}) == 4);
    CHECK(cost(1e300, {}) == infinity && cost(0x1.1p+460, {}) == infinity);
    CHECK(cost(0x1p+460, {}) == 0x1p+920);
    CHECK(cost(5e-324, {}) > 0);
    CHECK(cost(7, {infinity, 1, 1, false}) == 7);
    CHECK(cost(2, {infinity, 1, 0.5, true}) == 2);
    // 0.1 is a double above 1/10, and its square is no double: a long product tells.
    const double up = cost(0.1, {});
    CHECK(std::fma(0.1, 0.1, -up) <= 0 && std::fma(0.1, 0.1, -std::nextafter(up, 0)) > 0);
    // A third, rounded up.
    const double third = std::sqrt(cost(1, {infinity, 3}));
    CHECK(third >= 1.0 / 3.0);
}

void budgets() {
    const std::size_t n = 100'003;  // more than one task, and a remainder
    std::vector<double> values(n), spent(n, 0.0), after(n);
    std::vector<std::uint8_t> active(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = 1e-3 * static_cast<double>(i % 1500);
    CHECK(hs::first_invalid(values) == n);
    const std::size_t count = hs::charge({}, values, spent, 1.0, after, active);
    std::size_t expected = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const bool fits = values[i] <= 1.0;
        expected += fits;
        if (active[i] != fits || after[i] < (fits ? values[i] * values[i] : 0)) CHECK(false);
        if (!fits && after[i] != 0) CHECK(false);
    }
    CHECK(count == expected);
    // In place, by any number of threads: the same bits.
    for (int threads : {1, 2, 7}) {
        hs::set_threads(threads);
        std::vector<double> again(n, 0.0);
        hs::charge({}, values, again, 1.0, again, active);
        CHECK(again == after);
    }
    hs::set_threads(0);
    for (double bad : {-1.0, std::nan(""), -infinity}) {
        values[70'000] = bad;
        CHECK(hs::first_invalid(values) == 70'000);
    }
    CHECK(hs::first_invalid(std::vector<double>{}) == 0);
}

void cells() {
    std::vector<double> edges;
    for (int i = 0; i < 500; ++i) edges.push_back(0.001 * std::pow(1.013, i));
    std::vector<double> values{0.0, 1e-300, infinity, 1.0};
    for (double edge : edges)
        for (double x : {std::nextafter(edge, 0), edge, std::nextafter(edge, 9)}) values.push_back(x);
    std::vector<std::uint16_t> found(values.size());
    hs::find_cells({}, values, edges, found);
    CHECK(found[0] == 0 && found[1] == 1 && found[2] == edges.size() + 1);
    for (std::size_t i = 1; i < values.size(); ++i) {
        const std::size_t c = found[i];
        if (c <= edges.size() && !(values[i] <= edges[c - 1])) CHECK(false);
        if (c > 1 && !(values[i] > edges[c - 2])) CHECK(false);
    }
    std::vector<std::uint32_t> counts(values.size() * 501, 0);
    hs::count_cells(found, std::uint32_t{3}, 501, std::span(counts));
    CHECK(counts[501 + 0] == 3 && counts[2 * 501 + 500] == 3 && counts[0] == 0);
}

void checksums() {
    // Zeros give the outputs of SplitMix64 from seed 0, as published with its reference code.
    const std::vector<double> zeros(3);
    constexpr std::uint64_t outputs[] = {0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F};
    const auto bytes = std::as_bytes(std::span(zeros));
    CHECK(hs::checksum(bytes.first(8)) == outputs[0]);
    CHECK(hs::checksum(bytes) == outputs[0] + outputs[1] + outputs[2]);
    CHECK(hs::checksum(bytes.first(17)) == hs::checksum(bytes));  // filled up with zeros
    CHECK(hs::checksum(bytes.first(8), 2) == outputs[2]);
    CHECK(hs::checksum({}) == 0);

    std::vector<double> values(200'000);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1 / (1.0 + static_cast<double>(i));
    const auto all = [&] { return hs::checksum(std::as_bytes(std::span(values))); };
    const std::uint64_t before = all();
    for (int threads : {1, 2}) {
        hs::set_threads(threads);
        CHECK(all() == before);
    }
    hs::set_threads(0);
    // Some of them change: their terms are exchanged.
    const std::vector<std::int64_t> places{0, 77, 199'999};
    const std::vector<double> old{values[0], values[77], values[199'999]}, fresh{3, infinity, 0};
    values[0] = 3, values[77] = infinity, values[199'999] = 0;
    CHECK(all() != before);
    CHECK(all() == before - hs::checksum_at(places, old) + hs::checksum_at(places, fresh));
    // The same values in other places, and every bit of one of them.
    const std::uint64_t sum = all();
    std::swap(values[5], values[6]);
    CHECK(all() != sum);
    std::swap(values[5], values[6]);
    for (int bit = 0; bit < 64; ++bit) {
        const double good = values[9];
        values[9] = std::bit_cast<double>(std::bit_cast<std::uint64_t>(good) ^ (std::uint64_t{1} << bit));
        CHECK(all() != sum);
        values[9] = good;
    }
}

void gaussians() {
    // delta(eps) of mu = 1 at eps = 1 is 0.1269366801 (Balle & Wang 2018, equation 6).
    const std::vector<double> mu{0, 1, 0.2049390153191920, infinity};
    std::vector<double> epsilon(mu.size());
    hs::gaussian_epsilons(mu, 0.12693673750664395, epsilon);
    CHECK(epsilon[0] == 0 && epsilon[3] == infinity);
    CHECK(epsilon[1] >= 1 - 1e-9 && epsilon[1] <= 1 + 1e-8);
    // 420 steps of mu = 1/100 at delta = 1e-5.
    hs::gaussian_epsilons(mu, 1e-5, epsilon);
    CHECK(epsilon[2] >= 0.74513823552116 && epsilon[2] <= 0.74513823552117 * (1 + 1e-9));
}

}  // namespace

int main() {
    costs();
    budgets();
    cells();
    checksums();
    gaussians();
    return check::summary();
}
