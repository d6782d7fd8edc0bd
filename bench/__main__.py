"""Every benchmark: what it is for and how long it takes. Runs those that are named, or a short part of all.

    python -m bench                     # the list
    python -m bench steps families      # runs these
    python -m bench --quick --jobs 2    # a short part of each: within two minutes on two cores
    python -m bench steps --quick
    python -m bench --write             # writes the list into bench/README.md

Each runs as a process of its own, `python -m bench.NAME`, which has its own --help. What a benchmark leaves out
because a library is missing, it says; one that fails makes this command fail, too.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parent.parent
README = ROOT / "bench" / "README.md"
MARKS = "<!-- list: python -m bench --write -->\n", "<!-- end of list -->\n"


@dataclass(frozen=True)
class Entry:
    """A benchmark, the processor time that it takes about, and the arguments of a short part of it."""

    name: str
    takes: str
    quick: str | None = None
    arguments: str = ""

    def purpose(self) -> str:
        source = ROOT / "bench" / (self.name.replace(".", "/") + ".py")
        text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))
        return (text or "").partition("\n")[0]


# {folder}: a temporary one.
ENTRIES = [
    Entry("steps", "1 s", ""),
    Entry("peers", "10 min", "W1 --repeats 1"),
    Entry("calibration", "20 s", "--repeats 1"),
    Entry("risk", "2 min", ""),
    Entry("allocation", "10 s", ""),
    Entry("families", "30 s", "--repeats 1"),
    Entry("truncated", "3 min", "1100 --repeats 1"),
    Entry("wide", "1 min"),
    Entry("replacement", "40 s", "--count 20"),
    Entry("curves", "40 s"),
    Entry("derived", "40 s"),
    Entry("grid", "1 min"),
    Entry("references", "3 s", ""),
    Entry("population", "5 min", "run {folder}/answers.json --count 20", "run {folder}/answers.json"),
    Entry("discretisations", "20 s", None, "--output {folder}/discretisations.png"),
    Entry("micro", "5 s", "--repeats 1"),
    Entry("scaling", "2 min", "--quick --out {folder}", "--out {folder}"),
    Entry("startup", "10 s", "--repeats 1"),
    Entry("frozen", "10 min", None, "record {folder}/answers.json"),
    Entry("montecarlo", "5 min"),
    Entry("tilted", "5 min"),
    Entry("means", "1 min"),
    Entry("executors", "2 min"),
    Entry("individual", "10 min", "ledger --examples 100000"),
    Entry("batches", "2 min"),
    Entry("attribution", "1 min", "--examples 20000 --users 10000 --edges 100000"),
    Entry("noise", "1 min", "--dimension 4096 --bands 1 4 --repeats 2"),
    Entry("strategies", "20 min", "workloads"),
    Entry("papers.fourier_accountant", "2 min", "--quick --out {folder}", "--out {folder}"),
    Entry("papers.prv_accountant", "1 min", "--quick --out {folder}", "--out {folder}"),
    Entry("papers.individual_gdp", "1 min", "--quick --out {folder}", "--out {folder}"),
    Entry("papers.truncated_poisson", "1 min", "--quick --out {folder}", "--out {folder}"),
    Entry("papers.b_min_sep_grid", "15 min", None, "--results {folder}/grid.json --out {folder}"),
    Entry("papers.b_min_sep_production", "10 min", None),
    Entry("papers.b_min_sep_attained", "2 min", "--quick"),
    Entry("papers.b_min_sep_users", "10 min", None, "--out {folder}"),
    Entry("papers.b_min_sep_training", "20 min", None),
]


def table() -> str:
    lines = ["| `python -m bench.…` | purpose | processor time | short part |", "|---|---|---|---|"]
    for entry in ENTRIES:
        quick = "" if entry.quick is None else "yes"
        lines.append(f"| `{entry.name}` | {entry.purpose()} | {entry.takes} | {quick} |")
    return "\n".join(lines) + "\n"


def readme(text: str) -> str:
    """``text`` with today's list between its marks."""
    start, end = text.index(MARKS[0]) + len(MARKS[0]), text.index(MARKS[1])
    return text[:start] + table() + text[end:]


def run(entry: Entry, quick: bool, output: IO[str] | None = None) -> bool:
    """Run one benchmark, which prints into ``output``; whether it succeeded."""
    arguments = entry.quick if quick else entry.arguments
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            f"bench.{entry.name}",
            *(arguments or "").format(folder=folder).split(),
        ]
        print(f"==== {' '.join(command[1:])}", file=output, flush=True)
        with subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output) as process:
            # The processor time of this child alone, while others run.
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = code = os.waitstatus_to_exitcode(status)
    seconds = used.ru_utime + used.ru_stime
    ending = "" if code == 0 else ", FAILED"
    print(f"==== {entry.name}: {seconds:.1f} s of processor time{ending}\n", file=output, flush=True)
    return code == 0


def run_all(entries: list[Entry], quick: bool, jobs: int) -> list[str]:
    """Run benchmarks, ``jobs`` at a time, and print what they print in their order; the names of those that failed."""
    if jobs == 1:
        return [entry.name for entry in entries if not run(entry, quick)]
    failed = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:

        def printed(i: int) -> tuple[bool, str]:
            path = Path(folder) / str(i)
            with path.open("w", encoding="utf-8") as output:
                passed = run(entries[i], quick, output)
            return passed, path.read_text(encoding="utf-8")

        for entry, (passed, text) in zip(entries, pool.map(printed, range(len(entries))), strict=True):
            print(text, end="", flush=True)
            if not passed:
                failed.append(entry.name)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="benchmarks of the list")
    parser.add_argument("--quick", action="store_true", help="a short part of each, or of those named")
    parser.add_argument(
        "--jobs", type=int, default=1, help="so many at a time, where it matters that they run, not how fast"
    )
    parser.add_argument("--write", action="store_true", help="write the list into bench/README.md")
    options = parser.parse_args()
    known = {entry.name: entry for entry in ENTRIES}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"names: no such benchmark: {', '.join(unknown)}; known: {', '.join(known)}")
    if options.write:
        README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
    elif not options.names and not options.quick:
        for entry in ENTRIES:
            print(f"{entry.name:<28} {entry.takes:>7}  {entry.purpose()}")
    else:
        chosen = [known[name] for name in options.names] or ENTRIES
        chosen = [entry for entry in chosen if not (options.quick and entry.quick is None)]
        if failed := run_all(chosen, options.quick, max(1, options.jobs)):
            sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
