"""BatchLoader on the real PyTorch, with workers; and the JAX loop against the NumPy one."""

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import hockeystick as hs
import pytest
import torch
from hockeystick.interop.torch import BatchLoader
from torch.utils.data import TensorDataset

pytestmark = pytest.mark.filterwarnings("ignore")

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SCHEME = hs.BMinSep(steps=40, min_sep=3, sampling_probability=0.03)
DATA = TensorDataset(torch.arange(100.0).reshape(50, 2), torch.arange(50))


def loader(**options: Any) -> BatchLoader:
    return BatchLoader(DATA, SCHEME.batches(50, 4), **options)


def test_this_is_the_real_one() -> None:
    assert "stand_ins" not in str(torch.__file__)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_and_checkpoints(workers: int) -> None:
    drawn = [batch.tolist() for batch in SCHEME.batches(50, 4)]
    assert [] in drawn
    options = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
    used = loader(**options)
    seen = []
    for count in (3, 11, 100):  # workers have drawn ahead at the end of each pass
        for x, y in itertools.islice(used, count):
            assert x.shape == (len(y), 2)
            assert x.dtype == torch.float32
            seen.append(y.tolist())
            assert used.state_dict()["step"] == len(seen)
    assert seen == drawn
    resumed = loader(**options)
    resumed.load_state_dict({**used.state_dict(), "step": 17})
    assert [y.tolist() for _, y in resumed] == drawn[17:]


def test_gradients_of_an_empty_batch() -> None:
    """A model takes it, and its sum of gradients is zero."""
    model = torch.nn.Linear(2, 1)
    x, _ = next(iter(BatchLoader(DATA, hs.Poisson(1, 0.0).batches(50))))
    model(x).sum().backward()
    assert model.weight.grad is not None
    assert not model.weight.grad.any()


def test_dictionaries() -> None:
    records = [{"x": torch.zeros(3), "name": "a"} for _ in range(5)]
    (batch,) = BatchLoader(records, hs.Poisson(1, 0.0).batches(5))
    assert batch["x"].shape == (0, 3)
    assert batch["name"] == []


def test_example() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "interop" / "torch_loader.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "the same batches: True" in done.stdout


def test_jax_loop() -> None:
    pytest.importorskip("jax")
    printed = [
        subprocess.run(
            [sys.executable, str(EXAMPLES / "batches_loop.py"), "--seed", "1", *options],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[0]
        for options in ([], ["--jax"])
    ]
    one, other = (float(line.split()[1]) for line in printed)
    assert abs(one - other) < 0.01  # single precision
    assert one > 0.8
