"""The same on every machine: what is drawn, and what keys and checkpoints are made of, bit by bit.

Each environment below takes away from the processor, for one of the libraries that choose their code by it, what
makes it differ from an older one. A subprocess prints all results there; the numbers are compared as hex.
"""

import functools
import json
import os
import subprocess
import sys
from typing import Any

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core

PROGRAM = """
import hashlib, json
import numpy as np
import hockeystick as hs
from hockeystick.individual.cells import cell_edges
from hockeystick.montecarlo.direction import fingerprint

def exact(value):
    if isinstance(value, (float, np.floating)):
        return float(value).hex()
    if isinstance(value, (bytes, str, int)):
        return repr(value)
    array = np.ascontiguousarray(value)
    return hashlib.sha256(repr((array.shape, array.dtype.str)).encode() + array.tobytes()).hexdigest()

found = {}
wide = hs.BandedToeplitz.optimized(1024, 32)
small = hs.BandedToeplitz.optimized(64, 8)
several = hs.BandedToeplitz.optimized(100, 5, 10, None)
cooled = hs.BandedToeplitz.optimized(60, 6, workload=hs.matrix.Workload(tuple(np.linspace(1.0, 0.1, 60)), 0.9, 0.1))
scheme_aware = hs.montecarlo.optimize_strategy(hs.BMinSep(64, 8, 0.02), 2.0, 1e-5)
found["optimized"] = [exact(c) for s in (wide, small, several, cooled, scheme_aware) for c in s.coefficients]
buffered = hs.matrix.BufferedToeplitz.optimized(300, 2, 100, None)
found["optimized buffers"] = [exact(x) for pair in buffered.buffers for x in pair] + [exact(buffered.sensitivity(100, None))]
rng = np.random.Generator(np.random.PCG64(1))
columns = np.triu(rng.uniform(0.1, 1.0, (12, 12)))[:, ::-1][:, :4].copy()
columns[:, 0] += 1.0
for offset in range(1, 4):
    columns[12 - offset:, offset] = 0.0
inverse = np.where(np.arange(4) == 0, 2.0, -0.3) * np.ones((12, 1))
for offset in range(1, 4):
    inverse[12 - offset:, offset] = 0.0
strategies = {
    "toeplitz": small, "banded": hs.matrix.Banded(columns), "dense": hs.matrix.LowerTriangular(hs.matrix.Banded(columns).matrix()),
    "inverse": hs.matrix.InverseBanded([1.0, -0.5, -0.1], 40), "inverse columns": hs.matrix.InverseBanded(inverse),
    "buffers": buffered,
}
for name, strategy in strategies.items():
    found[name] = [exact(strategy._columns()), exact(strategy._stored()), exact(strategy.column_norms()),
                   exact(strategy.correlated_noise(rng.standard_normal((strategy.steps, 3))))]
    noise = hs.CorrelatedNoise(strategy, 50, 0.7, clipping_norm=1.0, seed=3)
    found[name] += [exact(noise.next()) for _ in range(strategy.steps)] + [exact(noise._fingerprint())]
scheme = hs.BMinSep(64, 8, 0.02, warm_start=True)
mechanism = hs.BandMF(small, scheme, 0.8)
poisson = hs.BandMF(hs.Identity(50), hs.Poisson(50, 0.05), 1.0)
for name, law in (("b_min_sep", mechanism), ("poisson", poisson)):
    found[name] = [exact(fingerprint(law))]
    for direction in ("remove", "add"):
        found[name].append(exact(law.sample_losses(2000, 5, direction)))
    found[name] += [exact(batch) for batch in law.batches(300, seed=9)]
    for method in ("plain", "tilted"):
        value = hs.estimate_delta(law, 1.0, 20000, seed=2, method=method)
        found[f"{name} {method}"] = [exact(value.estimate), exact(value.lower), exact(value.upper)]
filt = hs.IndividualGDPFilter(num_examples=5000, epsilon=1.0, delta=1e-5)
found["filter"] = []
for step in range(40):
    found["filter"].append(exact(filt.step(rng.uniform(0.0, 0.2, 5000))))
found["cells"] = [exact(edge) for edge in cell_edges(0.7)]
close = {}
step = hs.PoissonSampled(hs.Gaussian(1.1), 0.02)
for name, process in (
    ("sgd", step * 1000), ("one", hs.PoissonSampled(hs.Laplace(1.0), 0.1) * 30), ("gauss", hs.Gaussian(5.0) * 10),
):
    profile = hs.account(process)
    close[name] = [*profile.epsilon_bounds(1e-6), *profile.delta_bounds(1.0)]
print(json.dumps({"exact": found, "close": close}))
"""


def disabled_by_numpy() -> str:
    module = sys.modules.get("numpy._core._multiarray_umath") or sys.modules["numpy.core._multiarray_umath"]
    usable = [name for name in module.__cpu_dispatch__ if module.__cpu_features__.get(name)]
    return " ".join(usable)


ENVIRONMENTS = {
    "libm": {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-FMA,-FMA_Usable,-FMA4,-AVX512F"},
    "blas of 2004": {"OPENBLAS_CORETYPE": "Prescott"},
    "blas of 2013": {"OPENBLAS_CORETYPE": "Haswell"},
    "numpy": {"NPY_DISABLE_CPU_FEATURES": disabled_by_numpy()},
    "lanes": {"HOCKEYSTICK_LANES": "baseline"},
    "threads": {"OMP_NUM_THREADS": "1"},
}


@functools.cache
def results(**changes: str) -> Any:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        check=False,
        env={**os.environ, **changes},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_what_is_drawn_is_the_same(name: str) -> None:
    there, here = results(**ENVIRONMENTS[name]), results()
    assert there["exact"].keys() == here["exact"].keys()
    different = [key for key in here["exact"] if here["exact"][key] != there["exact"][key]]
    assert different == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_accounts_differ_in_last_digits_only(name: str) -> None:
    there, here = results(**ENVIRONMENTS[name])["close"], results()["close"]
    for key, (*epsilons, lower, upper) in here.items():
        *others, other_lower, other_upper = there[key]
        # docs/accounting/bounds.md, "On another machine".
        assert np.allclose([*epsilons, lower, upper], there[key], rtol=1e-9, atol=0.0)
        assert max(lower, other_lower) <= min(upper, other_upper)
        assert max(epsilons[0], others[0]) <= min(epsilons[1], others[1])


@pytest.mark.parametrize("wrong", ["nonsense", "AVX2", "avx2 ", "0"])
def test_unknown_lanes_are_an_error(wrong: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", "import hockeystick as hs; hs.account"],
        check=False,
        env={**os.environ, "HOCKEYSTICK_LANES": wrong},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode != 0
    assert f"HOCKEYSTICK_LANES={wrong}" in run.stderr
    assert "baseline, avx2 and avx512" in run.stderr


def test_lanes_that_were_asked_for_are_used() -> None:
    assert _core.build_config()["instruction_set"] in {"baseline", "avx2", "avx512"}
    for name, used in (("baseline", "baseline"), ("", _core.build_config()["instruction_set"])):
        run = subprocess.run(
            [sys.executable, "-c", "import hockeystick as hs; print(hs.build_config()['instruction_set'])"],
            env={**os.environ, "HOCKEYSTICK_LANES": name},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        if name or "HOCKEYSTICK_LANES" not in os.environ:
            assert run.stdout.strip() == used


def test_fingerprints_are_of_the_numbers_that_were_given() -> None:
    inverse = np.array([2.0, -0.5, -0.25])
    assert np.array_equal(hs.matrix.InverseBanded(inverse, 9)._stored(), inverse)
    assert np.array_equal(hs.matrix.Banded([[1.0, 0.5], [2.0, 0.0]])._stored(), [[1.0, 0.5], [2.0, 0.0]])
    found = hs.BandedToeplitz.optimized(64, 8)
    assert tuple(found._stored()[0].tolist()) == found.coefficients
