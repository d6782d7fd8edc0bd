"""``hockeystick completion``: a script by which a shell completes commands and options."""

from __future__ import annotations

import argparse

from .._base.lazy import needing
from .._base.validation import choice

EXAMPLES = (
    "hockeystick completion bash > ~/.local/share/bash-completion/completions/hockeystick",
    "hockeystick completion zsh > ~/.zfunc/_hockeystick",
)
_SHELLS = ("bash", "zsh", "tcsh")


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Prints a script that completes commands and options; it needs the extra 'completion'."
    )
    command.add_argument("shell", help=", ".join(_SHELLS))


def run(options: argparse.Namespace) -> None:
    shell = choice("shell", options.shell, _SHELLS)
    with needing("completion needs shtab", extra="completion"):
        import shtab
    from .commands import parser

    print(shtab.complete(parser(), shell))
