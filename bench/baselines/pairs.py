"""One mechanism, one direction: the tails of the privacy loss L = ln P/Q under P and under Q.

Two hockey-stick curves describe a pair completely; each is small, and free of cancellation, on its side:

    above(x) = H_{e^x}(P||Q)     = P(L > x) - e^x Q(L > x)
    below(x) = e^x H_{e^-x}(Q||P) = e^x Q(L <= x) - P(L <= x)   = above(x) - (1 - e^x)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

Floats = NDArray[np.float64]


class Pair:
    """What every pair can do. Subclasses give the two tail functions."""

    infinity_mass: float = 0.0
    """P(L = +inf)."""

    max_loss: float = np.inf
    """No finite loss is larger."""

    def tails(self, x: ArrayLike) -> tuple[Floats, Floats]:
        """P(L > x) and Q(L > x)."""
        raise NotImplementedError

    def cotails(self, x: ArrayLike) -> tuple[Floats, Floats]:
        """P(L <= x) and Q(L <= x)."""
        raise NotImplementedError

    def above(self, x: ArrayLike) -> Floats:
        p, q = self.tails(x)
        return p - np.exp(x) * q

    def below(self, x: ArrayLike) -> Floats:
        p, q = self.cotails(x)
        return np.exp(x) * q - p


@dataclass(frozen=True)
class Gaussian(Pair):
    """N(mu, 1) against N(0, 1)."""

    mu: float

    def _log_tails(self, x: ArrayLike, sign: float) -> tuple[Floats, Floats]:
        level = np.asarray(x, dtype=float) / self.mu
        return log_ndtr(sign * (self.mu / 2 - level)), log_ndtr(sign * (-self.mu / 2 - level))

    def tails(self, x: ArrayLike) -> tuple[Floats, Floats]:
        p, q = self._log_tails(x, 1.0)
        return np.exp(p), np.exp(q)

    def cotails(self, x: ArrayLike) -> tuple[Floats, Floats]:
        p, q = self._log_tails(x, -1.0)
        return np.exp(p), np.exp(q)

    def above(self, x: ArrayLike) -> Floats:
        x = np.asarray(x, dtype=float)
        p, q = self._log_tails(x, 1.0)
        return np.exp(p) * -np.expm1(np.minimum(x + q - p, 0.0))

    def below(self, x: ArrayLike) -> Floats:
        x = np.asarray(x, dtype=float)
        p, q = self._log_tails(x, -1.0)
        return np.exp(x + q) * -np.expm1(np.minimum(p - x - q, 0.0))


@dataclass(frozen=True)
class Laplace(Pair):
    """Laplace noise of scale 1 around `epsilon`, against around 0: atoms at both ends, a density between."""

    epsilon: float

    @property
    def max_loss(self) -> float:  # type: ignore[override]
        return self.epsilon

    def tails(self, x: ArrayLike) -> tuple[Floats, Floats]:
        x = np.asarray(x, dtype=float)
        p = 1 - np.exp((np.clip(x, -self.epsilon, self.epsilon) - self.epsilon) / 2) / 2
        q = np.exp(-(np.clip(x, -self.epsilon, self.epsilon) + self.epsilon) / 2) / 2
        inside, left = x < self.epsilon, x < -self.epsilon
        return np.where(left, 1.0, np.where(inside, p, 0.0)), np.where(left, 1.0, np.where(inside, q, 0.0))

    def cotails(self, x: ArrayLike) -> tuple[Floats, Floats]:
        x = np.asarray(x, dtype=float)
        inner = np.clip(x, -self.epsilon, self.epsilon)
        p = np.exp((inner - self.epsilon) / 2) / 2
        q = 1 - np.exp(-(inner + self.epsilon) / 2) / 2
        inside, left = x < self.epsilon, x < -self.epsilon
        return np.where(left, 0.0, np.where(inside, p, 1.0)), np.where(left, 0.0, np.where(inside, q, 1.0))

    def above(self, x: ArrayLike) -> Floats:
        x = np.asarray(x, dtype=float)
        inside = -np.expm1((np.clip(x, -self.epsilon, self.epsilon) - self.epsilon) / 2)
        return np.where(x < -self.epsilon, -np.expm1(np.minimum(x, 0.0)), inside)

    def below(self, x: ArrayLike) -> Floats:
        x = np.asarray(x, dtype=float)
        inner = np.clip(x, -self.epsilon, self.epsilon)
        inside = np.exp(inner) * -np.expm1(-(inner + self.epsilon) / 2)
        return np.where(x < self.epsilon, inside, np.expm1(x))


@dataclass(frozen=True)
class Discrete(Pair):
    """Finitely many losses (increasing) with P-masses; `infinity_mass` of P where Q has none."""

    losses: Floats
    masses: Floats
    infinity_mass: float = 0.0

    @property
    def max_loss(self) -> float:  # type: ignore[override]
        return float(self.losses[-1])

    def _index(self, x: ArrayLike) -> NDArray[np.intp]:
        return np.searchsorted(self.losses, x, side="right")

    def tails(self, x: ArrayLike) -> tuple[Floats, Floats]:
        p = np.append(np.cumsum(self.masses[::-1])[::-1], 0.0) + self.infinity_mass
        q = np.append(np.cumsum((self.masses * np.exp(-self.losses))[::-1])[::-1], 0.0)
        return p[self._index(x)], q[self._index(x)]

    def cotails(self, x: ArrayLike) -> tuple[Floats, Floats]:
        q_masses = self.masses * np.exp(-self.losses)
        p = np.append(0.0, np.cumsum(self.masses))
        q = np.append(0.0, np.cumsum(q_masses)) + max(0.0, 1.0 - q_masses.sum())  # Q where P has nothing
        return p[self._index(x)], q[self._index(x)]


def randomized_response(epsilon: float, categories: int = 2) -> Discrete:
    """k-ary randomized response: truth with odds e^epsilon against each other category."""
    total = np.exp(epsilon) + categories - 1
    losses, masses = [-epsilon, 0.0, epsilon], [1 / total, (categories - 2) / total, np.exp(epsilon) / total]
    keep = [0, 2] if categories == 2 else [0, 1, 2]
    return Discrete(np.array(losses)[keep], np.array(masses)[keep])


def approximate_dp(epsilon: float, delta: float) -> Discrete:
    """The worst (epsilon, delta)-DP pair: randomized response, and mass delta that gives everything away."""
    binary = randomized_response(epsilon)
    return Discrete(binary.losses, (1 - delta) * binary.masses, infinity_mass=delta)


def shifted(log_mass: Floats, shift: int) -> Discrete:
    """Integer noise with log-masses on a symmetric support, shifted by `shift`; what leaves the support is lost."""
    p, q = log_mass[:-shift], log_mass[shift:]
    losses, position = np.unique(np.round(p - q, 12), return_inverse=True)
    return Discrete(
        losses, np.bincount(position, weights=np.exp(p)), infinity_mass=np.exp(log_mass[-shift:]).sum()
    )


def discrete_gaussian(sigma: float, shift: int = 1) -> Discrete:
    """Noise on the integers with mass ~ e^(-i^2 / 2 sigma^2), cut where it falls below 1e-300 of its peak."""
    support = np.arange(-int(37 * sigma) - 2 * shift, int(37 * sigma) + 2 * shift + 1)
    weight = -(support**2) / (2 * sigma**2)
    return shifted(weight - np.log(np.exp(weight).sum()), shift)


def discrete_laplace(scale: float, shift: int = 1) -> Discrete:
    """Noise on the integers with mass ~ e^(-|i| / scale); the loss takes `shift` + 1 values, so this is exact."""
    ratio = np.exp(-1 / scale)
    inside = np.arange(shift + 1)  # noise of Q at the outputs 0..shift; beyond them the loss is constant
    p = (1 - ratio) / (1 + ratio) * ratio ** (shift - inside)
    p[[0, -1]] /= 1 - ratio
    return Discrete((2 * inside - shift) / scale, p)


@dataclass(frozen=True)
class Sampled(Pair):
    """`pair` run on a sample that holds the record with probability q.

    mode "remove": ((1-q) Q + q P, Q); "add": (P, (1-q) P + q Q); "replace_one": the first for x >= 0, the
    second for x < 0 (advanced joint convexity, Balle et al. 2018), which dominates fixed-size samples.
    Both reduce to `pair` at another level: P/Q > e^level.
    """

    pair: Pair
    q: float
    mode: str = "remove"

    @property
    def infinity_mass(self) -> float:  # type: ignore[override]
        return self.pair.infinity_mass * (self.q if self.mode != "add" else float(self.q == 1.0))

    @property
    def max_loss(self) -> float:  # type: ignore[override]
        with np.errstate(divide="ignore", over="ignore"):
            if self.mode == "add":
                return float(-np.log1p(self.q * np.expm1(-self.pair.max_loss)))
            return float(np.log1p(self.q * np.expm1(self.pair.max_loss)))

    def _switch(self, name: str, x: ArrayLike):
        x = np.asarray(x, dtype=float)
        remove = getattr(self, f"_{name}_remove")
        add = getattr(self, f"_{name}_add")
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if self.mode == "remove":
                return remove(x)
            if self.mode == "add":
                return add(x)
            if isinstance(r := remove(x), tuple):
                return tuple(np.where(x >= 0, one, other) for one, other in zip(r, add(x), strict=True))
            return np.where(x >= 0, r, add(x))

    def tails(self, x: ArrayLike) -> tuple[Floats, Floats]:
        return self._switch("tails", x)

    def cotails(self, x: ArrayLike) -> tuple[Floats, Floats]:
        return self._switch("cotails", x)

    def above(self, x: ArrayLike) -> Floats:
        return self._switch("above", x)

    def below(self, x: ArrayLike) -> Floats:
        return self._switch("below", x)

    def _level_remove(self, x: Floats) -> tuple[NDArray[np.bool_], Floats]:
        """Where e^x exceeds 1-q, and ln((e^x - (1-q)) / q) there."""
        odds = np.expm1(x) / self.q
        return odds > -1, np.log1p(np.maximum(odds, -1.0))

    def _tails_remove(self, x: Floats) -> tuple[Floats, Floats]:
        _, level = self._level_remove(x)
        p, q = self.pair.tails(level)
        return (1 - self.q) * q + self.q * p, q

    def _cotails_remove(self, x: Floats) -> tuple[Floats, Floats]:
        inside, level = self._level_remove(x)
        p, q = self.pair.cotails(level)
        return np.where(inside, (1 - self.q) * q + self.q * p, 0.0), np.where(inside, q, 0.0)

    def _above_remove(self, x: Floats) -> Floats:
        inside, level = self._level_remove(x)
        return np.where(inside, self.q * self.pair.above(level), -np.expm1(x))

    def _below_remove(self, x: Floats) -> Floats:
        inside, level = self._level_remove(x)
        return np.where(inside, self.q * self.pair.below(level), 0.0)

    def _level_add(self, x: Floats) -> tuple[NDArray[np.bool_], Floats, Floats]:
        """Where e^x stays below 1/(1-q), ln(e^x q / (1 - e^x (1-q))) there, and that denominator."""
        odds = np.expm1(-x) / self.q
        rest = np.maximum(self.q - (1 - self.q) * np.expm1(x), 0.0)
        return odds > -1, -np.log1p(np.maximum(odds, -1.0)), rest

    def _tails_add(self, x: Floats) -> tuple[Floats, Floats]:
        inside, level, _ = self._level_add(x)
        p, q = self.pair.tails(level)
        return np.where(inside, p, 0.0), np.where(inside, (1 - self.q) * p + self.q * q, 0.0)

    def _cotails_add(self, x: Floats) -> tuple[Floats, Floats]:
        inside, level, _ = self._level_add(x)
        p, q = self.pair.cotails(level)
        return np.where(inside, p, 1.0), np.where(inside, (1 - self.q) * p + self.q * q, 1.0)

    def _above_add(self, x: Floats) -> Floats:
        inside, level, rest = self._level_add(x)
        return np.where(inside, rest * self.pair.above(level), 0.0)

    def _below_add(self, x: Floats) -> Floats:
        inside, level, rest = self._level_add(x)
        return np.where(inside, rest * self.pair.below(level), np.expm1(x))
