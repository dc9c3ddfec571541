"""Calls that make the host wait are seen through the driver's pointers, and refused if Python says so."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from guarding.fake_driver import COMPILER, Libraries

_hooks = pytest.importorskip("unstall.guarding._hooks", reason="the C extension is not built", exc_type=ImportError)
pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")

STREAM, EVENT, DEVICE, ALLOCATE, TO_DEVICE_ASYNC, TO_HOST_ASYNC = 1, 2, 3, 4, 9, 10
FUNCTIONS = {
    "cuStreamSynchronize": STREAM,
    "cuEventSynchronize": EVENT,
    "cuCtxSynchronize": DEVICE,
    "cuMemAlloc_v2": ALLOCATE,
    "cuMemcpyHtoDAsync_v2": TO_DEVICE_ASYNC,
    "cuMemcpyDtoHAsync_v2": TO_HOST_ASYNC,
    "cuMissing": STREAM,
}
NOT_PERMITTED = 800
PAGEABLE, PINNED = 8, 4096


class Asked(NamedTuple):
    kind: int
    operator: str
    thread: int
    is_autograds: int
    here: int


class Asking:
    """What stands for the guard: notes what it is asked, and answers always the same."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answer: Callable[[], int] = lambda: 0

    def __call__(self, *question: object) -> int:
        self.asked.append(Asked(*question))  # type: ignore[arg-type]
        return self.answer()

    @property
    def kinds(self) -> list[int]:
        return [asked.kind for asked in self.asked]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    return Libraries(tmp_path_factory.mktemp("libraries"))


@pytest.fixture
def asking(libraries: Libraries) -> Iterator[Asking]:
    asking = Asking()
    assert _hooks.install(libraries.driver, FUNCTIONS, asking, 100) >= 6
    yield asking
    _hooks.remove()
    _hooks.finished()


@pytest.fixture
def guarded(asking: Asking) -> Iterator[Asking]:
    entered = _hooks.enter()
    yield asking
    _hooks.leave(entered)


def test_a_thread_that_is_not_guarded_is_not_asked_about(libraries: Libraries, asking: Asking) -> None:
    assert libraries.free.stream_synchronize(0) == 0
    assert not asking.asked


def test_after_leaving_nothing_is_asked(libraries: Libraries, asking: Asking) -> None:
    _hooks.leave(_hooks.enter())
    libraries.free.stream_synchronize(0)
    assert not asking.asked


@pytest.mark.parametrize("holds_gil", [False, True])
def test_waits_are_asked_about_before_they_are_made(libraries: Libraries, guarded: Asking, holds_gil: bool) -> None:
    runtime = libraries.held if holds_gil else libraries.free
    made: list[int] = []
    before = libraries.made()
    guarded.answer = lambda: made.append(libraries.made()) or 0
    runtime.stream_synchronize(0)
    runtime.event_synchronize(0)
    runtime.device_synchronize()
    assert guarded.asked == [Asked(kind, "", threading.get_ident(), 0, 1) for kind in (STREAM, EVENT, DEVICE)]
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
    libraries.free.memcpy_to_device(PINNED, 1)
    libraries.free.memcpy_to_host(PINNED, 1)
    assert not guarded.asked
    libraries.free.memcpy_to_device(PAGEABLE, 1)
    libraries.free.memcpy_to_host(PAGEABLE, 1)
    assert guarded.kinds == [TO_DEVICE_ASYNC, TO_HOST_ASYNC]


def test_a_copy_and_the_synchronization_behind_it_are_one_wait(libraries: Libraries, guarded: Asking) -> None:
    guarded.answer = lambda: 5
    libraries.free.item(PAGEABLE, 3)
    assert guarded.kinds == [TO_HOST_ASYNC]
    ended, _ = _hooks.finished()
    assert [number for number, _ in ended] == [5, 5]
    assert sum(ns for _, ns in ended) >= 5_000_000


def test_of_a_copy_that_does_not_wait_the_synchronization_is_the_wait(libraries: Libraries, guarded: Asking) -> None:
    libraries.free.item(PINNED, 3)
    assert guarded.kinds == [STREAM]


def test_a_later_synchronization_is_a_wait_of_its_own(libraries: Libraries, guarded: Asking) -> None:
    libraries.free.memcpy_to_host(PAGEABLE, 3)
    libraries.free.stream_synchronize(4)
    libraries.free.stream_synchronize(3)
    assert guarded.kinds == [TO_HOST_ASYNC, STREAM, STREAM]


def test_the_operator_is_the_outermost_one(libraries: Libraries, guarded: Asking) -> None:
    libraries.free.item(PAGEABLE, 3)
    assert [asked.operator for asked in guarded.asked] == ["item"]


def test_what_fails_in_python_lets_the_wait_be(
    libraries: Libraries, guarded: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> int:
        raise ValueError("broken")

    seen: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: seen.append(str(raised.exc_value)))
    guarded.answer = failing
    assert libraries.free.stream_synchronize(0) == 0
    assert seen == ["broken"]


def test_within_the_allocator_another_thread_asks(libraries: Libraries, guarded: Asking) -> None:
    assert libraries.allocator.allocate(64) == 64
    assert guarded.asked == [Asked(ALLOCATE, "", threading.get_ident(), 0, 0)]


def test_within_the_allocator_a_wait_can_be_refused(libraries: Libraries, guarded: Asking) -> None:
    guarded.answer = lambda: -1
    assert libraries.allocator.allocate(64) == -NOT_PERMITTED


def test_who_waits_for_the_allocators_lock_with_the_gil_is_not_waited_for(libraries: Libraries, asking: Asking) -> None:
    """The thread that allocates would wait for the GIL for ever."""
    asks, locks = threading.Event(), threading.Event()

    def allocating() -> None:
        entered = _hooks.enter()
        libraries.allocator.allocate(64)
        _hooks.leave(entered)

    def answer() -> int:
        asks.set()
        locks.wait()
        libraries.locking.take_the_lock()
        return 0

    asking.answer = answer
    thread = threading.Thread(target=allocating)
    thread.start()
    assert asks.wait(5)
    locks.set()
    thread.join(5)
    assert not thread.is_alive()
    assert _hooks.finished()[1] == 1


def test_threads_are_guarded_apart(libraries: Libraries, guarded: Asking) -> None:
    thread = threading.Thread(target=libraries.free.stream_synchronize, args=(0,))
    thread.start()
    thread.join()
    assert not guarded.asked


def test_a_library_that_is_loaded_later_is_followed_from_the_next_guard_on(
    libraries: Libraries, asking: Asking
) -> None:
    later = Libraries(Path(libraries.driver).parent, "later")
    entered = _hooks.enter()
    later.free.device_synchronize()
    _hooks.leave(entered)
    assert asking.kinds == [DEVICE]


def test_in_a_forked_child_nothing_is_guarded(libraries: Libraries, guarded: Asking) -> None:
    child = os.fork()
    if not child:
        error = libraries.free.stream_synchronize(0) or len(guarded.asked)
        os._exit(error)
    assert os.waitpid(child, 0)[1] == 0


def test_afterwards_calls_are_made_as_before(libraries: Libraries) -> None:
    asking = Asking()
    asking.answer = lambda: -1
    _hooks.install(libraries.driver, FUNCTIONS, asking, 100)
    entered = _hooks.enter()
    _hooks.remove()
    assert libraries.free.stream_synchronize(0) == 0
    _hooks.leave(entered)
    assert not asking.asked


def test_a_driver_that_is_not_loaded_is_refused() -> None:
    with pytest.raises(OSError, match=r"libnone\.so is not loaded"):
        _hooks.install("libnone.so", FUNCTIONS, Asking(), 100)
