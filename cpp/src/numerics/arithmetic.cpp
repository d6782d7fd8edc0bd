#include "hockeystick/arithmetic.hpp"

#if defined(__SSE2__) || defined(_M_X64)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

namespace hockeystick {

// Functions of a file of their own: a compiler does not know that they change what an operation means, but
// keeps what is done in memory and in other functions on its side of the call.
#if defined(__SSE2__) || defined(_M_X64)

// MXCSR: bits 0-5 are flags, 6 takes subnormal operands as 0, 7-12 mask exceptions, 13-14 round, 15 flushes
// subnormal results to 0.
ArithmeticMode arithmetic_mode() noexcept { return _mm_getcsr(); }
void set_arithmetic_mode(ArithmeticMode mode) noexcept { _mm_setcsr(static_cast<unsigned>(mode)); }
bool is_standard(ArithmeticMode mode) noexcept { return (mode & 0xFFC0) == 0x1F80; }
ArithmeticMode standard_arithmetic() noexcept { return 0x1F80; }

#elif defined(__aarch64__)

// FPCR: no bit is set in the default mode.
ArithmeticMode arithmetic_mode() noexcept {
    ArithmeticMode mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
void set_arithmetic_mode(ArithmeticMode mode) noexcept { asm volatile("msr fpcr, %0" : : "r"(mode)); }
bool is_standard(ArithmeticMode mode) noexcept { return mode == 0; }
ArithmeticMode standard_arithmetic() noexcept { return 0; }

#else

// All that the language knows of.
ArithmeticMode arithmetic_mode() noexcept { return static_cast<ArithmeticMode>(std::fegetround()); }
void set_arithmetic_mode(ArithmeticMode mode) noexcept { std::fesetround(static_cast<int>(mode)); }
bool is_standard(ArithmeticMode mode) noexcept { return mode == standard_arithmetic(); }
ArithmeticMode standard_arithmetic() noexcept { return FE_TONEAREST; }

#endif

}  // namespace hockeystick
