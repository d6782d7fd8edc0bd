// A minimal test harness: CHECK counts and reports, summary() ends main().
#pragma once

#include <cstdio>

namespace check {

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
