"""Measure and record the programs in `programs/` on the GPU at hand.

    python examples/record.py --out DIR [NAME…]

Each program runs in a process of its own: its step is timed without the profiler, as it is and mended, in
rounds that take turns; then `torch.profiler` records a few steps. DIR gets one trace a recording, and
`expected.json`, which says for each what was planted where, what a report must find, and the times.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from programs import PROGRAMS, Program, Run, Step, load_all

ROUNDS, REPEATS = 7, 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; all that this machine has GPUs for")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only-measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    load_all()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.here:
        run_here(PROGRAMS[options.names[0]], options.out, options.only_measure)
        return 0
    failed = [name for name in options.names or runnable() if not run_apart(PROGRAMS[name], options.out)]
    merge(options.out)
    if failed:
        print("failed:", *failed, file=sys.stderr)
    return 1 if failed else 0


def runnable() -> list[str]:
    import torch

    return [p.name for p in PROGRAMS.values() if p.gpus <= torch.cuda.device_count()]


def run_apart(program: Program, out: Path) -> bool:
    """Run a program in processes of its own, one a rank; a fresh one is measured in another process than
    recorded."""
    started, done = time.perf_counter(), True
    for extra in ([], ["--only-measure"]) if program.fresh else ([],):
        command = [sys.executable, __file__, "--out", str(out), "--here", program.name, *extra]
        ranks = [
            subprocess.Popen(
                command,
                env=os.environ
                | {"RANK": str(rank), "WORLD_SIZE": str(program.ranks)}
                | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"},
            )
            for rank in range(program.ranks)
        ]
        done = sum(process.wait() for process in ranks) == 0 and done
    print(
        f"{program.name}: {'recorded' if done else 'FAILED'}, {time.perf_counter() - started:.1f} s",
        flush=True,
    )
    return done


def run_here(program: Program, out: Path, only_measure: bool) -> None:
    rank = int(os.environ["RANK"])
    if program.ranks > 1:
        import torch
        import torch.distributed as dist

        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    run = program.make()
    part = out / f".{program.name}.part"
    if only_measure:
        write(part, json.loads(part.read_text()) | {"first_steps_ms": first_steps(run)})
        return
    if program.fresh:
        traces = record_all(program, run, out)
        times = measure(run)
    else:
        times = measure(run)
        traces = record_all(program, run, out if rank == 0 else None)
    if rank == 0:
        write(part, describe(program, run, traces) | times)
    if program.ranks > 1:
        dist.destroy_process_group()


def timed(step: Step, repeats: int) -> float:
    """Milliseconds a step, from an idle device to an idle device."""
    import torch

    for _ in range(2):  # what was prepared while another variant ran is used up
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats * 1e3


def measure(run: Run) -> dict[str, object]:
    """Median times without the profiler, all variants interleaved."""
    steps: dict[str, Step] = {"plain": run.step} | ({"mended": run.mended} if run.mended else {}) | run.alone
    for step in steps.values():
        timed(step, 3)
    rounds = [{name: timed(step, REPEATS) for name, step in steps.items()} for _ in range(ROUNDS)]
    median = {name: round(statistics.median(r[name] for r in rounds), 4) for name in steps}
    facts: dict[str, object] = {
        "plain_step_ms": median["plain"],
        "plain_step_ms_range": [round(f(r["plain"] for r in rounds), 4) for f in (min, max)],
    }
    if run.mended:
        ratios = [r["mended"] / r["plain"] for r in rounds]
        facts["mended_step_ms"] = median["mended"]
        facts["mended_ratio"] = round(statistics.median(ratios), 4)
        facts["mended_ratio_range"] = [round(min(ratios), 4), round(max(ratios), 4)]
    if run.alone:
        facts["alone_ms"] = {name: median[name] for name in run.alone}
    return facts


def first_steps(run: Run) -> list[float]:
    """Milliseconds of the first steps of a process one by one, without the profiler."""
    import torch

    times = []
    for _ in range(5):
        start = time.perf_counter()
        run.step()
        torch.cuda.synchronize()
        times.append(round((time.perf_counter() - start) * 1e3, 3))
    return times


def record_all(program: Program, run: Run, out: Path | None) -> list[dict[str, object]]:
    """Record with stacks and sync events, then again without what `program.also` names. On ranks other than 0
    only step along."""
    traces = []
    for without in ("", *program.also):
        name = f"{program.name}{f'.no_{without}' if without else ''}.json.gz"
        record(program, run.step, out / name if out else None, without)
        traces.append({"trace": name} | {part: part != without for part in ("stacks", "syncs", "device")})
    return traces


def record(program: Program, step: Step, path: Path | None, without: str) -> None:
    import torch
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity, profile, schedule

    warm_up = 1 if program.annotated and not program.fresh else 0
    with profile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if without != "device" else [])],
        schedule=schedule(wait=0, warmup=warm_up, active=program.steps, repeat=1) if program.annotated else None,
        on_trace_ready=(lambda prof: export(prof, path)) if path else None,
        record_shapes=True,
        with_stack=without != "stacks",
        profile_memory=program.memory,
        experimental_config=_ExperimentalConfig(
            verbose=without != "stacks", enable_cuda_sync_events=without != "syncs"
        ),
    ) as profiler:
        for _ in range(warm_up):
            step()
            torch.cuda.synchronize()
            profiler.step()
        for _ in range(program.steps):
            step()
            profiler.step()


def export(profiler: object, path: Path) -> None:
    """Write the trace gzipped, the same bytes for the same run: no time in the header, no path of its own."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / path.stem
        profiler.export_chrome_trace(str(plain))
        text = plain.read_bytes().replace(f"{folder}/".encode(), b"")
    path.write_bytes(gzip.compress(text, 9, mtime=0))


def describe(program: Program, run: Run, traces: list[dict[str, object]]) -> dict[str, object]:
    import torch

    return {
        "about": program.about,
        "device": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "traces": traces,
        "steps": program.steps,
        "found_by": program.found_by,
        "step_name": program.step_name,
        "bound_by": list(run.bound_by),
        "causes": [{"finding": c.finding, "op": c.op, "costs": c.costs} | c.place() for c in run.causes],
    }


def merge(out: Path) -> None:
    """Gather what the processes wrote into expected.json, beside what earlier runs left there."""
    path = out / "expected.json"
    expected = json.loads(path.read_text()) if path.exists() else {}
    for part in out.glob(".*.part"):
        expected[part.name.strip(".").removesuffix(".part")] = json.loads(part.read_text())
        part.unlink()
    write(path, {name: expected[name] for name in PROGRAMS if name in expected})


def write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
