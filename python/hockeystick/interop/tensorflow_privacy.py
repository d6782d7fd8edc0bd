"""TensorFlow Privacy: its statement on a run of DP-SGD, with certified numbers. Needs nothing but hockeystick."""

from __future__ import annotations

import math
from typing import Any

from .._base.bounds import exactly
from .._base.validation import boolean, integer, real
from ..accounting.profile import account
from ..mechanisms.descriptions import Composable, Gaussian, UserLevel
from ..mechanisms.dpsgd import dp_sgd

_POISSON = "If each example was in each batch by a coin of its own (Poisson sampling):"
_ONCE = (
    "If each example was used once per epoch, in any order (shuffled data, too: batches cut from them are no Poisson samples, "
    "and the former does not hold for them):"
)


def compute_dp_sgd_privacy_statement(
    number_of_examples: int,
    batch_size: int,
    num_epochs: float,
    noise_multiplier: float,
    delta: float,
    used_microbatching: bool = True,
    max_examples_per_user: int | None = None,
    accountant_type: Any = None,
) -> str:
    """What may be said of a run, under each of two assumptions on its batches; called like TensorFlow Privacy's function of this name.

    - *Poisson samples*: each example is in each batch with probability batch_size / number_of_examples, by a coin of its own.
      Steps are counted as `dp_sgd` does: ceil(number_of_examples / batch_size) an epoch, which is at least what is counted there.
    - *Once per epoch*, in any order, under "zero_out": one Gaussian mechanism for each epoch that was begun. This, not the former, holds for data that were shuffled.

    ``noise_multiplier`` is the standard deviation over the clipping norm, on the sum. With ``used_microbatching`` (microbatches of
    more than one example) an example moves the sum by up to twice the norm, given that all others stay in their
    microbatches: adjacency "zero_out". So it is for batches that are no samples; else "add_or_remove".
    With ``max_examples_per_user`` the unit is a user who owns up to that many (docs/mechanisms/users.md). ``accountant_type`` has no meaning here.

    >>> text = compute_dp_sgd_privacy_statement(60_000, 256, 60, 1.0, 1e-5, used_microbatching=False)
    >>> "satisfies (2.82672, 1e-05)" in text, "satisfies (62.2408, 1e-05)" in text
    (True, True)
    """
    size = integer("number_of_examples", number_of_examples, 1)
    batch = integer("batch_size", batch_size, 1, size)
    epochs = real("num_epochs", num_epochs, 0.0)
    noise = real("noise_multiplier", noise_multiplier, 0.0)
    doubled = boolean("used_microbatching", used_microbatching)
    owned = integer("max_examples_per_user", 1 if max_examples_per_user is None else max_examples_per_user, 1)
    sigma = noise / 2 if doubled else noise
    sampled = dp_sgd(sigma, size, batch, epochs=epochs, examples_per_user=owned)
    once = UserLevel(Gaussian(sigma), owned) if owned > 1 else Gaussian(sigma)
    drawn = _said(sampled, "zero_out" if doubled else "add_or_remove", delta)
    shuffled = _said(once * math.ceil(epochs), "zero_out", delta)
    return "\n\n".join([_POISSON, drawn, _ONCE, shuffled, *_remarks(noise, doubled, max_examples_per_user)])


def _said(run: Composable, adjacency: str, delta: float) -> str:
    return account(run, adjacency).report(delta=delta).statement()


def _remarks(noise: float, doubled: bool, owned: int | None) -> list[str]:
    """What the numbers rest on besides."""
    found = ["Both protect the release of all intermediate models as well."]
    if doubled:
        found.append(
            f"Microbatches of several examples: the noise multiplier {exactly(noise)} is accounted for as {exactly(noise / 2)}, since "
            "one example moves the sum by up to twice the clipping norm."
        )
    if owned is None:
        found.append(
            "The unit is one example. Without a bound on the examples of a user nothing is guaranteed to users."
        )
    return found
