"""Altered certificates, by the thousand: none is accepted, or what it says then is true.

    python -m tests.campaign.certificates [--mutations 6000] [--seed 0]    a table; exit code 1 if anything false was accepted
    python -m tests.campaign.certificates --times                          sizes, and processor seconds, at the default slack

Each true certificate is altered in one place: a byte of the text; or a number, a name or a type within it. As it stands, every alteration must be rejected.
With the digest computed anew what is altered within may be accepted, if the core's certified lower bound on delta of what it now describes agrees
(for tallies: the interval in floating point).
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import hockeystick as hs
from hockeystick.mechanisms import DeclaredProfile
from hockeystick.mechanisms.steps import from_dict
from hockeystick.montecarlo import Empirical, mean_interval
from hockeystick.montecarlo.evidence import evidence_against
from hockeystick.verify import check
from hockeystick.verify.document import write

NOISE = hs.PoissonSampled(hs.Gaussian(2.0), 0.02)
RELEASES: Mapping[str, tuple[Any, str, dict[str, float]]] = {
    "Gaussian": (hs.Gaussian(2.0) * 4, "add_or_remove", {"delta": 1e-5}),
    "Poisson, remove": (NOISE * 50, "remove", {"delta": 1e-4}),
    "Poisson, add": (NOISE * 50, "add", {"epsilon": 0.25}),
    "Poisson, replaced": (NOISE * 20, "replace_one", {"epsilon": 0.5}),
    "Poisson, zeroed": (hs.PoissonSampled(hs.PureDP(1.0), 0.1) * 30, "zero_out", {"delta": 1e-5}),
    "many steps": (hs.PoissonSampled(hs.Gaussian(4.0), 0.001) * 20_000, "remove", {"epsilon": 0.1}),
    "without replacement": (
        hs.WithoutReplacement(hs.Laplace(2.0), 10, 100) * 20,
        "replace_one",
        {"delta": 1e-5},
    ),
    "Laplace": (hs.Laplace(10.0) * 40, "add_or_remove", {"delta": 1e-5}),
    "randomised response": (hs.RandomizedResponse(0.3, 3) * 50, "replace_one", {"delta": 1e-6}),
    "pure DP": (hs.PureDP(0.05) * 20, "add_or_remove", {"delta": 0.0}),
    "approximate DP": (hs.ApproximateDP(0.1, 1e-8) * 20, "add_or_remove", {"delta": 1e-5}),
    "finite pair": (hs.FinitePair([0.5, 0.3, 0.2], [0.4, 0.35, 0.25]) * 40, "add_or_remove", {"delta": 1e-5}),
    "mixture of Gaussians": (
        hs.MixtureOfGaussians(3.0, [0, 1, 2], [0.9, 0.08, 0.02]) * 30,
        "add",
        {"delta": 1e-4},
    ),
    "users": (hs.UserLevel(NOISE, 3) * 20, "remove", {"epsilon": 0.5}),
    "released choice": (hs.Mixture([NOISE, hs.Laplace(3.0)], [0.5, 0.5]) * 20, "remove", {"epsilon": 1.0}),
    "three kinds": (NOISE * 50 + hs.Laplace(20.0) * 10 + hs.Gaussian(10.0), "remove", {"delta": 1e-5}),
    "zCDP": (hs.ZCDP(0.05), "add_or_remove", {"delta": 1e-5}),
    "declared curve": (
        DeclaredProfile([0.0, 0.5, 1.0], [0.2, 0.1, 1e-3]) * 3,
        "add_or_remove",
        {"epsilon": 2.0},
    ),
}
SAMPLED = ("tallies, plain", "tallies, tilted")


def certificates(slack: float = 0.05) -> Iterator[tuple[str, str]]:
    """A true certificate of each kind."""
    for kind, (release, adjacency, point) in RELEASES.items():
        yield kind, hs.account(release, adjacency).report(**point).certificate(slack)
    mechanism = hs.BandMF(hs.BandedToeplitz.square_root(32, 4), hs.BMinSep(32, 4, 0.05), 1.0)
    for kind in SAMPLED:
        yield kind, hs.estimate_delta(mechanism, 1.0, 4096, 5, kind.split()[-1]).certificate()


def altered(content: Any, draw: random.Random) -> Any:
    """The content with one leaf, or one name, changed."""
    content = copy.deepcopy(content)
    places = list(_places(content))
    holder, name = draw.choice(places)
    value = holder[name]
    if isinstance(holder, dict) and draw.random() < 0.05:
        holder[draw.choice([name + "s", "more"])] = holder.pop(name)
        return content
    number = type(value) in (int, float)
    holder[name] = _other_number(value, draw) if number and draw.random() < 0.85 else _other_type(value, draw)
    return content


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    entries = content.items() if isinstance(content, dict) else enumerate(content)
    for name, value in entries:
        yield content, name
        if isinstance(value, (dict, list)):
            yield from _places(value)


def _other_number(value: float, draw: random.Random) -> float:
    if isinstance(value, int):
        return draw.choice(
            [value + 1, value - 1, value * 2, value // 2, -value, 0, value + 10 ** draw.randrange(12)]
        )
    near = value * (1.0 + draw.choice([-1.0, 1.0]) * 10.0 ** draw.uniform(-15.0, 0.0))
    digits = float(f"{value:.{draw.randrange(5)}e}")
    return draw.choice([near, near, near, digits, value * 10.0 ** draw.uniform(-6.0, 6.0), -value, 0.0, 1.0])


def _other_type(value: Any, draw: random.Random) -> Any:
    words = [
        "remove",
        "add",
        "replace_one",
        "Gaussian",
        "Laplace",
        "inversion",
        "closed form",
        "mean",
        "0x0",
        "",
    ]
    return draw.choice(
        [None, True, False, str(value), [], {}, [value], {"type": value}, 1e308, 10**400, *words]
    )


def is_true(content: dict[str, Any]) -> bool | None:
    """Whether the certified lower bounds of the core leave room for what is claimed; None if it refuses the description."""
    if "directions" in content:
        return all(_proven(entry) for entry in content["directions"])
    try:
        profile = hs.account(from_dict(_known(content["release"])), content["adjacency"])
    except (ValueError, TypeError):
        return None
    return all(
        profile.delta_bounds(c["epsilon"]).lower <= c["delta"] * (1.0 + 2e-9) for c in content["claims"]
    )


def _known(release: Any) -> Any:
    """With a Gaussian in the place of a declared divergence that it has."""
    if isinstance(release, dict) and release.get("type") == "ZCDP":
        return {
            "type": "Gaussian",
            "noise_multiplier": math.sqrt(0.5 / release["rho"]) if release["rho"] else 1e12,
        }
    if isinstance(release, dict):
        return {name: _known(value) for name, value in release.items()}
    return [_known(value) for value in release] if isinstance(release, list) else release


def _proven(entry: dict[str, Any]) -> bool:
    count, q = entry["blocks"] * entry["key"]["block_size"], entry["failure_probability"]
    if entry["method"] == "mean":
        total, largest = Fraction(int(entry["total"], 16), count << 1074), entry["largest"]
        shown = mean_interval(float(total), count, 1.0 - 2.0 * q, largest).upper
        return 0 <= total <= largest and shown <= entry["delta"] * (1.0 + 1e-9)
    seen = Empirical(tuple(int(mass, 16) for mass in entry["masses"]))
    evidence = evidence_against(seen, entry["mean"], tuple(map(tuple, entry["bets"])))
    return seen.count == count and evidence >= -math.log(q) - 1e-6


def campaign(kind: str, text: str, mutations: int, seed: int) -> Counter[str]:
    """Counts of what became of so many alterations, half of them of bytes."""
    draw, found, content = random.Random(f"{kind} {seed}"), Counter[str](), json.loads(text)
    for i in range(mutations):
        if i % 2:
            place, letter = draw.randrange(len(text)), draw.choice('0123456789.e-"{}[],: xnN')
            changed = draw.choice(
                [text[:place] + letter + text[place + 1 :], text[:place] + text[place + 1 :]]
            )
            found["bytes"] += changed != text
            found["wrong"] += changed != text and check.verify(changed).accepted
            continue
        other = altered(content, draw)
        if json.dumps(other, sort_keys=True) == json.dumps(content, sort_keys=True):
            continue
        found["values"] += 1
        found["wrong"] += check.verify(json.dumps(other, indent=1, sort_keys=True) + "\n").accepted
        try:
            sealed = write(other)
        except ValueError:
            found["rejected"] += 1
            continue
        accepted = check.verify(sealed).accepted
        truth = is_true(other) if accepted else None
        found["rejected"] += not accepted
        found["true"] += accepted and truth is True
        found["not comparable"] += accepted and truth is None
        found["wrong"] += accepted and truth is False
    return found


def main() -> int:
    """Print a line for each kind."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--mutations", type=int, default=6000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--times", action="store_true")
    asked, columns = options.parse_args(), ("bytes", "values", "rejected", "true", "not comparable", "wrong")
    if asked.times:
        return _times()
    check._WORK = 3 * 10**7  # speed: altered numbers may ask for hours
    start, total = time.perf_counter(), Counter[str]()
    print(f"| {'altered':22} | " + " | ".join(columns) + " |\n|---|" + "---:|" * len(columns))
    texts = list(certificates())
    for kind, text in texts:
        assert check.verify(text).accepted
        found = campaign(kind, text, asked.mutations // len(texts), asked.seed)
        total += found
        print(f"| {kind:22} | " + " | ".join(str(found[name]) for name in columns) + " |", flush=True)
    print(f"| {'all':22} | " + " | ".join(str(total[name]) for name in columns) + " |")
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    return min(1, total["wrong"])


def _times() -> int:
    """Of making and of verifying each kind."""
    print("| kind | bytes | made, s | verified, s |\n|---|---:|---:|---:|")
    start = time.process_time()
    for kind, text in certificates(slack=1e-4):
        made = time.process_time()
        assert check.verify(text).accepted
        end = time.process_time()
        print(f"| {kind} | {len(text)} | {made - start:.1f} | {end - made:.1f} |", flush=True)
        start = time.process_time()
    return 0


if __name__ == "__main__":
    sys.exit(main())
