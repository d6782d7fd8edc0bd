// Many questions to many compositions in one call, on several threads.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "hockeystick/answer.hpp"
#include "hockeystick/profile.hpp"

namespace hockeystick {

enum class Quantity { epsilon, delta };

// One profile, and the points that it is asked at: deltas if epsilons are wanted, and the reverse.
struct Inquiry {
    std::vector<Composition> directions;
    std::vector<double> points;
};

// The answers of all inquiries one after another, each the same as from a Profile of its own, whatever the
// number of threads. memory_limit is that of each profile, and holds for all of them together as well:
// those that need a lattice wait for each other.
// `poll`, if any, is called now and then on the calling thread with the number of points answered so far;
// what it throws ends the work.
std::vector<Answer> answer_all(const std::vector<Inquiry>& inquiries, Quantity wanted, double accuracy = 1e-3,
                               std::size_t memory_limit = std::size_t{1} << 30,
                               Engine engine = Engine::automatic,
                               const std::function<void(std::size_t)>& poll = {});

}  // namespace hockeystick
