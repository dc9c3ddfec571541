"""What `unstall run` promised of each program's first finding, and what mending it by hand gave.

python examples/transformers/measure.py [NAME…] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from programs import PROGRAMS, Step

_ROUNDS, _LEAST_S = 7, 0.15


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    results = {}
    for name in args.names:
        try:
            results[name] = result = {**promised(name), **measured(name)}
        except (RuntimeError, subprocess.CalledProcessError) as error:
            print(f"{name}: {error} {getattr(error, 'stderr', '') or ''}", flush=True)
            continue
        said, got = result["gain_ms"], result["before_ms"] - result["after_ms"]
        print(f"{name}: {result['title']} at {result['where']}; verdict {result['bound_by']}")
        print(
            f"  plain {result['plain_ms']:.3f} ms, recorded {result['recorded_ms']:.3f} ms, gain said {said:.3f} ms;"
            f" before {result['before_ms']:.3f}, after {result['after_ms']:.3f}: {got:.3f} ms,"
            f" {got / said - 1:+.1%} of what was said",
            flush=True,
        )
        if args.out:
            args.out.write_text(json.dumps(results, indent=1) + "\n")


def promised(name: str) -> dict[str, float | str | None]:
    """From the explanation of the program as it was written."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(__file__).parent / "programs.py"
        trace = f"{folder}/t.trace.json.gz"
        command = [sys.executable, "-m", "unstall", "run", "--json", "--trace", trace, str(program), name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    first, replay = report["findings"][0], report["replay"]
    where = first["where"]
    return {
        "title": first["title"],
        "where": f"{where['file']}:{where['line']} {where['function']}",
        "edit": first["edit"],
        "bound_by": report["verdict"]["bound_by"],
        "gain_ms": first["gain_ns"] / 1e6,
        "recorded_ms": report["steps"]["mean_ns"] / 1e6,
        "plain_ms": replay["undistorted_mean_step_ns"] / 1e6,
        "plain_by": replay["undistorted_by"],
    }


def measured(name: str) -> dict[str, float]:
    """Steps as written and mended, in turns."""
    make, parts = PROGRAMS[name]
    written, mended = make()
    for step in (written, mended):
        timed(step)
    before, after = [], []
    for _ in range(_ROUNDS):
        before.append(timed(written) / parts)
        after.append(timed(mended) / parts)
    return {"before_ms": 1e3 * statistics.median(before), "after_ms": 1e3 * statistics.median(after)}


def timed(step: Step) -> float:
    """Seconds a step."""
    step()
    torch.cuda.synchronize()
    begun, count = time.perf_counter(), 0
    while count < 3 or time.perf_counter() - begun < _LEAST_S:
        step()
        count += 1
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / count


if __name__ == "__main__":
    main()
