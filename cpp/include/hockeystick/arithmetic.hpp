// What a thread's arithmetic has to be for every bound here: rounded to nearest, with subnormal numbers.
#pragma once

#include <cstdint>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// A thread's mode of arithmetic, as the processor stores it: rounding, what happens to subnormal numbers,
// which exceptions trap.
using ArithmeticMode = std::uint64_t;
ArithmeticMode arithmetic_mode() noexcept;
void set_arithmetic_mode(ArithmeticMode mode) noexcept;
// To nearest, with subnormal numbers, without traps. Flags of past exceptions do not count.
bool is_standard(ArithmeticMode mode) noexcept;
ArithmeticMode standard_arithmetic() noexcept;

// Standard arithmetic in this thread while it lives, and what was there before afterwards. A library that was
// linked with -ffast-math sets flush-to-zero for the thread that loads it, and its host never hears of it:
// whatever answers questions and whatever runs on a thread of its own holds one of these. Who makes pairs,
// strategies or profiles in C++, in a thread that may have been changed so, holds one as well; Python's do.
class StandardArithmetic {
public:
    StandardArithmetic() noexcept : before_(arithmetic_mode()), changed_(!is_standard(before_)) {
        if (changed_) set_arithmetic_mode(standard_arithmetic());
    }
    ~StandardArithmetic() {
        if (changed_) set_arithmetic_mode(before_);
    }
    StandardArithmetic(const StandardArithmetic&) = delete;
    StandardArithmetic& operator=(const StandardArithmetic&) = delete;

private:
    ArithmeticMode before_;
    bool changed_;
};

// The instruction set of the inner loops: "baseline", "avx2" or "avx512". The widest that the processor has,
// or the one that the environment variable HOCKEYSTICK_LANES names; results are the same bits in all of them.
// Throws std::invalid_argument for names that are none of these and for those that the processor lacks.
const char* instruction_set();

}  // namespace hockeystick
