"""Certificates of privacy guarantees, verified in ball arithmetic without the core (docs/accounting/certificates.md).

`check.verify` reads a certificate, recomputes an upper bound on delta from its description, and says whether it proves what it claims.
Nothing here imports another room, NumPy or compiled code of this package, but python-flint. ``hockeystick verify FILE``, or
``python -m hockeystick.verify FILE`` where nothing else is to be loaded.
"""

from importlib.util import find_spec

if find_spec("flint") is None:
    raise ImportError("certificates need python-flint: install it with `pip install 'hockeystick[verify]'`")
