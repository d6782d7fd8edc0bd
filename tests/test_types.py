"""What type checkers make of calls that work: arrays wherever numbers are listed, in a caller's strict code."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import hockeystick as hs
import pytest

CALLS = """
import hockeystick as hs
import numpy as np
from hockeystick import accounting, individual, matrix, mechanisms, plots

a, counts, square = np.array([0.25, 0.75]), np.array([2, 3]), np.array([[0.5, 0.25]])
profile = hs.account(hs.PoissonSampled(hs.Gaussian(np.float64(1.0)), a.max()))
hs.FinitePair(a, a), hs.FinitePair([0.25, 0.75], (1, 0))
hs.PrivacyLoss(a, a)
mechanisms.DeclaredProfile(a, a)
hs.RenyiCurve(1.0 + a, a)
hs.Mixture([hs.Gaussian(1.0), hs.Laplace(1.0)], a)
hs.MixtureOfGaussians(1.0, a, a)
hs.BandedToeplitz(a[::-1], 8), hs.BandedToeplitz((1.0, 0.5), 8)
matrix.InverseBanded(np.array([1.0, -0.5]), 8), matrix.Banded(np.array([[1.0, 0.5], [1.0, 0.0]])), matrix.LowerTriangular(np.eye(2))
matrix.BufferedToeplitz(square, 8), matrix.BufferedToeplitz([(0.5, 0.25)], 8)
matrix.Workload(a), matrix.Workload(1.0)
mechanisms.cyclic_poisson(a, 2, 0.1, 1.0)
profile.delta_curve(a), profile.rough_curve(a), profile.tradeoff(a), profile.risk.table(a)
hs.grid_epsilon(a, a, counts, a), hs.grid_delta([1.0, 2.0], 0.1, [2, 3], 1.0)
accounting.rdp_curve(hs.Gaussian(1.0), 1.0 + a)
individual.summarise(a)
"""


def test_arrays_are_taken_where_numbers_are_listed(tmp_path: Path) -> None:
    """A strict checker refused NumPy's arrays for the pair of any mechanism."""
    pytest.importorskip("mypy")
    (path := tmp_path / "calls.py").write_text(CALLS, encoding="utf-8")
    runpy.run_path(str(path))  # what is annotated works
    # A copy that is not installed is read without its own errors, as an installed one is.
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache"), str(path)],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": "" if "site-packages" in str(hs.__file__) else str(Path(hs.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout
