"""Summaries of individual values for groups of examples, and what must not be done with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._base.validation import ParameterError, reals, unmasked

CAVEAT = (
    "Individual epsilons are computed from the data of the individuals they are about: they are as sensitive "
    "as the data, and must not be released as they are."
)


@dataclass(frozen=True)
class GroupSummary:
    """The values of one group of examples: count, mean, and quantiles. Sensitive, like the values."""

    group: str
    count: int
    mean: float
    minimum: float
    lower_quartile: float
    median: float
    upper_quartile: float
    maximum: float


def summarise(values: ArrayLike, groups: ArrayLike | None = None) -> list[GroupSummary]:
    """Summaries of individual values (epsilons, say) for each of the ``groups``, a label for each example.

    Infinite values are allowed; a label that is nan is one like any other. The summaries are not private: see CAVEAT.

    >>> [(s.group, s.count, s.median) for s in summarise([1.0, 2.0, 6.0, 0.5], ["a", "a", "a", "b"])]
    [('a', 3, 2.0), ('b', 1, 0.5)]
    """
    return [_summary(label, chosen) for label, chosen in by_group(values, groups)]


def by_group(values: ArrayLike, groups: ArrayLike | None = None) -> list[tuple[str, NDArray[np.float64]]]:
    """Each label of ``groups`` ("all" if there are none), in order, with its values, in order."""
    array = reals("values", values, allow_inf=True)
    if array.ndim != 1:
        raise ParameterError(f"values: must be one-dimensional, not of shape {array.shape}")
    labels = np.full(array.size, "all") if groups is None else unmasked("groups", groups)
    if labels.shape != array.shape:
        raise ParameterError(f"groups: must have the shape {array.shape}, not {labels.shape}")
    missing = (
        label is None or (isinstance(label, (float, np.floating)) and np.isnan(label)) for label in labels
    )
    if labels.dtype == object and any(missing):
        labels = labels.astype(str)  # a column with gaps, which have no order among other labels
    names, group = np.unique(labels, return_inverse=True)
    return [(str(label), np.sort(array[group == i])) for i, label in enumerate(names.tolist())]


def _summary(label: str, values: NDArray[np.float64]) -> GroupSummary:
    # Order statistics: interpolation would turn infinite values into nan.
    at = [values[round(share * (values.size - 1))].item() for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    return GroupSummary(label, values.size, float(values.mean()), *at)
