// Many compositions on shared lines, against the engine that answers them one by one.
#include "hockeystick/individual.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "hockeystick/profile.hpp"

namespace hs = hockeystick;

namespace {

void against_profiles(double q, hs::Sampling mode, const std::vector<double>& mus, std::uint16_t scale,
                      double delta, bool tight = true) {
    std::vector<hs::PairPtr> pairs{nullptr};  // a step that reveals nothing
    for (double mu : mus) pairs.push_back(q < 1 ? hs::sampled(hs::gaussian(mu), q, mode) : hs::gaussian(mu));
    hs::IndividualProfiles profiles(pairs);
    const std::size_t width = pairs.size(), rows = 12;
    std::vector<std::uint16_t> counts(rows * width, 0);
    std::uint32_t state = 1;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        state = state * 1664525 + 1013904223;
        counts[i] = static_cast<std::uint16_t>((state >> 16) % 3 == 0 ? 0 : (state >> 20) % scale);
    }
    for (std::size_t b = 1; b < width; ++b) counts[b] = 0;  // the first example has spent nothing
    const auto found = profiles.epsilon(std::span<const std::uint16_t>(counts), delta);
    CHECK(found.upper[0] == 0 && found.lower[0] == 0 && found.path[0] == hs::Path::nothing);
    for (std::size_t row = 1; row < rows; ++row) {
        hs::Composition composition;
        for (std::size_t b = 1; b < width; ++b)
            if (counts[row * width + b] > 0) composition.emplace_back(pairs[b], counts[row * width + b]);
        if (composition.empty()) continue;
        const hs::Profile profile({composition}, 1e-5);
        const hs::Answer exact = profile.epsilon_bounds(delta);
        CHECK(exact.lower <= found.upper[row]);
        CHECK(found.lower[row] <= exact.upper);
        CHECK(found.upper[row] < std::numeric_limits<double>::infinity());
        if (tight) CHECK(found.upper[row] <= exact.upper * 1.01 + 1e-9);
        for (double epsilon : {0.0, exact.upper, 3 * exact.upper}) {
            const std::vector<std::uint16_t> one(
                counts.begin() + static_cast<std::ptrdiff_t>(row * width),
                counts.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
            const auto at = profiles.delta(std::span<const std::uint16_t>(one), std::vector<double>{epsilon});
            const hs::Answer answer = profile.delta_bounds(epsilon);
            CHECK(answer.lower <= at.upper[0]);
            CHECK(at.lower[0] <= answer.upper);
        }
    }
}

}  // namespace

int main() {
    against_profiles(0.01, hs::Sampling::remove, {0.05, 0.1, 0.3, 0.5}, 1000, 1e-6);
    against_profiles(0.01, hs::Sampling::add, {0.05, 0.1, 0.3, 0.5}, 1000, 1e-6);
    against_profiles(0.3, hs::Sampling::remove, {0.01, 0.02}, 2000, 1e-12);
    against_profiles(1.0, hs::Sampling::remove, {0.01, 0.02, 0.05}, 50, 1e-5);
    // Few steps that are rarely hit: bounds, if not tight ones.
    against_profiles(1e-3, hs::Sampling::remove, {0.5, 2.0}, 6, 1e-5, false);

    hs::IndividualProfiles profiles({hs::sampled(hs::gaussian(1), 0.1, hs::Sampling::remove)});
    const std::vector<std::uint32_t> counts{0, 5};
    for (double delta : {0.0, 1.0}) {
        const auto limit = profiles.epsilon(std::span<const std::uint32_t>(counts), delta);
        CHECK(limit.upper[0] == 0);
        CHECK(limit.upper[1] == (delta > 0 ? 0.0 : std::numeric_limits<double>::infinity()));
    }
    CHECK(profiles.log_moments(1.0)[0] > 0);
    CHECK_THROWS(std::invalid_argument, hs::IndividualProfiles({hs::laplace(1)}));

    const std::vector<double> infinite(2, std::numeric_limits<double>::infinity());
    CHECK(profiles.delta(std::span<const std::uint32_t>(counts), infinite).upper ==
          std::vector<double>(2, 0));

    // What does not fit, and what is no number.
    const std::vector<double> epsilons{0.1, 0.2, 0.3}, bad{0.1, std::nan("")};
    const std::span<const std::uint32_t> two(counts);
    CHECK_THROWS(std::invalid_argument, profiles.delta(two, std::span(epsilons).first(1)));
    CHECK_THROWS(std::invalid_argument, profiles.delta(two, epsilons));
    CHECK_THROWS(std::invalid_argument, profiles.delta(two, bad));
    CHECK_THROWS(std::invalid_argument, profiles.delta(two, std::vector<double>{0.1, -0.1}));
    for (const double delta : {-0.1, 1.5, std::nan("")})
        CHECK_THROWS(std::invalid_argument, profiles.epsilon(two, delta));
    CHECK_THROWS(std::invalid_argument, profiles.epsilon(two, 0.1, {std::span(epsilons).first(1), true}));
    for (const double s : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
        CHECK_THROWS(std::invalid_argument, profiles.log_moments(s));
    hs::IndividualProfiles of_two({hs::gaussian(1), hs::gaussian(2)});
    CHECK_THROWS(std::invalid_argument, of_two.epsilon(std::span<const std::uint32_t>(counts).first(1), 0.1));
    return check::summary();
}
