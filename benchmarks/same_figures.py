"""Compares the figures of two versions: the JSON of explain, whatif and diff on every trace in `examples/`.

Usage: python -m benchmarks.same_figures BEFORE

BEFORE is a revision, or the folder of another checkout; it is installed into a temporary folder. Text may differ, and
keys may be new: those are listed once. Numbers, truth values, nulls, other keys and lengths are compared. Prints every
difference, with both values, and exits with 1 if there is any.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.before import HERE, environment, installed

EXAMPLES = HERE / "examples"
TRACES = sorted([*EXAMPLES.glob("traces/*.json.gz"), *EXAMPLES.glob("transformers/recorded/*.json.gz")])


def commands() -> Iterator[list[str]]:
    """Yields the commands whose answers are compared, as lists of arguments of `unstall`."""
    reference = {"traces": "train_item.json.gz", "recorded": "gpt2_generate-0.trace.json.gz"}
    for trace in TRACES:
        yield ["explain", str(trace)]
        yield ["whatif", str(trace), "--edit", "host-speed:2", "--edit", "kernel-speed:2"]
        yield ["whatif", str(trace), "--edit", "remove-syncs", "--edit", "graph"]
        yield ["diff", str(trace), str(trace.parent / reference[trace.parent.name])]


def answer(source: Path, command: list[str]) -> Any:
    """Returns the JSON that a version of unstall prints for a command. If it refuses, returns its
    exit code.

    Args:
        source: The folder from which the version is imported.
        command: The arguments of `unstall`.
    """
    ran = subprocess.run(
        [sys.executable, "-m", "unstall", *command, "--json", "-q"],
        env=environment(source),
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(ran.stdout) if ran.returncode == 0 else {"exit code": ran.returncode}


def differences(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Yields a line of text for each difference between two JSON values. Texts may differ, and keys
    may be new.

    Args:
        before: The value of the earlier version.
        after: The value of the later version.
        where: The path of the two values in the whole answer.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key in after:
                yield from differences(value, after[key], f"{where}.{key}")
            else:
                yield f"{where}.{key}: only before"
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{where}: {len(before)} entries, then {len(after)}"
        for row, (one, other) in enumerate(zip(before, after, strict=False)):
            yield from differences(one, other, f"{where}[{row}]")
    elif before != after and not (isinstance(before, str) and isinstance(after, str)):
        yield f"{where}: {before}, then {after}"


def new_keys(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Yields the paths of those keys that only the later of two JSON values has.

    Args:
        before: The value of the earlier version.
        after: The value of the later version.
        where: The path of the two values in the whole answer.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        yield from (f"{where}.{key}" for key in after.keys() - before.keys())
        for key in after.keys() & before.keys():
            yield from new_keys(before[key], after[key], f"{where}.{key}")
    elif isinstance(before, list) and isinstance(after, list):
        for one, other in zip(before, after, strict=False):
            yield from new_keys(one, other, f"{where}[]")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="a revision, or the folder of another checkout")
    args = parser.parse_args()
    different = 0
    new: set[str] = set()
    asked = list(commands())
    with installed(args.before) as before, ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = pool.map(lambda command: (answer(before, command), answer(HERE / "src", command)), asked)
        for command, (one, other) in zip(asked, answers, strict=True):
            found = list(differences(one, other))
            new |= {f"{command[0]}: {key}" for key in new_keys(one, other)}
            different += bool(found)
            name = " ".join(word.removeprefix(f"{EXAMPLES}/") for word in command)
            for difference in found:
                print(f"{name}: {difference}")
    for key in sorted(new):
        print(f"new: {key}")
    print(f"{different} of {len(asked)} answers differ")
    return min(different, 1)


if __name__ == "__main__":
    sys.exit(main())
