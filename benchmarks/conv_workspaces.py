"""The memory that cuDNN asks for as the workspace of convolutions, and their kernels, for many shapes.

    python -m benchmarks.conv_workspaces --out real.json       # on a GPU
    python -m benchmarks.conv_workspaces --against real.json   # anywhere: how good predictions for an H100 are

What an H100 took is benchmarks/results/conv_workspaces_h100.json, without the shapes of the set "fit": those became
rows of src/unstall/virtual/gpus/h200.json, and are cases of `unstall calibrate`. The shapes of the set "held out" only
judge predictions, and so do those of the set "nets", the convolutions of benchmarks/virtual_workspaces.py.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.on_device import comparing, measured_on, why_skipped
from benchmarks.virtual_workspaces import BATCHES, PADDED
from unstall.virtual.costs.measure import measure, resolve, signature_of, split
from unstall.virtual.costs.measured_costs import MeasuredCosts, costs_of
from unstall.virtual.costs.signature import Signature, TensorSpec
from unstall.virtual.costs.suite import Case, TensorPool
from unstall.virtual.costs.suite.conv_shapes import Shape, sampled
from unstall.virtual.costs.suite.convolution import FIRST_CHANNELS, backward, forward

_SECONDS = 72.0  # for shapes in TF32; float32 without it takes a fifth of that
_FITTED, _HELD_OUT = 5000, 1000
_MOST = 2000  # shapes in a run; 70 s measure about 1,700
_PASSES = ("forward", "x", "w")
_LIMIT, _LEAST = 0.10, 1 << 20


def main(argv: list[str] | None = None) -> int:
    parser = comparing(__doc__)
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="about how long it may measure")
    args = parser.parse_args(argv)
    if args.against:
        _judge(json.loads(args.against.read_text()))
        return 0
    if skipped := why_skipped():
        print(skipped)
        return 0
    kernels: dict[str, int] = {}
    sequences: dict[tuple[int, ...], int] = {}
    calls = []
    for tf32, share in ((True, 1.0), (False, 0.2)):
        for *call, names, total_ns, taken in _measured(tf32, time.monotonic() + share * args.seconds):
            sequence = tuple(kernels.setdefault(name, len(kernels)) for name in names)
            calls.append([*call, sequences.setdefault(sequence, len(sequences)), total_ns, taken])
        print(f"{len(calls)} calls")
    if args.out:
        _write(args.out, {"kernels": list(kernels), "sequences": list(sequences), "calls": calls})
    return 0


def shapes(tf32: bool) -> Iterator[tuple[str, Shape]]:
    """Yields the name of the set and the shape of each convolution, in a random order."""
    nets = []
    for net, edge, dtype in PADDED.values():
        for batch in BATCHES:
            side = edge
            for channels, filters, kernel, stride in net:
                nets.append(Shape(batch, channels, filters, (side, side), kernel, stride, dtype=dtype))
                side //= stride
    fitted = sampled(_FITTED, seed=0)
    known = set(fitted) | set(nets)
    held_out = [shape for shape in sampled(_HELD_OUT, seed=1) if shape not in known]
    named = [*(("fit", shape) for shape in fitted), *(("held out", shape) for shape in held_out)]
    random.Random(0).shuffle(named)
    found = [*(("nets", shape) for shape in dict.fromkeys(nets)), *named]
    yield from found if tf32 else (each for each in found if each[1].dtype is torch.float32)


def case_of(shape: Shape, way: str, tf32: bool) -> Case:
    """Returns the case of one pass over a convolution: "forward", or the gradient "x" or "w"."""
    case = forward(shape) if way == "forward" else backward(shape, way)
    return replace(case, precision="" if tf32 else "ieee")


def _measured(tf32: bool, deadline: float) -> Iterator[list[Any]]:
    """Yields for each call: its set, its shape (see `_shape`), the pass, whether TF32 is allowed, the names of its
    kernels, how long they took together (ns), and the bytes of each allocation that is no result.
    """
    pool = TensorPool("meta")
    asked: dict[tuple[object, ...], list[Any]] = {}
    cases = []
    for name, shape in itertools.islice(shapes(tf32), _MOST):
        for way in _PASSES:
            case = case_of(shape, way, tf32)
            asked[_call(case, pool).inputs] = [name, *_fields(shape), way, tf32]
            cases.append(case)
    for observations in measure(cases, deadline):
        for seen in observations:
            names = [kernel.name for kernel in seen.kernels]
            yield [*asked[seen.signature.inputs], names, sum(kernel.ns for kernel in seen.kernels), seen.taken]


def _fields(shape: Shape) -> tuple[Any, ...]:
    dtype = str(shape.dtype).removeprefix("torch.")
    sizes = shape.batch, shape.channels, shape.filters, shape.sides[0], shape.kernel, shape.stride, shape.groups
    return *sizes, dtype, shape.layouts


def _shape(batch: int, channels: int, filters: int, side: int, *rest: Any) -> Shape:
    kernel, stride, groups, dtype, layouts = rest
    of = getattr(torch, dtype)
    return Shape(batch, channels, filters, (side, side), kernel, stride, groups, dtype=of, layouts=layouts)


def _call(case: Case, pool: TensorPool) -> Signature:
    """Returns the call of a case, on tensors of the meta device."""
    pool.begin()
    operator = resolve(case.operator)
    args, named = split(case.build(pool))
    return replace(signature_of(operator, args, named, operator(*args, **named)), precision=case.precision)


def _judge(real: dict[str, Any]) -> None:
    """Prints, for each set and pass, how many workspaces are predicted within the limit, and by how many bytes they
    are off, as a share of the bytes of input and output. Input gradients of images are left out: nobody needs them.
    """
    costs, pool = costs_of("h100"), TensorPool("meta")
    found: dict[tuple[str, bool, str], list[tuple[bool, int, int]]] = {}
    for name, *fields, way, tf32, _, _, taken in real["calls"]:
        shape = _shape(*fields)
        if way == "x" and shape.channels <= FIRST_CHANNELS:
            continue
        call = _call(case_of(shape, way, tf32), pool)
        off = abs(_workspaces(costs, call) - sum(taken))
        moved = sum(each.numel * each.item_bytes for each in _images(call))
        found.setdefault((name, tf32, way), []).append((off <= max(_LIMIT * sum(taken), _LEAST), off, moved))
    for (name, tf32, way), rows in sorted(found.items()):
        right, off, moved = map(sum, zip(*rows, strict=True))
        kind = "TF32, half" if tf32 else "float32"
        print(f"{name:9} {kind:10} {way:8} {right:4} of {len(rows):4} within {_LIMIT:.0%}; off by {off / moved:.1%}")


def _images(call: Signature) -> tuple[TensorSpec, ...]:
    """Returns the tensors of a call that are as large as its batch: input and output, or their gradients."""
    return call.tensors[:2] if call.name.endswith("backward") else (call.tensors[0], call.results[0])


def _workspaces(costs: MeasuredCosts, call: Signature) -> int:
    return sum(map(sum, costs.cost(call).temporaries))


def _write(out: Path, figures: dict[str, Any]) -> None:
    text = json.dumps(measured_on() | {"cudnn": torch.backends.cudnn.version()} | figures, separators=(",", ":"))
    out.write_text(text.replace("],[", "],\n[") + "\n")


if __name__ == "__main__":
    sys.exit(main())
