"""Which reads of the clock are the program's."""

from __future__ import annotations

import inspect
import threading
import timeit
from functools import partial

import pytest

from unstall.guest import instants
from unstall.measuring import benchmark
from unstall.virtual import clock_log
from unstall.virtual.clock_log import ClockLog


def test_a_read_has_the_line_that_reads() -> None:
    log = ClockLog()
    for number in range(2):
        log.add(10 * number)
    (place,) = log.places
    assert place[0].co_name == "test_a_read_has_the_line_that_reads"
    assert log.whole().tolist() == [(0, 0, True), (10, 0, True)]


def test_a_read_of_timeit_is_that_of_its_caller() -> None:
    log = ClockLog()
    timeit.timeit("log.add(7)", globals={"log": log}, number=1)
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    assert [at for _, at in log.places] == [line]


def test_reads_of_unstalls_own_timers_are_left_out() -> None:
    log = ClockLog()
    for file in (benchmark.__file__, instants.__file__):
        exec(compile("log.add(1)", file, "exec"), {"log": log})
    assert len(log.whole()) == 0


@pytest.mark.parametrize(
    ("files", "kept"),
    [
        (["torch/cuda/streams.py"], True),
        (["torch/cuda/streams.py", "triton/testing.py"], True),
        (["torch/cuda/streams.py", "torch/utils/timers.py"], False),
        (["torch/nn/parallel/distributed.py"], False),
    ],
)
def test_a_read_of_a_devices_clock_is_of_the_line_that_wants_it(files: list[str], kept: bool) -> None:
    log = ClockLog()
    read = partial(log.add, 7, of_host=False)
    for file in files:
        scope = {"inner": read}
        exec(compile("def outer(): inner()", f"/usr/lib/python3/site-packages/{file}", "exec"), scope)
        read = scope["outer"]
    read()
    assert log.whole().tolist() == ([(7, 0, False)] if kept else [])
    assert [code.co_name for code, _ in log.places] == [inspect.currentframe().f_code.co_name] * kept  # type: ignore[union-attr]


def test_reads_of_libraries_and_of_other_threads_are_left_out() -> None:
    log = ClockLog()
    exec(compile("log.add(1)", "/usr/lib/python3/site-packages/bar/bar.py", "exec"), {"log": log})
    thread = threading.Thread(target=log.add, args=(2,))
    thread.start()
    thread.join()
    assert len(log.whole()) == 0


def test_a_program_that_reads_all_the_time_is_followed_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    log = ClockLog()
    monkeypatch.setattr(clock_log, "MOST_READS", 3)
    for number in range(5):
        log.add(number)
    assert log.whole()["ns"].tolist() == [0, 1, 2]
