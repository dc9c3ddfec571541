"""What is captured runs when the graph is launched, as one unit, and its parts in the order of the capture."""

from __future__ import annotations

from virtual.races.logs import Log

from unstall.timeline.columns import RaceKind
from unstall.virtual.log import LogCode


def capture(log: Log, *, fork: bool = True, join: bool = True) -> tuple[int, int]:
    """Stream 5 writes 1, stream 6 reads it; the records of both."""
    log.record(LogCode.CAPTURE_BEGIN, 5, a=1)
    if fork:
        log.wait_stream(6, 5, event=11)
    write = log.work(5, writes=(1,))
    if join:
        log.wait_stream(6, 5, event=12)
    read = log.work(6, reads=(1,))
    log.wait_stream(5, 6, event=13)
    log.record(LogCode.CAPTURE_END, 5, a=1)
    return write, read


def test_capturing_is_not_running() -> None:
    log = Log()
    capture(log, join=False)
    log.work(7, writes=(1,))

    assert log.races() == []


def test_nodes_of_two_captured_streams_race_as_streams_do() -> None:
    log = Log()
    write, read = capture(log, join=False)
    first = log.record(LogCode.GRAPH_LAUNCH, 5, a=1)
    log.record(LogCode.GRAPH_LAUNCH, 5, a=1)

    (race,) = log.found()

    assert (race.kind, race.earlier.record, race.later.record) == (RaceKind.READ_EARLY, write, read)
    assert (race.earlier.launch, race.later.launch, race.count) == (first, first, 2)
    assert (race.earlier.stream, race.later.stream) == (5, 6)


def test_events_within_a_graph_order_its_nodes_in_every_launch() -> None:
    log = Log()
    capture(log)
    log.record(LogCode.GRAPH_LAUNCH, 5, a=1)
    log.record(LogCode.GRAPH_LAUNCH, 7, a=1)

    assert log.races() == []


def test_a_launch_is_work_of_its_stream() -> None:
    log = Log()
    write, _ = capture(log)
    launch = log.record(LogCode.GRAPH_LAUNCH, 7, a=1)
    log.work(7, reads=(1,))
    other = log.work(8, reads=(1,))

    (race,) = log.found()

    assert (race.earlier.record, race.earlier.launch, race.later.record) == (write, launch, other)
    assert race.earlier.stream == 7


def test_a_wait_for_the_launching_stream_waits_for_every_node() -> None:
    log = Log()
    capture(log)
    log.record(LogCode.GRAPH_LAUNCH, 7, a=1)
    log.wait_stream(8, 7, event=20)
    log.work(8, writes=(1,))

    assert log.races() == []


def test_every_node_waits_for_what_the_launching_stream_waited_for() -> None:
    log = Log()
    capture(log)
    log.work(8, writes=(1,))
    log.wait_stream(7, 8, event=20)
    log.record(LogCode.GRAPH_LAUNCH, 7, a=1)

    assert log.races() == []


def test_other_streams_run_while_one_captures() -> None:
    log = Log()
    log.record(LogCode.CAPTURE_BEGIN, 5, a=1)
    write = log.work(8, writes=(2,))
    read = log.work(9, reads=(2,))
    log.record(LogCode.CAPTURE_END, 5, a=1)

    assert log.races() == [(RaceKind.READ_EARLY, write, read)]
