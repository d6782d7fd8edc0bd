"""What `import hockeystick` costs beside `import numpy`: python -m bench.startup

A new process each; the least of several, in seconds and in megabytes of resident memory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

MEASURE = """
import resource, time
begun = time.perf_counter()
{code}
print(time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
CASES = {
    "nothing": "pass",
    "import numpy": "import numpy",
    "import hockeystick": "import hockeystick",
    "hockeystick.__version__": "import hockeystick; hockeystick.__version__",
    "hockeystick.account": "import hockeystick; hockeystick.account",
}


def cost(code: str, repeats: int) -> tuple[float, float]:
    found = []
    for _ in range(repeats):
        done = subprocess.run(
            [sys.executable, "-c", MEASURE.format(code=code)], capture_output=True, text=True, check=True
        )
        seconds, megabytes = map(float, done.stdout.split())
        found.append((seconds, megabytes))
    return min(seconds for seconds, _ in found), min(megabytes for _, megabytes in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="processes of each kind (default 7)")
    repeats = parser.parse_args().repeats
    costs = {name: cost(code, repeats) for name, code in CASES.items()}
    seconds, megabytes = costs["import numpy"]
    print(f"{'':26}{'s':>8}{'/ numpy':>9}{'MB':>8}{'/ numpy':>9}")
    for name, (time, memory) in costs.items():
        print(f"{name:26}{time:8.4f}{time / seconds:9.2f}{memory:8.1f}{memory / megabytes:9.2f}")


if __name__ == "__main__":
    main()
