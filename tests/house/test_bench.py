"""Benchmarks: every one is listed, and the list in bench/README.md is today's."""

from __future__ import annotations

from bench import __main__ as bench

HELPERS = {"__init__", "__main__", "timing", "workloads", "papers.__init__", "papers.results"}


def test_every_benchmark_is_listed_with_its_purpose() -> None:
    folder = bench.ROOT / "bench"
    files = {path.stem for path in folder.glob("*.py")}
    files |= {f"papers.{path.stem}" for path in (folder / "papers").glob("*.py")}
    assert {entry.name for entry in bench.ENTRIES} == files - HELPERS
    assert all(entry.purpose() for entry in bench.ENTRIES)


def test_the_list_in_the_readme_is_todays() -> None:
    text = bench.README.read_text(encoding="utf-8")
    assert bench.readme(text) == text
