"""The command ``hockeystick``: which commands there are, and how a mistake is reported."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from .. import _core

COMMANDS = {
    "epsilon": "epsilon at a given delta",
    "delta": "delta at a given epsilon",
    "profile": "table of epsilon over delta, JSON or a plot",
    "calibrate": "noise, steps or sampling that spend a budget",
    "grid": "epsilon or delta of many configurations, CSV, JSON or a plot",
    "bandmf": "noise multiplier of BandMF for a privacy budget",
    "plan": "plan of a training run, in a file to start it from",
}
"""What there is, each a module of this folder with ``add_options(parser)`` and ``run(options)``."""


class _Parser(argparse.ArgumentParser):
    """Reports a mistake in one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        from .._base.validation import ParameterError

        raise ParameterError(message)


def _parser(asked: str | None) -> argparse.ArgumentParser:
    """The parser of all commands; only the one that is asked for is imported, and has its options."""
    parser = _Parser(
        prog="hockeystick",
        description="Certified differential privacy of a DP-SGD run or of repeated Gaussian noise.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_core.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    for name, purpose in COMMANDS.items():
        command = commands.add_parser(name, help=purpose)
        if name == asked:
            module = import_module(f".{name}", __package__)
            module.add_options(command)
            command.set_defaults(run=module.run)
    return parser


def _refusals() -> tuple[type[Exception], ...]:
    """What is the caller's fault, or the disk's. Imported once there is an error: ``--version`` needs no NumPy."""
    from .._base.storage import StorageError
    from .._base.validation import ParameterError, ParameterTypeError

    return ParameterError, ParameterTypeError, StorageError, ImportError, OSError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after printing a one-line error to stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # What comes before the command takes no values.
    asked = next((argument for argument in arguments if not argument.startswith("-")), None)
    try:
        options = _parser(asked).parse_args(arguments)
        options.run(options)
    except SystemExit as stop:  # --help and --version
        return stop.code if isinstance(stop.code, int) else 0
    except _refusals() as error:
        print(f"hockeystick: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
