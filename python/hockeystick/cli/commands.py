"""The command ``hockeystick``: which commands there are, and how a mistake is reported."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import NoReturn

from .. import _core
from .numbers import joined

COMMANDS = {
    "epsilon": "epsilon at a given delta",
    "delta": "delta at a given epsilon",
    "profile": "table of epsilon over delta, JSON or a plot",
    "account": "epsilon or delta of whatever a file describes",
    "calibrate": "noise, steps or sampling that spend a budget",
    "grid": "epsilon or delta of many configurations, CSV, JSON or a plot",
    "bandmf": "noise multiplier of BandMF for a privacy budget",
    "plan": "plan of a training run, in a file to start it from",
    "verify": "whether a certificate proves what it claims",
    "completion": "completion of options by the shell",
    "doctor": "what is installed, and whether it works",
}
"""What there is, each a module of this folder with ``EXAMPLES``, ``add_options(parser)`` and ``run(options)``."""


class _Parser(argparse.ArgumentParser):
    """Reports a mistake in one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        from .._base.validation import ParameterError

        raise ParameterError(message)


def parser(asked: Collection[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """The parser of all commands; only those that are asked for are imported, and have their options."""
    found = _Parser(
        prog="hockeystick",
        description="Certified differential privacy of a DP-SGD run, or of whatever else is released.",
        epilog="hockeystick command --help explains a command, with examples.",
    )
    found.add_argument("--version", action="version", version=f"%(prog)s {_core.__version__}")
    commands = found.add_subparsers(dest="command", metavar="command", required=True, parser_class=_Parser)
    for name, purpose in COMMANDS.items():
        command = commands.add_parser(
            name, help=purpose, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name in asked:
            module = import_module(f".{name}", __package__)
            command.epilog = "\n  ".join(["examples:", *module.EXAMPLES])
            module.add_options(command)
            command.description = textwrap.fill(command.description or f"Prints {purpose}.", 100)
            command.set_defaults(run=module.run)
    return found


def _refusals() -> tuple[type[Exception], ...]:
    """What is the caller's fault, or the disk's. Imported once there is an error: ``--version`` needs no NumPy."""
    from .._base.files import StorageError
    from .._base.validation import ParameterError, ParameterTypeError

    return ParameterError, ParameterTypeError, StorageError, ImportError, OSError


def _run(arguments: list[str]) -> int:
    """What the arguments ask for: 0, what the command returns, or 2 after a one-line error."""
    # What comes before the command takes no values.
    asked = next((argument for argument in arguments if not argument.startswith("-")), "")
    options = argparse.Namespace()
    try:
        parser({asked}).parse_args(joined(arguments), options)
        code: int = options.run(options) or 0
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # --help and --version
        sys.stdout.flush()
        return stop.code if isinstance(stop.code, int) else 0
    except KeyboardInterrupt:
        print("hockeystick: interrupted" + _what_is_kept(options), file=sys.stderr)
        return 130
    except BrokenPipeError:
        raise
    except _refusals() as error:
        print(f"hockeystick: error: {error}", file=sys.stderr)
        return 2


def _what_is_kept(options: argparse.Namespace) -> str:
    """Of the work of a command that was interrupted."""
    if not hasattr(options, "checkpoint"):
        return ""
    if options.checkpoint is None:
        return "; nothing is kept without --checkpoint DIRECTORY"
    return f"; {options.checkpoint} keeps what is done, the same command goes on"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after printing a one-line error to stderr.

    130 after Ctrl-C, and 141 if nobody reads what is printed, as a shell has it for other programs.
    """
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except BrokenPipeError:
        # Python flushes once more at exit, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


if __name__ == "__main__":
    sys.exit(main())
