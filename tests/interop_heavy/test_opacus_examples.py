"""Opacus's own examples, of a checkout that OPACUS_EXAMPLES names (its folder `examples`), with one line changed."""

import os
import re
import runpy
import struct
import sys
from pathlib import Path
from typing import Any

import hockeystick as hs
import hockeystick.interop.opacus
import numpy as np
import pytest
import torch

EXAMPLES = Path(os.environ.get("OPACUS_EXAMPLES", "/nowhere"))
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        not (EXAMPLES / "mnist.py").is_file(), reason="OPACUS_EXAMPLES names no folder with Opacus's examples"
    ),
]
CHANGES = {
    "accountant": ("PrivacyEngine(", 'PrivacyEngine(accountant="hockeystick", '),
    "engine": ("from opacus import PrivacyEngine", "from hockeystick.interop.opacus import PrivacyEngine"),
}
"""The line, and what it becomes; the first one needs `import hockeystick.interop.opacus` somewhere before."""
DELTA = 1e-5


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    """Handwritten digits of scikit-learn in the files of MNIST: 600 of them, 100 to test on."""
    images, labels = pytest.importorskip("sklearn.datasets").load_digits(return_X_y=True)
    large = np.kron(images.reshape(-1, 8, 8), np.ones((3, 3)))  # 24 x 24, and a margin
    pixels = np.pad(large * 15.9, ((0, 0), (2, 2), (2, 2))).astype(np.uint8)
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, rows in (("train", slice(0, 600)), ("t10k", slice(600, 700))):
        count = rows.stop - rows.start
        for kind, header, values in (
            ("images-idx3", (2051, count, 28, 28), pixels[rows]),
            ("labels-idx1", (2049, count), labels[rows].astype(np.uint8)),
        ):
            packed = struct.pack(f">{len(header)}I", *header) + values.tobytes()
            (raw / f"{name}-{kind}-ubyte").write_bytes(packed)
    return tmp_path


def run(name: str, change: str, options: str, folder: Path, monkeypatch: Any, capfd: Any) -> str:
    """What the example prints, with one line changed."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    before, after = CHANGES[change]
    assert text.count(before) == 1
    script = folder / name
    # Since torch 2.14, Opacus's hooks and layers that work in place exclude each other, whatever the accountant.
    text = text.replace(before, after).replace("inplace=True", "inplace=False")
    script.write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [name, *options.split()])
    torch.manual_seed(0)
    runpy.run_path(str(script), run_name="__main__")
    return str(capfd.readouterr())


def spent(printed: str) -> float:
    """The last epsilon that an example printed, to two digits."""
    return float(re.findall(r"\(ε = ([\d.]+), δ", printed)[-1])


def certified(noise_multiplier: float, batches: int, epochs: int) -> float:
    step = hs.PoissonSampled(hs.Gaussian(noise_multiplier), 1.0 / batches)
    return hs.account(step * (batches * epochs)).epsilon(DELTA)


@pytest.mark.parametrize("change", CHANGES)
def test_mnist(change: str, mnist: Path, monkeypatch: Any, capfd: Any) -> None:
    options = f"--device cpu --data-root {mnist} -n 3 -b 60 --lr 0.5"
    printed = run("mnist.py", change, options, mnist, monkeypatch, capfd)
    assert spent(printed) == pytest.approx(certified(1.0, 10, 3), abs=0.005)


def test_dcgan(mnist: Path, monkeypatch: Any, capfd: Any) -> None:
    """Real and generated pictures are two passes and one step; of the 600 digits it learns from the eights."""
    labels = np.frombuffer((mnist / "MNIST/raw/train-labels-idx1-ubyte").read_bytes()[8:], np.uint8)
    options = f"--device cpu --data-root {mnist} --workers 0 --epochs 1 --batch-size 10 --ndf 8 --ngf 8 --target-digit 8"
    printed = run("dcgan.py", "accountant", options, mnist, monkeypatch, capfd)
    batches = -(-int((labels == 8).sum()) // 10)
    assert spent(printed) == pytest.approx(certified(1.0, batches, 1), abs=0.005)


@pytest.mark.parametrize("mode", ["hooks", "no_op", "per_layer"])
def test_cifar10(mode: str, tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    """The ways in which it takes gradients."""
    datasets = pytest.importorskip("torchvision.datasets")

    def pictures(*, train: bool, transform: Any, **_: Any) -> Any:
        return datasets.FakeData(160 if train else 20, (3, 32, 32), 10, transform)

    monkeypatch.setattr(datasets, "CIFAR10", pictures)
    options = "--epochs 2 --sigma 1.5 -b 20 --batch-size 20 -j 0 --print-freq 7 "
    options += "--clip_per_layer" if mode == "per_layer" else f"--grad_sample_mode {mode}"
    printed = run("cifar10.py", "engine", options, tmp_path, monkeypatch, capfd)
    assert spent(printed) == pytest.approx(certified(1.5, 8, 2), abs=0.005)


def test_names(tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    """A recurrent network; its loader has a worker."""
    folder = tmp_path / "names"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for language, letters in (("one", "abcde"), ("two", "vwxyz")):
        rows = ["".join(rng.choice(list(letters), 5)) for _ in range(100)]
        (folder / f"{language}.txt").write_text("\n".join(rows), encoding="utf-8")
    options = f"--device cpu --data-root {folder} --epochs 2 -b 16 --delta {DELTA}"
    printed = run("char-lstm-classification.py", "engine", options, tmp_path, monkeypatch, capfd)
    assert spent(printed) == pytest.approx(certified(1.0, 10, 2), abs=0.005)
