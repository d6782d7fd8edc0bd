// The lock of what may be interrupted while it works.
#pragma once

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "hockeystick/ieee.hpp"

namespace hockeystick {

// A mutex that is held across an interruption_point(), whose hook may run code of the host's (a signal's
// handler, in Python) that asks for what this very thread is working on: std::mutex would wait for itself,
// this one throws std::logic_error.
class Mutex {
public:
    void lock() {
        const auto self = std::this_thread::get_id();
        // Only this thread itself can have written its own name.
        if (owner_.load(std::memory_order_relaxed) == self)
            throw std::logic_error(
                "a signal handler asked for an object that its own thread is working on: let the handler "
                "leave a note, and look at it between two calls");
        mutex_.lock();
        owner_.store(self, std::memory_order_relaxed);
    }
    void unlock() noexcept {
        owner_.store({}, std::memory_order_relaxed);
        mutex_.unlock();
    }

private:
    std::mutex mutex_;
    std::atomic<std::thread::id> owner_{};
};

}  // namespace hockeystick
