"""Random programs for the virtual GPU of `traces`: what laws about any recorded run are held to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import strategies as st
from traces import TraceBuilder

Place = dict[str, int]  # the arguments `stream` and `device`
Action = tuple[Any, ...]  # method, its arguments, and for a context the actions within


class Program(TraceBuilder):
    """A trace builder with some calls in one that make no sense alone."""

    def __repr__(self) -> str:
        return "\n".join(
            f"{event['tid']} {event['ts']:>8} +{event['dur']:<8} {event['cat']:<16} {event['name']}"
            for event in sorted(self.events, key=lambda event: int(event["ts"]))
        )

    def record_and_wait(self, where: Place) -> None:
        self.event_sync(self.record(**where))

    def hold(self, where: Place, behind: Place) -> None:
        self.stream_wait(self.record(**behind), **where)

    @contextmanager
    def differentiated(self) -> Iterator[None]:
        """A forward operator, and its gradient on autograd's thread."""
        sequence = len(self.events)
        with self.op("aten::mm", sequence=sequence):
            self.launch("gemm", 5)
        with self.backward("MmBackward0", sequence):
            yield


TIMES = st.integers(1, 300_000).map(lambda length: length / 1000)  # µs, exact to the ns
PLACES = st.sampled_from([(7, 0), (7, 0), (20, 0), (7, 1)]).map(lambda key: {"stream": key[0], "device": key[1]})


def _leaf(method: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Action]:
    return st.tuples(st.just(method), st.fixed_dictionaries(arguments))


def _at_a_place(method: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Action]:
    return st.builds(lambda place, rest: (method, place | rest), PLACES, st.fixed_dictionaries(arguments))


_LAUNCH = _at_a_place(
    "launch",
    kernel=st.sampled_from(["gemm", "relu", "softmax", "ncclDevKernel_AllReduce"]),
    device_us=TIMES,
)
_LEAVES = st.one_of(
    _LAUNCH,
    _LAUNCH,
    _at_a_place("graph", kernels_us=st.lists(TIMES, min_size=1, max_size=4)),
    _at_a_place(
        "copy",
        direction=st.sampled_from(["HtoD", "DtoH", "DtoD"]),
        device_us=TIMES,
        memory=st.sampled_from(["Pageable", "Pinned"]),
    ),
    _at_a_place("memset", device_us=TIMES),
    _at_a_place("sync", what=st.sampled_from(["stream", "device"])),
    _leaf("item"),
    _leaf("record_and_wait", where=PLACES),
    _leaf("hold", where=PLACES, behind=PLACES),
    _leaf("call", name=st.sampled_from(["cudaMalloc", "cudaHostAlloc", "cuModuleLoadData", "cudaGetDevice"]), us=TIMES),
    _leaf("free", us=TIMES),
    _leaf("work", us=TIMES),
    _leaf("next_batch", us=TIMES),
    _leaf("overhead", name=st.just("Activity Buffer Request"), us=TIMES),
)


def _around(inner: st.SearchStrategy[Action]) -> st.SearchStrategy[Action]:
    def context(method: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Action]:
        body = st.lists(inner, min_size=1, max_size=5)
        return st.tuples(st.just(method), st.fixed_dictionaries(arguments), body)

    return st.one_of(
        context("op", name=st.sampled_from(["aten::mm", "aten::to", "aten::item", "aten::nonzero", "nccl:all_reduce"])),
        context(
            "frame",
            file=st.sampled_from(["train.py", "model/net.py", "torch/nn/modules/module.py"]),
            line=st.integers(1, 4),
            function=st.just("forward"),
        ),
        context("annotation", name=st.sampled_from(["forward pass", "loss"])),
        context("differentiated"),
        context("on_thread", number=st.integers(450, 451), wait=st.booleans()),
    )


BODIES = st.lists(st.recursive(_LEAVES, _around, max_leaves=10), max_size=6)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Some steps of the same actions, marked by the profiler, by the optimizer or not at all; more before and after."""
    trace = Program(
        stacks=draw(st.booleans()),
        sync_records=draw(st.booleans()),
        queue=draw(st.sampled_from([2, 1022])),
        devices=("first", "second"),
    )
    body, marked_by = draw(BODIES), draw(st.sampled_from(["profiler", "optimizer", "nothing"]))
    _run(trace, draw(BODIES))
    for _ in range(draw(st.integers(0, 4))):
        if marked_by == "profiler":
            with trace.step():
                _run(trace, body)
            continue
        _run(trace, body)
        if marked_by == "optimizer":
            with trace.optimizer():
                trace.launch("sgd", 3)
    _run(trace, draw(BODIES))
    return trace


def _run(trace: Program, body: list[Action]) -> None:
    for method, arguments, *within in body:
        if within:
            with getattr(trace, method)(**arguments):
                _run(trace, within[0])
        else:
            getattr(trace, method)(**arguments)
