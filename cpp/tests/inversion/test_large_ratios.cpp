// The power series of one large ratio against sums over all others, with cuts of any size.
#include <cmath>
#include <numbers>

#include "check.hpp"
#include "hockeystick/pairs.hpp"
#include "inversion/allocation_step.hpp"
#include "inversion/large_ratios.hpp"

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

void is_tight(double mu, double steps, double c, double share, double widest) {
    const hs::Allocation law{mu, steps, false};
    const double cut = Law{mu, steps}.place(share * steps * (c - 1));
    const hs::Inverted at = hs::LargeRatios(law, hs::CutStep::at(law, cut, 9)).at(std::log(c));
    CHECK(at.quadrature + at.round_off < widest * at.value);
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
    is_tight(3.3, 2, 1e8, 0.5, 1e-12);
    is_tight(2, 1e3, 2000, 0.5, 1e-10);
    is_tight(1.4, 1e5, 16, 0.35, 1e-9);
    is_tight(2, 1e9, 10, 0.35, 1e-10);
    // No series without a gap, or where the cut leaves none.
    const hs::Allocation law{2, 1000, false};
    const hs::LargeRatios large(law, hs::CutStep::at(law, 6, 9));
    CHECK(!(large.at(0).quadrature + large.at(0).value < 1e300));
    CHECK(!(large.at(1).quadrature < 1e300));
    return check::summary();
}
