"""Which planted races `unstall run --blame --races` finds, and torch's stream sanitizer; what looking costs. On a GPU.

    python -m benchmarks.races [--only programs|cost] [--seconds 20] [--out FILE]

Programs: those of tests/virtual/races/programs. A planted one has the comments `# race: first` and `# race: second` on
the lines of its race; a correct one has no race. Each is run with --blame --races, and with torch's sanitizer
(TORCH_CUDA_SANITIZER=1), which ends a program at the first race. Several run at a time.

Cost: steps of a training and of an inference, with and without looking for races, in turns. The figures are ratios of
medians. Results must be equal bit for bit.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.on_device import measured_on, why_skipped

PROGRAMS = Path(__file__).parents[1] / "tests" / "virtual" / "races" / "programs"
_AT_A_TIME = 6
Row = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=("programs", "cost"), help="one part")
    parser.add_argument("--seconds", type=float, default=20.0, help="for the cost")
    parser.add_argument("--out", type=Path, help="where the figures go, as JSON")
    args = parser.parse_args(argv)
    if skipped := why_skipped():
        print(skipped)
        return 0
    result: Row = measured_on()
    if args.only != "cost":
        result["programs"] = rows = programs()
        result["right"] = {way: sum(row[way] == row["true"] for row in rows) for way in ("unstall", "sanitizer")}
        result["of"] = len(rows)
        print(json.dumps({name: result[name] for name in ("right", "of")}), flush=True)
    if args.only != "programs":
        result["cost"] = cost(args.seconds)
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def programs() -> list[Row]:
    """Runs each program. Returns a row for each: the pair of lines of its race, if it has one, and
    the pairs that were found.
    """
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        rows = list(pool.map(_row, sorted(PROGRAMS.glob("*/*.py"))))
    for row in rows:
        verdict = {way: "right" if row[way] == row["true"] else "WRONG" for way in ("unstall", "sanitizer")}
        print(f"{row['program']:22} true {row['true']}", end="")
        print("".join(f"  {way} {row[way]} {verdict[way]}" for way in verdict), row["missing"], flush=True)
    return rows


def _row(program: Path) -> Row:
    text = program.read_text().splitlines()
    marks = [n for mark in ("first", "second") for n, line in enumerate(text, 1) if line.endswith(f"# race: {mark}")]
    plain = _run([sys.executable, str(program)])
    began = time.perf_counter()
    ours = _run([sys.executable, "-m", "unstall", "run", "--blame", "--races", "--format", "json", str(program)])
    took = time.perf_counter() - began
    try:
        told: Row = json.loads(ours.stdout)
    except ValueError:
        told = {"races": [], "races_missing": ours.stderr[-2000:]}
    theirs = _run([sys.executable, str(program)], TORCH_CUDA_SANITIZER="1")
    return {
        "program": program.stem,
        "true": [marks] if marks else [],
        "unstall": [[_line(race["earlier"]), _line(race["later"])] for race in told["races"]],
        "sanitizer": _of_sanitizer(program, theirs.stderr),
        "missing": told["races_missing"],
        "races": told["races"],
        "exits": [plain.returncode, ours.returncode, theirs.returncode],
        "same_output": plain.stdout == _own_output(ours.stderr, plain.stdout),
        "seconds": round(took, 2),
    }


def _run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **environment}
    )


def _own_output(stderr: str, plain: str) -> str:
    """Returns those lines of `stderr` that the program also prints in a run without `--blame`
    (`plain`). The program's output goes to stderr if the report goes to stdout.
    """
    wanted = set(plain.splitlines())
    return "".join(f"{line}\n" for line in stderr.splitlines() if line in wanted)


def _line(side: Row) -> int | None:
    return side["where"]["line"] if side["where"] else None


def _of_sanitizer(program: Path, stderr: str) -> list[list[int]]:
    """Returns the pairs of lines that torch's stream sanitizer reports, the line of the earlier
    access first.
    """
    pairs = []
    for report in stderr.split("CSAN detected a possible data race")[1:]:
        later, _, rest = report.partition("Previous access by stream")
        earlier = rest.partition("Tensor was allocated")[0]
        lines = [re.findall(rf'File "{re.escape(str(program))}", line (\d+)', part) for part in (earlier, later)]
        pair = [int(found[-1]) for found in lines if found]
        if pair not in pairs:
            pairs.append(pair)
    return pairs


def cost(seconds: float) -> Row:
    """Returns how long a step takes while races are looked for, over a plain step."""
    import torch

    from unstall.blaming.races.watch import RaceWatch

    torch.manual_seed(0)
    result: Row = {}
    for name, (step, times) in {"training": (_training(), 2), "inference": (_inference(), 5)}.items():
        took: dict[str, list[float]] = {"plain": [], "races": []}
        sums: set[str] = set()
        end = time.monotonic() + seconds / 2
        while time.monotonic() < end or len(took["races"]) < 3:
            for way, found in took.items():
                watch = RaceWatch() if way == "races" else None
                step()
                torch.cuda.synchronize()
                began = time.perf_counter()
                for _ in range(times):
                    last = step()
                torch.cuda.synchronize()
                found.append((time.perf_counter() - began) / times * 1e3)
                if watch:
                    watch.stop()
                    assert not watch.failed, watch.failed
                    assert not watch.noted.races(), watch.noted.races()
                sums.add(last.double().sum().item().hex())
        medians = {way: statistics.median(found) for way, found in took.items()}
        ratio = medians["races"] / medians["plain"]
        result[name] = {"step_ms": medians, "ratio": ratio, "rounds": len(took["plain"]), "equal": len(sums) == 1}
        print(name, json.dumps(result[name]), flush=True)
    return result


def _inference() -> Callable[[], Any]:
    """A small transformer's forward pass: hundreds of launches that take longer than their kernels."""
    import torch
    from torch import nn

    torch.backends.mha.set_fastpath_enabled(False)  # which is one operator
    layer = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
    model = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).cuda().eval()
    x = torch.randn(1, 16, 256, device="cuda")

    def step() -> Any:
        with torch.no_grad():
            return model(x)

    return step


def _training() -> Callable[[], Any]:
    """The loss and the gradients of a model whose kernels take longer than their launches."""
    import torch
    from torch import nn

    model = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(6))).cuda()
    x = torch.randn(2048, 4096, device="cuda")

    def step() -> Any:
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    return step


if __name__ == "__main__":
    sys.exit(main())
