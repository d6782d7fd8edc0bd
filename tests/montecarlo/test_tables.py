"""What the tables of importance sampling cost: they are made once, priced by time as well as memory, and not made for nothing."""

import itertools

import hockeystick as hs
import numpy as np
import pytest
from hockeystick import _core
from hockeystick.matrix import MultiAttributionBMinSep, TruncatedBMinSep
from hockeystick.montecarlo import truncation
from hockeystick.montecarlo.tilted import log_moment

FIRST = np.array(((0.5, 2, 1.0, 0.0), (0.5, 0, 1.0, 0.0)))
OTHER = np.array(((0.2, 2, 1.0, 0.0), (0.3, 0, 2.0, 0.5), (0.5, 0, 1.0, 1.0)))


@pytest.mark.parametrize(
    ("scheme", "counts"),
    [
        (hs.BMinSep(12, 3, 0.2), ()),
        (hs.BallsInBins(12, 4), ()),
        (MultiAttributionBMinSep(12, 3, 0.1, 3), ()),
        (TruncatedBMinSep(12, 3, 0.2, 50, 8), (30, "add")),
        (TruncatedBMinSep(12, 3, 0.2, 50, 8), (30, "replace_one")),
        (hs.BMinSep(12, 3, 0.2), (1 << 62, "replace_one")),
    ],
    ids=str,
)
def test_tables_of_another_sampler_are_the_same(scheme: hs.matrix.Scheme, counts: tuple[object, ...]) -> None:
    core = hs.BandMF(hs.BandedToeplitz.square_root(12, 3), scheme, 0.8)._described()
    before = _core.TiltedSampler(core, FIRST, *counts)
    alone, shared = (_core.TiltedSampler(core, OTHER, *counts, like=like) for like in (None, before))
    # And from one that had them from another one.
    third = _core.TiltedSampler(
        core, FIRST, *counts, like=_core.TiltedSampler(core, OTHER, *counts, like=shared)
    )
    for one, two in ((alone, shared), (before, third)):
        assert one.log_normaliser(0) == two.log_normaliser(0)
        assert np.array_equal(one.samples(7, 0, 3), two.samples(7, 0, 3), equal_nan=True)


def test_tables_are_not_those_of_something_else() -> None:
    strategy, scheme = hs.BandedToeplitz.square_root(12, 3), TruncatedBMinSep(12, 3, 0.2, 50, 8)
    core = hs.BandMF(strategy, scheme, 0.8)._described()
    before = _core.TiltedSampler(core, FIRST, 30, "remove")
    others = [
        (hs.BandMF(strategy, scheme, 0.9)._described(), 30, "remove"),
        (
            hs.BandMF(
                hs.BandedToeplitz.square_root(11, 3), TruncatedBMinSep(11, 3, 0.2, 50, 8), 0.8
            )._described(),
            30,
            "remove",
        ),
        (core, 31, "remove"),
        (hs.BandMF(strategy, TruncatedBMinSep(12, 3, 0.21, 50, 8), 0.8)._described(), 30, "remove"),
        (hs.BandMF(strategy, hs.BMinSep(12, 3, 0.2), 0.8)._described(), 30, "remove"),
        (hs.BandMF(hs.BandedToeplitz((1.0, 0.5), 12), scheme, 0.8)._described(), 30, "remove"),
        (core, 30, "add"),
    ]
    for mechanism, *counts in others:
        with pytest.raises(ValueError, match="tables"):
            _core.TiltedSampler(mechanism, FIRST, *counts, like=before)


def test_pilots_share_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """One table for each order, however many rounds a pilot has."""
    made: list[object] = []
    sampler = _core.TiltedSampler

    def counting(*arguments: object, like: object = None) -> object:
        made.append(like)
        return sampler(*arguments, like=like)

    monkeypatch.setattr(_core, "TiltedSampler", counting)
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(40, 4), hs.BMinSep(40, 4, 1e-3), 1.0)
    hs.estimate_delta(mechanism, 3.0, 2000, seed=1, method="tilted", adjacency="remove")
    assert len(made) > 4
    assert made.count(None) == 1


def table(scheme: hs.matrix.Scheme, strategy: hs.matrix.Strategy) -> bool:
    return _core.has_moment_law(hs.BandMF(strategy, scheme, 1.0)._described(), 2)


def test_pairs_of_numbers_of_examples_are_not_free() -> None:
    """They are drawn from one by one: 400 of them took minutes where plain samples take a second."""
    for examples, possible in ((64, True), (65, False), (400, False), (65536, False)):
        users = hs.BMinSep(100, 1, 1e-4, True, examples_per_user=examples)
        mechanism = hs.BandMF(hs.Identity(100), users, 3.0)
        assert _core.has_moment_law(mechanism._described(), 2) is possible
        if examples in (65, 400):
            found = hs.estimate_delta(mechanism, 1.0, 1000, seed=1)
            assert found.method == "plain"
            with pytest.raises(hs.ParameterError, match="no table"):
                log_moment(mechanism, 2)
    # Of one law, what fits into memory would take a minute.
    assert table(MultiAttributionBMinSep(1000, 32, 1e-5, 16), hs.Identity(1000))
    assert not table(MultiAttributionBMinSep(20_000, 64, 1e-5, 32), hs.Identity(20_000))


def test_bins_of_many_bands_take_what_their_products_do() -> None:
    """A sum over the bands for each of them was cubic: a minute and a half for 4000 steps."""
    for steps, possible in ((4000, True), (100_000, False)):
        full = hs.BandedToeplitz.square_root(steps, steps)
        assert table(hs.BallsInBins(steps, steps // 20), full) is possible
    columns = np.tile(hs.BandedToeplitz.square_root(64, 64).coefficients, (4096, 1))
    for row in range(1, 64):
        columns[4096 - row, row:] = 0.0
    assert table(hs.BallsInBins(4096, 64), hs.matrix.Banded(columns))
    wide = hs.matrix.LowerTriangular(np.tril(np.ones((2048, 2048))))
    assert not table(hs.BallsInBins(2048, 64), wide)
    # By the definition: pairs of bins.
    toeplitz = hs.BandedToeplitz.square_root(300, 300)
    for strategy in (toeplitz, hs.matrix.LowerTriangular(toeplitz.matrix())):
        mechanism = hs.BandMF(strategy, hs.BallsInBins(300, 7), 9.0)
        bins = [strategy.matrix()[:, start::7].sum(axis=1) for start in range(7)]
        means = [np.exp(one @ other / 81.0) for one, other in itertools.product(bins, bins)]
        assert log_moment(mechanism, 2) == pytest.approx(np.log(np.mean(means)), rel=1e-12)


@pytest.mark.parametrize(("steps", "apart"), [(2048, 2048), (1000, 600), (40_000, 100)])
def test_the_table_of_truncated_rounds_is_left_out_where_it_is_large(
    steps: int, apart: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took gigabytes, and any bound on what truncation adds is as true."""

    def refused(*_: object) -> None:
        pytest.fail("the table was made")

    scheme = TruncatedBMinSep(steps, apart, 1e-4, 100_000, 30)
    mechanism = hs.BandMF(hs.Identity(steps), scheme, 1.0)
    smaller = hs.BandMF(hs.Identity(300), TruncatedBMinSep(300, 300, 1e-4, 100_000, 30), 1.0)
    with_table = truncation.reduction(smaller, 10.0)
    monkeypatch.setattr(_core, "log_moments_of_cuts", refused)
    found = truncation.reduction(mechanism, 10.0)
    assert found is not None
    assert 0.0 < found.remove <= 1.0
    # Without it there is more, where it is small enough.
    monkeypatch.setattr(truncation, "_MOST_APART", 0)
    without = truncation.reduction(smaller, 10.0)
    assert with_table is not None
    assert without is not None
    assert with_table.remove <= without.remove
    assert with_table.known_add == without.known_add


def test_plain_samples_need_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "hockeystick.montecarlo.direction.tilting", lambda *_: pytest.fail("it was asked how to tilt")
    )
    scheme = TruncatedBMinSep(100, 100, 1e-3, 1000, 30)
    mechanism = hs.BandMF(hs.Identity(100), scheme, 1.0)
    assert hs.estimate_delta(mechanism, 1.0, 1000, seed=1, method="plain").method == "plain"
