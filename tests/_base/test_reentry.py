"""A signal's handler, or a finaliser, that changes what its own thread is in: at no line is anything lost."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hockeystick as hs
import pytest
from hockeystick._base.exclusive import ReentryError

from tests.anywhere import visiting

PACKAGE = tuple(path.as_posix() for path in Path(hs.__file__).parent.rglob("*.py"))


class Case(NamedTuple):
    """Something, what its thread does with it, what a handler does, and how much of both it holds afterwards."""

    make: Callable[[], Any]
    work: Callable[[Any], Any]
    handler: Callable[[Any], Any]
    held: Callable[[Any], float]


def recorded(steps: int = 3) -> hs.IndividualAccountant:
    accountant = hs.IndividualAccountant(
        2, noise_multiplier=1.0, sampling_probability=0.1, clipping_norm=1.0, fine=8, coarse=2
    )
    accountant.step([1.0, 1.0], steps=steps)
    return accountant


def counted(accountant: hs.IndividualAccountant) -> int:
    return sum(count for _, count in accountant.history(0))


def stepped() -> hs.Accountant:
    accountant = hs.Accountant()
    accountant.step(hs.Gaussian(3.0))
    return accountant


CASES = {
    "filter": Case(
        lambda: hs.IndividualGDPFilter(4, mu=10.0),
        lambda it: it.step([0.5] * 4),
        lambda it: it.step([0.5], indices=[1]),
        lambda it: it.spent[1] / 0.25,
    ),
    "filter of some": Case(
        lambda: hs.IndividualGDPFilter(4, mu=10.0),
        lambda it: it.step([0.5] * 2, indices=[1, 3]),
        lambda it: it.step([0.5], indices=[1]),
        lambda it: it.spent[1] / 0.25,
    ),
    "counters": Case(recorded, lambda it: it.step([1.0, 1.0]), lambda it: it.step([1.0, 1.0]), counted),
    # The counters get wider in this step.
    "wide counters": Case(
        lambda: recorded(65535), lambda it: it.step([1.0, 1.0]), lambda it: it.step([1.0, 1.0]), counted
    ),
    "accountant": Case(
        stepped,
        lambda it: it.step(hs.Laplace(1.0)),
        lambda it: it.step(hs.Gaussian(1.0)),
        lambda it: it.process.steps,
    ),
}


def every_line(
    make: Callable[[], Any], work: Callable[[Any], Any], handler: Callable[[Any], Any]
) -> Iterator[Any]:
    """(thing, whether the handler's call was refused) for each line at which it may come."""
    line = 1
    while True:
        thing = make()
        with visiting(PACKAGE, line, lambda thing=thing: handler(thing)) as visit:
            work(thing)
        if not visit.reached:
            break
        assert visit.error is None or isinstance(visit.error, ReentryError)
        yield thing, visit.error is not None
        line += 1


@pytest.mark.parametrize("name", CASES)
def test_what_a_handler_records_is_held_or_refused(name: str) -> None:
    case = CASES[name]
    before, refused = case.held(case.make()), set()
    for thing, was_refused in every_line(case.make, case.work, case.handler):
        assert case.held(thing) == before + (1 if was_refused else 2)
        refused.add(was_refused)
    assert refused == {False, True}


def test_only_one_of_two_steps_fits() -> None:
    for thing, was_refused in every_line(
        lambda: hs.individual.GDPFilter(mu=1.0), lambda it: it.step(0.8), lambda it: it.step(0.8)
    ):
        assert thing.steps == 1
        assert thing.halted or was_refused


def test_a_profile_is_of_all_steps_that_were_recorded_meanwhile() -> None:
    for thing, was_refused in every_line(
        stepped, lambda it: it.profile(), lambda it: it.step(hs.Gaussian(0.1))
    ):
        assert not was_refused
        assert thing.profile().description.as_process() == thing.process
        assert thing.process.steps == 2


def test_a_store_is_not_closed_in_the_middle_of_a_step(tmp_path: Path) -> None:
    filt = hs.IndividualGDPFilter(2, mu=10.0, path=tmp_path / "filter")
    with visiting(("storage.py",), 1, filt.close) as visit:
        filt.step([0.5, 0.5])
    assert isinstance(visit.error, ReentryError)
    filt.close()
    again = hs.IndividualGDPFilter.open(tmp_path / "filter")
    assert again.spent.tolist() == [0.25, 0.25]
    again.close()
