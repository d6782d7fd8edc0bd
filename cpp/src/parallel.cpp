#include "hockeystick/parallel.hpp"

#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>

#ifdef _OPENMP
#include <omp.h>
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define HOCKEYSTICK_HAS_FORK
#endif
#endif

namespace hockeystick {
namespace {

// More would not help, and libgomp ends the process when the system refuses it a thread.
constexpr int max_thread_request = 1024;

std::atomic<int> requested_threads{0};

#ifdef _OPENMP
// libgomp's worker threads do not survive a fork, but its bookkeeping does: a parallel region in a
// child waits forever for workers that do not exist. Training data loaders fork, so a child process
// stays on one thread, whatever it asks for.
std::atomic<bool> is_forked_child{false};

#ifdef HOCKEYSTICK_HAS_FORK
[[maybe_unused]] const int handler_installed =
    pthread_atfork(nullptr, nullptr, [] { is_forked_child = true; });
#endif

// The failure of the lowest block, so that the exception does not depend on scheduling either.
class FirstFailure {
public:
    // Blocks after a failed one need not run; those before it must, as they may fail as well.
    bool precedes(std::size_t block) const noexcept { return block_.load() < block; }

    void record(std::size_t block) noexcept {
        const std::lock_guard lock(mutex_);
        if (block < block_) {
            block_ = block;
            exception_ = std::current_exception();
        }
    }

    void rethrow() const {
        if (exception_) std::rethrow_exception(exception_);
    }

private:
    std::mutex mutex_;
    std::atomic<std::size_t> block_{std::numeric_limits<std::size_t>::max()};
    std::exception_ptr exception_;
};

void run_on_threads(std::size_t blocks, const std::function<void(std::size_t)>& body, int threads) {
    FirstFailure failure;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (std::size_t block = 0; block < blocks; ++block) {
        if (failure.precedes(block)) continue;
        try {
            body(block);
        } catch (...) {
            failure.record(block);
        }
    }
    failure.rethrow();
}
#endif

}  // namespace

void parallel_for(std::size_t blocks, const std::function<void(std::size_t)>& body) {
#ifdef _OPENMP
    const int threads = max_threads();
    if (threads > 1 && blocks > 1 && !omp_in_parallel()) {
        run_on_threads(blocks, body, threads);
        return;
    }
#endif
    for (std::size_t block = 0; block < blocks; ++block) body(block);
}

int max_threads() noexcept {
#ifdef _OPENMP
    if (is_forked_child) return 1;
    const int threads = requested_threads;
    return threads > 0 ? threads : omp_get_max_threads();
#else
    return 1;
#endif
}

void set_threads(int threads) {
    if (threads < 0 || threads > max_thread_request) {
        throw std::invalid_argument("threads must be in [0, " + std::to_string(max_thread_request) +
                                    "] (0: the default), got " + std::to_string(threads));
    }
    requested_threads = threads;
}

bool has_openmp() noexcept {
#ifdef _OPENMP
    return true;
#else
    return false;
#endif
}

}  // namespace hockeystick
