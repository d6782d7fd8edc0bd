"""Samplers in training loops: the NumPy example, and PyTorch's loader (a stand-in, or the library where installed)."""

from __future__ import annotations

import itertools
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick.interop.torch import BatchLoader

ROOT = Path(__file__).parents[2]


def run(*command: str) -> str:
    """What a script prints, with stand-ins for libraries that are not installed."""
    code = "import runpy, sys; sys.path.append(sys.argv[1]); sys.argv = sys.argv[2:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "tests" / "stand_ins"), *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_numpy_example() -> None:
    printed = run(str(ROOT / "examples" / "batches_loop.py"), "--seed", "1")
    accuracy = re.search(r"accuracy (0\.\d+) after 120 steps", printed)
    assert accuracy is not None
    assert 0.8 < float(accuracy[1]) < 1.0
    assert "given by the caller" in printed


def test_torch_example() -> None:
    printed = run(str(ROOT / "examples" / "interop" / "torch_loader.py"))
    assert "steps: 30 of 30" in printed
    assert "resumed at step 10; the same batches: True" in printed


class Numbers:
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        assert 0 <= index < self.size
        return np.array([index, -index]), np.array(index)


def indices(batch: Any) -> list[int]:
    return [int(i) for i in batch[1]]


def test_loader() -> None:
    scheme = hs.BMinSep(40, 3, 0.03)
    drawn = [batch.tolist() for batch in scheme.batches(50, 4)]
    assert [] in drawn
    loader = BatchLoader(Numbers(50), scheme.batches(50, 4))
    assert len(loader) == 40
    seen = []
    # Passes of any length, each going on where the last one ended.
    for count in (3, 0, 11, 100):
        for batch in itertools.islice(loader, count):
            assert batch[0].shape == (len(batch[1]), 2)
            seen.append(indices(batch))
            state = loader.state_dict()
            assert state["step"] == loader.step == len(seen)
    assert seen == drawn
    assert list(loader) == []
    for other in (loader, BatchLoader(Numbers(50), scheme.batches(50, 4))):
        other.load_state_dict({**state, "step": 17})
        assert [indices(batch) for batch in other] == drawn[17:]
    # Moving it ends the pass that is under way, whose workers are ahead.
    loader.load_state_dict({**state, "step": 17})
    under_way = iter(loader)
    assert indices(next(under_way)) == drawn[17]
    loader.load_state_dict({**state, "step": 3})
    assert list(under_way) == []
    assert loader.step == 3
    assert [indices(batch) for batch in loader] == drawn[3:]
    with pytest.raises(hs.ParameterError, match="another seed"):
        BatchLoader(Numbers(50), scheme.batches(50, 5)).load_state_dict(state)


def test_a_batch_that_cannot_be_read_is_tried_again() -> None:
    """The step after it was handed out under its number, so that after resuming one batch came twice and one never."""
    scheme = hs.Poisson(12, 0.2)
    drawn = [batch.tolist() for batch in scheme.batches(50, 4)]
    failing = [drawn[3][0], drawn[3][-1], drawn[7][0]]

    class Unreliable(Numbers):
        def __getitem__(self, i: int) -> Any:
            if loader is not None and loader.step in (3, 7) and i in failing:
                failing.remove(i)
                raise OSError("a disk that is away for a moment")
            return super().__getitem__(i)

    loader: BatchLoader | None = None
    loader = BatchLoader(Unreliable(50), scheme.batches(50, 4))
    seen, errors = [], 0
    under_way = iter(loader)
    while loader.step < 12:
        try:
            seen.append(indices(next(under_way)))
        except OSError:
            errors += 1
            assert loader.state_dict()["step"] == len(seen)
    assert errors == 3
    assert seen == drawn
    assert list(under_way) == []


def test_empty_batches() -> None:
    def collate(examples: list[Any]) -> dict[str, Any]:
        columns = list(zip(*examples, strict=True))
        return {
            "pair": np.stack(columns[0]),
            "names": ["text"] * len(examples),
            "both": (np.stack(columns[1]),),
        }

    none = hs.Poisson(2, 0.0)
    batches = list(BatchLoader(Numbers(5), none.batches(5, 1), collate_fn=collate))
    assert len(batches) == 2
    for batch in batches:
        assert batch["pair"].shape == (0, 2)
        assert batch["names"] == []
        assert batch["both"][0].shape == (0,)
    with pytest.raises(hs.ParameterTypeError, match="empty"):
        BatchLoader(Numbers(5), none.batches(5, 1), collate_fn=lambda examples: object())
    with pytest.raises(hs.ParameterTypeError, match="empty"):
        BatchLoader(Numbers(5), none.batches(5, 1), collate_fn=lambda examples: {"x": np.array(0.0)})
    assert list(BatchLoader(Numbers(5), none.batches(5, 1), collate_fn=lambda examples: 1, empty=0)) == [0, 0]


def test_refusals() -> None:
    sampler = hs.Poisson(2, 0.5).batches(5, 1)
    with pytest.raises(hs.ParameterError, match="dataset"):
        BatchLoader(Numbers(6), sampler)
    with pytest.raises(hs.ParameterTypeError, match="sampler"):
        BatchLoader(Numbers(5), [[1]])  # type: ignore[arg-type]
    with pytest.raises(hs.ParameterError, match="in_order = False"):
        BatchLoader(Numbers(5), sampler, in_order=False)
    for name in ("batch_size", "shuffle", "batch_sampler", "drop_last"):
        with pytest.raises(hs.ParameterTypeError, match=name):
            BatchLoader(Numbers(5), sampler, **{name: 1})
    padded = (hs.TruncatedPoissonSampled(1.0, 5, 0.5, 2) * 2).batches(pad=True)
    with pytest.raises(hs.ParameterError, match="padded"):
        BatchLoader(Numbers(5), padded)


class Subset:
    """Known by its name, as the one of torch is."""

    def __init__(self, dataset: Any, indices: list[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]


def test_records_that_are_there_several_times_are_refused() -> None:
    """Each copy is drawn by itself, and moves the sum as far as one record may."""
    scheme, places = hs.Poisson(4, 0.5), [0, 1, 2, 3, 4]
    with pytest.raises(hs.ParameterError, match=r"dataset: has a record, at 3 .* 2 times"):
        BatchLoader(Subset(Numbers(5), [0, 3, 1, 2, 3]), scheme.batches(5))
    loader = BatchLoader(Subset(Numbers(5), places), scheme.batches(5))
    next(iter(loader))
    places[1] = 0
    with pytest.raises(hs.ParameterError, match=r"at 0 .* 2 times"):
        iter(loader)
    # Where the sampler knows whose they are, all of a user's are accounted for.
    graph = hs.AttributionGraph.from_lists([["ann"], ["bob"], ["ann"]])
    owned = hs.BMinSep(4, 1, 0.5, examples_per_user=2).batches(graph=graph)
    assert len(list(BatchLoader(Subset(Numbers(3), [0, 1, 0]), owned))) == 4


def test_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "sampling" / "batches.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 7
    script = tmp_path / "batches.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    runpy.run_path(str(script))
