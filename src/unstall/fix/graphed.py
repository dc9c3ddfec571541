"""Runs functions, modules and training steps as CUDA graphs, with one line of code. Graphs are tested before their use.

    step = unstall.graphed(step)

The first call warms up. The next call is observed, to find anything that a graph cannot do. Then the function is
captured on one stream and on several streams. Each graph is replayed on changed inputs and compared with eager
execution from the same state. The fastest graph is kept if it is faster than eager execution. From then on, a call
copies its inputs into the graph's static inputs, replays the graph and returns copies of its results.

The function may read state that is not in its arguments. Guards check whether this state is unchanged. If a guard
fails, the call runs eagerly, and the function is captured again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, Literal

import torch

from unstall.errors import UsageError
from unstall.fix.graphs.buckets import Sizes
from unstall.fix.graphs.graphed_function import GraphedFunction
from unstall.fix.graphs.graphed_module import graphed_module


def graphed(
    fn: Any = None,
    *,
    streams: Literal["auto"] | int = "auto",
    shapes: Literal["exact", "bucket"] | Sequence[int] = "exact",
    verify: bool = True,
    max_graphs: int = 8,
    strict: bool = False,
) -> Any:
    """Runs a function, a module or a whole training step as CUDA graphs. Use `@graphed` or `graphed(fn)`.

    Results are copies, so later calls do not overwrite them. Gradients that a training step leaves in `.grad` are not
    copies: the next call overwrites them. If no graph is possible, calls run eagerly, and one warning gives the reason
    and the line. A graph that is not faster than eager execution is not kept. Without a CUDA device, all calls run
    eagerly.

    Several threads may call one graphed function at the same time. Their calls then run one after the other, or
    eagerly.

    Args:
        fn: The function or module. If None, a decorator with the other arguments is returned.
        streams: How many streams a graph uses. 1: all work is on one stream. "auto": the number that is measured to be
            fastest.
        shapes: "exact" captures a graph for each shape. "bucket" pads inputs to powers of two, and cuts results to the
            size that the results have without padding. A list of sizes pads inputs to the sizes in the list. Inputs are
            padded only if the padding does not change any bit of the results.
        verify: If False, graphs are used without a comparison of their results with the results of eager execution.
        max_graphs: The maximum number of graphs. If there are more graphs, the least recently used graph is dropped.
        strict: If True, raises `GraphedError` if no graph is possible. If False, a warning is given instead.

    Returns:
        A callable like `fn`. If `fn` is a module, the callable is a module of the same class, with the same state. The
        method `stats()` of the callable returns statistics.

    Raises:
        UsageError: An argument has an invalid value.
    """
    if streams != "auto" and not _counts(streams):
        raise UsageError(f'streams={streams!r}: it is "auto" or a number of streams')
    if not _counts(max_graphs):
        raise UsageError(f"max_graphs={max_graphs!r}: it is a number of graphs, and at least one is needed")
    sizes = sizes_from(shapes)
    lanes = None if streams == "auto" else () if streams == 1 else (int(streams),)

    def wrapped(function: Any) -> Any:
        if not callable(function):
            raise UsageError(f"graphed() takes a function or a module, not what is of type {type(function).__name__}")
        made = GraphedFunction(function, lanes=lanes, sizes=sizes, verify=verify, max_graphs=max_graphs, strict=strict)
        return graphed_module(function, made) if isinstance(function, torch.nn.Module) else made

    return wrapped if fn is None else wrapped(fn)


def sizes_from(shapes: object) -> Sizes | None:
    """Returns the sizes that inputs of a graph are padded to. `shapes` is "exact", "bucket" or a list of sizes. Returns
    None for "exact", because inputs are then not padded.

    Raises:
        UsageError: `shapes` has another value.
    """
    if isinstance(shapes, str) and shapes in ("exact", "bucket"):
        return Sizes() if shapes == "bucket" else None
    if isinstance(shapes, Iterable) and not isinstance(shapes, (str, bytes, Mapping)):
        sizes = list(shapes)
        if sizes and all(map(_counts, sizes)):
            return Sizes(tuple(sorted(set(map(int, sizes)))))
    raise UsageError(f'shapes={shapes!r}: it is "exact", "bucket" or a list of sizes to pad to')


def _counts(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1
