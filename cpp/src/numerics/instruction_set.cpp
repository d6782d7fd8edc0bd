#include "numerics/instruction_set.hpp"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace hockeystick {
namespace {

constexpr const char* widest_first[] = {"avx512", "avx2", "baseline"};

const char* chosen() {
    const char* const asked = std::getenv("HOCKEYSTICK_LANES");
    const bool free = asked == nullptr || *asked == '\0';
    for (const char* name : widest_first) {
        if ((free || std::strcmp(name, asked) == 0) && has_instruction_set(name)) return name;
    }
    // A typing error must not pass for a measurement or a comparison.
    throw std::invalid_argument("HOCKEYSTICK_LANES=" + std::string(asked) +
                                ": must be one that this machine has of baseline, avx2 and avx512");
}

}  // namespace

bool has_instruction_set([[maybe_unused]] const char* name) {
#ifdef HOCKEYSTICK_HAS_AVX2
    if (std::strcmp(name, "avx2") == 0) return __builtin_cpu_supports("avx2");
#endif
#ifdef HOCKEYSTICK_HAS_AVX512
    if (std::strcmp(name, "avx512") == 0) {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
    }
#endif
    return std::strcmp(name, "baseline") == 0;
}

const char* instruction_set() {
    static const char* const name = chosen();
    return name;
}

}  // namespace hockeystick
