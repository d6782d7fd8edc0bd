// Epochs of random allocation in three parts: powers of both parts from their Laplace transforms against the
// moments from the gamma function's integral, the bound of frequencies left out against values, and delta
// against the whole transform.
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "hockeystick/pairs.hpp"
#include "inversion/allocation_moments.hpp"
#include "inversion/allocation_powers.hpp"
#include "inversion/direct_inversion.hpp"
#include "inversion/epochs.hpp"

namespace hs = hockeystick;

namespace {

// Beyond `top` there is nothing worth counting. mass: of the outcomes with a large W.
void parts_add_up(double mu, double steps, double mass, double top, double power) {
    const hs::Allocation law{mu, steps, false};
    const hs::CutStep step(law, mass, 9);
    const hs::Bulk bulk(law, step);
    const hs::Rest rest(law, step, top);
    constexpr double spacing = 1.7;
    constexpr std::size_t size = 40;
    constexpr int k = 6;
    const auto whole = hs::allocation_moments(law, k, k - power, spacing, size, 0, 1e-14);
    const hs::PowerLine below(bulk, power), beyond(rest, power);
    const auto a = below.row(spacing, size, -32), b = beyond.row(spacing, size, -26);
    CHECK(whole && !a.value.empty() && !b.value.empty());
    if (!whole || a.value.empty() || b.value.empty()) return;
    const double size_a = std::exp(below.log_upper()), size_b = std::exp(beyond.log_upper());
    CHECK(a.value[0].real() > 0.1 && b.value[0].real() > 0.1 && size_b < 0.1 * size_a);
    for (std::size_t j = 0; j < size; ++j) {
        const auto sum = size_a * a.value[j] + size_b * b.value[j];
        const double error = size_a * a.error[j] + size_b * b.error[j] + whole->error[j];
        CHECK(std::abs(sum - std::conj(whole->value[j])) <= error + 1e-13);
        CHECK(error < 1e-10);
    }
}

void frequencies_are_bounded(const hs::AllocationPart& part, double power, double spacing) {
    constexpr std::size_t size = 200;
    const hs::PowerLine line(part, power);
    const auto row = line.row(spacing, size, -30);
    CHECK(!row.value.empty());
    if (row.value.empty()) return;
    double last = 0;
    for (std::size_t first = 1; first < size; first += 1 + first / 3) {
        const double bound =
            std::exp(line.log_bound(spacing * static_cast<double>(first)) - line.log_upper());
        for (std::size_t j = first; j < size && j <= 2 * first; ++j)
            CHECK(std::abs(row.value[j]) <= bound + row.error[j]);
        last = bound;
    }
    CHECK(last < 1e-3);
}

void agrees_with_the_whole(const hs::Composition& composition, double epsilon, double widest) {
    const auto whole = hs::DirectInversion(composition).delta_bounds(epsilon, {}),
               parts = hs::Epochs::of(composition)->delta_bounds(epsilon, true);
    CHECK(whole && parts);
    if (!whole || !parts) return;
    CHECK(parts->lower <= whole->upper && whole->lower <= parts->upper);
    CHECK(hs::relative_gap(parts) < widest && hs::relative_gap(whole) < 0.1);
}

// Small tilts have moments of the whole law, large ones only those of what a cut leaves: a line at one whose
// aliases were bounded at another had a lower bound above the truth.
void lines_are_of_one_law(double sigma, double steps, std::uint64_t epochs, double delta, double share) {
    const hs::Composition composition{
        {hs::random_allocation(1 / sigma, steps, hs::Sampling::remove), epochs}};
    const auto parts = hs::Epochs::of(composition)->epsilon_bounds(delta, true);
    CHECK(parts.has_value());
    for (const bool quick : {true, false}) {
        const hs::DirectInversion::Budget budget{1e-3, 1e99, quick, 0, 600};
        const auto cut = hs::DirectInversion(composition, share * delta).epsilon_bounds(delta, budget);
        if (cut && parts) CHECK(cut->lower <= parts->upper && parts->lower <= cut->upper);
    }
}

}  // namespace

int main() {
    lines_are_of_one_law(1.06046, 2295, 50, 6.14929e-4, 9.98644e-6);
    for (const double share : {1e-9, 1e-6, 1e-5, 1e-4}) {
        lines_are_of_one_law(1.06, 2300, 50, 6e-4, share);
        lines_are_of_one_law(0.9, 3000, 30, 1e-3, share);
        lines_are_of_one_law(1.5, 800, 40, 1e-4, share);
    }

    parts_add_up(0.8, 300, 1e-4, 9.5, 1.4);
    parts_add_up(0.7, 1000, 1e-6, 10, 3.2);

    const hs::Allocation law{1.25, 3000, false};
    const hs::CutStep step(law, 1e-5, 9);
    const hs::Bulk bulk(law, step);
    frequencies_are_bounded(bulk, 9, 16);
    frequencies_are_bounded(bulk, 200, 16);
    frequencies_are_bounded(hs::Rest(law, step, 8), 5, 16);

    const auto one = hs::random_allocation(0.7, 1000, hs::Sampling::remove);
    agrees_with_the_whole({{one, 2}, {hs::gaussian(0.02), 4}}, 0.11, 1e-9);
    CHECK(hs::Epochs::of({{hs::random_allocation(1, 1000, hs::Sampling::add), 2}}) == nullptr);
    return check::summary();
}
