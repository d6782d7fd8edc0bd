#include "inversion/transform.hpp"

#include <cmath>

#include "inversion/allocation_few_steps.hpp"
#include "inversion/allocation_transform.hpp"
#include "inversion/loss_transform.hpp"
#include "inversion/mgf.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

// proof: any number below the errors of rows.
constexpr double nothing = 1e-100;

}  // namespace

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

Transform::Row::Log Transform::Row::log(std::size_t j) const {
    // What vanished altogether is as good as any number this small.
    const Complex f = value[j] == -1.0 ? Complex(-1, nothing) : value[j], k = log1p(f);
    const double size = modulus_of(f), whole = modulus_of(1.0 + f);
    // The logarithm rounds relatively to f; where 1 + f nearly vanishes, that is rounded once.
    const double rounding = whole < 0.5 ? whole * (1 + std::abs(k.real())) : (size + size * size) / whole;
    return {k, whole, error[j] + u * 8 * rounding};
}

}  // namespace hockeystick
