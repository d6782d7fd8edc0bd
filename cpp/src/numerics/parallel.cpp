#include "hockeystick/parallel.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>

#include "hockeystick/arithmetic.hpp"

#ifdef _OPENMP
#include <omp.h>
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define HOCKEYSTICK_HAS_FORK
#endif
#endif

namespace hockeystick {
namespace {

// Speed: more would not help, and libgomp ends the process when the system refuses it a thread.
constexpr int max_thread_request = 1024;

std::atomic<int> requested_threads{0};

// Speed: what takes no longer than this is done before others would be of help.
constexpr auto alone = std::chrono::microseconds(300);

using Clock = std::chrono::steady_clock;
// Often enough for a person, seldom enough to cost nothing.
constexpr auto between_polls = std::chrono::milliseconds(50);

std::atomic<void (*)()> interruption_hook{nullptr};

// The threads of one parallel_for, which end together.
struct Team {
    std::atomic<bool> stopped{false};
    std::exception_ptr interruption;  // the calling thread's
};

// What ends the blocks of a team's other threads.
struct Stopped {};

// What this thread is doing.
struct Place {
    Team* team = nullptr;
    bool is_own = false;  // a thread of the core's own: the hook may want to run Python
    int shields = 0;
    Clock::time_point due{};
};
thread_local Place place;

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

// A thread's membership in a team, while it works for it.
class Membership {
public:
    Membership(Team& team, bool is_own) : before_(place) {
        place.team = &team;
        place.is_own = is_own;
        if (is_own) place.shields = 0;
    }
    ~Membership() {
        place.team = before_.team;
        place.is_own = before_.is_own;
        place.shields = before_.shields;
    }
    Membership(const Membership&) = delete;
    Membership& operator=(const Membership&) = delete;

private:
    Place before_;
};

// Counts those who are done, so that the calling thread can wait and be interrupted at the same time.
class Finishers {
public:
    void add() {
        const std::lock_guard lock(mutex_);
        ++count_;
        one_more_.notify_one();
    }
    bool await(int wanted) {
        std::unique_lock lock(mutex_);
        return one_more_.wait_for(lock, between_polls, [&] { return count_ == wanted; });
    }

private:
    std::mutex mutex_;
    std::condition_variable one_more_;
    int count_ = 0;
};

void run_on_threads(std::size_t blocks, const std::function<void(std::size_t)>& body, int threads) {
    FirstFailure failure;
    Team team;
    Finishers finishers;
    std::atomic<std::size_t> next{0};
#pragma omp parallel num_threads(threads)
    {
        // The threads are not ours alone, nor need they have begun in the caller's mode.
        const StandardArithmetic standard;
        const bool is_own = omp_get_thread_num() != 0;
        const Membership membership(team, is_own);
        for (std::size_t block = next++; block < blocks && !team.stopped; block = next++) {
            if (failure.precedes(block)) continue;
            try {
                interruption_point();
                body(block);
            } catch (...) {
                failure.record(block);
            }
        }
        if (is_own) {
            finishers.add();
        } else {
            const int others = omp_get_num_threads() - 1;
            while (!finishers.await(others)) {
                try {
                    interruption_point();
                } catch (...) {
                    // It is kept in the team, and the others end as well.
                }
            }
        }
    }
    if (team.interruption) std::rethrow_exception(team.interruption);
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
    const StandardArithmetic standard;
    for (std::size_t block = 0; block < blocks; ++block) {
        interruption_point();
        body(block);
    }
}

void parallel_for_light(std::size_t blocks, const std::function<void(std::size_t)>& body) {
    const StandardArithmetic standard;
    const auto until = Clock::now() + alone;
    std::size_t done = 0;
    while (done < blocks && (done == 0 || Clock::now() < until)) {
        interruption_point();
        body(done++);
    }
    if (done < blocks) parallel_for(blocks - done, [&](std::size_t block) { body(done + block); });
}

void interruption_point() {
    if (place.shields > 0) return;
    Team* const team = place.team;
    if (team != nullptr && team->stopped) throw Stopped{};
    if (place.is_own) return;
    void (*const hook)() = interruption_hook;
    if (hook == nullptr) return;
    const auto now = Clock::now();
    if (now < place.due) return;
    place.due = now + between_polls;
    try {
        hook();
    } catch (...) {
        if (team != nullptr) {
            team->interruption = std::current_exception();
            team->stopped = true;
        }
        throw;
    }
}

void set_interruption_hook(void (*hook)()) noexcept { interruption_hook = hook; }

Uninterrupted::Uninterrupted() noexcept { ++place.shields; }
Uninterrupted::~Uninterrupted() { --place.shields; }

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
