#include "training/coins.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "numerics/require.hpp"

namespace hockeystick {
namespace {

// A number in [0, 1) with 384 bits behind the binary point; limb 0 is the most significant.
constexpr std::size_t limbs = 12, fraction_bits = 32 * limbs;  // proof: see tails()
using Fixed = std::array<std::uint32_t, limbs>;

bool is_zero(const Fixed& x) {
    return std::all_of(x.begin(), x.end(), [](std::uint32_t limb) { return limb == 0; });
}

// x + y and x - y modulo 1; the carry says whether a 1 was lost.
bool add(Fixed& x, const Fixed& y) {
    std::uint64_t carry = 0;
    for (std::size_t i = limbs; i-- > 0;) {
        carry += std::uint64_t{x[i]} + y[i];
        x[i] = static_cast<std::uint32_t>(carry);
        carry >>= 32;
    }
    return carry != 0;
}

void subtract(Fixed& x, const Fixed& y) {
    for (std::uint32_t& limb : x) limb = ~limb;
    add(x, y);
    for (std::uint32_t& limb : x) limb = ~limb;
}

// x y, rounded down.
Fixed multiply(const Fixed& x, const Fixed& y) {
    std::array<std::uint32_t, 2 * limbs> product{};
    for (std::size_t i = limbs; i-- > 0;) {
        if (x[i] == 0) continue;
        std::uint64_t carry = 0;
        for (std::size_t j = limbs; j-- > 0;) {
            carry += std::uint64_t{x[i]} * y[j] + product[i + j + 1];
            product[i + j + 1] = static_cast<std::uint32_t>(carry);
            carry >>= 32;
        }
        product[i] = static_cast<std::uint32_t>(carry);
    }
    Fixed high{};
    std::copy_n(product.begin(), limbs, high.begin());
    return high;
}

// The bits of m 2^exponent that are worth 2^-1 to 2^-384; m 2^exponent < 1.
Fixed fixed(std::uint64_t m, int exponent) {
    Fixed x{};
    for (int bit = 0; bit < 64; ++bit) {
        const int place = -(exponent + bit);  // worth 2^-place
        if ((m >> bit & 1) == 0 || place > static_cast<int>(fraction_bits)) continue;
        const auto index = static_cast<std::size_t>(place - 1);
        x[index / 32] |= std::uint32_t{1} << (31 - index % 32);
    }
    return x;
}

struct Dyadic {
    std::uint64_t mantissa;
    int exponent;
};

Dyadic exactly(double p) {
    int exponent = 0;
    const double mantissa = std::frexp(p, &exponent);
    return {static_cast<std::uint64_t>(std::ldexp(mantissa, 53)), exponent - 53};
}

void check(double p) { require(p >= 0.0 && p <= 1.0, "probability must be a number in [0, 1]"); }

// The law of the sum of two independent counts, each value rounded down.
std::vector<Fixed> doubled(const std::vector<Fixed>& law) {
    std::vector<Fixed> sum(2 * law.size() - 1);
    for (std::size_t i = 0; i < law.size(); ++i) {
        for (std::size_t j = 0; j < law.size(); ++j) add(sum[i + j], multiply(law[i], law[j]));
    }
    while (sum.size() > 1 && is_zero(sum.back())) sum.pop_back();
    return sum;
}

// Pr[at least 1, 2, ... heads] among 2^bits coins. Every product is rounded down by less than 2^-384; a value
// of a law that `doubled` makes gathers at most 2^8 of these, and at most twice the errors before. So after
// 62 doublings no value is off by 2^-313, no sum of these by 2^-305.
std::vector<Coins::Threshold> tails(const Fixed& p, unsigned bits) {
    Fixed q{};
    subtract(q, p);  // 1 - p, modulo 1
    std::vector<Fixed> law{q, p};
    for (unsigned k = 0; k < bits; ++k) law = doubled(law);
    std::vector<Coins::Threshold> thresholds(law.size() - 1);
    Fixed tail{};
    for (std::size_t j = law.size() - 1; j > 0; --j) {
        add(tail, law[j]);
        for (std::size_t w = 0; w < 4; ++w) {
            thresholds[j - 1][w] = std::uint64_t{tail[2 * w]} << 32 | tail[2 * w + 1];
        }
    }
    return thresholds;
}

// The largest block with at most four heads on average: then four values of its law share one number of
// 64 bits, and more than 2^7 heads have probability below 2^-384.
unsigned bits_for(double p, std::uint64_t most) {
    const auto enough = static_cast<unsigned>(std::bit_width(most > 0 ? most - 1 : 0));
    const unsigned limit = std::min(enough, 62U);
    unsigned bits = 0;
    while (bits < limit && std::ldexp(p, static_cast<int>(bits) + 1) <= 4.0) ++bits;
    return bits;
}

}  // namespace

Coins::Coins(double probability, std::uint64_t most) {
    check(probability);
    if (probability == 1.0) {
        certain_ = true;
    } else if (probability > 0.0) {
        const auto [mantissa, exponent] = exactly(probability);
        block_bits_ = bits_for(probability, most);
        thresholds_ = tails(fixed(mantissa, exponent), block_bits_);
    }
}

Coins Coins::stationary(double probability, std::uint64_t weight, std::uint64_t most) {
    check(probability);
    require(weight <= std::uint64_t{1} << 53, "weight must be at most 2^53");
    Coins coins;
    if (probability == 0.0 || weight == 0) return coins;
    // x = w p and 1 + x, both times 2^-shift so that they are below 1; then their quotient by long division.
    const auto [mantissa, exponent] = exactly(probability);
    const int shift = static_cast<int>(std::bit_width(weight)) + 1;
    Fixed x{};
    for (int bit = 0; bit < 53; ++bit) {
        if ((mantissa >> bit & 1) != 0) add(x, fixed(weight, exponent + bit - shift));
    }
    Fixed denominator = fixed(1, -shift);
    add(denominator, x);
    Fixed quotient{}, rest = x;
    for (std::size_t bit = 0; bit < fraction_bits; ++bit) {
        const bool carry = add(rest, rest);
        if (carry || rest >= denominator) {
            subtract(rest, denominator);
            quotient[bit / 32] |= std::uint32_t{1} << (31 - bit % 32);
        }
    }
    const double wp = static_cast<double>(weight) * probability;
    coins.block_bits_ = bits_for(wp / (1.0 + wp), most);
    coins.thresholds_ = tails(quotient, coins.block_bits_);
    return coins;
}

void Coins::places_in_block(KeyedStream& stream, std::vector<std::uint64_t>& places) const {
    places.clear();
    Threshold number{};
    number[0] = stream.bits();
    std::size_t known = 1;
    // U < threshold? More bits of U are drawn only where those so far are equal.
    const auto below = [&](const Threshold& threshold) {
        for (std::size_t w = 0; w < threshold.size(); ++w) {
            if (w == known) number[known++] = stream.bits();
            if (number[w] != threshold[w]) return number[w] < threshold[w];
        }
        return false;
    };
    std::size_t heads = 0;
    while (heads < thresholds_.size() && below(thresholds_[heads])) ++heads;
    while (places.size() < heads) {
        const std::uint64_t place = stream.bits(block_bits_);
        // They are few: into order from behind.
        std::size_t at = places.size();
        while (at > 0 && places[at - 1] > place) --at;
        if (at == 0 || places[at - 1] != place) {
            places.insert(places.begin() + static_cast<std::ptrdiff_t>(at), place);
        }
    }
}

std::vector<std::uint64_t> random_subset(KeyedStream& stream, std::uint64_t n, std::uint64_t size) {
    require(size <= n, "size must be at most n");
    std::vector<std::uint64_t> chosen;
    if (size > n / 2) {
        const std::vector<std::uint64_t> others = random_subset(stream, n, n - size);
        chosen.reserve(size);
        auto next = others.begin();
        for (std::uint64_t i = 0; i < n; ++i) {
            if (next != others.end() && *next == i) {
                ++next;
            } else {
                chosen.push_back(i);
            }
        }
        return chosen;
    }
    // Numbers until `size` of them are different: no set is more likely than another. Each round draws as
    // many as are missing, so there are never too many.
    while (chosen.size() < size) {
        const auto sorted = static_cast<std::ptrdiff_t>(chosen.size());
        for (std::uint64_t missing = size - chosen.size(); missing > 0; --missing) {
            chosen.push_back(stream.below(n));
        }
        std::sort(chosen.begin() + sorted, chosen.end());
        std::inplace_merge(chosen.begin(), chosen.begin() + sorted, chosen.end());
        chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    }
    return chosen;
}

}  // namespace hockeystick
