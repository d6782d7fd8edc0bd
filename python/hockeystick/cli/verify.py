"""``hockeystick verify``: whether a certificate proves what it claims."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

EXAMPLES = ("hockeystick verify run.json  # of hockeystick epsilon ... --certificate run.json",)


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Recomputes the claim of a certificate in ball arithmetic, by another way than the engine that made it and without the "
        "core. Exit code 0 if the certificate is accepted, 1 if it is rejected. Needs the extra 'verify'."
    )
    command.add_argument(
        "file", metavar="FILE", help="what Report.certificate returned, or --certificate wrote"
    )
    command.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    from ..verify.check import verify

    verdict = verify(Path(options.file).read_bytes())
    print(json.dumps(asdict(verdict), indent=2) if options.json else verdict)
    return int(not verdict.accepted)
