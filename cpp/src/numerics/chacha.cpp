// ChaCha20 block by block, and streams of its words (docs/matrix/noise.md, "Every entry has an address").
#include "hockeystick/chacha.hpp"

#include <algorithm>

#include "numerics/chacha_rounds.hpp"

namespace hockeystick {

using Block = std::array<std::uint32_t, 16>;

Block chacha20(const ChaChaKey& key, std::uint32_t counter,
               const std::array<std::uint32_t, 3>& nonce) noexcept {
    Block start;
    std::copy_n(chacha_constants, 4, start.begin());
    std::copy(key.begin(), key.end(), start.begin() + 4);
    start[12] = counter;
    std::copy(nonce.begin(), nonce.end(), start.begin() + 13);
    Block x = start;
    chacha_rounds(x.data());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += start[i];
    return x;
}

void KeyedStream::refill() noexcept {
    used_ = 0;
    if (block_ == 0) {  // many streams end here
        const Block first = chacha20(key_, 0, {0, step_, purpose_});
        std::copy(first.begin(), first.end(), words_.begin());
        filled_ = first.size();
        block_ = 1;
        return;
    }
    // Speed: eight blocks side by side.
    constexpr std::size_t lanes = 8;
    typedef std::uint32_t Lanes __attribute__((vector_size(4 * lanes)));
    Lanes start[16] = {}, x[16];
    for (std::size_t w = 0; w < 4; ++w) start[w] += chacha_constants[w];
    for (std::size_t w = 0; w < 8; ++w) start[4 + w] += key_[w];
    for (std::size_t i = 0; i < lanes; ++i) {
        start[12][i] = static_cast<std::uint32_t>(block_ + i);
        start[13][i] = static_cast<std::uint32_t>((block_ + i) >> 32);
    }
    start[14] += step_;
    start[15] += purpose_;
    std::copy_n(start, 16, x);
    chacha_rounds(x);
    for (std::size_t w = 0; w < 16; ++w) {
        for (std::size_t i = 0; i < lanes; ++i) words_[16 * i + w] = x[w][i] + start[w][i];
    }
    filled_ = words_.size();
    block_ += lanes;
}

}  // namespace hockeystick
