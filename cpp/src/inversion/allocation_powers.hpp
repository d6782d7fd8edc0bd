// E[V^p] over a part of the outcomes of one random allocation, from its Laplace transform along a line
// (docs/mechanisms/allocation.md, "Epochs in three parts"):
//     E[V^p] = Gamma(p+1)/(2 pi i) integral E[e^{theta V}] theta^{-p-1} d theta,   Re theta > 0.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

#include "inversion/allocation_gamma_kernel.hpp"
#include "inversion/allocation_parts.hpp"
#include "inversion/falling_sum.hpp"
#include "numerics/complex.hpp"

namespace hockeystick {

// ln of a bound on E[V^p; part], from its transform at theta: V^p <= (p/(e theta))^p e^{theta V}.
double log_power_bound(const AllocationPart& part, double power, double theta);
// The theta where that is least, and what it is there.
double best_theta(const AllocationPart& part, double power);
inline double log_power_bound(const AllocationPart& part, double power) {
    return log_power_bound(part, power, best_theta(part, power));
}

class PowerLine {
public:
    // The line that suits V^power; empty() where there is none. How the transform falls takes long, and is
    // not looked for if the kernel alone is to serve, as it does for large powers.
    PowerLine(const AllocationPart& part, double power, bool kernel_alone = false);
    bool empty() const { return !(log_upper_ < std::numeric_limits<double>::infinity()); }
    double theta() const { return theta_; }
    double log_upper() const { return log_upper_; }  // of E[V^power]

    // E[V^{power + i tau}], tau = 0, step, ..., and errors, which aim at e^{log_wanted}: all times
    // e^{-log_upper()}. Empty where too many nodes were needed.
    struct Row {
        std::vector<Complex> value;
        std::vector<double> error;
        bool empty() const { return value.empty(); }
    };
    Row row(double step, std::size_t size, double log_wanted) const;
    // The same in two steps, of which the first is quick; empty where too many nodes are needed.
    struct Plan;
    std::optional<Plan> plan(double step, std::size_t size, double log_wanted) const;
    Row row(const Plan& planned) const;

    // ln of a bound on |E[V^{power + i tau'}]|, tau <= tau' <= 2 tau.
    double log_bound(double tau) const;

private:
    double log_kernel(double tau, double theta, double angle) const;
    double log_line(double tau, double theta) const;
    double log_beyond(double tau, std::size_t cell) const;
    // A strip around the line, and ln of bounds on the transform at its edges.
    struct Strip {
        double width, left, right;
    };
    double log_aliases(const Strip& strip, double tau) const;
    // A place on the line and its logarithm; ln of the transform of V - 1 there, and its error; ln of the
    // most that the node's share can be at tau = 0, but for a factor of all nodes: it grows by the angle of
    // s.
    struct Node {
        Complex s, log_s, log;
        double error, log_size;
    };
    std::vector<Node> nodes_of(double h, const std::vector<CutStep::Log>& logs) const;
    std::size_t run_from(double tau, double step) const;
    // Those frequencies' values and errors.
    void add_run(const std::vector<Node>& nodes, double h, double step, std::size_t first, std::size_t last,
                 double log_nothing, Row& out) const;

    const AllocationPart& part_;
    double power_, theta_, log_upper_, log_at_;  // the last: an upper bound of ln E[e^{theta V}]
    std::vector<double> v_, log_fall_;           // bounds of how the transform falls from v on
};

struct PowerLine::Plan {
    double step;
    std::size_t size;
    double log_wanted, h;  // the rule's step
    std::size_t end;       // the first place that is not worth a node
    std::vector<Strip> strips;
};

}  // namespace hockeystick
