// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011): its constants, which every version of it takes from here.
#pragma once

#include <cstdint>

namespace hockeystick {

// What two of the counter's words are multiplied by in a round, and what the key grows by from one to the
// next.
inline constexpr std::uint64_t philox_factors[] = {0xD2511F53, 0xCD9E8D57};
inline constexpr std::uint32_t philox_steps[] = {0x9E3779B9, 0xBB67AE85};

}  // namespace hockeystick
