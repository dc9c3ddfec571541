"""Which of torch's operators the virtual GPU computes as the CPU does: by torch's own samples, forward and backward.

    python benchmarks/virtual_opinfo.py                 all: results/virtual_opinfo.json, docs/virtual_operators.md
    python benchmarks/virtual_opinfo.py --only softmax  those whose name contains it, printed

Samples are those of torch.testing._internal (which needs `pip install expecttest`), float32, moved to the virtual GPU.
An operator is *equal* where every value is, bit for bit; *close* where some differ by rounding (another kernel of the
CPU); *random* where two seeds give different numbers on the CPU as well, so that only shapes and dtypes are compared.
Operators run in a process of their own each time one of them ends the last.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "virtual_opinfo.json"
DOCUMENT = ROOT / "docs" / "virtual_operators.md"
SAMPLES = 60
SLOWEST_S = 90.0
GOOD = ("equal", "close", "random")
# What these return is whatever was in memory.
UNINITIALISED = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
# What sums cancel to is rounded as what was summed: absolute, of a tensor's largest value.
RELATIVE, ABSOLUTE = 1e-4, 1e-5


def tensors(value: Any) -> list[Any]:
    """Returns the tensors in lists, tuples and dicts that are nested in any way, in order."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def moved(value: Any, device: str) -> Any:
    """Returns a value with each tensor in it replaced by a copy on `device`. The copies are leaves
    of autograd, and require gradients if the originals do.
    """
    import torch
    from torch.utils._pytree import tree_map

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().clone().to(device).requires_grad_(leaf.requires_grad)
        return device if isinstance(leaf, torch.device) or leaf in ("cpu",) else leaf

    return tree_map(move, value)


def differs(cpu: Any, gpu: Any, random: bool) -> str | None:
    """Compares what an operator returned on the CPU and on the virtual GPU. Returns None if it is
    equal, "close" if it differs by rounding, and else what differs. If `random`, only shapes and
    dtypes are compared.
    """
    import torch

    first, second = tensors(cpu), tensors(gpu)
    if len(first) != len(second):
        return f"{len(second)} tensors for {len(first)}"
    worst = None
    for a, b in zip(first, second, strict=True):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{b.dtype} {tuple(b.shape)} for {a.dtype} {tuple(a.shape)}"
        if random or a.layout != torch.strided:
            continue
        here, back = a.detach().cpu(), b.detach().cpu()  # samples may name a device
        if here.dtype == torch.complex32:
            here, back = here.to(torch.complex64), back.to(torch.complex64)
        if torch.equal(here, back):
            continue
        largest = max(1.0, float(here.nan_to_num(0, 0, 0).abs().max())) if here.is_floating_point() else 1.0
        if not torch.allclose(here, back, equal_nan=True, rtol=RELATIVE, atol=ABSOLUTE * largest):
            return f"values differ by up to {(here - back).abs().max().item():.3g}"
        same = torch.isnan(here) & torch.isnan(back) | (here == back)
        if not bool(same.all()):
            worst = "close"
    return worst


@dataclass
class Run:
    """What an operator did with one sample on one device.

    Attributes:
        outputs: What it returned.
        gradients: The gradients of its arguments.
        error: The error that it raised; None if it raised none.
    """

    outputs: Any
    gradients: Any
    error: Exception | None


def run(operator: Any, call: Any, sample: Any, device: str, seed: int, backward: bool) -> Run:
    """Calls an operator with a sample on a device. Returns what it did; an error that it raises is
    returned too.

    Args:
        operator: The operator's entry in torch's list of operators.
        call: The function to call.
        sample: The sample.
        device: The device.
        seed: The seed of the random number generators.
        backward: Whether to compute gradients too.
    """
    import torch

    try:
        given = moved((sample.input, sample.args, sample.kwargs), device)
        torch.manual_seed(seed)
        outputs = call(given[0], *given[1], **given[2])
        shown = sample.output_process_fn_grad(outputs)
        gradients: Any = ()
        wanted = [leaf for leaf in tensors(given) if leaf.requires_grad]
        roots = [root for root in tensors(shown) if root.requires_grad]
        if backward and operator.supports_autograd and wanted and roots:
            gradients = torch.autograd.grad(roots, wanted, [torch.ones_like(root) for root in roots], allow_unused=True)
        return Run(outputs, gradients, None)
    except Exception as error:
        return Run(None, None, error)


@contextlib.contextmanager
def other_numbers() -> Iterator[None]:
    """Within the block, changes each seed that torch's wrappers of operators set, so that their
    random numbers are others.
    """
    import torch

    plain = torch.manual_seed
    torch.manual_seed = lambda seed: plain(seed + 1)
    try:
        yield
    finally:
        torch.manual_seed = plain


def compare_sample(operator: Any, call: Any, sample: Any, backward: bool = True) -> tuple[str, str]:
    """Runs a sample on the CPU and on the virtual GPU. Returns `(status, reason)`: how the results
    compare, and why.
    """
    cpu = run(operator, call, sample, "cpu", 0, backward)
    gpu = run(operator, call, sample, "cuda", 0, backward)
    if cpu.error is not None:
        ours = "virtual GPU" in str(cpu.error)  # samples for a GPU alone
        return ("refused", first_line(cpu.error)) if ours else ("none", f"the CPU refuses: {first_line(cpu.error)}")
    if gpu.error is not None:
        words = first_line(gpu.error)
        return ("refused" if isinstance(gpu.error, NotImplementedError) else "error"), words
    found = [differs(cpu.outputs, gpu.outputs, False), differs(cpu.gradients, gpu.gradients, False)]
    if found == [None, None]:
        return "equal", ""
    if operator.name in UNINITIALISED:
        shapes = differs(cpu.outputs, gpu.outputs, True)
        return ("random", "") if shapes is None else ("differs", shapes)
    with other_numbers():
        again = run(operator, call, sample, "cpu", 1, backward)
    if differs(cpu.outputs, again.outputs, False) is not None:
        shapes = differs(cpu.outputs, gpu.outputs, True)
        return ("random", "") if shapes is None else ("differs", shapes)
    if any(words not in (None, "close") for words in found):
        return "differs", "; ".join(
            f"{part}: {words}" for part, words in zip(("forward", "backward"), found, strict=True) if words
        )
    return "close", ""


# Where a GPU differs from the CPU in the same way.
AS_A_GPU = {
    "native_batch_norm": "a GPU saves its statistics in evaluation, too",
    "_native_batch_norm_legit": "a GPU saves its statistics in evaluation, too",
    "tensor_split": "a GPU refuses indices that are on it, too",
    "histogram": "a GPU refuses it, too",
    "histogramdd": "a GPU refuses it, too",
    "sparse_mm_reduce": "a GPU refuses it, too",
}


def first_line(error: Exception) -> str:
    """Returns the first sentence of an error, shortened."""
    return f"{type(error).__name__}: {(str(error).strip() or '-').splitlines()[0][:180]}"


WORST_FIRST = ("differs", "error", "refused", "close", "random", "equal", "none")


def judge(operator: Any, count: int = SAMPLES) -> dict[str, Any]:
    """Returns how an operator compares on the CPU and on the virtual GPU: on its samples, on its
    variant in place, and with `out=`. At most `count` samples are run.
    """
    import torch

    torch.manual_seed(0)
    samples = []
    for sample in operator.sample_inputs("cpu", torch.float32, requires_grad=operator.supports_autograd):
        samples.append(sample)
        if len(samples) == count:
            break
    verdicts = [compare_sample(operator, operator, sample) for sample in samples]
    inplace = operator.inplace_variant
    if inplace is not None and samples and not samples[0].broadcasts_input:

        def in_place(value: Any, *args: Any, **kwargs: Any) -> Any:
            return inplace(value.clone(), *args, **kwargs)

        verdicts.append(compare_sample(operator, in_place, samples[0]))
    if operator.supports_out and samples:

        def with_out(value: Any, *args: Any, **kwargs: Any) -> Any:
            with torch.no_grad():
                shown = operator(value, *args, **kwargs)
                if not isinstance(shown, torch.Tensor):
                    return shown
                return operator(value, *args, **kwargs, out=torch.empty_like(shown))

        verdicts.append(compare_sample(operator, with_out, samples[0], backward=False))
    worst = min(verdicts, key=lambda one: WORST_FIRST.index(one[0]), default=("none", "no samples"))
    return {"name": operator.formatted_name, "status": worst[0], "reason": worst[1], "samples": len(verdicts)}


def work(names: list[str] | None, first: int) -> None:
    """Judges the operators from number `first` on, and prints one line of JSON for each. Runs in a
    process of its own.
    """
    warnings.simplefilter("ignore")
    from unstall.virtual.shim.load import load

    shim = load(1)
    from torch.testing._internal.common_methods_invocations import op_db

    say = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what operators print is none of the answer
    for number, operator in enumerate(chosen(op_db, names)):
        if number < first:
            continue
        say.write(json.dumps({"begin": operator.formatted_name}) + "\n")
        try:
            verdict = judge(operator)
        except Exception as error:
            verdict = {"name": operator.formatted_name, "status": "none", "reason": first_line(error), "samples": 0}
        shim.take()
        say.write(json.dumps(verdict) + "\n")


def chosen(op_db: Any, names: list[str] | None) -> list[Any]:
    """Returns the operators that take float32, each name once. `names` are the names that are
    wanted; None stands for all.
    """
    import torch

    kept = {one.formatted_name: one for one in op_db if torch.float32 in one.dtypes}
    return [one for name, one in kept.items() if names is None or any(wanted in name for wanted in names)]


def judge_all(names: list[str] | None) -> list[dict[str, Any]]:
    """Returns the verdict on each operator. If an operator ends the process that judges it, another
    process goes on with the next.
    """
    verdicts: list[dict[str, Any]] = []
    while True:
        command = [sys.executable, __file__, "--worker", str(len(verdicts)), *(["--only", *names] if names else [])]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        ) as worker:
            running = _follow(worker, verdicts)
        if running is None:
            return verdicts
        verdicts.append(running)


def _follow(worker: subprocess.Popen[str], verdicts: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Adds the verdicts of a process to `verdicts` until the process ends. If it ended before its
    last operator, returns a verdict on the operator that ended it; else None.
    """
    assert worker.stdout is not None
    waiting = selectors.DefaultSelector()
    waiting.register(worker.stdout, selectors.EVENT_READ)
    running, since = None, time.monotonic()
    while True:
        if not waiting.select(timeout=1.0):
            if running is not None and time.monotonic() - since > SLOWEST_S:
                worker.kill()
                return {"name": running, "status": "error", "reason": f"not done in {SLOWEST_S:.0f} s", "samples": 0}
            continue
        line = worker.stdout.readline()
        if not line:
            break
        told = json.loads(line)
        if "begin" in told:
            running, since = told["begin"], time.monotonic()
        else:
            verdicts.append(told)
            running = None
    code = worker.wait()
    if running is None and code:
        raise SystemExit(f"the worker ended with {code} between operators: python {__file__} --worker {len(verdicts)}")
    return None if running is None else {"name": running, "status": "error", "reason": f"crash ({code})", "samples": 0}


def summary(verdicts: list[dict[str, Any]]) -> str:
    """Returns a line of text: how many operators compute what they compute on the CPU."""
    counts = Counter(one["status"] for one in verdicts)
    judged = sum(counts.values()) - counts["none"]
    good = sum(counts[status] for status in GOOD)
    return (
        f"{good / max(judged, 1):.1%} of {judged} operators as on the CPU: {counts['equal']} bit for bit, "
        f"{counts['close']} but for rounding, {counts['random']} random (shapes compared); "
        f"{counts['refused']} refused, {counts['differs']} differ, {counts['error']} raise"
    )


def reason(one: dict[str, Any]) -> str:
    """Returns why an operator does not compute what it computes on the CPU, for a cell of a
    table.
    """
    why = f"{AS_A_GPU[one['name']]}: {one['reason']}" if one["name"] in AS_A_GPU else str(one["reason"])
    return why.replace("|", "\\|")


def document(verdicts: list[dict[str, Any]], version: str) -> str:
    """Returns the text of docs/virtual_operators.md. `version` is that of torch."""
    lines = [
        "# Operators of the virtual GPU",
        "",
        f"What torch {version} runs of its own samples (float32, forward and backward, in place and with out=) on the",
        "virtual GPU, compared with the CPU. Written by `python benchmarks/virtual_opinfo.py`; figures in",
        "`benchmarks/results/virtual_opinfo.json`.",
        "",
        f"{summary(verdicts)}.",
        "",
    ]
    titles = {
        "refused": "Refused by name",
        "differs": "Other values or shapes",
        "error": "Raises where the CPU does not",
        "close": "Equal but for rounding",
        "random": "Random: other numbers than the CPU's, the same shapes",
        "none": "Not judged: the CPU refuses the sample, too",
    }
    for status, title in titles.items():
        those = sorted((one for one in verdicts if one["status"] == status), key=lambda one: str(one["name"]))
        if not those:
            continue
        lines += [f"## {title}", ""]
        if status in ("close", "random"):
            lines += [", ".join(f"`{one['name']}`" for one in those), ""]
        else:
            lines += ["| operator | reason |", "|---|---|"]
            lines += [f"| `{one['name']}` | {reason(one)} |" for one in those]
            lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Judges all operators, and writes the results. With the option `--only`, judges some, and
    writes no files.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="*", help="operators whose name contains one of these")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work(options.only, options.worker)
        return
    started = time.monotonic()
    verdicts = judge_all(options.only)
    for one in verdicts:
        if one["status"] not in GOOD:
            print(f"{one['status']:8} {one['name']}: {one['reason']}")
    print(summary(verdicts))
    if not options.only:
        from importlib.metadata import version

        RESULTS.write_text(
            json.dumps(
                {"torch": version("torch"), "seconds": round(time.monotonic() - started), "operators": verdicts},
                indent=1,
            )
            + "\n"
        )
        DOCUMENT.write_text(document(verdicts, version("torch")))


if __name__ == "__main__":
    main()
