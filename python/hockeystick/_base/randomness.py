"""Seeds: where the randomness of training comes from, and the keys that are made of it.

One seed serves a whole run. Each use derives a key of its own from it, so that batches and noise never share random bits.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import TypeAlias

from .validation import ParameterError, ParameterTypeError, integer

Seed: TypeAlias = "int | bytes | None"

SEED_BYTES = 32  # *limit*: of a seed that is drawn here


def resolve_seed(seed: Seed) -> int | bytes:
    """``seed`` if it is valid, 32 bytes from the operating system if it is None.

    Integers in [0, 2^256) are for tests and experiments: whoever can guess the number knows the noise. Bytes,
    16 to 64 of them, are taken to be secret.

    >>> len(resolve_seed(None))
    32
    """
    if seed is None:
        return os.urandom(SEED_BYTES)
    if isinstance(seed, bytes):
        if not 16 <= len(seed) <= 64:
            # Not the value: it may be a secret.
            raise ParameterError(f"seed: {len(seed)} bytes; must be 16 to 64 bytes, an integer or None")
        return seed
    if isinstance(seed, (str, bytearray, float)):
        raise ParameterTypeError(
            f"seed: must be an integer in [0, 2^256), 16 to 64 bytes, or None, not {type(seed).__name__}"
        )
    return integer("seed", seed, 0, 2**256 - 1)


def derive_key(seed: int | bytes, purpose: str) -> bytes:
    """A key of 32 bytes for one purpose (at most 16 ASCII characters): BLAKE2b of the seed, personalised.

    Keys of different purposes tell nothing about each other or about the seed.
    """
    tagged = b"bytes" + seed if isinstance(seed, bytes) else b"integer" + seed.to_bytes(32, "little")
    return hashlib.blake2b(tagged, digest_size=32, person=purpose.encode("ascii")).digest()


def seed_to_dict(seed: int | bytes) -> dict[str, str]:
    """A seed as JSON values; `seed_from_dict` is its inverse."""
    return {"bytes": seed.hex()} if isinstance(seed, bytes) else {"integer": str(seed)}


def seed_from_dict(plain: Mapping[str, str]) -> int | bytes:
    return bytes.fromhex(plain["bytes"]) if "bytes" in plain else int(plain["integer"])
