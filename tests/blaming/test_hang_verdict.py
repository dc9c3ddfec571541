"""Where streams stand that are not done, by the ring and by what the driver answers."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the ring is there for Linux alone")

from blaming.device import PROGRAM, Device, device, kernel, record, wait  # noqa: E402

from unstall.blaming import _blame  # noqa: E402
from unstall.blaming.hangs.answers import DONE, NOT_ASKED, NOT_READY, Answer  # noqa: E402
from unstall.blaming.hangs.verdict import standing  # noqa: E402
from unstall.blaming.result import Standing  # noqa: E402
from unstall.blaming.ring import GRAPH, KERNEL, WAIT_VALUE, WRITE_VALUE  # noqa: E402


def wait_value(stream: int, address: int) -> str:
    return f"work({WAIT_VALUE}, {stream}, None, {address})"


def write_value(stream: int, address: int) -> str:
    return f"work({WRITE_VALUE}, {stream}, None, {address})"


def ran(on: Device, *lines: str) -> None:
    """Runs a program of these lines, which goes on."""
    exec(compile("\n".join(lines), PROGRAM, "exec"), {"work": _blame.work, "put": on.launched})


def told(on: Device, results: Sequence[int]) -> list[Standing]:
    """Where streams stand, if the driver answers this for each, in the order of their first work."""
    ring = on.ring()
    last = tuple(int(row["last"]) for row in ring.tables["streams"])
    return list(standing(ring, Answer(tuple(results), last)))


def line(each: Standing) -> int | None:
    return each.work.where.line if each.work and each.work.where else None


def test_a_stream_is_at_the_line_behind_the_last_mark_that_came() -> None:
    with device() as on:
        ran(on, kernel(1, "add"), kernel(1, "spin"), kernel(1, "mul"))
        on.does(1, 1)
        (each,) = told(on, [NOT_READY])
    assert each.work is not None
    assert (each.waits, line(each), each.work.work, each.work.others) == ("kernel", 2, ("spin",), ())


def test_a_stream_that_the_driver_says_is_done_is_not_told() -> None:
    with device() as on:
        ran(on, kernel(1), kernel(2))
        (each,) = told(on, [NOT_READY, DONE])
    assert each.stream == "stream 0x1"


def test_without_marks_between_them_all_lines_are_candidates() -> None:
    with device() as on:
        on.refuses = True
        ran(on, kernel(1, "add"), kernel(1, "spin"), kernel(1, "mul"))
        (each,) = told(on, [NOT_READY])
    assert each.work is not None
    assert [line(each), *(other.line for other in each.work.others)] == [1, 2, 3]


def test_of_several_candidates_a_kernel_of_torchs_is_the_least_likely() -> None:
    with device() as on:
        on.refuses = True
        ran(on, kernel(1, "_ZN2at6native6vectorized"), kernel(1, "spin"))
        (each,) = told(on, [NOT_READY])
    assert each.work is not None
    assert [line(each), *(other.line for other in each.work.others)] == [2, 1]


def test_the_last_work_of_a_stream_that_cannot_be_asked_may_be_done() -> None:
    with device() as on:
        ran(on, kernel(1))
        (each,) = told(on, [NOT_ASKED])
    assert not each.is_sure


def test_a_wait_for_an_event_names_the_line_that_recorded_it() -> None:
    with device() as on:
        ran(on, kernel(1, "spin"), record(1, 5), wait(2, 5), kernel(2, "add"))
        spins, waits = told(on, [NOT_READY, NOT_READY])
    assert (line(spins), spins.waits) == (1, "kernel")
    assert waits.on is not None
    assert (line(waits), waits.waits, waits.on.line, waits.on_stream) == (3, "event", 2, "stream 0x1")


def test_a_wait_for_an_event_behind_nothing_holds_nothing_up() -> None:
    with device() as on:
        ran(on, record(1, 5), wait(2, 5), kernel(2, "spin"))
        (each,) = told(on, [DONE, NOT_READY])
    assert (line(each), each.waits) == (3, "kernel")


def test_two_streams_that_wait_for_each_others_value_are_told_to_do_so() -> None:
    with device() as on:
        ran(on, wait_value(1, 64), write_value(1, 128), wait_value(2, 128), write_value(2, 64))
        one, two = told(on, [NOT_READY, NOT_READY])
    assert (one.circular, two.circular) == (True, True)
    assert one.on is not None
    assert two.on is not None
    assert [(line(one), one.on.line), (line(two), two.on.line)] == [(1, 4), (3, 2)]


def test_a_value_that_no_stream_is_to_write_has_no_line() -> None:
    with device() as on:
        ran(on, wait_value(1, 64), kernel(1, "add"))
        (each,) = told(on, [NOT_READY])
    assert (each.waits, line(each), each.on) == ("value", 1, None)


def test_work_behind_a_value_that_came_is_what_the_stream_is_at() -> None:
    with device() as on:
        ran(on, kernel(1, "add"), wait_value(1, 64), kernel(1, "spin"))
        on.does(1, 1)
        (each,) = told(on, [NOT_READY])
    assert (each.waits, line(each)) == ("kernel", 3)


def test_an_event_behind_a_value_that_never_comes_is_held_up() -> None:
    with device() as on:
        ran(on, wait_value(1, 64), record(1, 5), wait(2, 5), kernel(2, "add"))
        one, two = told(on, [NOT_READY, NOT_READY])
    assert {one.waits: line(one), two.waits: line(two)} == {"value": 1, "event": 3}


def test_a_replay_is_told_by_the_line_that_was_captured() -> None:
    captured = f"work({KERNEL}, 1, 'spin', 0, 77)"
    with device() as on:
        ran(on, captured, f"work({GRAPH}, 1, None); put(1)")
        on.does(1, 0)
        (each,) = told(on, [NOT_READY])
    assert each.work is not None
    assert each.work.replayed is not None
    assert (each.waits, line(each), each.work.replayed.line, each.work.work) == ("graph", 1, 2, ("spin",))


def test_a_kernel_of_nccl_is_a_collective() -> None:
    with device() as on:
        ran(on, kernel(1, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"))
        (each,) = told(on, [NOT_READY])
    assert each.waits == "collective"


def test_the_default_stream_may_be_called_not_done_for_the_work_of_others() -> None:
    with device() as on:
        ran(on, kernel(0, "add"), kernel(7, "spin"))
        first, second = told(on, [NOT_READY, NOT_READY])
    assert [(first.stream, first.is_sure), (second.stream, second.is_sure)] == [
        ("stream 0x7", True),
        ("the default stream", False),
    ]
