"""Calls are timed by the pointers that libraries call a driver through, and all is as it was before, afterwards."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from unstall.recording import host_only
from unstall.recording.host_only import HostOnly
from unstall.recording.journal import Journal

_interpose = pytest.importorskip(
    "unstall.recording._interpose", reason="the C extension is not built", exc_type=ImportError
)
_COMPILER = shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0])
_TIMED_BY = [False, True] if host_only._counter_is_clock() else [False]
pytestmark = pytest.mark.skipif(_COMPILER is None, reason="there is no C compiler")

_DRIVER = """
#include <unistd.h>
typedef long W;
W sum(W a, W b, W c, W d, W e, W f, W g, W h, W i, W j, W k)
{ return a + 2*b + 3*c + 4*d + 5*e + 6*f + 7*g + 8*h + 9*i + 10*j + 11*k; }
W twice(int a) { return 2 * a; }
W nap(W us) { usleep(us); return us; }
W through(W (*back)(int), int a) { return back(a) + 1; }
W cuCtxSynchronize(void) { return 0; }
"""
# Pointers in .data and .bss.
_RUNTIME = """
#include <dlfcn.h>
#include <sys/mman.h>
typedef long W;
static W (*sum)(W, W, W, W, W, W, W, W, W, W, W);
static W (*twice)(int) = (W (*)(int))1;
static W (*nap)(W), (*through)(W (*)(int), int), (*synchronize)(void);
static W sealed[1024] __attribute__((aligned(4096)));
static long large[1 << 20];
int load(const char *path)
{
    void *driver = dlopen(path, RTLD_NOW);
    sum = dlsym(driver, "sum");
    twice = dlsym(driver, "twice");
    nap = dlsym(driver, "nap");
    through = dlsym(driver, "through");
    synchronize = dlsym(driver, "cuCtxSynchronize");
    large[sizeof large / sizeof *large - 1] = (long)sum;
    return driver != 0;
}
W call_sum(W a) { return sum(a, a, a, a, a, a, a, a, a, a, a); }
W call_last(W a)
{
    W (*last)(W, W, W, W, W, W, W, W, W, W, W) = (void *)large[sizeof large / sizeof *large - 1];
    return last(a, 0, 0, 0, 0, 0, 0, 0, 0, 0, a);
}
W call_twice(int a) { return twice(a); }
W call_nap(W us) { return nap(us); }
W call_through(int a) { return through(call_twice, a); }
W call_synchronize(void) { return synchronize(); }
W *where(void) { return (W *)&twice; }
void fill(void) { sealed[512] = (W)twice; }
void empty(void) { sealed[512] = 0; }
void seal(int so) { mprotect(sealed, sizeof sealed, so ? PROT_READ : PROT_READ | PROT_WRITE); }
W call_sealed(int a) { return ((W (*)(int))sealed[512])(a); }
"""
# Linked against the driver, its address in a table that the loader makes read-only.
_LINKED = """
typedef long W;
W twice(int a);
W linked_twice(int a) { return twice(a); }
"""
_FUNCTIONS = {7: "sum", 8: "twice", 9: "nap", 10: "through", 11: "missing"}
_CALL = np.dtype([("start", "<u8"), ("end", "<u8"), ("what", "<u4"), ("thread", "<u4")])
_POINTERS = 5


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ctypes.CDLL]:
    """The path of a driver, and a runtime that calls it by pointers."""
    folder = tmp_path_factory.mktemp("libraries")
    linked = [f"-L{folder}", "-ldriver", f"-Wl,-rpath,{folder},-z,relro,-z,now"]
    for name, text, options in (("driver", _DRIVER, []), ("runtime", _RUNTIME, ["-ldl"]), ("linked", _LINKED, linked)):
        source = folder / f"{name}.c"
        source.write_text(text)
        assert _COMPILER
        command = [_COMPILER, "-shared", "-fPIC", "-O1", "-o", str(folder / f"lib{name}.so"), str(source), *options]
        subprocess.run(command, check=True, timeout=60)
    runtime = ctypes.CDLL(str(folder / "libruntime.so"))
    runtime.where.restype = ctypes.POINTER(ctypes.c_long)
    runtime.call_sum.restype = runtime.call_last.restype = ctypes.c_long
    driver = str(folder / "libdriver.so")
    assert runtime.load(driver.encode())
    runtime.driver = driver  # type: ignore[attr-defined]
    return driver, runtime


@pytest.fixture(params=_TIMED_BY, ids=lambda by_counter: "counter" if by_counter else "clock")
def timed(libraries: tuple[str, ctypes.CDLL], request: pytest.FixtureRequest) -> Iterator[ctypes.CDLL]:
    """The runtime, while its calls are timed."""
    driver, runtime = libraries
    assert _interpose.start(driver, _FUNCTIONS, 1000, request.param) == _POINTERS
    yield runtime
    try:
        _interpose.stop()
    except RuntimeError:
        return  # the test has stopped it


def _stop() -> np.ndarray:
    return np.frombuffer(_interpose.stop()[0], _CALL)


def test_a_call_does_what_it_did_and_is_timed(timed: ctypes.CDLL) -> None:
    before = time.perf_counter_ns()
    assert timed.call_sum(-3) == -3 * 66
    assert timed.call_last(5) == 5 * 12
    assert timed.call_twice(21) == 42
    assert timed.call_nap(2000) == 2000
    after = time.perf_counter_ns()
    calls = _stop()
    assert calls["what"].tolist() == [7, 7, 8, 9]
    assert (calls["thread"] == threading.get_native_id()).all()
    times = np.stack([calls["start"], calls["end"]], axis=1).ravel()
    assert before <= times[0]
    assert (np.diff(times.astype(np.int64)) >= 0).all()
    assert times[-1] <= after
    assert calls["end"][-1] - calls["start"][-1] >= 2_000_000


def test_times_are_those_of_the_clock(timed: ctypes.CDLL) -> None:
    """Each call lies within what the clock was before it and after it, whatever it was timed by."""
    marks = [time.perf_counter_ns()]
    for _ in range(300):
        timed.call_nap(1000)
        marks.append(time.perf_counter_ns())
    calls = _stop()
    between = np.array(marks)
    assert len(calls) == 300
    assert (calls["start"].astype(np.int64) >= between[:-1] - 1000).all()
    assert (calls["end"].astype(np.int64) <= between[1:] + 1000).all()


def test_afterwards_the_pointers_are_what_they_were(libraries: tuple[str, ctypes.CDLL]) -> None:
    driver, runtime = libraries
    original = runtime.where().contents.value
    _interpose.start(driver, _FUNCTIONS, 10, False)
    assert runtime.where().contents.value != original
    _interpose.stop()
    assert runtime.where().contents.value == original
    assert runtime.call_twice(4) == 8


def test_a_pointer_that_was_copied_meanwhile_goes_on_to_work(libraries: tuple[str, ctypes.CDLL]) -> None:
    driver, runtime = libraries
    _interpose.start(driver, _FUNCTIONS, 10, False)
    copied = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_int)(runtime.where().contents.value)
    _interpose.stop()
    assert copied(8) == 16
    _interpose.start(driver, _FUNCTIONS, 10, False)
    assert copied(9) == 18
    assert _stop()["what"].tolist() == [8]


def test_what_the_library_has_put_there_meanwhile_stays(libraries: tuple[str, ctypes.CDLL]) -> None:
    driver, runtime = libraries
    original = runtime.where().contents.value
    _interpose.start(driver, _FUNCTIONS, 10, False)
    runtime.where().contents.value = 12345
    _interpose.stop()
    assert runtime.where().contents.value == 12345
    runtime.where().contents.value = original


def test_of_calls_within_calls_the_outermost_counts(timed: ctypes.CDLL) -> None:
    assert timed.call_through(5) == 11
    assert _stop()["what"].tolist() == [10]


def test_each_thread_is_told_apart(timed: ctypes.CDLL) -> None:
    made: dict[int, int] = {}

    def call(count: int) -> None:
        for _ in range(count):
            timed.call_nap(100)
        made[threading.get_native_id()] = count

    threads = [threading.Thread(target=call, args=(count,)) for count in (3, 5, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    calls = _stop()
    assert {int(each): int((calls["thread"] == each).sum()) for each in np.unique(calls["thread"])} == made


def test_calls_beyond_what_there_is_room_for_are_counted(libraries: tuple[str, ctypes.CDLL]) -> None:
    driver, runtime = libraries
    _interpose.start(driver, _FUNCTIONS, 3, False)
    for number in range(10):
        assert runtime.call_twice(number) == 2 * number
    rows, lost = _interpose.stop()
    assert (len(rows) // _CALL.itemsize, lost) == (3, 7)
    _interpose.start(driver, _FUNCTIONS, 3, False)
    assert _interpose.stop() == (b"", 0)


def test_a_call_that_is_under_way_at_the_end_comes_back(libraries: tuple[str, ctypes.CDLL]) -> None:
    driver, runtime = libraries
    _interpose.start(driver, _FUNCTIONS, 10, False)
    thread = threading.Thread(target=runtime.call_nap, args=(200_000,))
    thread.start()
    time.sleep(0.05)
    assert _interpose.stop() == (b"", 0)
    thread.join()


@pytest.mark.parametrize("by_counter", _TIMED_BY)
def test_a_call_from_before_the_start_is_none(libraries: tuple[str, ctypes.CDLL], by_counter: bool) -> None:
    driver, runtime = libraries
    _interpose.start(driver, _FUNCTIONS, 10, by_counter)
    thread = threading.Thread(target=runtime.call_nap, args=(200_000,))
    thread.start()
    time.sleep(0.05)
    _interpose.stop()
    _interpose.start(driver, _FUNCTIONS, 10, by_counter)
    thread.join()
    runtime.call_twice(1)
    calls = _stop()
    assert calls[calls["start"] > 0]["what"].tolist() == [8]


def test_a_forked_child_calls_and_times_nothing(timed: ctypes.CDLL) -> None:
    child = os.fork()
    if not child:
        os._exit(0 if timed.call_twice(3) == 6 and timed.call_sum(1) == 66 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(_stop()) == 0


def test_what_a_loader_makes_read_only_is_left_alone_while_it_comes_and_goes(
    libraries: tuple[str, ctypes.CDLL],
) -> None:
    """In a process of its own, since a write there would end it."""
    driver, _ = libraries
    script = f"""
import ctypes, threading, time, _ctypes
from unstall.recording import _interpose
ctypes.CDLL({driver!r})
over = threading.Event()

def load():
    while not over.is_set():
        library = ctypes.CDLL({driver.replace("libdriver", "liblinked")!r})
        assert library.linked_twice(4) == 8
        _ctypes.dlclose(library._handle)
        time.sleep(0.0002)

thread = threading.Thread(target=load)
thread.start()
for _ in range(100):
    if _interpose.start({driver!r}, {_FUNCTIONS!r}, 10, False):
        _interpose.stop()
over.set()
thread.join()
print("well")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr


def test_data_that_a_library_makes_read_only_meanwhile_is_not_written(libraries: tuple[str, ctypes.CDLL]) -> None:
    driver, runtime = libraries
    runtime.fill()
    assert _interpose.start(driver, _FUNCTIONS, 10, False) == _POINTERS + 1
    runtime.seal(1)
    _interpose.stop()
    assert runtime.call_sealed(6) == 12
    runtime.seal(0)
    runtime.empty()


def test_ctrl_c_while_pointers_are_looked_for_leaves_none_replaced(
    libraries: tuple[str, ctypes.CDLL], tmp_path: Path
) -> None:
    driver, runtime = libraries

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    try:
        for number in range(60):
            host_only = HostOnly(tmp_path, driver)
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + 2e-5 * number)
                host_only.start(5)
                signal.setitimer(signal.ITIMER_REAL, 0)
                host_only.stop(Journal(tmp_path))
            except KeyboardInterrupt:
                interrupted += 1
                host_only.stop(Journal(tmp_path))
            with pytest.raises(RuntimeError, match="no calls are timed"):
                _interpose.stop()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted
    assert runtime.call_synchronize() == 0


def test_without_a_file_descriptor_to_be_had_pointers_are_put_back(timed: ctypes.CDLL) -> None:
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        _interpose.stop()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    timed.call_twice(3)
    assert _interpose.start(timed.driver, _FUNCTIONS, 10, False) == _POINTERS


def test_what_cannot_be_is_refused(libraries: tuple[str, ctypes.CDLL], tmp_path: Path) -> None:
    driver, _ = libraries
    with pytest.raises(RuntimeError, match="no calls are timed"):
        _interpose.stop()
    with pytest.raises(OSError, match="is not loaded"):
        _interpose.start(str(tmp_path / "libother.so"), _FUNCTIONS, 10, False)
    assert _interpose.start(driver, {1: "missing"}, 10, False) == 0
    with pytest.raises(RuntimeError, match="no calls are timed"):
        _interpose.stop()
    _interpose.start(driver, _FUNCTIONS, 10, False)
    with pytest.raises(RuntimeError, match="already"):
        _interpose.start(driver, _FUNCTIONS, 10, False)
    _interpose.stop()


@pytest.mark.parametrize("source", ["tsc", "hpet", None])
def test_a_counter_that_the_kernel_trusts_no_more_tells_nothing(
    libraries: tuple[str, ctypes.CDLL], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | None
) -> None:
    """By the clock there is nothing to distrust."""
    driver, runtime = libraries
    told = tmp_path / "current_clocksource"
    monkeypatch.setattr(host_only, "_CLOCK_SOURCE", told)
    for at_start in ("tsc\n", "hpet\n"):
        told.write_text(at_start)
        steps = HostOnly(tmp_path, driver)
        assert steps.start(1)
        runtime.call_synchronize()
        told.unlink()
        if source is not None:
            told.write_text(f"{source}\n")
        steps.stop(Journal(tmp_path))
        trusted = at_start == "hpet\n" or source == "tsc"
        assert len(np.fromfile(tmp_path / host_only.CALLS, _CALL)) == trusted
