// The transform of one random allocation's loss, from the moments of its likelihood ratio V
// (docs/mechanisms/allocation.md): M(z) = E_Q[V^{1+z}] in direction remove, E_Q[V^{-z}] in direction add.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "inversion/allocation_cut.hpp"
#include "inversion/allocation_moments.hpp"
#include "inversion/transform.hpp"

namespace hockeystick {

class AllocationTransform final : public Transform {
public:
    // cut_mass as in Transform::of: direction remove leaves some out in any case, however little, unless that
    // is `uncut`. With a cut that was asked for, large tilts are those that it allows: what it does not help
    // is as without it.
    static constexpr double uncut = -1;
    AllocationTransform(const Allocation& law, double cut_mass);

    bool can_cut() const override { return cut_.has_value(); }
    double dropped() const override { return cut_ ? cut_->dropped() : 0; }
    bool dear() const override { return !law_.add; }
    Cumulant at(double s) const override;
    Row row(double s, double step, std::size_t size, double tolerance) const override;
    std::unique_ptr<DecayBound> decay(double s, double log_mgf) const override;

private:
    // ln M(s), its error and derivatives, and whether the cut law served.
    struct Whole {
        double log, error, first, second;
        bool by_cut;
    };
    // near: to the few digits that choosing a line takes. Of tilts asked for before it is remembered.
    std::optional<Whole> whole(double s, bool near) const;
    std::optional<Whole> find_whole(double s, double tolerance) const;
    Bulk::Edge edge_of(double s, const Whole& all) const;  // how it falls there
    // The moments E[V^{k-a}] at the tilt s, of frequencies 0, step, ...; k and kappa as it suits the highest.
    std::optional<Moments> moments(double s, double step, std::size_t size, double log_scale,
                                   double tolerance) const;

    Allocation law_;
    bool for_cut_;
    std::optional<CutAllocation> cut_;
    mutable std::mutex lock_;
    mutable std::map<std::pair<double, bool>, std::optional<Whole>> known_;
};

}  // namespace hockeystick
