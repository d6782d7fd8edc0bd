"""``hockeystick doctor``: what is installed, and whether it computes what is known."""

from __future__ import annotations

import argparse
import math
import platform
import tempfile
import zlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .. import _core
from ..accounting.accountant import Accountant
from ..accounting.profile import account
from ..matrix.schemes import Poisson
from ..mechanisms.descriptions import Gaussian, PoissonSampled, RandomizedResponse

EXAMPLES = ("hockeystick doctor",)
_DRAWN = 3116282944  # checksum of the batches of seed 7; proof of the same bits: tests/sampling
_NEEDED = ("numpy", "scipy", "tqdm")
_EXTRAS = (
    *("matplotlib", "pyarrow", "torch", "opacus", "dp-accounting", "flwr", "jax-privacy"),
    *("distributed", "mpi4py", "shtab", "python-flint"),
)


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Prints versions, how the core was built and what it runs on, and compares a few answers with "
        "what is known. Exit code 1 if one is wrong. Put its output into a bug report."
    )


def run(options: argparse.Namespace) -> int:
    build = _core.build_config()
    print(f"hockeystick {_core.__version__}, Python {platform.python_version()}, {platform.platform()}")
    print("needs:", ", ".join(f"{name} {_installed(name)}" for name in _NEEDED))
    print("extras:", ", ".join(f"{name} {_installed(name)}" for name in _EXTRAS))
    print(f"core: {build['compiler']}, {build['build_type']}, FFT {build['fft']}")
    print(f"lanes: {build['instruction_set']}; threads: {_core.max_threads()}; OpenMP: {build['openmp']}")
    wrong = 0
    for what, check in _CHECKS.items():
        passed = check()
        wrong += not passed
        print(f"{'ok' if passed else 'WRONG'}: {what}")
    return min(wrong, 1)


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "-"


def _within(lower: float, truth: float, upper: float, slack: float = 1e-12) -> bool:
    """Whether bounds hold, and are no wider than they should be; the truth is known up to ``slack``."""
    return lower <= truth * (1 + slack) and truth * (1 - slack) <= upper <= lower * (1 + 2e-3)


def _closed_form() -> bool:
    # 420 Gaussians of sigma 100: both digits of epsilon and delta from 30-digit arithmetic.
    lower, upper = account(Gaussian(100.0) * 420).epsilon_bounds(1e-5)
    return _within(lower, 0.74513823552116571, upper)


def _reference() -> bool:
    lower, upper = account(PoissonSampled(Gaussian(1.0), 0.01) * 1000).epsilon_bounds(1e-5)
    return _within(lower, 1.82823667, upper, 1e-8)


def _enumeration() -> bool:
    budget, count, epsilon = 0.4, 30, 2.0
    yes = 1.0 / (1.0 + math.exp(-budget))
    delta = math.fsum(
        math.comb(count, k)
        * yes**k
        * (1.0 - yes) ** (count - k)
        * max(0.0, -math.expm1(epsilon - (2 * k - count) * budget))
        for k in range(count + 1)
    )
    lower, upper = account(RandomizedResponse(budget) * count).delta_bounds(epsilon)
    return _within(lower, delta, upper)


def _same_draws() -> bool:
    batches = Poisson(steps=5, sampling_probability=0.1).batches(1000, seed=7)
    return zlib.crc32(b"".join(batch.astype("<i8").tobytes() for batch in batches)) == _DRAWN


def _ledger() -> bool:
    ledger = Accountant()
    ledger.step(PoissonSampled(Gaussian(1.1), 0.01), 300)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        ledger.save(path)
        return Accountant.load(path).epsilon_bounds(1e-5) == ledger.epsilon_bounds(1e-5)


_CHECKS = {
    "Gaussian noise has its closed form": _closed_form,
    "1000 steps of DP-SGD have the epsilon of tests/references": _reference,
    "30 randomized responses have the delta that enumeration gives": _enumeration,
    "a seed draws the batches that it draws on every machine": _same_draws,
    "a ledger is what it was after a way over the disk": _ledger,
}
