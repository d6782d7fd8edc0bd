"""Many compositions: in parallel, with a time limit each, resumable, and a summary of what came of them.

Composition i of seed s is a function of (s, i) alone. The campaign ends with the first composition at which the number of checks
is reached, counted in order, so that its summary does not depend on the number of processes.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import random
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TextIO

import hockeystick as hs

from .balls import Infeasible
from .checks import examine
from .requests import request

SECONDS = 60
"""A composition that takes more processor time is given up, its process ended by the system, and listed as unanswered."""

_PATIENCE = 1800.0
"""The same by the clock, for what waits without computing."""

_AHEAD = 64


def composition(seed: int, index: int) -> dict[str, Any]:
    """All checks of one composition, as a line of the record."""
    rng = random.Random(f"{seed}:{index}")
    started = time.process_time()
    for _ in range(1000):
        asked = request(rng)
        try:
            result = examine(asked, rng)
        except Infeasible:
            continue
        except Exception:  # noqa: BLE001
            # A valid request must be answered.
            result_dict: dict[str, Any] = {
                "counts": {},
                "violations": [],
                "gaps": {},
                "failed": traceback.format_exc(),
            }
        else:
            result_dict = result.to_dict()
        what = f"{asked.process}, {asked.adjacency}"
        return {
            "index": index,
            "what": what,
            "seconds": round(time.process_time() - started, 2),
            **result_dict,
        }
    raise RuntimeError("no request whose truth is known")


def _work(connection: Connection, seed: int) -> None:
    hs.set_threads(1)
    while (index := connection.recv()) is not None:
        spent = resource.getrusage(resource.RUSAGE_SELF)
        limit = math.ceil(spent.ru_utime + spent.ru_stime) + SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        connection.send(composition(seed, index))


class _Worker:
    """A process and what it is busy with."""

    def __init__(self, seed: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, seed), daemon=True)
        self.process.start()
        theirs.close()
        self.index: int | None = None
        self.started = 0.0

    def give(self, index: int) -> None:
        """Start on a composition."""
        self.index, self.started = index, time.monotonic()
        self.connection.send(index)

    def end(self) -> None:
        """End this process, whatever it does."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def _read(path: Path, seed: int) -> dict[int, dict[str, Any]]:
    """What an earlier run recorded; a last line that was cut off is forgotten."""
    done: dict[int, dict[str, Any]] = {}
    if not path.exists():
        return done
    lines = path.read_text().splitlines()
    head = json.loads(lines[0]) if lines else {}
    if lines and head != _head(seed):
        raise SystemExit(f"{path}: recorded by {head}, this is {_head(seed)}")
    for line in lines[1:]:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        done[entry["index"]] = entry
    return done


def _head(seed: int) -> dict[str, Any]:
    return {"campaign": hs.__version__, "seed": seed}


def run(seed: int, checks: int, jobs: int = 1, resume: Path | None = None) -> Iterator[dict[str, Any]]:
    """Yield the record of composition 0, 1, 2, ... until there were so many checks."""
    done = {} if resume is None else _read(resume, seed)
    record: TextIO | None = None
    if resume is not None:
        fresh = not resume.exists() or not resume.read_text()
        record = resume.open("a")
        record.write(json.dumps(_head(seed)) + "\n" if fresh else "\n")
        record.flush()
    workers: list[_Worker] = []
    upcoming, counted, total = 0, 0, 0
    try:
        while True:
            while counted in done:
                entry = done.pop(counted)
                total += sum(entry["counts"].values())
                counted += 1
                yield entry
                if total >= checks:
                    return
            while len(workers) < jobs:
                workers.append(_Worker(seed))
            for worker in workers:
                while worker.index is None:
                    upcoming = max(upcoming, counted)
                    if upcoming in done:
                        upcoming += 1
                    elif upcoming < counted + _AHEAD * jobs:
                        worker.give(upcoming)
                        upcoming += 1
                    else:
                        break
            ready = wait([worker.connection for worker in workers if worker.index is not None], timeout=1.0)
            for i, worker in enumerate(workers):
                if worker.index is None:
                    continue
                if worker.connection in ready:
                    try:
                        entry = worker.connection.recv()
                    except EOFError:
                        entry = _unanswered(worker.index, f"the process died, or took {SECONDS} s")
                elif time.monotonic() - worker.started > _PATIENCE:
                    entry = _unanswered(worker.index, f"no answer within {_PATIENCE:g} s")
                else:
                    continue
                if "unanswered" in entry:
                    entry["what"] = _what(seed, worker.index)
                    worker.end()
                    workers[i] = _Worker(seed)
                else:
                    worker.index = None
                done[entry["index"]] = entry
                if record is not None:
                    record.write(json.dumps(entry) + "\n")
                    record.flush()
    finally:
        for worker in workers:
            worker.end()
        if record is not None:
            record.close()


def _unanswered(index: int, why: str) -> dict[str, Any]:
    return {"index": index, "counts": {}, "violations": [], "gaps": {}, "unanswered": why}


def _what(seed: int, index: int) -> str:
    """The first composition that this index would look at; one that was passed over may have been the slow one."""
    asked = request(random.Random(f"{seed}:{index}"))
    return f"{asked.process}, {asked.adjacency}"


class Summary:
    """Counts, violations, gaps."""

    def __init__(self, seed: int) -> None:
        self.seed, self.compositions = seed, 0
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.violations: list[dict[str, Any]] = []
        self.failed: list[dict[str, Any]] = []
        self.gaps: dict[str, tuple[float, str]] = {}

    def add(self, entry: dict[str, Any]) -> None:
        """Count one composition."""
        self.compositions += 1
        for key, number in entry["counts"].items():
            self.counts[tuple(key.split("|"))] += number
        self.violations += entry["violations"]
        if "failed" in entry or "unanswered" in entry:
            self.failed.append(entry)
        for key, (gap, where) in entry["gaps"].items():
            if gap > self.gaps.get(key, (-1.0, ""))[0]:
                self.gaps[key] = (gap, where)

    @property
    def checks(self) -> int:
        """How many there were."""
        return sum(self.counts.values())

    @property
    def sound(self) -> bool:
        """Whether every request was answered, and every answer is right."""
        return not self.violations and not self.failed

    def markdown(self) -> str:
        """The summary as a page."""
        command = f"python -m tests.campaign --seed {self.seed} --checks {self.checks}"
        lines = [
            "# Soundness campaign",
            "",
            f"`{command}` of hockeystick {hs.__version__}: {self.checks} checks of {self.compositions} compositions.",
            f"Violations: {len(self.violations)}. Not answered: {len(self.failed)}.",
            "",
            "A check is one interval, or one one-sided bound, held against ball arithmetic, enumeration or counted",
            "rounding (see `tests/campaign/__init__.py`). It takes a seed of its own to see other compositions.",
        ]
        for title, position in (("family", 0), ("adjacency", 1), ("engine", 2), ("question", 3)):
            sums: Counter[str] = Counter()
            wrong: Counter[str] = Counter(v[title] for v in self.violations)
            for key, number in self.counts.items():
                sums[key[position]] += number
            lines += ["", f"| {title} | checks | violations |", "|---|---|---|"]
            lines += [f"| {name} | {sums[name]} | {wrong[name]} |" for name in sorted(sums)]
        lines += ["", "Largest gaps upper / lower - 1 of delta where the upper bound is at least 1e-40:", ""]
        lines += ["| family | engine | gap | where |", "|---|---|---|---|"]
        for key in sorted(self.gaps):
            gap, where = self.gaps[key]
            lines.append(
                f"| {' | '.join(key.split('|'))} | {gap:.3g} | {where if len(where) < 200 else where[:197] + '...'} |"
            )
        for title, entries in (("Violations", self.violations), ("Not answered", self.failed)):
            if entries:
                lines += ["", f"## {title}", ""]
                lines += [f"* {json.dumps(entry)}" for entry in entries[:1000]]
        return "\n".join(lines) + "\n"


def campaign(seed: int, checks: int, jobs: int, resume: Path | None, summary: Path | None) -> Summary:
    """Run it, say now and then how far it is, and write the summary."""
    found, told = Summary(seed), time.monotonic()
    for entry in run(seed, checks, jobs, resume):
        found.add(entry)
        if time.monotonic() - told > 10.0:
            told = time.monotonic()
            print(f"{found.checks} checks, {len(found.violations)} violations", file=sys.stderr, flush=True)
    if summary is not None:
        summary.write_text(found.markdown())
    return found
