// A grid answers like one profile per composition, on any number of threads and in any memory.
#include "hockeystick/grid.hpp"

#include <stdexcept>
#include <thread>

#include "check.hpp"
#include "hockeystick/parallel.hpp"

namespace hs = hockeystick;

namespace {

std::vector<hs::Inquiry> inquiries() {
    std::vector<hs::Inquiry> out;
    for (double sigma : {0.7, 1.5})
        for (double q : {1e-3, 0.02})
            for (std::uint64_t count : {3, 2000}) {
                const hs::PairPtr base = hs::gaussian(1 / sigma);
                out.push_back({{{{hs::sampled(base, q, hs::Sampling::remove), count}},
                                {{hs::sampled(base, q, hs::Sampling::add), count}}},
                               {1e-3, 1e-6}});
            }
    return out;
}

void same_as_profiles(hs::Quantity wanted, std::size_t memory_limit, hs::Engine engine) {
    const auto all = inquiries();
    for (int threads : {1, 3}) {
        hs::set_threads(threads);
        const auto found = hs::answer_all(all, wanted, 1e-3, memory_limit, engine);
        CHECK(found.size() == 2 * all.size());
        std::size_t next = 0;
        for (const auto& inquiry : all)
            for (double x : inquiry.points) {
                const hs::Profile alone(inquiry.directions, 1e-3, memory_limit, engine);
                const hs::Answer expected =
                    wanted == hs::Quantity::epsilon ? alone.epsilon_bounds(x) : alone.delta_bounds(x);
                const hs::Answer& answer = found[next++];
                CHECK(answer.lower == expected.lower && answer.upper == expected.upper);
                CHECK(answer.engine == expected.engine && answer.size == expected.size);
            }
    }
    hs::set_threads(0);
}

void polling() {
    std::vector<hs::Inquiry> many;
    for (int i = 0; i < 20; ++i)
        for (auto& inquiry : inquiries()) many.push_back(std::move(inquiry));
    const auto caller = std::this_thread::get_id();
    std::size_t calls = 0;
    bool here = true;
    const auto stop = [&](std::size_t) {
        here = here && std::this_thread::get_id() == caller;
        if (++calls == 2) throw std::runtime_error("stop");
    };
    CHECK_THROWS(std::runtime_error, hs::answer_all(many, hs::Quantity::epsilon, 1e-9, std::size_t{1} << 20,
                                                    hs::Engine::fft, stop));
    CHECK(here && calls == 2);
}

}  // namespace

int main() {
    for (auto wanted : {hs::Quantity::epsilon, hs::Quantity::delta}) {
        if (check::sanitized && wanted == hs::Quantity::delta) break;  // both take the same way
        same_as_profiles(wanted, std::size_t{1} << 30, hs::Engine::automatic);
        same_as_profiles(wanted, std::size_t{1} << 20, hs::Engine::automatic);  // one lattice at a time
        same_as_profiles(wanted, std::size_t{1} << 30, hs::Engine::fft);
    }
    CHECK(hs::answer_all({}, hs::Quantity::epsilon).empty());
    polling();
    return check::summary();
}
