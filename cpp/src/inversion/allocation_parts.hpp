// The outcomes of one random allocation in two parts, those without a large likelihood ratio W and some of
// the others: ln E[e^{s(V-1)}; the part] along a line, and how it falls there (docs/mechanisms/allocation.md,
// "One epoch in two parts" and "Epochs in three parts").
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "inversion/allocation_step.hpp"
#include "inversion/contour.hpp"

namespace hockeystick {

class AllocationPart {
public:
    virtual ~AllocationPart() = default;
    virtual CutStep::Log at(double s) const = 0;
    // For what is left out and the integrand, at one s: beside the value at tau = 0, at tau and beyond.
    virtual std::function<double(double tau)> log_decay(double s) const = 0;
    virtual std::vector<CutStep::Log> row(double s, double step, std::size_t size) const = 0;
};

// No W is large.
class Bulk final : public AllocationPart {
public:
    Bulk(const Allocation& law, const CutStep& step) : law_(law), step_(step) {}
    CutStep::Log at(double s) const override;
    std::function<double(double)> log_decay(double s) const override;
    std::vector<CutStep::Log> row(double s, double step, std::size_t size) const override;

private:
    const Allocation& law_;
    const CutStep& step_;
};

// Some W is large: (phi + r)^T - phi^T, phi below the cut and r beyond it, where s < 0, or up to another cut.
class Rest final : public AllocationPart {
public:
    Rest(const Allocation& law, const CutStep& step, double top = std::numeric_limits<double>::infinity())
        : law_(law), step_(step), top_(top) {}
    CutStep::Log at(double s) const override;
    std::function<double(double)> log_decay(double s) const override;
    std::vector<CutStep::Log> row(double s, double step, std::size_t size) const override;

private:
    CutStep::Log join(const CutStep::Log& log, const CutStep::Log& beyond) const;

    const Allocation& law_;
    const CutStep& step_;
    double top_;  // of g
};

// The outcomes with some W beyond a cut g of its normal variable, in some of so many epochs: their masses.
class Decided {
public:
    Decided(const Allocation& law, double epochs, double g);
    // With E[e^L - c; they] = p - c q, beside what was inverted.
    Inverted add_to(Inverted inverted, double c) const;

private:
    double p_, q_, rounding_;  // units of round-off
};

}  // namespace hockeystick
