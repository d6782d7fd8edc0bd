#include "inversion/transform.hpp"

#include "inversion/allocation_transform.hpp"
#include "inversion/few_steps.hpp"
#include "inversion/loss_transform.hpp"
#include "inversion/mgf.hpp"

namespace hockeystick {

std::unique_ptr<Transform> Transform::of(const Pair& pair, double tolerance, double cut_mass) {
    if (const auto law = pair.allocation()) {
        if (FewSteps::serves(*law) && !(cut_mass > 0)) return std::make_unique<FewSteps>(*law);
        return std::make_unique<AllocationTransform>(*law, cut_mass);
    }
    if (const auto mixtures = pair.gaussian_mixtures(); !mixtures.empty())
        return std::make_unique<Mgf>(mixtures, tolerance, cut_mass);
    if (auto law = pair.loss_law())
        return std::make_unique<LossTransform>(std::move(*law), tolerance, cut_mass, 0,
                                               pair.joined_mixtures());
    return nullptr;
}

}  // namespace hockeystick
