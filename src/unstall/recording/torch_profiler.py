"""The recorder `torch`, which uses `torch.profiler`. Besides the device's work, it records waits,
operators and shapes.

It works on every machine on which torch works.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from unstall.errors import UnstallError
from unstall.guest import device, steps

FILE = "profile.json"
CLOCK = "unstall.clock#"
"""The beginning of the names of annotations that carry a time. Such a name goes on with a time of unstall's clock."""
_CLOCKS = 10


class TorchProfiler:
    """Records, by `torch.profiler`, into `folder`: from the call of `start` to the call of `stop`,
    or until the thread that called `start` ends.

    `start` and `stop` must be called on the same thread of the program: torch ties a profile to the
    thread that started it, and crashes if another thread stops the profile.
    """

    name = "torch"
    any_thread = False

    def __init__(self, folder: Path, *, shapes: bool = False, stacks: bool = False, instead: str | None = None) -> None:
        """Prepares to record by `torch.profiler`.

        Args:
            folder: The folder to which the profile is written.
            shapes: Whether to record the shapes of operators' inputs.
            stacks: Whether to record Python stacks.
            instead: Why this recorder replaces the recorder `cupti`; None if it does not replace
                `cupti`.

        Raises:
            UnstallError: The program has not imported torch.
        """
        self.instead, self.stacks = instead, stacks
        if "torch" not in sys.modules:
            raise UnstallError("the recorder torch needs a program that imports torch")
        import torch
        from torch._C._profiler import _ExperimentalConfig
        from torch.profiler import ProfilerActivity, profile

        self._torch, self._path = torch, folder / FILE
        self._python_profiler: object = None
        self._thread, self._at_its_end = 0, threading.local()
        self._stopped = False
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profile: Any = profile(
            activities=activities,
            record_shapes=shapes,
            with_stack=stacks,
            experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True),
        )

    def start(self) -> None:
        """Starts to record.

        Raises:
            UnstallError: torch's profiler is already in use.
        """
        if device.profiler_is_on():  # torch would not refuse, but end the other profile
            raise UnstallError(device.PROFILER_IS_ON)
        _let_forks_exit()
        try:
            with steps.ignoring_steps():
                self._profile.start()
        except RuntimeError as error:
            raise UnstallError(f"torch.profiler does not record here: {error}") from error
        self._python_profiler = sys.getprofile()
        self._thread = threading.get_ident()
        if threading.current_thread() is not threading.main_thread():
            self._at_its_end.act = _AtTheEnd(self.stop)
        self._tell_time()

    def stop(self) -> None:
        """Stops recording and writes the profile.

        Raises:
            UnstallError: The calling thread is not the thread that called `start`.
        """
        if self._stopped:  # it stopped when its thread ended
            return
        if threading.get_ident() != self._thread:
            raise UnstallError("torch's profiler ends only on the thread that it began on, which made no step since")
        self._stopped = True
        self._tell_time()
        begun_since = sys.getprofile()
        with steps.ignoring_steps():
            self._profile.stop()
        self._at_its_end = threading.local()  # the old one would keep this object as long as the thread lives
        if self.stacks and begun_since is not self._python_profiler:
            _go_on(begun_since)
        self._profile.export_chrome_trace(str(self._path))

    def flush(self) -> None:
        """Stops recording, and writes the profile. torch's profiler writes its data only after it has stopped."""
        self.stop()

    def forked(self) -> None:
        """Removes torch's callbacks from operators in a forked child process. The profile itself
        stays with the parent process.

        With the callbacks, torch would store every operator of the child in memory. The profile
        cannot be ended in the child: this would call CUPTI, which does not work in a forked
        process.
        """
        self._stopped = True
        clear = getattr(self._torch._C._autograd, "_clear_callbacks", None)
        if clear is not None:  # an internal of torch
            clear()
        if self.stacks and sys.getprofile() is self._python_profiler:
            sys.setprofile(None)

    def facts(self) -> dict[str, object]:
        """Returns {}, because the profile file already has all facts."""
        return {}

    def _tell_time(self) -> None:
        """Makes a few annotations whose names contain a time of unstall's clock. By these, times of
        the profile can be converted to times of this clock.
        """
        for _ in range(_CLOCKS):
            with self._torch.profiler.record_function(f"{CLOCK}{time.perf_counter_ns()}"):
                pass


class _AtTheEnd:
    """Calls a function when the thread that made this object ends. For this, the object must be
    stored in a `threading.local` of this thread.
    """

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def __del__(self) -> None:
        with suppress(Exception):
            self._act()


@functools.cache
def _let_forks_exit() -> None:
    """Makes child processes that are forked from now on end without running exit handlers of C++.

    Kineto's `ConfigLoader` has an exit handler that waits for a thread. A forked process does not
    have this thread, so a child that ends by `sys.exit` would hang forever. This also happens with
    torch.profiler alone (torch 2.13). Children of multiprocessing end by `os._exit`, and are not
    affected.
    """
    if sys.platform != "linux" or not hasattr(libc := ctypes.CDLL(None), "on_exit"):  # a function of glibc
        return

    def leave_early() -> None:
        atexit.register(libc.fflush, None)
        libc.on_exit(libc._exit, None)  # with the exit code, before the handlers that the parent registered

    os.register_at_fork(after_in_child=leave_early)


def _go_on(profiler: Any) -> None:
    """Resumes a Python profiler that the program started during the recording. When torch's
    profiler stopped, it removed this profiler.
    """
    of_cprofile: Any = getattr(sys.modules.get("_lsprof"), "Profiler", ())
    if isinstance(profiler, of_cprofile):
        profiler.enable()
    elif callable(profiler):
        sys.setprofile(profiler)
