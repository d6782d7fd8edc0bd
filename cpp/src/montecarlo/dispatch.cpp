#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "hockeystick/arithmetic.hpp"
#include "montecarlo/kernels.hpp"

namespace hockeystick::kernels {

extern const Table table_baseline;
#ifdef HOCKEYSTICK_HAS_AVX2
extern const Table table_avx2;
#endif
#ifdef HOCKEYSTICK_HAS_AVX512
extern const Table table_avx512;
#endif

namespace {

const Table& widest() {
    if (const char* asked = std::getenv("HOCKEYSTICK_LANES")) {
        if (const Table* found = find(asked)) return *found;
        // A typing error must not pass for a measurement or a comparison.
        if (*asked != '\0') {
            throw std::invalid_argument("HOCKEYSTICK_LANES=" + std::string(asked) +
                                        ": must be one that this machine has of baseline, avx2 and avx512");
        }
    }
    for (const char* name : {"avx512", "avx2"}) {
        if (const Table* found = find(name)) return *found;
    }
    return table_baseline;
}

}  // namespace

const Table* find(const char* name) {
    if (std::strcmp(name, "baseline") == 0) return &table_baseline;
#ifdef HOCKEYSTICK_HAS_AVX2
    if (std::strcmp(name, "avx2") == 0 && __builtin_cpu_supports("avx2")) return &table_avx2;
#endif
#ifdef HOCKEYSTICK_HAS_AVX512
    if (std::strcmp(name, "avx512") == 0 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512dq")) {
        return &table_avx512;
    }
#endif
    return nullptr;
}

const Table& table() {
    static const Table& chosen = widest();
    return chosen;
}

}  // namespace hockeystick::kernels

const char* hockeystick::instruction_set() { return kernels::table().name; }
