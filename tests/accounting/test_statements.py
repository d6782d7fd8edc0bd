"""Statements are of the run that was asked about, and their numbers read back as they are: one that rounds noise down or a rate up is false."""

from __future__ import annotations

import json
import re
from pathlib import Path

import hockeystick as hs
import pytest
from hockeystick._base.bounds import exactly
from hockeystick.matrix import FixedOrder
from hockeystick.mechanisms import Group, from_dict, to_dict
from hypothesis import given
from hypothesis import strategies as st

NOISE, RATE, DELTA = 1.225300677, 0.0123456789012, 1.2345674e-5


@given(st.floats(min_value=0.0, allow_infinity=False))
def test_exact_numbers_read_back(value: float) -> None:
    assert float(exactly(value)) == value


@pytest.mark.parametrize(
    ("released", "numbers"),
    [
        (hs.PoissonSampled(hs.Gaussian(NOISE), RATE) * 10, [NOISE, RATE]),
        (hs.TruncatedPoissonSampled(NOISE, 1000, RATE, 60) * 10, [NOISE, RATE]),
        (hs.mechanisms.TruncatedPoissonGroup(NOISE, 1000, RATE, 60, groups=2) * 10, [NOISE, RATE]),
        (hs.dp_sgd(NOISE, 60_001, 256, epochs=1.23456789), [NOISE, 256 / 60_001, 1.23456789]),
        (
            hs.PrivateSelection(
                hs.PoissonSampled(hs.Gaussian(NOISE), RATE), hs.Repetitions.poisson(9.87654321)
            ),
            [NOISE, RATE, 9.87654321],
        ),
    ],
    ids=lambda part: type(part).__name__,
)
def test_statements_round_in_no_direction(released: hs.mechanisms.Composable, numbers: list[float]) -> None:
    report = hs.account(released, accuracy=1e-3).report(delta=DELTA)
    said = {float(text) for text in re.findall(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", report.statement())}
    assert {*numbers, DELTA} <= said


BANDED = hs.BandedToeplitz.square_root(64, 4)
CYCLIC = hs.BandMF(BANDED, hs.CyclicPoisson(64, 4, 0.05), 2.0)
KEPT = "one record is added or removed, all others staying in their groups"


def of(released: hs.mechanisms.Composable, adjacency: str = "add_or_remove") -> hs.accounting.Report:
    return hs.account(released, adjacency, accuracy=1e-2).report(delta=1e-5, risks=False)


@pytest.mark.parametrize(
    ("strategy", "scheme", "taking_part"),
    [
        (BANDED, hs.CyclicPoisson(64, 4, 0.05), "4 fixed groups, which take turns"),
        (BANDED, hs.CyclicPoisson(64, 4, 0.05, group=2), "group = 2"),
        (
            BANDED,
            hs.CyclicPoisson(64, 4, 0.05, None, 1000, 30),
            "dataset_size = 1000, max_batch_size = 30",
        ),
        (
            hs.Identity(64),
            hs.CyclicPoisson(64, 1, 0.05),
            "1 fixed groups, which take turns",
        ),
        (hs.Identity(64), hs.Poisson(64, 0.05), "independent Poisson sampling with probability 0.05"),
        (hs.Identity(64), hs.BallsInBins(64, 16), "one of 16 places, the same in every epoch"),
        (BANDED, FixedOrder(64, 4), "all records of one of 4 fixed groups, which take turns"),
    ],
)
def test_a_matrix_mechanism_is_described_as_it_is_and_not_as_what_dominates_it(
    strategy: hs.matrix.Strategy, scheme: hs.matrix.Scheme, taking_part: str
) -> None:
    """64 steps of four groups were stated as 16 steps of independent Poisson sampling from all records."""
    described = hs.BandMF(strategy, scheme, 2.0)
    report = of(described, "zero_out")
    assert report.steps == 64
    (sampler,) = report.samplers
    assert taking_part in sampler
    assert sampler.endswith("(64 steps)")
    assert "standard deviation of the noise that is added to strategy" in report.noise[0]
    text = report.statement()
    assert text.startswith(
        f"The release consists of {described}. It is accounted as {report.composition}, which dominates it."
    )
    assert ("each record is in each batch by a coin of its own" in text) == ("independent" in taking_part)
    assert hs.account(described, "zero_out").delta(1.0) == hs.account(
        hs.mechanisms.Process(described.as_process().items), "zero_out"
    ).delta(1.0)


def test_parts_of_a_composition_keep_their_own_words() -> None:
    report = of(CYCLIC * 2 + hs.PoissonSampled(hs.Gaussian(3.0), 0.25) * 5)
    assert report.steps == 133
    assert (
        report.details
        == f"{CYCLIC} * 2 + PoissonSampled(mechanism=Gaussian(noise_multiplier=3.0), sampling_probability=0.25) * 5"
    )
    assert [sampler.rpartition(" (")[2] for sampler in report.samplers] == ["128 steps)", "5 steps)"]
    assert report.dominated == (f"{CYCLIC} is accounted as {of(CYCLIC).composition}, which dominates it.",)
    assert of(hs.PoissonSampled(hs.Gaussian(3.0), 0.25) * 5).dominated == ()
    wrapped = [Group(CYCLIC, 1), hs.Mixture([Group(CYCLIC, 1), hs.Gaussian(2.0)], [0.5, 0.5])]
    assert [of(each).dominated for each in wrapped] == [report.dominated] * 2


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("released", "steps", "taking_part", "accounted"),
    [
        (hs.RandomAllocation(2.0, 10), 10, "in one of its 10 steps", None),
        (hs.RandomAllocation(2.0, 10) * 3, 30, "in one of its 10 steps", None),
        (
            hs.RandomAllocation(2.0, 10, participations=3),
            10,
            "in 3 of its 10 steps",
            "RandomAllocation(noise_multiplier=2.0, steps=3, participations=1) * 3",
        ),
        (hs.dp_sgd(2.0, 100, 10, epochs=2, sampler="random_allocation"), 20, "in one of its 10 steps", None),
        (
            hs.dp_sgd(2.0, 100, 10, steps=15, sampler="random_allocation"),
            15,
            "in one of its 10 steps",
            "RandomAllocation(noise_multiplier=2.0, steps=10, participations=1) * 2",
        ),
        (Group(CYCLIC, 2), 64, "4 fixed groups", "sampling_probability=0.05) * 16"),
        (
            hs.PrivateSelection(CYCLIC, hs.Repetitions.poisson(3.0)),
            64,
            "4 fixed groups",
            "sampling_probability=0.05) * 16",
        ),
        (hs.UserLevel(hs.PoissonSampled(hs.Gaussian(4.0), 0.1), 3) * 7, 7, "probability 0.1", None),
        (hs.TruncatedPoissonSampled(2.0, 100, 0.1, 20) * 7, 7, "probability 0.1 from 100 records", None),
    ],
)
def test_numbers_are_those_of_the_run_or_said_to_be_of_what_dominates_it(
    released: hs.mechanisms.Composable, steps: int, taking_part: str, accounted: str | None
) -> None:
    report = of(released, "zero_out")
    assert report.steps == steps
    (sampler,) = report.samplers
    assert taking_part in sampler
    assert sampler.endswith(f"({steps} steps)")
    assert len(report.dominated) == (accounted is not None)
    assert (
        accounted is None
        or f"accounted as {accounted}" in report.statement()
        or f"{accounted}, which dominates it" in report.statement()
    )


def test_a_removed_record_leaves_the_others_in_their_groups_wherever_the_mechanism_goes(
    tmp_path: Path,
) -> None:
    """Composed or kept in a ledger, the description was lost, and with it what its guarantee takes for granted."""
    ledger = hs.Accountant()
    ledger.step(hs.Gaussian(50.0))
    ledger.step(CYCLIC, steps=2)
    ledger.save(tmp_path / "ledger")
    loaded = hs.Accountant.load(tmp_path / "ledger")
    merged = hs.Accountant()
    merged.merge(loaded)
    profile = hs.account(CYCLIC + hs.Gaussian(50.0))
    profile.save(tmp_path / "profile")
    kept = [
        of(CYCLIC),
        of(sum([CYCLIC, hs.Gaussian(50.0)], hs.mechanisms.Process())),
        of(from_dict(json.loads(json.dumps(to_dict(hs.Gaussian(50.0) + CYCLIC * 2))))),
        *(each.report(delta=1e-5) for each in (ledger, loaded, merged)),
        hs.PrivacyProfile.load(tmp_path / "profile").report(delta=1e-5, risks=False),
        of(hs.PrivateSelection(CYCLIC, hs.Repetitions.poisson(3.0))),
    ]
    for report in kept:
        assert f'"add_or_remove" ({KEPT})' in report.statement()
        (note,) = report.notes
        assert "by places in the data" in note
    assert ledger.process == loaded.process == hs.Gaussian(50.0) + CYCLIC * 2
    assert loaded.report(delta=1e-5).details == f"{CYCLIC} * 2 + Gaussian(noise_multiplier=50.0) * 1"
    assert loaded.epsilon(1e-5) == ledger.epsilon(1e-5)
    assert (
        "with at most 2 records is added or removed, all others staying in their groups"
        in of(Group(CYCLIC, 2)).unit
    )
    for other in (
        of(CYCLIC + hs.Gaussian(50.0), "zero_out"),
        of(hs.BandMF(hs.Identity(64), hs.Poisson(64, 0.05), 2.0) * 2),
    ):
        assert "groups" not in other.unit
        assert other.notes == ()


def test_a_run_is_composed_and_is_no_part_of_one_step() -> None:
    ((run, _),) = CYCLIC.as_process().given
    assert hs.account(run).delta_bounds(1.0) == hs.account(CYCLIC).delta_bounds(1.0)
    with pytest.raises(hs.ParameterError, match="composition of 16"):
        hs.Mixture([run], [1.0])
    ((alone, _),) = hs.BandMF(hs.Identity(4), hs.BallsInBins(4, 4), 1.0).as_process().given
    with pytest.raises(hs.ParameterError, match="must be composed"):
        hs.account(hs.Mixture([alone], [1.0])).delta(1.0)


def test_what_was_declared_of_a_record_is_in_the_statement() -> None:
    """ "one label" beside "one record is replaced by another" did not say that these are the same."""
    report = of(hs.RandomizedResponse(1.0, num_categories=3), "replace_one")
    assert "As declared" not in report.statement()
    assert 'As declared, "one record" is here: one label.' in report.declare(unit="one label").statement()
    users = of(hs.UserLevel(hs.Gaussian(4.0), 3))
    assert "As declared" not in users.statement()
    assert (
        'As declared, "one user" is here: one household.' in users.declare(unit="one household").statement()
    )


def test_less_than_an_epoch_of_steps_is_noted() -> None:
    """60 steps, meant as 60 epochs, were accounted for as said: epsilon = .25, and not a word."""
    (note,) = of(hs.dp_sgd(1.0, 60_000, 256, steps=60)).notes
    assert "less than one epoch of 60000: if they are epochs, give epochs" in note
    for run in (
        hs.dp_sgd(1.0, 60_000, 256, steps=235),
        hs.dp_sgd(1.0, 60_000, 64, steps=235, world_size=4),
        hs.dp_sgd(1.0, 60_000, 256, epochs=0.5),
        hs.dp_sgd(1.0, 60_000, 256, steps=0),
    ):
        assert of(run).notes == ()
