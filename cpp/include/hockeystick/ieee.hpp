// Refuses compilers that were told not to keep to IEEE arithmetic, on which every bound here rests, or to an
// older C++, in which the first error is about something else. Every header and every file of the core
// includes this one; it defines nothing.
#pragma once

#if __cplusplus < 201709L && !(defined(_MSVC_LANG) && _MSVC_LANG >= 202002L)
#error "hockeystick needs C++20: -std=c++20, or the C interface (hockeystick.h)"
#endif
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0) || \
    defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || defined(_M_FP_FAST)
#error "hockeystick needs IEEE arithmetic: its bounds are wrong with -ffast-math, -Ofast or a part of them"
#endif
#if defined(__FLT_EVAL_METHOD__) && (__FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 2)
#error "hockeystick needs IEEE arithmetic: double must not be computed in a wider type (-mfpmath=sse)"
#endif
