"""Lines of the product: by room, and what each feature that was added to the house takes.

    python -m tools.lines

A feature counts the files that would go with it; what it needs inside shared files is counted with their rooms, so that its
cost is at least the number shown. The product is the package and the core with its bindings and headers, tests excluded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("python/hockeystick", "cpp/src", "cpp/include", "cpp/bindings")
SUFFIXES = frozenset({".py", ".pyi", ".cpp", ".hpp", ".h"})

FEATURES = {
    "random allocation": (
        "cpp/src/*/allocation_*",
        "cpp/src/*/epoch*",
        "cpp/src/*/one_epoch.*",
        "cpp/src/*/given_outcomes.*",
        "cpp/src/*/merged_outcomes.*",
        "cpp/src/*/outcomes_of_curve.*",
        "*/mechanisms/allocation.py",
    ),
    "certificates and their verifier": (
        "*/hockeystick/verify/*",
        "*/accounting/certificate.py",
        "*/montecarlo/certificate.py",
        "*/cli/verify.py",
    ),
    "pairs from anywhere": (
        "*/mechanisms/given.py",
        "*/mechanisms/ratios.py",
    ),
    "joined layers": ("cpp/src/inversion/joined_rule.*",),
    "risks, mu and attacks": (
        "*/accounting/gaussian_summary.py",
        "*/accounting/envelope.py",
        "*/accounting/risk.py",
    ),
    "private selection": ("*/mechanisms/selection.py",),
    "groups, users, curves of another accountant": (
        "*/mechanisms/users.py",
        "*/mechanisms/whole.py",
        "*/mechanisms/curves.py",
        "*/mechanisms/renyi.py",
        "cpp/src/inversion/renyi.*",
    ),
    "Skellam noise": ("*/mechanisms/skellam.py",),
    "budgets, deployments, plausible requests": (
        "*/accounting/deployment.py",
        "*/accounting/goals.py",
        "*/accounting/noise_scales.py",
        "*/accounting/plausibility.py",
    ),
    "strategies optimised for a workload": (
        "*/matrix/buffered.py",
        "*/matrix/workload.py",
        "*/montecarlo/optimize.py",
    ),
    "coins that are shown (Theorem 7b)": ("*/montecarlo/shown_coins.py",),
    "embedding": (
        "cpp/include/hockeystick/hockeystick.h",
        "cpp/include/hockeystick/hockeystick.hpp",
        "cpp/src/profile/c_interface.cpp",
    ),
    "TF Privacy, commands account and doctor, completion": (
        "*/interop/tensorflow_privacy.py",
        "*/cli/account.py",
        "*/cli/doctor.py",
        "*/cli/completion.py",
    ),
}


def files() -> Iterator[str]:
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path.relative_to(ROOT).as_posix()


def place(name: str) -> str:
    """The feature a file belongs to, or else its room."""
    for feature, patterns in FEATURES.items():
        if any(fnmatch(name, pattern) for pattern in patterns):
            return feature
    return "/".join(name.split("/")[:3]) if name.count("/") > 2 else "/".join(name.split("/")[:2])


def lines() -> Counter[str]:
    """Lines by feature and room."""
    found: Counter[str] = Counter()
    for name in files():
        found[place(name)] += len((ROOT / name).read_text(encoding="utf-8").splitlines())
    return found


def main() -> None:
    found = lines()
    added = {feature: found.pop(feature) for feature in FEATURES}
    for table, total in ((found, "rooms"), (added, "features")):
        for name, count in sorted(table.items()):
            print(f"| {name} | {count:,} |")
        print(f"| **{total}** | {sum(table.values()):,} |")
    print(f"{sum(found.values()) + sum(added.values()):,} lines")


if __name__ == "__main__":
    main()
