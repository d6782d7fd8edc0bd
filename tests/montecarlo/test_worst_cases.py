"""Mechanisms of many worst cases: one of them is held at a time, all share a failure probability, and too many are refused."""

import gc
import json
import weakref

import hockeystick as hs
import pytest
from hockeystick.matrix import min_sep
from hockeystick.montecarlo import direction, estimate
from hockeystick.montecarlo.confidence import shared_confidence
from hockeystick.montecarlo.runs import RunOptions

LAWS = pytest.mark.parametrize("law", ["dominating", "exact"])


def users(examples, law="dominating", steps=10, p=0.01):
    scheme = hs.matrix.MultiAttributionBMinSep(steps, 3, p, examples, law)
    return hs.BandMF(hs.BandedToeplitz([1.0, 0.5, 0.2], steps), scheme, 1.0)


@pytest.fixture
def alive(monkeypatch):
    """The largest number of directions, and of their samplers, that ever lived together."""
    living, most = weakref.WeakSet(), {"directions": 0, "mechanisms": 0}
    begin = direction.Direction.__init__

    def counted(self, *args, **options):
        begin(self, *args, **options)
        gc.collect()
        living.add(self)
        with_samplers = {id(each.mechanism) for each in living if each.mechanism._samplers}
        most["directions"] = max(most["directions"], len(living))
        most["mechanisms"] = max(most["mechanisms"], len(with_samplers))

    monkeypatch.setattr(direction.Direction, "__init__", counted)
    gc.freeze()  # Whatever is there already need not be searched at each of the collections.
    yield most
    gc.unfreeze()


@LAWS
@pytest.mark.parametrize("method", ["plain", "auto"])
def test_few_directions_are_alive_at_once(law, method, alive):
    found = hs.estimate_delta(users(12, law), 1.0, 100, seed=1, method=method)
    assert len(found.directions) == 24
    assert [entry.case for entry in found.directions] == [k // 2 for k in range(24)]
    # The first case, the last one that was looked at, and the one that is made.
    assert alive["directions"] <= 4
    assert alive["mechanisms"] <= 3


def test_verdicts_hold_one_case_at_a_time(alive):
    strategy, scheme = users(6).strategy, users(6).scheme
    found = hs.calibrate_bandmf(
        strategy, scheme, 4.0, 0.05, seed=1, candidates=(3.0,), fallback="unamplified"
    )
    assert len(found.verifications[0].means) == 12
    assert alive["directions"] <= 2
    assert alive["mechanisms"] <= 2


@pytest.mark.sweep
@LAWS
@pytest.mark.parametrize("method", ["plain", "auto", "tilted"])
def test_estimates_are_those_of_all_cases_made_at_once(law, method):
    mechanism, options = users(3, law, p=0.1), RunOptions.of("zero_out")
    found = hs.estimate_delta(mechanism, 0.5, 2000, seed=7, method=method)
    plans = list(direction.cases(mechanism, 0.5, options))
    sampled = sum(plan.bound > 0.0 for plan in plans)
    asked = estimate._Asked(2000, method, 7, sampled, shared_confidence(0.99, sampled))
    expected = [estimate._estimate(plan, asked, options, 0) for plan in plans]
    assert found.directions == tuple(expected)
    assert 0 < sampled == direction.sampled_cases(mechanism, 0.5, options)


def test_the_failure_probability_is_shared_by_those_that_are_sampled():
    # Direction "add" of fewer examples is 0 for certain at this epsilon.
    mechanism, epsilon = users(3), 0.15
    plans = list(direction.cases(mechanism, epsilon, RunOptions.of("zero_out")))
    sampled = sum(plan.bound > 0.0 for plan in plans)
    assert 3 < sampled < 6
    found = hs.estimate_delta(mechanism, epsilon, 600, seed=1, method="plain", confidence=0.9)
    drawn = [entry for entry in found.directions if entry.samples]
    assert len(drawn) == sampled
    for entry in drawn:
        assert entry.evidence["failure_probability"] == pytest.approx(0.5 * 0.1 / sampled, rel=1e-12)


@LAWS
@pytest.mark.parametrize("examples", [65, 65536])
def test_more_cases_than_there_is_time_for_are_refused_at_once(law, examples, monkeypatch, tmp_path):
    monkeypatch.setattr(direction.Direction, "__init__", lambda *_, **__: pytest.fail("work was done"))
    mechanism = users(examples, law)
    message = rf"examples_per_user = {examples}: must be an integer in \[1, 64\]"
    with pytest.raises(hs.ParameterError, match=message):
        hs.estimate_delta(mechanism, 1.0, 100, seed=1, checkpoint=tmp_path / "run")
    monkeypatch.setattr("hockeystick.montecarlo.bandmf_calibration._budgeted", lambda *_: pytest.fail("work"))
    with pytest.raises(hs.ParameterError, match=message):
        hs.calibrate_bandmf(mechanism.strategy, mechanism.scheme, 1.0, 1e-3, checkpoint=tmp_path / "run")
    graph = hs.AttributionGraph.from_lists([["ann"], ["bob"]])
    with pytest.raises(hs.ParameterError, match=message):
        hs.plan_training(
            mechanism.scheme, 2, strategy=mechanism.strategy, graph=graph, epsilon=1.0, delta=1e-3
        )
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").iterdir())


def test_what_is_refused_is_still_drawn_and_evaluated():
    mechanism = users(1000)
    assert min_sep.MOST_CASES == 64
    assert len(users(64).worst_cases()) == 64
    graph = hs.AttributionGraph.from_lists([["ann"]] * 1000)
    assert len(list(mechanism.batches(graph=graph, seed=1))) == 10
    assert mechanism.sample_losses(4, seed=1).shape == (4,)
    assert json.loads(json.dumps(mechanism.scheme.to_dict()))["examples_per_user"] == 1000
