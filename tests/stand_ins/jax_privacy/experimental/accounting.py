"""Stand-in: the events of DP-SGD and of banded matrix factorisation with cyclic Poisson sampling."""

import math

import dp_accounting


def dpsgd_event(noise_multiplier: float, iterations: int, *, sampling_prob: float) -> dp_accounting.DpEvent:
    step = dp_accounting.PoissonSampledDpEvent(sampling_prob, dp_accounting.GaussianDpEvent(noise_multiplier))
    return dp_accounting.SelfComposedDpEvent(step, iterations)


def amplified_bandmf_event(
    noise_multiplier: float, iterations: int, *, num_bands: int, sampling_prob: float
) -> dp_accounting.DpEvent:
    return dpsgd_event(noise_multiplier, math.ceil(iterations / num_bands), sampling_prob=sampling_prob)
