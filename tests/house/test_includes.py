"""Every file of the core includes what it uses: what all are compiled with beforehand hides that from most builds."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [ROOT / "cpp" / name for name in ("src", "include", "tests", "bindings")]
FILES = sorted(path for folder in FOLDERS for path in folder.rglob("*.[ch]pp"))

NAMES = {
    "algorithm": "max min minmax clamp sort stable_sort partial_sort nth_element lower_bound upper_bound equal_range"
    " binary_search fill fill_n copy copy_n copy_backward transform generate reverse rotate unique remove_if find"
    " find_if any_of all_of none_of count_if max_element min_element minmax_element is_sorted partition"
    " partition_point merge for_each shuffle swap_ranges",
    "array": "array",
    "atomic": "atomic memory_order_relaxed memory_order_acquire memory_order_release",
    "bit": "bit_cast countl_zero countr_zero popcount has_single_bit bit_ceil bit_floor bit_width endian rotl rotr",
    "cmath": "expm1 log1p log2 log10 cbrt atan2 hypot erf erfc lgamma tgamma floor ceil rint round lround llround"
    " nearbyint trunc fabs fmod fma ldexp frexp scalbn ilogb logb nextafter isfinite isinf isnan signbit copysign",
    "cstddef": "size_t ptrdiff_t nullptr_t byte",
    "cstdint": "int8_t int32_t int64_t uint8_t uint32_t uint64_t uintptr_t",
    "cstdio": "printf snprintf fprintf FILE",
    "functional": "function greater ref cref invoke",
    "limits": "numeric_limits",
    "memory": "unique_ptr shared_ptr weak_ptr make_unique make_shared enable_shared_from_this addressof",
    "mutex": "mutex lock_guard unique_lock scoped_lock once_flag call_once recursive_mutex",
    "numbers": "numbers",
    "numeric": "accumulate iota inner_product partial_sum reduce gcd lcm midpoint adjacent_difference",
    "optional": "optional nullopt",
    "span": "span",
    "stdexcept": "runtime_error invalid_argument domain_error logic_error out_of_range overflow_error length_error",
    "string": "string to_string stod",
    "utility": "pair move swap exchange forward make_pair as_const declval",
    "variant": "variant visit get_if holds_alternative monostate",
    "vector": "vector",
}  # fmt: skip
HEADER_OF = {name: header for header, names in NAMES.items() for name in names.split()}


@functools.cache
def included(path: Path) -> frozenset[str]:
    """The standard headers of a file and of this project's own that it includes."""
    found = set()
    for kind, name in re.findall(r'^#include ([<"])(.+)[>"]', path.read_text(encoding="utf-8"), re.MULTILINE):
        own = [folder / name for folder in (path.parent, *FOLDERS) if (folder / name).is_file()]
        found |= included(own[0]) if own else {name} if kind == "<" else set()
    return frozenset(found)


def lacking(path: Path) -> set[str]:
    code = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
    used = {HEADER_OF[name] for name in re.findall(r"\bstd::(\w+)", code) if name in HEADER_OF}
    return used - included(path)


def test_every_file_includes_what_it_uses() -> None:
    assert len(FILES) > 250
    assert {str(path.relative_to(ROOT)): names for path in FILES if (names := lacking(path))} == {}


def test_all_that_is_compiled_beforehand_is_looked_for() -> None:
    cmake = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    listed = re.search(r"set\(hockeystick_precompiled ([^)]*)\)", cmake)
    assert listed
    assert set(re.findall(r"<(\w+)>", listed[1])) <= set(NAMES)


@pytest.mark.parametrize(
    ("include", "expected"), [("#include <vector>", set()), ("#include <string>", {"vector"})]
)
def test_what_is_lacking_is_seen(include: str, expected: set[str], tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text(f"{include}\n// std::optional\nstd::vector<int> all;\n", encoding="utf-8")
    assert lacking(tmp_path / "a.cpp") == expected
