// Tables of inner loops, compiled once per instruction set: which of them this machine runs.
#pragma once

#include <cstring>
#include <initializer_list>

#include "hockeystick/arithmetic.hpp"

// Pointers to the versions of a table that were built.
#if defined(HOCKEYSTICK_HAS_AVX512)
#define HOCKEYSTICK_BUILT(table) &table##_baseline, &table##_avx2, &table##_avx512
#elif defined(HOCKEYSTICK_HAS_AVX2)
#define HOCKEYSTICK_BUILT(table) &table##_baseline, &table##_avx2
#else
#define HOCKEYSTICK_BUILT(table) &table##_baseline
#endif

namespace hockeystick {

// Whether this build has the instruction set of this name and this machine runs it.
bool has_instruction_set(const char* name);

// The version of that name; nullptr if there is none.
template <class Table>
const Table* find_version(const char* name, std::initializer_list<const Table*> built) {
    for (const Table* table : built) {
        if (std::strcmp(table->name, name) == 0 && has_instruction_set(name)) return table;
    }
    return nullptr;
}

}  // namespace hockeystick
