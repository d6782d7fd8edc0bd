// A minimal test harness: CHECK counts and reports, summary() ends main().
#pragma once

#include <cstdio>

namespace check {

// Whether a sanitizer watches, under which all is several times slower. It looks for reads and writes out of
// place, not at numbers: of cases that take the same way some are enough.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HOCKEYSTICK_SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define HOCKEYSTICK_SANITIZED
#endif
#ifdef HOCKEYSTICK_SANITIZED
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

inline int passed = 0;
inline int failed = 0;

inline bool report(bool holds, const char* condition, const char* file, int line) {
    if (holds) {
        ++passed;
    } else {
        ++failed;
        std::printf("%s:%d: failed: %s\n", file, line, condition);
    }
    return holds;
}

inline int summary() {
    std::printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}

}  // namespace check

// True where the condition holds; nan compares false, so write conditions that must be true.
#define CHECK(...) ::check::report(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)

#define CHECK_THROWS(exception, ...)                                                     \
    do {                                                                                 \
        bool caught = false;                                                             \
        try {                                                                            \
            static_cast<void>(__VA_ARGS__);                                              \
        } catch (const exception&) {                                                     \
            caught = true;                                                               \
        }                                                                                \
        ::check::report(caught, #__VA_ARGS__ " throws " #exception, __FILE__, __LINE__); \
    } while (false)
