"""The recorder that works wherever torch does: `torch.profiler`, with waits, and with operators and their shapes."""

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
"""Prefix of the name of an annotation that carries our clock's time."""
_CLOCKS = 10


class TorchProfiler:
    """Records into `folder`, from `start` to `stop`, both on one thread of the program's, or to that thread's end.

    Torch keeps a profile with the thread, and crashes where another one stops it.
    """

    name = "torch"
    any_thread = False

    def __init__(self, folder: Path, *, shapes: bool = False, stacks: bool = False, instead: str | None = None) -> None:
        """`instead` says why it stands in for the recorder cupti, if it does.

        Raises UnstallError where the program has not imported torch.
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
        """Begin to record. Raises UnstallError where torch's profiler is in use already."""
        if device.profiler_is_on():  # it would not refuse, but end the other's profile
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
        """Record no more, and write the profile to the folder. Raises UnstallError on another thread than `start`."""
        if self._stopped:  # with its thread
            return
        if threading.get_ident() != self._thread:
            raise UnstallError("torch's profiler ends only on the thread that it began on, which made no step since")
        self._stopped = True
        self._tell_time()
        begun_since = sys.getprofile()
        with steps.ignoring_steps():
            self._profile.stop()
        self._at_its_end = threading.local()  # the other would keep us as long as the thread lives
        if self.stacks and begun_since is not self._python_profiler:
            _go_on(begun_since)
        self._profile.export_chrome_trace(str(self._path))

    def flush(self) -> None:
        """Torch's profiler writes nothing before it has stopped."""
        self.stop()

    def forked(self) -> None:
        """In a forked child: the profile is its parent's.

        Torch would go on to keep in memory all that the child does. Ending the profile there would ask CUPTI, which
        does not work in a fork: what torch calls at each operator is taken off instead.
        """
        self._stopped = True
        clear = getattr(self._torch._C._autograd, "_clear_callbacks", None)
        if clear is not None:  # it is torch's own affair
            clear()
        if self.stacks and sys.getprofile() is self._python_profiler:
            sys.setprofile(None)

    def facts(self) -> dict[str, object]:
        """Nothing beyond what the profile says."""
        return {}

    def _tell_time(self) -> None:
        """Annotations named by our clock's time before each: by them the trace's clock and ours are held together."""
        for _ in range(_CLOCKS):
            with self._torch.profiler.record_function(f"{CLOCK}{time.perf_counter_ns()}"):
                pass


class _AtTheEnd:
    """Kept in a `threading.local`, it acts on that thread as the thread ends."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def __del__(self) -> None:
        with suppress(Exception):
            self._act()


@functools.cache
def _let_forks_exit() -> None:
    """Have children that are forked from now on end without what C++ does at exit.

    Kineto's `ConfigLoader` waits there for a thread of its own, which a fork does not have: a child that ends by
    `sys.exit` would hang for ever, as it does by torch.profiler itself (torch 2.13). Those of multiprocessing end by
    `os._exit`.
    """
    if sys.platform != "linux" or not hasattr(libc := ctypes.CDLL(None), "on_exit"):  # glibc's
        return

    def leave_early() -> None:
        atexit.register(libc.fflush, None)
        libc.on_exit(libc._exit, None)  # with the exit code, before all that was registered in the parent

    os.register_at_fork(after_in_child=leave_early)


def _go_on(profiler: Any) -> None:
    """Go on with a profiler of Python that the program began in the meantime: torch takes it off with its own."""
    of_cprofile: Any = getattr(sys.modules.get("_lsprof"), "Profiler", ())
    if isinstance(profiler, of_cprofile):
        profiler.enable()
    elif callable(profiler):
        sys.setprofile(profiler)
