#include "hockeystick/parallel.hpp"

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"

#if defined(__unix__) || defined(__APPLE__)
#include <sys/wait.h>
#include <unistd.h>
#define HAS_FORK
#endif

namespace hs = hockeystick;

namespace {

constexpr std::size_t blocks = 1000;

using Loop = void (*)(std::size_t, const std::function<void(std::size_t)>&);
constexpr Loop loops[] = {hs::parallel_for, hs::parallel_for_light};

std::vector<double> work(Loop loop = hs::parallel_for) {
    std::vector<double> slots(blocks, 0.0);
    loop(blocks, [&](std::size_t i) { slots[i] += std::sin(static_cast<double>(i)); });
    return slots;
}

// Where what was thought to be light is not, others help.
void heavy_blocks_are_shared() {
    hs::set_threads(4);
    std::vector<std::thread::id> by(40);
    hs::parallel_for_light(by.size(), [&](std::size_t i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        by[i] = std::this_thread::get_id();
    });
    const std::set<std::thread::id> all(by.begin(), by.end());
    CHECK(by[0] == std::this_thread::get_id() && all.count(std::thread::id()) == 0);
    CHECK(hs::has_openmp() ? all.size() > 1 : all.size() == 1);
    hs::set_threads(0);
}

// All numbers are in one range or another, also where the number of ranges is computed from sums that wrap.
void ranges() {
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{7}, most - 1, most}) {
        const std::size_t size = count < 8 ? 3 : most / 4 + 1;
        std::atomic<std::size_t> all = 0, calls = 0;
        hs::parallel_ranges(count, size, [&](std::size_t begin, std::size_t end) {
            CHECK(begin < end && end - begin <= size);
            all += end - begin;
            ++calls;
        });
        CHECK(all == count && calls == count / size + (count % size > 0));
    }
}

void same_result_for_any_number_of_threads(Loop loop) {
    hs::set_threads(1);
    const auto expected = work(loop);
    for (std::size_t i = 0; i < blocks; ++i) {
        CHECK(expected[i] == std::sin(static_cast<double>(i)));  // each block ran exactly once
    }
    for (const int threads : {2, 3, 8, 0}) {
        hs::set_threads(threads);
        CHECK(work(loop) == expected);
    }
    loop(0, [](std::size_t) { CHECK(false); });
}

void number_of_threads() {
    hs::set_threads(3);
    CHECK(hs::max_threads() == (hs::has_openmp() ? 3 : 1));
    hs::set_threads(0);
    CHECK(hs::max_threads() >= 1);
    CHECK_THROWS(std::invalid_argument, hs::set_threads(-1));
    CHECK_THROWS(std::invalid_argument, hs::set_threads(1025));
}

void lowest_failure_is_reported(Loop loop) {
    for (const int threads : {1, 4}) {
        hs::set_threads(threads);
        for (int repeat = 0; repeat < 20; ++repeat) {
            std::string message;
            try {
                loop(blocks, [](std::size_t i) {
                    if (i % 100 == 37) throw std::runtime_error(std::to_string(i));
                });
            } catch (const std::runtime_error& error) {
                message = error.what();
            }
            CHECK(message == "37");
        }
    }
}

void nested_loops() {
    hs::set_threads(4);
    std::vector<std::size_t> slots(8 * 8, 0);
    hs::parallel_for(
        8, [&](std::size_t i) { hs::parallel_for(8, [&](std::size_t j) { slots[8 * i + j] = i * j; }); });
    bool all = true;
    for (std::size_t i = 0; i < 64; ++i) all = all && slots[i] == (i / 8) * (i % 8);
    CHECK(all);
}

// Data loaders fork after the parent has used threads; the child must neither hang nor differ.
void forked_child() {
#ifdef HAS_FORK
    hs::set_threads(4);
    const auto expected = work();
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);  // a hang ends as a signal, which the parent sees
        hs::set_threads(4);
        _exit(hs::max_threads() == 1 && work() == expected ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(work() == expected);
#endif
}

struct Enough {};
std::atomic<int> asked{0};
std::thread::id asking;

void stop_at_third() {
    CHECK(std::this_thread::get_id() == asking);  // never on a thread of the core's own
    if (++asked == 3) throw Enough{};
}

// All threads end, also those in the middle of a block, and the caller while it waits for them.
void interruption_ends_all_threads() {
    asking = std::this_thread::get_id();
    for (const int threads : {1, 4}) {
        hs::set_threads(threads);
        for (const bool long_blocks : {false, true}) {
            asked = 0;
            hs::set_interruption_hook(&stop_at_third);
            bool ended = false;
            try {
                hs::parallel_for(long_blocks ? 4 : std::size_t{1} << 40, [&](std::size_t block) {
                    if (!long_blocks) return;
                    if (threads > 1 && block == 0) return;
                    for (;;) hs::interruption_point();
                });
            } catch (const Enough&) {
                ended = true;
            }
            hs::set_interruption_hook(nullptr);
            CHECK(ended && asked == 3);
        }
        {
            asked = 0;
            const hs::Uninterrupted whole;
            hs::set_interruption_hook(&stop_at_third);
            hs::parallel_for(blocks, [](std::size_t) { hs::interruption_point(); });
            hs::set_interruption_hook(nullptr);
            CHECK(asked == 0);
        }
        CHECK(work().size() == blocks);
    }
    hs::set_threads(0);
}

}  // namespace

int main() {
    ranges();
    for (const Loop loop : loops) {
        same_result_for_any_number_of_threads(loop);
        lowest_failure_is_reported(loop);
    }
    heavy_blocks_are_shared();
    number_of_threads();
    interruption_ends_all_threads();
    nested_loops();
    forked_child();
    return check::summary();
}
