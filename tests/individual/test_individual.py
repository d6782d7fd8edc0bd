"""Individual epsilons: bounds on the exact heterogeneous composition, whatever the history."""

import math
from fractions import Fraction
from pathlib import Path

import hockeystick as hs
import hypothesis
import numpy as np
import pytest
from hockeystick import _core
from hockeystick._base import storage
from hockeystick.individual.cells import cell_edges, sampled_pairs
from hypothesis import given, settings
from hypothesis import strategies as st

Steps = list[tuple[float, float, int]]  # (mu, q, count)


def exact_bounds(
    histories: list[Steps], delta: float, adjacency: str = "add_or_remove", accuracy: float = 1e-4
) -> tuple[np.ndarray, np.ndarray]:
    """The engine's own bounds for the histories as they are, without a grid of norms."""
    directions = {"add_or_remove": ("remove", "add")}.get(adjacency, (adjacency,))
    inquiries = []
    for history in histories:
        steps = [
            [
                (_core.sampled_pair(_core.gaussian_pair(mu), q, direction), count)
                for mu, q, count in history
                if mu > 0
            ]
            for direction in directions
        ]
        inquiries.append((steps, [delta]))
    lower, upper, _ = _core.grid("epsilon", inquiries, accuracy)
    return lower, upper


def random_histories(
    rng: np.random.Generator, number: int, sigma: float, clip: float
) -> list[list[tuple[float, int]]]:
    """(norm, count) with a few distinct norms each, from nearly constant to spread over decades."""
    out = []
    for _ in range(number):
        kinds = int(rng.integers(1, 5))
        centre, spread = math.exp(rng.uniform(math.log(0.08), math.log(2.0))), rng.choice([1e-3, 0.1, 0.7])
        norms = np.maximum(centre * np.exp(spread * rng.standard_normal(kinds)), 0.07) * clip
        steps = np.maximum(1, rng.multinomial(int(rng.integers(300, 9000)), np.full(kinds, 1 / kinds)))
        out.append(list(zip(norms.tolist(), steps.tolist(), strict=True)))
    return out


def record(accountant: hs.IndividualAccountant, histories: list[list[tuple[float, int]]]) -> None:
    for i in range(max(map(len, histories))):
        norms = np.array([h[i][0] if i < len(h) else 0.0 for h in histories])
        counts = np.array([h[i][1] if i < len(h) else 0 for h in histories])
        for count in np.unique(counts[counts > 0]).tolist():
            accountant.step(np.where(counts == count, norms, 0.0), steps=count)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("sigma", "q", "delta"),
    [(2.0, 0.006, 1e-6), (1.0, 0.01, 1e-5), (0.8, 0.02, 1e-7), (4.0, 0.05, 1e-9), (10.0, 0.3, 1e-5)],
)
def test_bounds_of_exact_compositions(sigma: float, q: float, delta: float) -> None:
    """210 random histories for each of five settings: an upper bound, and within 2 %."""
    rng = np.random.default_rng(int(1000 * sigma))
    clip = 5.0
    histories = random_histories(rng, 210, sigma, clip)
    accountant = hs.IndividualAccountant(
        210, noise_multiplier=sigma, sampling_probability=q, clipping_norm=clip
    )
    record(accountant, histories)
    lower, upper = accountant.nonadaptive_epsilon_bounds(delta)
    exact_lower, exact_upper = exact_bounds(
        [[(min(norm, clip) / (sigma * clip), q, count) for norm, count in h] for h in histories], delta
    )
    assert (lower <= exact_upper).all()
    assert (exact_lower <= upper).all()
    assert (upper <= 1.02 * exact_lower + 1e-6).all()
    assert (upper <= 1.05 * lower + 1e-6).all()
    assert upper.tobytes() == accountant.nonadaptive_epsilon(delta).tobytes()


@settings(max_examples=12, deadline=None)
@hypothesis.example(sigma=0.3, q=1e-5, log_delta=-25.0, history=[(1.2, 1)])  # one rare hit and little noise
@hypothesis.example(sigma=0.3, q=0.5, log_delta=-25.0, history=[(0.5, 30), (1e-3, 1)])
@hypothesis.example(sigma=30.0, q=0.5, log_delta=-0.5, history=[(1e-3, 1)])  # epsilon 0
@given(
    sigma=st.floats(0.3, 30.0),
    q=st.floats(1e-5, 0.5),
    log_delta=st.floats(-25.0, -0.5),
    history=st.lists(st.tuples(st.floats(1e-3, 1.2), st.integers(1, 30)), min_size=1, max_size=3),
)
def test_short_histories(sigma: float, q: float, log_delta: float, history: list[tuple[float, int]]) -> None:
    """Few steps, where the transform decays slowly: bounds all the same, never nan."""
    delta = math.exp(log_delta)
    accountant = hs.IndividualAccountant(1, noise_multiplier=sigma, sampling_probability=q, clipping_norm=1.0)
    record(accountant, [history])
    lower, upper = accountant.nonadaptive_epsilon_bounds(delta)
    steps = [(min(norm, 1.0) / sigma, q, count) for norm, count in history]
    exact_lower, exact_upper = exact_bounds([steps], delta)
    assert exact_lower[0] <= upper[0] < math.inf
    assert lower[0] <= exact_upper[0]


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("sigma", "q", "delta", "resolution"),
    [
        (2.0, 0.006, 1e-6, 0.007),
        (1.0, 0.01, 1e-5, 0.0035),
        (0.7, 0.002, 1e-7, 0.0035),
        (4.0, 0.05, 1e-9, 0.007),
        (1.0, 0.3, 1e-3, 0.007),
    ],
)
def test_few_steps(sigma: float, q: float, delta: float, resolution: float) -> None:
    """1 to 30 steps, all with norms of their own, over two decades: a bound, within 2 %; equal rows agree.

    Where a single hit decides and the noise is small, epsilon grows like e^(mu t) with mu, and the default grid's
    0.7 % of mu cost up to 3.3 %: half of that is within 2 %.
    """
    rng = np.random.default_rng(int(100 * sigma))
    # Without a grid they cost up to a second each, so there are few of them.
    lengths = np.array([3, 1, 1, 2, 4, 6, 30, 3])
    rows = lengths.size
    norms = np.exp(rng.uniform(math.log(0.08), math.log(2.0), (30, rows)))
    norms[np.arange(30)[:, None] >= lengths] = 0.0
    norms[:, -1] = norms[:, 0]
    accountant = hs.IndividualAccountant(
        rows,
        noise_multiplier=sigma,
        sampling_probability=q,
        clipping_norm=1.0,
        resolution=resolution,
        fine=round(384 * 0.007 / resolution),
    )
    for step in norms:
        accountant.step(step)
    lower, upper = accountant.nonadaptive_epsilon_bounds(delta)
    assert upper[0] == upper[-1] > 0.0
    histories = [[(min(x, 1.0) / sigma, q, 1) for x in column if x > 0] for column in norms.T[:-1].tolist()]
    exact_lower, exact_upper = exact_bounds(histories, delta, accuracy=1e-3)
    assert (lower[:-1] <= exact_upper).all()
    assert (exact_lower <= upper[:-1]).all()
    assert (upper[:-1] <= 1.02 * exact_lower + 1e-6).all()
    # The same from the delta at given epsilons, above and below.
    for row in (0, 4):
        profile = hs.PrivacyProfile(_process(histories[row]), "add_or_remove", accuracy=1e-3)
        for factor in (0.5, 1.2):
            found = accountant.nonadaptive_delta(factor * exact_lower[row])
            assert profile.delta_bounds(factor * exact_lower[row]).lower <= found[row]


def _process(history: Steps) -> hs.mechanisms.Process:
    return hs.mechanisms.Process(
        [(hs.PoissonSampled(hs.Gaussian(1 / mu), q), count) for mu, q, count in history]
    )


@pytest.mark.parametrize(
    ("sigma", "q", "delta", "gap"),
    [(0.7, 0.002, 1e-7, 1.02), (1.0, 0.001, 1e-5, 1.04), (0.8, 0.0003, 1e-6, 1.06)],
)
def test_rare_hits(sigma: float, q: float, delta: float, gap: float) -> None:
    """Where less than one to a dozen hits decide: bounds, within a few percent; the full engine does better."""
    rng = np.random.default_rng(11)
    histories = random_histories(rng, 16, sigma, 1.0)
    accountant = hs.IndividualAccountant(
        16, noise_multiplier=sigma, sampling_probability=q, clipping_norm=1.0
    )
    record(accountant, histories)
    exact_lower, _ = exact_bounds([[(min(n, 1.0) / sigma, q, k) for n, k in h] for h in histories], delta)
    upper = accountant.nonadaptive_epsilon(delta, refine=0)
    assert (exact_lower <= upper).all()
    assert (upper <= gap * exact_lower + 1e-6).all()
    refined = accountant.nonadaptive_epsilon(delta, accuracy=1e-3, refine=16)
    assert (exact_lower <= refined).all()
    assert (refined <= upper).all()
    assert (refined <= 1.02 * exact_lower + 1e-6).all()


def test_adversarial_norms() -> None:
    """Norms at, just above and just below the edges of cells are never rounded down."""
    edges = cell_edges(1.5)
    norms = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 9), edges * (1 - 1e-12)])
    cells = _core.find_cells(norms, edges, math.inf, 1.0).astype(int)
    covered = np.concatenate([edges, [math.inf]])[cells - 1]
    assert (norms <= covered).all()
    below = np.concatenate([[0.0], edges])[cells - 1]
    assert (norms > below).all()
    assert _core.find_cells(np.array([0.0, 5e-324, 2.0, math.inf]), edges, math.inf, 1.0).tolist() == [
        0,
        1,
        edges.size + 1,
        edges.size + 1,
    ]


@settings(max_examples=100, deadline=None)
@given(
    sigma=st.floats(0.01, 1e6),
    clip=st.floats(1e-6, 1e6),
    norms=st.lists(st.one_of(st.floats(0.0, 1e9), st.just(math.inf)), min_size=1, max_size=20),
)
def test_cells_cover_the_scaled_norms(sigma: float, clip: float, norms: list[float]) -> None:
    """Also with rounding in sigma C and in the quotient, in rational numbers; a clipped norm is in the last cell."""
    from fractions import Fraction

    accountant = hs.IndividualAccountant(
        len(norms), noise_multiplier=sigma, sampling_probability=0.01, clipping_norm=clip
    )
    accountant.step(norms)
    for row, norm in enumerate(norms):
        cells = np.flatnonzero(accountant._state.counts[0.01][row])
        assert cells.size == (norm > 0)
        if norm > 0:
            exact = Fraction(min(norm, clip)) / (Fraction(sigma) * Fraction(clip))
            assert exact <= Fraction(float(accountant.edges[cells[0]]))


def test_one_cell_is_the_plain_composition() -> None:
    """At an edge of the grid nothing is rounded: the answer is that of `account`."""
    accountant = hs.IndividualAccountant(
        1, noise_multiplier=2.0, sampling_probability=300 / 50000, clipping_norm=5.0
    )
    accountant.step([7.0], steps=8350)
    lower, upper = hs.account(hs.PoissonSampled(hs.Gaussian(2.0), 300 / 50000) * 8350).epsilon_bounds(1e-6)
    assert lower <= accountant.nonadaptive_epsilon(1e-6)[0] <= upper * (1 + 1e-4)
    assert accountant.profile(0).epsilon(1e-6) == pytest.approx(upper, rel=1e-9)


def test_unsampled_steps_are_gaussian() -> None:
    accountant = hs.IndividualAccountant(
        3, noise_multiplier=50.0, sampling_probability=1.0, clipping_norm=1.0
    )
    accountant.step([0.0, 0.3, 1.0], steps=400)
    found = accountant.nonadaptive_epsilon(1e-5)
    exact = _core.gaussian_epsilons(np.array([0.0, 0.3 * 20 / 50, 20 / 50]), 1e-5)
    assert (exact * (1 - 1e-9) <= found).all()
    assert (found <= exact * 1.02).all()


def test_steps_of_different_kinds() -> None:
    """Noise, clipping and sampling change on the way; examples come and go."""
    accountant = hs.IndividualAccountant(
        2, noise_multiplier=1.0, sampling_probability=0.01, clipping_norm=1.0
    )
    accountant.step([0.5, 3.0], steps=300)
    accountant.step([0.5, 3.0], noise_multiplier=2.0, clipping_norm=4.0, steps=200)
    accountant.step([0.5, 3.0], sampling_probability=0.05, steps=20)
    accountant.step([0.5, 3.0], active=[False, True], steps=100)
    lower, upper = accountant.nonadaptive_epsilon_bounds(1e-5)
    exact_lower, exact_upper = exact_bounds(
        [
            [(0.5, 0.01, 300), (0.0625, 0.01, 200), (0.5, 0.05, 20)],
            [(1.0, 0.01, 400), (0.375, 0.01, 200), (1.0, 0.05, 20)],
        ],
        1e-5,
    )
    assert (lower <= exact_upper).all()
    assert (exact_lower <= upper).all()
    assert (upper <= 1.02 * exact_lower).all()
    assert accountant.steps == 620


@pytest.mark.parametrize("adjacency", ["add_or_remove", "add", "remove"])
def test_delta_and_epsilon_agree(adjacency: str) -> None:
    accountant = hs.IndividualAccountant(
        3, noise_multiplier=1.0, sampling_probability=0.01, clipping_norm=1.0, adjacency=adjacency
    )
    accountant.step([0.0, 0.4, 1.0], steps=1000)
    for example in (1, 2):
        profile = accountant.profile(example)
        for epsilon in (0.0, 0.1, 0.7, 2.0):
            lower, upper = profile.delta_bounds(epsilon)
            found = accountant.nonadaptive_delta(epsilon)[example]
            assert lower <= found
            # Far in the tail Chernoff's bound may be all there is.
            assert found <= upper * (1 + 1e-3) or upper < 1e-15
    assert accountant.nonadaptive_delta([0.0, 1.0, 1.0])[0] == 0.0
    epsilon = accountant.nonadaptive_epsilon(1e-5)
    # Both are upper bounds: one of a bound need not come back below.
    assert (accountant.nonadaptive_delta(epsilon) <= 1e-5 * (1 + 1e-3)).all()


@pytest.mark.parametrize("noise", [100.0, 5.0, 0.5])
@pytest.mark.parametrize("q", [0.1, 1e-6, 1.0])
def test_delta_is_positive_wherever_something_was_spent(noise: float, q: float) -> None:
    """The losses have no largest one, so that 0 is no upper bound, however little a double holds."""
    accountant = hs.IndividualAccountant(2, noise_multiplier=noise, sampling_probability=q, clipping_norm=1.0)
    for _ in range(2):
        accountant.step([1.0, 0.0])
        for epsilon in (5.0, 40.0, 300.0):
            spent, nothing = accountant.nonadaptive_delta(epsilon)
            assert spent >= 5e-324
            assert nothing == 0.0


def test_gdp_mu_holds_for_every_epsilon() -> None:
    accountant = hs.IndividualAccountant(
        2, noise_multiplier=2.0, sampling_probability=0.006, clipping_norm=1.0
    )
    rng = np.random.default_rng(3)
    for _ in range(12):
        accountant.step(rng.lognormal(-1.0, 0.4, 2), steps=160)
    mu = accountant.nonadaptive_gdp_mu(1, slack=1e-9)
    gaussian = hs.account(hs.Gaussian(1 / mu))
    profile = accountant.profile(1)
    for epsilon in np.linspace(0.0, 1.5, 19).tolist():
        assert profile.delta_bounds(epsilon).lower <= gaussian.delta(epsilon) + 1e-9
    assert mu <= 1.01 * profile.gdp_mu(slack=1e-9)
    # Without slack, sampling does not help: mu^2 adds up as if there were none.
    plain = math.sqrt(
        sum(count / step.mechanism.noise_multiplier**2 for step, count in accountant.history(1))
    )
    assert plain <= accountant.nonadaptive_gdp_mu(1, slack=0.0) <= plain * (1 + 1e-9)
    assert mu < 0.1 * plain


def test_answers_depend_on_the_example_alone() -> None:
    """Not on who stands beside it, nor on threads, nor on the order of questions."""
    rng = np.random.default_rng(8)
    edges = cell_edges(1.0, fine=60, coarse=5)
    counts = rng.integers(0, 60, (300, edges.size)).astype(np.uint16) * (rng.random((300, edges.size)) < 0.2)
    counts = np.ascontiguousarray(counts, np.uint16)
    counts[::7] //= 20

    def profiles() -> _core.IndividualProfiles:
        return _core.IndividualProfiles(sampled_pairs(edges, 0.01, "remove"))

    hs.set_threads(1)
    lower, upper, path = profiles().epsilon(counts, 1e-6)
    hs.set_threads(3)
    again = profiles()
    again.epsilon(counts[::-1].copy(), 1e-3)
    for rows in (slice(0, 300), slice(17, 18), slice(100, 250)):
        found = again.epsilon(counts[rows], 1e-6)
        assert found[0].tobytes() == lower[rows].tobytes()
        assert found[1].tobytes() == upper[rows].tobytes()
        assert found[2].tobytes() == path[rows].tobytes()
    wide = again.epsilon(counts.astype(np.uint32), 1e-6)
    assert wide[1].tobytes() == upper.tobytes()
    hs.set_threads(0)


def test_limits() -> None:
    def accountant(q: float, norm: float = 1.0) -> hs.IndividualAccountant:
        out = hs.IndividualAccountant(1, noise_multiplier=1.0, sampling_probability=q, clipping_norm=1.0)
        out.step([norm], steps=10)
        return out

    assert accountant(0.5).nonadaptive_epsilon(0.0)[0] == math.inf
    assert accountant(0.5).nonadaptive_epsilon(1.0)[0] == 0.0
    assert accountant(0.0).nonadaptive_epsilon(0.0)[0] == 0.0
    assert accountant(0.5, 0.0).nonadaptive_epsilon(1e-9)[0] == 0.0
    assert 0.0 < accountant(1e-9).nonadaptive_epsilon(1e-300)[0] < math.inf
    assert 0.0 < accountant(1.0).nonadaptive_epsilon(1e-300)[0] < math.inf
    assert (
        hs.IndividualAccountant(0, noise_multiplier=1.0, sampling_probability=0.1, clipping_norm=1.0)
        .nonadaptive_epsilon(0.1)
        .size
        == 0
    )
    tiny = accountant(1e-6, 1e-9)
    assert tiny.nonadaptive_epsilon(1e-3)[0] == 0.0
    huge = hs.IndividualAccountant(1, noise_multiplier=0.01, sampling_probability=1.0, clipping_norm=1.0)
    huge.step([1.0], steps=10**9)
    assert 1e12 < huge.nonadaptive_epsilon(1e-5)[0] < math.inf
    rare = hs.IndividualAccountant(1, noise_multiplier=0.05, sampling_probability=1e-7, clipping_norm=1.0)
    rare.step([1.0], steps=3)
    exact = exact_bounds([[(20.0, 1e-7, 3)]], 1e-9)
    assert exact[0][0] <= rare.nonadaptive_epsilon(1e-9)[0] < math.inf


def test_refusals() -> None:
    accountant = hs.IndividualAccountant(2, noise_multiplier=1.0, sampling_probability=0.1, clipping_norm=1.0)
    for norms in ([math.nan, 0.0], [0.0, -1.0]):
        with pytest.raises(hs.ParameterError, match="norms"):
            accountant.step(norms)
    with pytest.raises(hs.ParameterError, match=r"noise_multiplier = 0\.9"):
        accountant.step([0.0, 1.0], noise_multiplier=0.9)
    with pytest.raises(hs.ParameterTypeError, match="active"):
        accountant.step([0.0, 1.0], active=[1, 0])
    with pytest.raises(hs.ParameterError, match="shape"):
        accountant.step([1.0])
    assert accountant.steps == 0
    with pytest.raises(hs.ParameterError, match="delta"):
        accountant.nonadaptive_epsilon(-0.1)
    with pytest.raises(hs.ParameterError, match="epsilon"):
        accountant.nonadaptive_delta(-0.1)
    with pytest.raises(hs.ParameterError, match="example = 2"):
        accountant.nonadaptive_gdp_mu(2, 0.1)


def test_many_steps_need_wider_counters() -> None:
    accountant = hs.IndividualAccountant(
        2, noise_multiplier=20.0, sampling_probability=0.001, clipping_norm=1.0
    )
    accountant.step([1.0, 0.5], steps=65_000)
    before = accountant.nonadaptive_epsilon(1e-5)
    accountant.step([1.0, 0.5], steps=10_000_000 - 65_000)
    exact = hs.account(hs.PoissonSampled(hs.Gaussian(20.0), 0.001) * 10_000_000).epsilon(1e-5)
    found = accountant.nonadaptive_epsilon(1e-5)
    assert (found > before).all()
    assert exact * (1 - 1e-9) <= found[0] <= exact * (1 + 1e-4)


def test_shards_and_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    settings_ = {"noise_multiplier": 1.0, "sampling_probability": 0.01, "clipping_norm": 2.0}
    whole = hs.IndividualAccountant(7, **settings_)
    shards = [hs.IndividualAccountant(n, **settings_) for n in (3, 4)]
    for _ in range(5):
        norms = rng.random(7) * 3
        q = float(rng.choice([0.01, 0.02]))
        whole.step(norms, sampling_probability=q, steps=100)
        shards[0].step(norms[:3], sampling_probability=q, steps=100)
        shards[1].step(norms[3:], sampling_probability=q, steps=100)
    merged = hs.IndividualAccountant.merge(shards)
    path = tmp_path / "accountant"
    merged.save(path)
    loaded = hs.IndividualAccountant.load(path)
    expected = whole.nonadaptive_epsilon(1e-5)
    for other in (merged, loaded):
        assert np.allclose(other.nonadaptive_epsilon(1e-5), expected, rtol=1e-12)
        assert other.steps == whole.steps
    loaded.step(np.ones(7))
    whole.step(np.ones(7))
    assert np.allclose(loaded.nonadaptive_epsilon(1e-5), whole.nonadaptive_epsilon(1e-5), rtol=1e-12)
    with pytest.raises(hs.ParameterError, match="steps"):
        hs.IndividualAccountant.merge([whole, shards[0]])
    damaged = bytearray(path.read_bytes())
    damaged[5000] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(hs.StorageError, match="checksum"):
        hs.IndividualAccountant.load(path)


def test_summaries() -> None:
    found = hs.individual.summarise([3.0, 1.0, math.inf, 2.0, 5.0], [1, 1, 0, 1, 0])
    assert [(s.group, s.count, s.median, s.maximum) for s in found] == [
        ("0", 2, 5.0, math.inf),
        ("1", 3, 2.0, 3.0),
    ]
    with pytest.raises(hs.ParameterError, match="groups"):
        hs.individual.summarise([1.0], [1, 2])
    unknown = hs.individual.summarise([3.0, 1.0, 2.0], [math.nan, 5.0, math.nan])
    assert [(s.group, s.count, s.maximum) for s in unknown] == [("5.0", 1, 1.0), ("nan", 2, 3.0)]
    gaps = hs.individual.summarise([3.0, 1.0, 2.0, 4.0], np.array([math.nan, "a", math.nan, None], object))
    assert [(s.group, s.count, s.maximum) for s in gaps] == [("None", 1, 4.0), ("a", 1, 1.0), ("nan", 2, 3.0)]
    with pytest.raises(hs.ParameterTypeError, match=r"values.*masked"):
        hs.individual.summarise(np.ma.array([1.0, 100.0], mask=[False, True]))


@pytest.mark.parametrize(
    ("resolution", "told"),
    [
        (np.float16(3e-4), False),
        (np.float32(0.007), False),
        (0.007, True),
        (np.float16(2.0**-9), False),
        (2.0**-9, False),  # as good as that
        (0.1, True),
    ],
    ids=str,
)
def test_files_that_do_not_name_their_grid(tmp_path: Path, resolution: float, told: bool) -> None:
    """Of 0.2.0, which counted on one grid and read on another where the resolution was no double (epsilon .92 for 33)."""
    accountant = hs.IndividualAccountant(
        2,
        noise_multiplier=2.0,
        sampling_probability=0.5,
        clipping_norm=1.0,
        resolution=resolution,
        fine=300,
        coarse=0,
    )
    accountant.step([0.3, 0.9], steps=10)
    path = tmp_path / "accountant"
    accountant.save(path)
    content, arrays = storage.read(path, hs.IndividualAccountant._KIND)
    loaded = hs.IndividualAccountant.load(path)
    assert np.array_equal(loaded.nonadaptive_epsilon(1e-5), accountant.nonadaptive_epsilon(1e-5))
    storage.write(path, hs.IndividualAccountant._KIND, {**content, "grid": "0" * 32}, arrays)
    with pytest.raises(hs.StorageError, match="on another grid of norms"):
        hs.IndividualAccountant.load(path)
    del content["grid"]
    storage.write(path, hs.IndividualAccountant._KIND, content, arrays)
    if told:
        assert hs.IndividualAccountant.load(path).steps == 10
    else:
        with pytest.raises(hs.StorageError, match="on another grid of norms"):
            hs.IndividualAccountant.load(path)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.longdouble, Fraction])
def test_a_resolution_of_any_kind_is_the_one_that_is_read_back(kind: type, tmp_path: Path) -> None:
    resolution = kind(0.007) if kind is not Fraction else Fraction(7, 1000)
    accountant = hs.IndividualAccountant(
        1,
        noise_multiplier=2.0,
        sampling_probability=1.0,
        clipping_norm=1.0,
        resolution=resolution,
        path=tmp_path / "live",
    )
    accountant.step([0.25], steps=100)
    accountant.save(tmp_path / "file")
    copies = [hs.IndividualAccountant.merge([accountant]), hs.IndividualAccountant.load(tmp_path / "file")]
    accountant.close()
    copies.append(hs.IndividualAccountant.open(tmp_path / "live"))
    assert all((copy.edges == accountant.edges).all() for copy in copies)
    # 100 steps of mu = 1/8 are one of 5/4.
    truth = hs.account(hs.Gaussian(0.8)).epsilon_bounds(1e-5).lower
    assert all(copy.nonadaptive_epsilon(1e-5)[0] >= truth for copy in copies)
    copies[-1].close()


def test_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    values = np.array([0.1, 0.2, math.inf, 0.4])
    figure = hs.plots.plot_individual(values, ["a", "a", "b", "b"], tmp_path / "epsilons.png")
    assert "1 infinite" in figure.axes[0].get_title()
    assert "sensitive" in figure.axes[0].get_title()
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["a", "b"]
    figure = hs.plots.plot_active([5, 4, 4], tmp_path / "active.png")
    assert figure.axes[0].lines[0].get_ydata().tolist() == [5, 4, 4]
    assert (tmp_path / "epsilons.png").stat().st_size > 0 < (tmp_path / "active.png").stat().st_size
    hs.plots.plot_individual([math.inf])
    # A label that is nan is one like any other; a masked value has none.
    axes = hs.plots.plot_individual([0.1, 0.2, 0.4], [1.0, math.nan, math.nan]).axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["1.0", "nan"]
    assert len(axes.patches) == 2
    with pytest.raises(hs.ParameterTypeError, match="values"):
        hs.plots.plot_individual(np.ma.masked_array([0.1, 99.0], [False, True]))
    with pytest.raises(hs.ParameterError, match="groups"):
        hs.plots.plot_individual([1.0], ["a", "b"])
    with pytest.raises(hs.ParameterError, match="counts"):
        hs.plots.plot_active([[1]])


@pytest.mark.parametrize(("rows", "chunk"), [(5, 2), (3, 4096), (65536, 4)])
def test_blocks_of_examples_are_answered_alike(
    rows: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hockeystick.individual import accountant as individual

    accountant = hs.IndividualAccountant(
        12, noise_multiplier=1.0, sampling_probability=0.02, clipping_norm=1.0
    )
    for step in range(20):
        accountant.step(np.random.default_rng(step).random(12))
    asked = [
        lambda: accountant.epsilon(1e-5),
        lambda: accountant.nonadaptive_epsilon(1e-5),
        lambda: accountant.nonadaptive_delta(0.5),
    ]
    whole = [ask() for ask in asked]
    monkeypatch.setattr(individual, "_ROWS", rows)
    monkeypatch.setattr(individual, "_CHUNK", chunk)
    for ask, before in zip(asked, whole, strict=True):
        np.testing.assert_array_equal(ask(), before)


@pytest.mark.parametrize("slack", [1e-3, 1e-5, 1e-8])
def test_mu_is_of_both_directions(slack: float) -> None:
    """A trade-off curve is above that of mu only if delta is below it in both: one of them alone has the smaller mu (.127 for .258)."""
    found = {}
    for adjacency in ("add", "remove", "add_or_remove"):
        accountant = hs.IndividualAccountant(
            1, noise_multiplier=1.0, sampling_probability=0.01, clipping_norm=1.0, adjacency=adjacency
        )
        accountant.step([1.0], steps=100)
        found[adjacency] = accountant.nonadaptive_gdp_mu(0, slack)
        history = accountant.profile(0)
        both = hs.account(history.description, "add_or_remove").gdp(slack).mu_bounds
        assert found[adjacency] >= both.lower * (1.0 - 1e-9)
    assert found["add"] == found["remove"] == found["add_or_remove"]
