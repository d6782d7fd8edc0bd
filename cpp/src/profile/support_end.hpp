// delta next to the sum of the largest losses, where tilts grow without end and no lattice is fine enough.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "hockeystick/answer.hpp"

namespace hockeystick {

// With M the sum of the largest losses, only outcomes with every loss within M - eps of its largest value
// count at eps. They are sorted by how many steps are not at their largest loss, up to a hair: none, one, or
// more, of which the first two are exact but for the hair and the rest is bounded. See
// docs/accounting/bounds.md, "The end of the support".
class SupportEnd {
public:
    explicit SupportEnd(const Composition& composition);

    // M, rounded up; +inf where some loss is unbounded, and then nothing is known.
    double sum() const { return upper_sum_; }
    // Bounds on delta without what infinite losses add, at any eps.
    std::pair<double, double> finite_delta(double epsilon) const;

private:
    std::pair<double, double> with_hair(double wide, double narrow, double share, double floor) const;

    struct Kind {
        PairPtr pair;
        double count, largest;
    };
    std::vector<Kind> kinds_;
    double lower_sum_ = 0, upper_sum_ = 0, steps_ = 0;
};

}  // namespace hockeystick
