// Epsilon of a DP-SGD run: noise multiplier 1, sampling probability 0.01, 1000 steps, delta 1e-5.
#include <cstdio>

#include "hockeystick/profile.hpp"

namespace hs = hockeystick;

int main() {
    const hs::PairPtr gradient = hs::gaussian(1.0 / 1.0);  // sensitivity / noise multiplier
    // Neighbours differ by one record, added or removed: the guarantee is the worse direction.
    const hs::Composition remove = {{hs::sampled(gradient, 0.01, hs::Sampling::remove), 1000}};
    const hs::Composition add = {{hs::sampled(gradient, 0.01, hs::Sampling::add), 1000}};

    const hs::Profile profile({remove, add});
    const hs::Answer answer = profile.epsilon_bounds(1e-5);
    std::printf("%.6f <= epsilon <= %.6f\n", answer.lower, answer.upper);
    return answer.lower <= answer.upper ? 0 : 1;
}
