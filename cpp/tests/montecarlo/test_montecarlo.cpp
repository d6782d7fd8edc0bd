// Sampled privacy losses: the strategy's norms, small mechanisms in closed form, blocks and threads.
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "hockeystick/estimate.hpp"
#include "hockeystick/parallel.hpp"
#include "montecarlo/group_counts.hpp"

using namespace hockeystick;

namespace {

const std::vector<double> coefficients{1.0, 0.7, 0.4};

Strategy toeplitz(std::size_t steps) { return {steps, coefficients.size(), coefficients}; }

void strategies() {
    const Strategy c = toeplitz(5);
    // Columns shrink at the end, not at the beginning.
    const auto norms = c.squared_norms();
    CHECK(norms[0] == norms[2] && norms[4] == 1.0 && norms[3] == 1.49 && std::abs(norms[2] - 1.65) < 1e-15);
    CHECK(c.column(3).size() == 2 && c.column(0).size() == 3);
    CHECK(std::abs(c.inner_product(0, 1) - (0.7 + 0.28)) < 1e-15 &&
          c.inner_product(1, 0) == c.inner_product(0, 1));
    CHECK(c.inner_product(0, 3) == 0 && std::abs(c.inner_product(3, 4) - 0.7) < 1e-15);
    std::vector<double> rows;
    for (std::size_t i = 0; i < 5; ++i) {
        for (std::size_t k = 0; k < 3; ++k) rows.push_back(i + k < 5 ? coefficients[k] : 0);
    }
    const Strategy general(5, 3, rows);
    CHECK(!general.is_toeplitz() && general.squared_norms() == norms);
    CHECK(general.overlap_bounds(1).size() == 5);
    for (const std::size_t separation : {1U, 2U, 3U}) {
        const auto a = c.overlap_bounds(separation), b = general.overlap_bounds(separation);
        for (std::size_t i = 0; i < 5; ++i) CHECK(std::abs(a[i] - b[i]) < 1e-15);
    }
    // Both later columns at distance 1; only the nearer one at distance 2.
    CHECK(std::abs(c.overlap_bounds(1)[0] - (0.98 + 0.4)) < 1e-15 && c.overlap_bounds(2)[0] == 0.4);
    CHECK(c.overlap_bounds(3)[0] == 0 && c.overlap_bounds(1)[4] == 0);
    CHECK_THROWS(std::invalid_argument, Strategy(3, 4, {1, 1, 1, 1}));
    CHECK_THROWS(std::invalid_argument, Strategy(std::numeric_limits<std::size_t>::max() / 2 + 1, 2, {}));
    for (const double divisor : {0.0, -1.0, std::nan(""), 5e-324})
        CHECK_THROWS(std::invalid_argument, Strategy(3, 2, {1, 0.5}).over(divisor));
    CHECK_THROWS(std::invalid_argument, Strategy(3, 0, {}));
    CHECK_THROWS(std::invalid_argument, Strategy(3, 2, {1, -1}));
    CHECK_THROWS(std::invalid_argument, Strategy(3, 2, {1, 1, 1}));
    CHECK_THROWS(std::invalid_argument, Strategy(3, 2, {1, 1, 1, 1, 1, 1}));
    CHECK_THROWS(std::invalid_argument, Strategy(2, 1, {1, std::nan("")}));
}

void one_participation() {
    // Certain, cold, no second time: a Gaussian with mean c.
    const double sigma = 0.7;
    const LossSampler sampler({toeplitz(3), BMinSep{3, 1.0, false}, sigma}, Direction::remove);
    const std::vector<double> y{0.3, -1.2, 2.0};
    const double product = 0.3 - 0.84 + 0.8, norm = 1.65;
    const auto loss = sampler.evaluate(y, {});
    CHECK(std::abs(loss[0] - (product - norm / 2) / sigma / sigma) < 1e-14);
}

void blocks() {
    const TruncatedBMinSep truncated{{5, 0.1, true}, 200, 15};
    const std::vector<Scheme> schemes{BMinSep{5, 0.1, true}, BallsInBins{7},
                                      MultiAttribution{5, 0.1, 2, true}, truncated};
    for (const auto& scheme : schemes) {
        for (const auto direction : {Direction::remove, Direction::add}) {
            const LossSampler sampler({toeplitz(300), scheme, 0.8}, direction);
            const auto together = sampler.losses(1, 0, 3);
            set_threads(1);
            const auto one = sampler.losses(1, 1, 1);
            set_threads(0);
            bool equal = true;
            for (std::size_t i = 0; i < one.size(); ++i)
                equal = equal && one[i] == together[sampler.block_size() + i];
            CHECK(equal);
            const std::vector<double> epsilons{0.5};
            const auto sums = sampler.delta_sums(1, epsilons, 1, 1);
            double sum = 0;
            for (const double loss : one) sum += hockey_stick(0.5, loss);
            CHECK(sums.values[0] == sum && sums.not_a_number == 0);
        }
    }
}

// The Monte Carlo side of importance sampling: densities of tilted mixtures.
void tilted_mixtures() {
    // One step: sum over x in {0, 1} of theta^x Pr[x] e^{(1 + s) u - (1 + s)^2/2}.
    const Strategy identity(1, 1, {1.0});
    const double more[] = {1.0, 5.0};
    const Mixture mixture({identity, BMinSep{1, 0.25, false}, 1.0}, Numerator::present, false, {3.0, 0.5},
                          more);
    CHECK(mixture.rows() == 3);
    const auto evaluation = mixture.start();
    Rows u(1, 0.8), out(3);
    evaluation->add(u[0], 1, nullptr);
    evaluation->finish(out[0]);
    const double thetas[] = {3.0, 1.0, 5.0};
    for (std::size_t k = 0; k < 3; ++k) {
        const double truth = std::log(0.75 + 0.25 * thetas[k] * std::exp(1.5 * 0.8 - 1.125));
        CHECK(std::abs(out[k][5] - truth) < 1e-15);
    }
}

void failures() {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    CHECK(hockey_stick(1, std::nan("")) == 1 && hockey_stick(1, infinity) == 1);
    CHECK(hockey_stick(1, -infinity) == 0 && hockey_stick(1, 1) == 0 &&
          hockey_stick(infinity, infinity) == 0);
    CHECK(std::abs(hockey_stick(1, 2) - (1 - std::exp(-1.0))) < 1e-15);
    const auto make = [](const Scheme& scheme, double sigma) {
        return LossSampler({toeplitz(10), scheme, sigma}, Direction::remove);
    };
    for (const double sigma : {0.0, -1.0, infinity, std::nan(""), 1e-12}) {
        CHECK_THROWS(std::invalid_argument, make(BMinSep{3, 0.1, true}, sigma));
    }
    CHECK_THROWS(std::invalid_argument, make(BMinSep{0, 0.1, true}, 1));
    CHECK_THROWS(std::invalid_argument, make(BMinSep{3, std::nan(""), true}, 1));
    CHECK_THROWS(std::invalid_argument, make(BMinSep{3, 1.5, true}, 1));
    CHECK_THROWS(std::invalid_argument, make(BallsInBins{0}, 1));
    CHECK_THROWS(std::invalid_argument, make(MultiAttribution{3, 0.1, 0, false}, 1));
    CHECK_THROWS(std::invalid_argument, make(MultiAttribution{2, 0.1, 1, false}, 1));
    for (const std::size_t examples : {(std::size_t{1} << 16) + 1, std::numeric_limits<std::size_t>::max()}) {
        for (const bool exact : {false, true})
            CHECK_THROWS(std::invalid_argument, make(MultiAttribution{3, 0.1, examples, exact}, 1));
        CHECK_THROWS(std::invalid_argument, make(IndependentBMinSep{{3, 0.1, true}, examples}, 1));
    }
    CHECK_THROWS(std::invalid_argument, make(TruncatedBMinSep{{3, 0.1, true}, 0, 1}, 1));
    CHECK_THROWS(std::invalid_argument, make(TruncatedBMinSep{{2, 0.1, true}, 9, 1}, 1));
    CHECK_THROWS(std::invalid_argument, make(BMinSep{3, 0.1, true}, 1).evaluate(std::vector<double>(9), {}));
    // Products of sizes that wrap, to 0 among others.
    const LossSampler sampler = make(BMinSep{3, 0.1, true}, 1);
    for (const int power : {50, 54, 60, 63}) {
        const std::size_t many = std::size_t{1} << power;
        CHECK_THROWS(std::length_error, sampler.losses(1, 0, many));
        CHECK_THROWS(std::length_error, sampler.draws(1, 0, many));
        const std::vector<double> epsilons(2, 1.0);
        if (power >= 60) CHECK_THROWS(std::length_error, sampler.delta_sums(1, epsilons, 0, many));
    }
}

// Public counts in whatever portions are those of one call, each with its own chance to survive, and no two
// calls see the same words again; with a table and without one.
void counts_in_portions() {
    constexpr std::size_t steps = 120;
    const BMinSep base{5, 0.1, true};
    for (const TruncatedBMinSep& scheme : {TruncatedBMinSep{base, 9, 1}, TruncatedBMinSep{base, 4000, 285}}) {
        const BinomialTable table = PublicCounts::table(scheme);
        CHECK(table.cumulative.empty() == (scheme.dataset_size < 10));
        const BlockStream block{7, 1};
        GroupCounts whole(scheme, steps, table, block, 16), parts(scheme, steps, table, block, 16);
        Rows counts(steps), survival(steps), some_counts(steps), some_survival(steps);
        whole.next(steps, counts[0], survival[0]);
        std::size_t done = 0;
        for (const std::size_t portion : {1, 2, 9, 8, 40, 3, 57}) {
            parts.next(portion, some_counts[done], some_survival[done]);
            done += portion;
        }
        CHECK(done == steps);
        std::size_t truncated = 0, repeated = 0;
        for (std::size_t i = 0; i < steps; ++i) {
            for (std::size_t s = 0; s < group_size; ++s) {
                const double others = counts[i][s];
                CHECK(others == some_counts[i][s] && survival[i][s] == some_survival[i][s]);
                CHECK(others >= 0 && others <= static_cast<double>(scheme.dataset_size - 1));
                CHECK(survival[i][s] == survival_probability(scheme, others));
                truncated += survival[i][s] < 1;
                repeated += i > 0 && others == counts[i - 1][s];
            }
        }
        CHECK(truncated > steps && repeated < steps * group_size / 2);
    }
}

}  // namespace

int main() {
    strategies();
    one_participation();
    blocks();
    tilted_mixtures();
    failures();
    counts_in_portions();
    return check::summary();
}
