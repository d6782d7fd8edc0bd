// Loops over independent blocks, on several threads where OpenMP is available.
//
// Results must not depend on the number of threads: give every block a slot of its own to write to,
// and add up the slots in block order afterwards.
#pragma once

#include <cstddef>
#include <functional>

namespace hockeystick {

// Calls body(0), ..., body(blocks - 1), each once, in any order. If calls throw, the exception of
// the lowest block is rethrown. Inside another parallel_for it is an ordinary loop.
void parallel_for(std::size_t blocks, const std::function<void(std::size_t)>& body);

// Number of threads parallel_for uses at most; 1 without OpenMP and in forked child processes.
int max_threads() noexcept;

// Limits the number of threads; 0 restores the default. Throws std::invalid_argument
// outside [0, 1024].
void set_threads(int threads);

// Whether the library was built with OpenMP.
bool has_openmp() noexcept;

}  // namespace hockeystick
