"""Records that are several times in the data set of an Opacus run."""

from types import SimpleNamespace
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
import torch
from hockeystick.interop.opacus_batches import check_repeats

Records: Any = torch.utils.data.Dataset


class Subset(Records):  # type: ignore[misc, unused-ignore]
    """Known by its name, as the one of torch is."""

    def __init__(self, dataset: Any, indices: Any) -> None:
        self.dataset, self.indices = dataset, indices

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Records):  # type: ignore[misc, unused-ignore]
    """Likewise."""

    def __init__(self, datasets: Any) -> None:
        self.datasets = datasets

    def __len__(self) -> int:
        return sum(map(len, self.datasets))


class Endless(Records):  # type: ignore[misc, unused-ignore]
    """Without a length."""

    def __init__(self, held: Any) -> None:
        self.held = held


class Plain(Records):  # type: ignore[misc, unused-ignore]
    """Eight records, or as many as what is held."""

    def __init__(self, held: Any = None) -> None:
        self.held = held

    def __len__(self) -> int:
        return 8 if self.held is None else len(self.held)


class Huge(Records):  # type: ignore[misc, unused-ignore]
    """More records than fit in memory as numbers."""

    def __len__(self) -> int:
        return 2**50


class Unsized(Records):  # type: ignore[misc, unused-ignore]
    """Its length is an error, as that of torch's data pipes."""

    def __len__(self) -> int:
        raise TypeError("no valid length")


class Pairs(Records):  # type: ignore[misc, unused-ignore]
    """Two views of each record, under a name that scripts give it."""

    def __init__(self, *datasets: Any) -> None:
        self.datasets = datasets

    def __len__(self) -> int:
        return min(map(len, self.datasets))


Pairs.__name__ = "ConcatDataset"


class Held(Plain):
    """Eight records, whatever is held."""

    def __len__(self) -> int:
        return 8


class Chosen(Records):  # type: ignore[misc, unused-ignore]
    """A subset of one's own, which has no indices."""

    def __init__(self, ids: Any) -> None:
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids)


Chosen.__name__ = "Subset"

DATA, HUGE = Plain(), Huge()


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (Subset(DATA, [0, 1, 5, 1]), "at 1 of .* 2 times"),
        (Subset(DATA, [7, 2, -1]), "at 7 of .* 2 times"),
        (Subset(Subset(DATA, [4, 6]), [1, 1, 1]), "at 6 of .* 3 times"),
        (ConcatDataset([DATA, Plain(), DATA]), "at 0 of .* 2 times"),
        (ConcatDataset([Subset(DATA, [0, 1, 2]), ConcatDataset([Subset(DATA, [2])])]), "at 2 of .* 2 times"),
        (Plain(Plain(Subset(DATA, [3, 3]))), "at 3 of .* 2 times"),
        (Subset(ConcatDataset([Plain(), DATA]), [3, 11, 11]), "at 3 of .* 2 times"),
        (Subset(DATA, np.array([5, 6, 5], dtype=object)), "at 5 of .* 2 times"),
        (Subset(DATA, [np.int8(5), np.array(5)]), "at 5 of .* 2 times"),
        (Subset(DATA, np.array([[5], [2], [5]])), "at 5 of .* 2 times"),
        (Subset(object(), [1, 2, 1]), "at 1 of .* 2 times"),
        (Subset(Unsized(), [1, 2, 1]), "at 1 of .* 2 times"),
        (Subset(HUGE, [2**49, -(2**49)]), f"at {2**49} of .* 2 times"),
        (Subset(ConcatDataset([DATA, HUGE]), [9, -1, 2**50 + 7]), f"at {2**50 - 1} of .* 2 times"),
        (ConcatDataset([HUGE, HUGE]), "at 0 of .* 2 times"),
        (ConcatDataset([Subset(HUGE, [2**40]), HUGE]), f"at {2**40} of .* 2 times"),
        (Subset(Subset(HUGE, range(2**40, 2**40 + 8)), [0, -8]), f"at {2**40} of .* 2 times"),
    ],
)
def test_a_record_is_there_once(dataset: Any, said: str) -> None:
    with pytest.raises(hs.ParameterError, match=said):
        check_repeats(dataset)


@pytest.mark.parametrize(
    "dataset",
    [
        None,
        DATA,
        SimpleNamespace(),
        Subset(DATA, []),
        Subset(object(), [1, 2]),
        Subset(DATA, ["name", "name"]),
        Subset(DATA, range(7, -1, -1)),
        ConcatDataset([]),
        ConcatDataset([DATA, Plain()]),
        Subset(ConcatDataset([Plain(), DATA]), [3, 11]),
        Plain(Subset(DATA, [3, 4])),
        Endless(Subset(DATA, [3, 3])),
        Endless(Endless(None)),
        Subset(DATA, [100, 7, 200]),  # keys of its own
        Subset(Subset(DATA, [1, 2]), [0, 5]),  # an error when it is drawn
        Subset(DATA, [(1, 2), (2,)]),
        Subset(DATA, np.array([[1, 2], [2, 3]])),  # windows
        Subset(DATA, {1, 2}),
        Subset(Unsized(), [1, 2]),
        Subset(HUGE, [3, -1]),
        ConcatDataset([HUGE, Huge()]),
        ConcatDataset([Subset(DATA, np.array([[1], [2]])), Subset(DATA, [3])]),
        ConcatDataset([Subset(DATA, []), DATA]),
        Held(Unsized()),
        Pairs(DATA, DATA),
        Chosen([1, 2, 2]),
        Chosen([]),
    ],
)
def test_records_that_differ_are_let_pass(dataset: Any) -> None:
    check_repeats(dataset)
