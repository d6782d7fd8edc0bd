"""The main interpreter of a process, and others (mod_wsgi's, say): loading the core hangs there for ever."""

from __future__ import annotations

from importlib import import_module


def require_main(package: str) -> None:
    """Raise ImportError in another interpreter than the main one."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # from 3.13 on, and before
        try:
            known = import_module(name)
        except ImportError:
            continue
        if known.get_current() != known.get_main():
            raise ImportError(
                f"{package} works in the main interpreter of a process only, not in a subinterpreter; under mod_wsgi set "
                "WSGIApplicationGroup %{GLOBAL}"
            )
        return
