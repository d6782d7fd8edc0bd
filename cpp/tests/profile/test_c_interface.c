// The C interface, compiled as C: handles, statuses, messages; its numbers are compared with Python's by
// tests/test_embedding.py.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hockeystick/hockeystick.h"

static int passed = 0, failures = 0;

#define CHECK(condition)                                                   \
    do {                                                                   \
        if (condition) {                                                   \
            ++passed;                                                      \
        } else {                                                           \
            ++failures;                                                    \
            printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
        }                                                                  \
    } while (0)

#define REFUSED(call, text)                            \
    do {                                               \
        CHECK((call) == HOCKEYSTICK_INVALID_ARGUMENT); \
        CHECK(strstr(hockeystick_last_error(), text)); \
    } while (0)

static double epsilon(const hockeystick_composition* composition, int adjacency, double delta) {
    hockeystick_profile* profile = NULL;
    double lower = -1, upper = -1;
    CHECK(hockeystick_account(composition, adjacency, 1e-3, &profile) == HOCKEYSTICK_OK);
    CHECK(hockeystick_epsilon(profile, delta, &lower, &upper) == HOCKEYSTICK_OK);
    CHECK(0 <= lower && lower <= upper);
    hockeystick_profile_free(profile);
    return upper;
}

static void test_numbers(void) {
    hockeystick_composition* run = NULL;
    hockeystick_profile* profile = NULL;
    double lower = -1, upper = -1, remove, add;
    CHECK(hockeystick_composition_new(&run) == HOCKEYSTICK_OK);
    // Nothing was released.
    CHECK(epsilon(run, HOCKEYSTICK_ADD_OR_REMOVE, 0.0) == 0);
    CHECK(hockeystick_account(run, HOCKEYSTICK_ADD, 1e-3, &profile) == HOCKEYSTICK_OK);
    CHECK(hockeystick_delta(profile, -log(2.0), &lower, &upper) == HOCKEYSTICK_OK);
    CHECK(lower <= 0.5 && 0.5 <= upper && upper - lower < 1e-14);
    hockeystick_profile_free(profile);
    // One Gaussian step of noise multiplier 1: delta(0) = 2 Phi(1/2) - 1.
    CHECK(hockeystick_add_gaussian(run, 1.0, 1) == HOCKEYSTICK_OK);
    CHECK(hockeystick_account(run, HOCKEYSTICK_ADD_OR_REMOVE, 1e-3, &profile) == HOCKEYSTICK_OK);
    CHECK(hockeystick_delta(profile, 0.0, NULL, &upper) == HOCKEYSTICK_OK);
    CHECK(fabs(upper - 0.38292492254802624) < 1e-13);
    // A profile is of what the composition held.
    CHECK(hockeystick_add_sampled_gaussian(run, 1.0, 0.01, 1000) == HOCKEYSTICK_OK);
    CHECK(hockeystick_add_sampled_gaussian(run, 1.0, 0.0, 1000) == HOCKEYSTICK_OK);
    CHECK(hockeystick_delta(profile, 0.0, &lower, &upper) == HOCKEYSTICK_OK);
    CHECK(fabs(upper - 0.38292492254802624) < 1e-13);
    hockeystick_profile_free(profile);
    remove = epsilon(run, HOCKEYSTICK_REMOVE, 1e-5);
    add = epsilon(run, HOCKEYSTICK_ADD, 1e-5);
    CHECK(epsilon(run, HOCKEYSTICK_ADD_OR_REMOVE, 1e-5) == (remove > add ? remove : add));
    CHECK(remove != add);
    // Without noise nothing is private; with next to none, nothing that a double can say.
    CHECK(hockeystick_add_gaussian(run, 1e-200, 1) == HOCKEYSTICK_OK);
    CHECK(isinf(epsilon(run, HOCKEYSTICK_REMOVE, 1e-5)));
    CHECK(hockeystick_add_gaussian(run, 0.0, 1) == HOCKEYSTICK_OK);
    CHECK(isinf(epsilon(run, HOCKEYSTICK_ADD, 0.5)));
    hockeystick_composition_free(run);
    CHECK(hockeystick_composition_new(&run) == HOCKEYSTICK_OK);
    CHECK(hockeystick_add_sampled_gaussian(run, -0.0, 0.5, 1) == HOCKEYSTICK_OK);
    CHECK(isinf(epsilon(run, HOCKEYSTICK_REMOVE, 1e-5)));
    hockeystick_composition_free(run);
}

static void test_refusals(void) {
    hockeystick_composition* run = NULL;
    hockeystick_profile* profile = NULL;
    double lower = -1, upper = -1;
    CHECK(strcmp(hockeystick_last_error(), "") == 0);
    CHECK(hockeystick_composition_new(&run) == HOCKEYSTICK_OK);
    REFUSED(hockeystick_composition_new(NULL), "out");
    REFUSED(hockeystick_add_gaussian(NULL, 1.0, 1), "composition");
    REFUSED(hockeystick_add_gaussian(run, -1.0, 1), "noise_multiplier");
    REFUSED(hockeystick_add_gaussian(run, (double)NAN, 1), "noise_multiplier");
    REFUSED(hockeystick_add_gaussian(run, (double)INFINITY, 1), "noise_multiplier");
    REFUSED(hockeystick_add_sampled_gaussian(run, 1.0, 1.5, 1), "sampling_probability");
    REFUSED(hockeystick_add_sampled_gaussian(run, 1.0, (double)NAN, 1), "sampling_probability");
    REFUSED(hockeystick_add_gaussian(run, 1.0, UINT64_MAX), "steps");
    CHECK(hockeystick_add_gaussian(run, 1.0, UINT64_C(1) << 53) == HOCKEYSTICK_OK);
    REFUSED(hockeystick_add_gaussian(run, 1.0, 1), "steps");
    REFUSED(hockeystick_account(run, 3, 1e-3, &profile), "adjacency");
    REFUSED(hockeystick_account(run, HOCKEYSTICK_ADD, 0.0, &profile), "accuracy");
    REFUSED(hockeystick_account(run, HOCKEYSTICK_ADD, 1e-3, NULL), "out");
    REFUSED(hockeystick_account(NULL, HOCKEYSTICK_ADD, 1e-3, &profile), "composition");
    CHECK(profile == NULL);
    REFUSED(hockeystick_epsilon(NULL, 1e-5, &lower, &upper), "profile");
    CHECK(lower == 0 && isinf(upper));
    CHECK(hockeystick_account(run, HOCKEYSTICK_ADD, 1e-3, &profile) == HOCKEYSTICK_OK);
    REFUSED(hockeystick_epsilon(profile, -0.1, &lower, &upper), "delta");
    REFUSED(hockeystick_epsilon(profile, (double)NAN, &lower, &upper), "delta");
    REFUSED(hockeystick_epsilon(profile, 1e-5, &lower, NULL), "upper");
    REFUSED(hockeystick_delta(profile, (double)NAN, &lower, &upper), "epsilon");
    CHECK(lower == 0 && upper == 1);
    hockeystick_profile_free(profile);
    hockeystick_profile_free(NULL);
    hockeystick_composition_free(run);
    hockeystick_composition_free(NULL);
}

int main(void) {
    test_refusals();
    test_numbers();
    CHECK(hockeystick_abi_version() == HOCKEYSTICK_ABI_VERSION);
    CHECK(strchr(hockeystick_version(), '.') != NULL);
    printf("%d passed, %d failed\n", passed, failures);
    return failures == 0 ? 0 : 1;
}
