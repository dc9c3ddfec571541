"""What a core dump adds to `unstall run --blame` on a GPU: planted faults, with a dump of a second run and without.

For each fault: the lines that are left, the line of the kernel's source, what the program itself saw, and how long its
runs took. The dumps are kept in the folder of --out, compressed; `tests/data/core_dumps/shrink.py` makes them smaller.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import lzma
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.on_device import measured_on, why_skipped

PROGRAMS = sorted((Path(__file__).parents[1] / "tests" / "blaming" / "core_dump" / "programs").glob("*.py"))
_NEEDS = {"triton_kernel": "triton", "cupy_kernel": "cupy"}
_OF_CUPY = 4
"""The line of CuPy's kernel that fails. The kernel has a source of its own."""
_CORE_DUMP = "--core-dump-to"
_WAYS = {"plain": (), "core-dump": (_CORE_DUMP,), "pin-down": ("--pin-down",), "both": ("--pin-down", _CORE_DUMP)}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a folder for the figures, as JSON, and the dumps")
    args = parser.parse_args(argv)
    if skipped := why_skipped():
        print(skipped)
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for program in PROGRAMS:
        if needed := missing(program):
            print(f"{program.stem}: left out, {needed} is not installed")
            continue
        for way in _WAYS:
            rows.append(_row(program, way, args.out))
            print(json.dumps(rows[-1]), flush=True)
    (args.out / "core_dumps.json").write_text(json.dumps({**measured_on(), "faults": rows}, indent=1) + "\n")
    return 0


def missing(program: Path) -> str | None:
    """Returns the package that a program needs and that is not installed; None if nothing is
    missing.
    """
    needed = _NEEDS.get(program.stem)
    return needed if needed and importlib.util.find_spec(needed) is None else None


def line_of(program: Path, comment: str) -> int | None:
    """Returns the number of the line in `program` that ends with `comment`; None if there is no
    such line.
    """
    return next((n for n, line in enumerate(program.read_text().splitlines(), 1) if line.endswith(comment)), None)


def kernel_line(program: Path) -> int | None:
    """Returns the number of the line of the kernel's source that fails; None if the kernel is
    compiled without line numbers.
    """
    return _OF_CUPY if program.stem == "cupy_kernel" else line_of(program, "# in the kernel")


def blamed(program: Path, *options: str) -> tuple[dict[str, Any], str]:
    """Returns the result of `unstall run --blame`, and what the program wrote to stderr."""
    command = [sys.executable, "-m", "unstall", "run", "--blame", *options, "--format", "json", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    if "{" not in done.stdout[:1]:
        raise RuntimeError(done.stderr[-2000:])
    result: dict[str, Any] = json.loads(done.stdout)
    return result, done.stderr


def lines_of(result: dict[str, Any]) -> list[int]:
    """Returns the numbers of all lines that may have failed, as the result of `--blame` says."""
    return [line["line"] for suspect in result["suspects"] for line in (suspect["where"], *suspect["others"]) if line]


def _row(program: Path, way: str, out: Path) -> dict[str, Any]:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "kept.core"
        options = [f"{option}={kept}" if option == _CORE_DUMP else option for option in _WAYS[way]]
        try:
            result, stderr = blamed(program, *options)
        except Exception as error:
            return {"fault": program.stem, "way": way, "why": f"{type(error).__name__}: {error}"[-1500:]}
        took = time.perf_counter() - began
        size = kept.stat().st_size if kept.exists() else None
        if size:
            (out / f"{program.stem}.core.xz").write_bytes(lzma.compress(kept.read_bytes(), preset=1))
    failed = next((grid for grid in (result["dump"] or {}).get("grids", ()) if grid["exception"]), None)
    at = (failed or {}).get("exception", {}).get("at") or {}
    seen = [line for line in stderr.splitlines() if "CUDA error" in line or "CUDA_ERROR" in line or "Error: " in line]
    return {
        "fault": program.stem,
        "way": way,
        "true": line_of(program, "# the fault"),
        "lines": lines_of(result),
        "iterations": [(each["iteration"], each["iteration_to"]) for each in result["suspects"]],
        "error": result["error"],
        "code": result["code"],
        "kernel": failed["kernel"] if failed else None,
        "exception": failed["exception"]["name"] if failed else None,
        "true_in_kernel": kernel_line(program),
        "in_kernel": [f"{Path(line['file']).name}:{line['line']}" for line in at.get("source", ())],
        "offset": at.get("offset"),
        "no_dump": result["no_dump"],
        "dump_bytes": size,
        "seen_by_the_program": seen[:2],
        "driver": [line for line in stderr.splitlines() if "core" in line.lower() and "dump" in line.lower()][:8],
        "noticed": (result["noticed"] or {}).get("call"),
        "seconds": round(took, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
