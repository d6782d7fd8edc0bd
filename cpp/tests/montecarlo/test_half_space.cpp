// Direction Q against P: tangents against the sum over all patterns, truncated normal numbers, values below
// their bound and none outside the half space, blocks and threads.
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "check.hpp"
#include "hockeystick/parallel.hpp"
#include "montecarlo/half_space.hpp"

using namespace hockeystick;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Strategy strategy_of(std::size_t steps, std::size_t bands) {
    std::vector<double> columns;
    for (std::size_t k = 0; k < bands; ++k) columns.push_back(1 / (1 + 0.6 * static_cast<double>(k)));
    return {steps, bands, columns};
}

// Every pattern of b-min-sep sampling, cold start, with its probability.
std::vector<std::pair<double, std::vector<double>>> patterns(std::size_t steps, std::size_t separation,
                                                             double p) {
    std::vector<std::pair<double, std::vector<double>>> found;
    for (std::size_t bits = 0; bits < std::size_t{1} << steps; ++bits) {
        double probability = 1;
        std::size_t free_from = 0;
        std::vector<double> x(steps, 0.0);
        for (std::size_t i = 0; i < steps && probability > 0; ++i) {
            const bool taken = (bits >> i & 1) != 0;
            if (i < free_from) {
                probability *= taken ? 0 : 1;
            } else {
                probability *= taken ? p : 1 - p;
                if (taken) free_from = i + separation;
            }
            x[i] = taken ? 1 : 0;
        }
        if (probability > 0) found.emplace_back(probability, x);
    }
    return found;
}

// ln of p N(Cx)/N(0) at y.
double log_term(const Strategy& strategy, double sigma, double p, const std::vector<double>& x,
                const std::vector<double>& y) {
    std::vector<double> mean(y.size(), 0.0);
    for (std::size_t i = 0; i < x.size(); ++i) {
        const auto column = strategy.column(i);
        for (std::size_t k = 0; k < column.size(); ++k) mean[i + k] += x[i] * column[k] / sigma;
    }
    double sum = std::log(p);
    for (std::size_t i = 0; i < y.size(); ++i) sum += mean[i] * (y[i] - mean[i] / 2);
    return sum;
}

void tangents() {
    for (const std::size_t separation : {std::size_t{1}, std::size_t{2}, std::size_t{4}, std::size_t{9}}) {
        const std::size_t steps = 7, bands = std::min<std::size_t>(separation, 3);
        const Strategy strategy = strategy_of(steps, bands);
        const double sigma = 0.7;
        for (const double scale : {0.0, 1.0, 30.0}) {
            std::vector<double> y(steps);
            for (std::size_t i = 0; i < steps; ++i)
                y[i] = scale * std::sin(1.0 + 3.0 * static_cast<double>(i));
            double total = 0;
            std::vector<double> means(steps, 0.0);
            for (const auto& [p, x] : patterns(steps, separation, 0.3)) {
                if (std::count(x.begin(), x.end(), 0.0) == static_cast<std::ptrdiff_t>(steps)) continue;
                const double term = std::exp(log_term(strategy, sigma, p, x, y));
                total += term;
                for (std::size_t i = 0; i < steps; ++i) means[i] += term * x[i];
            }
            const LikelihoodTangent found = tangent({strategy, BMinSep{separation, 0.3, false}, sigma}, y);
            CHECK(std::abs(found.log_rest - std::log(total)) < 1e-12 * (1 + std::abs(std::log(total))));
            for (std::size_t i = 0; i < steps; ++i) {
                CHECK(std::abs(found.means[i] - means[i] / total) < 1e-12);
            }
        }
    }
    // Nobody ever takes part: nothing is left, and nothing is not a number.
    const LikelihoodTangent none =
        tangent({strategy_of(3, 1), BMinSep{1, 0, false}, 1}, std::vector<double>(3, 0.0));
    CHECK(none.log_rest == -infinity && none.means[0] == 0);
}

void normals() {
    // Against erfc where that is accurate, and the asymptotic series beyond.
    for (const double t : {-37.0, -10.0, -1.0, -0.1, 0.0, 0.3, 2.0, 8.0, 100.0}) {
        const double expected = t < 0 ? std::log(std::erfc(-t / std::sqrt(2.0)) / 2)
                                      : std::log1p(-std::erfc(t / std::sqrt(2.0)) / 2);
        CHECK(std::abs(log_normal_below(t) - expected) <= 1e-14 * (1 + t * t));
    }
    const double far = -1e5;
    CHECK(std::abs(log_normal_below(far) - (-far * far / 2 - std::log(-far) - 0.91893853320467274)) < 1e-4);
    // The law: means and squares given that it is at most t, h the hazard.
    for (const double t : {-50.0, -5.0, -0.5, -0.3, 0.0, 2.0, 40.0}) {
        constexpr std::size_t count = 40000;
        double sum = 0, squares = 0;
        for (std::size_t k = 0; k < count / 16; ++k) {
            for (std::size_t lane = 0; lane < 16; ++lane) {
                Stream stream({11, k, true}, lane, Purpose::proposal);
                const double x = normal_below(stream, t);
                CHECK(x <= t);
                sum += x;
                squares += x * x;
            }
        }
        const double hazard = std::exp(-0.5 * t * t - 0.91893853320467274 - log_normal_below(t));
        const double mean = -hazard, second = 1 - t * hazard;
        const double deviation = std::sqrt(std::max(second - mean * mean, 1e-12) / count);
        CHECK(std::abs(sum / count - mean) < 4.5 * deviation);
        CHECK(std::abs(squares / count - second) < 4.5 * 2 * std::max(1.0, std::abs(t)) * deviation);
    }
}

void values() {
    const std::size_t steps = 40;
    const Strategy strategy = strategy_of(steps, 4);
    const BMinSep scheme{4, 0.1, true};
    std::vector<double> direction(steps);
    for (std::size_t i = 0; i < steps; ++i) direction[i] = 1 / std::sqrt(static_cast<double>(steps));
    const HalfSpaceSampler sampler({strategy, scheme, 0.8}, direction, -3.0,
                                   {{0.5, 0.0}, {0.3, 2.0}, {0.2, 4.5}});
    const std::size_t blocks = 3;
    const auto rows = sampler.samples(5, 2, blocks);
    const std::size_t count = blocks * sampler.block_size();
    CHECK(rows.size() == count * 6);
    double most = 0;
    for (std::size_t s = 0; s < count; ++s) {
        CHECK(rows[6 * s] <= -3.0);
        most = std::max(most, rows[6 * s + 2]);
    }
    CHECK(most <= std::log(2.0) + 1e-14);  // never cut off
    const std::vector<double> epsilons{0.5, 2.0};
    const double scale = sampler.log_probability() + std::log(2.0);
    const auto found = sampler.values(5, epsilons, -20.0, scale, 2, blocks);
    for (std::size_t s = 0; s < count; ++s) {
        const double value =
            std::exp(rows[6 * s + 2] - std::log(2.0)) * std::max(0.0, 1 - std::exp(0.5 + rows[6 * s + 1]));
        CHECK(std::abs(found[s] - value) < 1e-12 && found[s] >= 0 && found[s] <= 1);
    }
    CHECK(sampler.values(5, epsilons, -20.0, scale, 3, 1) == [&] {
        std::vector<double> part;
        for (std::size_t e = 0; e < 2; ++e) {
            const auto* from = found.data() + e * count + sampler.block_size();
            part.insert(part.end(), from, from + sampler.block_size());
        }
        return part;
    }());
    set_threads(1);
    CHECK(sampler.values(5, epsilons, -20.0, scale, 2, blocks) == found);
    set_threads(0);
    // The floor: a ratio below it is rounding.
    CHECK(half_space_value(0.5, -1.0, -3.0, 0, 0) == half_space_value(0.5, -1.0, -1.0, 0, 0));
    CHECK(half_space_value(1.0, -1.0, -3.0, 0, 0) == 0 && half_space_value(2.0, -5.0, -1.0, 0, 0) == 0);
    CHECK(std::abs(half_space_value(1e-12, -infinity, -2e-12, 0, std::log(1e-12)) - 1) < 1e-3);
    CHECK(half_space_value(-50, -infinity, 0, 1e-11, 0) == 1 &&
          half_space_value(-50, -infinity, 0, 0.1, 0) > 1.1);
    const double nan = std::nan("");
    CHECK(half_space_value(1, -2, nan, 0, 0) == 1 && half_space_value(1, -2, -2, nan, 0) == 1);
}

void failures() {
    const std::vector<double> unit{1.0, 0.0, 0.0};
    const auto make = [&](const Scheme& scheme, double sigma, std::vector<double> direction, double threshold,
                          std::vector<HalfSpaceSampler::Shift> shifts) {
        return HalfSpaceSampler({strategy_of(3, 2), scheme, sigma}, std::move(direction), threshold,
                                std::move(shifts))
            .block_size();
    };
    const BMinSep good{2, 0.1, true};
    const double nan = std::nan("");
    CHECK(make(good, 1, unit, -1, {{1, 0}}) >= group_size);
    CHECK_THROWS(std::invalid_argument, make(good, 0, unit, -1, {{1, 0}}));
    CHECK_THROWS(std::invalid_argument, make(good, 1, {2.0, 0.0, 0.0}, -1, {{1, 0}}));
    CHECK_THROWS(std::invalid_argument, make(good, 1, {1.0}, -1, {{1, 0}}));
    CHECK_THROWS(std::invalid_argument, make(good, 1, unit, nan, {{1, 0}}));
    CHECK_THROWS(std::invalid_argument, make(good, 1, unit, -1, {}));
    CHECK_THROWS(std::invalid_argument, make(good, 1, unit, -1, {{1, 1}}));
    CHECK_THROWS(std::invalid_argument, make(good, 1, unit, -1, {{0.5, 0}, {nan, 1}}));
    CHECK_THROWS(std::invalid_argument, make(TruncatedBMinSep{good, 100, 5}, 1, unit, -1, {{1, 0}}));
    CHECK_THROWS(std::invalid_argument, make(MultiAttribution{1, 0.1, 2, true}, 1, unit, -1, {{1, 0}}));
    CHECK_THROWS(std::invalid_argument, tangent({strategy_of(3, 2), good, 1}, std::vector<double>(2)));
}

}  // namespace

int main() {
    tangents();
    normals();
    values();
    failures();
    return check::summary();
}
