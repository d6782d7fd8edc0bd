// Compiled once per instruction set (cmake/Lanes.cmake), with HOCKEYSTICK_LANES as the name of the version.
#include "montecarlo/kernels.hpp"

#include "montecarlo/chain_lanes.hpp"
#include "montecarlo/joint_lanes.hpp"
#include "montecarlo/noise_lanes.hpp"
#include "montecarlo/product_lanes.hpp"

namespace hockeystick::kernels {

extern const Table HOCKEYSTICK_VERSION(table);
const Table HOCKEYSTICK_VERSION(table) = {
    HOCKEYSTICK_VERSION_NAME,
    normals,
    public_counts,
    correlate,
    convolve,
    transform,
    advance,
    advance_truncated,
    finish,
    advance_blocked,
    finish_blocked,
    advance_joint,
    advance_joint_short,
    finish_joint,
    log_sum_exp,
};

}  // namespace hockeystick::kernels
