"""The host computes something that dispatches nothing, and the device waits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
from findings import found, only, place, result_of
from traces import TraceBuilder

STEPS = 3
_SLEEP = "<built-in function sleep>"


def pausing(us: float, *, stacks: bool = True, kernel_us: float = 50, exact: bool = False) -> TraceBuilder:
    """`exact`: as recorded by line and without operators."""
    trace = TraceBuilder(
        stacks=stacks, operators=not exact, unstall={"recorder": "cupti", "lines": "exact"} if exact else None
    )
    for _ in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"):
            with trace.op("aten::mm"):
                trace.launch("gemm", kernel_us)
            with trace.frame("data.py", 7, "tokenize"):
                trace.work(us)
            with trace.op("aten::relu"):
                trace.launch("relu", kernel_us)
    return trace


def pausing_in(pause: Callable[[TraceBuilder], None]) -> TraceBuilder:
    """A step launches, pauses so, and launches again."""
    trace = TraceBuilder()
    for _ in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"):
            with trace.op("aten::mm"):
                trace.launch("gemm", 50)
            pause(trace)
            with trace.op("aten::relu"):
                trace.launch("relu", 50)
    return trace


def test_the_function_that_ran_meanwhile_is_named() -> None:
    """The second kernel of a step starts 509 µs after the first was to (500 of work, 9 in and out of functions and
    operators and to launch), which ran for 50 of them; from the second step on it ran 36 later, behind the last one."""
    finding = only(pausing(500), "python-bound")
    assert place(finding) == ("data.py", 7, "tokenize")
    assert finding.where.called_from
    assert finding.where.called_from.function == "train"
    assert (finding.count, finding.exposed_ns) == (STEPS, (459_000 + 2 * 423_000) / STEPS)


@pytest.mark.parametrize(
    ("parts_us", "function"),
    [((20, 960, 20), "normalize"), ((300, 400, 300), "preprocess"), ((40, 860, 100), "preprocess")],
)
def test_a_function_is_named_only_if_it_ran_for_nearly_all_of_the_pause(
    parts_us: tuple[float, float, float], function: str
) -> None:
    def pause(trace: TraceBuilder) -> None:
        before, within, behind = parts_us
        with trace.frame("data.py", 7, "preprocess"):
            with trace.frame("data.py", 20, "resize"):
                trace.work(before)
            with trace.frame("data.py", 30, "normalize"):
                trace.work(within)
            with trace.frame("data.py", 40, "stack"):
                trace.work(behind)

    assert place(only(pausing_in(pause), "python-bound"))[2] == function


def test_the_verdict_is_python() -> None:
    assert result_of(pausing(500)).verdict.bound_by == "python"


def test_what_sleeps_is_told_from_what_computes() -> None:
    def pause(trace: TraceBuilder) -> None:
        with trace.frame("poll.py", 7, "wait_for_data"), trace.named_frame(_SLEEP):
            trace.work(5_000)

    trace = pausing_in(pause)
    finding, verdict = only(trace, "python-bound"), result_of(trace).verdict
    assert place(finding) == ("poll.py", 7, "wait_for_data")
    assert finding.title.startswith("The device waits while the host sleeps")
    assert finding.fix.startswith("wait for that on another thread")
    assert verdict.bound_by == "python"
    assert verdict.text.startswith("Held up: ")
    assert "if the host never slept, nor waited for other processes, connections or files" in verdict.text
    assert "twice as fast" not in verdict.text


@pytest.mark.parametrize(
    ("before", "asleep", "after", "held_up"),
    [(5_000, 200, 5_000, False), (0, 4_800, 5_200, False), (4_800, 5_200, 0, True), (200, 5_200, 4_600, True)],
)
def test_what_most_of_a_pause_was_counts(before: float, asleep: float, after: float, held_up: bool) -> None:
    def pause(trace: TraceBuilder) -> None:
        with trace.frame("data.py", 7, "tokenize"):
            trace.work(before)
            with trace.named_frame(_SLEEP):
                trace.work(asleep)
            trace.work(after)

    trace = pausing_in(pause)
    finding = only(trace, "python-bound")
    assert place(finding) == ("data.py", 7, "tokenize")
    assert finding.title.startswith("The device waits while the host " + ("sleeps" if held_up else "computes"))
    assert result_of(trace).verdict.text.startswith("Held up" if held_up else "Python-bound")


@pytest.mark.parametrize("waits", ["acquire of _thread.lock", "get of _queue.SimpleQueue"])
def test_what_waits_for_another_thread_computes_nothing(waits: str) -> None:
    def pause(trace: TraceBuilder) -> None:
        builtin = trace.named_frame(f"<built-in method {waits} object at 0x7f1e>")
        with trace.frame("queue.py", 154, "get"), builtin:
            trace.work(5_000)

    finding = only(pausing_in(pause), "python-bound")
    assert finding.title == "The device waits while the host waits for another thread"
    assert finding.fix.startswith("start that thread's work earlier")


def test_a_thread_that_launches_nothing_may_sleep() -> None:
    """And what launched next is autograd's, of whose thread there are no frames."""
    trace = TraceBuilder()
    with trace.on_thread(500, wait=False), trace.frame("monitor.py", 5, "poll"):
        for _ in range(200):
            with trace.named_frame(_SLEEP):
                trace.work(500)
    for number in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"):
            with trace.op("aten::mm", sequence=number):
                trace.launch("gemm", 50)
            with trace.frame("loss.py", 7, "of_numpy"):
                trace.work(20_000)
            with trace.backward("MmBackward0", number):
                trace.launch("gemm", 50)
    finding = only(trace, "python-bound")
    assert place(finding) == ("loss.py", 7, "of_numpy")
    assert finding.title == "The device waits while the host computes in Python"
    assert result_of(trace).verdict.text.startswith("Python-bound")


def test_an_operator_that_launches_may_sleep_too_and_no_graph_mends_it() -> None:
    trace = TraceBuilder()
    for _ in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"), trace.op("mine::fetch"):
            trace.launch("a", 2)
            with trace.frame("fetch.py", 7, "fetch"), trace.named_frame(_SLEEP):
                trace.work(20_000)
            trace.launch("b", 2)
    finding, result = only(trace, "python-bound"), result_of(trace)
    assert place(finding) == ("fetch.py", 7, "fetch")
    assert result.verdict.text.startswith("Held up")
    assert all(step.gain_ns < 1_000_000 for step in result.plan or ())


def test_without_stacks_it_is_at_what_was_launched_next() -> None:
    finding = only(pausing(500, stacks=False), "python-bound")
    assert place(finding) == (None, None, "aten::relu")


def test_pauses_of_less_than_a_tenth_of_a_millisecond_are_dispatch() -> None:
    trace = pausing(80)
    assert found(trace, "python-bound") == []
    assert result_of(trace).accounts.idle_ns.python == 0


def test_where_lines_are_those_that_ran_it_is_at_one() -> None:
    finding = only(pausing(500, exact=True), "python-bound")
    assert place(finding) == ("data.py", 7, "tokenize")
    assert finding.where.line_is == "exact"
    assert "launched nothing for 200 µs or more: it was at this line" in finding.saw


def test_where_frames_are_known_at_calls_alone_it_is_between_two_lines() -> None:
    """The frame around the pause is that of the function that called both, at a line that says nothing of it."""
    trace = TraceBuilder(operators=False, unstall={"recorder": "cupti", "lines": "exact", "lines_by": "calls"})
    for _ in range(STEPS):
        with trace.step(), trace.frame("train.py", 30, "<module>"):
            with trace.frame("train.py", 12, "train"):
                trace.launch("gemm", 50)
            trace.work(500)
            with trace.frame("train.py", 14, "train"):
                trace.launch("relu", 50)
    finding = only(trace, "python-bound")
    assert place(finding) == ("train.py", 14, "train")
    assert finding.count == STEPS
    assert finding.saw.endswith("this line came next, after train.py:12 train")


def test_before_a_backward_pass_it_is_after_what_another_thread_called() -> None:
    trace = TraceBuilder(unstall={"recorder": "torch", "lines": "exact", "lines_by": "calls"})
    for number in range(STEPS):
        with trace.step(), trace.frame("train.py", 30, "<module>"):
            with trace.frame("train.py", 12, "train"), trace.op("aten::mm", sequence=number):
                trace.launch("gemm", 50)
            with trace.frame("train.py", 13, "train"):
                trace.sync()
            trace.work(500)
            with trace.frame("train.py", 14, "train"), trace.backward("MmBackward0", number):
                trace.launch("gemm", 50)
    finding = only(trace, "python-bound")
    assert place(finding) == ("train.py", 12, "train")
    assert finding.saw.endswith("this line came next, after train.py:13 train")


@pytest.mark.parametrize(("us", "is_python"), [(180, False), (220, True)])
def test_without_operators_a_pause_is_twice_as_long(us: float, is_python: bool) -> None:
    """Operators that launch nothing are not seen, so that a shorter one may be dispatch."""
    assert (result_of(pausing(us, exact=True)).accounts.idle_ns.python > 0) == is_python


def test_cuda_alone_by_a_recorder_that_leaves_calls_out_tells_nothing_of_python() -> None:
    """Neither operators nor frames nor annotations: of our own recorder, all calls that matter are there."""
    for unstall, cause in ((None, "launch"), ({"recorder": "cupti", "lines": "none"}, "python")):
        trace = TraceBuilder(operators=False, stacks=False, unstall=unstall)
        for _ in range(4):
            trace.launch("gemm", 50)
            trace.work(500)
        result = result_of(trace)
        assert result.verdict.bound_by == cause
        assert any("Python's share cannot be told" in note for note in result.integrity.notes) == (unstall is None)


def test_pauses_that_the_device_works_through_are_not_found() -> None:
    assert found(pausing(500, kernel_us=2_000), "python-bound") == []


def test_what_it_shows_is_the_idle_time_and_its_mean_is_theirs() -> None:
    """The function runs on for long after the device is at work again, and pauses twice."""
    trace = TraceBuilder()
    with trace.step(), trace.frame("train.py", 12, "train"):
        for _ in range(2):
            with trace.op("aten::mm"):
                trace.launch("gemm", 50)
            trace.work(500)
        with trace.op("aten::mm"):
            trace.launch("gemm", 5_000)
        trace.sync()
    finding = only(trace, "python-bound")
    assert [end - start for start, end in finding.spans] == [457_000, 457_000]
    assert finding.count == 2
    assert finding.exposed_ns == sum(end - start for start, end in finding.spans)
    assert "2 idle stretches of 457 µs (mean)" in finding.saw


def backward(custom_us: float = 0) -> TraceBuilder:
    """`loss.backward()` takes 400 µs to set up its engine, which then runs on its own thread; with a node that works
    on the host for so long."""
    trace = TraceBuilder()
    with trace.step(), trace.frame("train.py", 12, "train"):
        with trace.op("aten::mm", sequence=1):
            trace.launch("gemm", 50)
        with trace.named_frame("<built-in method run_backward of torch._C._EngineBase object at 0x7f00>"):
            trace.work(400)
            if custom_us:
                with trace.backward("CustomBackward", 2):
                    trace.work(custom_us)
            with trace.backward("MmBackward0", 1):
                trace.launch("gemm", 50)
    return trace


def test_the_start_of_a_backward_pass_is_dispatching() -> None:
    assert found(backward(), "python-bound") == []
    idle = result_of(backward()).accounts.idle_ns
    assert (idle.python, idle.launch) == (0, 8_000 + 358_000)


def test_a_backward_node_that_works_on_the_host_is_not() -> None:
    assert only(backward(custom_us=900), "python-bound").count == 1


_ADAM = ("torch/optim/adam.py", 139, "_init_group")


def in_torch(trace: TraceBuilder) -> None:
    with trace.frame(*_ADAM), trace.named_frame("<built-in function isinstance>"):
        trace.work(500)


def test_torchs_own_code_between_operators_is_dispatching() -> None:
    """The user cannot move it to a thread; a CUDA graph removes it."""
    trace = pausing_in(in_torch)
    assert found(trace, "python-bound") == []
    result = result_of(trace)
    assert result.accounts.idle_ns.python == 0
    assert result.verdict.bound_by == "launch"
    (finding,) = (each for each in result.findings if each.rule == "launch-bound")
    assert " of the idle time is torch's own Python code between two operators" in finding.saw


def test_what_torchs_code_calls_of_the_users_is_the_users() -> None:
    def pause(trace: TraceBuilder) -> None:
        with trace.frame(*_ADAM), trace.frame("train.py", 40, "closure"):
            trace.work(500)

    assert place(only(pausing_in(pause), "python-bound")) == ("train.py", 40, "closure")


@pytest.mark.parametrize(
    "waits",
    [
        ("torch/serialization.py", 950, "save"),
        ("torch/utils/tensorboard/writer.py", 340, "add_scalar"),
        ("torch/_tensor_str.py", 700, "_str"),
    ],
)
def test_what_torch_does_beside_calling_operators_is_work_of_the_host(waits: tuple[str, int, str]) -> None:
    def pause(trace: TraceBuilder) -> None:
        with trace.frame(*waits):
            trace.work(500)

    assert only(pausing_in(pause), "python-bound").count == STEPS


@pytest.mark.parametrize("waits", ["<built-in method acquire of _thread.lock object at 0x7f1e>", _SLEEP])
def test_torch_that_waits_for_another_thread_dispatches_nothing(waits: str) -> None:
    def pause(trace: TraceBuilder) -> None:
        with trace.frame("torch/nn/parallel/parallel_apply.py", 30, "parallel_apply"), trace.named_frame(waits):
            trace.work(500)

    assert only(pausing_in(pause), "python-bound").count == STEPS


def at_calls(
    *,
    optimizer: str | None = None,
    calls: str | None = None,
    free_work: bool = False,
    sleeps: bool = False,
    on_host: bool = False,
) -> TraceBuilder:
    """Frames are known at calls alone. A pause of 500 µs is in a step of an optimizer, or a sleep, or an operator on
    the host, or before the call of a function in the file `calls`.
    """
    recorded = {"recorder": "torch", "lines": "exact", "lines_by": "calls", "free_work": free_work or None}
    trace = TraceBuilder(unstall=recorded)
    for number in range(STEPS):
        with trace.step(), trace.frame("train.py", 30, "<module>"):
            with trace.frame("train.py", 12, "train"), trace.op("aten::mm", sequence=number):
                trace.launch("gemm", 50)
            with trace.frame("train.py", 13, "train"), trace.backward("MmBackward0", number):
                trace.launch("gemm", 50)
            with trace.annotation(f"Optimizer.step#{optimizer}.step") if optimizer else nullcontext():
                on = trace.op("aten::randn") if on_host else nullcontext()
                with trace.named_frame(_SLEEP) if sleeps else on:
                    trace.work(500)
                with (
                    trace.frame("train.py", 14, "train"),
                    trace.frame(calls, 9, "forward") if calls else nullcontext(),
                    trace.op("aten::relu"),
                ):
                    trace.launch("relu", 50)
    return trace


@pytest.mark.parametrize(("optimizer", "is_python"), [("Adam", False), ("LBFGS", True), (None, True)])
def test_where_frames_are_not_known_an_optimizers_annotation_tells(optimizer: str | None, is_python: bool) -> None:
    """The steps of LBFGS run a closure of the user."""
    assert bool(found(at_calls(optimizer=optimizer), "python-bound")) == is_python


@pytest.mark.parametrize(("calls", "may_be_torchs"), [("torch/nn/modules/linear.py", True), ("model.py", False)])
def test_where_torch_makes_the_next_call_the_pause_may_be_its_own(calls: str, may_be_torchs: bool) -> None:
    finding = only(at_calls(calls=calls), "python-bound")
    assert ("If it is torch's own" in finding.fix) == may_be_torchs
    assert "move that work off the critical path" in finding.fix


@pytest.mark.parametrize("sleeps", [False, True])
def test_of_a_modelled_host_all_but_sleep_is_torchs(sleeps: bool) -> None:
    """The program's own work takes no time there. The thread of autograd waits for more meanwhile."""
    assert len(found(at_calls(free_work=True, sleeps=sleeps), "python-bound")) == sleeps


def test_of_a_modelled_host_operators_on_the_host_are_the_programs() -> None:
    finding = only(at_calls(free_work=True, on_host=True, calls="torch/nn/modules/linear.py"), "python-bound")
    assert finding.fix.startswith("move that work off the critical path")
