"""What a run of all tests leaves out of sweeps today, another day's run takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest


class Case:
    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid

    def get_closest_marker(self, name: str) -> bool:
        return name == "sweep" and "other" not in self.nodeid


CASES = [
    f"tests/a.py::{name}[{i}]"
    for name, n in (("long", 10), ("four", 4), ("few", 3), ("other", 5))
    for i in range(n)
]


def kept(quarter: int, args: list[str], all_cases: bool = False) -> set[str]:
    config: Any = SimpleNamespace(
        getoption=lambda _: all_cases,
        getini=lambda _: ["tests"],
        args=args,
        hook=SimpleNamespace(pytest_deselected=lambda items: None),
    )
    items: list[Any] = [Case(name) for name in CASES]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(conftest.QUARTER, str(quarter))
        conftest.pytest_collection_modifyitems(config, items)
    return {item.nodeid for item in items}


def test_four_days_take_all() -> None:
    days = [kept(quarter, ["tests"]) for quarter in range(4)]
    assert set.union(*days) == set(CASES)
    for day in days:
        assert len([name for name in day if "long" in name]) in (2, 3)
        assert len([name for name in day if "four" in name]) == 1
        assert len([name for name in day if "few" in name or "other" in name]) == 8


def test_who_asks_gets_all() -> None:
    assert kept(1, ["tests/a.py"]) == kept(1, ["tests"], all_cases=True) == set(CASES)
