"""dp_accounting's own tests, as its wheel ships them, with our accountant in the place of theirs.

What differs is listed with its reason, and exactly that must differ. By hand, with theirs beside them:
``python -m dp_accounting.pld.pld_privacy_accountant_test``.
"""

import importlib
import unittest
from types import ModuleType

import dp_accounting as dpa
import pytest
from dp_accounting import mechanism_calibration, privacy_accountant
from dp_accounting.pld import pld_privacy_accountant
from hockeystick.interop.dp_accounting import HockeystickAccountant

WITHIN_ITS_SAMPLE = "a release without noise inside a sample reveals the sample: delta = q, not 1"
LAPLACE_REPLACED = "Laplace noise under REPLACE_ONE is accounted for, as a shift by twice the bound"
DEVIATIONS = {
    # The accountant is tighter, or answers where theirs refuses.
    "additive_noise_mechanisms_with_zero_noise_multiplier3": WITHIN_ITS_SAMPLE,
    "additive_noise_mechanisms_with_zero_noise_multiplier4": WITHIN_ITS_SAMPLE,
    "composition_errors_for_neighboring_relation1": LAPLACE_REPLACED,
    "composition_errors_for_neighboring_relation3": LAPLACE_REPLACED,
    "truncated_subsampled_gaussian_basic": "the exact worst case of a full batch: docs/mechanisms/truncated.md",
}
LATER = {
    # Tests that came after 0.6, by what they ask for.
    "composition_errors_for_neighboring_relation5": "permute-and-flip, likewise",
    "epsilon_basic": "delta at the end of the support is 4e-15, not 0: round-off is bounded, not ignored",
    "exponential_mechanism_basic": "likewise, 2e-21; and tighter than pure DP before",
    "epsilon_delta_basic": "likewise, 0.28 + 3e-13",
    "contains_non_dp_event": "reads a private attribute of theirs",
}


def failing(module: ModuleType) -> tuple[int, dict[str, str]]:
    """How many tests a module of absl has, and those that fail, by name, with their last lines."""
    result = unittest.TestResult()
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    suite.run(result)
    found = {
        test._testMethodName.removeprefix("test_"): text.splitlines()[-1]  # type: ignore[attr-defined]
        for test, text in (*result.failures, *result.errors)
    }
    return result.testsRun, found


def test_of_their_pld_accountant(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = importlib.import_module("dp_accounting.pld.pld_privacy_accountant_test")
    monkeypatch.setattr(pld_privacy_accountant, "PLDAccountant", HockeystickAccountant)
    count, found = failing(theirs)
    assert count >= 68
    later = hasattr(dpa.dp_event, "PermuteAndFlipDpEvent")
    assert found.keys() == (DEVIATIONS | LATER if later else DEVIATIONS).keys(), found


def test_of_their_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The accountants there are fakes; here they are fakes of ours: its constructor, `compose`, and ledger."""
    with monkeypatch.context() as patched:
        patched.setattr(privacy_accountant, "PrivacyAccountant", HockeystickAccountant)
        theirs = importlib.import_module("dp_accounting.mechanism_calibration_test")
        theirs = importlib.reload(theirs)
    assert issubclass(theirs.FakeAccountant, HockeystickAccountant)
    assert theirs.mechanism_calibration is mechanism_calibration
    count, found = failing(theirs)
    assert count >= 41
    assert not found


@pytest.mark.parametrize("relation", dpa.NeighboringRelation)
def test_of_every_accountant(relation: dpa.NeighboringRelation) -> None:
    """`privacy_accountant_test` is a base of the first; what fails there is seen to fail here."""
    theirs = importlib.import_module("dp_accounting.privacy_accountant_test")

    class Blind(HockeystickAccountant):
        def get_epsilon(self, target_delta: float) -> float:
            return 0.0

    def run(accountant: type[HockeystickAccountant]) -> set[str]:
        made = {"_make_test_accountants": lambda self: [accountant(relation)], "__unittest_skip__": False}
        module = ModuleType("tests")
        module.Tests = type("Tests", (theirs.PrivacyAccountantTest,), made)  # type: ignore[attr-defined]
        count, found = failing(module)
        assert count >= 12
        return {name.rstrip("0123456789") for name in found}

    assert run(HockeystickAccountant) == set()
    assert run(Blind) == {"non_private"}
