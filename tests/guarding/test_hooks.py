"""Calls that make the host wait are seen through the driver's pointers, and refused if Python says so."""

from __future__ import annotations

import _thread
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from guarding.fake_driver import COMPILER, Libraries, compiled
from processes import succeeded

_hooks = pytest.importorskip("unstall.guarding._hooks", reason="the C extension is not built", exc_type=ImportError)
pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")

STREAM, EVENT, DEVICE, ALLOCATE, FREE, CREATE, ENDS_ROW = range(1, 8)
TO_DEVICE_ASYNC, TO_HOST_ASYNC = 11, 12
FUNCTIONS = {
    "cuStreamSynchronize": (STREAM, 2000),
    "cuEventSynchronize": (EVENT, 2000),
    "cuCtxSynchronize": (DEVICE, 2000),
    "cuMemAlloc_v2": (ALLOCATE, 2000),
    "cuMemFree_v2": (FREE, 2000),
    "cuMemCreate": (CREATE, 2000),
    "cuMemSetAccess": (ENDS_ROW, 2000),
    "cuMemcpyHtoDAsync_v2": (TO_DEVICE_ASYNC, 2000),
    "cuMemcpyDtoHAsync_v2": (TO_HOST_ASYNC, 2000),
    "cuMissing": (STREAM, 2000),
}
NOT_PERMITTED = 800
PAGEABLE, PINNED = 8, 4096
LARGE = 1 << 20


class Asked(NamedTuple):
    kind: int
    operators: tuple[str, ...]
    bytes: int
    is_pinned: int
    thread: int
    here: int


class Asking:
    """What stands for the guard: notes what it is asked and told, and answers always the same."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.told: list[tuple[int, int]] = []
        self.answer: Callable[[], int] = lambda: 0

    def before(self, *question: int) -> int:
        self.asked.append(Asked(*question))  # type: ignore[arg-type]
        return self.answer()

    def after(self, number: int, ns: int) -> int:
        self.told.append((number, ns))
        return 0

    def install(self, library: str) -> set[int]:
        found: set[int] = _hooks.install(library, FUNCTIONS, self.before, self.after, 100)
        return found

    @property
    def kinds(self) -> list[int]:
        return [asked.kind for asked in self.asked]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    return Libraries(tmp_path_factory.mktemp("libraries"))


@pytest.fixture
def installed(libraries: Libraries) -> Iterator[Asking]:
    asking = Asking()
    assert asking.install(libraries.driver) == {kind for kind, _ in FUNCTIONS.values()}
    yield asking
    _hooks.remove()
    _hooks.finished()


@pytest.fixture
def guarded(installed: Asking) -> Asking:
    _hooks.switch(True)
    return installed


@pytest.fixture
def pauses(libraries: Libraries) -> Iterator[None]:
    """The runtime pauses between calls that belong together."""
    libraries.free.pause_for(2000)
    yield
    libraries.free.pause_for(0)


def test_nothing_is_asked_while_it_is_switched_off(libraries: Libraries, installed: Asking) -> None:
    assert libraries.free.stream_synchronize(0) == 0
    _hooks.switch(True)
    _hooks.switch(False)
    libraries.free.stream_synchronize(0)
    assert not installed.asked


@pytest.mark.parametrize("holds_gil", [False, True])
def test_waits_are_asked_about_before_they_are_made(libraries: Libraries, guarded: Asking, holds_gil: bool) -> None:
    runtime = libraries.held if holds_gil else libraries.free
    made: list[int] = []
    before = libraries.made()
    guarded.answer = lambda: made.append(libraries.made()) or 0  # type: ignore[func-returns-value]
    runtime.stream_synchronize(0)
    runtime.event_synchronize(0)
    runtime.device_synchronize()
    assert guarded.asked == [Asked(kind, (), 0, 0, threading.get_ident(), 1) for kind in (STREAM, EVENT, DEVICE)]
    assert [count - before for count in made] == [0, 1, 2]


def test_launches_are_not_followed(libraries: Libraries, guarded: Asking) -> None:
    assert libraries.free.launch_kernel(5, 7) == 19
    assert not guarded.asked


@pytest.mark.parametrize("holds_gil", [False, True])
def test_a_wait_that_is_refused_is_not_made(libraries: Libraries, guarded: Asking, holds_gil: bool) -> None:
    guarded.answer = lambda: -1
    runtime = libraries.held if holds_gil else libraries.free
    before = libraries.made()
    assert runtime.stream_synchronize(0) == NOT_PERMITTED
    assert runtime.memory(64) == -NOT_PERMITTED
    assert libraries.made() == before


def test_copies_wait_if_the_hosts_memory_is_pageable(libraries: Libraries, guarded: Asking) -> None:
    libraries.free.memcpy_to_device(PINNED, 1, LARGE)
    libraries.free.memcpy_to_host(PINNED, 1)
    libraries.free.memcpy_to_device(PAGEABLE, 1, 64 << 10)  # staged at once
    assert not guarded.asked
    libraries.free.memcpy_to_device(PAGEABLE, 1, LARGE)
    libraries.free.memcpy_to_host(PAGEABLE, 1)
    assert guarded.kinds == [TO_DEVICE_ASYNC, TO_HOST_ASYNC]


@pytest.mark.usefixtures("pauses")
def test_a_copy_and_the_synchronization_that_ends_it_are_one_wait(libraries: Libraries, guarded: Asking) -> None:
    libraries.free.item(PAGEABLE, 3)
    libraries.free.upload_blocking(PAGEABLE, 3)
    assert guarded.kinds == [TO_HOST_ASYNC, TO_DEVICE_ASYNC]


def test_it_takes_as_long_as_both_calls(libraries: Libraries, guarded: Asking) -> None:
    guarded.answer = lambda: 5
    libraries.free.upload_blocking(PAGEABLE, 3)
    [(number, ns)] = guarded.told
    assert number == 5
    assert ns >= 3_000_000 + 2_000_000


def test_a_copy_that_nothing_ends_is_told_at_the_next_call(libraries: Libraries, guarded: Asking) -> None:
    numbers = iter((5, 6))
    guarded.answer = lambda: next(numbers)
    libraries.free.memcpy_to_host(PAGEABLE, 1)
    assert not guarded.told
    libraries.free.device_synchronize()
    assert [number for number, _ in guarded.told] == [5, 6]


def test_or_as_a_guard_is_left(libraries: Libraries, guarded: Asking) -> None:
    guarded.answer = lambda: 5
    libraries.free.memcpy_to_host(PAGEABLE, 1)
    [(number, ns)] = _hooks.finished()[0]
    assert number == 5
    assert ns >= 3_000_000
    libraries.free.device_synchronize()
    assert len(guarded.told) == 1


def test_afterwards_it_is_told_how_long_the_wait_was(libraries: Libraries, guarded: Asking) -> None:
    guarded.answer = lambda: 5
    libraries.free.stream_synchronize(0)
    [(number, ns)] = guarded.told
    assert number == 5
    assert ns >= 2_000_000
    libraries.allocator.allocate(64)
    assert len(guarded.told) == 1
    assert [number for number, _ in _hooks.finished()[0]] == [5]


def test_an_operator_that_waits_for_its_copy_waits_as_the_copy_would(libraries: Libraries, guarded: Asking) -> None:
    libraries.free.item(PINNED, 3)
    assert [(asked.kind, asked.bytes, asked.is_pinned) for asked in guarded.asked] == [(TO_HOST_ASYNC, 4, 1)]


def test_a_copy_that_is_under_way_is_waited_for_even_if_that_is_refused(libraries: Libraries, guarded: Asking) -> None:
    """The GPU still writes into memory that torch would give back."""
    guarded.answer = lambda: -1
    made = libraries.made()
    assert libraries.free.item(PINNED, 3) == NOT_PERMITTED
    assert libraries.made() == made + 2


def test_an_operator_that_only_waits_ends_no_earlier_copy(libraries: Libraries, guarded: Asking) -> None:
    libraries.free.memcpy_to_host(PAGEABLE, 3)
    libraries.free.sum(3)
    assert guarded.kinds == [TO_HOST_ASYNC, STREAM]


def test_nor_that_of_another_operator(libraries: Libraries, guarded: Asking) -> None:
    libraries.free.upload_then_sum(PINNED, 3)
    assert guarded.kinds == [STREAM]


def test_nor_that_of_an_earlier_call_of_the_same_operator(libraries: Libraries, guarded: Asking) -> None:
    libraries.free.put(PINNED, 3)
    libraries.free.put(0, 3)
    assert guarded.kinds == [STREAM]


def test_operators_that_one_instruction_calls_are_told_apart(libraries: Libraries, guarded: Asking) -> None:
    """Their frames are at the same place of the stack."""
    for operator in (libraries.free.upload_blocking, libraries.free.lift):
        operator(PINNED, 3)
    assert guarded.kinds == [TO_DEVICE_ASYNC, TO_DEVICE_ASYNC]


def test_operators_around_python_code_are_not_those_that_wait(libraries: Libraries, guarded: Asking) -> None:
    """Compilers put parts of the interpreter's loop into functions without an exported name."""
    libraries.free.map(libraries.part_of_loop, 3)
    assert [asked.operators for asked in guarded.asked] == [()]


def test_a_small_upload_from_pageable_memory_is_not_taken_for_pinned(libraries: Libraries, guarded: Asking) -> None:
    libraries.free.upload_small(PAGEABLE, 3)
    libraries.free.upload_small(PINNED, 3)
    assert [(asked.kind, asked.bytes, asked.is_pinned) for asked in guarded.asked] == [
        (TO_DEVICE_ASYNC, 64, 0),
        (TO_DEVICE_ASYNC, 64, 1),
    ]


@pytest.mark.usefixtures("pauses")
def test_memory_that_one_call_gives_back_is_one_wait(libraries: Libraries, guarded: Asking) -> None:
    guarded.answer = lambda: 5
    libraries.free.free_row(3)
    [(number, ns)] = _hooks.finished()[0]
    assert number == 5
    assert ns >= 3 * 1_000_000
    assert guarded.kinds == [FREE]


def test_that_of_two_calls_is_two(libraries: Libraries, guarded: Asking) -> None:
    guarded.answer = lambda: 5
    libraries.free.free_memory(64)
    libraries.free.free_memory(64)
    assert guarded.kinds == [FREE, FREE]


class _Functions(dict[str, tuple[int, int]]):
    """Can be referred to weakly, unlike a dict."""


@pytest.fixture
def guarded_without_position(libraries: Libraries) -> Iterator[Asking]:
    """The hooks are installed by a thread that runs no Python code, so they cannot check where frames are."""
    asking, functions, is_installed = Asking(), _Functions(FUNCTIONS), threading.Event()
    weakref.finalize(functions, is_installed.set)
    arguments = libraries.driver, functions, asking.before, asking.after, 100
    del functions
    _thread.start_new_thread(_hooks.install, arguments)
    del arguments
    assert is_installed.wait(5)
    _hooks.switch(True)
    yield asking
    _hooks.remove()
    _hooks.finished()


def test_nor_is_it_one_if_pythons_frames_cannot_be_read(libraries: Libraries, guarded_without_position: Asking) -> None:
    guarded_without_position.answer = lambda: 5
    libraries.free.free_memory(64)
    libraries.free.free_memory(64)
    assert guarded_without_position.kinds == [FREE, FREE]


def test_that_under_two_guards_is_two(libraries: Libraries, guarded: Asking) -> None:
    guarded.answer = lambda: 5
    for _ in range(2):
        libraries.free.free_memory(64)
        _hooks.finished()
    assert guarded.kinds == [FREE, FREE]


def test_what_nobody_guarded_hides_nothing(libraries: Libraries, guarded: Asking) -> None:
    answers = iter((0, 5, 5))
    guarded.answer = lambda: next(answers)
    libraries.free.free_row(3)
    assert guarded.kinds == [FREE, FREE]


@pytest.mark.usefixtures("pauses")
def test_the_pieces_of_a_segment_are_one_wait(libraries: Libraries, guarded: Asking) -> None:
    guarded.answer = lambda: 5
    for _ in range(2):
        libraries.free.segment(3)
    assert guarded.kinds == [CREATE, CREATE]


def test_also_if_pythons_frames_cannot_be_read(libraries: Libraries, guarded_without_position: Asking) -> None:
    guarded_without_position.answer = lambda: 5
    for _ in range(2):
        libraries.free.segment(3)
    assert guarded_without_position.kinds == [CREATE, CREATE]


def test_pieces_of_two_segments_that_fail_are_two_waits(libraries: Libraries, guarded: Asking) -> None:
    """Nothing comes behind the pieces then."""
    guarded.answer = lambda: 5
    libraries.free.piece(64)
    libraries.free.piece(64)
    assert guarded.kinds == [CREATE, CREATE]


def test_a_segment_that_is_refused_gets_no_piece(libraries: Libraries, guarded: Asking) -> None:
    guarded.answer = lambda: -1
    made = libraries.made()
    for _ in range(2):
        assert libraries.free.segment(3) == NOT_PERMITTED
    assert libraries.made() == made


def test_each_allocation_is_a_wait(libraries: Libraries, guarded: Asking) -> None:
    guarded.answer = lambda: 5
    for _ in range(2):
        libraries.free.memory(64)
    assert guarded.kinds == [ALLOCATE, ALLOCATE]


def test_memory_is_given_back_even_if_that_is_refused(libraries: Libraries, guarded: Asking) -> None:
    guarded.answer = lambda: -1
    made = libraries.made()
    assert libraries.free.free_memory(64) == 0
    assert libraries.made() == made + 1


def test_threads_that_python_does_not_know_are_not_asked_about(libraries: Libraries, guarded: Asking) -> None:
    """One may be waited for by a thread that has the GIL."""
    assert libraries.held.join_a_thread_that_waits(0) == 0
    assert not guarded.asked


def test_a_synchronization_of_the_programs_own_is_a_wait_of_its_own(libraries: Libraries, guarded: Asking) -> None:
    for memory in (PAGEABLE, PINNED):
        libraries.free.memcpy_to_host(memory, 3)
        libraries.free.stream_synchronize(3)
    assert guarded.kinds == [TO_HOST_ASYNC, STREAM, STREAM]


def test_operators_are_named_from_the_outermost_on(libraries: Libraries, guarded: Asking) -> None:
    libraries.free.item(PAGEABLE, 3)
    assert [asked.operators for asked in guarded.asked] == [("aten::item", "aten::_local_scalar_dense")]


@pytest.mark.parametrize("holds_gil", [False, True])
def test_what_is_raised_meanwhile_is_raised_behind_the_call(
    libraries: Libraries, guarded: Asking, holds_gil: bool
) -> None:
    def failing() -> int:
        raise TimeoutError("by a handler of a signal")

    runtime = libraries.held if holds_gil else libraries.free
    guarded.answer = failing
    made = libraries.made()
    with pytest.raises(TimeoutError, match="by a handler of a signal"):
        runtime.stream_synchronize(0)
    assert libraries.made() == made + 1


def test_in_another_thread_it_is_printed(
    libraries: Libraries, guarded: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> int:
        raise ValueError("broken")

    seen: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: seen.append(str(raised.exc_value)))
    guarded.answer = failing
    thread = threading.Thread(target=libraries.free.stream_synchronize, args=(0,))
    thread.start()
    thread.join()
    assert seen == ["broken"]


def test_within_the_allocator_another_thread_asks(libraries: Libraries, guarded: Asking) -> None:
    assert libraries.allocator.allocate(64) == 64
    assert guarded.asked == [Asked(ALLOCATE, (), 0, 0, threading.get_ident(), 0)]


def test_who_holds_the_allocators_lock_and_the_gil_is_not_asked(libraries: Libraries, guarded: Asking) -> None:
    """Python code may release the GIL to a thread that waits for that lock."""
    assert libraries.locking.allocate(64) == 64
    assert not guarded.asked
    assert _hooks.finished() == ([], 1)


def test_however_many_waits_there_are_within_the_allocator_all_are_told(libraries: Libraries, guarded: Asking) -> None:
    numbers = iter(range(1, 301))
    guarded.answer = lambda: next(numbers)
    for _ in range(300):
        libraries.allocator.allocate(64)
    assert [number for number, _ in _hooks.finished()[0]] == list(range(1, 301))


def test_within_the_allocator_a_wait_can_be_refused(libraries: Libraries, guarded: Asking) -> None:
    guarded.answer = lambda: -1
    assert libraries.allocator.allocate(64) == -NOT_PERMITTED


def test_who_waits_for_the_allocators_lock_with_the_gil_is_not_waited_for(
    libraries: Libraries, guarded: Asking
) -> None:
    """The thread that allocates would wait for the GIL for ever."""
    asks = threading.Event()

    def answer() -> int:
        asks.set()
        libraries.locking.take_the_lock()
        return 0

    guarded.answer = answer
    thread = threading.Thread(target=libraries.allocator.allocate, args=(64,))
    thread.start()
    assert asks.wait(5)
    thread.join(5)
    assert not thread.is_alive()
    assert _hooks.finished()[1] == 1


def test_a_library_that_is_loaded_later_is_followed_once_it_is_switched_on(
    libraries: Libraries, installed: Asking
) -> None:
    later = Libraries(Path(libraries.driver).parent, "later")
    _hooks.switch(True)
    later.free.device_synchronize()
    assert installed.kinds == [DEVICE]


def test_in_a_forked_child_nothing_is_guarded(libraries: Libraries, guarded: Asking) -> None:
    child = os.fork()
    if not child:
        error = libraries.free.stream_synchronize(0) or len(guarded.asked)
        os._exit(error)
    assert os.waitpid(child, 0)[1] == 0


def test_it_has_nothing_to_tell_of_its_parents_waits(libraries: Libraries, guarded: Asking) -> None:
    guarded.answer = lambda: 5
    libraries.free.memcpy_to_host(PAGEABLE, 1)
    child = os.fork()
    if not child:
        os._exit(_hooks.finished() != ([], 0))
    assert os.waitpid(child, 0)[1] == 0


_COLLECTING = """
import ctypes, gc, sys
from unstall.guarding import _hooks
driver, runtime = sys.argv[1:]
library = ctypes.CDLL(runtime)
library.load(driver.encode())
_hooks.install(driver, {"cuMemcpyDtoHAsync_v2": (12, 3020)}, lambda *question: 5, lambda *told: 0, 100)
_hooks.switch(True)
library.memcpy_to_host(8, 1)
held = [(number, number) for number in range(5000)]  # so that none is recycled
gc.callbacks.append(lambda *_: _hooks.finished())
gc.set_threshold(1)
print(len(_hooks.finished()[0]))
"""


def test_the_garbage_collector_may_leave_a_guard_while_one_is_left(libraries: Libraries) -> None:
    done = succeeded([sys.executable, "-c", _COLLECTING, libraries.driver, libraries.path], timeout=20)
    assert done.stdout == "1\n"


_OTHERS_THREAD = """
#include <pthread.h>
typedef void (*F)(void);
static void *run(void *function) { ((F)function)(); return 0; }
extern "C" void in_a_thread(void *function)
{ pthread_t thread; pthread_create(&thread, 0, run, function); pthread_join(thread, 0); }
"""
_CLEARED = """
import ctypes, sys, threading
from unstall.guarding import _hooks
driver, runtime, others = sys.argv[1:]
free, held = ctypes.CDLL(runtime), ctypes.PyDLL(runtime)
free.load(driver.encode())
_hooks.install(driver, {"cuStreamSynchronize": (1, 2000)}, lambda *question: 5, lambda *told: 0, 100)
_hooks.switch(True)
of_thread = threading.local()

class Waits:
    def __del__(self):
        free.stream_synchronize(0)
        held.stream_synchronize(0)

@ctypes.CFUNCTYPE(None)
def leaves_something():
    of_thread.value = Waits()

for _ in range(5):
    ctypes.CDLL(others).in_a_thread(leaves_something)
print(len(_hooks.finished()[0]))
"""


def test_what_waits_as_pythons_state_of_its_thread_is_cleared_is_asked_about(
    libraries: Libraries, tmp_path: Path
) -> None:
    others = compiled(tmp_path, "others", _OTHERS_THREAD, "-lpthread")
    done = succeeded([sys.executable, "-c", _CLEARED, libraries.driver, libraries.path, others], timeout=60)
    assert int(done.stdout) in (0, 10)  # each is told at once, or later


# What stands in front of the C library, and fails for our libraries.
_IN_FRONT = """
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
static bool is_ours(const void *at, const char *name)
{ Dl_info found; return dladdr(at, &found) && strstr(found.dli_fname, name); }
extern "C" int FUNCTION
"""
_NO_THREAD = """pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *argument)
{
    if (is_ours((const void *)run, "_hooks")) return EAGAIN;
    auto make = (decltype(&pthread_create))dlsym(RTLD_NEXT, "pthread_create");
    return make(thread, how, run, argument);
}"""
_READ_ONLY = """mprotect(void *at, size_t bytes, int rights) throw()
{
    if (rights & PROT_WRITE && is_ours(__builtin_return_address(0), "_pointers")) { errno = EACCES; return -1; }
    return ((decltype(&mprotect))dlsym(RTLD_NEXT, "mprotect"))(at, bytes, rights);
}"""
_INSTALLING = """
import ctypes, sys
from unstall.guarding import _hooks
driver, runtime = sys.argv[1:]
library = ctypes.CDLL(runtime)
library.load(driver.encode())
asked = []
def before(*question):
    asked.append(question)
    return 0
try:
    _hooks.install(driver, {"cuStreamSynchronize": (1, 2000)}, before, lambda *told: 0, 100)
    _hooks.switch(True)
except OSError as error:
    print(error, end=" ")
library.stream_synchronize(0)
own = ctypes.cast(ctypes.CDLL(driver).cuStreamSynchronize, ctypes.c_void_p).value
base = ctypes.cast(ctypes.CDLL(driver).made, ctypes.c_void_p).value
print(len(asked), abs(own - base) < 1 << 20)
"""


@pytest.mark.parametrize(
    ("fails", "told"),
    [(_NO_THREAD, "no thread can be started 0 True\n"), (_READ_ONLY, "1 True\n")],
    ids=["no thread can be started", "the driver's table of symbols cannot be written"],
)
def test_what_the_system_denies_leaves_nothing_half_done(
    libraries: Libraries, tmp_path: Path, fails: str, told: str
) -> None:
    in_front = compiled(tmp_path, "in_front", _IN_FRONT.replace("FUNCTION\n", fails), "-ldl")
    command = [sys.executable, "-c", _INSTALLING, libraries.driver, libraries.path]
    assert succeeded(command, env={**os.environ, "LD_PRELOAD": in_front}, timeout=60).stdout == told


def test_once_removed_calls_are_made_as_before(libraries: Libraries, guarded: Asking) -> None:
    guarded.answer = lambda: -1
    _hooks.remove()
    assert libraries.free.stream_synchronize(0) == 0
    _hooks.switch(True)
    assert libraries.free.stream_synchronize(0) == 0
    assert not guarded.asked


def test_of_a_driver_that_is_not_loaded_nothing_is_installed() -> None:
    assert Asking().install("libnone.so") == set()
