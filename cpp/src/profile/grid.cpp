#include "hockeystick/grid.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <semaphore>
#include <thread>

#include "hockeystick/arithmetic.hpp"
#include "hockeystick/parallel.hpp"

namespace hockeystick {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto between_polls = std::chrono::milliseconds(50);

// Calls `poll` at intervals, and never on a thread of the core's own: it may want to run Python.
class Poller {
public:
    explicit Poller(const std::function<void(std::size_t)>& poll) : poll_(poll) {}

    void answered(std::size_t points) {
        const std::size_t done = done_ += points;
        if (!poll_ || std::this_thread::get_id() != caller_ || Clock::now() < due_) return;
        poll_(done);
        due_ = Clock::now() + between_polls;
    }

private:
    const std::function<void(std::size_t)>& poll_;
    const std::thread::id caller_ = std::this_thread::get_id();
    std::atomic<std::size_t> done_{0};
    Clock::time_point due_ = Clock::now() + between_polls;  // only the calling thread's
};

using Permits = std::counting_semaphore<>;

// Leave to use the memory of one profile, once it has been asked for.
class Permit {
public:
    Permit(Permits& permits, Poller& poller) : permits_(permits), poller_(poller) {}
    ~Permit() {
        if (held_) permits_.release();
    }
    Permit(const Permit&) = delete;
    Permit& operator=(const Permit&) = delete;

    void acquire() {
        while (!held_ && !(held_ = permits_.try_acquire_for(between_polls))) poller_.answered(0);
    }

private:
    Permits& permits_;
    Poller& poller_;
    bool held_ = false;
};

}  // namespace

std::vector<Answer> answer_all(const std::vector<Inquiry>& inquiries, Quantity wanted, double accuracy,
                               std::size_t memory_limit, Engine engine,
                               const std::function<void(std::size_t)>& poll) {
    const StandardArithmetic standard;
    std::vector<std::size_t> first{0};
    for (const Inquiry& inquiry : inquiries) first.push_back(first.back() + inquiry.points.size());
    std::vector<Answer> answers(first.back());
    Poller poller(poll);
    // Every profile may take its whole limit, as its answer must not depend on who works beside it.
    const std::size_t together = memory_limit / Profile::most_memory(memory_limit);
    Permits permits(static_cast<std::ptrdiff_t>(std::max<std::size_t>(1, together)));

    parallel_for(inquiries.size(), [&](std::size_t i) {
        Permit permit(permits, poller);  // outlives the profile, which keeps its lattices
        const Profile profile(inquiries[i].directions, accuracy, memory_limit, engine,
                              [&] { permit.acquire(); });
        for (std::size_t j = 0; j < inquiries[i].points.size(); ++j) {
            const double x = inquiries[i].points[j];
            answers[first[i] + j] =
                wanted == Quantity::epsilon ? profile.epsilon_bounds(x) : profile.delta_bounds(x);
            poller.answered(1);
        }
    });
    return answers;
}

}  // namespace hockeystick
