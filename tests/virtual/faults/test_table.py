"""Faults in a log become rows of the timeline: their calls, their steps, and what held memory."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from virtual.simulate.logs import MIB, Log
from virtual.simulate.runs import begin

from unstall.read import load
from unstall.timeline.columns import FaultKind, Faults, Held, HostKind, Timeline
from unstall.timeline.fault_details import FaultDetails, unpacked
from unstall.virtual.allocator.out_of_memory import OutOfMemoryError
from unstall.virtual.faults.fault_log import Ended, FaultLog, of_error
from unstall.virtual.faults.held import live
from unstall.virtual.faults.table import details_of
from unstall.virtual.log import LogCode, RawFault
from unstall.virtual.profiler.trace_file import write_trace
from unstall.virtual.simulation.history import Allocated
from unstall.virtual.simulation.requests import Refusal
from unstall.virtual.timeline.steps import with_iterations, with_steps
from unstall.virtual.timeline.window import FOREVER, cut

INDEX: RawFault = (
    "aten::gather",
    "index 9 is out of bounds",
    [("self", "float32", [4])],
    ("index", 9, [0], 0, 4, 1, 2),
)
SAID = "CUDA error: device-side assert triggered\n"


class FullError(RuntimeError):
    """As torch's."""


def fail(log: Log, name: str = "aten::gather", *, device: int = 0, stream: int = 0, raw: RawFault = INDEX) -> None:
    """An operator whose kernel fails."""
    with log.op(name):
        log.write(LogCode.ASSERT, len(log.failed), device=device, stream=stream, id=log.name(name))
        log.failed.append(raw)
        log.launch(1_000, stream=stream, device=device)


def notice(log: Log, fault: int = 0, device: int = 0) -> None:
    with log.op("aten::item"):
        log.write(LogCode.SYNC_DEVICE, device=device)
        log.write(LogCode.NOTICE, fault, device=device)


def one(*, ended: bool = True) -> Timeline:
    log, simulator = begin()
    log.launch(1_000)
    fail(log, stream=7)
    notice(log)
    simulator.ended_by(RuntimeError(SAID) if ended else KeyError("something else"))
    return simulator.timeline()


def names(timeline: Timeline, rows: np.ndarray) -> list[str]:
    return [timeline.strings[timeline.host.name[row]] if row >= 0 else "" for row in rows.tolist()]


def test_the_call_is_the_operator_and_the_notice_is_where_the_error_was_raised() -> None:
    timeline = one()
    faults = timeline.faults

    assert (faults.kind.tolist(), faults.device.tolist()) == ([FaultKind.INDEX], [0])
    assert names(timeline, faults.call) == ["aten::gather"]
    assert names(timeline, faults.noticed) == ["cudaGetLastError"]
    assert names(timeline, timeline.host.parent[faults.noticed]) == ["aten::item"]
    assert timeline.streams.stream[faults.stream].tolist() == [7]


def test_the_details_are_what_the_shim_saw() -> None:
    details = unpacked(one().text(int(one().faults.details[0])))

    assert details == details_of(INDEX)
    assert details is not None
    assert details.wrong is not None
    assert (details.wrong.value, details.wrong.bound, details.wrong.count, details.wrong.of) == (9, 4, 1, 2)


@pytest.mark.parametrize("ended", [True, False])
def test_the_programs_last_error_says_whether_it_ended_it(ended: bool) -> None:
    assert one(ended=ended).faults.ended.tolist() == [ended]


def test_of_two_devices_the_one_noticed_last_ended_the_program() -> None:
    log, simulator = begin(devices=2)
    fail(log, device=1)
    fail(log, device=0)
    notice(log, 1, device=0)
    notice(log, 0, device=1)
    simulator.ended_by(RuntimeError(SAID))
    faults = simulator.timeline().faults

    assert (faults.device.tolist(), faults.ended.tolist()) == ([1, 0], [True, False])


def test_work_of_a_graph_is_where_it_was_captured_and_where_it_was_replayed() -> None:
    log, simulator = begin()
    log.write(LogCode.CAPTURE_BEGIN, 1, stream=7)
    for node in (0, 1):
        with log.op(f"aten::captured{node}"):
            log.launch(1_000, stream=7)
            row = list(log.rows[-1])
            row[2] = node  # a: the number of the node
            log.rows[-1] = tuple(row)
    log.write(LogCode.CAPTURE_END, 1, stream=7)
    log.write(LogCode.GRAPH_LAUNCH, 1)
    log.write(LogCode.GRAPH_LAUNCH, 1)
    log.failed.append(INDEX)
    log.write(LogCode.ASSERT, 0, 1, id=log.name("aten::captured1"))
    timeline = simulator.timeline()
    faults = timeline.faults

    assert names(timeline, timeline.host.op[faults.call]) == ["aten::captured1"]
    assert names(timeline, faults.replay) == ["cudaGraphLaunch"]
    launches = np.flatnonzero(timeline.host.kind == HostKind.GRAPH_LAUNCH)
    assert faults.replay.tolist() == [launches[-1]]


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("aten::index_select", FaultKind.INDEX),
        ("aten::nll_loss2d_forward", FaultKind.CLASS),
        ("aten::bernoulli_", FaultKind.PROBABILITY),
        ("aten::multinomial", FaultKind.WEIGHT),
        ("aten::_assert_async", FaultKind.ASSERTION),
        ("aten::poisson", FaultKind.OTHER),
    ],
)
def test_the_kernel_says_what_kind_it_is(kernel: str, kind: FaultKind) -> None:
    log, simulator = begin()
    fail(log, raw=(kernel, "said", [], None))

    assert simulator.timeline().faults.kind.tolist() == [kind]


def test_nan_is_kept_as_text() -> None:
    details = details_of(("aten::multinomial", "", [], ("self", float("nan"), [1], None, None, 1, 3)))

    assert details.wrong is not None
    assert details.wrong.value == "nan"


def loop(*, whole: int, marked: int) -> Timeline:
    """Steps of three launches each, the next of which fails in its second; the first `marked` are marked as steps."""
    log, simulator = begin()
    ends = []
    for _ in range(whole):
        for name in ("aten::mm", "aten::gather", "aten::add"):
            with log.op(name):
                log.launch(1_000)
        log.write(LogCode.SYNC_DEVICE)
        ends.append(simulator.now_ns())
    with log.op("aten::mm"):
        log.launch(1_000)
    fail(log)
    notice(log)
    return with_steps(simulator.timeline(), ends[:marked])


def test_the_step_that_fails_is_one_more_than_those_that_are_whole() -> None:
    assert with_iterations(loop(whole=5, marked=5)).faults.iteration.tolist() == [6]


def test_work_behind_the_steps_that_they_never_did_has_no_step() -> None:
    log, simulator = begin()
    ends = []
    for _ in range(5):
        with log.op("aten::mm"):
            log.launch(1_000)
        log.write(LogCode.SYNC_DEVICE)
        ends.append(simulator.now_ns())
    fail(log)

    assert with_iterations(with_steps(simulator.timeline(), ends)).faults.iteration.tolist() == [-1]


def test_without_steps_none_is_counted() -> None:
    assert with_iterations(one()).faults.iteration.tolist() == [-1]


def test_a_part_keeps_the_faults_of_what_it_launched() -> None:
    timeline = one()
    failed = int(timeline.host.start[timeline.faults.call[0]])
    before, after = cut(timeline, 0, failed), cut(timeline, failed, FOREVER)

    assert (len(before.faults), len(after.faults)) == (0, 1)
    assert names(after, after.faults.call) == ["aten::gather"]
    assert names(after, after.faults.noticed) == ["cudaGetLastError"]


@pytest.mark.parametrize("name", ["run.timeline", "run.json.gz"])
def test_a_file_keeps_them(name: str, tmp_path: Path) -> None:
    given = full()
    if name == "run.timeline":
        given.save(tmp_path / name)
    else:
        write_trace(given, tmp_path / name)
    found = load(tmp_path / name)

    assert facts(found) == facts(given)
    assert len(found.faults) == 2
    assert found.held.bytes.sum() > 0


def facts(timeline: Timeline) -> dict[str, Any]:
    faults, held = timeline.faults, timeline.held
    streams = [int(timeline.streams.stream[row]) if row >= 0 else -1 for row in faults.stream.tolist()]
    return {
        **{name: names(timeline, getattr(faults, name)) for name in ("call", "replay", "noticed")},
        **{name: getattr(faults, name).tolist() for name in ("kind", "device", "iteration", "ended")},
        "details": [unpacked(timeline.text(row)) for row in faults.details.tolist()],
        "streams": streams,
        "held": (names(timeline, held.call), held.bytes.tolist(), held.count.tolist()),
    }


def test_a_timeline_saved_before_there_were_faults_has_none(tmp_path: Path) -> None:
    full().save(tmp_path / "new.timeline")
    with zipfile.ZipFile(tmp_path / "new.timeline") as new, zipfile.ZipFile(tmp_path / "old.timeline", "w") as old:
        for name in new.namelist():
            if not name.startswith(("faults.", "held.")):
                old.writestr(name, new.read(name))
    found = load(tmp_path / "old.timeline")

    assert (len(found.faults), len(found.held)) == (0, 0)


def full() -> Timeline:
    """A fault that was caught, and then an operator that asks for more memory than there is, which ends the program."""
    log, simulator = begin(total_bytes=100 * MIB)
    fail(log, stream=7)
    notice(log)
    with log.op("aten::empty"):
        log.free(log.malloc(30 * MIB))
        log.write(LogCode.EMPTY_CACHE)
        log.malloc(40 * MIB)
    for _ in range(2):
        with log.op("aten::linear"):
            log.malloc(20 * MIB)
            log.launch(10, workspaces=(("cublas", 2 * MIB),))
    with log.op("aten::cat"):
        log.malloc(50 * MIB)
    simulator.now_ns()
    simulator.ended_by(log.raised[-1])
    return simulator.timeline()


def test_the_refusal_that_ends_the_program_is_the_last_row() -> None:
    timeline = full()

    assert timeline.faults.kind.tolist() == [FaultKind.INDEX, FaultKind.MEMORY]
    assert (names(timeline, timeline.faults.call), timeline.faults.ended.tolist()) == (
        ["aten::gather", "aten::cat"],
        [False, True],
    )
    details = unpacked(timeline.text(int(timeline.faults.details[1])))
    assert isinstance(details, FaultDetails)
    assert details.check.startswith("CUDA out of memory. Tried to allocate 50.00 MiB.")


def test_what_is_not_freed_holds_the_memory_and_the_largest_part_comes_first() -> None:
    timeline = full()

    assert names(timeline, timeline.held.call) == ["aten::linear", "aten::empty"]
    assert (timeline.held.bytes // MIB).tolist() == [42, 40]
    assert timeline.held.count.tolist() == [3, 1]


def test_a_refusal_that_did_not_end_the_program_is_no_fault() -> None:
    log, simulator = begin(total_bytes=100 * MIB)
    log.malloc(200 * MIB)
    timeline = simulator.timeline()

    assert len(log.raised) == 1
    assert (len(timeline.faults), len(timeline.held)) == (0, 0)


def test_an_allocation_lives_from_its_record_until_that_of_its_free() -> None:
    of_launch = (2, 2, 2)  # a workspace of 8, and 3 of temporary memory
    allocated = Allocated(
        record=np.array([0, 1, *of_launch, 3]),
        device=np.array([0, 1, 0, 0, 0, 0]),
        size=np.array([10, 20, 8, 3, -3, -10]),
        reserved=np.zeros(6, np.int64),
        address=np.array([64, 64, 32, 16, 16, 64]),
    )

    assert [part.tolist() for part in live(allocated, 0, 3)] == [[0, 2], [10, 8]]
    assert [part.tolist() for part in live(allocated, 0, 4)] == [[2], [8]]
    assert [part.tolist() for part in live(allocated, 1, 4)] == [[1], [20]]


def asked_for(*sizes: int, ended_by: int) -> list[str]:
    """The operators that the timeline tells as faults, if the program asks for so many MiB, one after the other, and
    ends by one of the errors.
    """
    log, simulator = begin(total_bytes=100 * MIB)
    for number, size in enumerate(sizes):
        with log.op(f"aten::ask_{number}"):
            log.malloc(size * MIB)
    simulator.now_ns()
    simulator.ended_by(log.raised[ended_by])
    timeline = simulator.timeline()
    return names(timeline, timeline.faults.call)


def test_an_error_that_the_program_raises_again_is_that_of_its_own_request() -> None:
    """Though a later request, for less, failed too."""
    assert asked_for(300, 200, 150, ended_by=0) == ["aten::ask_0"]
    assert asked_for(300, 200, 150, ended_by=1) == ["aten::ask_1"]


def test_of_requests_with_one_text_the_one_at_the_errors_line_ended_the_program() -> None:
    log = FaultLog()
    log.refused += [Refusal(record, 0, 0, OutOfMemoryError("full")) for record in range(3)]
    try:
        raise FullError("full")
    except FullError as error:
        raised, at = error, (__file__, error.__traceback__.tb_lineno if error.__traceback__ else 0)
    lines = {0: (__file__, 1), 1: at, 2: None}
    log.end_by(raised, FullError, lambda refusal: lines[refusal.record])
    assert log.refusal is log.refused[1]
    log.end_by(raised, FullError, lambda refusal: None)
    assert log.refusal is log.refused[2]


def kind_of(error: BaseException) -> Ended | None:
    found = of_error(error, FullError)
    return found[0] if found else None


def test_the_error_that_ends_a_program_is_looked_for_in_what_it_came_from() -> None:
    fault, plain = RuntimeError(SAID), ValueError("no more")
    plain.__cause__ = KeyError("a key")
    plain.__cause__.__context__ = fault

    assert kind_of(plain) == kind_of(fault) == Ended.FAULT
    assert kind_of(FullError("full")) == Ended.MEMORY
    assert kind_of(ValueError("else")) is None


def test_an_error_that_goes_round_in_circles_ends_the_search() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__context__, second.__context__ = second, first

    assert kind_of(first) is None


def test_columns_of_no_faults_have_the_types_of_the_table() -> None:
    full_faults, full_held = full().faults, full().held

    for table, none in ((full_faults, Faults.none()), (full_held, Held.none())):
        for column in table.__struct_fields__:
            assert getattr(table, column).dtype == getattr(none, column).dtype, column
