// The power series of one large ratio against sums over all others, with cuts of any size, of one epoch and
// of two; the bound on large ratios in several epochs against what it bounds.
#include <cmath>
#include <numbers>

#include "check.hpp"
#include "hockeystick/pairs.hpp"
#include "inversion/allocation_large_ratios.hpp"
#include "inversion/allocation_parts.hpp"
#include "inversion/allocation_step.hpp"
#include "inversion/epochs.hpp"

namespace hs = hockeystick;

namespace {

double density(double g) { return std::exp(-0.5 * g * g) / std::sqrt(2 * std::numbers::pi); }
double tail(double g) { return 0.5 * std::erfc(g / std::sqrt(2.0)); }

struct Law {
    double mu, steps;
    double ratio(double g) const { return std::exp(mu * (g - 0.5 * mu)); }
    double place(double w) const { return std::log(w) / mu + 0.5 * mu; }
    // E[(sum/T + W/T - c)_+; W > cut at g]
    double last(double sum, double c, double g) const {
        const double strike = steps * c - sum, from = strike > 0 ? std::max(g, place(strike)) : g;
        return (tail(from - mu) - strike * tail(from)) / steps;
    }
};

// E[(V - c)_+; some W > cut] over all other steps, by the midpoint rule on either side of the cut.
double truth(const Law& law, double cut, double c, double sum, int others, bool above, int nodes) {
    if (others == 0) return law.last(sum, c, above ? -40 : cut);
    double total = 0;
    for (const bool beyond : {false, true}) {
        const double low = beyond ? cut : -9, high = beyond ? cut + 9 + law.mu : cut,
                     h = (high - low) / nodes;
        for (int i = 0; i < nodes; ++i) {
            const double g = low + (i + 0.5) * h;
            total +=
                h * density(g) * truth(law, cut, c, sum + law.ratio(g), others - 1, above || beyond, nodes);
        }
    }
    return total;
}

void holds_the_truth(double mu, int steps, double c, double share, int nodes) {
    const Law law{mu, 1.0 * steps};
    const hs::Allocation allocation{mu, law.steps, false};
    const double cut = law.place(share * law.steps * (c - 1));
    const hs::Inverted at = hs::LargeRatios(allocation, hs::CutStep::at(allocation, cut, 9)).at(std::log(c));
    // The rule's own error falls as the square of its step, but for a kink.
    const double coarse = truth(law, cut, c, 0, steps - 1, false, nodes),
                 fine = truth(law, cut, c, 0, steps - 1, false, 2 * nodes),
                 rule = 2 * std::abs(fine - coarse);
    CHECK(at.lower() <= fine + rule && fine - rule <= at.upper());
    CHECK(std::abs(at.scaled(at.value) - fine) <= at.scaled(at.quadrature + at.round_off) + rule);
    CHECK(rule < 0.03 * fine);
}

// The same for two epochs of two steps, exactly one W above the cut: f(g, density) over one below it.
template <class F>
double below(double cut, int nodes, F f) {
    const double h = (cut + 9) / nodes;
    double total = 0;
    for (int i = 0; i < nodes; ++i) {
        const double g = -9 + (i + 0.5) * h;
        total += h * density(g) * f(g);
    }
    return total;
}

// own: the cut of the epoch with that W, cut: of the other one.
double truth_of_two(const Law& law, double own, double cut, double c, int nodes) {
    return 4 * below(cut, nodes, [&](double a) {
               return below(cut, nodes, [&](double b) {
                   const double other = 0.5 * (law.ratio(a) + law.ratio(b));
                   return below(own, nodes,
                                [&](double g) { return other * law.last(law.ratio(g), c / other, own); });
               });
           });
}

double truth_with_noise(const Law& law, double variance, double cut, double c, int nodes) {
    return 2 * below(8, nodes, [&](double r) {
               const double other = std::exp(std::sqrt(variance) * r - 0.5 * variance);
               return below(cut, nodes,
                            [&](double own) { return other * law.last(law.ratio(own), c / other, cut); });
           });
}

// The midpoint rule's error falls as the square of its step.
void holds(const hs::Inverted& at, double coarse, double fine) {
    const double truth = fine + (fine - coarse) / 3, rule = 0.1 * std::abs(fine - coarse),
                 off = std::abs(at.scaled(at.value) - truth);
    CHECK(off <= at.scaled(at.quadrature + at.round_off) + rule);
    CHECK(rule < 5e-3 * truth);
    CHECK(off < 3e-3 * truth + rule);
}

void epochs_hold_the_truth(double mu, double c, double ratio) {
    const Law law{mu, 2};
    const hs::Allocation allocation{mu, 2, false};
    const double cut = law.place(ratio), farther = law.place(2 * ratio);
    const auto step = hs::CutStep::at(allocation, cut, 9);
    for (const double own : {cut, farther})
        holds(hs::LargeRatios(allocation, hs::CutStep::at(allocation, own, 9), step, 2).at(std::log(c)),
              truth_of_two(law, own, cut, c, 70), truth_of_two(law, own, cut, c, 140));
    for (const double variance : {1e-3, 0.02})
        holds(hs::LargeRatios(allocation, step, 1, variance).at(std::log(c)),
              truth_with_noise(law, variance, cut, c, 300), truth_with_noise(law, variance, cut, c, 600));
}

// E[V^power] of one epoch with so many W on the ladder, and none beyond: sum is what other steps have.
double moment(const Law& law, double cut, double top, double power, int large, int steps, double sum = 0) {
    if (steps == 0) return large == 0 ? std::pow(sum / law.steps, power) : 0;
    double total = 0;
    for (const bool beyond : {false, true}) {
        if (beyond ? large == 0 : large == steps) continue;
        const double low = beyond ? cut : -9, high = beyond ? top : cut;
        const int nodes = law.steps > 2 ? 100 : 400;
        const double h = (high - low) / nodes;
        for (int i = 0; i < nodes; ++i) {
            const double g = low + (i + 0.5) * h;
            total +=
                h * density(g) * moment(law, cut, top, power, large - beyond, steps - 1, sum + law.ratio(g));
        }
    }
    return total;
}

// Of steps that may have three: what is bounded if none, or less than three, of an epoch are known.
void several_are_bounded(double mu, int steps, double ratio, double top_ratio, double power,
                         double variance) {
    const Law law{mu, 1.0 * steps};
    const hs::Allocation allocation{mu, law.steps, false};
    const double cut = law.place(ratio), top = law.place(top_ratio);
    const auto with = [&](int large) {
        return large > steps ? 0 : moment(law, cut, top, power, large, steps);
    };
    const double none = with(0), few = with(1) + with(2), three = with(3), some = few + three;
    const auto step = hs::CutStep::at(allocation, cut, 9);
    const hs::Bulk bulk(allocation, step);
    const hs::Ladder ladder(allocation, step, top);
    const double noise = 0.5 * variance * power * (power - 1);
    for (const double epochs : {2.0, 3.0}) {
        const auto several = [&](double each) {
            return std::pow(none + each, epochs) - std::pow(none, epochs) -
                   epochs * each * std::pow(none, epochs - 1);
        };
        for (const bool apart : {false, true}) {
            const double truth = apart ? several(some) - several(few) : several(some),
                         bound = hs::log_several(allocation, epochs, variance, bulk, ladder, power, apart) -
                                 noise;
            CHECK(std::log(truth) <= bound + 1e-3);
            CHECK(!(truth > 0) || bound < std::log(truth) + 2 * epochs + (apart ? 7 : 2));
        }
    }
}

void is_tight(double mu, double steps, double c, double share, double widest) {
    const hs::Allocation law{mu, steps, false};
    const double cut = Law{mu, steps}.place(share * steps * (c - 1));
    const hs::Inverted at = hs::LargeRatios(law, hs::CutStep::at(law, cut, 9)).at(std::log(c));
    CHECK(at.quadrature + at.round_off < widest * at.value);
}

// Its slope is that of the terms it sums, though those beyond may be larger than all of these.
void slope_is_near(double mu, double steps, double epochs, double epsilon, double ratio) {
    const hs::Allocation law{mu, steps, false};
    const double cut = Law{mu, steps}.place(ratio * steps), step = 1e-4;
    const hs::LargeRatios large(law, hs::CutStep::at(law, cut, 9), epochs);
    const hs::Inverted at = large.at(epsilon), next = large.at(epsilon + step);
    const double slope = (at.scaled(at.value) - next.scaled(next.value)) / step;
    CHECK(std::abs(at.scaled(at.slope) - slope) < 0.05 * slope);
}

}  // namespace

int main() {
    for (const double share : {0.03, 0.2, 0.5, 0.8, 0.94}) {
        for (const double c : {1.8, 3.0, 20.0, 1e4}) holds_the_truth(1, 2, c, share, 4000);
        for (const double c : {20.0, 1e3, 1e7}) holds_the_truth(2.5, 2, c, share, 4000);
        holds_the_truth(1.6, 3, 6, share, 250);
        holds_the_truth(3, 3, 300, share, 250);
        holds_the_truth(1.6, 4, 8, share, 40);
    }
    is_tight(3.3, 2, 1e8, 0.5, 3e-12);
    is_tight(2, 1e3, 2000, 0.5, 3e-10);
    is_tight(1.4, 1e5, 16, 0.35, 1e-9);
    is_tight(2, 1e9, 10, 0.35, 1e-10);
    epochs_hold_the_truth(0.5, 8, 1.2);
    epochs_hold_the_truth(0.7, 20, 0.8);
    epochs_hold_the_truth(1, 8, 0.7);
    epochs_hold_the_truth(1, 40, 0.7);
    for (const double power : {1.5, 4.0, 9.0}) {
        several_are_bounded(1, 2, 2, 30, power, 0);
        several_are_bounded(0.6, 2, 1.5, 8, power, 0.1);
        several_are_bounded(2, 2, 20, 1e4, power, 0);
        several_are_bounded(0.8, 3, 2, 20, power, 0.05);
    }
    slope_is_near(2.4, 4.5e7, 6, 0.95, 0.7);
    slope_is_near(1.9, 9e4, 4, 6, 0.5);
    slope_is_near(3, 1e6, 4, 8, 0.3);
    slope_is_near(1, 1000, 2, 3, 0.5);
    // No series without a gap, or where the cut leaves none.
    const hs::Allocation law{2, 1000, false};
    const hs::LargeRatios large(law, hs::CutStep::at(law, 6, 9));
    CHECK(!(large.at(0).quadrature + large.at(0).value < 1e300));
    CHECK(!(large.at(1).quadrature < 1e300));
    return check::summary();
}
