// Division by Toeplitz matrices against the product, and optimal coefficients against all their neighbours.
#include "hockeystick/toeplitz.hpp"

#include <cmath>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "hockeystick/parallel.hpp"

using namespace hockeystick;

namespace {

void quotients() {
    const std::vector<double> c{2, 0.5, -0.25, 0.125}, x{1, 4, -3, 2, 5, 7, -1, 0.5};
    const auto y = divide_by_toeplitz(c, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
        double sum = 0;
        for (std::size_t k = 0; k < c.size() && k <= i; ++k) sum += c[k] * y[i - k];
        CHECK(std::abs(sum - x[i]) <= 1e-14 * 10);
    }
    CHECK(divide_by_toeplitz(c, {}).empty());
    // More coefficients than values.
    CHECK(divide_by_toeplitz(c, std::vector<double>{3}) == std::vector<double>{1.5});
    CHECK_THROWS(std::invalid_argument, divide_by_toeplitz(std::vector<double>{0, 1}, x));
    CHECK_THROWS(std::invalid_argument, divide_by_toeplitz({}, x));
}

// sum kept c^2 times the mean squared error, from the definition: row i of A C^{-1} by its power series.
double loss(std::size_t steps, const std::vector<double>& kept, const std::vector<double>& c) {
    std::vector<double> w(steps);
    double error = 0, squares = 0;
    for (std::size_t i = 0; i < steps; ++i) {
        w[i] = 1;
        for (std::size_t k = 1; k < c.size() && k <= i; ++k) w[i] -= c[k] * w[i - k];
        w[i] /= c[0];
        error += static_cast<double>(steps - i) * w[i] * w[i];
    }
    for (std::size_t j = 0; j < c.size(); ++j) squares += kept[j] * c[j] * c[j];
    return squares * error / static_cast<double>(steps);
}

void minima() {
    for (const std::size_t bands : {std::size_t{1}, std::size_t{2}, std::size_t{5}, std::size_t{12}}) {
        for (const bool even : {true, false}) {
            const std::size_t steps = 12;
            std::vector<double> kept(bands, 1.0);
            for (std::size_t j = 0; j < bands && !even; ++j) kept[j] = static_cast<double>(bands - j);
            const std::vector<double> ones(steps, 1.0);
            const auto best = optimal_toeplitz(kept, {ones});
            CHECK(best.size() == bands);
            double norm = 0;
            for (const double x : best) norm += x * x;
            CHECK(std::abs(norm - 1) <= 1e-14);
            const double least = loss(steps, kept, best);
            for (std::size_t j = 0; j < bands; ++j) {
                for (const double change : {-1e-2, -1e-4, 1e-4, 1e-2}) {
                    auto moved = best;
                    moved[j] = std::max(0.0, moved[j] + change);
                    if (bands > 1) CHECK(loss(steps, kept, moved) >= least * (1 - 1e-13));
                }
            }
            CHECK(optimal_toeplitz(kept, {ones}) == best);
        }
    }
    // Where a late coefficient costs much, it is 0: the bound holds.
    const std::vector<double> eight(8, 1.0), two(2, 1.0), three(3, 1.0);
    const auto bare = optimal_toeplitz(std::vector<double>{1, 1, 1e9}, {eight});
    CHECK(bare[2] >= 0 && bare[2] <= 1e-6 && bare[1] > 0.1);
    CHECK_THROWS(std::invalid_argument, optimal_toeplitz(three, {two}));
    CHECK_THROWS(std::invalid_argument, optimal_toeplitz({}, {two}));
    CHECK_THROWS(std::invalid_argument, optimal_toeplitz(std::vector<double>{1, 0}, {two}));
    CHECK_THROWS(std::invalid_argument, optimal_toeplitz(two, {two, three}));
}

// A gram matrix that says the same as none leads to the same coefficients, and another one to others.
void grams() {
    const std::size_t steps = 12;
    const std::vector<double> kept(4, 1.0), ones(steps, 1.0);
    std::vector<double> gram(steps * steps, 0.0);
    for (std::size_t i = 0; i < steps; ++i) gram[i * steps + i] = static_cast<double>(steps - i);
    const auto plain = optimal_toeplitz(kept, {ones});
    CHECK(optimal_toeplitz(kept, {ones, gram}) == plain);
    for (std::size_t i = 0; i + 1 < steps; ++i) gram[i * steps + i + 1] = gram[(i + 1) * steps + i] = 0.25;
    const auto moved = optimal_toeplitz(kept, {ones, gram});
    CHECK(moved != plain && moved.size() == 4);
}

// An interruption ends a search before it is over.
void stops() {
    struct Stop {};
    static std::size_t calls = 0;
    set_interruption_hook([] {
        ++calls;
        throw Stop{};
    });
    const std::vector<double> ones(std::size_t{1} << 16, 1.0), kept(4096, 1.0);
    CHECK_THROWS(Stop, optimal_toeplitz(kept, {ones}));
    CHECK(calls == 1);
    set_interruption_hook(nullptr);
}

}  // namespace

int main() {
    quotients();
    minima();
    grams();
    stops();
    return check::summary();
}
