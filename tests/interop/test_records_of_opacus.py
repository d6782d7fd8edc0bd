"""Records that are several times in the data set of an Opacus run."""

from types import SimpleNamespace
from typing import Any

import hockeystick as hs
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


DATA = Plain()


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
    ],
)
def test_records_that_differ_are_let_pass(dataset: Any) -> None:
    check_repeats(dataset)
