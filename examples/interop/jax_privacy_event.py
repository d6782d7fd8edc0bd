"""Events of JAX Privacy, accounted for and calibrated by hockeystick."""

import dp_accounting
from hockeystick.interop.dp_accounting import HockeystickAccountant
from jax_privacy.experimental.accounting import amplified_bandmf_event, dpsgd_event

# JAX Privacy's default relation; a dp_accounting accountant defaults to ADD_OR_REMOVE_ONE.
relation = dp_accounting.NeighboringRelation.REPLACE_SPECIAL

event = dpsgd_event(noise_multiplier=3.0, iterations=512, sampling_prob=0.1)
accountant = HockeystickAccountant(relation).compose(event)
lower, upper = accountant.epsilon_bounds(target_delta=1e-6)
print(f"epsilon between {lower:.9f} and {upper:.9f} at delta = 1e-6")

noise_multiplier = dp_accounting.calibrate_dp_mechanism(
    lambda: HockeystickAccountant(relation),
    lambda sigma: amplified_bandmf_event(sigma, iterations=512, num_bands=4, sampling_prob=0.4),
    target_epsilon=1.0,
    target_delta=1e-6,
)
print(f"noise multiplier {noise_multiplier:.4f} for epsilon = 1 with four bands")
