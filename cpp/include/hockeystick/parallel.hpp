// Loops over independent blocks, on several threads where OpenMP is available.
//
// Results must not depend on the number of threads: give every block a slot of its own to write to,
// and add up the slots in block order afterwards.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// Calls body(0), ..., body(blocks - 1), each once, in any order. If calls throw, the exception of
// the lowest block is rethrown. Inside another parallel_for it is an ordinary loop. Between blocks, and while
// it waits for other threads, the calling thread passes an interruption_point().
void parallel_for(std::size_t blocks, const std::function<void(std::size_t)>& body);

// The same for blocks of some microseconds each: other threads come to help the calling thread only if it has
// not ended soon. Where all cores are busy, it takes milliseconds until they have come and gone.
void parallel_for_light(std::size_t blocks, const std::function<void(std::size_t)>& body);

// The same for ranges: body(begin, end) for one after the other of at most `size` >= 1 of `count` numbers.
template <class Body>
void parallel_ranges(std::size_t count, std::size_t size, const Body& body) {
    parallel_for(count / size + (count % size > 0), [&](std::size_t block) {
        body(block * size, block * size + std::min(size, count - block * size));
    });
}

// To be passed every few milliseconds of work, on any thread: ends it by an exception if the hook throws one.
// Results do not depend on it. What is passed inside parallel_for ends all of its threads.
void interruption_point();

// What interruption_point() calls on threads that are not the core's own, at most every 50 ms (null:
// nothing).
void set_interruption_hook(void (*hook)()) noexcept;

// While one of these lives, work that this thread starts is not interrupted: it changes, piece by piece, what
// must change as a whole.
class Uninterrupted {
public:
    Uninterrupted() noexcept;
    ~Uninterrupted();
    Uninterrupted(const Uninterrupted&) = delete;
    Uninterrupted& operator=(const Uninterrupted&) = delete;
};

// Number of threads parallel_for uses at most; 1 without OpenMP and in forked child processes.
int max_threads() noexcept;

// Limits the number of threads; 0 restores the default. Throws std::invalid_argument
// outside [0, 1024].
void set_threads(int threads);

// Whether the library was built with OpenMP.
bool has_openmp() noexcept;

}  // namespace hockeystick
