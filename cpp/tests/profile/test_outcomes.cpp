// Few outcomes against sums in long double: two losses many times over, several kinds, masses that differ by
// hundreds of decades, and what must be refused. The inversion, which would answer without them, as well.
#include "profile/outcomes.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "check.hpp"
#include "inversion/inversion.hpp"

namespace hs = hockeystick;

namespace {

using Long = long double;

struct Law {
    std::vector<Long> loss, p;
    hs::PairPtr pair() const {
        std::vector<double> others;
        for (std::size_t i = 0; i < p.size(); ++i)
            others.push_back(static_cast<double>(p[i] * std::exp(-loss[i])));
        return hs::discrete({loss.begin(), loss.end()}, {p.begin(), p.end()}, others);
    }
    // Advanced joint convexity: the "remove" form above 0, the "add" form below, and what is left at 0.
    Law joined(Long q) const {
        Law out{{0}, {0}};
        for (std::size_t i = 0; i < p.size(); ++i) {
            if (loss[i] == 0) {
                out.p[0] += p[i];
                continue;
            }
            const Long size = std::abs(loss[i]), moved = std::log1p(q * std::expm1(size));
            const Long kept = loss[i] > 0 ? q + (1 - q) * std::exp(-size) : 1;
            out.loss.push_back(std::copysign(moved, loss[i]));
            out.p.push_back(p[i] * kept);
            out.p[0] += loss[i] > 0 ? p[i] * (1 - q) * -std::expm1(-size) : 0;
        }
        return out;
    }
};

// Masses of which Q's sum to 1 as well: two at losses -a and b, and one at 0.
Law random_law(std::mt19937_64& random, double rarest) {
    std::uniform_real_distribution<double> uniform(0, 1);
    const double a = 0.1 + 3 * uniform(random), b = 0.1 + 3 * uniform(random);
    const Long low = std::pow(Long(10), Long(rarest * uniform(random))) / 50;
    // p e^a + r e^-b = p + r
    const Long high = low * std::expm1(Long(a)) / -std::expm1(-Long(b));
    if (!(low + high < 1)) return random_law(random, rarest);
    Law law{{-a, 0, b}, {low, 1 - low - high, high}};
    for (Long& mass : law.p) mass = static_cast<double>(mass);
    return law;
}

// All sequences, one step at a time.
Long truth(const std::vector<Law>& steps, Long epsilon, std::size_t i = 0, Long loss = 0, Long mass = 1) {
    if (i == steps.size()) return loss > epsilon ? mass * -std::expm1(epsilon - loss) : 0;
    Long sum = 0;
    for (std::size_t j = 0; j < steps[i].loss.size(); ++j)
        sum += truth(steps, epsilon, i + 1, loss + steps[i].loss[j], mass * steps[i].p[j]);
    return sum;
}

void enclosed(const hs::Outcomes& outcomes, double epsilon, Long truth, double gap) {
    const double lower = outcomes.delta(epsilon, false), upper = outcomes.delta(epsilon, true);
    CHECK(lower <= truth * (1 + Long(1e-17)) && truth * (1 - Long(1e-17)) <= upper);
    CHECK(upper - lower <= gap * upper + 1e-300);
}

// With a pinch of noise, also where there is room for little less; how many are close.
int inverted(const hs::Composition& composition, const std::vector<Law>& steps,
             std::initializer_list<double> epsilons) {
    int close = 0;
    for (const std::size_t memory_limit : {std::size_t{1} << 30, std::size_t{1} << 20}) {
        const auto inversion = hs::Inversion::of(composition, 1e-6, memory_limit);
        CHECK(inversion != nullptr);
        for (const double epsilon : epsilons) {
            const auto answer = inversion->delta_bounds(epsilon);
            if (!answer) continue;
            const Long known = truth(steps, epsilon), slack = 1e-17L * known + 1e-300L;
            CHECK(answer->lower <= known + slack && known - slack <= answer->upper);
            close += answer->upper - answer->lower <= 0.05 * answer->upper;
        }
    }
    return close;
}

int several_kinds(std::mt19937_64& random, double rarest, bool by_inversion) {
    const Law a = random_law(random, rarest), b = random_law(random, rarest);
    const hs::Composition composition{{a.pair(), 3}, {b.pair(), 4}};
    const auto outcomes = hs::Outcomes::of(composition, 1000);
    CHECK(outcomes != nullptr);
    const std::vector<Law> steps{a, a, a, b, b, b, b};
    const double most = static_cast<double>(3 * a.loss[2] + 4 * b.loss[2]);
    for (const double share : {-0.3, 0.0, 0.01, 0.2, 0.5, 0.9, 1 - 1e-6})
        enclosed(*outcomes, share * most, truth(steps, share * most), share > 0.99 ? 1e-6 : 1e-11);
    // Beside a sum of losses.
    const double sum = static_cast<double>(a.loss[2] + 2 * b.loss[2]);
    for (const double off : {-1e-9, -1e-15, 0.0, 1e-15, 1e-9})
        enclosed(*outcomes, sum + off, truth(steps, sum + off), 1e-7);
    CHECK(outcomes->delta(1.001 * most, true) < 1e-300);
    if (!by_inversion) return 0;
    return inverted(composition, steps, {0.01 * most, 0.2 * most, 0.5 * most, sum, sum + 1e-5});
}

// Two pairs that meet at the loss 0, where what is left may be next to nothing.
void joined(const Law& a, const Law& b, double q) {
    const auto of = [&](const Law& law) { return hs::sampled(law.pair(), q, hs::Sampling::replace_one); };
    const auto outcomes = hs::Outcomes::of({{of(a), 2}, {of(b), 2}}, 1000);
    CHECK(outcomes != nullptr);
    const std::vector<Law> steps{a.joined(q), a.joined(q), b.joined(q), b.joined(q)};
    const double most = static_cast<double>(2 * steps[0].loss.back() + 2 * steps[2].loss.back());
    for (const double share : {-0.3, 0.0, 0.01, 0.4, 0.9})
        enclosed(*outcomes, share * most, truth(steps, share * most), 1e-10);
}

Law response(double a) {
    const Long p = static_cast<double>(1 / (1 + std::exp(-Long(a))));
    return {{-Long(a), Long(a)}, {1 - p, p}};
}

// Randomised response: binomial sums.
void many_steps(double a, std::size_t steps) {
    const Long p = 1 / (1 + std::exp(-Long(a))), rounded = static_cast<double>(p);
    const auto pair = hs::discrete({-a, a}, {static_cast<double>(1 - rounded), static_cast<double>(rounded)},
                                   {static_cast<double>(rounded), static_cast<double>(1 - rounded)});
    const auto outcomes = hs::Outcomes::of({{pair, steps}}, steps + 2);
    CHECK(outcomes != nullptr);
    const double n = static_cast<double>(steps);
    for (const double share : {0.01, 0.3, 0.9}) {
        const Long epsilon = share * n * a;
        Long sum = 0, size = 0;
        for (std::size_t k = 0; k <= steps; ++k) {
            const Long loss = (2 * Long(k) - Long(n)) * a;
            if (!(loss > epsilon)) continue;
            const Long log_mass = std::lgamma(Long(n) + 1) - std::lgamma(Long(k) + 1) -
                                  std::lgamma(Long(n) - k + 1) + k * std::log(rounded) +
                                  (Long(n) - k) * std::log1p(-rounded);
            sum += std::exp(log_mass) * -std::expm1(epsilon - loss);
            size = std::max(size, std::abs(log_mass) + std::lgamma(Long(n) + 1));
        }
        const double lower = outcomes->delta(static_cast<double>(epsilon), false),
                     upper = outcomes->delta(static_cast<double>(epsilon), true);
        const Long slack = size * Long(1e-18);
        CHECK(lower <= sum * (1 + slack) && sum * (1 - slack) <= upper);
        CHECK(upper - lower <= 1e-9 * upper + 1e-300);
    }
}

}  // namespace

int main() {
    std::mt19937_64 random(1);
    int close = 0;
    for (const double rarest : {0.0, -3.0, -20.0, -35.0})
        for (int i = 0; i < 8; ++i) close += several_kinds(random, rarest, i < 2 && rarest > -30);
    CHECK(close >= 55);
    for (const double a : {0.01, 1.0, 8.0})
        for (const std::size_t steps : {2u, 30u, 1000u, 20000u}) many_steps(a, steps);

    for (const double q : {1e-9, 0.3, 0.999}) {
        for (const double rarest : {0.0, -3.0, -20.0})
            joined(random_law(random, rarest), random_law(random, rarest), q);
        for (const double a : {3.0, 1e-3, 1e-9}) joined(response(a), response(1.7 * a), q);
    }

    // Once of many losses, beside others: neither deep nor slow.
    std::vector<double> losses, masses;
    for (int i = 0; i < 40000; ++i) {
        losses.push_back(1e-4 * (i - 19999.5));
        masses.push_back(1 / (20000 * (1 + std::exp(-losses.back()))));
    }
    const Law flat{{losses.begin(), losses.end()}, {masses.begin(), masses.end()}},
        twice = random_law(random, 0);
    const auto beside = hs::Outcomes::of({{flat.pair(), 1}, {twice.pair(), 1}}, 1 << 17);
    CHECK(beside != nullptr);
    for (const double epsilon : {0.0, 0.5, 3.0})
        enclosed(*beside, epsilon, truth({twice, flat}, epsilon), 1e-9);

    // Too many, not made of atoms alone, or perhaps an atom too few.
    const auto answer = hs::discrete({-1, 1}, {0.26894142136999512, 0.73105857863000488},
                                     {0.73105857863000488, 0.26894142136999512});
    CHECK(hs::Outcomes::of({{answer, 99}}, 101) != nullptr);
    CHECK(hs::Outcomes::of({{answer, 100}}, 101) == nullptr);
    CHECK(hs::Outcomes::of({{answer, std::uint64_t{1} << 53}}, 1 << 17) == nullptr);
    CHECK(hs::Outcomes::of({{answer, 2}, {hs::laplace(1), 1}}, 1000) == nullptr);
    CHECK(hs::Outcomes::of({{hs::sampled(answer, 0.1, hs::Sampling::remove), 3}}, 1000) != nullptr);
    CHECK(hs::Outcomes::of({{hs::sampled(answer, 0.1, hs::Sampling::replace_one), 3}}, 1000) != nullptr);
    const auto rounded = hs::discrete({0, 1}, {0.5, 0.5}, {0.5, 0.5 * std::exp(-1)});
    CHECK(hs::Outcomes::of({{rounded, 3}}, 1000) == nullptr);
    CHECK(hs::Outcomes::of({{hs::sampled(rounded, 0.1, hs::Sampling::replace_one), 3}}, 1000) == nullptr);
    const auto one = hs::discrete({0}, {1}, {1});
    CHECK(hs::Outcomes::of({{one, std::uint64_t{1} << 53}, {answer, 1}}, 1000) != nullptr);
    return check::summary();
}
