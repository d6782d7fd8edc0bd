// Certified answers against closed forms: Gaussians compose to a Gaussian; pure DP is binomial.
#include "hockeystick/profile.hpp"

#include <cmath>
#include <limits>
#include <stdexcept>

#include "check.hpp"

namespace hs = hockeystick;

namespace {

void gaussians_compose(double mu, std::uint64_t count, double delta) {
    const hs::Composition composition = {{hs::gaussian(mu), count}};
    const hs::Profile closed({{{hs::gaussian(mu * std::sqrt(static_cast<double>(count))), 1}}});
    const hs::Answer exact = closed.epsilon_bounds(delta);
    const hs::Answer merged = hs::Profile({composition}).epsilon_bounds(delta);
    CHECK(exact.engine == "closed form" && merged.engine == "closed form");
    CHECK(merged.lower <= exact.upper && exact.lower <= merged.upper);
    CHECK(merged.upper <= merged.lower * (1 + 1e-9));
    const hs::Profile composed({composition}, 1e-4, std::size_t{1} << 30, hs::Engine::fft);
    const hs::Answer fft = composed.epsilon_bounds(delta);
    CHECK(fft.engine == "fft");
    CHECK(fft.lower <= exact.upper && exact.lower <= fft.upper);
    CHECK(fft.upper <= fft.lower * (1 + 2e-4));
    const hs::Answer back = composed.delta_bounds(exact.upper);
    CHECK(back.lower <= delta * (1 + 1e-9) && delta <= back.upper * (1 + 1e-9));
}

// delta of k-fold eps0-DP: sum over j of binomial mass (1 - e^{eps - (2j-k) eps0})+.
double pure_dp_delta(double epsilon0, int k, double epsilon) {
    double sum = 0;
    for (int j = 0; j <= k; ++j) {
        const double loss = (2 * j - k) * epsilon0;
        if (loss <= epsilon) continue;
        const double log_mass = std::lgamma(k + 1) - std::lgamma(j + 1) - std::lgamma(k - j + 1) -
                                j * std::log1p(std::exp(-epsilon0)) -
                                (k - j) * (epsilon0 + std::log1p(std::exp(-epsilon0)));
        sum += std::exp(log_mass) * -std::expm1(epsilon - loss);
    }
    return sum;
}

void pure_dp(double epsilon0, int k, double epsilon) {
    const double p = 1 / (1 + std::exp(-epsilon0));
    const hs::PairPtr pair = hs::discrete({-epsilon0, epsilon0}, {1 - p, p}, {p, 1 - p}, 0, epsilon0);
    const hs::Profile profile({{{pair, static_cast<std::uint64_t>(k)}}});
    const double exact = pure_dp_delta(epsilon0, k, epsilon);
    const hs::Answer delta = profile.delta_bounds(epsilon);
    CHECK(delta.lower <= exact * (1 + 1e-9) && exact <= delta.upper * (1 + 1e-9));
    CHECK(delta.upper <= delta.lower * (1 + 1e-3));
    const hs::Answer back = profile.epsilon_bounds(exact);
    CHECK(back.lower <= epsilon * (1 + 1e-9) && epsilon <= back.upper * (1 + 1e-9));
}

// Next to the sum of the largest losses, which has an atom, its mass says all there is: an engine would take
// seconds to say no more.
void next_to_the_largest_losses(double epsilon0, double q, std::uint64_t k, double short_of) {
    const hs::Composition composition = {{hs::sampled(hs::laplace(epsilon0), q, hs::Sampling::remove), k}};
    int asked = 0;
    const hs::Profile profile({composition}, 1e-3, std::size_t{1} << 30, hs::Engine::automatic,
                              [&] { ++asked; });
    const double steps = static_cast<double>(k), largest = steps * std::log1p(q * std::expm1(epsilon0)),
                 atom = (q + (1 - q) * std::exp(-epsilon0)) / 2,
                 exact = std::pow(atom, steps) * -std::expm1(-short_of * largest);
    const double epsilon = largest * (1 - short_of);
    for (const hs::Answer& delta :
         {profile.delta_bounds(epsilon), profile.delta_curve(std::vector<double>{epsilon}).front()}) {
        // epsilon itself is rounded.
        CHECK(delta.lower <= exact * (1 + 1e-4) && exact * (1 - 1e-4) <= delta.upper);
        CHECK(delta.upper <= delta.lower * 1.02);
    }
    CHECK(asked == 0);
}

}  // namespace

int main() {
    for (const double short_of : {3e-11, 1e-10, 2.5e-10}) next_to_the_largest_losses(0.5, 0.08, 8, short_of);
    next_to_the_largest_losses(0.1, 0.0014, 2, 4e-11);
    gaussians_compose(0.01, 100000, 1e-8);
    gaussians_compose(0.01, 100000, 1e-12);  // where an untilted transform returns noise
    gaussians_compose(1.0 / 300, 100000, 1e-11);
    gaussians_compose(0.5, 7, 1e-40);
    gaussians_compose(2, 3, 1e-200);
    pure_dp(5, 50, 240);
    pure_dp(0.1, 200, 4);
    pure_dp(1, 10, 0);
    pure_dp(30, 20, 555);

    // A run of DP-SGD; the truth to all digits shown: 1.82823667.
    const hs::PairPtr gradient = hs::gaussian(1);
    const hs::Composition remove = {{hs::sampled(gradient, 0.01, hs::Sampling::remove), 1000}};
    const hs::Composition add = {{hs::sampled(gradient, 0.01, hs::Sampling::add), 1000}};
    const hs::Answer run = hs::Profile({remove, add}).epsilon_bounds(1e-5);
    CHECK(run.lower <= 1.828236675 && 1.828236665 <= run.upper && run.upper <= run.lower * (1 + 1e-3));
    CHECK(run.direction == 0);

    // A delta that the atom at +inf exceeds has no eps.
    const hs::PairPtr broken = hs::discrete({}, {}, {}, 1);
    CHECK(std::isinf(hs::Profile({{{broken, 2}}}).epsilon_bounds(0.5).upper));
    CHECK(hs::Profile({remove}).epsilon_bounds(1).upper == 0);
    CHECK(std::isinf(hs::Profile({remove}).epsilon_bounds(0).lower));
    CHECK_THROWS(std::invalid_argument, hs::Profile({remove}).epsilon_bounds(-1));
    // An infinite loss of the least probability there is.
    const auto least = hs::discrete({-1, 1}, {0.26894142136999512, 0.73105857863000488},
                                    {0.73105857863000488, 0.26894142136999512}, 5e-324, 0, 5e-324);
    for (const std::uint64_t steps : {1u, 2u, 30u})
        CHECK(hs::Profile({{{least, steps}}}).epsilon_bounds(0).upper ==
              std::numeric_limits<double>::infinity());
    hs::Profile source({remove});
    const hs::Profile moved = std::move(source);
    CHECK(moved.delta_bounds(0).upper > 0);
    CHECK_THROWS(std::logic_error, source.delta_bounds(0));
    CHECK_THROWS(std::logic_error, source.epsilon_bounds(0.1));
    CHECK_THROWS(std::logic_error, source.delta_curve(std::vector<double>{0.1}));
    CHECK_THROWS(std::invalid_argument,
                 hs::Profile({remove}).epsilon_bounds(std::numeric_limits<double>::quiet_NaN()));
    CHECK_THROWS(std::invalid_argument, hs::Profile({hs::Composition{}}));
    CHECK_THROWS(std::invalid_argument, hs::gaussian(0));
    CHECK_THROWS(std::invalid_argument, hs::sampled(gradient, 0, hs::Sampling::remove));
    return check::summary();
}
