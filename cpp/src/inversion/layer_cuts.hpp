// Where to cut the outputs of a composition into layers of losses, and how smoothly; see layers.hpp. All of
// it is chosen by estimates: any choice is sound (docs/accounting/bounds.md, "Layers of losses").
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pairs/mixture.hpp"

namespace hockeystick {

// One mixture of a step of this kind; it is cut where its P is a mixture.
struct LayerPart {
    MixturePart mixture;
    std::size_t kind;
    bool cut;
};

// Speed: a share of delta that is at least this takes fewer layers, and shorter periods.
constexpr double few_digits = 1e-8;

struct LayerCuts {
    struct Part {
        double width, end;               // of the windows; of the outputs that count
        std::vector<std::int64_t> edge;  // the windows' points, at each cut
    };
    std::vector<double> loss;  // increasing; none where nothing can be cut
    std::vector<Part> parts;
};

// Cuts the last of which leaves out losses of about the P-mass e^{log_mass} in all, for epsilons near this
// one. counts: of each kind. sharpness: windows of 1 are as wide as the estimates say.
// tolerance: the share of delta that each source of error aims at.
LayerCuts choose_cuts(const std::vector<LayerPart>& parts, const std::vector<double>& counts, double log_mass,
                      double epsilon, double sharpness, double tolerance);

// The loss at an output; and about the least output between two where the loss is this one.
double loss_at(const MixturePart& part, double t);
double output_between(const MixturePart& part, double loss, double low, double high, double precision);
// Outputs below this have no losses that count.
double least_output(const MixturePart& part);

}  // namespace hockeystick
