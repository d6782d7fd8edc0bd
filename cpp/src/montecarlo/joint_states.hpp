// The states of several examples that follow independent b-min-sep chains, for the likelihood of their sum.
//
// Whether an example is available in iteration i, and where it took part last, follows from the iteration e
// it is available from again: i < e < i + b if it is barred, and it then took part in e - b. Only e mod b, a
// slot, has to be kept. A state is the multiset of the slots of those that are barred; as the examples are
// alike, it does not matter which is which. In iteration i slot i mod b is set free; whoever takes part in i
// is barred until i + b: the same slot. So with B a multiset without that slot s, an iteration mixes the
// states
//     B, B + s, B + 2 s, ...
// among themselves and with no others: a family.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hockeystick/schemes.hpp"
#include "montecarlo/kernels.hpp"
#include "numerics/extended.hpp"

namespace hockeystick {

struct JointStates {
    // The largest number of examples, at most `examples`, whose table is affordable.
    static std::size_t affordable(const IndependentBMinSep& scheme, std::size_t steps);

    JointStates(const IndependentBMinSep& scheme, std::size_t steps);

    std::size_t examples, separation;  // separation <= steps
    // Slots 0, ..., separation - 1, and where a warm start may bar for longer than all steps, one that is
    // never set free.
    std::size_t slots;
    std::size_t count;  // of states
    // By slot: for l = 0, ..., examples - 1 as many families as sizes[l] says, each of the l slots of B and
    // of the examples - l + 1 states B, B + s, ....
    std::vector<std::uint32_t> families;
    std::vector<std::size_t> sizes;
    std::size_t stride = 0;  // of one slot
    // Pr[j of m available examples take part], at m (m + 1)/2 + j.
    std::vector<kernels::Factor> coefficients;
    std::vector<double> plain_coefficients;
    // The largest binary exponents of likelihood ratios for the short form of the kernel; 0: it is not
    // allowed.
    double range = 0;
    std::vector<Extended> start;  // the weights of the states before the first iteration

private:
    void list_families();
    void weigh_start(const std::vector<Extended>& available, const Extended& never);
    std::size_t index(const std::vector<std::uint32_t>& sorted) const;
};

}  // namespace hockeystick
