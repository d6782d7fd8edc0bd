"""The C interface through ctypes; so from any language that can call C. The library is the one in the wheel."""

import ctypes
import sys
from pathlib import Path

import hockeystick

NAME = {"win32": "bin/hockeystick_c.dll", "darwin": "lib/libhockeystick_c.dylib"}
package = Path(hockeystick.get_include()).parent
library = ctypes.CDLL(str(package / NAME.get(sys.platform, "lib/libhockeystick_c.so")))
library.hockeystick_last_error.restype = ctypes.c_char_p
library.hockeystick_version.restype = ctypes.c_char_p
number, steps, handle = ctypes.c_double, ctypes.c_uint64, ctypes.c_void_p


def call(name: str, *arguments: object) -> None:
    """Call a function that returns a status; a status other than 0 is an error."""
    if getattr(library, f"hockeystick_{name}")(*arguments):
        raise ValueError(library.hockeystick_last_error().decode())


run, profile = handle(), handle()
lower, upper = number(), number()
call("composition_new", ctypes.byref(run))
call("add_sampled_gaussian", run, number(1.0), number(0.01), steps(1000))
call("account", run, 0, number(1e-3), ctypes.byref(profile))
call("epsilon", profile, number(1e-5), ctypes.byref(lower), ctypes.byref(upper))
library.hockeystick_profile_free(profile)
library.hockeystick_composition_free(run)
print(f"{lower.value:.6f} <= epsilon <= {upper.value:.6f}")
