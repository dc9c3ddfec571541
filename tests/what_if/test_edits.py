"""Each edit: what it makes of a made run, worked out by hand, and what holds for any run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from programs import Program, programs
from replay.recorded import A_FEW
from traces import TraceBuilder
from what_if.made import edited, same, step_us, subject_of

from unstall.errors import UsageError
from unstall.replay.program import Code
from unstall.replay.steady import steady_step_ns
from unstall.timeline.columns import HostKind, Uploads
from unstall.what_if.edits import names, parse
from unstall.what_if.edits.overlap_copies import ASSUMED
from unstall.what_if.place import parse_line
from unstall.what_if.subject import SYNCS, Subject


def run(body: Callable[[TraceBuilder], object], *, steps: int = 4) -> TraceBuilder:
    """Steps in one function, train.py:10. Entering a frame takes a ns; an op arrives 3 µs after its call of 5."""
    trace = TraceBuilder(enter_us=0.001, latency_us=3)
    for _ in range(3):
        trace.launch("learned", 40)
        trace.launch("learned", 1)
        trace.work(60)
    for _ in range(steps):
        with trace.step(), trace.frame("train.py", 10, "step"):
            body(trace)
    return trace


def us(value: float) -> object:
    return pytest.approx(value, abs=0.1)


# remove-syncs


def read_back(trace: TraceBuilder) -> None:
    """The device works for 100 of 129 µs: 8 before, copying the value for 1 µs, 20 of work with nothing queued."""
    trace.launch("gemm", 100)
    trace.item()
    trace.work(20)


@pytest.mark.parametrize("place", ["", ":train.py:10", ":train.py:10:aten::item", ":-:-:aten::item", ":aten::item"])
def test_a_value_that_is_not_read_leaves_the_device_at_work(place: str) -> None:
    assert step_us(run(read_back)) == us(8 + 100 + 1 + 20)
    assert step_us(run(read_back), f"remove-syncs{place}") == us(100)


def test_a_wait_that_costs_nothing_gains_nothing() -> None:
    def body(trace: TraceBuilder) -> None:
        event = trace.record()
        trace.launch("gemm", 100)
        trace.event_sync(event)
        trace.work(20)

    assert step_us(run(body), "remove-syncs") == step_us(run(body)) == us(100)


def upload(trace: TraceBuilder) -> None:
    """A copy of 100 µs that the host waits for, then a kernel of 60."""
    with trace.op("aten::to"):
        trace.copy("HtoD", 100, memory="Pageable", size=1_000_000)
    trace.launch("gemm", 60)
    trace.work(10)


def test_a_copy_that_blocks_by_itself_is_no_wait_to_remove() -> None:
    subject = edited(subject_of(run(upload)), "remove-syncs:train.py:10")
    assert steady_step_ns(subject.program) / 1000 == step_us(run(upload))
    assert subject.notes == ("4 waits stay, as the copies themselves block the host: first pin their memory",)


# pin-copies, overlap-copies


def test_a_pageable_copy_holds_the_host_until_the_kernel_before_it_is_done() -> None:
    """It begins when the kernel has ended, and the next kernel 8 µs after it was done."""
    assert step_us(run(upload)) == us(100 + 8 + 60)


def test_a_pinned_copy_is_as_fast_as_the_link_and_holds_nobody() -> None:
    """A megabyte at 55 bytes a ns, and 1 µs to set it up."""
    assert step_us(run(upload), "pin-copies") == us(60 + 1_000_000 / 55_000 + 1)


def test_a_copy_on_a_stream_of_its_own_hides_behind_the_kernel() -> None:
    assert step_us(run(upload), "pin-copies", "overlap-copies") == us(60)


def test_a_copy_that_the_host_waits_for_cannot_overlap() -> None:
    trace = run(upload)
    subject = edited(subject_of(trace), "overlap-copies", "pin-copies")
    assert steady_step_ns(subject.program) / 1000 == step_us(trace, "pin-copies")
    assert subject.notes == (
        "4 of 4 copies stay as they are, as the host waits for them: first pin their memory, or copy without blocking",
    )


def with_uses(trace: TraceBuilder, uses: Sequence[int]) -> Subject:
    """The run with the data of its uploads known: for each, how many kernels later the first uses it; 0 for none."""
    subject = subject_of(trace)
    host = subject.timeline.host
    calls, kernels = (np.flatnonzero(host.kind == kind).astype(np.int32) for kind in (HostKind.COPY, HostKind.LAUNCH))
    before = np.searchsorted(kernels, calls)
    first = np.array([kernels[at + use - 1] if use else -1 for at, use in zip(before, uses, strict=True)], np.int32)
    none = np.full(len(calls), -1, np.int32)
    known = Uploads(calls, np.zeros_like(calls), none, none, first, first, np.ones(len(calls), np.bool_))
    return replace(subject, timeline=replace(subject.timeline, uploads=known))


def copies_then_kernels(trace: TraceBuilder) -> None:
    """4 copies of 25 µs, then 2 kernels of 50."""
    for _ in range(4):
        trace.copy("HtoD", 25)
    trace.launch("gemm", 50)
    trace.launch("gemm", 50)
    trace.sync("device")


def overlapped_us(subject: Subject) -> float:
    return steady_step_ns(edited(subject, "overlap-copies").program) / 1000


def test_copies_whose_data_the_kernels_do_not_use_run_beside_them() -> None:
    trace = run(copies_then_kernels)
    ahead = step_us(trace) - overlapped_us(with_uses(trace, [0, 0, 0, 0] * 4))
    assert ahead == us(100 - 4 * 5)  # the kernels are launched after the copies


def test_a_kernel_waits_for_the_copies_that_it_uses_and_no_others() -> None:
    trace = run(copies_then_kernels)
    of_second = overlapped_us(with_uses(trace, [0, 0, 2, 0] * 4))
    of_first = overlapped_us(with_uses(trace, [0, 0, 1, 0] * 4))
    # The third copy ends after 83 µs; without it, the second kernel begins after 78.
    assert of_second == pytest.approx(overlapped_us(with_uses(trace, [0, 0, 0, 0] * 4)) + 5, abs=2)
    assert of_first == us(of_second + 50)


def test_data_that_the_next_kernel_uses_gain_nothing_in_a_step_that_ends_with_a_wait() -> None:
    trace = run(copies_then_kernels)
    assert overlapped_us(with_uses(trace, [1, 1, 1, 1] * 4)) == pytest.approx(step_us(trace), abs=5)


def test_if_uses_are_not_known_the_next_kernel_is_assumed_to_use_the_copy_and_that_is_told() -> None:
    trace = run(copies_then_kernels)
    subject = edited(subject_of(trace), "overlap-copies")
    assert steady_step_ns(subject.program) / 1000 == pytest.approx(step_us(trace), abs=5)
    assert ASSUMED in subject.notes


def test_second_buffers_are_told() -> None:
    subject = edited(with_uses(run(copies_then_kernels), [0, 0, 0, 0] * 4), "overlap-copies")
    assert subject.notes == ("second buffers take 977 KiB more device memory",)


def test_a_download_that_is_waited_for_stays_a_wait() -> None:
    def body(trace: TraceBuilder) -> None:
        trace.launch("gemm", 60)
        trace.copy("DtoH", 100, memory="Pageable", size=1_000_000)

    subject = edited(subject_of(run(body)), "pin-copies")
    assert int(np.isin(subject.program.instructions.code, SYNCS).sum()) == 4
    assert steady_step_ns(subject.program) / 1000 == us(8 + 60 + 1_000_000 / 55_000 + 1)


# graph


def small(trace: TraceBuilder, count: int = 10, length: float = 2) -> None:
    for _ in range(count):
        trace.launch("gemm", length)


def captured(trace: TraceBuilder, *edits: str) -> list[int]:
    """How many ops each launch has, where it has several."""
    program = edited(subject_of(trace), *edits).program
    counts = np.bincount(program.launcher[program.ops.duration > 0])
    return [int(count) for count in counts if count > 1]


def test_small_kernels_as_a_graph_follow_each_other_at_once() -> None:
    ten = run(lambda trace: small(trace, 10, 4))
    assert step_us(ten) == us(10 * 5)
    # A graph has gaps of 0.22 µs at most, and the stream of these runs none.
    assert step_us(ten, "graph") == us(10 * 4)
    assert captured(ten, "graph") == [10] * 4


def test_a_graph_of_less_than_its_call_takes_is_bound_by_the_host() -> None:
    assert step_us(run(lambda trace: small(trace, 10, 1)), "graph") == us(10 + 10 * 0.4)


def test_a_graph_ends_at_a_wait() -> None:
    def body(trace: TraceBuilder) -> None:
        small(trace)
        trace.item()
        small(trace, 4)

    assert captured(run(body), "graph") == [10, 4] * 4
    assert edited(subject_of(run(body)), "graph").notes == (
        "This needs 2 graphs a step, not one: a graph cannot contain a wait, so a new one begins after each wait",
    )
    assert captured(run(body), "remove-syncs", "graph") == [14] * 4


def test_graphs_of_steps_that_differ_are_told_as_the_fewest_and_the_most() -> None:
    number = iter(range(4))

    def body(trace: TraceBuilder) -> None:
        small(trace)
        if next(number) == 2:
            trace.item()
        small(trace, 4)

    note, *_ = edited(subject_of(run(body)), "graph").notes
    assert note.startswith("This needs 1 to 2 graphs a step, not one: a graph cannot contain a wait")


def test_a_graph_ends_at_a_copy_that_blocks() -> None:
    def body(trace: TraceBuilder) -> None:
        small(trace, 3)
        trace.copy("HtoD", 50, memory="Pageable")
        small(trace, 4)

    assert captured(run(body), "graph") == [3, 4] * 4


def test_a_graph_ends_at_an_upload_even_from_pinned_memory() -> None:
    """A replay would copy what was in the memory of the captured batch."""

    def body(trace: TraceBuilder) -> None:
        small(trace, 3)
        trace.copy("HtoD", 2, memory="Pinned")
        small(trace, 4)

    assert captured(run(body), "graph") == [3, 4] * 4
    assert edited(subject_of(run(body)), "graph").notes == (
        "This needs 2 graphs a step, not one: a graph cannot contain an upload, so a new one begins after each upload",
    )


def test_a_graph_does_not_end_at_an_upload_that_an_earlier_edit_removed() -> None:
    """What takes it apart then is told: here, work of the host that is long."""

    def body(trace: TraceBuilder, pause: float = 0) -> None:
        small(trace, 3)
        with trace.frame("train.py", 50, "table"), trace.op("aten::to"):
            trace.copy("HtoD", 2, memory="Pageable")
            trace.sync("stream")
        trace.work(pause)
        small(trace, 4)

    made = "make-on-device:train.py:50"
    note = "This needs 2 graphs a step, not one: a graph cannot contain"
    assert edited(subject_of(run(body)), "graph").notes[0].startswith(f"{note} a wait or an upload, so")
    assert captured(run(body), made, "graph") == [8] * 4
    late = subject_of(run(lambda trace: body(trace, 1_500)))
    assert edited(late, made, "graph").notes[0] == f"{note} the work in between"


def test_a_graph_ends_with_its_step() -> None:
    assert captured(run(lambda trace: small(trace, 3), steps=2), "graph") == [3, 3]


@pytest.mark.parametrize("edit", ["graph", "graph:train.py:step"])
@pytest.mark.parametrize("within", ["operator", "launch"])
def test_a_graph_leaves_first_uses_as_they_are(edit: str, within: str) -> None:
    """The warm-up before a capture needs them, too. Only the first step has one, of 30 ms."""

    def made(first: float) -> TraceBuilder:
        left = [first]

        def body(trace: TraceBuilder) -> None:
            used = left.pop() if left else 0
            small(trace, 3)
            with trace.op("aten::conv2d"):
                trace.work(used if within == "operator" else 0)
                trace.launch("conv", 2, host_us=5 + (used if within == "launch" else 0))
            small(trace, 3)

        return run(body)

    assert captured(made(30_000), edit) == captured(made(0), edit) == [7] * 4
    assert step_us(made(30_000), edit) - step_us(made(0), edit) == pytest.approx(30_000 / 4, rel=0.01)


def test_a_graph_has_no_launches_of_another_thread() -> None:
    def body(trace: TraceBuilder) -> None:
        with trace.on_thread(900, wait=False):
            for _ in range(6):
                with trace.op("aten::mul"):
                    trace.launch("other", 2, stream=20)
        for _ in range(6):
            with trace.op("aten::add"):
                trace.launch("mine", 2)

    subject = edited(subject_of(run(body)), "graph")
    do = subject.program.instructions
    counts = np.diff(do.ops, prepend=0)
    for row in np.flatnonzero(counts > 1):
        ops = np.arange(do.ops[row] - counts[row], do.ops[row])
        launch = subject.timeline.device.launch[subject.program.ops.device[ops]]
        assert len(np.unique(subject.timeline.host.thread[launch])) == 1


def test_a_graph_of_one_function_is_of_what_it_calls() -> None:
    def body(trace: TraceBuilder) -> None:
        small(trace, 3)
        with trace.frame("model.py", 5, "forward"), trace.frame("model.py", 20, "layer"):
            small(trace, 4)

    assert captured(run(body), "graph:model.py:forward") == [4] * 4


@pytest.mark.parametrize(("waits", "note"), [(False, []), (True, ["This needs 2 graphs a call, not one"])])
def test_a_function_that_a_step_calls_twice_needs_one_graph_for_a_call(waits: bool, note: list[str]) -> None:
    def body(trace: TraceBuilder) -> None:
        for _ in range(2):
            with trace.frame("model.py", 5, "forward"):
                small(trace, 4)
                if waits:
                    trace.item()
                small(trace, 4)
            trace.item()

    notes = edited(subject_of(run(body)), FORWARD).notes
    assert [each.partition(":")[0] for each in notes] == note


def computed(
    *, inside: float = 0, between: float = 0, before: float = 0, behind: float = 0, waits: bool = False
) -> Callable[[TraceBuilder], object]:
    """A function calls another one that launches, and behind both a value is read; work of the host, in µs."""

    def body(trace: TraceBuilder) -> None:
        with trace.frame("train.py", 20, "prepare"):
            trace.work(1 + before)
            with trace.frame("model.py", 5, "forward"):
                trace.work(1 + inside)
                small(trace, 2)
                trace.work(between)
                small(trace, 2)
                if waits:
                    trace.item()
            trace.work(behind)
        if not waits:
            trace.item()

    return body


def with_op(us: float) -> Callable[[TraceBuilder], object]:
    def body(trace: TraceBuilder) -> None:
        trace.work(1)
        with trace.op("aten::mm"):
            trace.work(1 + us)
            small(trace, 4)
        trace.item()

    return body


FORWARD, PREPARE = "graph:model.py:forward", "graph:train.py:prepare"


@pytest.mark.parametrize(
    ("body", "edit"),
    [
        pytest.param(lambda us: computed(inside=us), FORWARD, id="in the function"),
        pytest.param(lambda us: computed(between=us), FORWARD, id="between its launches"),
        pytest.param(lambda us: computed(inside=us), PREPARE, id="in a function that it calls"),
        pytest.param(lambda us: computed(before=us), PREPARE, id="before it calls another one"),
        pytest.param(lambda us: computed(behind=us), PREPARE, id="behind its launches"),
        pytest.param(with_op, "graph", id="in an operator"),
    ],
)
def test_what_a_captured_function_does_goes_with_it(
    body: Callable[[float], Callable[[TraceBuilder], object]], edit: str
) -> None:
    assert step_us(run(body(30)), edit) == us(step_us(run(body(0)), edit))


def annotated(us: float) -> Callable[[TraceBuilder], object]:
    def body(trace: TraceBuilder) -> None:
        with trace.annotation("forward pass"):
            trace.work(1 + us)
            with trace.frame("model.py", 5, "forward"):
                small(trace, 4)
        trace.item()

    return body


def allocating(us: float) -> Callable[[TraceBuilder], object]:
    def body(trace: TraceBuilder) -> None:
        with trace.frame("model.py", 5, "forward"):
            trace.work(1 + us)
            trace.call("cudaMalloc", 10)
            small(trace, 4)
        trace.item()

    return body


@pytest.mark.parametrize(
    ("body", "edit"),
    [
        pytest.param(lambda us: computed(before=us), FORWARD, id="in what calls the function"),
        pytest.param(lambda us: computed(behind=us), FORWARD, id="behind the function"),
        pytest.param(lambda us: computed(inside=us, waits=True), FORWARD, id="in a function that waits"),
        pytest.param(lambda us: computed(inside=us), "graph", id="in no function that was named"),
        pytest.param(annotated, FORWARD, id="in an annotation"),
        pytest.param(allocating, FORWARD, id="with an allocation"),
    ],
)
def test_what_no_graph_does_away_with_stays(
    body: Callable[[float], Callable[[TraceBuilder], object]], edit: str
) -> None:
    assert step_us(run(body(60)), edit) == us(step_us(run(body(30)), edit) + 30)


def test_what_is_left_where_no_function_is_named_is_said() -> None:
    body = computed(inside=30)
    assert any("no function was named" in note for note in edited(subject_of(run(body)), "graph").notes)
    assert not edited(subject_of(run(body)), FORWARD).notes


def test_a_function_of_two_graphs_keeps_what_it_does() -> None:
    """A wait of another stretch's lies between: in outer, not in either of the two that it calls."""

    def body(before: float) -> Callable[[TraceBuilder], object]:
        def made(trace: TraceBuilder) -> None:
            with trace.frame("model.py", 5, "forward"):
                trace.work(1 + before)
                small(trace, 3)
                trace.work(1_500)  # long enough to be no part of a graph
                small(trace, 3)
            trace.item()

        return made

    assert captured(run(body(0)), FORWARD) == [3, 3] * 4
    assert step_us(run(body(30)), FORWARD) == us(step_us(run(body(0)), FORWARD) + 30)


@pytest.mark.parametrize(("file", "graphs"), [("torch/optim/adam.py", [6] * 4), ("train.py", [3, 3] * 4)])
def test_torchs_own_code_cuts_no_graph_however_long_it_runs(file: str, graphs: list[int]) -> None:
    def body(trace: TraceBuilder) -> None:
        small(trace, 3)
        with trace.frame(file, 139, "_init_group"):
            trace.work(1_500)
        small(trace, 3)

    assert captured(run(body), "graph") == graphs


@pytest.mark.parametrize(("file", "graphs"), [("transformers/masking_utils.py", [6] * 4), ("net.py", [3, 3] * 4)])
def test_a_wait_that_code_leaves_out_in_a_capture_cuts_no_graph(file: str, graphs: list[int]) -> None:
    """That code asks whether a capture is running."""

    def body(trace: TraceBuilder) -> None:
        small(trace, 3)
        with trace.frame(file, 331, "_ignore_bidirectional_mask_sdpa"):
            trace.item()
        small(trace, 3)

    assert captured(run(body), "graph") == graphs


def test_a_function_around_a_whole_step_is_no_part_of_its_graph() -> None:
    """One step alone is recorded, within the program's main function."""

    def one(before: float) -> TraceBuilder:
        trace = TraceBuilder(enter_us=0.001, latency_us=3)
        with trace.frame("train.py", 5, "main"):
            for _ in range(2):
                trace.work(5)
            with trace.step():
                trace.work(1 + before)
                small(trace, 4)
        return trace

    edit = "graph:train.py:main"
    assert step_us(one(60), edit) == us(step_us(one(30), edit) + 30)


def test_what_is_a_graph_already_stays_one() -> None:
    subject = subject_of(run(lambda trace: trace.graph([5, 5, 5])))
    done = edited(subject, "graph")
    assert same(done.program, subject.program)
    assert done.notes == ("no stretch of launches could be captured",)


# host-speed, kernel-speed, keep-cache


@pytest.mark.parametrize(("factor", "step"), [("1", 5 + 3 + 100 + 1 + 20), ("2", 2.5 + 3 + 100 + 1 + 10)])
def test_the_host_takes_so_many_times_less(factor: str, step: float) -> None:
    """Not what an op takes to arrive, nor the device."""
    assert step_us(run(read_back), f"host-speed:{factor}") == us(step)


def test_a_host_that_takes_no_time_still_waits() -> None:
    assert step_us(run(read_back), "host-speed:inf") == us(3 + 100 + 1)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("<built-in function sleep>", 3 + 100 + 1 + 20),
        ("<built-in method recv_into of socket object at 0x7f1e>", 3 + 100 + 1 + 20),
        ("<built-in method poll of select.epoll object at 0x7f1e>", 3 + 100 + 1 + 20),
        ("<built-in function read>", 3 + 100 + 1 + 20),  # os.read, of a pipe
        ("<built-in method sendall of socket object at 0x7f1e>", 3 + 100 + 1 + 20),
        ("<built-in method __enter__ of _multiprocessing.SemLock object at 0x7f1e>", 3 + 100 + 1 + 20),
        ("<built-in method readall of _io.FileIO object at 0x7f1e>", 3 + 100 + 1 + 20),
        ("<built-in method read of _io.BufferedReader object at 0x7f1e>", 3 + 100 + 1),  # gzip's decompresses
        ("<built-in method read of _io.TextIOWrapper object at 0x7f1e>", 3 + 100 + 1),
        ("<built-in method select of type object at 0x7f1e>", 3 + 100 + 1),  # torch.select
        ("<built-in function len>", 3 + 100 + 1),
        ("train.py(3): sleep", 3 + 100 + 1),
    ],
)
def test_a_host_that_takes_no_time_still_sleeps(name: str, step: float) -> None:
    def body(trace: TraceBuilder) -> None:
        trace.launch("gemm", 100)
        trace.item()
        with trace.named_frame(name):
            trace.work(20)

    assert step_us(run(body), "host-speed:inf") == us(step)


@pytest.mark.parametrize(("edit", "step"), [("kernel-speed:1", 129), ("kernel-speed:2", 79), ("kernel-speed:0.5", 229)])
def test_kernels_take_so_many_times_less(edit: str, step: float) -> None:
    """The value's copy is no kernel."""
    assert step_us(run(read_back), edit) == us(step)


def test_kernels_of_one_line_take_so_many_times_less() -> None:
    def body(trace: TraceBuilder) -> None:
        trace.launch("mine", 100)
        with trace.frame("model.py", 5, "forward"):
            trace.launch("theirs", 50)

    assert step_us(run(body)) == us(150)
    assert step_us(run(body), "kernel-speed:2:model.py:5") == us(125)


def test_memory_that_is_kept_is_neither_given_back_nor_taken() -> None:
    def body(trace: TraceBuilder) -> None:
        trace.launch("gemm", 100)
        trace.free(20)
        trace.call("cudaMalloc", 30)
        trace.launch("gemm", 100)

    # The free ends 20 µs after the device ran out of work, and the next kernel begins 38 µs after that.
    assert step_us(run(body)) == us(100 + 20 + 30 + 8 + 100)
    assert step_us(run(body), "keep-cache") == us(200)


# Parsing.


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("faster", "there is no edit 'faster'; there are: comm-speed, copy-speed, free-launches, graph,"),
        ("host-speed", "write host-speed:K with a K of 0.001"),
        ("host-speed:0", "write host-speed:K with a K of 0.001"),
        ("host-speed:-2", "write host-speed:K with a K of 0.001"),
        ("host-speed:nan", "write host-speed:K with a K of 0.001"),
        ("kernel-speed:x", "write kernel-speed:K with a K of 0.001"),
        ("kernel-speed:2:train.py", "'train.py' is no place: write FILE:LINE or FILE:LINE:OP"),
        ("remove-syncs:train.py", "'train.py' is no place: write FILE:LINE or FILE:LINE:OP"),
        ("remove-syncs:", "'' is no place: write FILE:LINE or FILE:LINE:OP"),
        ("pin-copies:train.py:step", "'train.py:step' is no place"),
        ("graph:train.py", "'train.py' is no place: write FILE:FUNCTION"),
    ],
)
def test_what_is_no_edit_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(text)
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize("edit", ["remove-syncs:train.py:11", "graph:train.py:other", "pin-copies:-:-:aten::mm"])
def test_a_place_where_nothing_was_recorded_is_refused(edit: str) -> None:
    place = edit.partition(":")[2]
    with pytest.raises(UsageError, match=f"nothing was recorded at {place}"):
        edited(subject_of(run(read_back)), edit)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("remove-syncs:trian.py:10", "train.py:10"),
        ("remove-syncs:train.py:12", "train.py:10"),
        ("graph:train.py:trian", "train.py:train"),
    ],
)
def test_a_place_that_may_have_been_meant_is_told(typed: str, meant: str) -> None:
    trace = TraceBuilder()
    with trace.step(), trace.frame("train.py", 10, "train"), trace.op("aten::mm"):
        small(trace)
    with pytest.raises(UsageError, match=f"did you mean {meant}"):
        edited(subject_of(trace), typed)


def test_a_line_is_no_place_for_a_graph() -> None:
    with pytest.raises(UsageError, match="a graph is of a function"):
        parse("graph:train.py:46")


def test_an_edit_is_a_file() -> None:
    assert names() == [
        "comm-speed",
        "copy-speed",
        "free-launches",
        "graph",
        "host-speed",
        "input-speed",
        "keep-cache",
        "keep-on-device",
        "kernel-speed",
        "leave-out",
        "load-ahead",
        "make-on-device",
        "overlap-comm",
        "overlap-copies",
        "pin-copies",
        "read-later",
        "remove-syncs",
        "reuse-pinned",
        "sleep-speed",
        "startup-speed",
    ]


# read-later


def data_back(trace: TraceBuilder) -> None:
    """A kernel of 100 µs, a copy of 2 MB to pageable memory that takes 200 µs at 10 GB/s, 20 µs of work."""
    trace.launch("gemm", 100)
    with trace.op("aten::to"):
        trace.copy("DtoH", 200, memory="Pageable", size=2_000_000)
    trace.work(20)


def test_data_that_is_read_later_is_copied_at_the_pinned_rate_and_not_waited_for() -> None:
    pinned = 2_000_000 / 55 / 1000 + 1  # what the link of an H200 does
    assert step_us(run(data_back), "read-later") == us(100 + pinned)
    assert step_us(run(data_back), "read-later:train.py:10:aten::to") == us(100 + pinned)


def test_what_is_read_later_leaves_uploads_and_other_waits_as_they_are() -> None:
    def body(trace: TraceBuilder) -> None:
        with trace.op("aten::to"):
            trace.copy("HtoD", 200, memory="Pageable", size=2_000_000)
        trace.launch("gemm", 100)
        trace.sync()
        trace.work(20)

    subject = subject_of(run(body))
    assert same(edited(subject, "read-later").program, subject.program)


# make-on-device, reuse-pinned


def uploads(trace: TraceBuilder, size: int = 1_000) -> None:
    """A copy that the host waits for 12 µs after 20 of work, then two kernels, each in an operator of 5 µs."""
    trace.work(20)
    with trace.op("aten::to"):
        trace.copy("HtoD", 2, memory="Pageable", size=size)
        trace.sync()
    for _ in range(2):
        with trace.op("aten::relu"):
            trace.launch("relu", 1)


def test_what_is_made_on_the_device_is_not_copied_nor_waited_for() -> None:
    before, after = step_us(run(uploads)), step_us(run(uploads), "make-on-device:train.py:10:aten::to")
    host_us = 20 + 3 * 5.001  # the work, and three operators of one kernel
    assert after == pytest.approx(host_us, abs=0.5)
    assert before > after


def test_copying_into_pinned_memory_first_takes_the_host_as_long_as_it_is_large() -> None:
    def body(trace: TraceBuilder) -> None:
        uploads(trace, 1_000_000)

    pinned, reused = (step_us(run(body), edit) for edit in ("pin-copies", "reuse-pinned"))
    assert reused - pinned == us(4 + 1_000_000 / 50 / 1000)


# leave-out


def test_what_is_left_out_takes_its_launches_and_its_waits_with_it() -> None:
    def body(trace: TraceBuilder) -> None:
        trace.launch("gemm", 100)
        with trace.frame("library.py", 5, "check"):
            with trace.op("aten::isfinite"):
                trace.launch("isfinite", 30)
            trace.item()

    assert step_us(run(body)) > 130
    assert step_us(run(body), "leave-out:library.py:check") == us(100)


def test_not_everything_can_be_left_out() -> None:
    with pytest.raises(UsageError, match="leave-out:FILE:FUNCTION"):
        parse("leave-out")


# Laws.


@pytest.mark.parametrize(
    "edit", ["remove-syncs", "pin-copies", "read-later", "overlap-copies", "keep-cache", "load-ahead", "kernel-speed:2"]
)
def test_where_there_is_nothing_of_its_kind_an_edit_changes_nothing(edit: str) -> None:
    def body(trace: TraceBuilder) -> None:
        read_back(trace)
        trace.copy("HtoD", 5, memory="Pageable")
        trace.free(5)
        with trace.frame("other.py", 5, "nothing"):
            trace.work(3)

    subject = subject_of(run(body))
    assert same(edited(subject, f"{edit}:other.py:5").program, subject.program)


@A_FEW
@given(programs(), st.sampled_from(["remove-syncs", "pin-copies", "overlap-copies", "keep-cache", "kernel-speed:2"]))
def test_an_edit_at_a_line_changes_nothing_elsewhere(program: Program, edit: str) -> None:
    """Of calls at other places neither the kind nor the length; nor how long other places' ops take."""
    subject = subject_of(program)
    place = ":train.py:1"
    try:
        done = edited(subject, edit + place)
    except UsageError:
        return  # nothing was recorded there
    elsewhere = ~subject.at(parse_line(place[1:]))
    before, after = subject.program, done.program
    assert (before.instructions.code == after.instructions.code)[elsewhere].all()
    assert (before.instructions.call == after.instructions.call)[elsewhere].all()
    assert (before.ops.duration == after.ops.duration)[elsewhere[before.launcher]].all()


@A_FEW
@given(programs(), st.sampled_from(["host-speed:1", "kernel-speed:1"]))
def test_as_fast_as_before_is_no_change(program: Program, edit: str) -> None:
    subject = subject_of(program)
    assert same(edited(subject, edit).program, subject.program)


@A_FEW
@given(programs(), st.sampled_from(["host-speed", "kernel-speed"]), st.floats(0.1, 10), st.floats(0.1, 10))
def test_the_faster_the_shorter(program: Program, edit: str, one: float, other: float) -> None:
    slow, fast = (
        steady_step_ns(edited(subject_of(program), f"{edit}:{factor}").program)
        for factor in (min(one, other), max(one, other))
    )
    assert fast <= slow + 1


@A_FEW
@given(programs())
def test_removing_waits_never_makes_a_step_longer(program: Program) -> None:
    subject = subject_of(program)
    assert steady_step_ns(edited(subject, "remove-syncs").program) <= steady_step_ns(subject.program) + 1


@A_FEW
@given(programs())
def test_a_graph_leaves_no_more_work_than_there_was(program: Program) -> None:
    subject = subject_of(program)
    before, after = (each.program.instructions.work for each in (subject, edited(subject, "graph")))
    assert (after >= 0).all()
    assert (after <= before).all()


@A_FEW
@given(programs())
def test_no_wait_is_in_a_graph_nor_the_border_of_a_step(program: Program) -> None:
    subject = edited(subject_of(program), "graph")
    do, host = subject.program.instructions, subject.timeline.host
    counts = np.diff(do.ops, prepend=0)
    borders = {*subject.program.step_starts.tolist(), *subject.program.step_ends.tolist()}
    launcher = subject_of(program).program.launcher
    for row in np.flatnonzero(counts > 1):
        if host.kind[do.host[row]] == HostKind.GRAPH_LAUNCH:
            continue
        last = int(launcher[do.ops[row] - 1])  # what launched its last op before
        within = range(row, last + 1)
        assert not borders & set(within)
        assert not np.isin(do.code[within], [*SYNCS, Code.STREAM_WAIT, Code.RECORD]).any()
        assert len(set(do.thread[within].tolist())) == 1
