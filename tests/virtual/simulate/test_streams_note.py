"""The note on kernels of several streams: whether they had room beside each other."""

from __future__ import annotations

from types import CodeType

from virtual.simulate.logs import Log
from virtual.simulate.runs import begin

from unstall.virtual.log import LogCode
from unstall.virtual.simulation.collectives import Call, Group, Meeting
from unstall.virtual.simulation.simulator import Simulator

_LINES = compile("small\n\nlarge", "train.py", "exec")


def _note(simulator: Simulator) -> str | None:
    notes = [note for note in simulator.timeline().meta.notes if note.startswith("kernels of ")]
    assert len(notes) <= 1
    return notes[0] if notes else None


def _at(log: Log, line: int) -> None:
    """Makes the next records come from that line of train.py."""
    code: CodeType = _LINES
    offset = next(start for start, _, at in code.co_lines() if at == line)
    log.frames.append(((code, offset),))
    log.stack = len(log.frames) - 1


def test_kernels_that_leave_room_ran_side_by_side() -> None:
    log, simulator = begin()
    _at(log, 1)
    log.launch(100_000, share=200, name="void small<4>(int)")
    _at(log, 3)
    log.launch(300_000, share=600, stream=3, name="void large<4>(int)")

    # Beside the small one, for 98 us, the large one has three sevenths of its rate.
    assert _note(simulator) == (
        "kernels of 2 streams ran side by side, since they leave each other room: in the whole run they took 358 µs "
        "together, and take 400 µs one after the other. The longest, large at train.py:3, uses 60.0 % of the device"
    )


def test_a_kernel_that_fills_the_device_makes_the_other_stream_wait() -> None:
    log, simulator = begin()
    log.launch(100_000)
    log.launch(10_000, stream=3)

    assert _note(simulator) == (
        "kernels of 2 streams wait for each other, and streams gain nothing, since they leave each other no room: in "
        "the whole run they took 110 µs together, and take 110 µs one after the other. The longest, kernel, uses "
        "100 % of the device"
    )


def test_kernels_of_one_stream_have_no_note() -> None:
    log, simulator = begin()
    log.launch(100_000)
    log.launch(100_000)

    assert _note(simulator) is None


def test_streams_that_never_meet_have_no_note() -> None:
    log, simulator = begin()
    log.launch(100_000)
    log.write(LogCode.EVENT_RECORD, 1)
    log.write(LogCode.EVENT_WAIT, 1, stream=3)
    log.launch(100_000, stream=3)

    assert _note(simulator) is None


def test_kernels_of_two_devices_have_no_note() -> None:
    log, simulator = begin(devices=2)
    log.launch(100_000)
    log.launch(100_000, device=1)

    assert _note(simulator) is None


def test_a_kernel_of_nccl_beside_others_has_no_note() -> None:
    log, simulator = begin()
    log.launch(100_000)
    number = simulator.collective(
        [Call("allreduce", "float32", "sum", 100, 100, -1)], Group("0", "", 0, (0, 1)), 1, Meeting(0, 90_000, 0)
    )
    log.write(LogCode.COLLECTIVE, a=number, stream=3)

    assert _note(simulator) is None
