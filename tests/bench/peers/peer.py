"""What every peer does: one process runs so many scripted steps, and prints one line of JSON.

A step is one model call and one trivial tool call. The model answers at once, so that what is measured is
the library. Imported by the adapters beside it, in the environment of their library.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable

Variant = Callable[[int, str], None]
"""Runs so many steps, recording what its library records below a folder."""


def result(step: int) -> str:
    """What the tool says at a step."""
    return f"line {step:05d}: the quick brown fox jumps over the lazy dog"


def main(variants: dict[str, Variant]) -> None:
    """`ADAPTER VARIANT STEPS`: warm up, run, and print processor µs and bytes a step."""
    variant, steps = variants[sys.argv[1]], int(sys.argv[2])
    with tempfile.TemporaryDirectory() as root:
        warm, folder = (os.path.join(root, name) for name in ("warm", "run"))  # noqa: PTH118
        os.mkdir(warm)  # noqa: PTH102
        os.mkdir(folder)  # noqa: PTH102
        variant(5, warm)
        cpu, wall = time.process_time(), time.perf_counter()
        variant(steps, folder)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        size = sum(
            os.path.getsize(os.path.join(where, name))  # noqa: PTH118, PTH202
            for where, _, names in os.walk(folder)
            for name in names
        )
    print(json.dumps({"cpu": cpu * 1e6 / steps, "wall": wall * 1e6 / steps, "bytes": size / steps}))
