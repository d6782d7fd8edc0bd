#include "hockeystick/transform.hpp"

#include "hockeystick/beyond.hpp"
#include "hockeystick/loss_transform.hpp"
#include "hockeystick/mgf.hpp"

namespace hockeystick {

std::unique_ptr<Transform> Transform::of(const Pair& pair, double tolerance, double cut_mass) {
    if (const auto mixtures = pair.gaussian_mixtures(); !mixtures.empty())
        return std::make_unique<Mgf>(mixtures, tolerance, cut_mass);
    if (auto law = pair.loss_law())
        return std::make_unique<LossTransform>(std::move(*law), tolerance, cut_mass);
    return nullptr;
}

Split Transform::split(double, double, double) const { return {}; }

}  // namespace hockeystick
