"""Are graphs made by `unstall.graphed` as fast as ones captured by hand, and do they compute the same?

    python -m benchmarks.graphed -o graphed.json [--programs resnet50 …] [--compile SECONDS] [--seconds SECONDS]

Each program runs in four ways that take turns, round by round: eager; captured by hand, on one stream, with its
arguments copied into static tensors and nothing copied out; by `graphed`; and by `torch.compile(mode=
"reduce-overhead")` as far as the budget for compiling goes. Times are of one inference from an idle device until it is
idle again, and of a training step among ten that nobody waits for in between; ratios are medians over rounds of both
next to each other, with the quartiles. Inference programs are replayed on inputs that change and must give eager's
bits, or, where the program takes another way while it is captured, those of the capture by hand; training programs run
50 steps under deterministic kernels, and all losses must be eager's. The exit status is 1 where a goal is missed, and
0 with a note where there is no GPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic products, asked for before torch starts

import torch

from benchmarks.graphed_programs import PROGRAMS, Program
from unstall import graphed

Call = Callable[..., Any]
STEPS = 50
BURST = 10  # training steps


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    if not torch.cuda.is_available():
        print("no CUDA device: nothing measured")
        return 0
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # a property of the module
    budget = [options.compile]
    found: list[dict[str, Any]] = []
    for program in PROGRAMS:
        if options.programs and program.name not in options.programs:
            continue
        try:
            result = measure(program, options.seconds, budget)
        except Exception as error:
            result = {"program": program.name, "met": False, "error": f"{type(error).__name__}: {error}"}
        found.append(result)
        print(describe(result), flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    document = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "date": time.strftime("%Y-%m-%d"),
        "programs": found,
    }
    if options.output:
        Path(options.output).write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(result["met"] for result in found) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="graphed against hand captures, eager and torch.compile")
    parser.add_argument("-o", dest="output", metavar="FILE")
    parser.add_argument("--programs", nargs="*", choices=[program.name for program in PROGRAMS])
    parser.add_argument("--compile", type=float, default=0.0, metavar="SECONDS", help="for all of torch.compile")
    parser.add_argument("--seconds", type=float, default=2.0, help="of measuring a program")
    return parser


def measure(program: Program, seconds: float, budget: list[float]) -> dict[str, Any]:
    torch.use_deterministic_algorithms(program.kind == "training", warn_only=True)
    function, arguments = program.make()
    same = _trains_alike(program) if program.kind == "training" else None
    fast, made_in = _made(lambda: graphed(function), arguments)
    stats = fast.stats()
    by_hand, hand_in = _hand_captured(function, arguments)
    ways: dict[str, Callable[[], Any]] = {
        "eager": lambda: function(*arguments),
        "hand": lambda: by_hand(*arguments),
        "graphed": lambda: fast(*arguments),
    }
    compiled_in = None
    if program.kind != "training" and budget[0] > 0:
        compiled, compiled_in = _made(lambda: torch.compile(function, mode="reduce-overhead"), arguments)
        budget[0] -= compiled_in
        ways["compile"] = lambda: compiled(*arguments)
    if same is None:
        same = _computes_alike(by_hand if program.captured_differs else function, fast, arguments)
    times = _in_turns(ways, seconds, BURST if program.kind == "training" else 1)
    ratio = _ratio(times["graphed"], times["hand"])
    to_compile = _ratio(times["graphed"], times["compile"]) if "compile" in times else None
    result = {
        "program": program.name,
        "kind": program.kind,
        "rounds": len(times["hand"]),
        "ms": {way: statistics.median(each) * 1e3 for way, each in times.items()},
        "to_hand": ratio,
        "to_eager": _ratio(times["graphed"], times["eager"]),
        "to_compile": to_compile,
        "goal": program.goal,
        "same": same,
        "capture_seconds": {"graphed": made_in, "hand": hand_in, "compile": compiled_in},
        "graphs": [
            {"lanes": g.lanes, "serial_ms": g.serial_seconds * 1e3, "note": g.note, "gain": g.gain}
            for g in stats.graphs
        ],
        "refusals": [str(refusal) for refusal in fast.stats().refusals],
    }
    beats_compile = to_compile is None or to_compile["median"] < 1 or program.kind != "branches"
    result["met"] = bool(same and ratio["median"] <= program.goal and beats_compile and stats.graphs)
    return result


def _made(make: Callable[[], Any], arguments: tuple[torch.Tensor, ...]) -> tuple[Any, float]:
    """Makes a function by `make`, and calls it until it is warm. Returns the function, and how many
    seconds all this took.
    """
    begun = time.perf_counter()
    made = make()
    for _ in range(5):
        made(*[argument.clone() for argument in arguments])
    torch.cuda.synchronize()
    return made, time.perf_counter() - begun


def _hand_captured(function: Call, arguments: tuple[torch.Tensor, ...]) -> tuple[Call, float]:
    """Captures a function as torch's documentation does: with static arguments, after three calls
    on a side stream, as one graph. Returns a function that replays it, and how many seconds the
    capture took.
    """
    begun = time.perf_counter()
    static = [argument.clone() for argument in arguments]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function(*static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function(*static)
    torch.cuda.synchronize()

    def replay(*inputs: torch.Tensor) -> Any:
        for mine, given in zip(static, inputs, strict=True):
            mine.copy_(given)
        graph.replay()
        return result

    return replay, time.perf_counter() - begun


def _in_turns(ways: dict[str, Callable[[], Any]], seconds: float, burst: int) -> dict[str, list[float]]:
    """Times several ways to call a function, by turns, for about `seconds`. Returns, for each way,
    the seconds of a call in each round of `burst` calls.
    """
    times: dict[str, list[float]] = {way: [] for way in ways}
    for call in ways.values():
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    end = time.perf_counter() + seconds
    names = list(ways)
    turn = 0
    while time.perf_counter() < end or turn < 5:
        for way in names[turn % len(names) :] + names[: turn % len(names)]:
            if way == "eager" and turn >= 30:
                continue
            begun = time.perf_counter()
            for _ in range(burst):
                ways[way]()
            torch.cuda.synchronize()
            times[way].append((time.perf_counter() - begun) / burst)
        turn += 1
    return times


def _ratio(mine: list[float], theirs: list[float]) -> dict[str, float]:
    ratios = [one / other for one, other in zip(mine, theirs, strict=False)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {"median": middle, "low": low, "high": high}


def _computes_alike(function: Call, fast: Call, arguments: tuple[torch.Tensor, ...]) -> bool:
    """Returns whether two functions give the same bits, on arguments that change from call to
    call.
    """
    for turn in range(3):
        inputs = [torch.roll(argument, turn + 1) for argument in arguments]
        if not torch.equal(fast(*inputs), function(*inputs).clone()):
            return False
    return True


def _trains_alike(program: Program) -> bool:
    """Returns whether 50 steps, each on another batch, have the same losses with `graphed` as
    without it, from the same start.
    """
    losses = []
    for is_graphed in (False, True):
        step, arguments = program.make()
        call = graphed(step) if is_graphed else step
        torch.manual_seed(1)
        torch.cuda.manual_seed_all(1)
        kept = [call(*(torch.roll(argument, turn, 0) for argument in arguments)) for turn in range(STEPS)]
        losses.append(torch.stack(kept))
    return bool(torch.equal(*losses))


def describe(result: dict[str, Any]) -> str:
    if "error" in result:
        return f"{result['program']:22s} FAILED {result['error'][:300]}"
    times = "  ".join(f"{way} {value:.3f}" for way, value in result["ms"].items())
    ratio = result["to_hand"]
    lanes = ", ".join(str(graph["lanes"]) for graph in result["graphs"]) or "no graph"
    took = "  ".join(f"{way} {value:.2f}" for way, value in result["capture_seconds"].items() if value is not None)
    spread = f"{ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"
    return (
        f"{result['program']:22s} ms: {times} | to hand {spread}, goal {result['goal']:.3f} | streams {lanes} | "
        f"same {result['same']} | ready in s: {took} | "
        f"{'met' if result['met'] else 'MISSED'}"
        + "".join(f"\n    {note}" for note in (*(g["note"] for g in result["graphs"]), *result["refusals"]) if note)
    )


if __name__ == "__main__":
    raise SystemExit(main())
