// The states of several examples that follow independent b-min-sep chains, for the likelihood of their sum.
//
// Whether an example is available in iteration i, and where it took part last, follows from the iteration e
// it is available from again: i < e < i + b if it is barred, and it then took part in e - b. Only e mod b, a
// slot, has to be kept. A state is the multiset of the slots of those that are barred; as the examples are
// alike, it does not matter which is which. In iteration i slot i mod b is set free; whoever takes part in i
// is barred until i + b: the same slot. So with B a multiset without that slot s, an iteration mixes the
// states
//     B, B + s, B + 2 s, ...
// among themselves and with no others: a family (docs/sampling/attribution.md, "Independent examples").
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "hockeystick/schemes.hpp"
#include "montecarlo/kernels.hpp"
#include "montecarlo/mixture_forms.hpp"
#include "montecarlo/participation_chain.hpp"
#include "numerics/extended.hpp"

namespace hockeystick {

struct JointStates {
    // The largest number of examples, at most `examples`, whose table is affordable.
    static std::size_t affordable(const IndependentBMinSep& scheme, std::size_t steps) {
        const auto slots = static_cast<double>(slots_of(scheme.base, steps));
        const std::size_t limit = std::min(scheme.examples, most_examples);
        std::size_t k = 1;
        // With k examples: C(slots + k, k) states, and C(slots - 1 + k - 1, k - 1) families of a slot.
        while (k < limit && choose(slots + static_cast<double>(k + 1), k + 1) <= most_states &&
               choose(slots - 1 + static_cast<double>(k), k) <= most_families) {
            ++k;
        }
        return k;
    }

    JointStates(const IndependentBMinSep& scheme, std::size_t steps) {
        const ParticipationChain chain(scheme.base, steps);
        examples = scheme.examples;
        separation = chain.separation;
        slots = slots_of(scheme.base, steps);
        count = static_cast<std::size_t>(choose(static_cast<double>(slots + examples), examples) + 0.5);
        list_families();

        const Extended take(scheme.base.probability), leave(1 - scheme.base.probability);
        for (std::size_t m = 0; m <= examples; ++m) {
            for (std::size_t j = 0; j <= m; ++j) {
                const Extended chance =
                    power(take, j) * power(leave, m - j) * Extended(choose(static_cast<double>(m), j));
                coefficients.push_back(factor(chance));
                plain_coefficients.push_back(chance.value());
            }
        }
        const Extended stay = power(leave, examples * separation);
        if (!stay.is_zero() && stay.exponent >= -60) range = 800 / static_cast<double>(examples);
        weigh_start(chain.start, chain.outside);
    }

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
    // Only speed and memory rest on these three: per iteration and sample, 2^19 states take about a
    // millisecond and 2^14 families a tenth of that. With more examples the products of mantissas in the
    // kernel would overflow.
    static constexpr double most_states = 0x1p19, most_families = 0x1p14;
    static constexpr std::size_t most_examples = 16;

    // Ways to choose k of n, exact as long as it is below 2^53.
    static double choose(double n, std::size_t k) {
        double ways = 1;
        for (std::size_t j = 1; j <= k; ++j) {
            const auto done = static_cast<double>(j);
            ways = ways * (n - static_cast<double>(k) + done) / done;
        }
        return ways;
    }

    static std::size_t slots_of(const BMinSep& base, std::size_t steps) {
        return std::min(base.separation, steps) + (base.warm_start && base.separation > steps ? 1 : 0);
    }

    // All ascending sequences of `length` numbers below `below`, without `left_out`.
    static void multisets(std::size_t length, std::uint32_t below, std::uint32_t left_out,
                          const std::function<void(const std::vector<std::uint32_t>&)>& visit) {
        std::vector<std::uint32_t> chosen(length);
        const std::function<void(std::size_t, std::uint32_t)> extend = [&](std::size_t at,
                                                                           std::uint32_t from) {
            if (at == length) {
                visit(chosen);
                return;
            }
            for (std::uint32_t slot = from; slot < below; ++slot) {
                if (slot == left_out) continue;
                chosen[at] = slot;
                extend(at + 1, slot);
            }
        };
        extend(0, 0);
    }

    void list_families() {
        sizes.assign(examples, 0);
        const auto all = static_cast<std::uint32_t>(slots);
        for (std::size_t length = 0; length < examples; ++length) {
            multisets(length, all, 0, [&](const auto&) { ++sizes[length]; });
            stride += sizes[length] * (examples + 1);
        }
        families.reserve(stride * separation);
        std::vector<std::uint32_t> sorted;
        for (std::uint32_t slot = 0; slot < separation; ++slot) {
            for (std::size_t length = 0; length < examples; ++length) {
                multisets(length, all, slot, [&](const auto& members) {
                    families.insert(families.end(), members.begin(), members.end());
                    sorted = members;
                    for (std::size_t r = 0; r <= examples - length; ++r) {
                        families.push_back(static_cast<std::uint32_t>(index(sorted)));
                        sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), slot), slot);
                    }
                });
            }
        }
    }
    // Before iteration 0 nobody is barred by a participation that left a trace: an example is available in 0,
    // or first in one of the iterations 1, ..., separation - 1, its slot, or never.
    void weigh_start(const std::vector<Extended>& available, const Extended& never) {
        start.resize(count);
        const auto all = static_cast<std::uint32_t>(slots);
        for (std::size_t length = 0; length <= examples; ++length) {
            multisets(length, all, all, [&](const auto& members) {
                Extended weight = power(available[0], examples - length) *
                                  Extended(choose(static_cast<double>(examples), length));
                std::size_t run = 0;
                for (std::size_t i = 0; i < length; ++i) {
                    const std::size_t slot = members[i];
                    // Iteration 0 is now: its slot is free.
                    const Extended here = slot == separation ? never
                                          : slot == 0        ? Extended()
                                                             : available[slot];
                    run = i > 0 && members[i - 1] == slot ? run + 1 : 1;
                    // Which of the examples is where: length!/(product of the numbers alike)!.
                    weight = weight * here * Extended(static_cast<double>(i + 1) / static_cast<double>(run));
                }
                start[index(members)] = weight;
            });
        }
    }
    // By length, and then in the order of the combinatorial number system.
    std::size_t index(const std::vector<std::uint32_t>& sorted) const {
        const std::size_t length = sorted.size();
        const auto all = static_cast<double>(slots);
        double place = length == 0 ? 0 : choose(all + static_cast<double>(length) - 1, length - 1);
        for (std::size_t i = 0; i < length; ++i) {
            place += choose(static_cast<double>(sorted[i]) + static_cast<double>(i), i + 1);
        }
        return static_cast<std::size_t>(place + 0.5);
    }
};

}  // namespace hockeystick
