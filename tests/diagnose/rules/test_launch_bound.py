"""The device is faster than the host dispatches."""

from __future__ import annotations

from findings import found, only, place
from traces import TraceBuilder


def layers(kernel_us: float, *, count: int = 20, stacks: bool = True) -> TraceBuilder:
    """Each operator takes the host 2 µs and its launch 5."""
    trace = TraceBuilder(stacks=stacks)
    with trace.step(), trace.frame("train.py", 12, "train"), trace.frame("model/net.py", 30, "forward"):
        for _ in range(count):
            with trace.op("aten::relu"):
                trace.launch("relu", kernel_us)
    return trace


def test_idle_time_between_short_kernels_is_the_launches() -> None:
    """Kernels start every 7 µs and run for 3: 4 µs are lost between each two. The step begins at 1 µs, and enters
    itself, two functions and an operator until the first launch at 6, which arrives at 13."""
    finding = only(layers(3), "launch-bound")
    assert place(finding) == ("model/net.py", 30, "forward")
    assert finding.count == 20
    assert finding.exposed_ns == 12_000 + 19 * 4_000
    assert finding.wait_ns == 0
    assert finding.edit == "graph:model/net.py:forward"
    assert "20 launches, of ops that take 3.00 µs (median)" in finding.saw


def test_kernels_longer_than_their_dispatch_are_not_launch_bound() -> None:
    assert found(layers(100), "launch-bound") == []


def test_the_function_named_is_the_innermost_that_holds_most_of_it() -> None:
    """Two functions share the idle time: their caller stands for the stretch, and they are named in it."""
    trace = TraceBuilder()
    with trace.step(), trace.frame("train.py", 12, "train"):
        for line, name in ((30, "encode"), (60, "decode")):
            with trace.frame("model/net.py", line, name):
                for _ in range(20):
                    with trace.op("aten::relu"):
                        trace.launch("relu", 3)
    finding = only(trace, "launch-bound")
    assert place(finding) == ("train.py", 12, "train")
    assert finding.count == 40
    assert "callees with most of the idle time: encode (model/net.py:30) 51.8 %" in finding.saw
    assert "decode (model/net.py:60) 48.2 %" in finding.saw


def by_line(*, calls: int = 2) -> TraceBuilder:
    """A model that is called from two lines, and launches from three of its own, as the line clock tells it."""
    trace = TraceBuilder(operators=False, unstall={"recorder": "cupti", "lines": "exact"})
    with trace.frame("train.py", 9, "<module>"):
        for call in range(calls):
            with trace.frame("train.py", 30 + call, "train"):
                for line, launches in ((51, 4), (52, 12), (53, 4)):
                    with trace.frame("model/net.py", line, "forward"):
                        for _ in range(launches):
                            trace.launch(f"kernel_{line}", 6, host_us=9)
    return trace


def test_the_lines_of_a_function_hold_it_together_and_the_costliest_is_named() -> None:
    """No line of the model's holds four fifths of the idle time: it is their function that would be captured."""
    finding = only(by_line(), "launch-bound")
    assert place(finding) == ("model/net.py", 52, "forward")
    assert finding.where.line_is == "exact"
    assert finding.count == 40
    assert finding.edit == "graph:model/net.py:forward"
    assert "other lines with most of the idle time: 51 25.7 %" in finding.saw


def test_within_generate_it_is_told_what_can_be_captured_there() -> None:
    trace = TraceBuilder()
    loop = "transformers/generation/utils.py"
    with trace.step(), trace.frame("write.py", 3, "write"), trace.frame(loop, 2100, "generate"):
        for _ in range(20):
            with trace.frame("transformers/models/gpt2/modeling_gpt2.py", 30, "forward"), trace.op("aten::relu"):
                trace.launch("relu", 3)
    assert "transformers.StaticCache" in only(trace, "launch-bound").fix
    assert "StaticCache" not in only(layers(3), "launch-bound").fix


def test_without_stacks_it_is_told_by_operator_and_the_edit_has_no_place() -> None:
    finding = only(layers(3, stacks=False), "launch-bound")
    assert place(finding) == (None, None, "aten::relu")
    assert finding.edit == "graph"


def test_graphs_launched_late_are_not_told_to_become_graphs() -> None:
    trace = TraceBuilder(launch_us=100)
    with trace.frame("train.py", 12, "train"):
        for _ in range(5):
            trace.graph([3, 3])
    finding = only(trace, "launch-bound")
    assert finding.count == 5
    assert finding.edit is None
    assert "CUDA graph" not in finding.fix


def test_a_host_that_is_ahead_and_restarts_late_once_is_not_launch_bound() -> None:
    """One wait, and then a queue that is never empty: the one late launch is the wait's."""
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        for _ in range(20):
            with trace.op("aten::mm"):
                trace.launch("gemm", 100)
        trace.item()
        for _ in range(20):
            with trace.op("aten::mm"):
                trace.launch("gemm", 100)
    assert found(trace, "launch-bound") == []


def test_a_host_that_restarts_late_at_each_step_is_told_what_a_graph_gains() -> None:
    """7 of 86 launches find the device idle, after the wait of the step before; in the others the host is ahead."""
    trace = TraceBuilder()
    for _ in range(4):
        with trace.step(), trace.frame("train.py", 12, "train"):
            with trace.frame("train.py", 20, "forward"):
                for length in (*[3] * 6, *[20] * 80):
                    with trace.op("aten::mm"):
                        trace.launch("gemm", length, host_us=18)
            trace.item()
    finding = only(trace, "launch-bound")
    assert "; 28 launches came after the device had run out of work" in finding.saw
    assert not finding.harmless
    assert finding.gain_ns is not None
    assert finding.gain_ns > 0.02 * 80 * 20_000


def test_it_says_how_many_came_late_and_how_far_ahead_the_others_were() -> None:
    """A queue that is never empty, and then a hundred launches each later than the last kernel's end."""
    trace = TraceBuilder()
    with trace.step(), trace.frame("train.py", 12, "train"):
        for _ in range(100):
            trace.launch("gemm", 10)
        trace.work(600)
        for _ in range(30):
            with trace.op("aten::relu"):
                trace.launch("relu", 3)
    finding = only(trace, "launch-bound")
    assert (
        "; 30 launches came after the device had run out of work, the others with 26 ops still queued (median)"
        in finding.saw
    )


def test_what_it_shows_is_the_idle_time_and_not_the_calls() -> None:
    trace = TraceBuilder()
    with trace.step(), trace.frame("train.py", 12, "train"):
        trace.launch("gemm", 1_000)
        trace.copy("HtoD", 10, memory="Pageable")
        for _ in range(20):
            with trace.op("aten::relu"):
                trace.launch("relu", 3)
    finding = only(trace, "launch-bound")
    assert {end - start for start, end in finding.spans} == {4_000, 10_000}
    assert sum(end - start for start, end in finding.spans) == finding.exposed_ns


def test_launches_between_graphs_are_told_to_join_them() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        for _ in range(5):
            for _ in range(3):
                with trace.op("aten::copy_"):
                    trace.launch("copy", 1)
            trace.graph([3] * 20)
            trace.item()
    finding = only(trace, "launch-bound")
    assert "; then capture the 20 launches outside of the CUDA graphs that already run here, too, or" in finding.fix


def test_tiny_kernels_within_a_stretch_are_part_of_it_and_no_finding_of_their_own() -> None:
    trace = TraceBuilder()
    with trace.step(), trace.frame("train.py", 12, "train"):
        for line, name, kernels in ((30, "scale", 1), (60, "project", 40)):
            with trace.frame("model/net.py", line, name):
                for i in range(40):
                    with trace.op("aten::mul"):
                        trace.launch(f"{name}_{i % kernels}", 3)
    finding = only(trace, "launch-bound")
    assert place(finding) == ("train.py", 12, "train")
    assert found(trace, "tiny-kernels") == []


def test_kernels_shorter_than_the_clocks_tick_are_said_to_be() -> None:
    """torch 1.8 wrote whole microseconds: many kernels take none."""
    trace = TraceBuilder()
    with trace.step(), trace.frame("train.py", 12, "train"):
        for i in range(30):
            with trace.op("aten::relu"):
                trace.launch("relu", 0 if i % 3 else 2)
    assert "ops that take less than 1 µs (median)" in only(trace, "launch-bound").saw
