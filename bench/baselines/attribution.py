"""Greedy contribution bounding in plain Python, as an oracle and for comparison."""

from __future__ import annotations

from collections.abc import Sequence


def bound(
    users_of: Sequence[Sequence[int]], order: Sequence[int], max_examples_per_user: int, duplicates: bool
) -> list[int]:
    """The examples taken, in order: those that leave all their users within the limit."""
    counts: dict[int, int] = {}
    taken: list[int] = []
    candidates: Sequence[int] = order
    while candidates:
        accepted = []
        for example in candidates:
            users = users_of[example]
            if all(counts.get(user, 0) < max_examples_per_user for user in users):
                for user in users:
                    counts[user] = counts.get(user, 0) + 1
                accepted.append(example)
        taken += accepted
        candidates = accepted if duplicates else []
    return taken
