"""Records that are several times in the data set of an Opacus run."""

from types import SimpleNamespace
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
import torch
from hockeystick.interop.repeats import check_repeats

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


class Kept(Records):  # type: ignore[misc, unused-ignore]
    """Records in memory, and what is done to them."""

    def __init__(self, rows: Any, change: Any = abs, **more: Any) -> None:
        self.rows, self.change = rows, change
        self.__dict__.update(more)

    def __len__(self) -> int:
        return len(self.rows)


DATA, HUGE = Plain(), Huge()
ROWS, LABELS, FILES = np.arange(40.0).reshape(20, 2), np.arange(20) % 3, [f"{i}.png" for i in range(20)]


class Column:
    """Numbers of Arrow: where they lie, and how many of them are passed over."""

    def __init__(self, offset: int, *addresses: int | None) -> None:
        self.offset = offset
        self._buffers = [each and SimpleNamespace(address=each) for each in addresses]

    def buffers(self) -> list[Any]:
        return self._buffers


class Rows:
    """Without a class of torch's, as those of Hugging Face: ``chunks`` hold a number of rows and their columns."""

    def __init__(self, *chunks: tuple[Any, ...], indices: Any = None) -> None:
        batches = [SimpleNamespace(num_rows=rows, columns=columns) for rows, *columns in chunks]
        self.data = SimpleNamespace(to_batches=lambda: batches)
        self._rows = sum(batch.num_rows for batch in batches)
        self._indices: Any = None
        if indices is not None:
            self._rows = len(indices)
            numbers = SimpleNamespace(to_numpy=lambda: np.array(indices, np.uint64))
            self._indices = SimpleNamespace(column=lambda _: numbers)

    def __len__(self) -> int:
        return self._rows


TEN, OTHER, BEGIN, END = (
    (10, Column(0, None, 64)),
    (10, Column(0, None, 128)),
    (6, Column(0, 64)),
    (4, Column(6, 64)),
)


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
        (Rows(TEN, indices=[3, 5, 3]), "at 3 of .* 2 times"),  # select
        (Rows(TEN, OTHER, TEN), "at 0 of .* 2 times"),  # concatenate_datasets
        (Rows(OTHER, (6, Column(0, 64)), (5, Column(5, 64))), "at 5 of .* 2 times"),
        (Rows(TEN, OTHER, indices=[0, 10, 1, 11, 0]), "at 0 of .* 2 times"),  # interleave_datasets
        (Rows(TEN, TEN, indices=[4, 14]), "at 4 of .* 2 times"),  # of shuffled ones
        (Rows((10, Column(2, 64), Column(7, 96)), (3, Column(9, 64), Column(14, 96))), "at 9 of .* 2 times"),
        (Subset(Rows(TEN, TEN), [7, -3]), "at 7 of .* 2 times"),
        (ConcatDataset([Rows(TEN), Rows(TEN, indices=[5])]), "at 5 of .* 2 times"),
        (Plain(Rows(TEN, indices=[1, 1])), "at 1 of .* 2 times"),
        # Other data sets over the same memory, or read again.
        (ConcatDataset([Kept(ROWS), Kept(ROWS, str, seed=1)]), "at 0 of .* 2 times"),
        (ConcatDataset([Kept(ROWS[:12]), Kept(ROWS[11:])]), "at 11 of .* 2 times"),
        (ConcatDataset([Kept(ROWS[5:]), Subset(Kept(ROWS), [3, 7])]), "at 7 of .* 2 times"),
        (ConcatDataset([Kept((ROWS, LABELS)[0]), Kept(ROWS, labels=LABELS)]), "at 0 of .* 2 times"),
        (ConcatDataset([Kept(FILES), Kept(FILES, str, seed=1)]), "at 0 of .* 2 times"),
        (
            ConcatDataset([Kept(list(FILES), root="a"), Subset(Kept(list(FILES), str, root="a"), [4])]),
            "at 4 of .* 2 times",
        ),
        (
            ConcatDataset([Kept(ROWS.copy(), root="a"), Kept(ROWS.copy(), str, root="a")]),
            "at 0 of .* 2 times",
        ),
    ],
)
def test_a_record_is_there_once(dataset: Any, said: str) -> None:
    with pytest.raises(hs.ParameterError, match=said):
        check_repeats("data_loader.dataset", dataset)


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
        Rows(TEN, OTHER),
        Rows(BEGIN, END),
        Rows(BEGIN, OTHER, END, indices=[0, 6, 15, 16, 19]),
        Rows((10, Column(0, 64), Column(0, 96)), (10, Column(0, 64), Column(10, 96))),
        Rows((0,)),
        Rows((10, Column(0, None)), (10, Column(0, None))),  # nothing but nulls, which lie nowhere
        Rows(TEN, (0, Column(0, 64))),
        Rows(TEN, indices=[]),
        Subset(Rows(TEN, OTHER), [3, -7]),
        ConcatDataset([Rows(TEN, indices=[5, 7]), Rows(TEN, indices=[6])]),
        Plain(Rows(TEN, indices=[2, 1])),
        Chosen([1, 2, 2]),
        Chosen([]),
        ConcatDataset([Kept(ROWS[:12]), Kept(ROWS[12:])]),
        ConcatDataset([Kept(ROWS, labels=LABELS), Kept(ROWS + 1, labels=LABELS)]),
        ConcatDataset([Kept(ROWS[:, :1]), Kept(ROWS[:, 1:])]),
        ConcatDataset([Subset(Kept(list(FILES)), [1, 3]), Subset(Kept(list(FILES), str), [2, 4])]),
        ConcatDataset([Kept(list(FILES), root="a"), Kept(list(FILES), root="b")]),
        ConcatDataset([Kept(FILES, labels=LABELS), Kept([*FILES[1:], "x"], labels=LABELS)]),
        Kept(np.broadcast_to(ROWS[0], (20, 2))),
        Kept(ROWS[::-1]),
        ConcatDataset([Kept(ROWS[:0]), Kept(ROWS[:0])]),
    ],
)
def test_records_that_differ_are_let_pass(dataset: Any) -> None:
    check_repeats("data_loader.dataset", dataset)
