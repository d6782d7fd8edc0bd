// The recursion over one chain of participations for 16 outputs (docs/montecarlo/estimates.md, "The kernel").
//
// Included by kernels.cpp only; see numerics/lanes.hpp.
#pragma once

#include "montecarlo/kernels.hpp"
#include "numerics/lanes.hpp"

namespace {

using namespace hockeystick::kernels;

LANES_INLINE Scaled constant(const Factor& factor) {
    return {splat(factor.mantissa), splat(factor.exponent)};
}

// As a double, where it is one.
LANES_INLINE double plain(const Factor& factor) {
    return __builtin_ldexp(factor.mantissa, static_cast<int>(factor.exponent));
}

LANES_INLINE double larger(double a, double b) { return a > b ? a : b; }

LANES_INLINE Scaled load_scaled(const ExtendedView& rows, std::size_t at) {
    return {load(rows.mantissa + at), load(rows.exponent + at)};
}

LANES_INLINE void store_scaled(const ExtendedView& rows, std::size_t at, const Scaled& value) {
    store(rows.mantissa + at, value.mantissa);
    store(rows.exponent + at, value.exponent);
}

// sum_j weight_j e^{m_j u - m_j^2 |c|^2/2}
LANES_INLINE Scaled likelihood(const Option* options, std::size_t count, V product, double half_norm) {
    Scaled sum = zero();
    for (std::size_t j = 0; j < count; ++j) {
        const double m = options[j].multiplicity;
        const Scaled term =
            constant(options[j].weight) * exponential(splat(m) * product - splat(m * m * half_norm));
        sum = j == 0 ? term : sum + term;
    }
    return sum;
}

// What a participation multiplies the weight by, in the long form (hit) and the short one (factor).
template <std::size_t fixed_count>  // 0: any number of options
struct Plain {
    explicit Plain(const Chain& chain) : options(chain.options), count(chain.option_count) {
        for (std::size_t j = 0; j < fixed_count; ++j) {
            const double m = options[j].multiplicity;
            weight = plain(options[j].weight);
            for (std::size_t k = 0; k < terms; ++k) coefficients[k] = weight * polynomial::power_of_two[k];
            linear = m * polynomial::log2_e;
            quadratic = m * m * polynomial::log2_e;
        }
        for (std::size_t j = 0; j < count; ++j) {
            largest = larger(largest, __builtin_fabs(options[j].multiplicity));
        }
    }

    LANES_INLINE Scaled hit(std::size_t, V product, double half_norm) const {
        return likelihood(options, fixed_count == 0 ? count : fixed_count, product, half_norm);
    }

    LANES_INLINE V factor(std::size_t, V product, double half_norm) const {
        if constexpr (fixed_count == 1) {
            return exponential2(coefficients, product * splat(linear) - splat(half_norm * quadratic));
        } else {
            V sum = splat(0);
            for (std::size_t j = 0; j < count; ++j) {
                const double m = options[j].multiplicity;
                sum += splat(plain(options[j].weight)) *
                       exponential2(polynomial::power_of_two,
                                    product * splat(m * polynomial::log2_e) -
                                        splat(half_norm) * splat(m * m * polynomial::log2_e));
            }
            return sum;
        }
    }

    // Of one option, without its weight.
    LANES_INLINE V ratio(std::size_t, V product, double half_norm) const {
        return exponential2(polynomial::power_of_two, product * splat(linear) - splat(half_norm * quadratic));
    }

    static constexpr std::size_t terms = sizeof polynomial::power_of_two / sizeof(double);
    const Option* options;
    std::size_t count;
    double coefficients[terms] = {}, linear = 0, quadratic = 0;
    double weight = 0;
    double largest = 0;  // multiplicity
};

struct Truncated {
    Truncated(const Chain& chain, const Truncation& rounds)
        : extended_weight(chain.options[0].weight),
          weight(plain(extended_weight)),
          truncation(rounds),
          largest(larger(__builtin_fabs(rounds.whole), __builtin_fabs(rounds.truncated))) {}

    LANES_INLINE Scaled hit(std::size_t at, V product, double half_norm) const {
        const V kept = load(truncation.survival + at);
        const I cut = kept < splat(1);
        const V m = select(cut, splat(truncation.truncated), splat(truncation.whole));
        Scaled survives = exponential(m * product - m * m * splat(half_norm));
        survives.mantissa *= kept;
        const Scaled dropped = {splat(1) - kept, select(cut, splat(0), splat(nothing))};
        return constant(extended_weight) * (survives + dropped);
    }

    LANES_INLINE V factor(std::size_t at, V product, double half_norm) const {
        return splat(weight) * ratio(at, product, half_norm);
    }

    LANES_INLINE V ratio(std::size_t at, V product, double half_norm) const {
        const V kept = load(truncation.survival + at);
        const V m = select(kept < splat(1), splat(truncation.truncated), splat(truncation.whole));
        const V scaled = m * splat(polynomial::log2_e);
        return kept *
                   exponential2(polynomial::power_of_two, scaled * product - scaled * m * splat(half_norm)) +
               (splat(1) - kept);
    }

    Factor extended_weight;
    double weight;
    Truncation truncation;
    double largest;
};

// Two vectors at a time: while one waits for its last result the other computes.
constexpr std::size_t abreast = 2;  // speed

// `count` iterations in the long form, of which the first reads row 0 of products and half_norms and number
// `first` of the truncation.
template <typename Hits>
LANES_INLINE void advance_long(Chain& chain, const Hits& hits, const double* products,
                               const double* half_norms, std::size_t first, std::size_t count) {
    const Scaled stay = constant(chain.stay);
    std::size_t slot = chain.slot;
    for (std::size_t column = 0; column < group; column += abreast * width) {
        Scaled available[abreast];
        for (std::size_t v = 0; v < abreast; ++v) {
            const std::size_t at = column + v * width;
            available[v] = load_scaled(chain.free, at);
        }
        slot = chain.slot;
        for (std::size_t row = first; row < first + count; ++row) {
            for (std::size_t v = 0; v < abreast; ++v) {
                const std::size_t at = column + v * width;
                const std::size_t place = slot * group + at;
                const Scaled arriving = load_scaled(chain.ring, place);
                available[v] = normalised(stay * available[v] + arriving);
                const V product = load(products + row * group + at);
                store_scaled(chain.ring, place,
                             hits.hit(row * group + at, product, half_norms[row]) * available[v]);
            }
            if (++slot == chain.separation) slot = 0;
        }
        for (std::size_t v = 0; v < abreast; ++v) {
            const std::size_t at = column + v * width;
            store_scaled(chain.free, at, available[v]);
        }
    }
    chain.slot = slot;
}

// The short form. Within a lap, `separation` iterations from slot 0 on, all weights are doubles relative to
// one power of two per sample, chosen so that the weight of "available" is in [1, 2) in the first of them.
//
// Nothing overflows or underflows: a_{i+1} >= stay a_i, so that the a of a lap are at least 2^-60. What takes
// part gets a factor between 2^-400 and 2^330 (short_range, and the options' weights): h_i >= 2^-460, and h_i
// <= 2^330 a_i
// <= 2^390 times the last a of the lap, to which the next lap is relative. There, for up to 2^31 arrivals,
// a_i <= 2^421, hence h_i <= 2^751, and relative to the lap after it h_i >= 2^-881.
constexpr double short_range = 300;  // proof

// Whether all factors of these iterations are within the range. nan is: it stays nan.
template <typename Hits>
LANES_INLINE bool within_range(const Hits& hits, const double* products, const double* half_norms,
                               std::size_t count) {
    double half_norm = 0;
    for (std::size_t row = 0; row < count; ++row) half_norm = larger(half_norm, half_norms[row]);
    V largest[group / width];
    for (auto& x : largest) x = splat(0);
    for (std::size_t row = 0; row < count; ++row) {
        for (std::size_t part = 0; part < group / width; ++part) {
            const U bits = reinterpret_cast<U>(load(products + row * group + part * width));
            largest[part] = max(reinterpret_cast<V>(bits & splat_bits(0x7FFFFFFFFFFFFFFF)), largest[part]);
        }
    }
    const double m = hits.largest;
    for (const V& x : largest) {
        for (std::size_t i = 0; i < width; ++i) {
            if (!(polynomial::log2_e * m * (x[i] + m * half_norm) <= short_range)) return false;
        }
    }
    return true;
}

// At slot 0, from the long form to the short one; false where a weight would not fit. Proof (above): 2^-460
// and 2^380 are within what the short form is shown to hold.
bool shorten(Chain& chain) {
    for (const bool convert : {false, true}) {
        for (std::size_t at = 0; at < group; at += width) {
            // Before the first iteration nothing is available, and its exponent says nothing.
            const Scaled free = load_scaled(chain.free, at);
            const V exponent = max(free.exponent, load(chain.ring.exponent + at));
            for (std::size_t slot = 0; slot < chain.separation; ++slot) {
                const std::size_t place = slot * group + at;
                const Scaled value = load_scaled(chain.ring, place);
                const V shift = value.exponent - exponent;
                if (convert) {
                    store(chain.ring.mantissa + place, value.mantissa * power_of_two(shift));
                    continue;
                }
                for (std::size_t i = 0; i < width; ++i) {
                    if (value.mantissa[i] != 0 && !(shift[i] > -460 && shift[i] < 380)) return false;
                }
            }
            if (!convert) continue;
            store(chain.free.mantissa + at, free.mantissa * power_of_two(free.exponent - exponent));
            store(chain.free.exponent + at, exponent);
            store(chain.past_exponent + at, exponent);
        }
    }
    chain.is_short = true;
    return true;
}

// A row of the ring, in either form.
LANES_INLINE Scaled load_ring(const Chain& chain, std::size_t slot, std::size_t at) {
    const double* const exponent = !chain.is_short     ? chain.ring.exponent + slot * group
                                   : slot < chain.slot ? chain.free.exponent
                                                       : chain.past_exponent;
    return {load(chain.ring.mantissa + slot * group + at), load(exponent + at)};
}

void lengthen(Chain& chain) {
    for (std::size_t at = 0; at < group; at += width) {
        for (std::size_t slot = 0; slot < chain.separation; ++slot) {
            store_scaled(chain.ring, slot * group + at, normalised(load_ring(chain, slot, at)));
        }
        store_scaled(chain.free, at, normalised(load_scaled(chain.free, at)));
    }
    chain.is_short = false;
}

// `count` iterations of one lap.
template <typename Hits>
LANES_INLINE void advance_short(Chain& chain, const Hits& hits, const double* products,
                                const double* half_norms, std::size_t first, std::size_t count) {
    const double stay = plain(chain.stay);
    for (std::size_t column = 0; column < group; column += abreast * width) {
        V available[abreast], scale[abreast];
        for (std::size_t v = 0; v < abreast; ++v) {
            const std::size_t at = column + v * width;
            available[v] = load(chain.free.mantissa + at);
            V exponent = load(chain.free.exponent + at);
            const V past = load(chain.past_exponent + at);
            if (chain.slot == 0) {
                // A new lap: free and ring have the same exponent up to here.
                const V next = splat(stay) * available[v] + load(chain.ring.mantissa + at);
                const V shift = exponent_of(next);
                exponent += shift;
                available[v] *= power_of_two(-shift);
                store(chain.free.exponent + at, exponent);
            }
            scale[v] = power_of_two(past - exponent);
        }
        double* ring = chain.ring.mantissa + chain.slot * group + column;
        for (std::size_t row = first; row < first + count; ++row, ring += group) {
            for (std::size_t v = 0; v < abreast; ++v) {
                const std::size_t at = row * group + column + v * width;
                available[v] = splat(stay) * available[v] + scale[v] * load(ring + v * width);
                store(ring + v * width, hits.factor(at, load(products + at), half_norms[row]) * available[v]);
            }
        }
        for (std::size_t v = 0; v < abreast; ++v) {
            store(chain.free.mantissa + column + v * width, available[v]);
        }
    }
    chain.slot += count;
    if (chain.slot < chain.separation) return;
    chain.slot = 0;
    for (std::size_t at = 0; at < group; ++at) chain.past_exponent[at] = chain.free.exponent[at];
}

// Where products are likelihood ratios, computed once for several chains.
struct Weighted {
    LANES_INLINE V factor(std::size_t, V ratio, double) const { return splat(weight) * ratio; }
    double weight;
};

// `count` iterations of one lap of those chains that have the short form.
template <typename Hits>
LANES_INLINE void advance_shared(Chain* chains, std::size_t number, const Hits& hits, const double* products,
                                 const double* half_norms, std::size_t first, std::size_t count) {
    constexpr std::size_t chunk = 32;  // speed: 4 kB
    alignas(64) double ratios[chunk * group];
    for (std::size_t done = 0, rows = 0; done < count; done += rows) {
        rows = count - done < chunk ? count - done : chunk;
        const std::size_t start = (first + done) * group;
        for (std::size_t at = 0; at < rows * group; at += width) {
            const double half_norm = half_norms[first + done + at / group];
            store(ratios + at, hits.ratio(start + at, load(products + start + at), half_norm));
        }
        for (std::size_t k = 0; k < number; ++k) {
            const Weighted own{plain(chains[k].options[0].weight)};
            if (chains[k].is_short) advance_short(chains[k], own, ratios, half_norms, 0, rows);
        }
    }
}

// hits_of(chain): what a participation multiplies its weights by.
template <typename HitsOf>
LANES_INLINE void advance_with(Chain* chains, std::size_t number, const HitsOf& hits_of,
                               const double* products, const double* half_norms, std::size_t count) {
    Chain& chain = chains[0];
    const auto hits = hits_of(chain);
    const bool never_short = chain.past_exponent == nullptr || chain.option_count == 0;
    // Up to the end of the lap at a time.
    for (std::size_t done = 0, rows = 0; done < count; done += rows) {
        rows = never_short ? count : chain.separation - chain.slot;
        if (rows > count - done) rows = count - done;
        const bool small =
            !never_short && within_range(hits, products + done * group, half_norms + done, rows);
        bool is_short = false;
        for (std::size_t k = 0; k < number; ++k) {
            Chain& each = chains[k];
            if (small && (each.is_short || (each.slot == 0 && shorten(each)))) {
                is_short = true;
                continue;
            }
            if (each.is_short) lengthen(each);
            advance_long(each, hits_of(each), products, half_norms, done, rows);
        }
        if (!is_short) continue;
        if (number == 1) {
            advance_short(chain, hits, products, half_norms, done, rows);
        } else {
            advance_shared(chains, number, hits, products, half_norms, done, rows);
        }
    }
}

void advance(Chain* chains, std::size_t number, const double* products, const double* half_norms,
             std::size_t count) {
    if (chains[0].option_count == 1) {
        advance_with(
            chains, number, [](const Chain& chain) { return Plain<1>(chain); }, products, half_norms, count);
        return;
    }
    for (std::size_t k = 0; k < number; ++k) {
        advance_with(
            chains + k, 1, [](const Chain& chain) { return Plain<0>(chain); }, products, half_norms, count);
    }
}

void advance_truncated(Chain* chains, std::size_t number, const Truncation& truncation,
                       const double* products, const double* half_norms, std::size_t count) {
    advance_with(
        chains, number, [&](const Chain& chain) { return Truncated(chain, truncation); }, products,
        half_norms, count);
}

void finish(const Chain& chain, double* out) {
    for (std::size_t at = 0; at < group; at += width) {
        Scaled sum = constant(chain.outside) + constant(chain.stay) * load_scaled(chain.free, at);
        for (std::size_t slot = 0; slot < chain.separation; ++slot) {
            sum = normalised(sum + load_ring(chain, slot, at));
        }
        store(out + at, logarithm(normalised(sum)));
    }
}

// The weight of "barred" before iteration `offset` of the chunk: by a sample of this one, or of the one
// before.
LANES_INLINE Scaled blocked_at(const BlockedChain& chain, std::size_t column) {
    const Scaled suffix = load_scaled(chain.suffix, chain.offset * group + column);
    if (chain.offset == 0) return suffix;
    return load_scaled(chain.front, column) + constant(chain.powers[chain.offset]) * suffix;
}

void advance_blocked(BlockedChain& chain, const double* products, const double* half_norms,
                     std::size_t count) {
    const Scaled stay = constant(chain.stay), leave = constant(chain.leave);
    const Scaled release = constant(chain.powers[chain.window]);
    for (std::size_t row = 0; row < count; ++row) {
        for (std::size_t column = 0; column < group; column += width) {
            const std::size_t at = chain.offset * group + column;
            const Scaled available = load_scaled(chain.free, column);
            const V product = load(products + row * group + column);
            const Scaled sampled = normalised(
                likelihood(chain.options, chain.option_count, product, half_norms[row]) * available +
                leave * blocked_at(chain, column));
            // Available next: not sampled now, or the last sample just left the window.
            store_scaled(chain.free, column,
                         normalised(stay * available + release * load_scaled(chain.past, at)));
            store_scaled(chain.now, at, sampled);
            const Scaled front = chain.offset == 0 ? zero() : load_scaled(chain.front, column);
            store_scaled(chain.front, column, normalised(stay * front + sampled));
        }
        if (++chain.offset < chain.window) continue;
        // The chunk is complete: it becomes the past, with its suffix sums.
        chain.offset = 0;
        for (std::size_t column = 0; column < group; column += width) {
            Scaled sum = zero();
            for (std::size_t a = chain.window; a-- > 0;) {
                const std::size_t at = a * group + column;
                const Scaled value = load_scaled(chain.now, at);
                store_scaled(chain.past, at, value);
                sum = normalised(sum + constant(chain.powers[chain.window - 1 - a]) * value);
                store_scaled(chain.suffix, at, sum);
            }
        }
    }
}

void finish_blocked(const BlockedChain& chain, double* out) {
    for (std::size_t column = 0; column < group; column += width) {
        const Scaled available = load_scaled(chain.free, column);
        store(out + column, logarithm(normalised(available + blocked_at(chain, column))));
    }
}

void log_sum_exp(const double* rows, const double* half_norms, std::size_t count, double extra, double* out) {
    for (std::size_t column = 0; column < group; column += width) {
        Scaled sum = extra > 0 ? normalised({splat(extra), splat(0)}) : zero();
        for (std::size_t j = 0; j < count; ++j) {
            sum = normalised(sum + exponential(load(rows + j * group + column) - splat(half_norms[j])));
        }
        store(out + column, logarithm(sum));
    }
}

}  // namespace
