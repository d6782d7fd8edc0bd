// The C interface, around Profile: every call in standard arithmetic, every exception a status.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "hockeystick/arithmetic.hpp"
#include "hockeystick/hockeystick.h"
#include "hockeystick/pairs.hpp"
#include "hockeystick/profile.hpp"

namespace hs = hockeystick;

struct hockeystick_composition {
    std::map<std::pair<double, double>, std::uint64_t> steps;  // by noise multiplier and sampling probability
    std::uint64_t total = 0;
};

struct hockeystick_profile {
    std::optional<hs::Profile> profile;  // empty: nothing was released
};

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::uint64_t most_steps = std::uint64_t{1} << 53;
// speed: a shift this many times the noise is treated as no noise at all: only epsilon > 1e199 is lost.
constexpr double huge = 1e100;
// proof: more than the roundings of 1 - e^epsilon.
constexpr double rounding = 1e-15;

thread_local char last_error[256] = "";

int failed(int status, const char* message) noexcept {
    std::snprintf(last_error, sizeof last_error, "%s", message);
    return status;
}

// Runs `body`, which may throw, and says how it ended.
template <class Body>
int guarded(const Body& body) noexcept {
    try {
        const hs::StandardArithmetic standard;
        body();
        return HOCKEYSTICK_OK;
    } catch (const std::bad_alloc&) {
        return failed(HOCKEYSTICK_OUT_OF_MEMORY, "out of memory");
    } catch (const std::invalid_argument& error) {
        return failed(HOCKEYSTICK_INVALID_ARGUMENT, error.what());
    } catch (const std::exception& error) {
        return failed(HOCKEYSTICK_INTERNAL_ERROR, error.what());
    } catch (...) {
        return failed(HOCKEYSTICK_INTERNAL_ERROR, "unknown error");
    }
}

void require(bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
}

void add(hockeystick_composition* composition, double sigma, double q, std::uint64_t steps) {
    require(composition != nullptr, "composition must not be NULL");
    require(std::isfinite(sigma) && sigma >= 0, "noise_multiplier must be finite and at least 0");
    require(q >= 0 && q <= 1, "sampling_probability must be in [0, 1]");
    require(steps <= most_steps - composition->total, "steps must be at most 2^53 in all");
    if (steps == 0 || q == 0) return;
    composition->steps[{sigma, q}] += steps;
    composition->total += steps;
}

// N(1, sigma^2) against N(0, sigma^2). With next to no noise: the data themselves from above.
hs::PairPtr gaussian(double sigma) {
    const double mu = 1 / std::abs(sigma);  // of -0, too
    if (mu < huge) return hs::gaussian(mu);
    hs::PairPtr revealing = hs::discrete({0}, {0}, {0}, 1, 0, 1);
    return std::isinf(mu) ? revealing : hs::bracket(hs::gaussian(huge), std::move(revealing));
}

hs::Composition directed(const hockeystick_composition& composition, hs::Sampling mode) {
    hs::Composition out;
    for (const auto& [step, count] : composition.steps) {
        const auto [sigma, q] = step;
        out.emplace_back(q < 1 ? hs::sampled(gaussian(sigma), q, mode) : gaussian(sigma), count);
    }
    return out;
}

std::vector<hs::Composition> directions(const hockeystick_composition& composition, int adjacency) {
    const auto is_sampled = [](const auto& entry) { return entry.first.second < 1; };
    // Without sampling both directions are the same.
    const bool symmetric = std::ranges::none_of(composition.steps, is_sampled);
    std::vector<hs::Composition> out;
    if (adjacency != HOCKEYSTICK_ADD) out.push_back(directed(composition, hs::Sampling::remove));
    if (adjacency == HOCKEYSTICK_ADD || (adjacency == HOCKEYSTICK_ADD_OR_REMOVE && !symmetric))
        out.push_back(directed(composition, hs::Sampling::add));
    return out;
}

struct Bounds {
    double lower, upper;
};

// Writes what `ask` finds; `unknown` if it fails, so that no number is left that could be taken for a bound.
template <class Ask>
int answer(const hockeystick_profile* profile, double* lower, double* upper, const Bounds& unknown,
           const Ask& ask) noexcept {
    const auto write = [&](const Bounds& bounds) {
        if (lower != nullptr) *lower = bounds.lower;
        if (upper != nullptr) *upper = bounds.upper;
    };
    write(unknown);
    return guarded([&] {
        require(profile != nullptr, "profile must not be NULL");
        require(upper != nullptr, "upper must not be NULL");
        write(ask());
    });
}

Bounds of(const hs::Answer& found) { return {found.lower, found.upper}; }

}  // namespace

const char* hockeystick_version(void) { return HOCKEYSTICK_VERSION; }
int hockeystick_abi_version(void) { return HOCKEYSTICK_ABI_VERSION; }
const char* hockeystick_last_error(void) { return last_error; }

int hockeystick_composition_new(hockeystick_composition** out) {
    return guarded([&] {
        require(out != nullptr, "out must not be NULL");
        *out = nullptr;
        *out = new hockeystick_composition;
    });
}

void hockeystick_composition_free(hockeystick_composition* composition) { delete composition; }

int hockeystick_add_gaussian(hockeystick_composition* composition, double noise_multiplier, uint64_t steps) {
    return guarded([&] { add(composition, noise_multiplier, 1, steps); });
}

int hockeystick_add_sampled_gaussian(hockeystick_composition* composition, double noise_multiplier,
                                     double sampling_probability, uint64_t steps) {
    return guarded([&] { add(composition, noise_multiplier, sampling_probability, steps); });
}

int hockeystick_account(const hockeystick_composition* composition, int adjacency, double accuracy,
                        hockeystick_profile** out) {
    return guarded([&] {
        require(out != nullptr, "out must not be NULL");
        *out = nullptr;
        require(composition != nullptr, "composition must not be NULL");
        require(adjacency >= HOCKEYSTICK_ADD_OR_REMOVE && adjacency <= HOCKEYSTICK_ADD,
                "adjacency must be HOCKEYSTICK_ADD_OR_REMOVE, HOCKEYSTICK_REMOVE or HOCKEYSTICK_ADD");
        require(accuracy >= 1e-9 && accuracy <= 1, "accuracy must be in [1e-9, 1]");
        auto made = std::make_unique<hockeystick_profile>();
        if (!composition->steps.empty()) made->profile.emplace(directions(*composition, adjacency), accuracy);
        *out = made.release();
    });
}

void hockeystick_profile_free(hockeystick_profile* profile) { delete profile; }

int hockeystick_epsilon(const hockeystick_profile* profile, double delta, double* lower, double* upper) {
    return answer(profile, lower, upper, {0, infinity}, [&]() -> Bounds {
        require(delta >= 0 && delta <= 1, "delta must be in [0, 1]");
        return profile->profile ? of(profile->profile->epsilon_bounds(delta)) : Bounds{0, 0};
    });
}

int hockeystick_delta(const hockeystick_profile* profile, double epsilon, double* lower, double* upper) {
    return answer(profile, lower, upper, {0, 1}, [&]() -> Bounds {
        require(!std::isnan(epsilon), "epsilon must be a number");
        if (profile->profile) return of(profile->profile->delta_bounds(epsilon));
        const double total_variation =
            0.0 - std::expm1(std::min(0.0, epsilon));  // of equal outputs: 1 - e^epsilon
        return {total_variation * (1 - rounding), std::min(1.0, total_variation * (1 + rounding))};
    });
}
