"""What filters, odometers and accountants do alike: their state is saved to a file, kept in a directory, resumed, and merged from shards (docs/individual/individual.md, "State")."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from .._base import storage
from .._base.exclusive import Exclusive, holding
from .._base.files import StorageError, StoreLock, new_directory, refusing
from .._base.types import AnyPath, Self
from .._base.validation import ParameterError, ParameterTypeError, boolean, entries

MAX_EXAMPLES = 2**40  # *limit*


class Live:
    """A state in a directory, whatever it holds: only one process may have it open. Close it when done.

    A step that an exception (Ctrl-C, say) ends half-way leaves it ``_interrupted``: only opening finds out how far it has come.
    """

    settings: dict[str, Any]
    """The values that whoever made it wants to find again."""
    durable: bool
    """Whether it survives a power failure, too, at the price of waiting for the disk in each step."""

    def __init__(self, path: AnyPath, kind: str) -> None:
        self._path, self._kind = Path(os.path.abspath(path)), kind  # wherever the process goes
        self._interrupted = False
        self._lock = StoreLock(self._path)
        try:
            self._load()
        except BaseException:
            self._lock.close()
            raise

    @classmethod
    def create(
        cls, path: AnyPath, kind: str, settings: Mapping[str, Any], durable: bool, parts: Sequence[Any]
    ) -> Self:
        """A new directory at ``path``, which must not exist, with the examples of all ``parts``, which have made the same steps."""
        durable = boolean("durable", durable)
        with new_directory(path, "open() resumes a ledger") as directory:
            cls._fill(directory, kind, settings, durable, parts)
            StoreLock.create(directory, parts[0].steps)
        return cls(path, kind)

    @staticmethod
    def _fill(
        directory: Path, kind: str, settings: Mapping[str, Any], durable: bool, parts: Sequence[Any]
    ) -> None:
        """Write all files but the lock."""
        raise NotImplementedError

    def _load(self) -> None:
        """Read all there is in the directory."""
        raise NotImplementedError

    def check_open(self) -> None:
        """StorageError once it is closed: without the lock, another process may have it open by now."""
        if self._lock.closed:
            raise StorageError(f"{os.fspath(self._path)!r}: is closed; open it again")

    def _check(self) -> None:
        self.check_open()
        if self._interrupted:
            raise StorageError(
                f"{os.fspath(self._path)!r}: a step was interrupted; close it and open it again"
            )


class Kept(Exclusive):
    """The base of what has a `Ledger` or `Histories`, in memory or on disk. Threads and forks: see `Exclusive`."""

    _KIND: ClassVar[str]
    _SETTINGS: ClassVar[tuple[str, ...]]
    """The arguments, kept under these names with an underscore, that make another one like it."""
    _ALIKE: ClassVar[str] = "settings"
    _MISSED: ClassVar[str] = storage.RECORD
    """What to do where somebody else has saved to the same file since."""
    _LIVE: ClassVar[Any]
    """The class of its state on disk."""
    _state: Any
    _seen: storage.Seen

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        self = super().__new__(cls, *arguments, **options)
        self._seen = storage.Seen(cls._MISSED)
        return self

    @property
    def num_examples(self) -> int:
        """Number of examples."""
        return int(self._state.num_examples)

    @property
    def steps(self) -> int:
        """Number of steps so far."""
        return int(self._state.steps)

    def save(self, path: AnyPath) -> None:
        """Write the whole state to one file, atomically; `load` resumes from it.

        Save together with the model: a state and a model from the same moment resume exactly. StorageError, and the file stays as
        it is, if it is not the one that this was loaded from or saved to last: another process has saved its own spending there.
        """
        content, arrays = self._state.snapshot([self._state])
        storage.write(path, self._KIND, {**self._settings(), **content}, arrays, seen=self._seen)

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read what `save` wrote; StorageError (a ValueError) says why a file is refused."""
        seen = storage.Seen(cls._MISSED)
        content, arrays = storage.read(path, cls._KIND, seen=seen)
        with refusing(path):
            self = cls._restore(content)
            self._take(self._state.loaded(content, arrays))
        self._seen = seen
        return self

    @classmethod
    def open(cls, path: AnyPath) -> Self:
        """Resume what was made on disk with ``path=...``; a step that was under way is made or not, never half.

        Raises StorageError where the directory holds none, or where another process has it open.
        """
        live = cls._LIVE(path, cls._KIND)
        try:
            with refusing(path):
                self = cls._restore(live.settings)
                self._take(live)
        except BaseException:
            live.close()
            raise
        return self

    def close(self) -> None:
        """Let go of files on disk, if any, of which nothing can be asked any more; one in memory stays as it is."""
        self._state.close()

    @classmethod
    def merge(cls, parts: Iterable[Self], *, path: AnyPath | None = None, durable: bool = False) -> Self:
        """One for the examples of all ``parts``, in their order: shards of one data set.

        Each worker kept that of its own examples. All must have the same settings and number of steps.
        ``path`` puts it on disk, part by part; ``durable`` as for a new one.
        """
        shards = entries("parts", parts, cls.__name__)
        if not shards or not all(type(shard) is cls for shard in shards):
            raise ParameterTypeError(f"parts: must be one or more {cls.__name__}")
        if len(set(map(id, shards))) < len(shards):
            raise ParameterError("parts: one of them occurs twice, and so would its examples")
        with holding(*shards):
            first = shards[0]
            for shard in shards[1:]:
                if shard._settings() != first._settings():
                    raise ParameterError(
                        f"parts: {cls._ALIKE} differ: {first._settings()} and {shard._settings()}"
                    )
                if shard.steps != first.steps:
                    raise ParameterError(f"parts: have made {first.steps} and {shard.steps} steps")
            self = cls._restore(first._settings())
            self._keep([shard._state for shard in shards], path, durable)
        return self

    def _keep(self, parts: list[Any], path: AnyPath | None, durable: bool) -> None:
        """Put the states of all ``parts`` into memory, or to ``path``."""
        if path is not None:
            self._state = self._LIVE.create(path, self._KIND, self._settings(), durable, parts)
        else:
            content, arrays = parts[0].snapshot(parts)
            self._state = self._state.loaded(
                content, {name: storage.whole(each) for name, each in arrays.items()}
            )

    def _take(self, found: Any) -> None:
        """Go on with a state that was read; StorageError if it does not fit."""
        self._state = found

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, f"_{name}") for name in self._SETTINGS}

    def _settings(self) -> dict[str, Any]:
        """What files have and shards share: what `_restore` makes another one of."""
        return self._arguments()

    @classmethod
    def _restore(cls, settings: Mapping[str, Any]) -> Self:
        """One without examples, with the same settings."""
        return cls(0, **{name: settings[name] for name in cls._SETTINGS})
