// Epochs of a random allocation as one kind of step of a composition (docs/mechanisms/allocation.md, "Epochs
// in three parts").
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "inversion/allocation_parts.hpp"
#include "inversion/allocation_powers.hpp"
#include "inversion/allocation_transform.hpp"
#include "inversion/epoch_kind.hpp"
#include "inversion/saddle.hpp"
#include "numerics/constants.hpp"
#include "numerics/special.hpp"

namespace hockeystick {
namespace {

// ln of a bound on E[V^{1+s}; part], from a line for another tilt if there is one.
double log_moment(const AllocationPart& part, const PowerLine* line, double from, double s) {
    const double theta = line ? line->theta() * (1 + s) / (1 + from) : best_theta(part, 1 + s);
    return log_power_bound(part, 1 + s, theta);
}

class AllocationKindParts final : public KindParts {
public:
    AllocationKindParts(const Allocation& law, double first, double second)
        : law_(law),
          step_(CutStep::at(law, first, most_halvings)),
          bulk_(law_, step_),
          ladder_(law_, step_, second) {}
    AllocationKindParts(const AllocationKindParts&) = delete;
    AllocationKindParts& operator=(const AllocationKindParts&) = delete;

    bool split() const override { return !ladder_.parts().empty(); }

    double log_bulk(double s) const override {
        return log_moment(bulk_, bulk_line_ ? &*bulk_line_ : nullptr, s_, s);
    }
    double log_rest(double s) const override {
        double sum = -infinity;
        for (std::size_t i = 0; i < ladder_.parts().size(); ++i)
            sum = log_add(
                sum, log_moment(ladder_.parts()[i], rest_lines_.empty() ? nullptr : &rest_lines_[i], s_, s));
        return sum + 1e-12 * static_cast<double>(ladder_.parts().size());
    }

    void lay(double s, bool bulk, bool rest) override {
        bulk_line_.reset();
        rest_lines_.clear();
        s_ = s;
        if (bulk) {
            bulk_line_.emplace(bulk_, 1 + s);
            edge_ = bulk_.edge(1 + s, bulk_line_->theta(), bulk_.log_least_moment(1 + s));
        }
        log_rest_ = -infinity;
        if (!rest) return;
        for (const Rest& part : ladder_.parts()) {
            rest_lines_.emplace_back(part, 1 + s);
            log_rest_ = log_add(log_rest_, rest_lines_.back().log_upper());
        }
    }

    double log_bulk_at(double tau) const override {
        const double falling = std::exp(-0.5 * bulk_.variance() * tau * tau * (1 - 1e-12));
        return std::min(bulk_line_->log_bound(tau),
                        bulk_line_->log_upper() + std::log(edge_.turning * falling + edge_.edge) + 1e-12);
    }
    double log_rest_at(double tau) const override {
        double sum = -infinity;
        for (const PowerLine& line : rest_lines_) sum = log_add(sum, line.log_bound(tau));
        return sum;
    }

    PartRow bulk(double step, std::size_t size, double log_wanted) const override {
        PowerLine::Row row = bulk_line_->row(step, size, log_wanted);
        return {std::move(row.value), std::move(row.error), bulk_line_->log_upper(), false};
    }
    // All parts of the ladder, or none at once.
    PartRow rest(double step, std::size_t size, double log_wanted) const override {
        std::vector<PowerLine::Plan> plans;
        for (const PowerLine& line : rest_lines_) {
            auto plan = line.plan(step, size, log_wanted - (line.log_upper() - log_rest_));
            if (!plan) return {};
            plans.push_back(std::move(*plan));
        }
        PartRow out{std::vector<Complex>(size), std::vector<double>(size), log_rest_, false};
        for (std::size_t i = 0; i < plans.size(); ++i) {
            const PowerLine& line = rest_lines_[i];
            const double unit = std::exp(line.log_upper() - log_rest_);
            const PowerLine::Row row = line.row(plans[i]);
            if (row.empty()) return {};
            const double rounding = u * (8 + 2 * (std::abs(line.log_upper()) + std::abs(log_rest_)));
            for (std::size_t j = 0; j < size; ++j) {
                out.value[j] += unit * row.value[j];
                out.error[j] += unit * (row.error[j] * (1 + rounding) + rounding * std::abs(row.value[j]));
            }
        }
        return out;
    }

private:
    Allocation law_;
    CutStep step_;
    Bulk bulk_;
    Ladder ladder_;
    double s_ = 0, log_rest_ = 0;  // the latter of all of these
    std::optional<PowerLine> bulk_line_;
    std::vector<PowerLine> rest_lines_;
    Bulk::Edge edge_{1, 0};
};

class AllocationKind final : public EpochKind {
public:
    AllocationKind(const Allocation& law, double epochs)
        : EpochKind(epochs), law_(law), inverse_({law.mu, law.steps, true}, 0) {}

    double variance() const override { return std::expm1(std::min(law_.mu * law_.mu, 50.0)) / law_.steps; }
    double log_inverse(double t) const override { return inverse_.at(t).upper; }
    bool can_split() const override { return true; }
    double place_alone(double loss) const override {
        return (std::log(law_.steps) + loss) / law_.mu + 0.5 * law_.mu;
    }
    double place_of(double loss) const override {
        return std::log(1 + law_.steps * std::expm1(loss)) / law_.mu + 0.5 * law_.mu;
    }
    double place_of_mass(double mass) const override { return CutStep(law_, mass, 0).end(); }
    Beyond beyond(double g) const override {
        const double p = gaussian_tail(g - law_.mu), q = gaussian_tail(g),
                     log_w = law_.mu * (g - 0.5 * law_.mu);
        return {log_w - std::log(law_.steps) - 1e-12,
                std::log1p(std::max(0.0, std::expm1(log_w)) / law_.steps),
                p + (law_.steps - 1) * q,
                law_.steps * q,
                std::log1p(-p) + (law_.steps - 1) * std::log1p(-q),
                law_.steps * std::log1p(-q),
                g};
    }
    std::unique_ptr<KindParts> parts(double first, double second) const override {
        return std::make_unique<AllocationKindParts>(law_, first, second);
    }

private:
    Allocation law_;
    AllocationTransform inverse_;  // direction add: E V^{-t}
};

}  // namespace

std::unique_ptr<EpochKind> EpochKind::of_allocation(const Allocation& law, double count) {
    return std::make_unique<AllocationKind>(law, count);
}

}  // namespace hockeystick
