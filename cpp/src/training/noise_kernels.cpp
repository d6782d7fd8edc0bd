// Compiled once per instruction set (cmake/Lanes.cmake), with HOCKEYSTICK_LANES as the name of the version.
#include "training/noise_kernels.hpp"

#include "numerics/chacha_rounds.hpp"
#include "numerics/lanes.hpp"

namespace {

using namespace hockeystick::kernels;

typedef std::uint32_t W __attribute__((vector_size(8 * width)));
typedef float F __attribute__((vector_size(4 * width)));

// Speed: ChaCha20 blocks of a tile, and of one vector of 32-bit words.
constexpr std::size_t tile_blocks = 16, vector_blocks = 2 * width;

LANES_INLINE W splat_word(std::uint32_t x) {
    W v;
    for (std::size_t i = 0; i < vector_blocks; ++i) v[i] = x;
    return v;
}

LANES_INLINE void store_unaligned(double* p, V v) { __builtin_memcpy(p, &v, sizeof v); }

LANES_INLINE V load_unaligned(const double* p) {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

LANES_INLINE V load_unaligned(const float* p) {
    F v;
    __builtin_memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, V);
}

LANES_INLINE V to_double(U word) {  // word < 2^32
    return reinterpret_cast<V>(word | splat_bits(0x4330000000000000)) - splat(0x1p52);
}

// Two independent standard normals from 128 random bits in four words. These bits are pinned, because runs
// resume: normal_pair of lanes.hpp, which rounds differently, must not replace it. |z| <= 9.5; the law of
// each is that of exact arithmetic on uniforms of 62 to 64 bits, up to a few roundings.
LANES_INLINE void pinned_normal_pair(U w0, U w1, U w2, U w3, V& z0, V& z1) {
    const V u = (to_double(w1) + (to_double(w0) + splat(0.5)) * splat(0x1p-32)) * splat(0x1p-32);
    const V radius = square_root(splat(-2) * logarithm({without_exponent(u), exponent_of(u)}));
    const V turn =
        ((to_double(w3) + (to_double(w2 >> 2) + splat(0.5)) * splat(0x1p-30)) * splat(0x1p-32) - splat(0.5)) *
        splat(0.25);
    on_circle(radius, turn, w2, z0, z1);
}

// Normal 32 g + 16 c + q of a tile is number c of the pair that words 4 g .. 4 g + 3 of the tile's
// ChaCha20 block q give. A pair's words are in 64-bit lanes, so the even 32-bit lanes of a vector
// hold its first `width` blocks, the odd ones the others.
void normals(const std::uint32_t* key, std::uint32_t step, std::uint64_t first_tile, std::size_t tiles,
             double* out) {
    for (std::size_t tile = 0; tile < tiles; ++tile, out += noise_tile) {
        const std::uint64_t first_block = (first_tile + tile) * tile_blocks;
        for (std::size_t q = 0; q < tile_blocks; q += vector_blocks) {
            W start[16], x[16];
            for (std::size_t i = 0; i < 4; ++i) start[i] = splat_word(chacha_constants[i]);
            for (std::size_t i = 0; i < 8; ++i) start[4 + i] = splat_word(key[i]);
            W counter = splat_word(static_cast<std::uint32_t>(first_block + q));
            for (std::size_t i = 0; i < vector_blocks; ++i) {
                counter[i] += static_cast<std::uint32_t>(i / 2 + (i % 2) * width);
            }
            start[12] = counter;
            start[13] = splat_word(static_cast<std::uint32_t>(first_block >> 32));
            start[14] = splat_word(step);
            start[15] = splat_word(0);
            for (std::size_t i = 0; i < 16; ++i) x[i] = start[i];
            chacha_rounds(x);
            for (std::size_t g = 0; g < 4; ++g) {
                U words[4];
                for (std::size_t i = 0; i < 4; ++i)
                    words[i] = reinterpret_cast<U>(x[4 * g + i] + start[4 * g + i]);
                const U low = splat_bits(0xFFFFFFFF);
                double* const target = out + 32 * g + q;
                V z0, z1;
                pinned_normal_pair(words[0] & low, words[1] & low, words[2] & low, words[3] & low, z0, z1);
                store_unaligned(target, z0);
                store_unaligned(target + 16, z1);
                pinned_normal_pair(words[0] >> 32, words[1] >> 32, words[2] >> 32, words[3] >> 32, z0, z1);
                store_unaligned(target + width, z0);
                store_unaligned(target + 16 + width, z1);
            }
        }
    }
}

// One kept row after another, each from its beginning to its end, while `row` stays in the first-level cache:
// the kept rows then come from memory as one stream.
template <typename T>
void combine(const NoiseTaps& taps, const T* history, std::size_t count, double* row) {
    const V gain = splat(taps.gain), divisor = splat(taps.divisor);
    for (std::size_t x = 0; x < count; x += width) store_unaligned(row + x, load_unaligned(row + x) * gain);
    for (std::size_t k = 0; k < taps.count; ++k) {
        const V coefficient = splat(taps.coefficients[k]);
        const T* const past = history + taps.offsets[k];
        for (std::size_t x = 0; x < count; x += width) {
            store_unaligned(row + x, load_unaligned(row + x) - coefficient * load_unaligned(past + x));
        }
    }
    for (std::size_t x = 0; x < count; x += width)
        store_unaligned(row + x, load_unaligned(row + x) / divisor);
}

}  // namespace

namespace hockeystick::kernels {

extern const NoiseTable HOCKEYSTICK_VERSION(noise_table);
const NoiseTable HOCKEYSTICK_VERSION(noise_table) = {
    HOCKEYSTICK_VERSION_NAME,
    normals,
    combine<double>,
    combine<float>,
};

}  // namespace hockeystick::kernels
