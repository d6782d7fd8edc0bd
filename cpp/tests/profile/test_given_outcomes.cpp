// Few and many outcomes beside a random allocation of two steps, and that allocation alone below 0: integrals
// of (P - e^eps Q)_+ over all that is seen, in long double, from the densities themselves. Beside one of many
// steps, the inversion of the whole composition.
#include "profile/given_outcomes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "check.hpp"
#include "hockeystick/profile.hpp"
#include "inversion/inversion.hpp"

namespace hs = hockeystick;

namespace {

using Long = long double;

// Outcomes with their P- and Q-masses; what P alone has lies at +inf.
struct Seen {
    std::vector<double> loss, p, q;
    double p_infinity = 0;
    hs::PairPtr pair() const { return hs::discrete(loss, p, q, p_infinity, 0, p_infinity); }
};

Seen response(double epsilon, double infinite = 0) {
    const double rest = 1 - infinite, truth = rest / (1 + std::exp(-epsilon)), lie = rest - truth;
    return {{-epsilon, epsilon}, {lie, truth}, {truth, lie}, infinite};
}

Long normal_above(Long t) { return 0.5L * std::erfc(t / std::sqrt(2.0L)); }

// E of (a + b e^{mu x - mu^2/2})_+ over a standard normal x, b > 0.
Long beyond(Long a, Long b, Long mu) {
    if (a >= 0) return a + b;
    const Long t = std::log(-a / b) / mu + mu / 2;
    return a * normal_above(t) + b * normal_above(t - mu);
}
// The same of (a - b e^{mu x - mu^2/2})_+, a > 0.
Long below(Long a, Long b, Long mu) {
    if (a <= 0) return 0;
    const Long t = std::log(a / b) / mu + mu / 2;
    return a * normal_above(-t) - b * normal_above(mu - t);
}

// Of two steps, one of which is taken: V = (e^{mu x - mu^2/2} + e^{mu y - mu^2/2}) / 2 is dP/dQ; add: the
// other way round.
Long truth(double mu, bool add, const std::vector<Seen>& parts, Long epsilon) {
    std::vector<std::pair<Long, Long>> outcomes{{1, 1}};
    Long finite = 1;
    for (const Seen& part : parts) {
        std::vector<std::pair<Long, Long>> more;
        for (const auto& [p, q] : outcomes)
            for (std::size_t i = 0; i < part.p.size(); ++i) more.emplace_back(p * part.p[i], q * part.q[i]);
        outcomes = more;
        finite *= 1 - Long(part.p_infinity);
    }
    const Long h = 1.0L / 1024, scale = h / std::sqrt(2 * std::acos(-1.0L)), e = std::exp(epsilon);
    Long sum = 0;
    for (Long x = -11; x <= 11; x += h) {
        const Long half = std::exp(mu * x - 0.5L * mu * mu) / 2, density = scale * std::exp(-x * x / 2);
        for (const auto& [p, q] : outcomes)
            sum += density *
                   (add ? below(p - e * q * half, e * q / 2, mu) : beyond(p * half - e * q, p / 2, mu));
    }
    return sum + (1 - finite);
}

void against_integrals(double mu, bool add, const std::vector<Seen>& parts) {
    hs::Composition composition{
        {hs::random_allocation(mu, 2, add ? hs::Sampling::add : hs::Sampling::remove), 1}};
    for (const Seen& part : parts) composition.emplace_back(part.pair(), 1);
    CHECK(hs::GivenOutcomes::of(composition).has_value());
    const hs::Profile profile({composition});
    const double infinite = parts.back().p_infinity;
    int asked = 0;
    for (const double epsilon : {-0.7, 1.7, 0.0, 0.2, 0.9, 3.0, 4.5}) {
        if (check::sanitized && asked++ == 2) break;  // those above 0 take the same way
        const Long known = truth(mu, add, parts, epsilon), slack = 1e-9L * known + 1e-16L;
        const auto answer = profile.delta_bounds(epsilon);
        CHECK(answer.lower <= known + slack && known - slack <= answer.upper);
        CHECK(answer.upper - answer.lower <= 1e-6 * answer.upper);
        const auto curve = profile.delta_curve(std::vector<double>{epsilon, epsilon + 0.1});
        CHECK(curve[0].lower <= known + slack && known - slack <= curve[0].upper);
        // Next to the mass at +inf epsilon is unsure by what that rounds by.
        if (!(known > 1e-12L + 1.001L * infinite) || epsilon < 0) continue;
        const auto spent = profile.epsilon_bounds(static_cast<double>(known));
        CHECK(truth(mu, add, parts, spent.upper) <= known + slack);
        CHECK(spent.lower == 0 || truth(mu, add, parts, spent.lower) >= known - slack);
        CHECK(spent.upper - spent.lower <= 1e-6 * spent.upper + 1e-9);
    }
    CHECK(profile.epsilon_bounds(0.5 * infinite).upper == std::numeric_limits<double>::infinity());
}

// The sum of so many of them, whose losses are multiples of one.
Seen sum_of(const Seen& one, int count) {
    std::map<long, std::pair<Long, Long>> known{{0, {1, 1}}};
    const double h = one.loss.back();
    for (int i = 0; i < count; ++i) {
        std::map<long, std::pair<Long, Long>> more;
        for (const auto& [k, masses] : known)
            for (std::size_t j = 0; j < one.p.size(); ++j) {
                auto& at = more[k + std::lround(one.loss[j] / h)];
                at.first += masses.first * one.p[j];
                at.second += masses.second * one.q[j];
            }
        known = more;
    }
    Seen out;
    for (const auto& [k, masses] : known) {
        out.loss.push_back(static_cast<double>(k) * h);
        out.p.push_back(static_cast<double>(masses.first));
        out.q.push_back(static_cast<double>(masses.second));
    }
    out.p_infinity = 1 - std::pow(1 - one.p_infinity, count);
    return out;
}

// What is asked of the rest may be anything that is known of it: all, or that there is nothing; and what
// delta is about is a guess.
void given_many(double mu, bool add, const Seen& one, int count) {
    const hs::PairPtr allocation =
        hs::random_allocation(mu, 2, add ? hs::Sampling::add : hs::Sampling::remove);
    const hs::Composition whole{{allocation, 1}, {one.pair(), static_cast<std::uint64_t>(count)}};
    const auto many = hs::GivenOutcomes::of(whole);
    CHECK(many.has_value());
    if (!many) return;
    CHECK(many->rest().size() == 1 && many->rest().front().first == allocation);
    const hs::Profile alone({many->rest()}, 1e-7), profile({whole});
    const auto deltas = [&](auto epsilons, double) { return alone.delta_curve(epsilons); };
    const auto nowhere = [](const auto&, double) { return std::numeric_limits<double>::quiet_NaN(); };
    const auto nothing_from = [&](const std::vector<double>& epsilons, double negligible) {
        const auto first = std::find_if(epsilons.begin(), epsilons.end(), [&](double epsilon) {
            return alone.delta_bounds(epsilon).upper < negligible;
        });
        return first == epsilons.end() ? std::numeric_limits<double>::quiet_NaN() : *first;
    };
    const Seen sum = sum_of(one, count);
    for (const double epsilon : {-0.6, 0.3, 2.5}) {
        const Long known = truth(mu, add, {sum}, epsilon), slack = 1e-9L * known + 1e-16L;
        for (const double about : {0.0, static_cast<double>(known), 1e3}) {
            for (const hs::GivenOutcomes::Rest& rest :
                 {hs::GivenOutcomes::Rest{deltas, nowhere}, hs::GivenOutcomes::Rest{deltas, nothing_from}}) {
                const auto found = many->delta_curve({&epsilon, 1}, {&about, 1}, rest).front();
                CHECK(found.lower <= known + slack && known - slack <= found.upper);
                CHECK(found.upper - found.lower <= (about > 1 ? 3e-7 : 1e-6 * found.upper));
            }
        }
        const auto answer = profile.delta_bounds(epsilon);
        CHECK(answer.lower <= known + slack && known - slack <= answer.upper);
        CHECK(answer.upper - answer.lower <= 1e-6 * answer.upper);
    }
    // From bounds on eps, from Chernoff's alone, and from one that is too large on both sides.
    const Long wanted = truth(mu, add, {sum}, 1.5L);
    const hs::GivenOutcomes::Rest rest{deltas, nothing_from};
    for (const auto& [low, high] : {std::pair{1.4, 1.6}, {0.0, 1.9}, {1.7, 1.8}}) {
        hs::Answer about;
        about.lower = low;
        about.upper = high;
        const auto spent = many->epsilon_bounds(static_cast<double>(wanted), about, rest);
        CHECK(spent.lower <= 1.5 + 1e-9 && 1.5 - 1e-9 <= spent.upper);
        CHECK(spent.upper - spent.lower <= 1e-6);
    }
}

// The rest is told what its deltas are added up to, no less than that; with what may stay open of each, all
// bounds still enclose the truth.
void beside_a_sum(double mu, bool add) {
    const hs::Composition alone{
        {hs::random_allocation(mu, 2, add ? hs::Sampling::add : hs::Sampling::remove), 1}};
    const Seen one = response(0.4);
    const auto given = hs::GivenOutcomes::of({alone.front(), {one.pair(), 1}});
    CHECK(given.has_value());
    if (!given) return;
    const hs::Profile profile({alone}, 1e-7);
    double told = 0;
    const hs::GivenOutcomes::Rest rest{
        [&](auto epsilons, double sum) {
            told = sum;
            return profile.delta_curve(epsilons);
        },
        [](const auto&, double) { return std::numeric_limits<double>::quiet_NaN(); }};
    const auto inversion = hs::Inversion::of(alone);
    for (const double epsilon : {0.2, 1.0, 2.5, 4.0}) {
        const auto known = static_cast<double>(truth(mu, add, {one}, epsilon));
        for (const double about : {0.0, 0.5 * known, known}) {
            given->delta_curve({&epsilon, 1}, {&about, 1}, rest);
            CHECK(about > 0 ? told == about : told > 0 && told <= known * (1 + 1e-9));
        }
        const std::vector<double> shifted{epsilon - 0.4, epsilon, epsilon + 0.4};
        for (const double slack : {0.0, 1e-9 * known, known, 1.0}) {
            double little = 0;
            const auto curve = inversion->delta_curve(shifted, little, hs::Inversion::Effort::all, slack);
            for (std::size_t i = 0; i < shifted.size(); ++i) {
                const Long exact = truth(mu, add, {}, shifted[i]), rounding = 1e-9L * exact + 1e-16L;
                if (curve[i])
                    CHECK(curve[i]->lower <= exact + rounding && exact - rounding <= curve[i]->upper);
            }
        }
    }
}

// Many points take no more memory than some; each is as it is alone. The rest is any delta that falls.
void in_portions() {
    const hs::Composition whole{{hs::random_allocation(1, 2, hs::Sampling::add), 1},
                                {response(0.2).pair(), 30}};
    const auto given = hs::GivenOutcomes::of(whole);
    CHECK(given.has_value());
    if (!given) return;
    std::size_t most = 0;
    const hs::GivenOutcomes::Rest rest{
        [&](std::span<const double> epsilons, double) {
            most = std::max(most, epsilons.size());
            std::vector<hs::Answer> out(epsilons.size());
            for (std::size_t i = 0; i < out.size(); ++i)
                out[i].lower = out[i].upper = 1 / (1 + std::exp(epsilons[i]));
            return out;
        },
        [](const auto&, double) { return std::numeric_limits<double>::quiet_NaN(); }};
    std::vector<double> epsilons;
    for (int i = 0; i < 9000; ++i) epsilons.push_back(1e-3 * i);
    const std::vector<double> about(epsilons.size(), 1e-6);
    const auto curve = given->delta_curve(epsilons, about, rest);
    CHECK(curve.size() == epsilons.size() && most < 300'000);
    bool same = true;
    for (std::size_t i = 0; i < epsilons.size(); i += 97) {
        const auto alone = given->delta_curve({&epsilons[i], 1}, {&about[i], 1}, rest).front();
        same = same && alone.lower == curve[i].lower && alone.upper == curve[i].upper;
    }
    CHECK(same);
}

// Below 0 the answer is made of what P and Q in each other's places say.
void below_zero(double mu, bool add) {
    const hs::Composition epoch{
        {hs::random_allocation(mu, 2, add ? hs::Sampling::add : hs::Sampling::remove), 1}};
    const hs::Profile profile({epoch});
    const std::vector<double> epsilons{-30, -3, -0.8, -0.05, -1e-9};
    const auto curve = profile.delta_curve(epsilons);
    for (std::size_t i = 0; i < epsilons.size(); ++i) {
        const Long known = truth(mu, add, {}, epsilons[i]), slack = 1e-9L * known + 1e-16L;
        for (const auto& answer : {profile.delta_bounds(epsilons[i]), curve[i]}) {
            CHECK(answer.lower <= known + slack && known - slack <= answer.upper);
            CHECK(answer.upper - answer.lower <= 1e-9 * answer.upper);
        }
    }
    // Several epochs, of which the whole transform knows less.
    const hs::Composition several{{epoch.front().first, 3}, {hs::gaussian(0.2), 1}};
    const auto inversion = hs::Inversion::of(several);
    const hs::Profile all({several});
    for (const double epsilon : epsilons) {
        const auto known = inversion->delta_bounds(epsilon);
        const auto answer = all.delta_bounds(epsilon);
        CHECK(!known || (answer.lower <= known->upper && known->lower <= answer.upper));
        CHECK(answer.upper - answer.lower <= 1e-9 * answer.upper);
    }
}

}  // namespace

int main() {
    in_portions();
    beside_a_sum(0.7, false);
    beside_a_sum(1.3, true);
    for (const bool add : {false, true}) {
        below_zero(0.7, add);
        below_zero(1.3, add);
    }
    // Randomised response, and three losses with some mass at +inf.
    Seen three{{-0.4, 0, 0.4}, {0.1, 0.9 - 0.1 * std::exp(0.4), 0.1 * std::exp(0.4)}, {}, 0};
    three.q = {three.p[2], three.p[1], three.p[0]};
    given_many(0.8, false, three, 14);
    given_many(1.4, false, response(0.2, 1e-7), 30);
    if (!check::sanitized) {  // the same way
        given_many(1.4, true, three, 14);
        given_many(0.8, true, response(0.2), 30);
    }

    for (const bool add : {false, true})
        for (const double mu : {1.2, 0.3}) {
            if (check::sanitized && mu < 1) break;  // both take the same way
            against_integrals(mu, add, {response(0.5)});
            against_integrals(mu, add, {response(1.5), response(0.1, 1e-9)});
        }

    // Of many steps, and where delta is tiny.
    const hs::PairPtr allocation = hs::random_allocation(1, 1000, hs::Sampling::remove);
    const hs::Composition whole{{allocation, 1}, {response(0.3).pair(), 3}};
    const auto inversion = hs::Inversion::of(whole);
    const hs::Profile profile({whole});
    for (const double epsilon : {0.0, 0.5, 1.0, 1.4}) {
        const auto other = inversion->delta_bounds(epsilon);
        const auto answer = profile.delta_bounds(epsilon);
        CHECK(other && other->lower <= answer.upper && answer.lower <= other->upper);
        CHECK(answer.upper - answer.lower <= 1e-6 * answer.upper);
    }
    for (const double delta : {1e-12, 1e-20, 1e-30}) {
        const auto spent = profile.epsilon_bounds(delta);
        CHECK(spent.upper - spent.lower <= 1e-6 * spent.upper);
        CHECK(profile.delta_bounds(spent.upper).lower <= delta &&
              delta <= profile.delta_bounds(spent.lower).upper);
    }

    // Nothing to tell apart, or too much.
    for (const hs::Composition& composition : {hs::Composition{{allocation, 2}},
                                               {{response(1).pair(), 20}},
                                               {{allocation, 2}, {hs::laplace(1), 1}},
                                               {{allocation, 1}, {response(1).pair(), 1'000'000}}})
        CHECK(!hs::GivenOutcomes::of(composition));
    return check::summary();
}
