"""What `unstall run --blame` names and what it costs: planted faults, and steps with and without it. On a GPU.

    python -m benchmarks.blame [--only cost|faults] [--seconds 60] [--sets 5] [--parts] [--late] [--out FILE]

Faults: each program of tests/blaming/programs has one line with the comment `# the fault`. It is run as it is, for the
line in the traceback of Python, and with --blame. With --late it is run with --blame only, as if the first marks, which
are put whatever they cost, had been put long before.

Cost: sets of one process for each way to run (as it is, with --blame, with CUDA_LAUNCH_BLOCKING=1), all with the same
programs: an inference that is bound by launches, a training and a chain of elementwise operators that are bound by the
device, and that inference as replays of a CUDA graph. They time a few steps in turns, on the same two cores. Processes
that run the same differ by up to 4 %. So the figure of a set is the median of its ratios of neighbours, and the result
is the median of the sets, with the least and the greatest. Results must be equal bit for bit. With --parts there are
parts of --blame, too: calls that are only handed on, the ring without marks, marks for 1 % of the time, all marks.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.on_device import measured_on, why_skipped

FAULTS = Path(__file__).parents[1] / "tests" / "blaming" / "programs"
_AT_A_TIME = 6
_WAYS = ("plain", "blame", "blocking")
_ALL_MARKS = 2**32 - 1
_PARTS: dict[str, tuple[float, int] | None] = {  # the share of the time that marks get, and how many come first
    "handed on": None,
    "ring": (0.0, 0),
    "marks 0.01": (0.01, 0),
    "all marks": (0.0, _ALL_MARKS),
}
_STEPS = {"inference": 4, "training": 1, "elementwise": 2, "replays": 20}
_SHARES = {"inference": 0.5, "training": 0.2, "elementwise": 0.15, "replays": 0.15}
"""By program, its share of the time for measuring the cost."""
_NO_FIRST_MARKS = "from unstall.blaming import _blame; _blame.budget(0.02, 0); "
Row = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=("cost", "faults", "one", "worker"), help="one part")
    parser.add_argument("--seconds", type=float, default=60.0, help="for the cost")
    parser.add_argument("--out", type=Path, help="where the figures go, as JSON")
    parser.add_argument("--sets", type=int, default=5, help="of processes, for the cost")
    parser.add_argument("--parts", action="store_true", help="the cost of the parts of --blame")
    parser.add_argument("--late", action="store_true", help="faults without the first marks")
    parser.add_argument("--rings", type=Path, help="a folder for the rings of the faults")
    parser.add_argument("--way", help="of a worker")
    parser.add_argument("--program", type=Path, help="the one fault")
    args = parser.parse_args(argv)
    if skipped := why_skipped():
        print(skipped)
        return 0
    if args.only == "worker":
        return _work(args.way)
    if args.only == "one":
        print("= " + json.dumps(_blamed(args.program, args.rings)))
        return 0
    result: Row = measured_on()
    if args.only != "cost":
        result["faults"] = rows = faults(args.rings, late=args.late)
        result["named"] = {way: sum(row[way] == row["true"] for row in rows) for way in ("line", "python")}
    if args.only != "faults":
        result["cost"] = cost(args.seconds, (*_WAYS, *_PARTS) if args.parts else _WAYS, args.sets)
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def faults(rings: Path | None = None, *, late: bool = False) -> list[Row]:
    """Runs all programs with a planted fault, several at a time. Returns a row for each: the line
    of the fault, the line in Python's traceback, and the line that `--blame` names.

    Args:
        rings: A folder for what `--blame` had noted of the last calls, as text. None: it is not
            kept.
        late: Whether to run as if the first marks had been put long before.
    """
    programs = sorted(FAULTS.glob("*.py"))
    with ThreadPoolExecutor(_AT_A_TIME) as pool, tempfile.TemporaryDirectory() as folder:
        copies = Path(folder) if late else None
        rows = list(pool.map(lambda program: _fault(program, rings, copies), programs))
    told = ("fault", "true", "python", "line", "iteration", "iteration_to", "suspects", "lines", "why")
    for row in rows:
        print(json.dumps({name: row.get(name) for name in told}), flush=True)
    return rows


def _fault(program: Path, rings: Path | None, copies: Path | None) -> Row:
    true = next(n for n, line in enumerate(program.read_text().splitlines(), 1) if line.endswith("# the fault"))
    python = None if copies else _traceback(program)
    if copies:
        copy = copies / program.name
        copy.write_text(_NO_FIRST_MARKS + program.read_text())
        program = copy
    command = [sys.executable, "-m", "benchmarks.blame", "--only", "one", "--program", str(program)]
    ran = subprocess.run(
        [*command, *(["--rings", str(rings)] if rings else [])],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith("= ")]
    blamed: Row = json.loads(lines[-1][2:]) if lines else {"line": None, "why": ran.stderr[-2000:]}
    return {"fault": program.stem, "true": true, "python": python, **blamed}


def _traceback(program: Path) -> int | None:
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, check=False)
    lines = re.findall(rf'File "{re.escape(str(program))}", line (\d+)', ran.stderr)
    return int(lines[-1]) if lines else None


def _blamed(program: Path, rings: Path | None) -> Row:
    from unstall.blaming.supervise import make_folder, supervise

    folder = make_folder()
    try:
        began = time.perf_counter()
        ended = supervise([str(program)], folder)
        took = time.perf_counter() - began
        if rings:
            _dump(folder, rings / f"{program.stem}.txt")
    finally:
        shutil.rmtree(folder)
    result = ended.result
    if result is None or not result.suspects:
        why = ended.missing if result is None else f"no suspect: {result.error}"
        return {"line": None, "why": why, "exit": ended.exit.code}
    where = result.suspects[0].where
    return {
        "line": where.line if where else None,
        "iteration": result.suspects[0].iteration,
        "iteration_to": result.suspects[0].iteration_to,
        "suspects": len(result.suspects),
        "lines": sum(1 + len(suspect.others) for suspect in result.suspects),
        "exit": ended.exit.code,
        "seconds": round(took, 2),
        "error": result.error,
        "work": result.suspects[0].work,
        "noticed": result.noticed.where.line if result.noticed and result.noticed.where else None,
        "noticed_by": result.noticed.call if result.noticed else None,
        "later_ns": result.noticed.later_ns if result.noticed else None,
    }


def _dump(folder: Path, to: Path) -> None:
    """Writes what `--blame` noted of the last calls (the ring, a file in `folder`) as text to the
    file `to`.
    """
    from unstall.blaming.child import RING, STATE
    from unstall.blaming.ring import read_ring

    lines = [(folder / STATE).read_text() if (folder / STATE).exists() else "no state"]
    ring = read_ring(folder / RING)
    lines += [f"{name}: {ring.header[name]}" for name in ring.header.dtype.names if name != "part"]
    lines += [f"stream {n}: {row} done {ring.done[n]}" for n, row in enumerate(ring.tables["streams"])]
    lines += [f"capture {n}: {row} slot {ring.slot(n)}" for n, row in enumerate(ring.tables["captures"])]
    for name, entries in (("captured", ring.captured), ("entry", ring.entries[-150:])):
        for each in entries:
            place = ring.place(int(each["line"]))
            at = f"{Path(place.file).name}:{place.line}" if place else "?"
            lines.append(f"{name} {at} {ring.kernel(int(each['kernel']))[:80]} {each}")
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text("\n".join(lines) + "\n")


def cost(seconds: float, ways: Sequence[str], sets: int) -> Row:
    """Measures how long a step takes in each way to run, over a step as it is.

    Args:
        seconds: How long to measure.
        ways: The ways to run. The first is "plain": as it is.
        sets: The number of sets of processes. A set has one process for each way.

    Returns:
        By program, the ratio of each way, and whether all ways computed the same.
    """
    workers = {(way, n): _Worker(way) for n in range(sets) for way in ways}
    try:
        rows = {name: _in_turns(workers, name, seconds * share) for name, share in _SHARES.items()}
        sums = {name: {worker.ask(f"sum {name}") for worker in workers.values()} for name in _STEPS}
        over = {way: workers[way, 0].ask("end") for way in ways}
    finally:
        for worker in workers.values():
            worker.process.kill()
    result: Row = {"over": over}
    for name, times in rows.items():
        result[name] = {
            "equal": len(sums[name]) == 1,
            "sums": sorted(sums[name]),
            "rounds": len(times["plain", 0]),
            "step_ms": {way: statistics.median(t for n in range(sets) for t in times[way, n]) for way in ways},
        }
        for way in ways[1:]:
            of_sets = [
                statistics.median(mine / plain for mine, plain in zip(times[way, n], times["plain", n], strict=True))
                for n in range(sets)
            ]
            result[name][way] = {"ratio": statistics.median(of_sets), "sets": sorted(of_sets)}
    print(json.dumps(result), flush=True)
    print(_shown(result, ways[1:]), flush=True)
    return result


def _shown(cost: Row, ways: Sequence[str]) -> str:
    """Returns what `cost` measured as a table: for each program and way, the median of the sets,
    the least and the greatest.
    """
    lines = ["".join(f"{text:>24}" for text in ("a step, by a plain one", *ways))]
    for name in _STEPS:
        ratios = [
            f"{row['ratio']:.3f} ({row['sets'][0]:.3f}-{row['sets'][-1]:.3f})" for row in map(cost[name].get, ways)
        ]
        lines.append("".join(f"{text:>24}" for text in (name, *ratios)))
    return "\n".join(lines)


def _in_turns(
    workers: Mapping[tuple[str, int], _Worker], name: str, seconds: float
) -> dict[tuple[str, int], list[float]]:
    """Times a program in all processes, by turns, for about `seconds`. Returns the times of each
    process. The processes of a set take their turns right after one another.
    """
    times: dict[tuple[str, int], list[float]] = {key: [] for key in workers}
    for worker in workers.values():
        worker.ask(f"time {name}")
    chance, end = random.Random(1), time.monotonic() + seconds
    sets = sorted({n for _, n in workers})
    ways = list(dict.fromkeys(way for way, _ in workers))
    while time.monotonic() < end:
        for n in chance.sample(sets, len(sets)):
            for way in chance.sample(ways, len(ways)):
                times[way, n].append(workers[way, n].ask(f"time {name}"))
    return times


class _Worker:
    """A process that times steps of a program when it is asked to."""

    def __init__(self, way: str) -> None:
        environment = {**os.environ, **({"CUDA_LAUNCH_BLOCKING": "1"} if way == "blocking" else {})}
        command = [sys.executable, "-m", "benchmarks.blame", "--only", "worker", "--way", way]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, what: str) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        while line := self.process.stdout.readline():
            if line.startswith("= "):
                return json.loads(line[2:])
        raise RuntimeError(f"the worker ended: {self.process.wait()}")


def _work(way: str) -> int:
    folder = Path(tempfile.mkdtemp(dir="/dev/shm")) if way not in ("plain", "blocking") else None
    if folder:
        from unstall.blaming.child import start

        start(folder)
    import torch

    torch.cuda.init()
    if folder:
        _check_following(folder)
    if way in _PARTS:
        _leave(_PARTS[way])
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    steps: dict[str, Callable[[], Any]] = {
        "inference": _inference(),
        "training": _training(),
        "elementwise": _elementwise(),
        "replays": _replays(_inference()),
    }
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-2:])
    last: dict[str, Any] = {}
    gc.collect()
    gc.disable()
    for line in sys.stdin:
        what, _, name = line.strip().partition(" ")
        answer: object = None
        if what == "time":
            steps[name]()  # the device and the caches were another process's
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(_STEPS[name]):
                last[name] = steps[name]()
            torch.cuda.synchronize()
            answer = (time.perf_counter() - began) / _STEPS[name] * 1e3
        elif what == "sum":
            answer = last[name].double().sum().item().hex()
        elif what == "end":
            answer = _end(folder)
        print("= " + json.dumps(answer), flush=True)
        if what == "end":
            break
    return 0


def _check_following(folder: Path) -> None:
    """Raises RuntimeError if `--blame` does not see the calls of this process. Its cost would then
    be measured as nothing.
    """
    from unstall.blaming.child import STATE

    state = json.loads((folder / STATE).read_text())
    if "failed" in state:
        raise RuntimeError(state["failed"])


def _leave(marks: tuple[float, int] | None) -> None:
    """Turns off all of `--blame` but one part.

    Args:
        marks: The share of the time that marks may take, and how many marks come first whatever
            they take. None: calls are only handed on to the driver.
    """
    from unstall.blaming import _blame

    if marks is None:
        _blame.error(1, "")  # after an error nothing is noted
    else:
        _blame.budget(*marks)


def _end(folder: Path | None) -> object:
    """Ends `--blame` in this process, and returns the counts of what it noted. Returns None if
    `folder` is None: the process runs without `--blame`.
    """
    if not folder:
        return None
    from unstall.blaming import _blame
    from unstall.blaming.child import RING
    from unstall.blaming.ring import read_ring

    header = read_ring(folder / RING).header
    _blame.close()
    shutil.rmtree(folder)
    names = ("next", "marks", "refused", "refusal", "error_code", "lost_streams", "lost_captured")
    return {**{name: int(header[name]) for name in names}, "fields": header["fields"].tolist()}


def _inference() -> Callable[[], Any]:
    """A small transformer's forward pass of one token: hundreds of launches that take longer than their kernels."""
    import torch
    from torch import nn

    layers: Any = (
        nn.ModuleList(nn.TransformerEncoderLayer(256, 4, 512, batch_first=True) for _ in range(12)).cuda().eval()
    )
    x = torch.randn(1, 16, 256, device="cuda")

    def step() -> Any:
        with torch.no_grad():
            h = x
            for layer in layers:
                a = layer.norm1(h)
                b, _ = layer.self_attn(a, a, a, need_weights=False)
                h = h + b
                c = layer.norm2(h)
                d = layer.linear1(c)
                e = torch.relu(d)
                f = layer.linear2(e)
                h = h + f
        return h

    return step


def _training() -> Callable[[], Any]:
    """A training step whose kernels take longer than their launches."""
    import torch
    from torch import nn

    model = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(6))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(2048, 4096, device="cuda")

    def step() -> Any:
        y = model(x)
        loss = y.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _elementwise() -> Callable[[], Any]:
    """Short kernels, one a line, which take longer than their launches."""
    import torch

    x = torch.linspace(-2, 2, 1 << 23, device="cuda")

    def step() -> Any:
        y = x
        for _ in range(10):
            y = y * 1.25
            y = y + x
            y = torch.tanh(y)
            y = y - 0.5
            y = y.abs()
            y = y.clamp(0.0, 1.0)
        return y

    return step


def _replays(step: Callable[[], Any]) -> Callable[[], Any]:
    """Returns a function that replays `step` as a CUDA graph, in which the work of each line is
    marked too.
    """
    import torch

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()

    def replay() -> Any:
        graph.replay()
        return result

    return replay


if __name__ == "__main__":
    sys.exit(main())
