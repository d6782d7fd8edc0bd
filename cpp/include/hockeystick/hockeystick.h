// The C interface: certified epsilon and delta of compositions of Gaussian mechanisms, for C99 and every
// language that can call C. It is the shared library hockeystick_c, which needs nothing else of hockeystick.
//
// Every function that can fail returns a status, and no exception leaves the library. Handles are opaque; who
// makes one frees it. A profile never changes: any number of threads may ask it. A composition is changed by
// one thread at a time. Numbers are bounds: lower <= truth <= upper, with every error of the computation
// included, as in Python; where a question fails, the bounds say nothing (0 and infinity, or 0 and 1).
#ifndef HOCKEYSTICK_H
#define HOCKEYSTICK_H

#include <stdint.h>

#if defined(_WIN32)
#if defined(HOCKEYSTICK_C_BUILD)
#define HOCKEYSTICK_API __declspec(dllexport)
#else
#define HOCKEYSTICK_API __declspec(dllimport)
#endif
#else
#define HOCKEYSTICK_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Of this header: it grows by one when something that was here changes or goes. A program compares it with
// what hockeystick_abi_version() says of the library that it found. New functions do not count.
#define HOCKEYSTICK_ABI_VERSION 1

// What functions return.
enum {
    HOCKEYSTICK_OK = 0,
    HOCKEYSTICK_INVALID_ARGUMENT = 1,  // null, not a number, or outside its range
    HOCKEYSTICK_OUT_OF_MEMORY = 2,
    HOCKEYSTICK_INTERNAL_ERROR = 3  // a bug: please report it
};

// How neighbouring data sets differ: one record is removed, or added, or the worse of the two.
enum { HOCKEYSTICK_ADD_OR_REMOVE = 0, HOCKEYSTICK_REMOVE = 1, HOCKEYSTICK_ADD = 2 };

// What is released: mechanisms, each with its number of steps. At first, nothing.
typedef struct hockeystick_composition hockeystick_composition;

// What a composition spends, as the function delta(epsilon).
typedef struct hockeystick_profile hockeystick_profile;

// The version of the library, such as "0.2.0".
HOCKEYSTICK_API const char* hockeystick_version(void);

// HOCKEYSTICK_ABI_VERSION of the header that the library was built with.
HOCKEYSTICK_API int hockeystick_abi_version(void);

// Why the last call that failed on this thread failed; "" before the first. Valid until the next failure.
HOCKEYSTICK_API const char* hockeystick_last_error(void);

// A new composition in *out (NULL if this fails). free takes NULL as well.
HOCKEYSTICK_API int hockeystick_composition_new(hockeystick_composition** out);
HOCKEYSTICK_API void hockeystick_composition_free(hockeystick_composition* composition);

// Adds `steps` steps, at most 2^53 in all, of Gaussian noise on a vector-valued sum. noise_multiplier: the
// noise's standard deviation over the L2 sensitivity of the sum when one record is added or removed; finite,
// at least 0 (no noise).
HOCKEYSTICK_API int hockeystick_add_gaussian(hockeystick_composition* composition, double noise_multiplier,
                                             uint64_t steps);

// The same on batches that contain each record independently with sampling_probability in [0, 1], as DP-SGD
// has them. Not what shuffling or batches of fixed size do.
HOCKEYSTICK_API int hockeystick_add_sampled_gaussian(hockeystick_composition* composition,
                                                     double noise_multiplier, double sampling_probability,
                                                     uint64_t steps);

// The profile of what the composition holds now, in *out (NULL if this fails). adjacency: see above.
// accuracy: the relative gap between upper and lower bound that is aimed at, in [1e-9, 1]; 1e-3 is Python's.
HOCKEYSTICK_API int hockeystick_account(const hockeystick_composition* composition, int adjacency,
                                        double accuracy, hockeystick_profile** out);
HOCKEYSTICK_API void hockeystick_profile_free(hockeystick_profile* profile);

// Bounds on the smallest epsilon >= 0 at this delta in [0, 1]; infinite where there is none. *upper is what
// to report. `lower` may be NULL.
HOCKEYSTICK_API int hockeystick_epsilon(const hockeystick_profile* profile, double delta, double* lower,
                                        double* upper);

// Bounds on delta at this epsilon, any number or infinity. *upper is what to report. `lower` may be NULL.
HOCKEYSTICK_API int hockeystick_delta(const hockeystick_profile* profile, double epsilon, double* lower,
                                      double* upper);

#ifdef __cplusplus
}
#endif

#endif
