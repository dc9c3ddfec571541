"""Whether `unstall run --blame --hang-after` tells planted hangs, and how soon. On a GPU.

    python -m benchmarks.hangs [--out FILE]

Each program of tests/blaming/hangs hangs at the lines with the comment `# the hang`, and prints "now" before. It is
run with --hang-after 5s --end-hung. A row has the true lines and those of the report, the kernel, and how many seconds
after the time-out the report came.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.on_device import tell

HANGS = Path(__file__).parents[1] / "tests" / "blaming" / "hangs"
_AFTER_S = 5.0
_LONGEST_S = 120.0
_WARM_UP = """
import torch
kernel = torch.cuda._compile_kernel('extern "C" __global__ void nothing(int *flag) {}', "nothing")
x = torch.randn(256, 256, device="cuda")
kernel((1, 1, 1), (1, 1, 1), [torch.ones(1, dtype=torch.int32, device="cuda")])
print(torch.nn.functional.normalize(x @ x).sum().item())
"""
Row = dict[str, Any]


def figures() -> Mapping[str, object]:
    """Returns a row for each hang, and how many of them were told wholly and in time."""
    subprocess.run([sys.executable, "-c", _WARM_UP], check=True)  # libraries that are first read from disk take seconds
    rows = [_hang(program) for program in sorted(HANGS.glob("*.py"))]
    return {"after_s": _AFTER_S, "hangs": rows, "told": sum(bool(row["told"]) for row in rows)}


def _hang(program: Path) -> Row:
    source = program.read_text()
    true = [n for n, line in enumerate(source.splitlines(), 1) if line.endswith("# the hang")]
    command = [sys.executable, "-m", "unstall", "run", "--blame", "--hang-after", f"{_AFTER_S:.0f}s", "--end-hung"]
    began, reported, lines = None, None, []
    with subprocess.Popen(
        [*command, "--format", "json", str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr
        assert running.stdout
        until = time.monotonic() + _LONGEST_S
        for line in running.stderr:
            lines.append(line)
            if line.strip() == "now":
                began = time.monotonic()
            if line.startswith("The program hangs"):
                reported = time.monotonic()
            if time.monotonic() > until:
                running.kill()
        out = running.stdout.read()
    row: Row = {"hang": program.stem, "true": true, "exit": running.returncode}
    try:
        row |= _told(json.loads(out)["hang"]["processes"])
    except (ValueError, KeyError, TypeError):
        return {**row, "told": False, "why": "".join(lines)[-3000:]}
    row["late_s"] = round(reported - began - _AFTER_S, 2) if reported and began else None
    in_time = row["late_s"] is not None and row["late_s"] <= 10
    names = {*row["work"], *row["collective"]}
    row["told"] = row["lines"] == true and in_time and ("spin" in names if "void spin(" in source else bool(names))
    if not row["told"]:
        row["why"] = "".join(lines)[-3000:]
    print(json.dumps(row), flush=True)
    return row


def _told(processes: list[Row]) -> Row:
    """Returns the lines that the report names: those at which streams are, or those of the ranks
    that wait in a collective.
    """
    streams = [each for process in processes for each in process["streams"] if each["is_sure"]]
    waiting = [process for process in processes if process["collective"]]
    at = [each["work"]["where"]["line"] for each in streams] or [process["at"]["line"] for process in waiting]
    return {
        "lines": sorted(set(at)),
        "others": sum(len(each["work"]["others"]) for each in streams),
        "waits": [each["waits"] for each in streams],
        "circular": [each["circular"] for each in streams],
        "work": sorted({name for each in streams for name in each["work"]["work"]}),
        "collective": sorted({process["collective"] for process in waiting}),
        "elsewhere": [each["rank"] for each in processes if each["rank"] is not None and each not in waiting],
        "quiet_ns": [process["quiet_ns"] for process in processes],
        "host": [process["at"]["line"] if process["at"] else None for process in processes],
    }


if __name__ == "__main__":
    tell(__doc__, figures)
