"""The law of edits that remove: a step takes as long as if what they remove had never been in the program.

The virtual GPU of `traces` runs each program twice, with what an edit removes and without. Only the first is edited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from programs import Action, Program
from replay.recorded import A_FEW
from what_if.made import step_us, subject_of

LONG = st.integers(60_000, 400_000).map(lambda length: length / 1000)  # µs
STREAMS = st.sampled_from([7, 7, 20])

Body = list[Action]


def made(body: Body, *, steps: int = 4, wait: bool = True) -> Program:
    """Steps of these actions, after enough of each kind of op and wait to learn what they take."""
    trace = Program(enter_us=0.001, latency_us=3)
    for _ in range(3):
        for stream in (7, 20):
            trace.launch("learned", 40, stream=stream)
            trace.launch("learned", 40, stream=stream)
            trace.work(20)
            trace.sync(stream=stream)
            trace.work(60)
            trace.graph([5, 5], stream=stream)
            trace.work(60)
    for _ in range(steps):
        with trace.step(), trace.frame("train.py", 10, "step"):
            trace.work(5)
            _run(trace, body)
            if wait:
                trace.sync()
    return trace


def _run(trace: Program, body: Body) -> None:
    for method, arguments, *within in body:
        if within:
            with getattr(trace, method)(**arguments):
                _run(trace, within[0])
        else:
            getattr(trace, method)(**arguments)


def leaf(method: str, **arguments: Any) -> st.SearchStrategy[Action]:
    return st.tuples(st.just(method), st.fixed_dictionaries(arguments))


def around(
    method: str, inner: st.SearchStrategy[Action], *first: Action, **arguments: Any
) -> st.SearchStrategy[Action]:
    body = st.lists(inner, min_size=1, max_size=3).map(lambda rest: [*first, *rest])
    return st.tuples(st.just(method), st.fixed_dictionaries(arguments), body)


ONE = ("launch", {"kernel": "gemm", "device_us": 5})
LAUNCH = leaf("launch", kernel=st.just("gemm"), device_us=LONG)
# Long kernels that never ran at the same time are taken to need the whole device.
BESIDE = leaf("launch", kernel=st.just("relu"), device_us=st.integers(1, 15), stream=st.just(20))
DOES = st.one_of(
    LAUNCH,
    LAUNCH,
    BESIDE,
    leaf("graph", kernels_us=st.lists(LONG, min_size=2, max_size=3)),
    leaf("work", us=LONG),
    leaf("record_and_wait", where=STREAMS.map(lambda stream: {"stream": stream})),
    leaf("sync", stream=STREAMS),
    leaf("hold", where=st.just({"stream": 20}), behind=st.just({"stream": 7})),
)
ALLOCATES = st.one_of(
    leaf("free", us=LONG), leaf("call", name=st.sampled_from(["cudaMalloc", "cudaHostAlloc"]), us=LONG)
)


def bodies(does: st.SearchStrategy[Action]) -> st.SearchStrategy[Body]:
    """Within operators and frames, on autograd's thread, and on another one that the first waits for.

    No operator is around what another thread does: it is not known to wait for that. Each thread launches something:
    those that never do are no part of a program.
    """

    one = st.recursive(does, lambda inner: around("op", inner, name=st.just("aten::mm")), max_leaves=3)
    framed = around("frame", one, file=st.just("model.py"), line=st.integers(1, 3), function=st.just("forward"))
    backward = around("differentiated", one, ONE)
    elsewhere = around("on_thread", one, ONE, number=st.just(450))
    return st.lists(st.one_of(one, framed, backward, elsewhere), min_size=1, max_size=4)


def without(body: Body, gone: Callable[[Action], bool]) -> Body:
    return [
        (action[0], action[1], without(action[2], gone)) if len(action) > 2 else action
        for action in body
        if not gone(action)
    ]


def near(value: float) -> object:
    """Typical delays are learned from other ops."""
    return pytest.approx(value, rel=0.01, abs=12)


def recorded_us(trace: Program) -> float:
    """What a step took on the virtual GPU."""
    steps = subject_of(trace).steps
    return (steps.window_end - steps.window_start) / len(steps) / 1000


def is_replayed(trace: Program) -> bool:
    """Whether the replay is as long as the run: no edit is truer than that."""
    return bool(step_us(trace) == near(recorded_us(trace)))


@A_FEW
@given(bodies(st.one_of(DOES, DOES, ALLOCATES)))
def test_memory_that_is_kept(body: Body) -> None:
    def allocates(action: Action) -> bool:
        return action[0] in ("free", "call")

    assert step_us(made(body), "keep-cache") == near(recorded_us(made(without(body, allocates))))


def in_check(body: Body) -> Action:
    return ("frame", {"file": "library.py", "line": 5, "function": "check"}, body)


@A_FEW
@given(bodies(DOES), bodies(st.one_of(DOES, ALLOCATES)), bodies(DOES))
def test_a_function_that_is_left_out(before: Body, body: Body, after: Body) -> None:
    """With its backward pass. The host's work outside of operators and calls stays, and so do other threads'."""
    body = without(body, lambda action: action[0] == "on_thread")

    def does(action: Action) -> bool:
        return action[0] not in ("work", "frame")

    recorded = made([*before, in_check(body), *after])
    bare = made([*before, in_check(without(body, does)), *after])
    assume(is_replayed(recorded) and is_replayed(bare))
    assert step_us(recorded, "leave-out:library.py:check") == near(step_us(bare))


@A_FEW
@given(bodies(DOES))
def test_waits_that_are_removed(body: Body) -> None:
    """An operator that only waits goes as a whole, but for long work that its wait does not explain."""
    body = without(body, lambda action: action[0] == "work")

    def waits(action: Action) -> bool:
        if action[0] == "op":
            return flat([action]).isdisjoint({"launch", "graph"}) and not flat([action]).isdisjoint(WAITS)
        return action[0] in WAITS

    bare = made(without(body, waits), wait=False)
    settled = step_us(bare)
    assume(settled == near(recorded_us(bare)))
    assert step_us(made(body, wait=False), "remove-syncs") == near(settled)


WAITS = {"sync", "record_and_wait"}


def flat(body: Body) -> set[str]:
    """The methods that are called, at any depth."""
    return {method for action in body for method in (action[0], *(flat(action[2]) if len(action) > 2 else ()))}


def test_what_a_call_does_once_it_has_waited_goes_with_it() -> None:
    """The device ends after 100 µs, the call 300 µs later."""

    def body(*free: Action) -> Body:
        return [("launch", {"device_us": 100}), *free, ("work", {"us": 10}), ("launch", {"device_us": 100})]

    recorded = made(body(("free", {"us": 300})))
    assert step_us(recorded) > 500
    assert step_us(recorded, "keep-cache") == near(step_us(made(body())))


def test_launches_that_are_left_out_take_no_room_in_the_launch_queue() -> None:
    """Between two long kernels, 1,500 short ones wait in a queue that holds 1,022."""

    def body(launches: int) -> Body:
        small: Body = [("launch", {"kernel": "small", "device_us": 2, "host_us": 1})] * launches
        long: Action = ("launch", {"device_us": 8_000})
        return [long, in_check(small), ("work", {"us": 6_000}), long]

    assert step_us(made(body(1_500)), "leave-out:library.py:check") == near(step_us(made(body(0))))
