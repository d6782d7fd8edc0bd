"""The rooms of the code and the imports between them: the rule of docs/architecture.md, measured.

    python -m tools.house            what imports what, circles, layers, imports that run back
    python -m tools.house --draw     the same, drawn into docs/images/architecture.svg

A room imports only rooms to its left in `PYTHON_ROOMS`, and in C++ only rooms of `CPP_ROOMS` that its own entry reaches. Inside a
room files import each other freely, but in no circle. Nobody imports another room's names with an underscore.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "hockeystick"
CORE = ROOT / "cpp" / "src"
PUBLIC = ROOT / "cpp" / "include" / "hockeystick"
DRAWING = ROOT / "docs" / "images" / "architecture.svg"

PYTHON_ROOMS: Mapping[str, frozenset[str]] = {}
CPP_ROOMS: Mapping[str, frozenset[str]] = {}


def _in_order(*names: str | tuple[str, ...]) -> dict[str, frozenset[str]]:
    """Each room with all rooms to its left; the rooms of a tuple stand side by side."""
    rooms: dict[str, frozenset[str]] = {}
    left: frozenset[str] = frozenset()
    for place in names:
        beside = (place,) if isinstance(place, str) else place
        rooms |= dict.fromkeys(beside, left)
        left |= set(beside)
    return rooms


PYTHON_ROOMS = _in_order(
    ("_base", "verify"),
    "sampling",
    "mechanisms",
    "matrix",
    "accounting",
    ("montecarlo", "individual"),
    "training",
    ("plots", "interop", "cli"),
)
# The plots are drawn by the report of the command line.
PYTHON_ROOMS["cli"] |= {"plots"}

CPP_ROOMS = _in_order("numerics", "pairs", "lattice", "inversion", ("profile", "individual"))
CPP_ROOMS |= dict.fromkeys(("montecarlo", "training"), frozenset({"numerics"}))


@dataclass(frozen=True)
class Import:
    """One import: ``file`` takes ``names`` (C++: none) from ``target``; both relative to their language's root."""

    file: str
    line: int
    target: str
    names: tuple[str, ...] = ()

    @property
    def room(self) -> str:
        return room_of(self.file)

    @property
    def target_room(self) -> str:
        return room_of(self.target)


def room_of(file: str) -> str:
    """The folder a file lies in; "" for the files of the package itself."""
    return file.split("/")[0] if "/" in file else ""


def _resolve(parts: list[str]) -> str | None:
    """The file of the package that a dotted name stands for."""
    path = PACKAGE.joinpath(*parts)
    if path.with_suffix(".py").is_file() and parts:
        return path.with_suffix(".py").relative_to(PACKAGE).as_posix()
    if (path / "__init__.py").is_file():
        return (path / "__init__.py").relative_to(PACKAGE).as_posix()
    return None


def _typing_only(tree: ast.Module) -> set[int]:
    """The lines inside ``if TYPE_CHECKING:``; such imports do not run."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for inner in node.body:
                lines |= set(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1))
    return lines


def python_imports() -> Iterator[Import]:
    """Every relative import of the package, those inside functions included."""
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        tree = ast.parse(path.read_text())
        skipped = _typing_only(tree)
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or not node.level or node.lineno in skipped:
                continue
            base = [*file.split("/")[: -node.level], *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                target = _resolve([*base, alias.name]) or _resolve(base)
                if target is not None and alias.name != "_core":
                    yield Import(file, node.lineno, target, (alias.name,))


def public_headers() -> list[Path]:
    """The installed headers of C++, but for the one that includes all of them and belongs to no room."""
    return [path for path in sorted(PUBLIC.glob("*.hpp")) if path.name != "hockeystick.hpp"]


def header_homes() -> dict[str, str]:
    """The room of every installed header: that of the source of its name, or of those that have none."""
    alone = {"answer": "inversion", "pairs": "pairs", "ieee": "numerics", "mutex": "numerics"}
    return {path.stem: path.parent.name for path in CORE.rglob("*.cpp")} | alone


def cpp_imports() -> Iterator[Import]:
    """Every include of a header of ours; a public header belongs to the room of the source that defines it."""
    homes = header_homes()

    def place(path: Path) -> str:
        if path.parent == PUBLIC:
            return f"{homes[path.stem]}/{path.name}"
        return path.relative_to(CORE).as_posix()

    for path in sorted([*CORE.rglob("*.?pp"), *public_headers()]):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = re.match(r'#include "([^"]+\.hpp)"', line)
            if not found:
                continue
            header = PUBLIC.parent / found[1] if found[1].startswith("hockeystick/") else CORE / found[1]
            yield Import(place(path), number, place(header))


def running_back(imports: Iterable[Import], rooms: Mapping[str, frozenset[str]]) -> list[Import]:
    """The imports from rooms that are not to the left."""
    return [
        found
        for found in imports
        if found.room and found.target_room != found.room and found.target_room not in rooms[found.room]
    ]


def circles(imports: Iterable[Import]) -> list[list[str]]:
    """Files that import each other in a circle (strongly connected components of more than one file)."""
    graph: dict[str, set[str]] = {}
    for found in imports:
        source, target = found.file, found.target
        if source != target:
            graph.setdefault(source, set()).add(target)
            graph.setdefault(target, set())
    order: list[str] = []
    seen: set[str] = set()

    def visit(start: str, edges: Mapping[str, set[str]], out: list[str]) -> None:
        stack = [(start, iter(sorted(edges[start])))]
        seen.add(start)
        while stack:
            node, rest = stack[-1]
            following = next((other for other in rest if other not in seen), None)
            if following is None:
                out.append(node)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(sorted(edges[following]))))

    for node in graph:
        if node not in seen:
            visit(node, graph, order)
    reverse: dict[str, set[str]] = {node: set() for node in graph}
    for node, targets in graph.items():
        for target in targets:
            reverse[target].add(node)
    seen.clear()
    components = []
    for node in reversed(order):
        if node not in seen:
            component: list[str] = []
            visit(node, reverse, component)
            components.append(sorted(component))
    return [component for component in components if len(component) > 1]


def layers(imports: Iterable[Import]) -> int:
    """The length of the longest chain of rooms that import each other."""
    below: dict[str, set[str]] = {}
    for found in imports:
        if found.room and found.target_room and found.room != found.target_room:
            below.setdefault(found.room, set()).add(found.target_room)

    def depth(room: str, above: frozenset[str] = frozenset()) -> int:
        return 1 + max((depth(r, above | {room}) for r in below.get(room, ()) if r not in above), default=0)

    return max((depth(room) for room in below), default=0)


def foreign_privates(imports: Iterable[Import]) -> list[Import]:
    """Names with an underscore taken from another room."""
    return [
        found
        for found in imports
        if found.room != found.target_room
        and any(n.startswith("_") and n != "_core" for n in found.names)
        # The room _base is private to the package, not to itself.
        and not found.target.startswith("_base/__init__")
    ]


def _boxes(
    rooms: Mapping[str, frozenset[str]], imports: list[Import], lines: Mapping[str, int], top: int
) -> Iterator[str]:
    """One row of rooms, and an arc for each pair of rooms between which something is imported."""
    width, height, gap = 108, 54, 22
    left = {room: 20 + i * (width + gap) for i, room in enumerate(rooms)}
    counts = Counter(
        (i.room, i.target_room) for i in imports if i.room and i.target_room and i.room != i.target_room
    )
    for (source, target), count in sorted(counts.items()):
        a, b = left[source] + width / 2, left[target] + width / 2
        rise = 22 + 0.16 * abs(a - b)
        back = target not in rooms[source]
        colour, stroke = ("#b2182b" if back else "#4575b4"), 0.6 + min(3.0, count / 12)
        yield (
            f'<path d="M{a:.0f},{top} C{a:.0f},{top - rise:.0f} {b:.0f},{top - rise:.0f} {b:.0f},{top}" '
            f'fill="none" stroke="{colour}" stroke-width="{stroke:.1f}" opacity="0.6"/>'
        )
    for room, x in left.items():
        yield f'<rect x="{x}" y="{top}" width="{width}" height="{height}" rx="6" fill="#f7f7f7" stroke="#333"/>'
        yield f'<text x="{x + width / 2}" y="{top + 23}" text-anchor="middle" font-weight="bold">{room}</text>'
        yield f'<text x="{x + width / 2}" y="{top + 42}" text-anchor="middle" fill="#555">{lines[room]:,} lines</text>'


def _lines(root: Path, rooms: Iterable[str], homes: Mapping[str, str]) -> dict[str, int]:
    found = {
        room: sum(len(p.read_text().splitlines()) for p in (root / room).rglob("*.[ch]pp")) for room in rooms
    }
    for path in public_headers() if homes else ():
        found[homes[path.stem]] += len(path.read_text().splitlines())
    return found


def draw() -> str:
    """The drawing: a row of rooms for each language; an arc leads from a room to one that it imports."""
    python, cpp = list(python_imports()), list(cpp_imports())
    homes = header_homes()
    wide = 40 + 130 * max(len(PYTHON_ROOMS), len(CPP_ROOMS))
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} 620" font-family="sans-serif" font-size="13">',
        f'<rect width="{wide}" height="620" fill="white"/>',
        '<text x="20" y="24" font-size="16">Python: a room imports only rooms to its left</text>',
        *_boxes(PYTHON_ROOMS, python, _lines(PACKAGE, PYTHON_ROOMS, {}), 260),
        '<text x="20" y="360" font-size="16">C++</text>',
        *_boxes(CPP_ROOMS, cpp, _lines(CORE, CPP_ROOMS, homes), 540),
        "</svg>",
    ]
    return "\n".join(body) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.house",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--draw", action="store_true", help="write docs/images/architecture.svg")
    if parser.parse_args().draw:
        DRAWING.write_text(draw())
    for language, imports, rooms in (
        ("Python", list(python_imports()), PYTHON_ROOMS),
        ("C++", list(cpp_imports()), CPP_ROOMS),
    ):
        back = running_back(imports, rooms)
        print(
            f"{language}: {len({i.file for i in imports})} files with {len(imports)} imports in {len(rooms)} rooms and "
            f"{layers(imports)} layers; {len(back)} run back, {len(circles(imports))} circles, "
            f"{len(foreign_privates(imports))} of another room's private names"
        )
        for found in [*back, *foreign_privates(imports)]:
            print(f"  {found.file}:{found.line} takes {', '.join(found.names)} from {found.target}")
        for circle in circles(imports):
            print(f"  circle: {' '.join(circle)}")


if __name__ == "__main__":
    main()
