// The transform of one random allocation's loss, from the moments of its likelihood ratio V
// (docs/mechanisms/allocation.md, "The pair"): M(z) = E_Q[V^{1+z}] in direction remove, E_Q[V^{-z}] in add.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "inversion/allocation_moments.hpp"
#include "inversion/allocation_parts.hpp"
#include "inversion/transform.hpp"

namespace hockeystick {

class AllocationTransform final : public Transform {
public:
    // cut_mass as in Transform::of. Where a cut was asked for, all lines are of the law that it leaves.
    AllocationTransform(const Allocation& law, double cut_mass);

    bool can_cut() const override { return cut_.has_value(); }
    double dropped() const override { return cut_ ? cut_->left_out() * (1 + 1e-12) : 0; }
    bool dear() const override { return !law_.add; }
    bool dear_at(double s) const override;
    Cumulant at(double s) const override;
    Cumulant for_line(double s, double line) const override;
    Row row(double s, double step, std::size_t size, double tolerance) const override;
    std::unique_ptr<DecayBound> decay(double s, double log_mgf) const override;

    static constexpr double least_power = 24;  // speed: of lines of the cut law

private:
    // ln M(s), its error and derivatives, whether the cut law served, and how it falls there.
    struct Whole {
        double log, error, first, second;
        bool by_cut;
        Bulk::Edge edge;
    };
    // How closely, and of which law: as a line is laid; or to the few digits that choosing one takes, of any
    // law or the one without a cut. Of tilts asked for before it is remembered.
    enum class Look { full, near, uncut };
    std::optional<Whole> whole(double s, Look look) const;
    std::optional<Whole> find_whole(double s, Look look) const;
    // The same of the cut law, 1 + s >= least_power.
    std::optional<Whole> find_cut(double s, double tolerance) const;
    // Whether there may be a line there.
    bool lays(const Whole& whole) const { return whole.by_cut || !(for_cut_ && cut_); }
    static Cumulant bound_of(const std::optional<Whole>& whole);
    // The moments E[V^{k-a}] at the tilt s, of frequencies 0, step, ...; k and kappa as it suits the highest.
    std::optional<Moments> moments(double s, double step, std::size_t size, double log_scale,
                                   double tolerance) const;

    Allocation law_;
    bool for_cut_;
    std::optional<CutStep> cut_;
    mutable std::mutex lock_;
    mutable std::map<std::pair<double, Look>, std::optional<Whole>> known_;
};

}  // namespace hockeystick
