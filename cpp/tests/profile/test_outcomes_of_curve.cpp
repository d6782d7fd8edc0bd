// Outcomes from a curve against the curve itself, in long double: whatever it is, wherever its points lie and
// however closely it is known there, those from above have more and those from below have less. Beside
// another Gaussian, the closed form of both.
#include "profile/outcomes_of_curve.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "check.hpp"
#include "profile/given_outcomes.hpp"

namespace hs = hockeystick;

namespace {

using Long = long double;
using Curve = std::function<Long(Long)>;

Long normal_below(Long t) { return 0.5L * std::erfc(-t / std::sqrt(2.0L)); }

Long gaussian(Long mu, Long epsilon) {
    return normal_below(mu / 2 - epsilon / mu) - std::exp(epsilon) * normal_below(-mu / 2 - epsilon / mu);
}

// Few losses: a curve of chords, with a mass at +inf. Q's masses p e^{-loss} come to .979.
Long of_atoms(Long epsilon) {
    const Long loss[] = {-0.4L, 0.01L, 0.3L, 0.31L}, p[] = {0.22L, 0.3L, 0.23L, 0.2499L};
    Long sum = 1e-4L;
    for (int i = 0; i < 4; ++i) sum += std::max(0.0L, -p[i] * std::expm1(epsilon - loss[i]));
    return sum;
}

Long of_outcomes(const std::vector<hs::Outcomes::Term>& outcomes, Long epsilon) {
    Long sum = 0;
    for (const auto& [loss, mass] : outcomes) sum -= std::min(0.0L, mass * std::expm1(epsilon - Long(loss)));
    return sum;
}

// Bounds of which each lies anywhere within a share `off` of the truth.
std::vector<hs::Answer> known(const Curve& curve, const std::vector<double>& points, double off,
                              std::mt19937_64& random) {
    std::uniform_real_distribution<double> share(0, off);
    std::vector<hs::Answer> out;
    for (const double point : points) {
        const auto truth = static_cast<double>(curve(point));
        hs::Answer& at = out.emplace_back();
        at.lower = std::nextafter(truth * (1 - share(random)), 0);
        at.upper = std::nextafter(truth * (1 + share(random)), 2);
    }
    return out;
}

// The widest relative gap, but for the last quarter of the points. rounding: of the curve itself, relatively.
Long encloses(const Curve& curve, const std::vector<double>& points, double off, std::mt19937_64& random,
              Long rounding = 1e-16L) {
    const auto outcomes = hs::outcomes_of_curve(points, known(curve, points, off, random));
    CHECK(outcomes.lower.size() == points.size() && outcomes.upper.size() == points.size());
    Long widest = 0, total = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
        CHECK(outcomes.lower[i].mass >= 0 && outcomes.upper[i].mass >= 0);
        CHECK(i == 0 || outcomes.upper[i].loss > outcomes.upper[i - 1].loss);
        CHECK(i == 0 || outcomes.lower[i].loss >= outcomes.lower[i - 1].loss);
        total += outcomes.lower[i].mass;
    }
    CHECK(total <= 1);
    std::uniform_real_distribution<double> anywhere(points.front() - 1, points.back() + 0.5);
    const auto at = [&](Long epsilon) {
        const Long truth = curve(epsilon), slack = rounding * truth + 1e-18L * std::exp(epsilon) * truth;
        const Long below = of_outcomes(outcomes.lower, epsilon),
                   above = of_outcomes(outcomes.upper, epsilon) + outcomes.lost;
        CHECK(below <= truth + slack && truth - slack <= above);
        if (epsilon > points.front() && epsilon < points[3 * points.size() / 4])
            widest = std::max(widest, (above - below) / truth);
    };
    for (int i = 0; i < 400; ++i) at(anywhere(random));
    // At the points, and next to them, of which a hundred will do.
    for (std::size_t i = 0; i < points.size(); i += 1 + points.size() / 100)
        for (const double moved : {points[i], points[i] + 1e-9, std::nextafter(points[i], -10.0)}) at(moved);
    return widest;
}

std::vector<double> anyhow(std::size_t count, double low, double high, std::mt19937_64& random) {
    std::uniform_real_distribution<double> anywhere(low, high);
    std::vector<double> out;
    for (std::size_t i = 0; i < count; ++i) out.push_back(anywhere(random));
    // Some of them as close as they can be.
    out.push_back(std::nextafter(out.front(), 10.0));
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
}

void beside_another_gaussian(double mu, double other, std::mt19937_64& random) {
    const Curve curve = [&](Long epsilon) { return gaussian(mu, epsilon); };
    const Long both = std::hypot(Long(mu), Long(other));
    const hs::GivenOutcomes::Rest rest{
        [&](std::span<const double> epsilons, double) {
            return known([&](Long epsilon) { return gaussian(other, epsilon); },
                         {epsilons.begin(), epsilons.end()}, 1e-12, random);
        },
        [](const auto&, double) { return std::numeric_limits<double>::quiet_NaN(); }};
    for (const double epsilon : {3.0 * other, 1.5 * other}) {
        const auto truth = static_cast<double>(gaussian(both, epsilon));
        std::vector<double> points = hs::first_points(-7 * mu, 12 * mu);
        double gap = 1;
        for (const std::size_t next : {500U, 2000U, 2U}) {
            const auto outcomes = hs::outcomes_of_curve(points, known(curve, points, 1e-12, random));
            const hs::GivenOutcomes given(outcomes, {});
            const hs::Answer delta = given.delta_curve({&epsilon, 1}, {&truth, 1}, rest).front();
            CHECK(delta.lower <= truth * (1 + 1e-14) && truth * (1 - 1e-14) <= delta.upper);
            gap = (delta.upper - delta.lower) / delta.upper;
            hs::Answer about;
            about.lower = 0.8 * epsilon;
            about.upper = 1.2 * epsilon;
            const hs::Answer spent = given.epsilon_bounds(truth, about, rest);
            CHECK(spent.lower <= epsilon * (1 + 1e-14) && epsilon * (1 - 1e-14) <= spent.upper);
            CHECK(spent.upper - spent.lower <= 10 * gap * spent.upper);
            points = hs::finer_points(points, given.shares(epsilon, rest), next);
        }
        CHECK(gap < 1e-5);
    }
}

}  // namespace

int main() {
    std::mt19937_64 random(11);
    for (const double mu : {0.003, 0.4, 3.0}) {
        const Curve curve = [&](Long epsilon) { return gaussian(mu, epsilon); };
        // Two tails of nearly the same size are told apart.
        const Long rounding = 1e-16L * (1 + 6 / Long(mu));
        const std::vector<double> first = hs::first_points(-6 * mu, 11 * mu);
        CHECK(std::abs(first.front() + 6 * mu) < 1e-12 && std::abs(first.back() - 11 * mu) < 1e-12);
        CHECK(std::adjacent_find(first.begin(), first.end(), std::greater_equal<>()) == first.end());
        for (const double off : {0.0, 1e-12, 1e-6, 1e-2}) {
            encloses(curve, first, off, random, rounding);
            for (const std::size_t count : {4U, 7U, 60U, 900U})
                encloses(curve, anyhow(count, -6 * mu, 11 * mu, random), off, random, rounding);
        }
        // What chords leave open falls with the square of their width.
        std::vector<double> even, twice;
        for (int i = 0; i <= 400; ++i) twice.push_back(mu * (-5 + 0.025 * i));
        for (int i = 0; i <= 400; i += 2) even.push_back(twice[static_cast<std::size_t>(i)]);
        const Long wide = encloses(curve, even, 0, random, rounding),
                   narrow = encloses(curve, twice, 0, random, rounding);
        CHECK(wide < 0.01 && narrow < 0.35 * wide);
    }
    for (const double off : {0.0, 1e-9, 0.3})
        for (const std::size_t count : {5U, 30U, 300U})
            encloses(of_atoms, anyhow(count, -0.6, 0.4, random), off, random);
    // Nothing is known: nothing is said.
    std::vector<hs::Answer> open(6);
    for (hs::Answer& answer : open) answer.upper = 1;
    const auto nothing = hs::outcomes_of_curve(std::vector<double>{-2, -1, 0, 1, 2, 3}, open);
    CHECK(nothing.lost == 1 && of_outcomes(nothing.lower, -1) <= 1 - std::exp(-1.0L));

    // Closer where there is more, from end to end.
    const std::vector<double> points{0, 1, 2, 3};
    const auto finer = hs::finer_points(points, std::vector<double>{0, 0, 5, 0}, 40);
    CHECK(finer.size() <= 40 && finer.front() == 0 && finer.back() == 3);
    CHECK(std::adjacent_find(finer.begin(), finer.end(), std::greater_equal<>()) == finer.end());
    CHECK(std::count_if(finer.begin(), finer.end(), [](double x) { return x >= 1; }) > 30);

    beside_another_gaussian(0.01, 0.5, random);
    beside_another_gaussian(0.3, 0.2, random);
    return check::summary();
}
