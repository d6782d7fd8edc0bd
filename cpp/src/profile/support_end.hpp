// What the largest losses alone say about delta and eps (docs/accounting/bounds.md, "The end of the
// support"): next to their sum tilts grow without end, and no lattice is fine enough.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "hockeystick/answer.hpp"

namespace hockeystick {

// With M the sum of the largest losses, only outcomes with every loss within M - eps of its largest value
// count at eps. They are sorted by how many steps are not at their largest loss, up to a hair: none, one, or
// more, of which the first two are exact but for the hair and the rest is bounded.
class SupportEnd {
public:
    explicit SupportEnd(const Composition& composition);

    // M, rounded up; +inf where some loss is unbounded, and then nothing more is known.
    double sum() const { return upper_sum_; }
    // Whether the rounding of the largest losses shows, so that neither a tilt nor a lattice is fine enough.
    bool rules(double epsilon) const;

    // P(L = inf) of all steps together, and ln of what is left of 1.
    Answer infinity_mass() const;
    double log_finite() const { return log_finite_; }

    // All there is next to M; elsewhere valid, but wide.
    Answer delta(double epsilon) const;
    std::optional<Answer> epsilon(double delta) const;

private:
    // Without what infinite losses add.
    std::pair<double, double> finite_delta(double epsilon) const;
    std::pair<double, double> with_hair(double wide, double narrow, double share, double floor) const;

    struct Kind {
        PairPtr pair;
        double count, largest;
    };
    std::vector<Kind> kinds_;
    double lower_sum_ = 0, upper_sum_ = 0, steps_ = 0, log_finite_ = 0;
};

}  // namespace hockeystick
