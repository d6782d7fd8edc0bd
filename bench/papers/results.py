"""What every paper's script does with its results: keeps them while it runs, and writes tables and pictures."""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parents[2] / "docs" / "papers"


def parsed(description: str | None) -> argparse.Namespace:
    """The options of a paper's script."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few points, coarse: seconds instead of minutes")
    parser.add_argument("--out", type=Path, default=PAGES, help="folder for CSV and PNG files")
    parser.add_argument(
        "--resume", type=Path, help="JSON file that keeps what is done; a new run goes on there"
    )
    return parser.parse_args()


def machine() -> str:
    """Date, processor, cores and version, for the head of every table."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    import hockeystick as hs

    return f"{datetime.date.today()}, {name}, {os.cpu_count()} cores, hockeystick {hs.__version__}"


class Results:
    """What is done, by key, in a file if there is one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, Any] = json.loads(path.read_text()) if path and path.exists() else {}

    def get(self, key: str, compute: Callable[[], Any]) -> Any:
        """What ``compute`` returned for this key, now or in the run before; JSON values."""
        if key not in self._known:
            self._known[key] = compute()
            if self._path:
                temporary = self._path.with_suffix(".tmp")
                temporary.write_text(json.dumps(self._known, indent=1))
                os.replace(temporary, self._path)
        return self._known[key]


def write(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A CSV file whose first line says when and where; printed as well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [[f"{cell:.10g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# {machine()}\n")
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    print(f"\n{path.name}")
    for row in [header, *rows]:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)), flush=True)


def panels(count: int, width: float = 4.2) -> tuple[Any, Any]:
    """A figure with ``count`` panels side by side, in colours that the colour-blind can tell apart."""
    from matplotlib import style
    from matplotlib.figure import Figure

    style.use("tableau-colorblind10")
    figure = Figure(figsize=(width * count, 3.4), layout="constrained")
    return figure, figure.subplots(1, count, squeeze=False)[0]


def save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    print(f"wrote {path}")
