#include "inversion/allocation_moments.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "hockeystick/parallel.hpp"
#include "inversion/allocation_gamma_kernel.hpp"
#include "inversion/allocation_kernel_bounds.hpp"
#include "inversion/allocation_ray_rule.hpp"
#include "inversion/allocation_step_series.hpp"
#include "inversion/falling_sum.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// speed: so many nodes are worth a look at which of them count.
constexpr std::size_t many_nodes = 1000;

// The nodes of a ray: where they are, the kernel's other factor, and sums over them.
class RaySum {
public:
    RaySum(const RayRule& rule, double kappa, double angle, std::vector<SeriesValue> nodes)
        : rule_(rule), kappa_(kappa), angle_(angle), nodes_(std::move(nodes)) {}

    // At the frequencies first step, ..., last step, times e^{-shift}.
    struct Values {
        FallingSum::Row row;
        double shift;
    };
    // From one frequency to the next the kernel turns by s^{i step}, and all nodes' kernels change in modulus
    // by as much as that of the largest one.
    Values at(double step, std::size_t first, std::size_t last) const {
        const double start = step * static_cast<double>(first);
        const GammaKernel kernel({kappa_, start}, angle_);
        std::vector<LogKernel> logs;
        double shift = -infinity, largest = 0;
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            logs.push_back(kernel.at(x(i), nodes_[i].bare));
            logs.back().log += nodes_[i].log;
            if (nodes_[i].coefficient == 0.0 && !(nodes_[i].error > 0)) continue;
            if (logs.back().log.real() > shift) shift = logs.back().log.real(), largest = x(i);
        }
        FallingSum sum;
        const double additions = static_cast<double>(nodes_.size());
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            const double modulus = exp_or_0(logs[i].log.real() - shift);
            if (!(modulus > 0)) continue;
            const Complex term = std::polar(modulus, logs[i].log.imag()) * nodes_[i].coefficient;
            sum.re.push_back(term.real());
            sum.im.push_back(term.imag());
            sum.turn.push_back(x(i) - largest);
            sum.fall.push_back(0);
            sum.fixed.push_back(logs[i].slack + 8 * modulus_of(logs[i].log) + additions);
            sum.turning.push_back(4 * (std::abs(x(i)) + std::abs(largest)));
            sum.fixed_error += modulus * nodes_[i].error;
        }
        Values out{sum.row(step, last - first + 1, 0), shift};
        for (std::size_t j = 0; j < out.row.value.size(); ++j) {
            const GammaKernel here({kappa_, step * static_cast<double>(first + j)}, angle_);
            // With e^{-s}, which is the same at all frequencies, or without: what loses less.
            LogKernel more = quotient(here, kernel, largest, false);
            if (const LogKernel bare = quotient(here, kernel, largest, true); bare.slack < more.slack)
                more = bare;
            const double size = rule_.h * std::exp(more.log.real()), slack = std::expm1(u * more.slack);
            Complex& value = out.row.value[j];
            out.row.error[j] = size * (out.row.error[j] * (1 + slack) + slack * modulus_of(value));
            value *= std::polar(size, more.log.imag());
        }
        return out;
    }

    // Of ln E[V^q] at the real power: its derivatives, up to those of ln Gamma. They are estimates.
    std::pair<double, double> moments() const {
        const GammaKernel kernel(kappa_, angle_);
        double shift = -infinity;
        for (std::size_t i = 0; i < nodes_.size(); ++i)
            shift = std::max(shift, (kernel.at(x(i), nodes_[i].bare).log + nodes_[i].log).real());
        Complex sum = 0, mean = 0, variance = 0;
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            const Complex log = kernel.at(x(i), nodes_[i].bare).log + nodes_[i].log - shift,
                          term = std::polar(exp_or_0(log.real()), log.imag()) * nodes_[i].coefficient,
                          log_s(x(i), angle_);
            sum += term;
            mean += term * log_s;
            variance += term * log_s * log_s;
        }
        mean /= sum;
        return {mean.real(), (variance / sum - mean * mean).real()};
    }

private:
    static LogKernel quotient(const GammaKernel& a, const GammaKernel& b, double x, bool bare) {
        const LogKernel above = a.at(x, bare), below = b.at(x, bare);
        return {above.log - below.log,
                above.slack + below.slack + 8 * (1 + modulus_of(above.log) + modulus_of(below.log))};
    }
    double x(std::size_t i) const { return rule_.x(i); }
    RayRule rule_;
    double kappa_, angle_;
    std::vector<SeriesValue> nodes_;
};

}  // namespace

std::optional<Moments> allocation_moments(const Allocation& law, int k, double kappa, double step,
                                          std::size_t size, double log_scale, double tolerance) {
    const RayRules rules(law, k, kappa, step, size, log_scale, tolerance);
    const std::vector<Ray> rays = rules.rays();
    // Those of high frequencies may take too many nodes: all are known before any is summed.
    std::vector<RayRule> found;
    std::size_t all = 0;
    double first = infinity, last = -infinity;
    for (const Ray& ray : rays) {
        const auto rule = rules.along(ray);
        if (!rule) return {};
        found.push_back(*rule);
        all += rule->size();
        first = std::min(first, rule->x(0));
        last = std::max(last, rule->x(rule->size() - 1));
    }
    if (size > 1 && all > many_nodes) {
        const KernelBounds kernel(law, k, std::log(kappa) + first, std::log(kappa) + last);
        for (std::size_t i = 0; i < rays.size(); ++i) found[i] = rules.shorter(rays[i], found[i], kernel);
    }
    Moments out;
    std::vector<double> alias;
    for (std::size_t i = 0; i < rays.size(); ++i) {
        interruption_point();
        const Ray& ray = rays[i];
        const RayRule& rule = found[i];
        const auto r_at = [&](std::size_t node) { return kappa * std::exp(rule.x(node)); };
        const StepSeries series(law, k, ray.angle, r_at(0), r_at(rule.size() - 1), tolerance);
        if (series.empty()) return {};
        std::vector<SeriesValue> nodes(rule.size());
        parallel_for_light(nodes.size(), [&](std::size_t n) { nodes[n] = series.at(r_at(n)); });
        const RaySum sum(rule, kappa, ray.angle, std::move(nodes));
        const RaySum::Values found_here = sum.at(step, ray.first, ray.last);
        if (i == 0) {
            out.shift = found_here.shift > 20 ? found_here.shift : 0;
            const auto [mean, variance] = sum.moments();
            const Polygamma of_gamma(kappa);
            out.first = of_gamma.first - std::log(kappa) - mean;
            out.second = variance - of_gamma.second;
        }
        const double scale = std::exp(found_here.shift - out.shift),
                     rounding = 4 * u * (1 + std::abs(found_here.shift) + std::abs(out.shift));
        for (std::size_t j = 0; j < found_here.row.value.size(); ++j) {
            const Complex value = found_here.row.value[j] * scale;
            out.value.push_back(value);
            out.error.push_back(found_here.row.error[j] * scale + rounding * modulus_of(value) +
                                rule.omitted * std::exp(-out.shift));
            alias.push_back(rules.aliasing(ray, rule, ray.first + j));
        }
    }
    // E[V^{k-kappa}], rounded up: all aliasing is relative to it.
    const double whole = (std::abs(out.value[0]) + out.error[0]) / (1 - std::min(alias[0], 0.5));
    for (std::size_t j = 0; j < alias.size(); ++j) out.error[j] += 1.01 * alias[j] * whole;
    return out;
}

}  // namespace hockeystick
