// The recursion over the states of several examples for 16 outputs (docs/sampling/attribution.md,
// "Independent examples").
//
// Included by kernels.cpp only; see numerics/lanes.hpp.
#pragma once

#include "montecarlo/chain_lanes.hpp"
#include "montecarlo/kernels.hpp"

namespace {

void advance_joint(const JointChain& chain, const double* products, double half_norm, std::size_t slot,
                   const Factor* coupling) {
    // e^{j u - j^2 |c|^2/2}: j examples take part, which no others meet.
    for (std::size_t j = 1; j <= chain.examples; ++j) {
        const auto multiplicity = static_cast<double>(j);
        for (std::size_t column = 0; column < group; column += width) {
            const std::size_t at = (j - 1) * group + column;
            store_scaled(chain.ratio, at,
                         exponential(splat(multiplicity) * load(products + column) -
                                     splat(multiplicity * multiplicity * half_norm)));
        }
    }
    const std::uint32_t* entry = chain.families + slot * chain.stride;
    for (std::size_t barred = 0; barred < chain.examples; ++barred) {
        const std::size_t rest = chain.examples - barred;
        const Factor* const chances = chain.coefficients + rest * (rest + 1) / 2;
        for (std::size_t family = 0; family < chain.sizes[barred]; ++family) {
            // Up to 16 mantissas below 2, to powers that add up to 16 with them: no product reaches 2^65.
            Factor met{1.0, 0.0};
            for (std::size_t i = 0; i < barred; ++i, ++entry) {
                met.mantissa *= coupling[*entry].mantissa;
                met.exponent += coupling[*entry].exponent;
            }
            for (std::size_t column = 0; column < group; column += width) {
                // Whoever was barred in the slot is available now.
                std::size_t at = entry[0] * group + column;
                Scaled total = load_scaled(chain.weights, at);
                for (std::size_t j = 1; j <= rest; ++j) {
                    at = entry[j] * group + column;
                    total = total + load_scaled(chain.weights, at);
                }
                total = normalised(total);
                at = entry[0] * group + column;
                store_scaled(chain.weights, at, constant(chances[0]) * total);
                Factor factor{1.0, 0.0};
                for (std::size_t j = 1; j <= rest; ++j) {
                    factor.mantissa *= met.mantissa;
                    factor.exponent += met.exponent;
                    const std::size_t ratio = (j - 1) * group + column;
                    at = entry[j] * group + column;
                    store_scaled(chain.weights, at,
                                 (constant(chances[j]) * constant(factor)) *
                                     (load_scaled(chain.ratio, ratio) * total));
                }
            }
            entry += rest + 1;
        }
    }
}

// The short form. Let A be the weight of the state in which nobody is barred, q = Pr[stay out], k the number
// of examples; q^(k b) >= 2^-60.
//
// What underflows does not matter. A state with a barred example has no better prospects than 2^60 times
// those of the state with nobody barred: there all could stay out until they would be set free, with
// probability >= q^(k b), and meet nobody's column on the way. So an absolute error of 2^-1074 units in any
// weight, where A >= 2^-60 units, is a relative error below 2^-900 of the result.
//
// Nothing overflows. Take a history that ends in a state with l barred examples; let those stay out where
// they took part, at most b iterations ago, and since. That is a history of A, whose weight lacks at most l
// factors of likelihood ratios, 2^range each, and has at most q^(l b) more. There are at most 2^k ways to
// choose who it was. With range <= 800/k no weight exceeds 2^(800 + 60 + k) A.
bool advance_joint_short(const JointChain& chain, const double* products, double half_norm, std::size_t slot,
                         const double* coupling, const std::uint32_t* lag) {
    const auto all = static_cast<double>(chain.examples);
    for (std::size_t i = 0; i < group; ++i) {
        const double exponent = all * (__builtin_fabs(products[i]) + all * half_norm);
        if (!(polynomial::log2_e * exponent <= chain.range)) return false;
    }
    for (std::size_t column = 0; column < group; column += width) {
        const V old = load(chain.scale + column);
        for (std::size_t s = 0; s < chain.slots; ++s) {
            const std::size_t at = s * group + column;
            store(chain.relative + at, power_of_two(load(chain.slot_scale + at) - old));
        }
        for (std::size_t j = 1; j <= chain.examples; ++j) {
            const double m = static_cast<double>(j) * polynomial::log2_e;
            store(chain.ratio.mantissa + (j - 1) * group + column,
                  exponential2(polynomial::power_of_two, load(products + column) * splat(m) -
                                                             splat(m * static_cast<double>(j) * half_norm)));
        }
        V unit = splat(1);
        const std::uint32_t* entry = chain.families + slot * chain.stride;
        for (std::size_t barred = 0; barred < chain.examples; ++barred) {
            const std::size_t rest = chain.examples - barred;
            const double* const chances = chain.plain_chances + rest * (rest + 1) / 2;
            for (std::size_t family = 0; family < chain.sizes[barred]; ++family) {
                double met = 1;
                std::size_t latest = slot;
                for (std::size_t i = 0; i < barred; ++i, ++entry) {
                    met *= coupling[*entry];
                    if (lag[*entry] < lag[latest]) latest = *entry;
                }
                V total = load(chain.weights.mantissa + entry[0] * group + column);
                for (std::size_t j = 1; j < rest; ++j) {
                    total += load(chain.weights.mantissa + entry[j] * group + column);
                }
                total += load(chain.relative + latest * group + column) *
                         load(chain.weights.mantissa + entry[rest] * group + column);
                if (barred == 0) {
                    const V shift = exponent_of(total);
                    unit = power_of_two(-shift);
                    store(chain.scale + column, old + shift);
                }
                total *= unit;
                store(chain.weights.mantissa + entry[0] * group + column, splat(chances[0]) * total);
                double factor = 1;
                for (std::size_t j = 1; j <= rest; ++j) {
                    factor *= met;
                    store(chain.weights.mantissa + entry[j] * group + column,
                          splat(chances[j] * factor) *
                              (load(chain.ratio.mantissa + (j - 1) * group + column) * total));
                }
                entry += rest + 1;
            }
        }
    }
    for (std::size_t s = 0; s < group; ++s) chain.slot_scale[slot * group + s] = chain.scale[s];
    return true;
}

void finish_joint(const JointChain& chain, std::size_t count, double* out) {
    for (std::size_t column = 0; column < group; column += width) {
        Scaled sum = zero();
        for (std::size_t row = 0; row < count; ++row) {
            const std::size_t at = row * group + column;
            sum = normalised(sum + load_scaled(chain.weights, at));
        }
        store(out + column, logarithm(sum));
    }
}

}  // namespace
