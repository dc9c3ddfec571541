"""The cuBLAS handle of each thread. Each handle has its own workspaces.

torch has a pool of handles (aten/src/ATen/cuda/detail/DeviceThreadHandles.h). A thread takes a handle from the pool
when the thread first needs a handle. The thread returns the handle to the pool when the thread ends. Autograd has one
thread for each device, and these threads never end.
"""

from __future__ import annotations

import threading

import numpy as np

from unstall.virtual.log import NO_PYTHON


class CublasHandles:
    """The cuBLAS handle of each thread. Handles are numbered from 0.

    When a new Python thread needs a handle, the Python threads with a handle are counted. If this number is not
    smaller than the number of living Python threads (including the new thread), a thread with a handle has ended. The
    new thread then reuses the handle of the ended thread.
    """

    def __init__(self) -> None:
        self._of: dict[int, int] = {}
        self._native: set[int] = set()
        self._known = np.zeros(0, np.bool_)
        self._python: list[int] = []  # threads with a handle, in the order in which they last needed it
        self._count = 0

    def know(self, threads: np.ndarray, stacks: np.ndarray) -> None:
        """Adds the threads of new log records. A thread whose first record is outside Python belongs to autograd or
        another library.
        """
        most = int(threads.max()) + 1
        if most > len(self._known):
            self._known = np.append(self._known, np.zeros(most - len(self._known), np.bool_))
        if self._known.all():
            return
        for thread, row in zip(*np.unique(threads, return_index=True), strict=True):
            if not self._known[thread]:
                self._known[thread] = True
                if thread and stacks[row] == NO_PYTHON:
                    self._native.add(int(thread))

    def of(self, thread: int) -> int:
        """Returns the number of the thread's handle. Gives the thread a handle if it has none."""
        if thread in self._native:
            return self._of[thread] if thread in self._of else self._new(thread)
        if thread in self._of:
            self._python.remove(thread)
        elif len(self._python) >= threading.active_count():
            self._of[thread] = self._of.pop(self._python.pop(0))
        else:
            self._new(thread)
        self._python.append(thread)
        return self._of[thread]

    def would_be(self, thread: int) -> int:
        """Returns the number that `of(thread)` would return. Does not give the thread a handle."""
        if thread in self._of:
            return self._of[thread]
        is_reused = thread not in self._native and len(self._python) >= threading.active_count()
        return self._of[self._python[0]] if is_reused else self._count

    def _new(self, thread: int) -> int:
        number = self._of[thread] = self._count
        self._count += 1
        return number
