"""A seeded population of requests: engine, interval and time of each, and two such runs side by side.

    python -m bench.population run before.json --count 2000 --seed 1
    python -m bench.population run after.json --requests before.json
    python -m bench.population compare before.json after.json

A request is a description, a direction and a question: epsilon at a delta between 1e-40 and 1e-2, or delta at the
epsilon that the same description has for another such delta, to three digits. Descriptions are Poisson-sampled
Gaussians of all sizes (as often as not such that a record is hardly ever sampled), compositions of up to four kinds,
replaced records, and noise with atoms. Floats are kept as hexadecimal, so that "the same" means every bit. The
requests of a file can be asked again of another version; --references asks those of tests/references instead.

`compare` says how many intervals do not overlap (one of the two is wrong then), how many are the same bit for bit,
which got wider or narrower by a factor and by more than a gap that nobody sees, and what the time of each engine was.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import hockeystick as hs

REFERENCES = Path(__file__).parent.parent / "tests" / "references"
ATTEMPTS = 3  # of which the quickest is the time
NOISE = 1e-9  # a gap below this is as good as none
FACTOR = 2.0  # by which a gap changes that is worth a line


def log_uniform(rng: random.Random, low: float, high: float) -> float:
    return float(f"{math.exp(rng.uniform(math.log(low), math.log(high))):.4g}")


def draw_step(rng: random.Random, most_steps: float, alone: bool) -> dict[str, Any]:
    kind = rng.choices(
        ("sampled", "rare", "gaussian", "laplace", "randomized_response", "discrete_gaussian", "fixed"),
        (40, 40, 4, 6, 3, 3, 4 if alone else 0),
    )[0]
    steps = int(log_uniform(rng, 1, most_steps))
    if kind == "sampled":
        return {"sigma": log_uniform(rng, 0.3, 20), "q": log_uniform(rng, 1e-4, 0.5), "steps": steps}
    if kind == "rare":
        q = log_uniform(rng, 1e-7, 1e-2)
        return {
            "sigma": log_uniform(rng, 0.3, 20),
            "q": q,
            "steps": max(1, int(min(1e8, log_uniform(rng, 0.003, 30) / q))),
        }
    if kind == "gaussian":
        return {"sigma": log_uniform(rng, 0.5, 50), "steps": steps}
    if kind == "laplace":
        return {"laplace": log_uniform(rng, 0.5, 50), "q": log_uniform(rng, 1e-3, 1), "steps": steps}
    if kind == "randomized_response":
        return {"response": log_uniform(rng, 0.05, 3), "steps": steps}
    if kind == "discrete_gaussian":
        return {"discrete": log_uniform(rng, 0.5, 10), "q": log_uniform(rng, 1e-3, 1), "steps": steps}
    return {"sigma": log_uniform(rng, 0.5, 5), "batch": rng.randint(1, 100), "records": 1000, "steps": steps}


def draw(rng: random.Random) -> dict[str, Any]:
    kinds = rng.choices((1, 2, 3, 4), (70, 15, 8, 7))[0]
    steps = [draw_step(rng, 1e6 if kinds == 1 else 1e4, kinds == 1) for _ in range(kinds)]
    if kinds > 1 and any("sigma" not in step for step in steps):
        # Atoms on no common lattice are for the FFT, which takes long.
        steps = [step | {"steps": min(step["steps"], 100)} for step in steps]
    gaussian = all("sigma" in step for step in steps)
    direction = rng.choices(("remove", "add", "replace_one"), (5, 4, 1 if gaussian else 0))[0]
    if "batch" in steps[0]:
        direction = "replace_one"
    deltas = [f"{10 ** rng.uniform(-40, -2):.3e}" for _ in range(2)]
    return {"steps": steps, "direction": direction, "deltas": deltas}


def describe(steps: list[dict[str, Any]]) -> hs.mechanisms.Process:
    process = hs.mechanisms.Process()
    for step in steps:
        mechanism: Any
        if "laplace" in step:
            mechanism = hs.Laplace(step["laplace"])
        elif "response" in step:
            mechanism = hs.RandomizedResponse(step["response"])
        elif "discrete" in step:
            mechanism = hs.DiscreteGaussian(step["discrete"])
        else:
            mechanism = hs.Gaussian(step["sigma"])
        if "batch" in step:
            mechanism = hs.WithoutReplacement(
                mechanism, batch_size=step["batch"], dataset_size=step["records"]
            )
        elif step.get("q", 1.0) < 1:
            mechanism = hs.PoissonSampled(mechanism, step["q"])
        process = process + mechanism * step["steps"]
    return process


def ask(request: dict[str, Any], attempts: int) -> dict[str, Any]:
    """The request with its answer."""
    process, seconds = describe(request["steps"]), []
    for _ in range(attempts):
        start = time.process_time()
        profile = hs.account(process, adjacency=request["direction"])
        report = profile.report(**{request["question"]: float.fromhex(request["at"])}, risks=False)
        seconds.append(time.process_time() - start)
        if seconds[-1] > 0.1:
            break
    answer = report.epsilon if request["question"] == "delta" else report.delta
    assert answer is not None  # it was asked for
    return request | {
        "engine": answer.engine,
        "lower": float(answer.lower).hex(),
        "upper": float(answer.upper).hex(),
        "seconds": min(seconds),
    }


def requests_of(count: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    out = []
    for _ in range(count):
        drawn = draw(rng)
        common = {"steps": drawn["steps"], "direction": drawn["direction"]}
        first, second = (float(delta) for delta in drawn["deltas"])
        out.append(common | {"question": "delta", "at": first.hex()})
        epsilon = hs.account(describe(drawn["steps"]), adjacency=drawn["direction"]).epsilon(delta=second)
        if math.isfinite(epsilon) and epsilon > 0:
            out.append(common | {"question": "epsilon", "at": float(f"{epsilon:.2e}").hex()})
    return out


def requests_of_references() -> list[dict[str, Any]]:
    """Of both tables: delta, and epsilon; and the draws of which no reference is known."""
    table = json.loads((REFERENCES / "subsampled_gaussian.json").read_text())
    entries = table["entries"] + json.loads((REFERENCES / "rare.json").read_text())["entries"]
    out = []
    for entry in entries + table["skipped"]:
        step = {"sigma": float(entry["sigma"]), "q": float(entry["q"]), "steps": int(entry["steps"])}
        common = {"steps": [step], "direction": entry["direction"]}
        if "epsilon" in entry:
            out.append(common | {"question": "epsilon", "at": float(entry["epsilon"]).hex()})
        delta = float(entry["delta"]) if "delta" in entry else 10.0 ** entry["target_log10"]
        out.append(common | {"question": "delta", "at": delta.hex()})
    return out


def run(path: Path, requests: list[dict[str, Any]], attempts: int) -> None:
    answers = []
    for request in requests:
        answers.append(ask(request, attempts))
        if len(answers) % 100 == 0:
            print(f"{len(answers)} of {len(requests)}", flush=True)
    path.write_text("[\n" + ",\n".join(json.dumps(answer) for answer in answers) + "\n]\n")


def gap(answer: dict[str, Any]) -> float:
    lower, upper = float.fromhex(answer["lower"]), float.fromhex(answer["upper"])
    return 0.0 if lower == upper else (upper - lower) / upper if upper < math.inf else math.inf


def deep(answer: dict[str, Any]) -> bool:
    """Whether delta is below 1e-40, where tightness is not promised."""
    return float.fromhex(answer["at" if answer["question"] == "delta" else "upper"]) < 1e-40


def line(a: dict[str, Any], b: dict[str, Any]) -> str:
    steps = "; ".join(" ".join(f"{key}={value}" for key, value in step.items()) for step in a["steps"])
    asked = f"{a['question']}={float.fromhex(a['at']):.9g}"
    return (
        f"{gap(a):.1e} -> {gap(b):.1e}  {a['engine']} -> {b['engine']}  "
        f"{1e3 * a['seconds']:.1f} -> {1e3 * b['seconds']:.1f} ms  {a['direction']} {asked}  {steps}"
    )


def compare(before: Path, after: Path) -> None:
    old, new = (json.loads(path.read_text()) for path in (before, after))
    pairs = list(zip(old, new, strict=True))
    keys = ("steps", "direction", "question", "at")
    assert all([a[key] for key in keys] == [b[key] for key in keys] for a, b in pairs)
    apart = [
        (a, b)
        for a, b in pairs
        if float.fromhex(a["lower"]) > float.fromhex(b["upper"])
        or float.fromhex(b["lower"]) > float.fromhex(a["upper"])
    ]
    same = sum(a["lower"] == b["lower"] and a["upper"] == b["upper"] for a, b in pairs)
    print(f"{len(pairs)} requests, {same} the same bit for bit, {len(apart)} do not overlap")
    for a, b in apart:
        print("   ", line(a, b))
    wider = [(a, b) for a, b in pairs if gap(b) > max(NOISE, FACTOR * gap(a))]
    narrower = [(a, b) for a, b in pairs if gap(a) > max(NOISE, FACTOR * gap(b))]
    for name, some in (("wider", wider), ("narrower", narrower)):
        print(f"{len(some)} {name}, {sum(deep(a) for a, _ in some)} of them with delta below 1e-40")
        for a, b in sorted(some, key=lambda each: -gap(each[1]))[:40]:
            print("   ", line(a, b))
    for label, run_ in (("before", old), ("after", new)):
        wide = Counter(
            f"gap > {limit:.0e}"
            for answer in run_
            for limit in (1e-9, 1e-6, 1e-3)
            if gap(answer) > limit and not deep(answer)
        )
        print(f"{label}: engines {dict(Counter(a['engine'] for a in run_))}, delta >= 1e-40: {dict(wide)}")
    for engine in sorted({a["engine"] for a in old}):
        some = [(a["seconds"], b["seconds"]) for a, b in pairs if a["engine"] == engine]
        ratios = sorted(b / a for a, b in some)
        print(
            f"{engine:<12} {1e3 * sum(a for a, _ in some):>9.1f} -> {1e3 * sum(b for _, b in some):>9.1f} ms; "
            f"ratio: median {ratios[len(ratios) // 2]:.2f}, 90 % {ratios[int(0.9 * (len(ratios) - 1))]:.2f}"
        )
    slower = sorted(
        ((a, b) for a, b in pairs if b["seconds"] > 2 * a["seconds"] + 1e-3),
        key=lambda p: p[0]["seconds"] - p[1]["seconds"],
    )
    print(f"{len(slower)} slower by a factor of 2 and 1 ms")
    for a, b in slower[:10]:
        print("   ", line(a, b))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("output", type=Path)
    runs.add_argument("--count", type=int, default=2000, help="descriptions, of two questions each")
    runs.add_argument("--seed", type=int, default=1)
    runs.add_argument("--requests", type=Path, help="a file whose requests are asked again")
    runs.add_argument("--references", action="store_true")
    runs.add_argument("--attempts", type=int, default=ATTEMPTS)
    compares = commands.add_parser("compare")
    compares.add_argument("before", type=Path)
    compares.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.command == "compare":
        compare(options.before, options.after)
        return
    if options.requests:
        known = ("steps", "direction", "question", "at")
        requests = [{key: each[key] for key in known} for each in json.loads(options.requests.read_text())]
    elif options.references:
        requests = requests_of_references()
    else:
        requests = requests_of(options.count, options.seed)
    run(options.output, requests, options.attempts)


if __name__ == "__main__":
    main()
