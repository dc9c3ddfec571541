"""What a program reads off its clocks while the virtual one goes."""

from __future__ import annotations

import inspect
import itertools
import pickle
import sys
import time
import timeit
import traceback
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest

from unstall.guest import instants
from unstall.guest.instants import LateRead
from unstall.measuring import benchmark
from unstall.measuring.stopwatch import Stopwatch
from unstall.virtual.program_clock import ProgramClock

_MACHINES = (time.perf_counter, time.perf_counter_ns, time.time, time.time_ns, time.sleep, timeit.default_timer)


class Ticking:
    """A virtual clock that stands still but when told to go on."""

    def __init__(self) -> None:
        self.ns = 1_000
        self.not_charged = 0

    def now_ns(self) -> int:
        time.time()  # as a warning on the way would, or a log
        return self.ns

    def read_late(self, offset_ns: int) -> LateRead:
        return Later(self, offset_ns)

    def advance(self, ns: int) -> None:
        self.ns += ns

    def not_charged_ns(self) -> int:
        return self.not_charged


class Later:
    """A read that tells when it is asked."""

    def __init__(self, clock: Ticking, offset_ns: int) -> None:
        self._clock, self._offset_ns = clock, offset_ns

    def ns(self) -> int:
        return self._clock.ns + self._offset_ns


@pytest.fixture
def virtual() -> Ticking:
    return Ticking()


@pytest.fixture
def clock(virtual: Ticking) -> Iterator[ProgramClock]:
    clock = ProgramClock()
    clock.install()
    clock.start(virtual)
    yield clock
    clock.remove()


@pytest.mark.parametrize(
    ("read", "second"),
    [
        ("perf_counter", 1.0),
        ("perf_counter_ns", 10**9),
        ("time", 1.0),
        ("time_ns", 10**9),
    ],
)
def test_time_goes_by_as_on_the_virtual_clock(clock: ProgramClock, virtual: Ticking, read: str, second: float) -> None:
    before = getattr(time, read)()
    assert getattr(time, read)() == before
    virtual.ns += 10**9
    assert getattr(time, read)() - before == pytest.approx(second, rel=1e-6)


def test_default_timers_of_timeit_are_virtual(clock: ProgramClock, virtual: Ticking) -> None:
    def statement() -> None:
        virtual.ns += 2_000

    assert timeit.timeit(statement, number=500) == pytest.approx(1e-3)
    assert min(timeit.Timer(statement).repeat(2, 10)) == pytest.approx(20e-6)
    before = timeit.default_timer()
    virtual.ns += 5_000
    assert timeit.default_timer() - before == pytest.approx(5e-6, rel=1e-3)


def test_sleeping_takes_the_time_asked_for_on_both_clocks(clock: ProgramClock, virtual: Ticking) -> None:
    real, before = time.monotonic(), time.perf_counter_ns()
    time.sleep(0.01)
    assert time.perf_counter_ns() - before == 10_000_000
    assert time.monotonic() - real >= 0.009


@pytest.mark.skipif(find_spec("unstall.guest._after") is None, reason="the extension is not built here")
def test_its_functions_are_no_methods_of_whose_attribute_they_are_and_are_pickled(clock: ProgramClock) -> None:
    class Stopwatch:
        now, wall, rest = time.perf_counter, time.time, time.sleep

    watch: Any = Stopwatch()
    assert watch.now() <= time.perf_counter()
    assert watch.wall() <= time.time()
    watch.rest(0)
    for function in (time.perf_counter, time.perf_counter_ns, time.time, time.time_ns, time.sleep):
        assert pickle.loads(pickle.dumps(function)) is function
        assert inspect.getdoc(function)


@pytest.mark.skipif(find_spec("unstall.guest._after") is None, reason="the extension is not built here")
def test_what_sleeping_raises_has_no_frame_of_ours(clock: ProgramClock) -> None:
    with pytest.raises(ValueError, match="non-negative") as raised:
        time.sleep(-1)
    assert [entry.name for entry in traceback.extract_tb(raised.tb)] == [
        "test_what_sleeping_raises_has_no_frame_of_ours"
    ]


def test_the_clock_goes_on_from_the_machines_and_never_jumps(virtual: Ticking) -> None:
    clock = ProgramClock()
    clock.install()
    try:
        readings = [time.perf_counter()]
        clock.start(virtual)
        readings.append(time.perf_counter())
        virtual.ns += 3 * 10**9
        readings.append(time.perf_counter())
        clock.stop()
        readings.append(time.perf_counter())
    finally:
        clock.remove()
    jumps = [after - before for before, after in itertools.pairwise(readings)]
    assert jumps == pytest.approx([0, 3, 0], abs=0.5)
    assert min(jumps) >= 0


def test_a_users_module_that_copied_a_function_before_has_the_virtual_one_meanwhile(virtual: Ticking) -> None:
    module = ModuleType("training")
    module.__file__ = "/home/somebody/training.py"
    module.clock, module.other = time.perf_counter, time.monotonic  # type: ignore[attr-defined]
    sys.modules["training"] = module
    clock = ProgramClock()
    try:
        clock.install()
        clock.start(virtual)
        assert module.clock is time.perf_counter is not _MACHINES[0]
        assert module.other is time.monotonic
        clock.remove()
        assert module.clock is _MACHINES[0]
    finally:
        clock.remove()
        del sys.modules["training"]


def test_afterwards_all_is_as_it_was_and_a_copy_reads_the_machines_clock(virtual: Ticking) -> None:
    clock = ProgramClock()
    clock.install()
    clock.start(virtual)
    copied = time.perf_counter
    clock.remove()
    now = (time.perf_counter, time.perf_counter_ns, time.time, time.time_ns, time.sleep, timeit.default_timer)
    assert now == _MACHINES
    assert timeit.timeit.__defaults__ is not None
    assert _MACHINES[0] in timeit.timeit.__defaults__
    assert copied() == pytest.approx(time.perf_counter(), abs=1)


def test_work_that_the_clock_does_not_charge_is_told_once_at_the_line_that_reads_it(
    clock: ProgramClock, virtual: Ticking, capsys: pytest.CaptureFixture[str]
) -> None:
    time.perf_counter()
    virtual.not_charged = 460_000_000
    time.perf_counter()
    virtual.not_charged *= 2
    time.perf_counter()
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert f"{__file__}:" in told[0]
    assert "460 ms of work here took no time on the virtual clock" in told[0]


def test_if_a_library_reads_the_clock_it_is_told_at_the_line_of_the_program_that_used_it(
    clock: ProgramClock, virtual: Ticking, capsys: pytest.CaptureFixture[str]
) -> None:
    profiler = "/usr/lib/python3.11/site-packages/torch/autograd/profiler.py"
    time.perf_counter()
    virtual.not_charged = 460_000_000
    exec(compile("time.perf_counter()", profiler, "exec"), {"time": time})
    assert capsys.readouterr().err.startswith(f"unstall: {__file__}:")


def test_a_stopwatch_is_told_of_work_that_is_not_charged(
    clock: ProgramClock, virtual: Ticking, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    with Stopwatch(show=False):
        virtual.not_charged = 460_000_000
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"unstall: rank 3: {__file__}:")
    assert "460 ms of work here took no time on the virtual clock" in told


def test_bench_is_not_told_of_work_that_is_not_charged(
    clock: ProgramClock, virtual: Ticking, capsys: pytest.CaptureFixture[str]
) -> None:
    time.perf_counter()
    virtual.not_charged = 460_000_000
    assert benchmark.__file__ is not None
    exec(compile("time.perf_counter()", benchmark.__file__, "exec"), {"time": time})
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("free_ns", "passed_ns"), [(9_000_000, 0), (460_000_000, 500_000_000)])
def test_little_work_that_is_not_charged_is_not_told(
    clock: ProgramClock, virtual: Ticking, capsys: pytest.CaptureFixture[str], free_ns: int, passed_ns: int
) -> None:
    time.perf_counter()
    virtual.ns += passed_ns
    virtual.not_charged = free_ns
    time.perf_counter()
    assert capsys.readouterr().err == ""


def test_work_before_the_first_read_is_not_told(
    clock: ProgramClock, virtual: Ticking, capsys: pytest.CaptureFixture[str]
) -> None:
    virtual.not_charged = 460_000_000
    time.perf_counter()
    assert capsys.readouterr().err == ""


def test_helpers_time_themselves_by_the_programs_clock_and_are_not_its_readers(
    clock: ProgramClock, virtual: Ticking
) -> None:
    before = time.perf_counter_ns()
    at = instants.instant()
    assert not isinstance(at, int)
    assert at.ns() == before
    assert len(clock.log.whole()) == 1
    clock.remove()
    assert isinstance(instants.instant(), int)
