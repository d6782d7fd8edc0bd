"""What notebooks and terminals show of answers and descriptions: `_repr_html_`, `str`, figures that display by themselves."""

import io
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import hockeystick as hs
import numpy as np
import pytest

RUN = hs.dp_sgd(1.1, 6000, 64, epochs=1)
BINS = hs.BallsInBins(8, 2)


class Tags(HTMLParser):
    """Checks that what is opened is closed, and collects the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def shown(value: Any) -> str:
    tags = Tags()
    tags.feed(value._repr_html_())
    assert tags.open == []
    return tags.text


def test_profiles_and_reports() -> None:
    profile = hs.account(RUN)
    report = profile.report(delta=1e-5)
    assert str(report) == f"{report}" == report.statement()
    for value in (profile, report):
        text = shown(value)
        lower, upper = profile.epsilon_bounds(1e-5)
        between = text.split("epsilon at delta = 1e-05")[1].split("[")[1].split("]")[0].split(",")
        assert float(between[0]) <= lower <= upper <= float(between[1])
        assert "add_or_remove" in text
    assert report.statement() in shown(report)


@pytest.mark.parametrize(
    "value",
    [
        hs.Gaussian(1.5), hs.Laplace(2.0) * 3 + hs.PureDP(0.1), RUN, hs.PoissonSampled(hs.Gaussian(1.5), 0.1),
        BINS, hs.BMinSep(8, 2, 0.1), hs.BandMF(hs.BandedToeplitz.square_root(8, 2), BINS, 1.5),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_descriptions(value: Any) -> None:
    assert type(value).__name__ in shown(value)


def test_numbers_that_carry_their_proof() -> None:
    sigma = hs.calibrate_noise_multiplier(lambda s: hs.Gaussian(s) * 4, 1.0, 1e-5)
    steps = hs.calibrate_steps(lambda n: hs.Gaussian(9.0) * n, 1.0, 1e-5)
    for value in (sigma, steps):
        assert repr(value.certificate.value) in shown(value)


def test_plans_and_estimates() -> None:
    plan = hs.plan_training(lambda s: hs.dp_sgd(s, 6000, 64, epochs=1), 6000, epsilon=1.0, delta=1e-5)
    assert plan.guarantee.statement in shown(plan)
    estimate = hs.estimate_delta(hs.BandMF(hs.Identity(8), BINS, 1.0), 1.0, 2000, seed=1)
    assert str(estimate) == estimate.statement()
    assert estimate.statement() in shown(estimate)
    strategy = hs.BandedToeplitz.square_root(8, 2)
    found = hs.calibrate_bandmf(strategy, BINS, epsilon=4.0, delta=1e-2, seed=1)
    assert str(found) == found.statement()
    assert repr(found.noise_multiplier) in shown(found)


def test_runs_and_single_numbers() -> None:
    plan = hs.plan_training(
        lambda s: hs.dp_sgd(s, 600, 60, steps=2), 600, epsilon=1.0, delta=1e-5, adjacency="add_or_remove"
    )
    with plan.start(dimension=2, clipping_norm=1.0, seed=1) as run:
        for step in run:
            step.add_noise(np.zeros(2) * len(step.indices))
        report = run.report()
    assert str(report) == report.statement()
    assert report.statement() in shown(report)
    assert "2 of 2 planned" in shown(report)
    profile = hs.account(hs.Gaussian(2.0))
    summary = profile.gdp()
    assert str(summary) == summary.statement()
    assert summary.statement() in shown(summary)
    assert repr(profile.risk) == f"Risk({profile!r})"


def test_what_is_shown_is_text() -> None:
    assert shown(hs._base.bounds.Shown()) == "Shown "
    assert hs._base.bounds.table("<b>", [("a&b", "<i>")]).count("<b>") == 1


def test_figures_display_without_pyplot() -> None:
    pytest.importorskip("matplotlib")
    script = """
import sys
import hockeystick as hs
data, metadata = hs.plot_profile(hs.account(hs.Gaussian(2.0) * 4))._repr_png_()
assert data.startswith(b"\\x89PNG") and metadata == {"width": 900}
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_titles_and_axes() -> None:
    pytest.importorskip("matplotlib")
    figure = hs.plot_profile(hs.account(RUN))
    assert "noise multiplier 1.1" in figure.get_suptitle()
    assert "add_or_remove" in figure.get_suptitle()
    attacks = figure.axes[1]
    assert attacks.get_xscale() == attacks.get_yscale() == "log"
    alpha, power = attacks.lines[0].get_data()
    assert (power >= alpha * (1.0 - 1e-12)).all()
    assert np.allclose(1.0 - power, hs.account(RUN).tradeoff(alpha), rtol=0, atol=0)
    many = sum((hs.Gaussian(1.0 + k / 100) for k in range(1, 60)), hs.Gaussian(1.0) * 1)
    assert len(hs.plot_profile(hs.account(many)).get_suptitle()) < 400


def test_labels_do_not_collide() -> None:
    """Of all text of a picture that is drawn."""
    pytest.importorskip("matplotlib")
    q, noise = np.geomspace(1e-3, 1e-1, 8), np.linspace(0.5, 5.0, 8)[:, None]
    figures = [hs.plot_profile(hs.account(RUN))]
    figures += [hs.plots.plot_grid(hs.grid_epsilon(noise, q, 10_000, 1e-5))]
    figures += [hs.plots.plot_grid(hs.grid_delta(noise, q, 1000, 1.0))]
    for figure in figures:
        figure.savefig(io.BytesIO(), format="png")
        texts = [figure._suptitle] if figure._suptitle else []
        for axes in figure.axes:
            texts += [axes.title, axes.xaxis.label, axes.yaxis.label]
            for axis in (axes.xaxis, axes.yaxis):
                low, high = sorted(axis.get_view_interval())
                texts += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
                texts += [tick.label2 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
        boxes = [text.get_window_extent() for text in texts if text.get_text() and text.get_visible()]
        collisions = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.overlaps(b)]
        assert not collisions


def test_paths_are_checked_before_anything_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    profile = hs.account(RUN)
    monkeypatch.setattr(type(profile), "curve", lambda *_: pytest.fail("computed"))
    with pytest.raises(hs.ParameterError, match="png"):
        hs.plot_profile(profile, tmp_path / "a.xyz")
    with pytest.raises(FileNotFoundError):
        hs.plot_profile(profile, tmp_path / "nowhere" / "a.png")
