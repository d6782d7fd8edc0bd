#include "numerics/fft.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "hockeystick/parallel.hpp"
#include "numerics/special.hpp"

// A namespace of our own: a program may link another build of ducc0 as well.
#define DUCC0_NAMESPACE hockeystick_ducc0
#define DUCC0_NO_LOWLEVEL_THREADING
#include <ducc0/fft/fft1d_impl.h>

namespace hockeystick_ducc0::detail_threading {
namespace {

class OneThread final : public Scheduler {
public:
    explicit OneThread(std::size_t work) : work_(work) {}
    std::size_t num_threads() const override { return 1; }
    std::size_t thread_num() const override { return 0; }
    Range getNext() override { return {0, std::exchange(work_, 0)}; }

private:
    std::size_t work_;
};

}  // namespace

// The one function that the header needs and does not define. The library's own version starts
// threads; a transform here runs on the thread that asks for it.
void execStatic(std::size_t work, std::size_t, std::size_t, std::function<void(Scheduler&)> body) {
    OneThread scheduler(work);
    body(scheduler);
}

}  // namespace hockeystick_ducc0::detail_threading

namespace hockeystick {

struct RealFft::Plan {
    using Kernel = hockeystick_ducc0::detail_fft::pocketfft_r<double>;
    using Scratch = hockeystick_ducc0::aligned_array<double>;

    explicit Plan(std::size_t n) : kernel(n) {}
    Kernel kernel;
};

namespace {

using PlanPtr = std::shared_ptr<const RealFft::Plan>;

// The most recently used plans, newest first. Few, so that memory stays bounded.
PlanPtr shared_plan(std::size_t n) {
    static std::mutex mutex;
    static std::array<PlanPtr, 8> recent;
    const std::lock_guard lock(mutex);
    auto slot = std::find_if(recent.begin(), recent.end(),
                             [n](const PlanPtr& plan) { return plan && plan->kernel.length() == n; });
    if (slot == recent.end()) {
        slot = std::prev(recent.end());
        *slot = std::make_shared<const RealFft::Plan>(n);
    }
    std::rotate(recent.begin(), slot, std::next(slot));
    return recent.front();
}

}  // namespace

std::size_t good_size(std::size_t n) {
    // Far beyond any memory, and small enough that no product below overflows.
    if (n > std::size_t{1} << 48) {
        throw std::length_error("transform length " + std::to_string(n) + " exceeds 2^48");
    }
    const std::size_t half = std::max<std::size_t>(1, (n + 1) / 2);
    std::size_t best = std::bit_ceil(half);
    for (std::size_t fives = 1; fives < best; fives *= 5) {
        for (std::size_t odd = fives; odd < best; odd *= 3) {
            best = std::min(best, odd * std::bit_ceil((half + odd - 1) / odd));
        }
    }
    return 2 * best;
}

RealFft::RealFft(std::size_t n) : n_(n) {
    if (n != good_size(n)) {
        throw std::invalid_argument("transform length must be an even 2^a 3^b 5^c, got " + std::to_string(n));
    }
    plan_ = shared_plan(n);
}

void RealFft::forward(const double* x, std::complex<double>* spectrum) const {
    interruption_point();
    // The kernel returns r_0, r_1, i_1, ..., r_{n/2}: from slot 1 on this is the layout of the
    // complex output, so the input goes there.
    auto* const out = reinterpret_cast<double*>(spectrum);
    std::copy_n(x, n_, out + 1);
    Plan::Scratch scratch(plan_->kernel.bufsize());
    plan_->kernel.exec_copyback(out + 1, scratch.data(), 1.0, true);
    out[0] = out[1];
    out[1] = 0.0;
    out[n_ + 1] = 0.0;
}

void RealFft::inverse(const std::complex<double>* spectrum, double* x) const {
    interruption_point();
    const auto* const in = reinterpret_cast<const double*>(spectrum);
    x[0] = in[0];
    std::copy_n(in + 2, n_ - 1, x + 1);
    Plan::Scratch scratch(plan_->kernel.bufsize());
    plan_->kernel.exec_copyback(x, scratch.data(), 1.0, false);
}

// Write u for the unit round-off. Higham, Accuracy and Stability of Numerical Algorithms (2nd ed.),
// section 24.1, bounds the error of a fast transform by the sum over its passes of (error of the
// twiddle factors) + (error of one butterfly), relative to the input. Here, to first order:
//   - a twiddle factor is the product of two table entries. Each is off by <= 3u (angle <= pi/4
//     with two roundings: 1.6u; cos and sin good to one unit in the last place: 1.4u), their product
//     adds sqrt(5) u, and so does the multiplication by it: 10.6u in all;
//   - a butterfly of radix 2, 3, 4, 5, 8 costs at most 1u, 5u, 2u, 8.5u, 6u in the 1-norm (roundings
//     along each path from an input to an output, weighted with the path's coefficient), and at most
//     sqrt(radix) times that in the 2-norm.
// A pass of radix r counts as log2 r levels: at most 13u per level, except a radix-2 pass (12u for
// its one level; at most one pass in each of the two halves of a long transform has radix 2).
// Lengths above 10000 are packed into a complex transform of half the length; unpacking adds one
// such pass, and doubles the 1-norm bound (10u per level), as real and imaginary parts mix. Hence
// 20u per level and two levels to spare, which also cover the terms of second order.
double fft_error_bound(std::size_t n) {
    const auto levels = static_cast<double>(std::bit_width(std::max<std::size_t>(n, 2) - 1));
    return 20.0 * unit_roundoff * (levels + 2.0);  // levels = ceil(log2 n)
}

}  // namespace hockeystick
