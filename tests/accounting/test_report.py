"""Reports say everything, in words and in JSON, and never round a guarantee down."""

import copy
import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hockeystick as hs
import pytest
from hockeystick.accounting.report import UNITS, round_down, round_up
from hockeystick.cli.commands import main
from hockeystick.mechanisms.steps import to_dict
from hockeystick.mechanisms.truncated import TruncatedPoissonGroup
from hypothesis import given
from hypothesis import strategies as st

STEP = hs.PoissonSampled(hs.Gaussian(1.1), 0.02)


@given(st.floats(0.0, 1e300, allow_nan=False))
def test_printed_bounds_enclose_the_value(value: float) -> None:
    below, above = float(round_down(value)), float(round_up(value))
    assert below <= value <= above
    assert above <= value * (1 + 2e-5) + 5e-324
    assert below >= value * (1 - 2e-5) - 5e-324


@given(st.floats(1e-12, 1e12), st.integers(2, 8))
def test_both_ends_of_a_range_are_written_alike(value: float, digits: int) -> None:
    """A delta was "certified in [2.66557e-06, 0.00000266558]"."""
    below, above = round_down(value, digits), round_up(value, digits)
    assert all(("e" in text) == ("e" in f"{float(text):.{digits}g}") for text in (below, above))


def test_infinity_is_printed() -> None:
    assert round_up(math.inf) == "inf"


@pytest.mark.parametrize("adjacency", UNITS)
def test_statement_says_everything(adjacency: str) -> None:
    process = STEP * 40 + hs.Laplace(20.0) * 3
    profile = hs.account(process, adjacency)
    report = profile.report(delta=1e-5, epsilon=0.5)
    text = report.statement()
    assert report.epsilon is not None
    assert report.delta is not None
    for said in (
        f"({round_up(report.epsilon.upper)}, 1e-05)",
        f"[{round_down(report.epsilon.lower)}, ",
        f"(0.5, {round_up(report.delta.upper)})",
        adjacency,
        UNITS[adjacency],
        "Poisson sampling with probability 0.02 (40 steps)",
        "Laplace(scale=20.0) * 3",
        "sensitivity of the sum",
        f"hockeystick {hs.__version__}",
        "floating-point",
        "ideal sampler",
    ):
        assert said in text
    for name in report.epsilon.terms:
        assert name in text
    assert "\n" not in text


def test_report_agrees_with_the_profile() -> None:
    profile = hs.account(STEP * 10)
    report = profile.report(delta=1e-6, epsilon=0.25)
    assert report.epsilon is not None
    assert report.delta is not None
    assert report.epsilon.bounds == profile.epsilon_bounds(1e-6)
    assert report.delta.bounds == profile.delta_bounds(0.25)
    assert report.advantage == profile.advantage_bounds()
    assert report.steps == 10
    assert report.at_delta == 1e-6
    assert hs.account(STEP * 10).report(delta=1e-6).delta is None
    assert hs.account(STEP * 10).report(epsilon=1.0).epsilon is None


def test_each_answer_has_its_error_terms() -> None:
    profile = hs.account(hs.PoissonSampled(hs.Gaussian(1.0), 0.01) * 1000)
    both = profile.report(delta=1e-5, epsilon=1.0)
    alone = [profile.report(delta=1e-5), profile.report(epsilon=1.0)]
    assert both.epsilon is not None
    assert both.delta is not None
    for quantity, answer, one in (("epsilon", both.epsilon, alone[0]), ("delta", both.delta, alone[1])):
        assert answer.terms
        for name, value in answer.terms.items():
            assert f"{name} (of {quantity}) {round_up(value, 2)}" in both.statement()
            assert f"{name} {round_up(value, 2)}" in one.statement()
    assert both.to_html().count("part of delta") == len(both.epsilon.terms) + len(both.delta.terms)


def test_a_report_looks_roughly_where_lattices_would_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where delta(0) is 1 at once, which says nothing of how delta is found elsewhere."""
    profile = hs.account(
        hs.DiscreteLaplace(0.27345469922615384) * 324 + hs.RandomAllocation(1.118740684458776, 139) * 5
    )
    assert profile.delta_bounds(0.0).lower > 1.0 - 1e-9

    curve = hs.PrivacyProfile.delta_curve

    def few(self: hs.PrivacyProfile, epsilon: Any) -> Any:
        assert len(epsilon) <= 4  # the ends of an overview
        return curve(self, epsilon)

    monkeypatch.setattr(hs.PrivacyProfile, "delta_curve", few)
    report = profile.report(delta=1e-5)
    assert report.gdp is not None
    assert report.epsilon is not None
    assert 1184.9 < report.epsilon.lower <= report.epsilon.upper < 1185.0


def test_json_round_trip() -> None:
    report = hs.account(STEP * 10).report(delta=1e-6)
    assert json.loads(report.to_json()) == report.to_dict()
    assert json.loads(report.to_json())["epsilon"]["upper"] == report.epsilon.upper  # type: ignore[union-attr]


def test_json_has_no_bare_infinities() -> None:
    plain = json.loads(hs.account(hs.Gaussian(0.0)).report(delta=1e-6).to_json())
    assert plain["epsilon"]["upper"] == "inf"


def test_the_paper_pair_is_branded() -> None:
    step = hs.WithoutReplacement(hs.Gaussian(1.0), 2, 20, pair="koskela2020")
    assert "NOT a guarantee" in hs.account(step, "replace_one").report(delta=1e-5).statement()
    sound = hs.WithoutReplacement(hs.Gaussian(1.0), 2, 20)
    text = hs.account(sound, "replace_one").report(delta=1e-5).statement()
    assert "NOT a guarantee" not in text
    assert "batches of 2 of 20 records drawn without replacement" in text


def test_dp_sgd_echoes_in_the_statement() -> None:
    text = hs.account(hs.dp_sgd(1.0, 1000, 10, epochs=1)).report(delta=1e-5).statement()
    for said in ("1000 records", "sampling probability 0.01", "100 noisy updates"):
        assert said in text


def test_nothing_released() -> None:
    text = hs.account(hs.mechanisms.Process()).report(delta=0.0).statement()
    assert "(0, 0.0)-differential privacy" in text


BASIC = {
    "name": "Next words of 2026",
    "data_curators": ['Example "quoted" Institute'],
    "description": "A model: trained\nprivately",
    "intended_use": "keyboards",
    "data_product_type": "Machine learning model",
    "data_product_region": "Global",
    "publication_date": "2026-11-22",
}


def test_what_it_means_is_in_every_form() -> None:
    profile = hs.account(STEP * 100)
    report = profile.report(delta=1e-6)
    assert report.gdp is not None
    assert profile.gdp().mu_bounds.lower <= report.gdp.mu <= 1.01 * profile.gdp().mu
    assert report.gdp.mu_bounds.lower <= profile.gdp().mu
    assert profile.report(delta=1e-6, risks=False).gdp is None
    for text in (report.statement(), report.to_html(), report.to_latex(), report.to_json()):
        assert round_up(report.gdp.mu) in text or str(report.gdp.mu) in text  # type: ignore[union-attr]
        assert "reconstruction of what is guessed" in text
    assert (
        dict(report.risks)["members found at a false positive rate of 0.01"].upper
        < 1.002 * profile.risk.tpr(0.01).lower
    )
    plain = report.to_dict()
    assert plain["gdp"]["regret"]["lower"] <= plain["gdp"]["regret"]["upper"]
    assert plain["risks"]["membership advantage, TPR - FPR"] == profile.advantage_bounds()._asdict()
    declared = report.declare(tuning="12 runs, accounted for", seed="from the operating system")
    assert "12 runs, accounted for" in declared.to_html()
    assert "not declared" in report.to_html()
    with pytest.raises(hs.ParameterError, match="trust_model"):
        report.declare(trust_model="nobody")


ALLOWED = {
    "": {"url_slug", "status", "tier", "deployment"},
    "deployment": {
        *(
            "basic",
            "dp_variant",
            "privacy_loss",
            "deployment_model",
            "accounting",
            "implementation",
            "administrative",
        ),
    },
    "deployment.basic": {*BASIC, "data_product_sector"},
    "deployment.dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
    "deployment.privacy_loss": {
        *("privacy_unit", "privacy_unit_details", "privacy_parameters", "privacy_parameters_details")
    },
    "deployment.privacy_loss.privacy_parameters": {"epsilon", "delta", "rho"},
    "deployment.deployment_model": {
        *("model_name", "model_name_details", "actors", "release_type", "release_type_details"),
        *("data_source_type", "data_source_type_details", "access_type", "access_type_details"),
    },
    "deployment.accounting": {"post_processing", "composition"},
    "deployment.implementation": {"preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"},
    "deployment.administrative": {"sources", "notes", "registry_authors"},
}
"""The names that the schema of the registry knows; it takes no others."""


def parsed(text: str) -> dict[str, object]:
    """The YAML that is written here: nested maps, lists of scalars, JSON scalars."""
    root: dict[str, object] = {}
    stack: list[tuple[int, object]] = [(-1, root)]
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        while stack[-1][0] >= indent:
            stack.pop()
        parent = stack[-1][1]
        if line.lstrip().startswith("- "):
            assert isinstance(parent, dict)
            parent.setdefault("", []).append(json.loads(line.lstrip()[2:]))
            continue
        name, _, value = line.strip().partition(":")
        assert isinstance(parent, dict)
        parent[name] = json.loads(value) if value else {}
        if not value:
            stack.append((indent, parent[name]))
    return root


@pytest.mark.parametrize("asked", [{"delta": 1e-6}, {"epsilon": 2.0}, {"delta": 0.0}])
def test_an_entry_of_the_registry(asked: dict[str, float]) -> None:
    process = hs.PureDP(1.0) if asked == {"delta": 0.0} else STEP * 100
    report = (
        hs.account(process).report(**asked).declare(trust_model="Federated", release_type="Many releases")
    )
    entry = parsed(report.to_registry_yaml(BASIC, ["A. Author"]))

    def check(path: str, found: object) -> None:
        if not isinstance(found, dict) or "" in found:
            return
        assert set(found) <= ALLOWED[path], path
        for name, value in found.items():
            check(f"{path}.{name}".lstrip("."), value)

    check("", entry)
    assert entry["status"] == "Draft"
    assert entry["tier"] in (1, 2, 3)
    deployment = entry["deployment"]
    assert isinstance(deployment, dict)
    assert deployment["administrative"]["registry_authors"] == {"": ["A. Author"]}
    assert deployment["basic"]["description"] == BASIC["description"]
    assert deployment["dp_variant"]["variant_name"] == (
        "Pure DP" if asked == {"delta": 0.0} else "Approximate DP"
    )
    assert deployment["deployment_model"]["model_name"] == "Federated"
    point = deployment["privacy_loss"]["privacy_parameters"]
    assert all(isinstance(value, float) for value in point.values())
    assert hs.account(process).delta_bounds(point["epsilon"]).lower <= point["delta"]


@pytest.mark.parametrize(
    ("released", "asked", "variant"),
    [
        (hs.PureDP(1.0), {"delta": 0.0}, "pure differential privacy"),
        (hs.PureDP(1.0), {"epsilon": 1.0}, "pure differential privacy"),
        (hs.Gaussian(1.0), {"delta": 1e-5}, "approximate differential privacy"),
        (hs.Gaussian(1.0), {"delta": 0.0, "epsilon": 1.0}, "approximate differential privacy"),
        (hs.Gaussian(1.0), {"delta": 0.0}, "none at this delta"),
        (hs.Gaussian(0.0), {"delta": 1e-5}, "none at this delta"),
    ],
)
def test_a_page_names_the_variant(
    released: hs.mechanisms.Composable, asked: dict[str, float], variant: str
) -> None:
    """No finite epsilon at delta = 0 was called pure differential privacy."""
    report = hs.account(released).report(**asked, risks=False)
    pages = report.to_html(), report.to_latex()
    for name in ("pure differential privacy", "approximate differential privacy", "none at this delta"):
        assert [name in page for page in pages] == 2 * [name == variant]
    if variant.startswith("none"):
        with pytest.raises(hs.ParameterError, match="epsilon = 'inf': must be finite"):
            report.to_registry_yaml(BASIC, ["A. Author"])


def test_entries_that_the_registry_would_refuse() -> None:
    report = hs.account(STEP * 100).report(delta=1e-6)
    with pytest.raises(hs.ParameterError, match="basic: must have description"):
        report.to_registry_yaml({k: v for k, v in BASIC.items() if k != "description"}, ["A"])
    with pytest.raises(hs.ParameterError, match="data_product_type"):
        report.to_registry_yaml({**BASIC, "data_product_type": "Song"}, ["A"])
    with pytest.raises(hs.ParameterError, match="authors"):
        report.to_registry_yaml(BASIC, [])
    with pytest.raises(hs.ParameterError, match="must be finite"):
        hs.account(hs.Gaussian(0.0)).report(delta=1e-6).to_registry_yaml(BASIC, ["A"])
    with pytest.raises(hs.ParameterError, match="at least 0"):
        hs.account(STEP).report(epsilon=-1.0).to_registry_yaml(BASIC, ["A"])
    with pytest.raises(hs.ParameterError, match="surrogates"):
        report.declare(unit="a\ud800")


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"notes": float("nan")}, r"basic\['notes'\]"),
        ({"notes": b"x"}, r"basic\['notes'\]"),
        ({"notes": ["x", {"y": "z"}]}, r"basic\['notes'\]\[1\]"),
        ({"a: b": "x"}, "key 'a: b'"),
        ({"y": "x"}, "key 'y'"),
        ({"no": "x"}, "key 'no'"),
    ],
)
def test_values_that_yaml_would_read_as_others_are_refused(more: dict[str, object], named: str) -> None:
    report = hs.account(STEP * 100).report(delta=1e-6)
    with pytest.raises((hs.ParameterError, hs.ParameterTypeError), match=named):
        report.to_registry_yaml({**BASIC, **more}, ["A"])
    for authors in (3, ["A", 1], "A"):
        with pytest.raises(hs.ParameterError, match="authors"):
            report.to_registry_yaml(BASIC, authors)  # type: ignore[arg-type]
    with pytest.raises(hs.ParameterTypeError, match="basic = None"):
        report.to_registry_yaml(None, ["A"])  # type: ignore[arg-type]


def test_yaml_reads_what_was_written() -> None:
    """An oracle of its own: PyYAML. Control characters, line ends of Unicode, empty lists, small floats."""
    yaml = pytest.importorskip("yaml")
    texts = ["a\x85b", "\x7f", "\x90", "\u2028", "\uffff", "\ufeffé😀", 'a"b\\', "no", "1e5", "# x", " - y"]
    basic = {
        **BASIC,
        "texts": texts,
        "sources": [],
        "notes": {},
        "size": 1e-5,
        "huge": 1e300,
        "count": 3,
        "none": None,
    }
    report = hs.account(STEP * 100).report(delta=1e-6).declare(unit="one\x85record")
    entry = yaml.safe_load(report.to_registry_yaml(basic, texts))["deployment"]
    assert entry["basic"] == basic
    assert entry["administrative"]["registry_authors"] == texts
    assert entry["privacy_loss"]["privacy_unit"] == "one\x85record"


@pytest.mark.parametrize(
    ("described", "asked", "said"),
    [
        (hs.dp_sgd(1.0, 1000, 10, epochs=1), {"delta": 1e-3}, "not below 1/1000"),
        (hs.Gaussian(1.0) * 2, {"delta": 1.0}, "swapped"),
        (hs.Gaussian(1.0) * 2, {"epsilon": 1e-6}, "swapped"),
        (hs.TruncatedPoissonSampled(1.0, 1000, 0.1, 90), {"delta": 1e-6}, "below the expected batch of 100"),
        (TruncatedPoissonGroup(1.0, 1000, 0.4, 90, groups=4), {"delta": 1e-6}, "the expected batch of 100"),
        (hs.Gaussian(1.0) * 1000, {"delta": 1e-6}, "give the sampling probability"),
        (hs.PoissonSampled(hs.Gaussian(0.004), 0.1), {"delta": 1e-6}, "looks like a standard deviation"),
        (hs.Gaussian(2000.0), {"delta": 1e-6}, "looks like a standard deviation"),
    ],
)
def test_what_looks_like_a_slip(described: hs.mechanisms.Process, asked: dict[str, float], said: str) -> None:
    (note,) = hs.account(described).report(**asked).notes
    assert said in note


@pytest.mark.parametrize(
    "wrap",
    [
        lambda step: step * 3,
        lambda step: hs.mechanisms.Group(step * 2, 2),
        lambda step: hs.Mixture([step, hs.Gaussian(3.0)], [0.5, 0.5]),
    ],
)
def test_a_pair_that_is_no_guarantee_is_noted(
    wrap: Callable[[Any], Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A statement says so; the bare "epsilon <=" of the command line did not."""
    step = hs.WithoutReplacement(hs.Gaussian(1.0), 2, 20, pair="koskela2020")
    process = wrap(step)
    (note,) = hs.account(process, "replace_one").report(delta=1e-6).notes
    assert "NOT a guarantee" in note
    path = tmp_path / "process.json"
    path.write_text(json.dumps(to_dict(process)), encoding="utf-8")
    main(["account", str(path), "--delta", "1e-6", "--adjacency", "replace_one"])
    shown = capsys.readouterr()
    assert "epsilon <= " in shown.out
    assert "NOT a guarantee" in shown.err


def test_what_is_plausible_has_no_notes() -> None:
    assert hs.account(TruncatedPoissonGroup(1.0, 1000, 0.4, 110, groups=4)).report(delta=1e-6).notes == ()
    for described in (STEP * 10_000, hs.dp_sgd(0.7, 60_000, 256, epochs=60), hs.Laplace(1.0) * 3):
        assert hs.account(described).report(delta=1e-6, epsilon=1.0).notes == ()


@pytest.mark.parametrize("adjacency", ["add", "remove", "add_or_remove"])
def test_the_report_of_groups_by_places_says_what_a_removed_record_takes_for_granted(adjacency: str) -> None:
    """`batches` of the same description deals groups by places, for which the statement with this adjacency does not hold."""
    strategy, scheme = hs.BandedToeplitz.square_root(8, 2), hs.CyclicPoisson(8, 2, 0.1)
    (note,) = hs.account(hs.BandMF(strategy, scheme, 2.0), adjacency).report(delta=1e-6).notes
    assert "by places in the data" in note
    assert "CyclicPoisson" in note
    assert adjacency in note
    assert hs.account(hs.BandMF(strategy, scheme, 2.0), "zero_out").report(delta=1e-6).notes == ()
    for alike in (hs.Poisson(8, 0.1), hs.CyclicPoisson(8, 1, 0.1), hs.BallsInBins(8, 2)):
        assert hs.account(hs.BandMF(hs.Identity(8), alike, 2.0), adjacency).report(delta=1e-6).notes == ()


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("described", "settings"),
    [
        (STEP * 40 + hs.Laplace(20.0) * 3, {}),
        (hs.dp_sgd(1.0, 1000, 10, epochs=2), {"adjacency": "replace_one", "accuracy": 1e-5}),
        (hs.RandomAllocation(2.0, 10), {"adjacency": "remove", "memory_limit": 2**24}),
        (STEP * 40, {"engine": "fft"}),
        (hs.FinitePair([0.6, 0.4], [0.4, 0.6]) * 3, {"adjacency": "add"}),
    ],
)
def test_what_was_asked_already_is_copied_and_pickled(described: Any, settings: dict[str, Any]) -> None:
    """Workers return profiles and reports; after the first question both held what the core made for it, which cannot be pickled."""
    profile = hs.account(described, **settings)
    report = profile.report(delta=1e-5, epsilon=1.0)
    profile.tradeoff(0.1)
    for way in (copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))):
        other, same = way(profile), way(report)
        assert repr(other) == repr(profile)
        assert other.description == described
        assert other.epsilon_bounds(1e-5) == profile.epsilon_bounds(1e-5)
        assert other.delta_bounds(0.5) == profile.delta_bounds(0.5)
        assert same == report
        assert same.source.epsilon_bounds(1e-7) == profile.epsilon_bounds(1e-7)


def test_tuning_is_accounted_declared_or_said_to_be_missing() -> None:
    profile, runs = hs.account(STEP * 100), hs.Repetitions.geometric(mean=5)
    silent, none = (profile.report(delta=1e-6, risks=False, tuning=tuning) for tuning in (None, "none"))
    best = profile.report(delta=1e-6, risks=False, tuning=runs)
    assert "Tuning: not declared" in silent.statement()
    assert "Tuning: none, as declared" in none.statement()
    assert "Tuning: the best of K runs is what is accounted for" in best.statement()
    described = hs.account(hs.PrivateSelection(STEP * 100, runs)).report(delta=1e-6, risks=False)
    assert described.statement() == best.statement()
    assert best.epsilon == described.epsilon
    assert best.epsilon.upper > none.epsilon.upper == silent.epsilon.upper  # type: ignore[union-attr]
    with pytest.raises(hs.ParameterError, match="tuning"):
        profile.report(delta=1e-6, tuning="several")


def test_every_field_is_in_a_page_and_every_term_of_a_statement_is_explained() -> None:
    step = hs.UserLevel(hs.PoissonSampled(hs.Gaussian(2.0), 0.01), 4)
    report = (
        hs.account(step * 100).report(delta=1e-6).declare(code="commit 1234", floating_point="exact sampler")
    )
    for page in (report.to_html(), report.to_latex().replace("\\_", "_")):
        for field in (
            *("one user", "at most 4 records of a user", "approximate differential privacy", "add_or_remove"),
            *("trust model", "release type", "releases", "unprotected", "composition", "sampling", "noise"),
            *(
                "conversion of noise",
                "tuning",
                "mu of Gaussian DP",
                "regret",
                "members found",
                "floating point",
            ),
            *("seed", "references", "part of delta", "commit 1234", f"hockeystick {hs.__version__}, commit "),
        ):
            assert field in page, field
    text = report.statement()
    for term, explained in (
        ("differential privacy", "e^epsilon times that on the other, plus delta"),
        # Of what is declared nothing is known from below, which is not due to the computation.
        ("certified epsilon range", "the least such number for what is accounted lies in the range"),
        ("Adjacency", "how the two datasets differ"),
        ("membership-inference attack", "a guess from the release in which of the two datasets it was made"),
        ("advantage", "true minus false positive rate"),
        ("false positive rate", "share of others who are taken for one"),
        ("Gaussian differentially private", "shifted by"),
        ("regret", "how far the true trade-off"),
        ("noise multiplier", "standard deviation / L2 sensitivity"),
        ("error terms", "parts of delta"),
    ):
        assert term in text
        assert explained in text, term
    assert hs.build_config()["commit"] == report.commit


def test_commits_look_like_commits() -> None:
    commit = hs.build_config()["commit"]
    assert commit == "unknown" or len(commit.removesuffix("-modified")) == 40
