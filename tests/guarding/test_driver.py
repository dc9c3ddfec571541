"""Waits that the hooks announce are the guards': by thread and task, with their line, refused before they are made."""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator

import pytest
from guarding.fake_driver import COMPILER, Libraries
from guarding.sources import remove_source

import unstall
from unstall.errors import SyncError, UsageError
from unstall.guarding import backward, regions
from unstall.guarding.driver import DriverWaits

_hooks = pytest.importorskip("unstall.guarding._hooks", reason="the C extension is not built", exc_type=ImportError)
pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")

PAGEABLE, PINNED = 8, 4096
ALLOCATE = 4
NO_THREAD_OF_PYTHONS = 1


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    return Libraries(tmp_path_factory.mktemp("libraries"))


@pytest.fixture(autouse=True)
def driver(libraries: Libraries) -> Iterator[DriverWaits]:
    """What stands for a real GPU's driver is a source of waits."""
    waits = DriverWaits(libraries.driver, lambda: ["aten::item", "aten::sum.dim_IntList", "aten::_local_scalar_dense"])
    regions.add_source(waits)
    yield waits
    remove_source(waits)
    _hooks.remove()


def line_here() -> int:
    frame = inspect.currentframe()
    assert frame
    assert frame.f_back
    return frame.f_back.f_lineno


class AsTorch:
    """Raises what torch raises if the driver refuses a call."""

    def __init__(self, libraries: Libraries) -> None:
        self.libraries = libraries

    def item(self) -> None:
        if self.libraries.free.item(PAGEABLE, 0):
            raise RuntimeError("CUDA error: operation not permitted")


def test_a_wait_is_counted_with_its_kind_operator_and_line(libraries: Libraries) -> None:
    with unstall.no_sync("count") as guard:
        libraries.free.item(PAGEABLE, 0)
        line = line_here() - 1
        libraries.free.device_synchronize()
        libraries.allocator.allocate(64)
    assert [(wait.kind, wait.line) for wait in guard.waits] == [
        ("value", line),
        ("device", line + 2),
        ("malloc", line + 3),
    ]
    assert guard.waits[0].operator == "aten::item"
    assert {wait.file.rpartition("/")[2] for wait in guard.waits} == {"test_driver.py"}
    assert guard.waits[0].duration_ns
    assert all(wait.duration_ns is not None for wait in guard.waits)


def test_a_refused_wait_raises_the_guards_error_in_place_of_torchs(libraries: Libraries) -> None:
    made = libraries.made()
    with pytest.raises(SyncError, match=r"test_driver\.py:.*aten::item") as raised, unstall.no_sync():
        AsTorch(libraries).item()
    assert libraries.made() == made
    assert raised.value.__cause__ is None
    assert "item" in [entry.name for entry in raised.traceback]


def test_a_refusal_that_went_nowhere_is_raised_as_the_guard_is_left(libraries: Libraries) -> None:
    with pytest.raises(SyncError, match="aten::item"), unstall.no_sync():
        assert libraries.free.item(PAGEABLE, 0) != 0

    @unstall.no_sync()
    def in_words_of_a_library() -> None:
        libraries.free.item(PAGEABLE, 0)
        raise RuntimeError("CUBLAS_STATUS_NOT_INITIALIZED")

    with pytest.raises(SyncError, match="aten::item") as raised:
        in_words_of_a_library()
    assert str(raised.value.__cause__) == "CUBLAS_STATUS_NOT_INITIALIZED"


def test_a_refusal_in_autograds_threads_is_raised_by_the_guard_of_the_backward_passs_caller(
    driver: DriverWaits,
) -> None:
    @unstall.no_sync()
    def step() -> None:
        region = regions.innermost()
        assert region is not None
        backward._running.append(backward.Caller(region, sys._getframe()))
        try:
            assert driver.before(ALLOCATE, (), 0, 0, NO_THREAD_OF_PYTHONS, 0) == -1
        finally:
            backward._running.clear()

    with pytest.raises(SyncError, match=r"test_driver\.py:.*cudaMalloc"):
        step()


def test_memory_that_is_given_back_is_given_back_and_refused_later(libraries: Libraries) -> None:
    made = libraries.made()
    with pytest.raises(SyncError, match="cudaFree"), unstall.no_sync():
        assert libraries.free.free_memory(64) == 0
    assert libraries.made() == made + 1


def test_memory_that_a_library_takes_for_itself_is_no_growth_of_torchs_cache(libraries: Libraries) -> None:
    takes_memory = ctypes.cast(libraries.free.memory, ctypes.c_void_p)
    with unstall.no_sync("count") as guard:
        libraries.free.map(takes_memory, 64)
        libraries.free.memory(64)
    assert [wait.kind for wait in guard.waits] == ["library", "malloc"]
    assert "memory of a library" in str(guard.waits[0])


def test_operators_have_their_names_without_the_overload(libraries: Libraries) -> None:
    with unstall.no_sync("count") as guard:
        libraries.free.sum(0)
    assert [wait.operator for wait in guard.waits] == ["aten::sum"]


def test_an_upload_from_pinned_memory_is_told_apart(libraries: Libraries) -> None:
    with unstall.no_sync("count") as guard:
        libraries.free.upload_blocking(PAGEABLE, 0)
        libraries.free.upload_blocking(PINNED, 0)
    assert [wait.kind for wait in guard.waits] == ["upload", "pinned_upload"]


def test_an_upload_lasts_until_the_operator_has_waited_for_it(libraries: Libraries) -> None:
    with unstall.no_sync("count") as guard:
        libraries.free.upload_blocking(PAGEABLE, 0)
    [wait] = guard.waits
    assert wait.duration_ns is not None
    assert wait.duration_ns >= 5_000_000


def test_a_copy_that_nothing_waits_for_is_counted_once(libraries: Libraries) -> None:
    with unstall.no_sync("count") as guard:
        libraries.free.memcpy_to_host(PAGEABLE, 0)
        libraries.free.device_synchronize()
        libraries.free.memcpy_to_host(PAGEABLE, 0)
    assert [wait.kind for wait in guard.waits] == ["value", "device", "value"]


def test_what_was_waited_for_keeps_no_tensor_alive(libraries: Libraries) -> None:
    class Tensor:
        pass

    def step() -> weakref.ref[Tensor]:
        tensor = Tensor()
        libraries.allocator.allocate(64)
        return weakref.ref(tensor)

    with unstall.no_sync("count"):
        assert step()() is None


def _allocate_three_times(libraries: Libraries) -> None:
    for _ in range(3):
        libraries.allocator.allocate(64)


def test_a_warning_that_is_an_error_loses_no_wait_and_hides_no_error(libraries: Libraries) -> None:
    guard = unstall.no_sync("warn")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(unstall.SyncWarning), guard:
            _allocate_three_times(libraries)
    assert guard.count == 3
    assert not regions.is_guarded()


def test_if_waits_cannot_be_seen_no_block_is_entered() -> None:
    blind = DriverWaits("libnone.so")
    regions.add_source(blind)
    try:
        with pytest.raises(UsageError, match="waits for a real GPU cannot be seen here"), unstall.no_sync():
            raise AssertionError("not reached")
    finally:
        remove_source(blind)
    assert not regions.is_guarded()


def test_if_waits_cannot_be_seen_cuda_is_initialised_all_the_same_and_the_open_block_warns() -> None:
    blind = DriverWaits("libnone.so")
    try:
        says = "no wait for a real GPU was counted or refused: waits for a real GPU cannot be seen here"
        with pytest.warns(unstall.SyncWarning, match=says), unstall.no_sync():
            blind.join_guards()
        with pytest.raises(UsageError), unstall.no_sync():
            raise AssertionError("not reached")
    finally:
        remove_source(blind)


def test_errors_of_the_programs_own_stay_what_they_are(libraries: Libraries) -> None:
    def work() -> None:
        try:
            AsTorch(libraries).item()
        except RuntimeError as error:
            raise KeyError("of the program's own") from error

    with pytest.raises(KeyError), unstall.no_sync():
        work()


def test_a_warning_says_how_long_the_wait_was(libraries: Libraries) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with unstall.no_sync("warn"):
            libraries.free.stream_synchronize(0)
    [warning] = seen
    assert warning.category is unstall.SyncWarning
    assert "waited about" in str(warning.message)


def test_waits_are_allowed_for_a_reason(libraries: Libraries) -> None:
    with unstall.no_sync():
        with unstall.allow_sync("it is logged"):
            assert libraries.free.item(PAGEABLE, 0) == 0
            assert libraries.allocator.allocate(64) == 64
        with pytest.raises(SyncError), unstall.no_sync():
            assert libraries.free.item(PAGEABLE, 0) != 0


def test_of_two_threads_one_is_guarded(libraries: Libraries) -> None:
    errors: list[int] = []

    @unstall.no_sync()
    def beside_another_thread() -> None:
        thread = threading.Thread(target=lambda: errors.append(libraries.free.stream_synchronize(0)))
        thread.start()
        thread.join()
        assert libraries.free.stream_synchronize(0) != 0

    with pytest.raises(SyncError):
        beside_another_thread()
    assert errors == [0]


def test_of_two_tasks_one_is_guarded(libraries: Libraries) -> None:
    """In torch's allocator too, where another thread asks."""
    errors: dict[str, list[int]] = {"guarded": [], "free": []}

    async def work(name: str) -> None:
        for _ in range(3):
            errors[name].append(libraries.free.stream_synchronize(0))
            errors[name].append(min(0, libraries.allocator.allocate(64)))
            await asyncio.sleep(0)

    async def guarded() -> None:
        with pytest.raises(SyncError), unstall.no_sync():
            await work("guarded")

    async def both() -> None:
        await asyncio.gather(guarded(), work("free"))

    asyncio.run(both())
    assert errors["free"] == [0] * 6
    assert all(errors["guarded"])


def test_once_no_thread_is_guarded_nothing_is_asked(libraries: Libraries) -> None:
    with unstall.no_sync():
        pass
    assert libraries.free.stream_synchronize(0) == 0
