// The parts of the Monte Carlo kernel on one core: noise, sliding products, recursion, and what the core
// could do. `python -m bench.montecarlo --library build/libhockeystick.a` compiles and runs it.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "hockeystick/likelihood.hpp"
#include "montecarlo/kernels.hpp"

namespace hs = hockeystick;
namespace kernels = hockeystick::kernels;

namespace {

double seconds(const std::function<void()>& body) {
    double best = 1e9;
    for (int i = 0; i < 60; ++i) {
        const auto start = std::chrono::steady_clock::now();
        body();
        best =
            std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
}

// Independent multiplications and additions in registers; fused ones would count double. No two of the
// numbers are equal, or the compiler would compute them once.
#if defined(__AVX512F__)
constexpr std::size_t width = 8;
#elif defined(__AVX__)
constexpr std::size_t width = 4;
#else
constexpr std::size_t width = 2;
#endif
typedef double V __attribute__((vector_size(8 * width)));

double peak() {
    constexpr int rounds = 2000;
    volatile double one = 1.0, tiny = 1e-9;
    const V m = one - V{}, t = tiny - V{};
    V products[12], sums[12];
    for (int i = 0; i < 12; ++i) {
        products[i] = (1.0 + i) * m;
        sums[i] = (1.0 + i) * t;
    }
    double sink = 0;
    const double time = seconds([&] {
        // Twelve products and twelve sums: more than their latency, and they fit into 32 registers.
        V a[12], b[12];
        std::copy_n(products, 12, a);
        std::copy_n(sums, 12, b);
        for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
            for (int i = 0; i < 12; ++i) {
                a[i] *= m;
                b[i] += t;
            }
        }
        for (int i = 0; i < 12; ++i) sink += a[i][0] + b[i][0];
    });
    if (!std::isfinite(sink)) std::printf("overflow\n");
    return 24.0 * rounds * static_cast<double>(width) / time;
}

}  // namespace

int main() {
    const double limit = peak();
    std::printf("instruction set %s; multiplications and additions, unfused: %.1f GFLOP/s\n",
                kernels::table().name, 1e-9 * limit);
    std::printf("%6s %5s %-9s %9s %9s %9s %12s %9s %7s\n", "n", "b", "products", "noise ns", "prod. ns",
                "recur. ns", "samples/s", "GFLOP/s", "peak");
    struct Case {
        std::size_t steps, bands;
        hs::Products method;
    };
    for (const auto& [steps, bands, method] :
         {Case{7200, 256, hs::Products::transform}, Case{7200, 256, hs::Products::direct},
          Case{1024, 32, hs::Products::transform}, Case{1024, 8, hs::Products::transform},
          Case{1024, 2, hs::Products::transform}}) {
        std::vector<double> coefficients{1.0};
        for (std::size_t k = 1; k < bands; ++k) {
            const auto x = static_cast<double>(k);
            coefficients.push_back(coefficients.back() * (x - 0.5) / x);
        }
        const hs::Strategy strategy(steps, bands, coefficients);
        const hs::MatrixMechanism mechanism{strategy, hs::BMinSep{bands, 1e-3, true}, 0.5};
        const hs::SlidingProducts products(mechanism, method);
        const hs::Mixture mixture(mechanism);
        hs::Rows in(products.rows(), 0.1), out(products.rows());
        const std::size_t n = steps, block = products.outputs();
        const auto blocks = [&](const auto& body) {
            return seconds([&] {
                for (std::size_t done = 0; done < n; done += block) body(done, std::min(block, n - done));
            });
        };
        const double noise = blocks([&](std::size_t first, std::size_t count) {
            kernels::table().normals(in[0], first, count + count % 2, {0, 1, 2}, {3, 4});
        });
        const double sliding =
            blocks([&](std::size_t first, std::size_t) { products.compute(in, first, out); });
        alignas(64) double row[hs::group_size];
        const double recursion = seconds([&] {
            const auto evaluation = mixture.start();
            for (std::size_t done = 0; done < n; done += block) {
                evaluation->add(out[0], std::min(block, n - done), nullptr);
            }
            evaluation->finish(row);
        });
        const double each = static_cast<double>(n * hs::group_size);
        const double rate = products.operations() * each / sliding;
        std::printf("%6zu %5zu %-9s %9.2f %9.2f %9.2f %12.0f %9.1f %6.0f%%\n", n, bands,
                    products.uses_transform() ? "transform" : "sum", 1e9 * noise / each, 1e9 * sliding / each,
                    1e9 * recursion / each, hs::group_size / (noise + sliding + recursion), 1e-9 * rate,
                    100 * rate / limit);
    }
}
