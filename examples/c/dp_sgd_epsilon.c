// Epsilon of a DP-SGD run in C: noise multiplier 1, sampling probability 0.01, 1000 steps, delta 1e-5.
#include <hockeystick/hockeystick.h>
#include <stdio.h>

int main(void) {
    hockeystick_composition* run = NULL;
    hockeystick_profile* profile = NULL;
    double lower, upper;
    int failed = hockeystick_composition_new(&run) ||
                 hockeystick_add_sampled_gaussian(run, 1.0, 0.01, 1000) ||
                 hockeystick_account(run, HOCKEYSTICK_ADD_OR_REMOVE, 1e-3, &profile) ||
                 hockeystick_epsilon(profile, 1e-5, &lower, &upper);
    if (failed) {
        fprintf(stderr, "hockeystick %s: %s\n", hockeystick_version(), hockeystick_last_error());
    } else {
        printf("%.6f <= epsilon <= %.6f\n", lower, upper);
    }
    hockeystick_profile_free(profile);
    hockeystick_composition_free(run);
    return failed ? 1 : 0;
}
