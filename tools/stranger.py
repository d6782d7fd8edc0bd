"""A stranger's path, timed: from a clone to a statement on a training run, by the README's first command and the pages' own code.

    python -m tools.stranger

Needs what the README names and a package index; works in a temporary folder. Prints the seconds of each stage, and how many of
them the processors worked.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Prints how long it took."""
    start, before = time.monotonic(), os.times()
    yield
    after = os.times()
    worked = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"{name:44} {time.monotonic() - start:7.1f} s   {worked:7.1f} s of processors", flush=True)


def first_command(readme: str) -> str:
    """The block that the README marks as its installation.

    >>> first_command("<!-- command: install -->\\n```sh\\ntrue\\n```")
    'true'
    """
    found = re.search(r"<!-- command: install -->\n```sh\n(.*?)\n```", readme, re.DOTALL)
    assert found is not None
    return found[1]


def code(page: str) -> str:
    """The Python of a page, in one program."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))


def clone(into: Path) -> None:
    """What a clone of the last commit has."""
    kept = subprocess.run(["git", "-C", str(ROOT), "archive", "HEAD"], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(kept)) as archive:
        archive.extractall(into)


def main() -> None:
    """Walk it."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clone(folder)

        def run(*command: str) -> None:
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)

        def page(path: str) -> None:
            run(".venv/bin/python", "-c", code((folder / "docs" / path).read_text(encoding="utf-8")))

        with stage("README: install, and the first answer"):
            run("sh", "-c", first_command((folder / "README.md").read_text(encoding="utf-8")))
        with stage("docs/start.md: a statement"):
            page("start.md")
        print(f"{'so far':44} {time.monotonic() - start:7.1f} s")
        with stage("what the tutorial needs"):
            run(".venv/bin/pip", "install", "--quiet", "hockeystick[examples]")
        with stage("docs/tutorials/digits.md: one's own training run"):
            page("tutorials/digits.md")
    print(f"{'in all':44} {time.monotonic() - start:7.1f} s")


if __name__ == "__main__":
    main()
